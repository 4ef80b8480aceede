"""Convolutions as matrix products over windows, for backends and cases without convolution code.

convolve x, w          -->  matmul(w as (O, K), windows of x as (N, K, places))          K = C * sizes
convolve_filter x, y   -->  sum over N of matmul(windows of x as (N, K, places), y as (N, places, O))
convolve_image y, w    -->  matmul(w as (K, O), y as (N, O, places)), each window added where it was read

Each group has its own product. Groups of one channel and one feature are a sum over the window's elements.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lazyt.ir import graph as g
from lazyt.ir.adjoints import fold, place
from lazyt.ir.symbolic import hint, product

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Dim

# Windows up to this many elements are spelled out, one strided slice an element.
UNROLLED = 64
# With strides, filters are filled up with zeros to a multiple of the step where that multiplies the work by no more.
MOST_WASTE = 2.0


def by_products(b: Builder, n: Node, x: Node, y: Node) -> Node:
    """The value of the convolution n, of these operands."""
    a = n.attrs
    assert isinstance(a, g.Convolution)
    alone = replace(a, padding=(0,) * len(a.sizes))
    if n.op == "convolve":
        return convolved(b, _padded(b, x, a), y, alone)
    if n.op == "convolve_filter":
        return _by_filter(b, _padded(b, x, a), y, alone, n.shape)
    extents = tuple(d + 2 * p for d, p in zip(n.shape[2:], a.padding, strict=True))
    whole = _by_steps(b, x, y, alone, (*n.shape[:2], *extents))
    return b.slice(whole, (0, 0, *a.padding), n.shape, (1,) * n.ndim)


def by_one_place(b: Builder, n: Node, x: Node, y: Node) -> Node | None:
    """The convolution n of these operands as one product, if a window is the image, of which there is one place."""
    a = n.attrs
    assert isinstance(a, g.Convolution)
    image, result = (n, x) if n.op == "convolve_image" else (x, y if n.op == "convolve_filter" else n)
    if a.groups > 1 or any(a.padding) or any(r + 1 != k for r, k in zip(a.reach, a.sizes, strict=True)):
        return None
    pairs = [*((d, 1) for d in result.shape[2:]), *zip(image.shape[2:], a.sizes, strict=True)]
    if any(hint(d) < k or b.at_least(d, k + 1) for d, k in pairs):
        return None
    for d, k in pairs:
        b.same(d, k)
    depth, images = product((image.shape[1], *a.sizes)), image.shape[0]
    if n.op == "convolve":
        rows = b.reshape(y, (n.shape[1], depth))
        return b.reshape(b.matmul(b.reshape(x, (images, depth)), b.permute(rows, (1, 0))), n.shape)
    if n.op == "convolve_filter":
        columns = b.permute(b.reshape(x, (images, depth)), (1, 0))
        return b.reshape(b.matmul(columns, b.reshape(y, (images, n.shape[-1]))), n.shape)
    features = x.shape[1]
    return b.reshape(b.matmul(b.reshape(x, (images, features)), b.reshape(y, (features, depth))), n.shape)


def _by_steps(b: Builder, y: Node, w: Node, a: g.Convolution, shape: g.Shape) -> Node:
    """With strides: a plain convolution whose features are the elements of a step, which are then moved into the image.

    Element r + s * m of an axis is the sum over j of w[r + s * j] * y[m - j].
    """
    steps, counts = a.strides, tuple(-(-k // s) for k, s in zip(a.sizes, a.strides, strict=True))
    waste = math.prod(n * s / k for n, s, k in zip(counts, steps, a.sizes, strict=True))
    if a.groups > 1 or max(steps) == 1 or set(a.dilations) != {1} or waste > MOST_WASTE or _is_point(a):
        return imaged(b, y, w, a, shape)
    rank = len(steps)
    whole = (*w.shape[:2], *(n * s for n, s in zip(counts, steps, strict=True)))
    filters = b.pad(w, (0,) * w.ndim, whole, b.constant(0, w.dtype)) if whole[2:] != a.sizes else w
    apart = b.reshape(filters, (*w.shape[:2], *(d for pair in zip(counts, steps, strict=True) for d in pair)))
    permuted = b.permute(apart, (0, 1, *range(3, apart.ndim, 2), *range(2, apart.ndim, 2)))
    filters = b.reshape(permuted, (w.shape[0], shape[1] * math.prod(steps), *counts))
    plain = g.Convolution(counts, (1,) * rank, (1,) * rank, 1, (0,) * rank)
    places = tuple(d + n - 1 for d, n in zip(y.shape[2:], counts, strict=True))
    z = imaged(b, y, filters, plain, (y.shape[0], filters.shape[1], *places))
    z = b.reshape(z, (y.shape[0], shape[1], *steps, *places))
    z = b.permute(z, (0, 1, *(i for k in range(rank) for i in (2 + rank + k, 2 + k))))
    z = b.reshape(z, (y.shape[0], shape[1], *(d * s for d, s in zip(places, steps, strict=True))))
    # Behind the last window there are fewer elements than a step.
    if any(n * s < k + s - 1 for n, s, k in zip(counts, steps, a.sizes, strict=True)):
        larger = tuple(d + s for d, s in zip(z.shape[2:], steps, strict=True))
        z = b.pad(z, (0,) * z.ndim, (*z.shape[:2], *larger), b.constant(0, z.dtype))
    return b.slice(z, (0,) * z.ndim, shape, (1,) * z.ndim)


def _padded(b: Builder, x: Node, a: g.Convolution) -> Node:
    if not any(a.padding):
        return x
    shape = (*x.shape[:2], *(d + 2 * p for d, p in zip(x.shape[2:], a.padding, strict=True)))
    return b.pad(x, (0, 0, *a.padding), shape, b.constant(0, x.dtype))


def convolved(b: Builder, x: Node, w: Node, a: g.Convolution) -> Node:
    """(N, C, *extents) with (O, C / groups, *sizes) gives (N, O, *counts), without padding, of any dtype."""
    out = a.counts(x.shape[2:])
    features = w.shape[0]
    if is_depthwise(b, x.shape[1], features, a):
        total: Node | None = None
        for at in np.ndindex(*a.sizes):
            part = b.slice(x, *_places(x.shape, at, out, a))
            term = b.mul(part, _weight(b, w, at, part.shape))
            total = term if total is None else b.add(total, term)
        assert total is not None, "a window has at least one element"
        return total
    z = b.matmul(_matrix(b, w, x.shape[0], a), _columns(b, x, out, a))
    return b.reshape(z, (x.shape[0], features, *out))


def _by_filter(b: Builder, x: Node, y: Node, a: g.Convolution, shape: g.Shape) -> Node:
    out, (*depth, features) = y.shape[2:], shape
    if is_depthwise(b, x.shape[1], features, a):
        total: Node | None = None
        for at in _backwards(a):
            each = b.mul(y, b.slice(x, *_places(x.shape, at, out, a)))
            one = b.reduce("sum", each, [i for i in range(x.ndim) if i != 1])
            placed = place(b, b.reshape(one, (features, *(1,) * (x.ndim - 1))), (features, *depth),
                           (0, 0, *at), (1,) * x.ndim)  # fmt: skip
            total = placed if total is None else b.add(total, placed)
        assert total is not None, "a window has at least one element"
        return b.permute(total, (*range(1, x.ndim), 0))
    columns, flat = _columns(b, x, out, a), _flat(b, y, a)
    if a.is_plain:
        each = b.matmul(columns, _transposed(b, flat))
        return b.reshape(b.reduce("sum", each, (0,)), (*depth, features))
    found = b.reduce("sum", b.matmul(flat, _transposed(b, columns)), (0,))
    return b.permute(b.reshape(found, (features, *depth)), (*range(1, x.ndim), 0))


def imaged(b: Builder, y: Node, w: Node, a: g.Convolution, shape: g.Shape) -> Node:
    """The adjoint of `convolved` in the image, which has `shape`."""
    out, images = y.shape[2:], y.shape[0]
    if is_depthwise(b, shape[1], w.shape[0], a):
        total: Node | None = None
        for at in _backwards(a):
            starts, _, steps = _places(shape, at, out, a)
            term = place(b, b.mul(y, _weight(b, w, at, y.shape)), shape, starts, steps)
            total = term if total is None else b.add(total, term)
        assert total is not None, "a window has at least one element"
        return total
    columns = b.matmul(_transposed(b, _matrix(b, w, images, a)), _flat(b, y, a))
    if _is_point(a):
        spread = b.reshape(columns, (*shape[:2], *out))
        if set(a.strides) == {1}:
            return spread
        return place(b, spread, shape, (0,) * len(shape), (1, 1, *a.strides))
    r = len(a.sizes)
    apart = b.reshape(columns, (*shape[:2], *a.sizes, *out))
    windows = b.permute(apart, (0, 1, *range(2 + r, 2 + 2 * r), *range(2, 2 + r)))
    return fold(b, windows, shape, g.Window(tuple(range(2, 2 + r)), a.sizes, a.strides, a.dilations))


def _is_point(a: g.Convolution) -> bool:
    return all(k == 1 for k in a.sizes)


def is_depthwise(b: Builder, channels: int | Dim, features: int | Dim, a: g.Convolution) -> bool:
    """Whether each group has one channel and one feature, and a small window; the plan holds for such alone, or not."""
    if a.groups == 1 or math.prod(a.sizes) > UNROLLED:
        return False
    if not hint(channels) == hint(features) == a.groups:
        # NOTE: both are multiples of the groups. One of the guards is enough.
        _ = b.at_least(channels, a.groups + 1) or b.at_least(features, a.groups + 1)
        return False
    b.same(channels, a.groups)
    b.same(features, a.groups)
    return True


def _backwards(a: g.Convolution) -> Iterator[tuple[int, ...]]:
    return reversed(list(np.ndindex(*a.sizes)))


def _places(
    shape: g.Shape, at: tuple[int, ...], out: g.Shape, a: g.Convolution
) -> tuple[g.Shape, g.Shape, tuple[int, ...]]:
    """Where element `at` of every window is, in an image: starts, sizes and steps."""
    starts = tuple(i * e for i, e in zip(at, a.dilations, strict=True))
    return (0, 0, *starts), (*shape[:2], *out), (1, 1, *a.strides)


def _weight(b: Builder, w: Node, at: tuple[int, ...], shape: g.Shape) -> Node:
    """Element `at` of the one filter of each channel, for all places."""
    ones = (1,) * len(at)
    weight = b.slice(w, (0, 0, *at), (w.shape[0], 1, *ones), (1,) * w.ndim)
    return b.expand(b.reshape(weight, (1, w.shape[0], *ones)), shape)


def _matrix(b: Builder, w: Node, images: int | Dim, a: g.Convolution) -> Node:
    """The filters as rows, for every image: (N, O, K), or (N, groups, O / groups, K)."""
    features, depth = w.shape[0], w.shape[1] * math.prod(a.sizes)
    if a.groups == 1:
        return b.expand_to(b.reshape(w, (features, depth)), (images, features, depth))
    part = features // a.groups
    b.same(features, part * a.groups)
    return b.expand_to(b.reshape(w, (a.groups, part, depth)), (images, a.groups, part, depth))


def _columns(b: Builder, x: Node, out: g.Shape, a: g.Convolution) -> Node:
    """x at every place of a window over its last axes: (N, K, places), or (N, groups, K, places)."""
    r = len(a.sizes)
    if _is_point(a):
        columns = b.slice(x, (0,) * x.ndim, (*x.shape[:2], *out), (1, 1, *a.strides))
    else:
        windows = b.window(x, range(2, x.ndim), a.sizes, a.strides, a.dilations)
        columns = b.permute(windows, [0, 1, *(i + r for i in range(2, x.ndim)), *range(2, x.ndim)])
    groups = () if a.groups == 1 else (a.groups,)
    depth = product((b.part(x.shape[1], a.groups), *a.sizes))
    return b.reshape(columns, (x.shape[0], *groups, depth, product(out)))


def _flat(b: Builder, y: Node, a: g.Convolution) -> Node:
    """The result for an image with its places as one axis: (N, O, places), or (N, groups, O / groups, places)."""
    groups = (y.shape[1],) if a.groups == 1 else (a.groups, y.shape[1] // a.groups)
    return b.reshape(y, (y.shape[0], *groups, product(y.shape[2:])))


def _transposed(b: Builder, x: Node) -> Node:
    return b.permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def zeros_around(b: Builder, x: Node) -> tuple[Node, tuple[int, ...]] | None:
    """What a pad puts as many zeros before as behind, on axes after the first two, and how many."""
    if x.op != "pad":
        return None
    inner, value = x.operands
    assert isinstance(x.attrs, g.Pad)
    lo = cut_at_both_ends(b, x.attrs.lo, inner.shape, x.shape)
    zero = isinstance(value.attrs, g.Constant) and value.attrs.value == 0
    return (inner, lo[2:]) if zero and lo is not None and lo[:2] == (0, 0) else None


def cut_at_both_ends(b: Builder, starts: g.Shape, inner: g.Shape, outer: g.Shape) -> tuple[int, ...] | None:
    """How much longer an array is at both ends of each axis than a part of it; None where it differs."""
    found = []
    for p, d, e in zip(starts, inner, outer, strict=True):
        if not isinstance(p, int) or p < 0 or not b.equal(d + 2 * p, e):
            return None
        found.append(p)
    return tuple(found)
