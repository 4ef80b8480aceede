"""Images read at any positions, between elements too."""

from __future__ import annotations

import functools
import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.ir import dtypes
from lazyt.ir.symbolic import hint
from lazyt.ops import samples
from lazyt.ops.definition import define, require_kind, result_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Dim

    Tap = tuple[Node, Node]

# Of cubic convolution, as in PyTorch.
A = -0.75


class _Axis:
    """Positions along one axis of an image, in elements, in the dtype to compute in."""

    def __init__(self, b: Builder, extent: int | Dim, dtype: np.dtype, padding: str, align: bool) -> None:
        self.b, self.dtype, self.padding, self.align = b, dtype, padding, align
        self.size = b.extent(extent, dtype)

    def constant(self, value: float) -> Node:
        return self.b.constant(value, self.dtype)

    def position(self, x: Node) -> Node:
        """-1 and 1 are the centres of the first and last elements (`align`), or their outer ends."""
        b, one, half = self.b, self.constant(1), self.constant(0.5)
        wide = b.sub(self.size, one) if self.align else self.size
        at = b.mul(b.mul(b.add(x, one), wide), half)
        return at if self.align else b.sub(at, half)

    def inside(self, at: Node) -> Node:
        """A position beyond the image as one in it, as the padding says."""
        b, last = self.b, self.b.sub(self.size, self.constant(1))
        if self.padding == "zeros":
            return at
        if self.padding == "reflection":
            low = 0.0 if self.align else -0.5
            span = last if self.align else self.size
            # NOTE: an image of one element has a span of 0 between its centres.
            flat = b.le(span, self.constant(0))
            safe = b.select(flat, self.constant(1), span)
            away = b.elementwise("abs", b.sub(at, self.constant(low)))
            turns = b.elementwise("floor", b.div(away, safe))
            rest = b.sub(away, b.mul(turns, safe))
            half = b.mul(turns, self.constant(0.5))
            is_odd = b.ne(b.elementwise("floor", half), half)
            at = b.add(b.select(is_odd, b.sub(safe, rest), rest), self.constant(low))
            at = b.select(b.expand_to(flat, at.shape), b.expand_to(self.constant(0), at.shape), at)
        return b.minimum(b.maximum(at, self.constant(0)), last)

    def taps(self, x: Node, mode: str) -> list[tuple[Node, Node | None]]:
        """The elements that are read, as numbers, and their weights."""
        b, at = self.b, self.position(x)
        if mode == "nearest":
            return [(b.elementwise("round", self.inside(at)), None)]
        at = self.inside(at)
        first = b.elementwise("floor", at)
        t = b.sub(at, first)
        return [(first, b.sub(self.constant(1), t)), (b.add(first, self.constant(1)), t)]

    def cubic(self, x: Node) -> Tap:
        """The four elements that are read, as numbers along a last axis, and their weights."""
        b, at = self.b, self.position(x)
        first = b.elementwise("floor", at)
        shape = (*at.shape, 4)
        step = b.sub(b.cast(b.iota(shape, at.ndim), self.dtype), self.constant(1))
        first, t = (b.expand(b.reshape(v, (*at.shape, 1)), shape) for v in (first, b.sub(at, first)))
        away = b.elementwise("abs", b.sub(t, step))
        weight = b.select(b.lt(away, self.constant(1)), self.near(away), self.far(away))
        return self.inside(b.add(first, step)), weight

    def near(self, x: Node) -> Node:
        return self.polynomial(x, (A + 2, -(A + 3), 0, 1))

    def far(self, x: Node) -> Node:
        return self.polynomial(x, (A, -5 * A, 8 * A, -4 * A))

    def polynomial(self, x: Node, coefficients: tuple[float, ...]) -> Node:
        value = self.constant(coefficients[0])
        for c in coefficients[1:]:
            value = self.b.add(self.b.mul(value, x), self.constant(c))
        return value

    def index(self, at: Node) -> tuple[Node, Node]:
        """Whether an element is in the image, and its number; NaN is not."""
        b = self.b
        there = b.and_(b.ge(at, self.constant(0)), b.lt(at, self.size))
        return there, b.cast(b.select(there, at, b.expand_to(self.constant(0), at.shape)), dtypes.int64)


def grid_sample(b: Builder, x: Node, grid: Node, mode: str, padding: str, align: bool) -> Node:
    """(N, C, *extents) at the positions (N, *out, axes), whose last axis has the last axis of x first."""
    d = result_type(x, grid)
    require_kind("grid_sample", d, "f", "a real floating dtype")
    rank = x.ndim - 2
    shape, places = tuple(map(hint, x.shape)), tuple(map(hint, grid.shape))
    if rank not in (2, 3) or grid.ndim != x.ndim or places[-1] != rank or shape[0] != places[0]:
        raise ShapeError(
            f"grid_sample: an input (N, C, H, W) with a grid (N, H', W', 2), or (N, C, D, H, W) with "
            f"(N, D', H', W', 3), is required, got shapes {shape} and {places}"
        )
    if 0 in shape[2:]:
        raise ShapeError(f"grid_sample: the axes that are read are not empty, got shape {shape}")
    work = dtypes.computed_in(d)
    v, g = b.cast(x, work), b.cast(grid, work)
    images, out = b.same(v.shape[0], g.shape[0]), g.shape[1:-1]
    b.same(g.shape[-1], rank)
    axes = [_Axis(b, n, work, padding, align) for n in v.shape[2:]]
    positions = []
    for i in range(rank - 1, -1, -1):
        one = b.slice(g, (*(0,) * (rank + 1), i), (*g.shape[:-1], 1), (1,) * g.ndim)
        positions.append(b.reshape(one, (images, *out)))
    each = list(zip(axes, positions, strict=True))
    y = _cubic_sum(b, v, each) if mode == "bicubic" else _sum(b, v, each, mode)
    return b.cast(b.permute(y, (0, y.ndim - 1, *range(1, y.ndim - 1))), d)


