"""Running sums and products along an axis: their order, and their definition in NumPy.

Floats run in float64 and are rounded once; integers wrap, so their order never shows. The axis is cut into blocks of
BLOCK elements, a block into groups of LANES:

    prefix[j]   = the elements of a group up to lane j, in log2(LANES) steps: with lane j - 1, then j - 2, j - 4, ...
    y           = carry + prefix; then carry + prefix[LANES - 1] is the next group's carry
    total       = of a block: LANES partial sums by position, in order, folded by halves (j with j + LANES/2, ...)
    carry       = at a block's start: the carry at the start of the block before + that one's total

so blocks can run in parallel, and an axis has the same bits whatever its stride, its neighbours and the number
of threads. The error grows with n / BLOCK + BLOCK / LANES additions, where sequential addition has n. As with every
order but that one, the sums of what is not negative may fall by one last place of a float64.
(Kogge and Stone, 1973, for the steps within a group; Merrill and Garland, "Single-pass parallel prefix scan", 2016.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt import on_demand
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from lazyt.ir import numpy_semantics

    Array = np.ndarray[Any, Any]
else:
    numpy_semantics = on_demand.module("lazyt.ir.numpy_semantics")

LANES = 16
BLOCK = 8192
# The running function and its neutral element (-0.0 keeps the sign of a zero).
SCANS: dict[str, tuple[np.ufunc, float]] = {"cumsum": (np.add, -0.0), "cumprod": (np.multiply, 1.0)}


def scan(name: str, x: Array, axis: int) -> Array:
    """`name` of SCANS along an axis, in the order above."""
    f, identity = SCANS[name]
    kind = dtypes.kind(x.dtype)
    work = {"f": np.dtype(np.float64), "c": np.dtype(np.complex128)}.get(kind, x.dtype)
    start = np.asarray(complex(identity, identity if identity == 0 else 0.0) if kind == "c" else identity).astype(work)
    n = x.shape[axis]
    if not x.size:
        return x.copy()
    if kind == "c" and name == "cumprod":
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(np.multiply.accumulate(x, axis, dtype=work).astype(x.dtype, copy=False))
    v = np.moveaxis(x, axis, 0).reshape(n, -1)
    size = min(BLOCK, -(-n // LANES) * LANES)
    blocks = -(-n // size)
    padded = np.full((blocks * size, v.shape[1]), start, work)
    padded[:n] = v
    groups = padded.reshape(blocks, size // LANES, LANES, -1)
    prefix = groups.copy()
    with np.errstate(all="ignore"):
        for step in (1, 2, 4, 8):
            prefix[:, :, step:] = f(prefix[:, :, :-step], prefix[:, :, step:])
        carries = np.full((blocks, size // LANES, 1, v.shape[1]), start, work)
        carry = carries[0, 0]
        for b in range(blocks):
            steps = np.concatenate([carry, prefix[b, :-1, -1]])
            carries[b, :, 0] = f.accumulate(steps, axis=0)
            partial = f.accumulate(groups[b], axis=0)[-1]
            while len(partial) > 1:
                partial = f(partial[: len(partial) // 2], partial[len(partial) // 2 :])
            carry = f(carry, partial)
        y = f(carries, prefix).reshape(blocks * size, -1)[:n]
        back = np.moveaxis(y.reshape(n, *np.moveaxis(x, axis, 0).shape[1:]), 0, axis)
        return np.ascontiguousarray(numpy_semantics.round_once(back, x.dtype))
