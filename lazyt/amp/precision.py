"""What `initialize` makes of an optimizer: its parameters may be float32 copies of the model's (master weights)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.amp.grad_scaler import GradScaler, step_unless, unscale_all, without_gradients
from lazyt.errors import AutocastError
from lazyt.functions.arguments import tensor
from lazyt.functions.arithmetic import add, maximum
from lazyt.functions.logic import where
from lazyt.functions.manipulation import astype
from lazyt.ir import dtypes
from lazyt.nn.module import Parameter
from lazyt.tracing.inplace import assign

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyt.amp.levels import Options

# The entry of an optimizer's `state_dict` that has its float32 copies, by the positions of their parameters.
MASTERS = "master_weights"


class Precision:
    """What `initialize` made of one optimizer: which parameter of the model each of its parameters stands for."""

    def __init__(self, optimizer: Any, options: Options, pairs: list[tuple[Any, Any]], scalers: list[Any]) -> None:
        self.optimizer, self.options, self.pairs, self.scalers = optimizer, options, pairs, scalers
        self.found: dict[str, Any] = {}  # by device, whether gradients overflowed since the last step
        self.stashed: list[Any] = []
        self.scaled = False  # whether gradients are scaled still, as `delay_unscale` leaves them
        self._find_copies()

    def stash(self) -> None:
        """Put the gradients so far aside: those that come are scaled."""
        if not self.scaled:
            self.stashed = [own.grad for own, _ in self.pairs]
            for own, of_model in self.pairs:
                own.grad = of_model.grad = None

    def put_back(self) -> None:
        """Forget what came since `stash`, as if that had not been called."""
        for (own, of_model), old in zip(self.pairs, self.stashed, strict=False):
            of_model.grad, own.grad = None, old
        self.stashed = []

    def collect(self, scaler: GradScaler) -> dict[str, Any]:
        """Unscale what came, for the optimizer's parameters, on top of what was put aside; by device, the overflow."""
        grads = []
        for own, of_model in self.pairs:
            g = of_model.grad
            grads.append(None if g is None else g if own is of_model and g.dtype == own.dtype else astype(g, own.dtype))
        came = [g for g in grads if g is not None]
        found = unscale_all(came, scaler.values()[0])
        for (own, of_model), new, old in zip(self.pairs, grads, self.stashed or [None] * len(grads), strict=True):
            of_model.grad = None
            own.grad = new if old is None else old if new is None else add(old, new)
        self.stashed, self.scaled = [], False
        return found

    def overflowed(self, found: dict[str, Any]) -> None:
        """The next step is skipped where one of these is not 0."""
        for device, flag in found.items():
            self.found[device] = flag if device not in self.found else maximum(self.found[device], flag)

    def step(self, closure: Any = None) -> Any:
        """The optimizer's step, or nothing if gradients overflowed; then the model's parameters follow."""
        step = type(self.optimizer).step
        if closure is not None:
            raise AutocastError("step: not supported: a closure with initialize, because its losses are to be scaled")
        self.follow()
        found, self.found = self.found, {}
        out = step_unless(found, self.optimizer, lambda: step(self.optimizer)) if found else step(self.optimizer)
        for own, of_model in self.copies.values():
            without_gradients(assign, of_model, astype(own.detach(), of_model.dtype))
        self.versions = self._versions()
        return out

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of the optimizer's parameters and of the model's."""
        type(self.optimizer).zero_grad(self.optimizer, set_to_none)
        for own, of_model in self.pairs:
            if own is not of_model:
                of_model.grad = None

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """The optimizer's: gradients are unscaled like the others', and halves get float32 copies if others have."""
        self.follow()
        type(self.optimizer).add_param_group(self.optimizer, group)
        added = self.optimizer.param_groups[-1]
        masters = self.options.master_weights
        pairs = [
            (Parameter(astype(p.detach(), dtypes.float32)) if masters and p.dtype in dtypes.HALVES else p, p)
            for p in added["params"]
        ]
        added["params"] = [own for own, _ in pairs]
        self.pairs += pairs
        self._find_copies()

    def _find_copies(self) -> None:
        self.copies = {i: pair for i, pair in enumerate(self.pairs) if pair[0] is not pair[1]}  # by position
        self.versions = self._versions()

    # What is saved

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's, and the float32 copies of parameters."""
        self.follow()
        found: dict[str, Any] = type(self.optimizer).state_dict(self.optimizer)
        if self.copies:
            found[MASTERS] = {i: own.detach() for i, (own, _) in self.copies.items()}
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave; without float32 copies these are made of the model's parameters."""
        given = self._given(state_dict.get(MASTERS))
        type(self.optimizer).load_state_dict(self.optimizer, state_dict)
        for i, (own, of_model) in self.copies.items():
            new = astype(of_model.detach(), own.dtype) if given is None else given[i]
            without_gradients(assign, own, new)
        # NOTE: the model's parameters may be loaded before this or after it, or not at all.
        self.versions = [-1] * len(self.copies)

    def _given(self, masters: Mapping[int, Any] | None) -> dict[int, Any] | None:
        """The copies that a `state_dict` has; AutocastError where they are not those of this optimizer."""
        if masters is None:
            return None
        if sorted(masters) != sorted(self.copies):
            raise AutocastError(
                f"load_state_dict: float32 copies of parameters {sorted(masters)} are given, and this optimizer has "
                f"copies of {sorted(self.copies)}"
            )
        found = {}
        for i, (own, _) in self.copies.items():
            x = found[i] = tensor(masters[i]).to(own.device)
            if x.shape != own.shape:
                raise AutocastError(f"load_state_dict: parameter {i} has shape {own.shape}, its copy {x.shape}")
        return found

    def _versions(self) -> list[int]:
        return [of_model._version for _, of_model in self.copies.values()]

    def follow(self) -> None:
        """Take over what others wrote into the model's parameters; a copy that rounds to what is there stays."""
        now = self._versions()
        if now == self.versions:
            return
        for (own, of_model), version, before in zip(self.copies.values(), now, self.versions, strict=True):
            if version != before:
                there, kept = of_model.detach(), own.detach()
                same = astype(kept, there.dtype) == there
                without_gradients(assign, own, where(same, kept, astype(there, kept.dtype)))
        self.versions = now
