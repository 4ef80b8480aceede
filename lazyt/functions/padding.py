"""Arrays with more elements around them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, ShapeError
from lazyt.functions.arguments import record, tensor
from lazyt.functions.creation import linspace
from lazyt.functions.elementwise import round
from lazyt.functions.host import holds_tensor
from lazyt.functions.indexing import take
from lazyt.functions.joining import concat
from lazyt.functions.manipulation import astype, broadcast_to, flip
from lazyt.functions.quantiles import median
from lazyt.functions.reductions import amax, amin, mean
from lazyt.functions.subscript import getitem
from lazyt.functions.windows import check_extents
from lazyt.ir import dtypes
from lazyt.ops import joining as ops
from lazyt.ops.axes import integer, one_axis
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lazyt.functions.arguments import ArrayLike
    from lazyt.runtime.tensor import Tensor

    Pairs = list[tuple[Any, Any]]

__all__ = ["pad"]

# Modes that one operation has, and such as take a statistic of what is at each end.
_COPIES = ("constant", "edge", "reflect", "symmetric", "wrap")
_STATISTICS: dict[str, Callable[..., Any]] = {"maximum": amax, "mean": mean, "median": median, "minimum": amin}
_MODES = (*_COPIES, *_STATISTICS, "linear_ramp", "empty")


def _widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    """One pair (before, after) an axis."""
    if isinstance(pad_width, dict):
        pairs = [(0, 0)] * ndim
        for axis, w in pad_width.items():
            before, after = np.broadcast_to(np.asarray(w), (2,)).tolist()
            pairs[one_axis("pad", axis, ndim)] = (before, after)
    else:
        given = _array("pad_width", pad_width)
        if given.size and dtypes.host_kind(given.dtype) not in "iu":
            integer("pad", "pad_width", pad_width)
        pairs = [(int(p), int(q)) for p, q in _paired("pad_width", given, ndim)]
    check_extents("pad", [w for p in pairs for w in p])
    if any(w < 0 for p in pairs for w in p):
        raise ShapeError(f"pad: negative widths in {pairs}")
    return pairs


def _paired(what: str, given: np.ndarray[Any, Any], ndim: int) -> Pairs:
    """One pair (before, after) an axis, of one thing, a pair, or a pair an axis."""
    try:
        wide = np.broadcast_to(given.reshape(-1, 1) if given.shape == (ndim, 1) else given, (ndim, 2))
    except ValueError:
        raise ShapeError(f"pad: {what} of shape {given.shape} for an array of {ndim} dimensions") from None
    return [tuple(p) for p in wide.tolist()]


def _array(what: str, given: Any) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(given)
    except ValueError:
        raise ShapeError(f"pad: {what} are one, a pair, or a pair an axis, got {given!r}") from None


def _values(what: str, given: ArrayLike, t: Tensor) -> Pairs:
    """The value for each end: scalars, or where tensors were given tensors of no dimensions."""
    if isinstance(given, Handle) or (isinstance(given, list | tuple) and holds_tensor(given)):
        value = tensor(given, t)
        if value.ndim and value.shape not in ((1,), (2,), (t.ndim, 1), (1, 2), (t.ndim, 2)):
            raise ShapeError(f"pad: {what} of shape {value.shape} for an array of {t.ndim} dimensions")
        wide = broadcast_to(value, (t.ndim, 2))
        return [(getitem(wide, (a, 0)), getitem(wide, (a, 1))) for a in range(t.ndim)]
    found = _array(what, given)
    if dtypes.host_kind(found.dtype) not in "biufc":
        raise DTypeError(f"pad: {what} are numbers, got {given!r}")
    return _paired(what, found, t.ndim)


def _reach(mode: str, n: int) -> int:
    """How far a mode pads an axis of n by one copy of what is there."""
    return n - 1 if mode == "reflect" else n if mode in ("symmetric", "wrap") else 1 << 62


def pad(
    x: ArrayLike, pad_width: int | Iterable[Any] | Mapping[int, Any], /, mode: str = "constant", *,
    stat_length: Any = None, constant_values: ArrayLike = 0, end_values: ArrayLike | None = None,
) -> Tensor:  # fmt: skip
    """x with `pad_width` (a number, a pair, a pair an axis, or a dict by axis) more elements before and
    after.

    Modes: 'constant' (`constant_values`), 'edge', 'reflect', 'symmetric', 'wrap'; 'maximum', 'mean', 'median' and
    'minimum' of the `stat_length` elements at that end (by default all); 'linear_ramp' to `end_values` (0); 'empty',
    which is zeros. Values and lengths are one, a pair, or a pair an axis. Other widths are not another program. Raises
    ShapeError for widths that are negative or do not fit x, or another mode. As `numpy.pad`.

    >>> import lazyt as lt
    >>> lt.pad(lt.asarray([1, 2, 3]), (1, 2), "reflect").tolist()
    [2, 1, 2, 3, 2, 1]
    """
    t = tensor(x)
    if not isinstance(mode, str) or mode not in _MODES:
        raise ShapeError(f"pad: mode {mode!r} is not one of {', '.join(_MODES)}")
    for name, given, takes in (
        ("stat_length", stat_length, mode in _STATISTICS), ("end_values", end_values, mode == "linear_ramp"),
    ):  # fmt: skip
        if given is not None and not takes:
            raise ShapeError(f"pad: mode {mode!r} takes no {name}, got {given!r}")
    pairs = _widths(pad_width, t.ndim)
    many = (
        constant_values.ndim if isinstance(constant_values, Handle | np.ndarray) else not np.isscalar(constant_values)
    )
    if mode == "constant" and many:
        return _constants(t, pairs, _values("constant_values", constant_values, t))
    if mode == "linear_ramp":
        return _ends(t, pairs, _values("end_values", 0 if end_values is None else end_values, t), _ramps)
    if mode in _STATISTICS:
        lengths = [(None, None)] * t.ndim if stat_length is None else _lengths(mode, stat_length, t.ndim)
        return _ends(t, pairs, lengths, functools.partial(_statistic, mode))
    return _copied(t, pairs, "constant" if mode == "empty" else mode, constant_values if mode == "constant" else 0)


def _copied(t: Tensor, pairs: list[tuple[int, int]], mode: str, value: ArrayLike) -> Tensor:
    near: dict[int, tuple[int, int]] = {}
    for a, pair in enumerate(pairs):
        if pair == (0, 0):
            continue
        if max(pair) <= _reach(mode, t.shape[a]):
            near[a] = pair
        else:
            # Copies of copies: where each element comes from is worked out here.
            if not t.shape[a]:
                raise ShapeError(f"pad: mode {mode!r} cannot extend axis {a} of extent 0")
            t = take(t, np.pad(np.arange(t.shape[a]), pair, mode), axis=a)  # type: ignore[call-overload]
    ints = tuple(w for pair in near.values() for w in pair)
    return record(ops.PAD, (t, value), (mode, tuple(near)), ints)


def _constants(t: Tensor, pairs: list[tuple[int, int]], values: Pairs) -> Tensor:
    """With a value for each end: axis after axis, so the last one's are in the corners."""
    # NOTE: -0.0 == 0.0.
    given = {id(v) if isinstance(v, Handle) else repr(v): v for ends in values for v in ends}
    if len(given) == 1 or not any(map(any, pairs)):
        return _copied(t, pairs, "constant", next(iter(given.values()), 0))
    for a, (widths, ends) in enumerate(zip(pairs, values, strict=True)):
        for width, value, where in zip(widths, ends, ((1, 0), (0, 1)), strict=True):
            if width:
                t = record(ops.PAD, (t, value), ("constant", (a,)), tuple(width * i for i in where))
    return t


