"""Lanes of products and convolutions.

Lanes that one operand shares join one of the other's free axes, so that all lanes are one product: a batch axis only
where both operands have lanes. Convolutions of filters of each lane's own are one convolution in groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.autograd.batching_rules.registry import batching
from lazyt.autograd.rules.formula import zeros
from lazyt.ir import graph as g
from lazyt.ir.symbolic import guarded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.autograd.batching_rules.registry import Lanes
    from lazyt.ir.graph import Node


@batching("matmul")
def _matmul(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    b, (x, y), k = lanes.b, xs, n.ndim
    if not lanes.has(n, 1, y):
        return lanes.unfold(b.matmul(lanes.fold(x, k - 2), y), k - 2, n.shape[-2])
    if not lanes.has(n, 0, x):
        if n.shape[-2] == 1:  # a row by many matrices: they are not transposed
            return _product(lanes, lanes.repeat(x), y)
        return lanes.unfold(b.matmul(x, lanes.fold(y, k - 1)), k - 1, n.shape[-1])
    return _product(lanes, x, y)


def _product(lanes: Lanes, x: Node, y: Node) -> Node:
    """A product a lane: of a column and a row elementwise, which is fused with what reads it."""
    b = lanes.b
    if x.shape[-1] == 1 and y.shape[-2] == 1:
        shape = (*b.same_shape(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1])
        found: Node = b.mul(b.expand(x, shape), b.expand(y, shape))
        return found
    return b.matmul(x, y)


def _in_groups(lanes: Lanes, a: g.Convolution) -> g.Convolution:
    """As many groups in each lane, one lane after the other. A plan is for one number of lanes then."""
    size = guarded(lanes.size)
    lanes.b.same(lanes.size, size)
    return g.Convolution(a.sizes, a.dilations, a.strides, a.groups * size, a.padding)


def _none(lanes: Lanes, n: Node) -> Node | None:
    """The result where there is no lane, for which there would be no group."""
    if lanes.b.at_least(lanes.size, 1):
        return None
    return zeros(lanes.b, (lanes.size, *n.shape), n.dtype)


def _attrs(n: Node) -> g.Convolution:
    assert isinstance(n.attrs, g.Convolution)
    return n.attrs


@batching("convolve")
def _convolve(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    b, a, (x, w), features = lanes.b, _attrs(n), xs, n.shape[1]
    if not lanes.has(n, 1, w):
        return lanes.unfold(b.convolve(lanes.fold(x, 0), w, a, features), 0, n.shape[0])
    if (none := _none(lanes, n)) is not None:
        return none
    filters = lanes.fold(w, 0)
    if not lanes.has(n, 0, x) and a.groups == 1:
        return lanes.unfold(b.convolve(x, filters, a), 1, features)
    image = lanes.fold(lanes.whole(n, 0, x), 1)
    return lanes.unfold(b.convolve(image, filters, _in_groups(lanes, a)), 1, features)


@batching("convolve_filter")
def _convolve_filter(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    b, a, (x, y) = lanes.b, _attrs(n), xs
    channels, sizes, features = n.shape[0], n.shape[1:-1], n.shape[-1]
    if (none := _none(lanes, n)) is not None:
        return none
    last = n.ndim - 1
    if a.groups == 1 and not lanes.has(n, 1, y):
        found = b.convolve_filter(lanes.fold(x, 1), y, a, (features, channels * lanes.size, *sizes))
        return lanes.unfold(found, 0, channels)
    shape = (features * lanes.size, channels, *sizes)
    if a.groups == 1 and not lanes.has(n, 0, x):
        return lanes.unfold(b.convolve_filter(x, lanes.fold(y, 1), a, shape), last, features)
    image, result = (lanes.fold(lanes.whole(n, i, v), 1) for i, v in enumerate(xs))
    return lanes.unfold(b.convolve_filter(image, result, _in_groups(lanes, a), shape), last, features)


@batching("convolve_image")
def _convolve_image(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    b, a, (y, w) = lanes.b, _attrs(n), xs
    images, channels, extents = n.shape[0], n.shape[1], n.shape[2:]
    if not lanes.has(n, 1, w):
        found = b.convolve_image(lanes.fold(y, 0), w, a, (images * lanes.size, channels, *extents))
        return lanes.unfold(found, 0, images)
    if (none := _none(lanes, n)) is not None:
        return none
    result, filters = lanes.fold(lanes.whole(n, 0, y), 1), lanes.fold(w, 0)
    shape = (images, channels * lanes.size, *extents)
    return lanes.unfold(b.convolve_image(result, filters, _in_groups(lanes, a), shape), 1, channels)
