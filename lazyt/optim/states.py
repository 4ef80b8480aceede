"""What an optimizer keeps of each parameter, and how it becomes PyTorch's `state_dict` and comes from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import LazytError, StateError
from lazyt.functions.arguments import tensor
from lazyt.functions.manipulation import astype
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lazyt.runtime.tensor import Tensor

    State = dict[str, Any]

# Entries that PyTorch keeps as 0-d tensors, and lazyt as numbers: they are scalar arguments of a step.
COUNTS = frozenset({"step", "n_iter", "func_evals"})
NUMBERS = COUNTS | {"H_diag", "al", "eta", "mu", "mu_product", "prev_loss", "ro", "t"}


class States(dict[Any, Any]):
    """By the position of a parameter; `state[p]` finds it by the tensor, and is an empty one if there is none yet."""

    def __init__(self, groups: list[dict[str, Any]], known: Mapping[int, State] | None = None) -> None:
        super().__init__(known or {})
        self._groups = groups
        self._positions: dict[int, int] = {}

    def _position(self, key: Any) -> Any:
        if not isinstance(key, Handle):
            return key
        if id(key) not in self._positions:
            params = [p for group in self._groups for p in group["params"]]
            self._positions = {id(p): i for i, p in enumerate(params)}
        if id(key) not in self._positions:
            raise LazytError(f"state: a tensor of shape {key.shape} that is no parameter of this optimizer")
        return self._positions[id(key)]

    def __getitem__(self, key: Any) -> Any:
        at = self._position(key)
        return self.setdefault(at, {}) if at is not key else super().__getitem__(at)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(self._position(key), value)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(self._position(key))

    def __reduce__(self) -> tuple[Any, ...]:
        return States, (self._groups, dict(self))


def filled(p: Tensor, value: float, shape: Sequence[int] | None = None) -> Tensor:
    """A computed tensor of one value, as large as a parameter: so the first step is the program of all later ones."""
    return tensor(np.broadcast_to(np.asarray(value, p.dtype), p.shape if shape is None else shape), p)


def copied(name: str, value: Any, p: Any) -> Any:
    """An entry of a state for parameter p: tensors as copies in its dtype, 0-d counts as numbers."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [copied(name, v, p) for v in value]
    if isinstance(value, dict):
        return {k: copied(k, v, p) for k, v in value.items()}
    v = tensor(value.detach() if hasattr(value, "detach") else value)
    if name in NUMBERS:
        return int(v.item()) if name in COUNTS else v.item()
    return astype(v, p.dtype, copy=True)


def loaded(owner: str, state_dict: Mapping[str, Any], groups: Sequence[dict[str, Any]]) -> dict[int, State]:
    """The states of a `state_dict`, by the positions that the parameters have in `groups`."""
    missing = [k for k in ("state", "param_groups") if k not in state_dict]
    if missing:
        raise StateError(f"{owner}.load_state_dict: {missing} missing; the keys are {sorted(map(str, state_dict))}")
    saved = state_dict["param_groups"]
    sizes = [len(g["params"]) for g in saved], [len(g["params"]) for g in groups]
    if sizes[0] != sizes[1]:
        raise StateError(f"{owner}.load_state_dict: groups of {sizes[0]} parameters, not of {sizes[1]}")
    params = [p for g in groups for p in g["params"]]
    at = {index: k for k, index in enumerate(index for g in saved for index in g["params"])}
    found: dict[int, State] = {}
    for index, entries in state_dict["state"].items():
        if index not in at:
            raise StateError(f"{owner}.load_state_dict: state of parameter {index!r}, which is in no group")
        position = at[index]
        given = {k: copied(k, v, params[position]) for k, v in entries.items() if v is not None}
        check_shapes(owner, index, given, params[position])
        # PyTorch's SGD counts no steps; what matters here is that the first one is over.
        found[position] = {"step": 1, **given}
    return found


# Entries that are as large as their parameter, in every optimizer that has them.
_ALIKE = frozenset({
    "acc_delta", "ax", "exp_avg", "exp_avg_sq", "exp_inf", "grad_avg", "max_exp_avg_sq", "momentum_buffer", "prev",
    "square_avg", "step_size", "sum", "variance",
})  # fmt: skip


def check_shapes(owner: str, index: Any, entries: State, p: Any) -> None:
    """StateError for a state that is another parameter's."""
    wrong = [
        f"{k} has shape {v.shape}"
        for k, v in entries.items()
        if k in _ALIKE and isinstance(v, Handle) and v.shape != p.shape
    ]
    if wrong:
        raise StateError(
            f"{owner}.load_state_dict: parameter {index!r} has shape {p.shape}, but its {', '.join(wrong)}"
        )


def named(owner: str, params: Iterable[Any]) -> tuple[list[Any], list[str] | None]:
    """Parameters, and their names if they were given as (name, parameter), all of them or none."""
    given = list(params)
    pairs = [isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], str) for p in given]
    if not any(pairs):
        return given, None
    if not all(pairs):
        raise LazytError(f"{owner}: all parameters are given with names, or none is")
    return [p for _, p in given], [name for name, _ in given]
