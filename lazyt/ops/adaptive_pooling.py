"""Pooling to a given number of windows an axis, which may differ by one element in size and overlap.

Window i of n over an extent d is from floor(i * d / n) to ceil((i + 1) * d / n), as in PyTorch.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.ir import dtypes
from lazyt.ir.symbolic import hint
from lazyt.ops import samples
from lazyt.ops.axis_maps import AxisMap, mapped
from lazyt.ops.definition import OpDef, define, require_kind
from lazyt.ops.pooling import first_largest, taken
from lazyt.ops.reductions import mean_node

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Dim

Sizes = tuple[int, ...]


def widest(extent: int, count: int) -> int:
    """The size of the largest of `count` windows over an extent."""
    # Windows begin at each fraction of an element once in a period: the last fraction reaches furthest.
    g = math.gcd(extent, count)
    whole, parts = extent // g, count // g
    return (whole + 2 * parts - 2) // parts


def check_adaptive(name: str, x: Node, rank: int) -> None:
    """ShapeError unless x has one or two axes before those that are pooled."""
    shape = tuple(map(hint, x.shape))
    if x.ndim not in (rank + 1, rank + 2):
        raise ShapeError(f"{name}: an input of {rank + 1} or {rank + 2} dimensions is required, got shape {shape}")
    if 0 in shape[-rank:]:
        raise ShapeError(f"{name}: the pooled axes are not empty, got shape {shape}")


def _constant(b: Builder, n: int | Dim) -> Node:
    return b.extent(n)


def _ends(b: Builder, at: Node, extent: int | Dim, count: int | Dim) -> tuple[Node, Node]:
    """Where window number `at` of `count` over an extent begins and ends; also: which windows hold element `at`."""
    whole, parts = _constant(b, extent), _constant(b, count)
    after = b.add(b.mul(b.add(at, _constant(b, 1)), whole), b.sub(parts, _constant(b, 1)))
    return b.floordiv(b.mul(at, whole), parts), b.floordiv(after, parts)


def _within(b: Builder, extent: int | Dim, count: int | Dim, width: int) -> tuple[Node, Node, Node]:
    """(count, width): the elements of each window, the last one again where it is smaller; whether; its size."""
    shape = (count, width)
    start, end = _ends(b, b.iota(shape, 0), extent, count)
    at = b.add(start, b.iota(shape, 1))
    return b.minimum(at, b.sub(end, _constant(b, 1))), b.lt(at, end), b.sub(end, start)


def _mean_map(b: Builder, extent: int | Dim, count: int, widths: Sizes, dtype: np.dtype) -> AxisMap:
    reads, there, size = _within(b, extent, count, widths[0])
    one, zero = b.constant(1, dtype), b.constant(0, dtype)
    weights = b.select(there, b.div(one, b.cast(size, dtype)), b.expand_to(zero, reads.shape))
    # The windows of an element follow from the same formula, with windows and elements in each other's place.
    fed, there, _ = _within(b, count, extent, widths[1])
    start, end = _ends(b, fed, extent, count)
    shares = b.select(there, b.div(one, b.cast(b.sub(end, start), dtype)), b.expand_to(zero, fed.shape))
    return AxisMap(reads, weights, fed, shares)


def _adaptive_avg_pool(rank: int) -> OpDef:
    name = f"adaptive_avg_pool{rank}d"

    def lower(b: Builder, x: Node, counts: Sizes, widths: tuple[Sizes, ...]) -> Node:
        """`counts` has 0 for an axis that stays; `widths` nothing where all windows have one size, apart.

        Else the size of the largest window, and the greatest number of windows that hold one element.
        """
        require_kind(name, x.dtype, "f", "a real floating dtype")
        check_adaptive(name, x, rank)
        v = b.cast(x, dtypes.computed_in(x.dtype))
        lead = x.ndim - rank
        split: list[int | Dim] = list(v.shape[:lead])
        means = []
        for axis, (n, width) in enumerate(zip(counts, widths, strict=True), lead):
            if n and not width:
                b.same(v.shape[axis], v.shape[axis] // n * n)
                means.append(len(split) + 1)
                split += [n, v.shape[axis] // n]
            else:
                split.append(v.shape[axis])
        if means:
            # Windows side by side, so that each is one run of the reduction.
            windows = b.permute(b.reshape(v, tuple(split)), [*(i for i in range(len(split)) if i not in means), *means])
            v = mean_node(b, windows, range(windows.ndim - len(means), windows.ndim), False)
        for axis, (n, width) in enumerate(zip(counts, widths, strict=True), lead):
            if width:
                v = mapped(b, v, axis, _mean_map(b, v.shape[axis], n, width, v.dtype))
        return b.cast(v, x.dtype)

    return define(
        name, lower, numpy=_reference(rank, np.mean), samples=lambda: _calls(rank),
        errors=[
            ((np.zeros((2, 3) + (5,) * rank, int), 2), {}, TypeError, f"{name}: a real floating dtype"),
            ((samples.array((3,)), 2), {}, ShapeError, f"{name}: an input of"),
            ((samples.array((2, 3) + (0,) * rank), 2), {}, ShapeError, f"{name}: the pooled axes are not empty"),
        ],
    )  # fmt: skip


def _adaptive_max_pool(rank: int) -> OpDef:
    """With indices, where windows differ in size."""
    name = f"adaptive_max_pool{rank}d"

    def lower(b: Builder, x: Node, counts: Sizes, widths: Sizes) -> tuple[Node, Node]:
        require_kind(name, x.dtype, "biuf", "a real dtype")
        check_adaptive(name, x, rank)
        lead = x.ndim - rank
        windows, reads = x, []
        for i, (n, width) in enumerate(zip(counts, widths, strict=True)):
            extent = x.shape[lead + i]
            reads.append(_within(b, extent, n, width)[0])
            y = b.gather(windows, (reads[i],), (lead + 2 * i,))
            windows = b.permute(y, (*range(2, lead + 2 * i + 2), 0, 1, *range(lead + 2 * i + 2, y.ndim)))
        outer, inner = range(lead, windows.ndim, 2), range(lead + 1, windows.ndim, 2)
        windows = b.permute(windows, (*range(lead), *outer, *inner))
        within = range(lead + rank, windows.ndim)
        y = b.reduce("max", windows, within)
        number = first_largest(b, b.stop(windows), b.stop(y), within)
        if dtypes.kind(x.dtype) == "f":
            y = taken(b, windows, number, y, within)
        flat, rest = b.constant(0, dtypes.int64), b.cast(number, dtypes.int64)
        for i, width in enumerate(widths):
            digit = b.rem(b.floordiv(rest, _constant(b, math.prod(widths[i + 1 :]))), _constant(b, width))
            at = b.gather(reads[i], (b.iota(digit.shape, lead + i), digit), (0, 1))
            flat = b.add(b.mul(flat, _constant(b, x.shape[lead + i])), at)
        return y, flat

    return define(
        f"{name}_with_indices", lower, saves=(0,), numpy=_reference(rank, None),
        samples=lambda: [*_calls(rank), ((np.full((1, 2, *(5,) * rank), np.nan, np.float32), 3), {})],
        errors=[((samples.array((3,)), 2), {}, ShapeError, f"{name}: an input of")],
    )  # fmt: skip


def _reference(rank: int, f: Any) -> Any:
    """Plain loops over the windows; f is None for the maximum with its index."""

    def pool(x: np.ndarray, output_size: Any) -> Any:
        dims = x.shape[-rank:]
        given = output_size if isinstance(output_size, tuple) else (output_size,) * rank
        out = tuple(d if n is None else n for n, d in zip(given, dims, strict=True))
        y, at = np.zeros((*x.shape[:-rank], *out)), np.zeros((*x.shape[:-rank], *out), np.int64)
        numbers = np.arange(math.prod(dims)).reshape(dims)
        for place in np.ndindex(*out):
            spots = (slice(i * d // n, -(-(i + 1) * d // n)) for i, d, n in zip(place, dims, out, strict=True))
            window: Any = tuple(spots)
            part = x[(..., *window)].reshape(*x.shape[:-rank], -1)
            if f is None:
                y[(..., *place)] = part.max(-1)
                # The first of the largest, or the last NaN.
                nan = part != part
                last = part.shape[-1] - 1 - nan[..., ::-1].argmax(-1)
                at[(..., *place)] = numbers[window].reshape(-1)[np.where(nan.any(-1), last, part.argmax(-1))]
            else:
                y[(..., *place)] = f(part.astype(np.float64), axis=-1)
        return y.astype(x.dtype) if f is not None else (y.astype(x.dtype), at)

    return pool


def _calls(rank: int) -> list[samples.Sample]:
    x = samples.array((2, 3, *(7, 6, 5)[:rank]))
    return [
        ((x, 1), {}),
        ((x[0], 3), {}),
        ((x, (7, 2, 1)[:rank]), {}),
        ((x, (None, 4, 8)[:rank]), {}),
        ((x, 9), {}),
    ]


ADAPTIVE_AVG_POOL = tuple(map(_adaptive_avg_pool, (1, 2, 3)))
ADAPTIVE_MAX_POOL = tuple(map(_adaptive_max_pool, (1, 2, 3)))
