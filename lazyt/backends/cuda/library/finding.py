"""Functions whose result shapes depend on data, on a GPU by CuPy: they cannot be part of a plan.

An entry takes CuPy itself, arrays and static arguments, as those of `registry.py` do; tests give NumPy in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.cuda.device import DeviceBuffer, device
from lazyt.backends.cuda.library.registry import argsort, memory_dtype, put, widened
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Value = tuple[DeviceBuffer, np.dtype, tuple[int, ...]]


def find(fn: str, values: Sequence[Value], statics: Sequence[Any]) -> list[Value]:
    """The results of `fn`: those of the operands' dtype first, then positions and counts (int64)."""
    where = device(values[0][0].device)
    for buffer, _, _ in values:
        buffer.settle()
    with where.work(), where.driver.library(where.number) as xp:
        arrays = []
        for buffer, dtype, shape in values:
            seen = where.driver.view(where.number, buffer.address, memory_dtype(dtype), shape)
            arrays.append(widened(xp, seen, dtype))
        found: list[Value] = []
        for kind, array in FUNCTIONS[fn](xp, *arrays, *statics):
            dtype = dtypes.int64 if kind == "at" else values[0][1]
            out = where.take(array.size * dtype.itemsize)
            if array.size:
                place = where.driver.view(where.number, out.address, memory_dtype(dtype), array.shape)
                put(xp, place, dtype, array)
            found.append((out, dtype, array.shape))
    return found


Found = list[tuple[str, Any]]


def _unique(xp: Any, x: Any, equal_nan: bool) -> Found:
    """The values, where each is first, which of them each element is, how often each occurs."""
    flat = x.reshape(-1)
    order = argsort(xp, flat, 0, False)
    sorted_ = flat[order]
    fresh = xp.ones(flat.shape, np.bool_)
    fresh[1:] = sorted_[1:] != sorted_[:-1]
    if equal_nan and dtypes.kind(flat.dtype) in "fc":
        fresh[1:] &= ~(xp.isnan(sorted_[1:]) & xp.isnan(sorted_[:-1]))
    starts = xp.nonzero(fresh)[0]
    which = xp.empty(flat.shape, np.int64)
    which[order] = xp.cumsum(fresh) - 1
    ends = xp.concatenate([starts[1:], xp.full(min(len(starts), 1), flat.size, starts.dtype)])
    return [("like", sorted_[fresh]), ("at", order[fresh]), ("at", which.reshape(x.shape)), ("at", ends - starts)]


def _nonzero(xp: Any, x: Any) -> Found:
    return [("at", i) for i in xp.nonzero(x)]


def _flatnonzero(xp: Any, x: Any) -> Found:
    return [("at", xp.nonzero(x.reshape(-1))[0])]


def _argwhere(xp: Any, x: Any) -> Found:
    return [("at", xp.stack(xp.nonzero(x), -1))]


FUNCTIONS: dict[str, Callable[..., Found]] = {
    "unique": _unique,
    "nonzero": _nonzero,
    "flatnonzero": _flatnonzero,
    "argwhere": _argwhere,
}