def _sum(b: Builder, v: Node, each: list[tuple[_Axis, Node]], mode: str) -> Node:
    """(N, *out, C): the few elements of a place, spelled out."""
    found = [[(axis.index(at), weight) for at, weight in axis.taps(x, mode)] for axis, x in each]
    total: Node | None = None
    for taps in itertools.product(*found):
        weights = [w for _, w in taps if w is not None]
        term = _read(b, v, [at for at, _ in taps], functools.reduce(b.mul, weights) if weights else None)
        total = term if total is None else b.add(total, term)
    assert total is not None, "a mode reads at least one element"
    return total


def _cubic_sum(b: Builder, v: Node, each: list[tuple[_Axis, Node]]) -> Node:
    """(N, *out, C): a sum over the four by four elements of a place."""
    indices, weights = [], []
    for i, (axis, x) in enumerate(each):
        at, weight = axis.cubic(x)
        shape = (*x.shape, *(4 if k == i else 1 for k in range(len(each))))
        whole = (*x.shape, *(4,) * len(each))
        there, number = axis.index(at)
        indices.append((b.expand(b.reshape(there, shape), whole), b.expand(b.reshape(number, shape), whole)))
        weights.append(b.expand(b.reshape(weight, shape), whole))
    terms = _read(b, v, indices, functools.reduce(b.mul, weights))
    return b.reduce("sum", terms, range(terms.ndim - 1 - len(each), terms.ndim - 1))


def _read(b: Builder, v: Node, at: list[tuple[Node, Node]], weight: Node | None) -> Node:
    """The elements of v of each image, channels last, times a weight; 0 where one is not there."""
    there = functools.reduce(b.and_, (one for one, _ in at))
    number = b.iota(there.shape, 0)
    parts = b.gather(v, (number, *(index for _, index in at)), (0, *range(2, v.ndim)))
    if weight is not None:
        parts = b.mul(parts, _over(b, weight, parts))
    return b.select(_over(b, there, parts), parts, b.expand_to(b.constant(0, v.dtype), parts.shape))


def _over(b: Builder, y: Node, parts: Node) -> Node:
    """Values of places for each channel, which is the last axis."""
    return b.expand(b.reshape(y, (*y.shape, 1)), parts.shape)


def _reference(
    x: np.ndarray, grid: np.ndarray, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: Any = None
) -> np.ndarray:
    """Plain loops over places and elements."""
    kernel: Callable[[float], float] = {
        "bilinear": lambda t: max(1 - abs(t), 0.0), "nearest": lambda t: float(t == 0), "bicubic": _cubic,
    }[mode]  # fmt: skip
    reach = {"bilinear": 1, "nearest": 0, "bicubic": 2}[mode]
    y = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
    for place in np.ndindex(*grid.shape[:-1]):
        taps = []
        for value, n in zip(grid[place][::-1].astype(np.float64), x.shape[2:], strict=True):
            at = (value + 1) / 2 * (n - 1) if align_corners else ((value + 1) * n - 1) / 2
            if mode != "bicubic":
                at = _inside(at, n, padding_mode, bool(align_corners))
            at = float(np.round(at)) if mode == "nearest" else at
            near = range(math.floor(at) - reach, math.floor(at) + reach + 2)
            moved = ((_inside(j, n, padding_mode, bool(align_corners)), kernel(at - j)) for j in near)
            taps.append([(int(j), w) for j, w in moved if w and 0 <= j < n])
        for each in itertools.product(*taps):
            weight = math.prod(w for _, w in each)
            y[(place[0], slice(None), *place[1:])] += weight * x[(place[0], slice(None), *(j for j, _ in each))]
    return y.astype(x.dtype)


def _cubic(t: float) -> float:
    t = abs(t)
    if t < 1:
        return ((A + 2) * t - (A + 3)) * t * t + 1
    return (((t - 5) * t + 8) * t - 4) * A if t < 2 else 0.0


def _inside(at: float, n: int, padding: str, align: bool) -> float:
    if padding == "zeros":
        return at
    if padding == "reflection":
        low, span = (0.0, n - 1) if align else (-0.5, n)
        turns, rest = divmod(abs(at - low), span) if span else (0, -low)
        at = (span - rest if turns % 2 else rest) + low
    return min(max(at, 0), n - 1)


_X, _GRID = samples.array((2, 3, 4, 5)), samples.array((2, 3, 2, 2), low=-1.7, high=1.7)
GRID_SAMPLE = define(
    "grid_sample",
    grid_sample,
    saves=(0, 1),
    numpy=_reference,
    samples=samples.calls(
        (_X, _GRID),
        (_X, _GRID, "nearest", "border"),
        (_X, _GRID, "bicubic", "reflection", True),
        (_X, _GRID, {"padding_mode": "reflection"}),
        (
            samples.array((1, 2, 2, 3, 4)),
            samples.array((1, 2, 2, 2, 3), low=-1.5, high=1.5),
            "bilinear",
            "border",
            True,
        ),
    ),
    errors=[
        ((_X, _GRID[:1]), {}, ShapeError, "grid_sample: an input"),
        ((_X[:, :, :0], _GRID), {}, ShapeError, "grid_sample: the axes that are read are not empty"),
    ],
)
