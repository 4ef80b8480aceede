"""Lanes of movement and reductions: their axes are one further on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.autograd.batching_rules.registry import batching
from lazyt.autograd.rules.formula import full
from lazyt.ir import dtypes, graph as g
from lazyt.ir.prims import REDUCTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.autograd.batching_rules.registry import Lanes
    from lazyt.ir.graph import Node


@batching("permute")
def _permute(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    assert isinstance(n.attrs, g.Axes)
    return lanes.b.permute(xs[0], (0, *(a + 1 for a in n.attrs.axes)))


@batching("reshape")
def _reshape(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    return lanes.b.reshape(xs[0], (lanes.size, *n.shape))


@batching("expand")
def _expand(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    return lanes.b.expand(xs[0], (lanes.size, *n.shape))


@batching("slice")
def _slice(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    assert isinstance(n.attrs, g.Slice)
    return lanes.b.slice(xs[0], (0, *n.attrs.starts), (lanes.size, *n.shape), (1, *n.attrs.steps))


@batching("update")
def _update(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    assert isinstance(n.attrs, g.Slice)
    x, v = (lanes.whole(n, i, x) for i, x in enumerate(xs))
    return lanes.b.update(x, v, (0, *n.attrs.starts), (1, *n.attrs.steps))


@batching("pad")
def _pad(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    assert isinstance(n.attrs, g.Pad)
    b, lo, shape = lanes.b, (0, *n.attrs.lo), (lanes.size, *n.shape)
    x = lanes.whole(n, 0, xs[0])
    if not lanes.has(n, 1, xs[1]):
        return b.pad(x, lo, shape, xs[1])
    # A value of each lane's own: where the frame is, that instead of zeros.
    inside = b.pad(full(b, True, x.shape, dtypes.bool_), lo, shape, b.constant(False, dtypes.bool_))
    value = b.expand(b.reshape(xs[1], (lanes.size, *(1,) * n.ndim)), shape)
    found: Node = b.select(inside, b.pad(x, lo, shape, b.constant(0, x.dtype)), value)
    return found


@batching("concat")
def _concat(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    assert isinstance(n.attrs, g.Axis)
    return lanes.b.concat([lanes.whole(n, i, x) for i, x in enumerate(xs)], n.attrs.axis + 1)


@batching("window")
def _window(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    a = n.attrs
    assert isinstance(a, g.Window)
    return lanes.b.window(xs[0], [i + 1 for i in a.axes], a.sizes, a.strides, a.dilations)


@batching("normalized")
def _normalized(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    assert isinstance(n.attrs, g.Axes)
    y, x, r = (lanes.whole(n, i, x) for i, x in enumerate(xs))
    return lanes.b.normalized(y, x, r, [a + 1 for a in n.attrs.axes])


@batching(*REDUCTIONS)
def _reduce(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    assert isinstance(n.attrs, g.Axes)
    return lanes.b.reduce(n.op, xs[0], [a + 1 for a in n.attrs.axes])
