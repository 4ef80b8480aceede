"""Pooling: an extremum or a mean over windows of the last one to three axes, as a combination of strided slices."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.ir import dtypes
from lazyt.ir.passes.lower_convolution import UNROLLED
from lazyt.ir.symbolic import hint
from lazyt.ops import samples
from lazyt.ops.convolution import counts, no_window, offsets_of, padded, require_windows, strided
from lazyt.ops.definition import OpDef, define, require_kind
from lazyt.ops.reductions import reduce

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node, Shape

Sizes = tuple[int, ...]


def combined(b: Builder, prim: str, x: Node, sizes: Sizes, strides: Sizes, dilations: Sizes, out: Shape) -> Node:
    """The reduction `sum` or `max` of every window."""
    differs = prim == "max" and dtypes.kind(x.dtype) == "f"
    if math.prod(sizes) > UNROLLED:
        rank = len(sizes)
        windows = b.window(x, range(x.ndim - rank, x.ndim), sizes, strides, dilations)
        within = range(x.ndim, x.ndim + rank)
        total = reduce(b, prim, windows, within)
        return taken(b, windows, first_largest(b, windows, total, within), total, within) if differs else total
    apart = strides == sizes and all(e == 1 for e in dilations)
    if apart and differs:
        x = _whole(b, x, sizes, out)
    tiles = _tiles(b, x, sizes, out) if apart else x
    parts = []
    for at in offsets_of(sizes):
        if apart:
            parts.append(_element(b, tiles, at, out))
        else:
            parts.append(strided(b, x, tuple(i * e for i, e in zip(at, dilations, strict=True)), strides, out))
    name = {"sum": "add", "max": "maximum"}[prim]
    total = functools.reduce(lambda y, part: b.elementwise(name, y, part), parts)
    if not differs:
        return total
    best = best_part(b, parts)
    if apart:
        return taken(b, tiles, best, total, range(tiles.ndim - 2 * len(sizes) + 1, tiles.ndim, 2))
    return known(b, _chosen(b, x, best, sizes, strides, dilations, out), total)


def _chosen(b: Builder, x: Node, best: Node, sizes: Sizes, strides: Sizes, dilations: Sizes, out: Shape) -> Node:
    """Element number `best` of each window; windows may overlap.

    x is read as tiles of a stride's size: element k of window n is in tile n + k * dilation // stride. So the gradient
    is a sum over the windows that a place of a tile is in, in one pass over all places.
    """
    lead = x.shape[: x.ndim - len(sizes)]
    reach = ((k - 1) * e for k, e in zip(sizes, dilations, strict=True))
    number = tuple(n + r // s for n, r, s in zip(out, reach, strides, strict=True))
    whole = tuple(d + s - 1 for d, s in zip(x.shape[len(lead) :], strides, strict=True))
    nothing = b.constant(0, x.dtype)
    tiles = _tiles(b, b.pad(x, (0,) * x.ndim, (*lead, *whole), nothing), strides, number)
    one_each = (*lead, *(d for n in out for d in (n, 1)))
    best, none = b.reshape(b.stop(best), one_each), b.constant(math.prod(sizes), best.dtype)
    parts = []
    for i, at in enumerate(offsets_of(sizes)):
        places = (divmod(k * e, s) for k, e, s in zip(at, dilations, strides, strict=True))
        starts = (*(0,) * len(lead), *(digit for place in places for digit in place))
        here = b.eq(b.pad(best, starts, tiles.shape, none), b.constant(i, best.dtype))
        part = b.slice(b.select(here, tiles, nothing), starts, one_each, (1,) * tiles.ndim)
        parts.append(b.reshape(part, (*lead, *out)))
    return functools.reduce(b.add, parts)


# The gradient of a maximum goes to the first of equal elements, or to the last NaN, as in PyTorch. Which one that is is
# a value of its own: the gradient is one pass that reads it and the cotangent. Unlike there, padding is an element like
# others: a window of nothing but -inf that begins with padding passes its gradient to that, so to nobody.


def best_part(b: Builder, parts: list[Node]) -> Node:
    """The number of the largest of the parts."""
    best, at = parts[0], b.expand_to(b.constant(0, dtypes.int32), parts[0].shape)
    for i, part in enumerate(parts[1:], 1):
        better = b.elementwise("gt", part, best)
        if dtypes.kind(part.dtype) == "f":
            better = b.or_(better, b.elementwise("isnan", part))
        best, at = b.select(better, part, best), b.select(better, b.constant(i, at.dtype), at)
    return at


def first_largest(b: Builder, windows: Node, largest: Node, within: Sequence[int]) -> Node:
    """The number of the first of the largest elements of each window, or of its last NaN."""
    number = _numbers(b, windows, within)
    y = b.expand_to(_kept(b, largest, windows, within), windows.shape)
    minus = b.constant(-1, number.dtype)
    # NaN number n counts as -1 - n: the smallest is the last one.
    key = b.select(b.eq(windows, y), number, b.constant(np.iinfo(np.int32).max, number.dtype))
    if dtypes.kind(windows.dtype) != "f":
        return b.reduce("min", key, within)
    is_nan = b.elementwise("isnan", windows)
    at = b.reduce("min", b.select(is_nan, b.sub(minus, number), key), within)
    return b.select(b.lt(at, b.constant(0, at.dtype)), b.sub(minus, at), at)


def taken(b: Builder, windows: Node, at: Node, largest: Node, within: Sequence[int]) -> Node:
    """`largest`, with the gradient of the element with number `at` of each window."""
    there = b.eq(b.expand_to(_kept(b, b.stop(at), windows, within), windows.shape), _numbers(b, windows, within))
    return known(b, b.reduce("sum", b.select(there, windows, b.constant(0, windows.dtype)), within), largest)


def _numbers(b: Builder, windows: Node, within: Sequence[int]) -> Node:
    """The place of each element in its window."""
    number = b.constant(0, dtypes.int32)
    for axis in within:
        along = b.cast(b.iota(windows.shape, axis), number.dtype)
        number = b.add(b.mul(number, b.constant(hint(windows.shape[axis]), number.dtype)), along)
    return number


def _kept(b: Builder, y: Node, windows: Node, within: Sequence[int]) -> Node:
    """A reduction over `within` with these axes kept."""
    return b.reshape(y, tuple(1 if i in within else d for i, d in enumerate(windows.shape)))


def known(b: Builder, differentiated: Node, y: Node) -> Node:
    """The value of y with the derivative of another expression of it."""
    return b.known(differentiated, b.stop(y))


def _tiles(b: Builder, x: Node, sizes: Sizes, out: Shape) -> Node:
    """Windows side by side: (..., D) as (..., count, size), for each of the last axes.

    NOTE: unlike slices with steps, what reads these has an adjoint that is movement, so that gradients fuse.
    """
    lead = x.shape[: x.ndim - len(sizes)]
    covered = tuple(n * k for n, k in zip(out, sizes, strict=True))
    x = b.slice(x, (0,) * x.ndim, (*lead, *covered), (1,) * x.ndim)
    return b.reshape(x, (*lead, *(d for pair in zip(out, sizes, strict=True) for d in pair)))


def _whole(b: Builder, x: Node, sizes: Sizes, out: Shape) -> Node:
    """x; where windows side by side cover it, a plan holds for such extents alone: its gradient has no conditions."""
    last = [
        b.same(d, n * k) if hint(d) == hint(n * k) else d
        for d, n, k in zip(x.shape[-len(out) :], out, sizes, strict=True)
    ]
    return b.reshape(x, (*x.shape[: -len(out)], *last))


def _element(b: Builder, tiles: Node, at: tuple[int, ...], out: Shape) -> Node:
    """The element `at` of every window."""
    lead = tiles.shape[: tiles.ndim - 2 * len(at)]
    starts = (*(0,) * len(lead), *(i for k in at for i in (0, k)))
    shape = (*lead, *(d for n in out for d in (n, 1)))
    return b.reshape(b.slice(tiles, starts, shape, (1,) * tiles.ndim), (*lead, *out))


def lowest(dtype: np.dtype) -> float:
    k = dtypes.kind(dtype)
    return -math.inf if k == "f" else int(np.iinfo(dtype).min) if k in "iu" else False


def with_windows(
    b: Builder, name: str, x: Node, sizes: Sizes, strides: Sizes, padding: Sizes, dilations: Sizes, ceil: bool,
    value: float,
) -> Node:  # fmt: skip
    """x between `padding` elements of `value`; ShapeError if no window fits.

    ceil: its extents are those that the windows take which begin inside x or its padding before; `value` is at the end.
    """
    x = padded(b, x, tuple((p, p) for p in padding), value)
    if not ceil:
        require_windows(name, x, sizes, dilations)
        return x
    lead = x.shape[: x.ndim - len(sizes)]
    grown, taken = list(lead), list(lead)
    for d, k, s, p, e in zip(x.shape[len(lead) :], sizes, strides, padding, dilations, strict=True):
        window = (k - 1) * e + 1
        # A window may end up to s - 1 elements behind the end, and must not begin in the padding there.
        count = (d - max(window - s + 1, p + 1)) // s + 1
        if hint(count) < 1:
            raise no_window(name, window, d)
        taken.append((count - 1) * s + window)
        grown.append(d if b.equal(d, taken[-1]) else d + s - 1)
    if tuple(grown) != x.shape:
        x = b.pad(x, (0,) * x.ndim, tuple(grown), b.constant(value, x.dtype))
    return b.slice(x, (0,) * x.ndim, tuple(taken), (1,) * x.ndim)


def check_pool(name: str, x: Node, rank: int, sizes: Sizes, padding: Sizes) -> None:
    if x.ndim not in (rank + 1, rank + 2):
        raise ShapeError(f"{name}: an input of {rank + 1} or {rank + 2} dimensions is required, got {x.ndim}")
    for k, p in zip(sizes, padding, strict=True):
        if p * 2 > k:
            raise ShapeError(f"{name}: padding is at most half the window, got {p} for a window of {k}")


def _max_pool(name: str, rank: int) -> OpDef:
    def lower(b: Builder, x: Node, sizes: Sizes, strides: Sizes, padding: Sizes, dilations: Sizes, ceil: bool) -> Node:
        require_kind(name, x.dtype, "biuf", "a real dtype")
        check_pool(name, x, rank, sizes, padding)
        low = lowest(x.dtype)
        v = with_windows(b, name, x, sizes, strides, padding, dilations, ceil, low)
        return combined(b, "max", v, sizes, strides, dilations, counts(v, sizes, strides, dilations))

    return define(
        name, lower, saves=(0,), numpy=reference(rank, np.max), samples=lambda: pool_calls(rank),
        errors=[
            ((samples.array((2, 3) + (5,) * rank), 9), {}, ShapeError, f"{name}: a window of 9 does not fit"),
            ((samples.array((2, 3) + (5,) * rank), 2), {"padding": 2}, ShapeError, f"{name}: padding is at most half"),
            ((samples.array(()), 2), {}, ShapeError, f"{name}: an input of"),
        ],
    )  # fmt: skip


def _avg_pool(name: str, rank: int) -> OpDef:
    def lower(
        b: Builder, x: Node, sizes: Sizes, strides: Sizes, padding: Sizes, ceil: bool, with_padding: bool,
        divisor: int | None,
    ) -> Node:  # fmt: skip
        require_kind(name, x.dtype, "f", "a real floating dtype")
        check_pool(name, x, rank, sizes, padding)
        once = (1,) * rank
        windows = (sizes, strides, padding, once, ceil, 0)
        v = with_windows(b, name, b.cast(x, dtypes.computed_in(x.dtype)), *windows)
        out = counts(v, sizes, strides, once)
        total = combined(b, "sum", v, sizes, strides, once, out)
        if divisor is not None or (with_padding and not ceil):
            number = b.constant(math.prod(sizes) if divisor is None else divisor, v.dtype)
        else:
            ones = b.expand_to(b.constant(1, v.dtype), x.shape)
            if with_padding:  # counted as elements of x; what is behind it is not
                ones = padded(b, ones, tuple((p, p) for p in padding), 1)
                windows = (sizes, strides, (0,) * rank, once, ceil, 0)
            number = combined(b, "sum", with_windows(b, name, ones, *windows), sizes, strides, once, out)
        return b.cast(b.div(total, number), x.dtype)

    def calls() -> list[samples.Sample]:
        usual = [c for c in pool_calls(rank) if "dilation" not in c[1] and dtypes.kind(c[0][0].dtype) == "f"]
        uncounted = [((x, k), {**more, "count_include_pad": False}) for (x, k), more in usual]
        return [*usual, *uncounted, *([((*usual[2][0],), {**usual[2][1], "divisor_override": 3})] if rank > 1 else [])]

    return define(
        name, lower, numpy=reference(rank, None), samples=calls,
        errors=[((np.zeros((2, 3) + (5,) * rank, int), 2), {}, TypeError, f"{name}: a real floating dtype")],
    )  # fmt: skip


def reference(rank: int, f: Any) -> Any:
    """Plain loops over the windows; f is None for the mean."""

    def spread(v: Any) -> Sizes:
        return v if isinstance(v, tuple) else (v,) * rank

    def axis(d: int, k: int, s: int, p: int, e: int, ceil: bool) -> list[range]:
        """The positions of each window, in x with its padding."""
        n = (d + 2 * p - (k - 1) * e - 1 + (s - 1 if ceil else 0)) // s + 1
        while ceil and (n - 1) * s >= d + p:
            n -= 1
        return [range(i * s, i * s + (k - 1) * e + 1, e) for i in range(n)]

    def pool(
        x: np.ndarray, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> np.ndarray:  # fmt: skip
        k, p, e = spread(kernel_size), spread(padding), spread(dilation)
        s = k if stride is None else spread(stride)
        dims = x.shape[-rank:]
        windows = [axis(*one, ceil_mode) for one in zip(dims, k, s, p, e, strict=True)]
        y = np.zeros((*x.shape[:-rank], *map(len, windows)))
        for at in np.ndindex(*map(len, windows)):
            spots = [w[i] for w, i in zip(windows, at, strict=True)]
            inside = [[j - q for j in r if q <= j < q + d] for r, q, d in zip(spots, p, dims, strict=True)]
            part = x[(..., *np.ix_(*inside))].astype(np.float64)
            counted = [len([j for j in r if j < d + 2 * q]) for r, q, d in zip(spots, p, dims, strict=True)]
            last = tuple(range(-rank, 0))
            if f is not None:
                y[(..., *at)] = f(part, axis=last)
            else:
                number = math.prod(counted if count_include_pad else map(len, inside))
                y[(..., *at)] = part.sum(axis=last) / (divisor_override or number)
        return y.astype(x.dtype)

    return pool


def pool_calls(rank: int) -> list[samples.Sample]:
    x = samples.array((2, 3, *(7, 8, 5)[:rank]))
    return [
        ((x, 2), {}),
        ((x, (3, 2, 2)[:rank]), {"stride": 1, "padding": 1}),
        ((x[0], 3), {"stride": 2, "padding": 1, "ceil_mode": True}),
        ((x, 2), {"ceil_mode": True}),
        ((x, 3), {"stride": 3, "padding": 1, "ceil_mode": True}),
        ((x, 2), {"dilation": 2}),
        # The window does not fit, and begins inside.
        ((samples.array((1, 2, 2, 4, 3)[: 2 + rank]), 2), {"stride": 3, "dilation": 2, "ceil_mode": True}),
        ((x.astype("float16"), 2), {}),
        ((x.astype("int32"), 2), {"padding": 1}),
        ((samples.array((1, 1, *(70, 12, 3)[:rank])), (66, 2, 1)[:rank]), {"stride": 1}),
    ]


MAX_POOL1D = _max_pool("max_pool1d", 1)
MAX_POOL2D = _max_pool("max_pool2d", 2)
MAX_POOL3D = _max_pool("max_pool3d", 3)
AVG_POOL1D = _avg_pool("avg_pool1d", 1)
AVG_POOL2D = _avg_pool("avg_pool2d", 2)
AVG_POOL3D = _avg_pool("avg_pool3d", 3)
