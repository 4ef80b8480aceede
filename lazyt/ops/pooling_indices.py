"""Maxima of windows with where they are, in the flat order of the pooled axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.ir import dtypes
from lazyt.ir.passes.lower_convolution import UNROLLED
from lazyt.ir.symbolic import product
from lazyt.ops import samples
from lazyt.ops.convolution import counts, offsets_of, strided
from lazyt.ops.definition import OpDef, define, require_kind
from lazyt.ops.pooling import Sizes, best_part, check_pool, combined, first_largest, lowest, pool_calls, with_windows

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node, Shape


def _number(b: Builder, v: Node, largest: Node, sizes: Sizes, strides: Sizes, dilations: Sizes) -> Node:
    """The number of the largest element in each window of v."""
    if math.prod(sizes) > UNROLLED:
        windows = b.window(v, range(v.ndim - len(sizes), v.ndim), sizes, strides, dilations)
        return first_largest(b, windows, largest, range(v.ndim, v.ndim + len(sizes)))
    at = (tuple(i * e for i, e in zip(place, dilations, strict=True)) for place in offsets_of(sizes))
    out = largest.shape[largest.ndim - len(sizes) :]
    return best_part(b, [strided(b, v, place, strides, out) for place in at])


def _places(
    b: Builder, number: Node, dims: Shape, sizes: Sizes, strides: Sizes, padding: Sizes, dilations: Sizes
) -> Node:
    """The flat index in `dims` of the element with this number of each window."""
    lead = number.ndim - len(sizes)

    def constant(n: int) -> Node:
        return b.constant(n, dtypes.int64)

    number = b.cast(number, dtypes.int64)
    starts = [
        b.sub(b.mul(b.iota(number.shape, lead + i), constant(s)), constant(p))
        for i, (s, p) in enumerate(zip(strides, padding, strict=True))
    ]
    if any(padding):
        # A window of nothing but the lowest value: its first element that is not padding.
        first = constant(0)
        for start, k, e in zip(starts, sizes, dilations, strict=True):
            before = b.maximum(b.neg(start), b.expand_to(constant(0), start.shape))
            inside = b.floordiv(b.add(before, constant(e - 1)), constant(e))
            first = b.add(b.mul(first, constant(k)), inside)
        number = b.maximum(number, first)
    flat = constant(0)
    for i, (start, k, e) in enumerate(zip(starts, sizes, dilations, strict=True)):
        within = b.rem(b.floordiv(number, constant(math.prod(sizes[i + 1 :]))), constant(k))
        at = b.add(start, b.mul(within, constant(e)))
        flat = b.add(flat, b.mul(at, b.extent(product(dims[i + 1 :]))))
    return flat


def _max_pool_with_indices(rank: int) -> OpDef:
    name = f"max_pool{rank}d_with_indices"
    plain = f"max_pool{rank}d"

    def lower(
        b: Builder, x: Node, sizes: Sizes, strides: Sizes, padding: Sizes, dilations: Sizes, ceil: bool
    ) -> tuple[Node, Node]:
        require_kind(plain, x.dtype, "biuf", "a real dtype")
        check_pool(plain, x, rank, sizes, padding)
        low = lowest(x.dtype)
        v = with_windows(b, plain, x, sizes, strides, padding, dilations, ceil, low)
        y = combined(b, "max", v, sizes, strides, dilations, counts(v, sizes, strides, dilations))
        number = _number(b, b.stop(v), b.stop(y), sizes, strides, dilations)
        return y, _places(b, number, x.shape[x.ndim - rank :], sizes, strides, padding, dilations)

    return define(
        name, lower, saves=(0,), numpy=_reference(rank), samples=lambda: pool_calls(rank),
        errors=[((samples.array((2, 3) + (5,) * rank), 9), {}, ShapeError, f"{plain}: a window of 9 does not fit")],
    )  # fmt: skip


def _reference(rank: int) -> Any:
    """Plain loops over the windows."""

    def spread(v: Any) -> Sizes:
        return v if isinstance(v, tuple) else (v,) * rank

    def pool(
        x: np.ndarray,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        k, p, e = spread(kernel_size), spread(padding), spread(dilation)
        s = k if stride is None else spread(stride)
        dims = x.shape[-rank:]
        out = []
        for d, n, t, q, f in zip(dims, k, s, p, e, strict=True):
            count = (d + 2 * q - (n - 1) * f - 1 + (t - 1 if ceil_mode else 0)) // t + 1
            out.append(count - (ceil_mode and (count - 1) * t >= d + q))
        y, at = np.zeros((*x.shape[:-rank], *out), x.dtype), np.zeros((*x.shape[:-rank], *out), np.int64)
        numbers = np.arange(math.prod(dims)).reshape(dims)
        for place in np.ndindex(*out):
            spots = [
                [j for j in range(i * t - q, i * t - q + (n - 1) * f + 1, f) if 0 <= j < d]
                for i, t, q, n, f, d in zip(place, s, p, k, e, dims, strict=True)
            ]
            window: Any = (..., *np.ix_(*spots))
            part = x[window].reshape(*x.shape[:-rank], -1)
            y[(..., *place)] = part.max(-1)
            at[(..., *place)] = numbers[np.ix_(*spots)].reshape(-1)[part.argmax(-1)]
        return y, at

    return pool


MAX_POOL1D = _max_pool_with_indices(1)
MAX_POOL2D = _max_pool_with_indices(2)
MAX_POOL3D = _max_pool_with_indices(3)
