"""Autocast: what is recorded in a region has its operands cast, as the lists of `ops/autocast_policies.py` say.

A region is a mode (`Mode.autocast`). The casts are steps of their own before the operation, so whatever reads a program
(derivatives, plans, segments) knows nothing of autocast, and a weight that is cast twice is one cast in the graph.
Most functions of the lists are one operation, whose operands are cast where it is recorded (`record`); those that
record several are marked by `autocasts`: their arguments are cast, and what they record is outside of the region.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from lazyt.config import HOST
from lazyt.errors import AutocastError
from lazyt.ir import dtypes
from lazyt.ops.autocast_policies import BANNED, FLOAT32, LOWER, ON_GPU, ON_HOST, PROMOTE, SET_DTYPE
from lazyt.ops.manipulation import ASTYPE
from lazyt.tracing.current import restore_mode, set_mode
from lazyt.tracing.record import record
from lazyt.tracing.steps import hooks
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.trace import local
from lazyt.tracing.tracebacks import with_parameters_of

F = TypeVar("F", bound=Callable[..., Any])

FIELD = "autocast"

BANNED_TEXT = (
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
    "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
    "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
    "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
    "safe to autocast."
)


# By the name of a backend that was registered: its policies, and its lower dtype.
OWN: dict[str, tuple[dict[str, str], np.dtype]] = {}


def policies(kind: str) -> dict[str, str]:
    """The policies on a kind of device: those of the host, and PyTorch's for CUDA elsewhere, but for what differs."""
    return ON_HOST if kind == HOST else OWN[kind][0] if kind in OWN else ON_GPU


def default_dtype(kind: str) -> np.dtype:
    """The lower dtype of a region that gives none."""
    return dtypes.bfloat16 if kind == HOST else OWN[kind][1] if kind in OWN else dtypes.float16


def add_device(kind: str, changes: Mapping[str, str], dtype: str) -> None:
    """A kind of device with policies of its own: those that differ from CUDA's, '' for none. ValueError for others."""
    known = (LOWER, FLOAT32, SET_DTYPE, PROMOTE, BANNED, "")
    for name, policy in changes.items():
        if policy not in known:
            words = ", ".join(map(repr, known))
            raise ValueError(f"backend {kind!r}: the autocast policy of {name!r} is {policy!r}; there are {words}")
    own = {name: policy for name, policy in {**ON_GPU, **changes}.items() if policy}
    OWN[kind] = own, dtypes.as_dtype(dtype)


def remove_device(kind: str) -> None:
    """Forget the policies of a kind of device, and the regions that have it."""
    OWN.pop(kind, None)
    for key in [k for k in _regions if any(name == kind for name, _ in k)]:
        del _regions[key]