def _ends(t: Tensor, pairs: list[tuple[int, int]], given: Pairs, end: Callable[..., Tensor]) -> Tensor:
    """With what `end` makes of an axis, a width, what is given for that end, and whether it is the last."""
    if not any(map(any, pairs)):
        return _copied(t, pairs, "constant", 0)
    for a, (widths, what) in enumerate(zip(pairs, given, strict=True)):
        if widths == (0, 0):
            continue
        if not t.shape[a]:
            raise ShapeError(f"pad: only modes 'constant' and 'empty' extend axis {a} of extent 0")
        before, after = (end(t, a, w, g, i == 1) for i, (w, g) in enumerate(zip(widths, what, strict=True)))
        t = concat([before, t, after], axis=a)
    return t


def _slice(t: Tensor, axis: int, start: int, stop: int) -> Tensor:
    return getitem(t, (*(slice(None),) * axis, slice(start, stop)))


def _ramps(t: Tensor, axis: int, width: int, value: Any, last: bool) -> Tensor:
    """From a value to the edge, which is not among them."""
    n = t.shape[axis]
    edge = getitem(t, (*(slice(None),) * axis, n - 1 if last else 0))
    wide = astype(edge, dtypes.complex128 if dtypes.kind(t.dtype) == "c" else dtypes.float64, copy=False)
    start = tensor(np.asarray(value) if np.isscalar(value) else value, t)
    if dtypes.kind(start.dtype) == "c" and dtypes.kind(t.dtype) != "c":
        raise DTypeError(f"pad: complex end_values for an array of dtype {t.dtype}")
    ramp = linspace(start, wide, width, endpoint=False, axis=axis, dtype=t.dtype)
    return flip(ramp, axis=axis) if last else ramp


def _statistic(mode: str, t: Tensor, axis: int, width: int, length: int | None, last: bool) -> Tensor:
    n = t.shape[axis]
    k = n if length is None else min(length, n)
    found = _STATISTICS[mode](_slice(t, axis, n - k, n) if last else _slice(t, axis, 0, k), axis=axis, keepdims=True)
    if dtypes.kind(t.dtype) in "iu" and found.dtype != t.dtype:
        found = round(found)
    return broadcast_to(astype(found, t.dtype, copy=False), (*t.shape[:axis], width, *t.shape[axis + 1 :]))


def _lengths(mode: str, stat_length: Any, ndim: int) -> Pairs:
    lengths = _paired("stat_length", _array("stat_length", stat_length), ndim)
    least = 1 if mode in ("maximum", "minimum") else 0
    if any(integer("pad", "stat_length", n) < least for pair in lengths for n in pair):
        raise ShapeError(f"pad: stat_length is at least {least} for mode {mode!r}, got {stat_length!r}")
    return lengths
