"""Autocast: what is recorded in a region has its operands cast, as the lists of `ops/autocast_policies.py` say.

A region is a mode (`Mode.autocast`). The casts are steps of their own before the operation, so whatever reads a program
(derivatives, plans, segments) knows nothing of autocast, and a weight that is cast twice is one cast in the graph.
Most functions of the lists are one operation, whose operands are cast where it is recorded (`record`); those that
record several are marked by `autocasts`: their arguments are cast, and what they record is outside of the region.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from lazyt.config import HOST
from lazyt.errors import AutocastError
from lazyt.ir import dtypes
from lazyt.ops.autocast_policies import BANNED, LOWER, ON_GPU, ON_HOST, PROMOTE, SET_DTYPE
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


def policies(kind: str) -> dict[str, str]:
    """The policies on a kind of device: those of the host, and PyTorch's for CUDA on all others."""
    return ON_HOST if kind == HOST else ON_GPU


def default_dtype(kind: str) -> np.dtype:
    """The lower dtype of a region that gives none."""
    return dtypes.bfloat16 if kind == HOST else dtypes.float16


class Autocast:
    """The regions that are open: the lower dtype of each kind of device. One object for equal regions."""

    __slots__ = ("lower",)

    lower: dict[str, np.dtype]

    def __repr__(self) -> str:
        return f"Autocast({', '.join(f'{device}={dtype}' for device, dtype in self.lower.items())})"

    def operands(self, name: str, operands: Sequence[Any], statics: Sequence[Any]) -> tuple[Any, ...] | None:
        """The operands of an operation, cast; None where nothing is to be cast."""
        device = _device_of(operands)
        if device is None or device not in self.lower:
            return None
        policy = policies(device).get(_listed(name, operands, statics))
        if policy is None or (policy == SET_DTYPE and any(isinstance(x, np.dtype) for x in statics)):
            return None
        return self._cast(device, policy, operands)

    def call(self, name: str, f: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Call a function of several operations: on cast arguments, and outside of the region."""
        device = _device_of((*args, *options.values()))
        if device is None or device not in self.lower:
            return f(*args, **options)
        policy = policies(device).get(name)
        if policy is None:
            return f(*args, **options)
        if policy != SET_DTYPE or options.get("dtype") is None:
            values = (*args, *options.values())
            found = self._cast(device, policy, values)
            if found is not None:
                args, options = found[: len(args)], dict(zip(options, found[len(args) :], strict=True))
        before = set_mode(FIELD, None)
        try:
            return f(*args, **options)
        finally:
            restore_mode(FIELD, before)

    def _cast(self, device: str, policy: str, values: Sequence[Any]) -> tuple[Any, ...] | None:
        if policy == BANNED:
            raise AutocastError(BANNED_TEXT)
        if policy == PROMOTE:
            # NOTE: any float32 among them is the widest; otherwise it is the lower dtype.
            found = [x.dtype for x in _flat(values) if _eligible(x, device)]
            target = dtypes.float32 if dtypes.float32 in found else self.lower[device]
            if len({*found}) < 2:
                return None
        else:
            target = self.lower[device] if policy == LOWER else dtypes.float32
        out = tuple(_cast_value(x, device, target) for x in values)
        return None if all(a is b for a, b in zip(out, values, strict=True)) else out


def _flat(values: Sequence[Any]) -> list[Any]:
    return [x for v in values for x in (_flat(v) if type(v) in (list, tuple) else (v,))]


def _device_of(values: Sequence[Any]) -> str | None:
    """The kind of device that the first tensor among these is on."""
    for x in _flat(values):
        if isinstance(x, Handle):
            return str(x.device).partition(":")[0]
    return None


def _eligible(x: Any, device: str) -> bool:
    """Real floats but no float64, on the region's device."""
    if not isinstance(x, Handle | np.ndarray) or dtypes.kind(x.dtype) != "f" or x.dtype == dtypes.float64:
        return False
    return not isinstance(x, Handle) or str(x.device).partition(":")[0] == device


def _cast_value(x: Any, device: str, target: np.dtype) -> Any:
    """A tensor cast, an array as a tensor that is, those of a list or a tuple; the same object if nothing is."""
    if type(x) in (list, tuple):
        found = [_cast_value(v, device, target) for v in x]
        return x if all(a is b for a, b in zip(found, x, strict=True)) else type(x)(found)
    if not _eligible(x, device) or x.dtype == target:
        return x
    return record(ASTYPE, (x if isinstance(x, Handle) else hooks.as_tensor(x, None, ()),), (target,))


def _listed(name: str, operands: Sequence[Any], statics: Sequence[Any]) -> str:
    """The name of an operation in the tables, where that depends on how it is called."""
    if name in ("dot", "inner"):
        ndims = [len(x.shape) for x in operands if isinstance(x, Handle | np.ndarray)]
        lone = len(ndims) < 2 or not min(ndims)
        return "multiply" if lone else "dot" if ndims == [1, 1] else "matmul"
    if name == "pad" and statics:
        mode, axes = statics[0], statics[1]
        if mode == "edge" or (mode == "reflect" and len(axes) < 3):
            return "replication_pad" if mode == "edge" else "reflection_pad"
    return name


def outside(f: Callable[..., Any], *args: Any) -> Any:
    """f(*args) outside of all regions: of calls with `out=` or a dtype, and of in-place ones, operands are not cast."""
    if local.trace.mode.autocast is None:
        return f(*args)
    before = set_mode(FIELD, None)
    try:
        return f(*args)
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
        found = Autocast()
        found.lower = dict(key)
        found = _regions.setdefault(key, found)
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
