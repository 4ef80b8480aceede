"""The base of optimizers: parameter groups, state, and a step that is one recorded operation."""

from __future__ import annotations

from itertools import chain
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import LazytError
from lazyt.functions.arguments import tensor
from lazyt.functions.manipulation import astype
from lazyt.ops.optim import RULES
from lazyt.optim.parameters import clear_gradient
from lazyt.tracing.batched_writes import record_update
from lazyt.tracing.commit import carry_out, prepared
from lazyt.tracing.current import restore_grad_mode, set_grad_mode
from lazyt.tracing.inplace import Item, set_items
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lazyt.ops.definition import OpDef
    from lazyt.runtime.tensor import Tensor

    Group = dict[str, Any]
    State = dict[str, Any]


# The options that are numbers, of all optimizers.
_NUMBERS = frozenset({
    "alpha", "betas", "dampening", "eps", "initial_accumulator_value", "lr", "lr_decay", "momentum", "weight_decay",
})  # fmt: skip


class _Bucket:
    """Parameters that share scalars: with their gradients and state, and what of that is written."""

    __slots__ = ("flags", "group", "items", "members", "step", "targets", "tensors")

    def __init__(self, group: Group, step: int, flags: dict[str, bool]) -> None:
        self.group, self.step, self.flags = group, step, flags
        self.members = 0
        self.tensors: list[Any] = []
        self.targets: list[Any] = []
        # What of the optimizer's own state changes with the update, and not before.
        self.items: list[Item] = []


