"""Pooling: an extremum or a mean over windows of the last axes, as an elementwise combination of strided slices."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import NotSupportedError, ShapeError
from lazyt.ir import dtypes
from lazyt.ir.passes.lower_convolution import UNROLLED
from lazyt.ir.symbolic import hint, maximum
from lazyt.ops import samples
from lazyt.ops.convolution import counts, offsets_of, padded, require_windows, strided
from lazyt.ops.definition import OpDef, define, require_kind
from lazyt.ops.elementwise import work_dtype
from lazyt.ops.reductions import mean_node, reduce

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node, Shape

Sizes = tuple[int, ...]


def _combined(b: Builder, prim: str, x: Node, sizes: Sizes, strides: Sizes, dilations: Sizes, out: Shape) -> Node:
    """The reduction `sum` or `max` of every window."""
    differs = prim == "max" and dtypes.kind(x.dtype) == "f"
    if math.prod(sizes) > UNROLLED:
        rank = len(sizes)
        windows = b.window(x, range(x.ndim - rank, x.ndim), sizes, strides, dilations)
        within = range(x.ndim, x.ndim + rank)
        total = reduce(b, prim, windows, within)
        return _taken(b, windows, _first(b, windows, total, within), total, within) if differs else total
    apart = strides == sizes and all(e == 1 for e in dilations)
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
    best = _best(b, parts)
    if apart:
        return _taken(b, tiles, best, total, range(tiles.ndim - 2 * len(sizes) + 1, tiles.ndim, 2))
    nothing = b.constant(0, x.dtype)
    taken = [b.select(b.eq(best, b.constant(i, best.dtype)), part, nothing) for i, part in enumerate(parts)]
    return _known(b, functools.reduce(b.add, taken), total)


# The gradient of a maximum goes to the first of equal elements, or to the last NaN, as in PyTorch. Which one that is is
# a value of its own: the gradient is one pass that reads it and the cotangent. Unlike there, padding is an element like
# others: a window of nothing but -inf that begins with padding passes its gradient to that, so to nobody.


def _best(b: Builder, parts: list[Node]) -> Node:
    """The number of the largest of the parts."""
    best, at = parts[0], b.expand_to(b.constant(0, dtypes.int32), parts[0].shape)
    for i, part in enumerate(parts[1:], 1):
        better = b.or_(b.elementwise("gt", part, best), b.elementwise("isnan", part))
        best, at = b.select(better, part, best), b.select(better, b.constant(i, at.dtype), at)
    return at


def _first(b: Builder, windows: Node, largest: Node, within: Sequence[int]) -> Node:
    """The number of the first of the largest elements of each window, or of its last NaN."""
    number = _numbers(b, windows, within)
    y = b.expand_to(_kept(b, largest, windows, within), windows.shape)
    is_nan, is_largest = b.elementwise("isnan", windows), b.eq(windows, y)
    minus = b.constant(-1, number.dtype)
    # NaN number n counts as -1 - n: the smallest is the last one.
    key = b.select(is_largest, number, b.constant(np.iinfo(np.int32).max, number.dtype))
    at = b.reduce("min", b.select(is_nan, b.sub(minus, number), key), within)
    return b.select(b.lt(at, b.constant(0, at.dtype)), b.sub(minus, at), at)


def _taken(b: Builder, windows: Node, at: Node, largest: Node, within: Sequence[int]) -> Node:
    """`largest`, with the gradient of the element with number `at` of each window."""
    there = b.eq(b.expand_to(_kept(b, b.stop(at), windows, within), windows.shape), _numbers(b, windows, within))
    return _known(b, b.reduce("sum", b.select(there, windows, b.constant(0, windows.dtype)), within), largest)


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


def _known(b: Builder, differentiated: Node, y: Node) -> Node:
    """The value of y with the derivative of another expression of it."""
    return b.make("known", (differentiated, b.stop(y)), None, y.shape, y.dtype)


def _tiles(b: Builder, x: Node, sizes: Sizes, out: Shape) -> Node:
    """Windows side by side: (..., D) as (..., count, size), for each of the last axes.

    NOTE: unlike slices with steps, what reads these has an adjoint that is movement, so that gradients fuse.
    """
    lead = x.shape[: x.ndim - len(sizes)]
    covered = tuple(n * k for n, k in zip(out, sizes, strict=True))
    x = b.slice(x, (0,) * x.ndim, (*lead, *covered), (1,) * x.ndim)
    return b.reshape(x, (*lead, *(d for pair in zip(out, sizes, strict=True) for d in pair)))


def _element(b: Builder, tiles: Node, at: tuple[int, ...], out: Shape) -> Node:
    """The element `at` of every window."""
    lead = tiles.shape[: tiles.ndim - 2 * len(at)]
    starts = (*(0,) * len(lead), *(i for k in at for i in (0, k)))
    shape = (*lead, *(d for n in out for d in (n, 1)))
    return b.reshape(b.slice(tiles, starts, shape, (1,) * tiles.ndim), (*lead, *out))


def _lowest(dtype: np.dtype) -> float:
    k = dtypes.kind(dtype)
    return -math.inf if k == "f" else int(np.iinfo(dtype).min) if k in "iu" else False


def _extended(
    b: Builder, x: Node, sizes: Sizes, strides: Sizes, padding: Sizes, dilations: Sizes, value: float
) -> Node:
    """x grown at the end (ceil_mode) until the last window fits that starts inside x or its padding before.

    x is padded already; `padding` says by how much.
    """
    lead = x.ndim - len(sizes)
    shape = list(x.shape)
    for i, (k, s, p, e) in enumerate(zip(sizes, strides, padding, dilations, strict=True), lead):
        d, window = x.shape[i], (k - 1) * e + 1
        fits, starts = (d - window + s - 1) // s + 1, (d - p - 1) // s + 1
        n = fits + starts - maximum(fits, starts)
        shape[i] = maximum(d, (n - 1) * s + window)
    return b.pad(x, (0,) * x.ndim, tuple(shape), b.constant(value, x.dtype))


def _check(name: str, x: Node, rank: int, sizes: Sizes, padding: Sizes) -> None:
    if x.ndim not in (rank + 1, rank + 2):
        raise ShapeError(f"{name}: an input of {rank + 1} or {rank + 2} dimensions is required, got {x.ndim}")
    for k, p in zip(sizes, padding, strict=True):
        if p * 2 > k:
            raise ShapeError(f"{name}: padding is at most half the window, got {p} for a window of {k}")


def _max_pool(name: str, rank: int) -> OpDef:
    def lower(b: Builder, x: Node, sizes: Sizes, strides: Sizes, padding: Sizes, dilations: Sizes, ceil: bool) -> Node:
        require_kind(name, x.dtype, "biuf", "a real dtype")
        _check(name, x, rank, sizes, padding)
        low = _lowest(x.dtype)
        v = padded(b, x, tuple((p, p) for p in padding), low)
        require_windows(name, v, sizes, dilations)
        if ceil:
            v = _extended(b, v, sizes, strides, padding, dilations, low)
        return _combined(b, "max", v, sizes, strides, dilations, counts(v, sizes, strides, dilations))

    return define(
        name, lower, saves=(0,), numpy=_reference(rank, np.max), samples=lambda: _calls(rank),
        errors=[
            ((samples.array((2, 3) + (5,) * rank), 9), {}, ShapeError, f"{name}: a window of 9 does not fit"),
            ((samples.array((2, 3) + (5,) * rank), 2), {"padding": 2}, ShapeError, f"{name}: padding is at most half"),
            ((samples.array(()), 2), {}, ShapeError, f"{name}: an input of"),
        ],
    )  # fmt: skip


def _avg_pool(name: str, rank: int) -> OpDef:
    def lower(
        b: Builder, x: Node, sizes: Sizes, strides: Sizes, padding: Sizes, ceil: bool, with_padding: bool
    ) -> Node:
        require_kind(name, x.dtype, "f", "a real floating dtype")
        _check(name, x, rank, sizes, padding)
        once = (1,) * rank
        around = tuple((p, p) for p in padding)
        v = padded(b, b.cast(x, work_dtype(x.dtype)), around, 0)
        require_windows(name, v, sizes, once)
        ones = b.expand_to(b.constant(1, v.dtype), v.shape if with_padding else x.shape)
        if ceil:
            v = _extended(b, v, sizes, strides, padding, once, 0)
        out = counts(v, sizes, strides, once)
        total = _combined(b, "sum", v, sizes, strides, once, out)
        if with_padding and not ceil:
            number = b.constant(math.prod(sizes), v.dtype)
        else:
            ones = ones if with_padding else padded(b, ones, around, 0)
            if ceil:
                ones = _extended(b, ones, sizes, strides, padding, once, 0)
            number = _combined(b, "sum", ones, sizes, strides, once, out)
        return b.cast(b.div(total, number), x.dtype)

    def calls() -> list[samples.Sample]:
        usual = [c for c in _calls(rank) if "dilation" not in c[1] and c[0][0].dtype.kind == "f"]
        return [*usual, *(((x, k), {**more, "count_include_pad": False}) for (x, k), more in usual)]

    return define(
        name, lower, numpy=_reference(rank, None), samples=calls,
        errors=[((np.zeros((2, 3) + (5,) * rank, int), 2), {}, TypeError, f"{name}: a real floating dtype")],
    )  # fmt: skip


def _reference(rank: int, f: Any) -> Any:
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
        ceil_mode: bool = False, count_include_pad: bool = True,
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
                y[(..., *at)] = part.sum(axis=last) / number
        return y.astype(x.dtype)

    return pool


def _calls(rank: int) -> list[samples.Sample]:
    x = samples.array((2, 3, *(7, 8)[:rank]))
    return [
        ((x, 2), {}),
        ((x, (3, 2)[:rank]), {"stride": 1, "padding": 1}),
        ((x[0], 3), {"stride": 2, "padding": 1, "ceil_mode": True}),
        ((x, 2), {"ceil_mode": True}),
        ((x, 3), {"stride": 3, "padding": 1, "ceil_mode": True}),
        ((x, 2), {"dilation": 2}),
        ((x.astype("float16"), 2), {}),
        ((x.astype("int32"), 2), {"padding": 1}),
        ((samples.array((1, 1, *(70, 12)[:rank])), (66, 2)[:rank]), {"stride": 1}),
    ]


MAX_POOL1D = _max_pool("max_pool1d", 1)
MAX_POOL2D = _max_pool("max_pool2d", 2)
AVG_POOL1D = _avg_pool("avg_pool1d", 1)
AVG_POOL2D = _avg_pool("avg_pool2d", 2)


def adaptive_avg_pool2d(b: Builder, x: Node, rows: int, cols: int) -> Node:
    require_kind("adaptive_avg_pool2d", x.dtype, "f", "a real floating dtype")
    if x.ndim not in (3, 4):
        raise ShapeError(f"adaptive_avg_pool2d: an input of 3 or 4 dimensions is required, got {x.ndim}")
    *lead, h, w = x.shape
    for d, n in ((h, rows), (w, cols)):
        if hint(d) % n:
            raise NotSupportedError(
                f"adaptive_avg_pool2d: not supported: {n} outputs of an extent of {hint(d)}, because windows would "
                "differ in size; use an output size that divides it"
            )
        b.same(d, d // n * n)
    v = b.cast(x, work_dtype(x.dtype))
    k = len(lead)
    split = b.reshape(v, (*lead, rows, h // rows, cols, w // cols))
    # Windows side by side, so that each is one run of the reduction.
    windows = b.permute(split, [*range(k), k, k + 2, k + 1, k + 3])
    return b.cast(mean_node(b, windows, (k + 2, k + 3), False), x.dtype)


def _adaptive_numpy(x: np.ndarray, output_size: Any) -> np.ndarray:
    rows, cols = output_size if isinstance(output_size, tuple) else (output_size, output_size)
    *lead, h, w = x.shape
    y = x.astype(np.float64).reshape(*lead, rows, h // rows, cols, w // cols).mean((-3, -1))
    return np.asarray(y).astype(x.dtype)


ADAPTIVE_AVG_POOL2D = define(
    "adaptive_avg_pool2d",
    adaptive_avg_pool2d,
    numpy=_adaptive_numpy,
    samples=samples.calls((samples.array((2, 3, 4, 6)), 1), (samples.array((3, 4, 6)), (2, 3))),
    errors=[((samples.array((2, 3, 4, 6)), 4), {}, NotSupportedError, "adaptive_avg_pool2d: not supported")],
)
