"""What an optimizer keeps of each parameter, and how it becomes PyTorch's `state_dict` and comes from it."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ArgumentError, InvalidKey, StateError
from lazyt.functions.arguments import tensor
from lazyt.functions.manipulation import astype
from lazyt.ir.dtypes import kind
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lazyt.runtime.tensor import Tensor

    State = dict[str, Any]

# Entries that PyTorch keeps as 0-d tensors, and lazyt as numbers: they are scalar arguments of a step.
COUNTS = frozenset({"step", "n_iter", "func_evals"})
NUMBERS = COUNTS | {"H_diag", "al", "eta", "mu", "mu_product", "prev_loss", "ro", "t"}


class States(MutableMapping[Any, Any]):
    """By parameter: the tensor itself, whatever its values are. Of one that has no state, `state[p]` is an empty one.

    Keys that are no tensors are themselves, as in PyTorch's.
    """

    def __init__(self, known: Mapping[Any, Any] | Iterable[tuple[Any, Any]] = ()) -> None:
        # By what stands for a key: the key, which so stays alive, and its state.
        self.kept: dict[Any, tuple[Any, Any]] = {}
        # How often something else than a step has changed which parameters there are.
        self.edits = 0
        self.update(known)

    def __getitem__(self, key: Any) -> Any:
        return self.setdefault(key, {})

    def __setitem__(self, key: Any, value: Any) -> None:
        self.edits += 1
        self.kept[_stands_for(key)] = key, value

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise InvalidKey(f"state: no state of {_called(key)}")
        self.edits += 1
        del self.kept[_stands_for(key)]

    def __iter__(self) -> Iterator[Any]:
        for key, _ in self.kept.values():
            yield key

    def __len__(self) -> int:
        return len(self.kept)

    def __contains__(self, key: object) -> bool:
        return _stands_for(key) in self.kept

    def get(self, key: Any, default: Any = None) -> Any:
        return self.kept.get(_stands_for(key), (key, default))[1]

    def setdefault(self, key: Any, default: Any = None) -> Any:
        return self.kept.setdefault(_stands_for(key), (key, default))[1]

    def pop(self, key: Any, *default: Any) -> Any:
        if default and key not in self:
            return default[0]
        found = self.get(key)
        del self[key]
        return found

    def clear(self) -> None:
        self.edits += 1
        self.kept.clear()

    def copy(self) -> States:
        """Another mapping of the same states."""
        return States(self.items())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        theirs = other if isinstance(other, States) else States(other)
        return self.kept.keys() == theirs.kept.keys() and all(self.get(k) == theirs.get(k) for k in self)

    def __repr__(self) -> str:
        return f"States({{{', '.join(f'{k!r}: {v!r}' for k, v in self.items())}}})"

    def __reduce__(self) -> tuple[Any, ...]:
        return States, ([*self.items()],)


def _stands_for(key: Any) -> Any:
    """What tells a key from others. NOTE: as `Optimizer._record` does it."""
    return id(key) if isinstance(key, Handle) else (key,)


def _called(key: Any) -> str:
    return f"a tensor of shape {key.shape}" if isinstance(key, Handle) else repr(key)


def saved(
    owner: str, states: States, groups: Sequence[dict[str, Any]], save: Callable[[State], State]
) -> dict[Any, Any]:
    """The states, as `save` makes them, by the positions of their parameters in `groups`."""
    at = {id(p): i for i, p in enumerate(p for group in groups for p in group["params"])}
    found: dict[Any, Any] = {}
    for key, state in states.items():
        if not isinstance(key, Handle):
            found[key] = state
            continue
        if id(key) not in at:
            raise InvalidKey(
                f"{owner}.state_dict: there is a state of {_called(key)}, which is in no group; `del "
                "optimizer.state[p]` for what is optimized no more"
            )
        found[at[id(key)]] = save(state)
    return found


def filled(p: Tensor, value: float, shape: Sequence[int] | None = None) -> Tensor:
    """A computed tensor of one value, as large as a parameter: so the first step is the program of all later ones.

    Both parts of a complex one have that value.
    """
    if kind(p.dtype) == "c":
        value = complex(value, value)  # type: ignore[assignment]
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


def loaded(owner: str, state_dict: Mapping[str, Any], groups: Sequence[dict[str, Any]]) -> list[tuple[Any, Any]]:
    """Each parameter of `groups` that has a state in a `state_dict`, and that state."""
    missing = [k for k in ("state", "param_groups") if k not in state_dict]
    if missing:
        raise StateError(f"{owner}.load_state_dict: {missing} missing; the keys are {sorted(map(str, state_dict))}")
    saved = state_dict["param_groups"]
    sizes = [len(g["params"]) for g in saved], [len(g["params"]) for g in groups]
    if sizes[0] != sizes[1]:
        raise StateError(f"{owner}.load_state_dict: groups of {sizes[0]} parameters, not of {sizes[1]}")
    params = [p for g in groups for p in g["params"]]
    at = {index: k for k, index in enumerate(index for g in saved for index in g["params"])}
    found: list[tuple[Any, Any]] = []
    for index, entries in state_dict["state"].items():
        if not isinstance(index, int):
            found.append((index, entries))
            continue
        if index not in at:
            raise StateError(f"{owner}.load_state_dict: state of parameter {index!r}, which is in no group")
        p = params[at[index]]
        given = {k: copied(k, v, p) for k, v in entries.items() if v is not None}
        check_shapes(owner, index, given, p)
        # PyTorch's SGD counts no steps; what matters here is that the first one is over.
        found.append((p, {"step": 1, **given}))
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
        raise ArgumentError(f"{owner}: all parameters are given with names, or none is")
    return [p for _, p in given], [name for name, _ in given]