class Optimizer:
    """Base of the optimizers. `param_groups` are dictionaries of options and their 'params', as in PyTorch.

    `state` holds, by the position of a parameter, its step count and tensors. A step records one operation over all
    parameters that have a gradient and writes their new values; nothing is computed, and a new learning rate or step
    count is no new program.
    """

    op: OpDef

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        if isinstance(params, Handle):
            raise LazytError(f"{type(self).__name__}: params is an iterable of tensors or of groups, not a tensor")
        self.defaults = defaults
        self.param_groups: list[Group] = []
        self.state: dict[int, State] = {}
        self._devices: set[Any] = set()
        given = list(params)
        if not given:
            raise LazytError(f"{type(self).__name__}: no parameters were given")
        for group in given if isinstance(given[0], dict) else [{"params": given}]:
            self.add_param_group(group)

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add parameters with options of their own; what is not given is as for the others."""
        params = group["params"]
        params = [params] if isinstance(params, Handle) else list(params)
        known = {id(p) for g in self.param_groups for p in g["params"]}
        for p in params:
            if not isinstance(p, Handle):
                raise LazytError(f"{type(self).__name__}: parameters are tensors, got {type(p).__name__!r}")
            if id(p) in known:
                raise LazytError(f"{type(self).__name__}: a parameter is in two places")
            if not p.is_leaf:
                raise LazytError(f"{type(self).__name__}: only leaf tensors can be optimized")
            known.add(id(p))
            self._devices.add(p.device)
        merged = {**self.defaults, **group, "params": params}
        self.check(merged)
        self.param_groups.append(merged)

    def check(self, group: Group) -> None:
        """Raise LazytError for options that make no sense."""
        for name in _NUMBERS & group.keys():
            for value in group[name] if name == "betas" else (group[name],):
                if not isinstance(value, Real | np.ndarray | Handle):
                    raise LazytError(f"{type(self).__name__}: a number is required for {name}, got {value!r}")
        for name in ("lr", "eps", "weight_decay", "momentum"):
            if group.get(name, 0) < 0:
                raise LazytError(f"{type(self).__name__}: {name} is at least 0, got {group[name]}")

    def flags(self, group: Group) -> dict[str, bool]:
        """The variant of the rule."""
        raise NotImplementedError

    def scalars(self, group: Group, step: int) -> dict[str, float]:
        """The hyperparameters of step number `step` (from 1)."""
        raise NotImplementedError

    def shared(self, step: int) -> Any:
        """Parameters of a group whose steps agree in this share their scalars."""
        return None

    def new_state(self, group: Group, p: Any, names: Iterable[str]) -> State:
        """The state before the first step."""
        return {"step": 0, **{name: filled(p, 0) for name in names}}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or set them to 0."""
        for group in self.param_groups:
            for p in group["params"]:
                clear_gradient(p, set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Record one update of every parameter that has a gradient; `closure()` is called first, and returned."""
        loss = None
        if closure is not None:
            before = set_grad_mode(True)
            try:
                loss = closure()
            finally:
                restore_grad_mode(before)
        before = set_grad_mode(False)
        try:
            self._record()
        finally:
            restore_grad_mode(before)
        return loss

    def _record(self) -> None:
        buckets: dict[Any, _Bucket] = {}
        states, rule, at = self.state, RULES[self.op], 0
        several = len(self._devices) > 1
        for g, group in enumerate(self.param_groups):
            flags = self.flags(group)
            names = rule.slots(flags)
            bucket: _Bucket | None = None  # mostly all parameters of a group have made as many steps
            for index, p in enumerate(group["params"], at):
                gradient = p.grad
                if gradient is None:
                    continue
                known = states.get(index)
                state = self.new_state(group, p, names) if known is None else known
                step = state["step"] + 1
                if bucket is None or step != bucket.step or several:
                    key = p.device if several else None, g, self.shared(step)
                    bucket = buckets.get(key)
                    if bucket is None:
                        bucket = buckets[key] = _Bucket(group, step, flags)
                tensors, targets = bucket.tensors, bucket.targets
                bucket.members += 1
                bucket.items.append((state, "step", step))
                if known is None:
                    bucket.items.append((states, index, state))
                tensors += p, gradient
                targets.append(p)
                for name in names:
                    x = state[name]
                    tensors.append(x)
                    targets.append(x)
            at += len(group["params"])
        # An operation is of one device.
        for device in dict.fromkeys(device for device, *_ in buckets):
            self._update([bucket for key, bucket in buckets.items() if key[0] == device])

    def _update(self, buckets: Iterable[_Bucket]) -> None:
        rule = RULES[self.op]
        tensors: list[Any] = []
        targets: list[Any] = []
        scalars: list[float] = []
        layout: list[tuple[Any, ...]] = []
        items: list[Item] = []
        for bucket in buckets:
            values = self.scalars(bucket.group, bucket.step)
            scalars += [float(values[name]) for name in rule.scalars]
            layout.append((bucket.members, *(bool(bucket.flags[name]) for name in rule.flags)))
            tensors += bucket.tensors
            targets += bucket.targets
            items += bucket.items
        record_update(self.op, (*tensors, *scalars), (tuple(layout),), targets, items)

    def state_dict(self) -> dict[str, Any]:
        """The state of every parameter by its position, and the groups' options, as in PyTorch."""
        groups, at = [], 0
        for group in self.param_groups:
            n = len(group["params"])
            groups.append({**{k: v for k, v in group.items() if k != "params"}, "params": list(range(at, at + n))})
            at += n
        return {"state": {i: dict(s) for i, s in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over copies of a state that `state_dict` gave; LazytError unless the groups have the same sizes."""
        groups = state_dict["param_groups"]
        sizes = [len(g["params"]) for g in groups], [len(g["params"]) for g in self.param_groups]
        if sizes[0] != sizes[1]:
            raise LazytError(
                f"{type(self).__name__}.load_state_dict: groups of {sizes[0]} parameters, not of {sizes[1]}"
            )
        params = [p for g in self.param_groups for p in g["params"]]
        order = [i for g in groups for i in g["params"]]
        state = {
            # PyTorch's SGD counts no steps; what matters here is that the first one is over.
            order.index(i): {"step": 1, **{k: _copied(v, params[order.index(i)]) for k, v in s.items()}}
            for i, s in state_dict["state"].items()
        }
        items = [
            (mine, k, v)
            for mine, theirs in zip(self.param_groups, groups, strict=True)
            for k, v in theirs.items()
            if k != "params"
        ]
        carry_out(chain(set_items(items), prepared([(self, "state", state)])))

    def __repr__(self) -> str:
        lines = [
            f"  group {i}: " + ", ".join(f"{k}={v}" for k, v in g.items() if k != "params")
            for i, g in enumerate(self.param_groups)
        ]
        return "\n".join([f"{type(self).__name__}(", *lines, ")"])


def filled(p: Tensor, value: float) -> Tensor:
    """A computed tensor of one value, as large as a parameter: so the first step is the program of all later ones."""
    return tensor(np.broadcast_to(np.asarray(value, p.dtype), p.shape), p)


def _copied(value: Any, p: Tensor) -> Any:
    """A copy of a state tensor in the parameter's dtype; numbers as they are (PyTorch's step counts are 0-d)."""
    if isinstance(value, int | float):
        return value
    v = tensor(value)
    return int(v.item()) if not v.shape and p.shape else astype(v, p.dtype, copy=True)
