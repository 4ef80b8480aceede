"""Reductions by NumPy that have the bits of kernels: extremes, and sums in the order defined in kernel.py.

kernel_interpreter.py implements that order element by element, as the reference; this file uses a few calls for all
rows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.ir import dtypes
from lazyt.ir.kernel import CHUNK, FLUSH, LANES
from lazyt.ir.numpy_semantics import round_once

if TYPE_CHECKING:
    from collections.abc import Sequence

    Array = np.ndarray[Any, Any]

_STEPS = {"sum": (np.add, 0.0), "prod": (np.multiply, 1.0)}


def rows_of(x: Array, axes: Sequence[int]) -> Array:
    """x with the reduced axes as one last axis."""
    kept = [a for a in range(x.ndim) if a not in axes]
    count = math.prod(x.shape[a] for a in axes)
    return x.transpose(*kept, *axes).reshape(*(x.shape[a] for a in kept), count)


def joined(x: Array, axes: tuple[int, ...]) -> tuple[Array, tuple[int, ...]]:
    """x with its last two axes as one, and the axes of a joined reduction then."""
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1]), axes[:-1]


def greatest(dtype: np.dtype[Any], sign: int) -> Any:
    """The greatest (1) or least (-1) value of a dtype: the result of an empty min or max."""
    match dtypes.kind(dtype):
        case "b":
            return sign > 0
        case "f":
            return sign * np.inf
    return np.iinfo(dtype).max if sign > 0 else np.iinfo(dtype).min


def folded(name: str, x: Array) -> Array:
    """Reduces the last axis where the order does not matter; -0.0 lies below 0.0 for an extreme."""
    # NOTE: ml_dtypes' argmax of bfloat16 does not let NaN win.
    wide = x.astype(dtypes.of(x.dtype).numpy, copy=False)
    if name in ("max", "min") and not x.shape[-1]:
        return np.full(x.shape[:-1], greatest(x.dtype, -1 if name == "max" else 1), wide.dtype)
    out = np.asarray(getattr(np, name)(wide, axis=-1))
    if name in ("max", "min") and dtypes.kind(x.dtype) == "f":
        # NumPy gives either zero.
        zeros = (wide == 0) & (np.signbit(wide) == (name == "min"))
        zero = wide.dtype.type(-0.0 if name == "min" else 0.0)
        out = np.where((out == 0) & zeros.any(axis=-1), zero, out)
    return out


def summed(name: str, x: Array, axes: tuple[int, ...], lanes: str) -> Array:
    """'sum' or 'prod' of floats over `axes`, for rows of at most CHUNK; `lanes` is a kernel's `vector`.

    Padding uses the neutral element, which keeps the sign of zeros: a sum that began with 0.0 is never -0.0.
    """
    step, first = _STEPS[name]
    if lanes == "rows":
        x, axes = joined(x, axes)
    kept = [a for a in range(x.ndim) if a not in axes]
    outer, (*rest, inner) = [x.shape[a] for a in kept], [x.shape[a] for a in axes]
    assert inner <= CHUNK, "a longer row is of several chunks"
    count = math.prod(rest)
    rows = x.transpose(*kept, *axes).reshape(*outer, count, inner)
    rows = step(rows.astype(np.float64 if x.dtype == dtypes.float64 else np.float32), first)
    if lanes == "outer":
        parts = _in_order(step, first, _cut(rows, FLUSH, first)).astype(np.float64)
        total = _in_order(step, first, parts.reshape(*outer, math.prod(parts.shape[len(outer) :])))
        return round_once(total, x.dtype)
    groups = _cut(rows, LANES, first).swapaxes(-1, -2)
    parts = _in_order(step, first, _cut(groups, FLUSH, first)).astype(np.float64)
    wide = _in_order(step, first, parts)
    while wide.shape[-1] > 1:
        half = wide.shape[-1] // 2
        wide = step(wide[..., :half], wide[..., half:])
    return round_once(_in_order(step, first, wide[..., 0]), x.dtype)


def _cut(x: Array, size: int, first: float) -> Array:
    """The last axis in parts of a fixed length, the last part padded with `first`."""
    n = x.shape[-1]
    count = -(-n // size)
    if count * size != n:
        whole = np.full((*x.shape[:-1], count * size), first, x.dtype)
        whole[..., :n] = x
        x = whole
    return x.reshape(*x.shape[:-1], count, size)


def _in_order(step: np.ufunc, first: float, x: Array) -> Array:
    """The elements of the last axis one after another."""
    if not x.shape[-1]:
        return np.full(x.shape[:-1], first, x.dtype)
    out: Array = step.accumulate(x, axis=-1)[..., -1]
    return out