class Autocast:
    """The regions that are open: the lower dtype of each kind of device. One object for equal regions."""

    __slots__ = ("listed", "lower")

    lower: dict[str, np.dtype]
    # The operations that have a policy on one of these devices, or may have (see `_listed`).
    listed: frozenset[str]

    def __init__(self, lower: dict[str, np.dtype]) -> None:
        self.lower = lower
        self.listed = frozenset(name for kind in lower for name in policies(kind)) | _BY_CALL

    def __repr__(self) -> str:
        return f"Autocast({', '.join(f'{device}={dtype}' for device, dtype in self.lower.items())})"

    def operands(self, name: str, operands: Sequence[Any], statics: Sequence[Any]) -> Sequence[Any] | None:
        """The operands of an operation, cast; None where nothing is to be cast."""
        if name not in self.listed:
            return None
        kind = _kind_of(operands)
        if kind not in self.lower:
            return None
        policy = policies(kind).get(_listed(name, operands, statics) if name in _BY_CALL else name)
        if policy is None or (policy == SET_DTYPE and any(isinstance(x, np.dtype) for x in statics)):
            return None
        return self._cast(kind, policy, operands)

    def call(self, name: str, f: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Call a function of several operations: on cast arguments, and outside of the region."""
        kind = _kind_of((*args, *options.values()))
        policy = policies(kind).get(name) if kind in self.lower else None
        if policy is None:
            return f(*args, **options)
        if policy != SET_DTYPE or options.get("dtype") is None:
            found = self._cast(kind, policy, (*args, *options.values()))
            if found is not None:
                args, options = tuple(found[: len(args)]), dict(zip(options, found[len(args) :], strict=True))
        return outside(f, *args, **options)

    def _cast(self, kind: str, policy: str, values: Sequence[Any]) -> Sequence[Any] | None:
        if policy == LOWER:
            target = self.lower[kind]
        elif policy == BANNED:
            raise AutocastError(BANNED_TEXT)
        elif policy == PROMOTE:
            # NOTE: any float32 among them is the widest; otherwise they are of the lower dtype.
            found = {_dtype_of(x) for x in _flat(values) if _eligible(x, kind)}
            if len(found) < 2:
                return None
            target = dtypes.float32 if dtypes.float32 in found else self.lower[kind]
        else:
            target = dtypes.float32
        return cast_all(values, kind, target)


def _flat(values: Sequence[Any]) -> list[Any]:
    return [x for v in values for x in (_flat(v) if type(v) in (list, tuple) else (v,))]


def _kind_of(values: Sequence[Any]) -> str:
    """The kind of device that the first tensor among these is on; '' where there is none."""
    for x in values:
        if isinstance(x, Handle):
            return place_of(x)
        if type(x) in (list, tuple):
            kind = _kind_of(x)
            if kind:
                return kind
    return ""


def place_of(x: Any) -> str:
    """The kind of device that a tensor is on."""
    slot = x._slot
    device: str = x.device if slot is None else slot.step.device
    return device if device == HOST else str(device).partition(":")[0]


def _dtype_of(x: Any) -> np.dtype:
    found: np.dtype = x.dtype if not isinstance(x, Handle) or x._slot is None else x._slot.dtype
    return found


# What may be cast: real floats but no float64.
_ELIGIBLE = frozenset((*dtypes.HALVES, dtypes.float32))


def _eligible(x: Any, kind: str) -> bool:
    if isinstance(x, Handle):
        return _dtype_of(x) in _ELIGIBLE and place_of(x) == kind
    return isinstance(x, np.ndarray) and x.dtype in _ELIGIBLE


# NOTE: one object each, so that the step of a cast is found at once (see `record`).
_TO = {d: (d,) for d in _ELIGIBLE}


def cast_all(values: Sequence[Any], kind: str, target: np.dtype) -> Sequence[Any] | None:
    """Tensors cast, arrays as tensors that are, and those in lists and tuples; None if nothing is cast."""
    out: list[Any] | None = None
    for i, x in enumerate(values):
        if type(x) in (list, tuple):
            found = cast_all(x, kind, target)
            if found is None:
                continue
            y: Any = type(x)(found)
        elif _eligible(x, kind) and _dtype_of(x) != target:
            if not isinstance(x, Handle):
                x = hooks.as_tensor(x, next((v.device for v in values if isinstance(v, Handle)), None), values)
            y = record(ASTYPE, (x,), _TO[target])
        else:
            continue
        if out is None:
            out = [*values]
        out[i] = y
    return out


# Operations whose name in the tables depends on how they are called.
_BY_CALL = frozenset(("dot", "einsum", "inner", "pad"))


def _listed(name: str, operands: Sequence[Any], statics: Sequence[Any]) -> str:
    """The name of an operation in the tables, where that depends on how it is called."""
    if name in ("dot", "inner"):
        ndims = [len(x.shape) for x in operands if isinstance(x, Handle | np.ndarray)]
        lone = len(ndims) < 2 or not min(ndims)
        return "multiply" if lone else "dot" if ndims == [1, 1] else "matmul"
    if name == "einsum" and not _contracts(statics[0]):
        return "einsum.apart"
    if name == "pad" and statics:
        mode, axes = statics[0], statics[1]
        if mode == "edge" or (mode == "reflect" and len(axes) < 3):
            return "replication_pad" if mode == "edge" else "reflection_pad"
    return name


def _contracts(subscripts: str) -> bool:
    """Whether an einsum has a product of matrices: a label of two operands that is not in its result."""
    left, arrow, right = subscripts.replace("...", "").replace(" ", "").partition("->")
    shared = [c for c, n in Counter(c for part in left.split(",") for c in set(part)).items() if n > 1]
    return bool(set(shared) - set(right)) if arrow else bool(shared)


def outside(f: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """f(*args, **options) outside of all regions: operands of calls with `out=` or a dtype are not cast."""
    if local.trace.mode.autocast is None:
        return f(*args, **options)
    before = set_mode(FIELD, None)
    try:
        return f(*args, **options)
    finally:
        restore_mode(FIELD, before)


_regions: dict[tuple[tuple[str, np.dtype], ...], Autocast] = {}


def region(lower: dict[str, np.dtype]) -> Autocast | None:
    """The value of `Mode.autocast` for these lower dtypes; None for none."""
    if not lower:
        return None
    key = tuple(sorted(lower.items(), key=lambda item: item[0]))
    found = _regions.get(key)
    if found is None:
        found = _regions.setdefault(key, Autocast(dict(key)))
    return found


# The functions that are marked, for the test that compares them with the lists.
MARKED: set[str] = set()

_TEXT = """
def make(f, local, name):
    def call({parameters}):
        region = local.trace.mode.autocast
        if region is None:
            return f({arguments})
        return region.call(name, f, ({positional}), {{{named}}})
    return call
"""


def autocasts(name: str) -> Callable[[F], F]:
    """Mark a function that records several operations, and is one function of the lists, under this name there."""
    MARKED.add(name)

    def mark(f: F) -> F:
        assert isinstance(f, types.FunctionType), "of Python's, so that its parameters are known"
        return cast("F", with_parameters_of(f, _TEXT, local, name))

    return mark
