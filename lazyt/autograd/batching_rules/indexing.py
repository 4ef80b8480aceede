"""Lanes of gather and scatter: indices of each lane's own are joined by the lane's number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.autograd.batching_rules.registry import batching
from lazyt.ir import graph as g

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.autograd.batching_rules.registry import Lanes
    from lazyt.ir.graph import Node


@batching("gather")
def _gather(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    assert isinstance(n.attrs, g.Axes)
    b, axes, own = lanes.b, n.attrs.axes, lanes.has(n, 0, xs[0])
    if not any(lanes.has(n, i, x) for i, x in enumerate(xs) if i):
        found = b.gather(xs[0], xs[1:], [a + 1 for a in axes])
        k = xs[1].ndim
        return b.permute(found, (k, *(i for i in range(found.ndim) if i != k)))
    indices = [lanes.whole(n, i, x) for i, x in enumerate(xs) if i]
    if not own:
        return b.gather(xs[0], indices, axes)
    return b.gather(xs[0], [lanes.number(n.operands[1].shape), *indices], (0, *(a + 1 for a in axes)))


@batching("scatter")
def _scatter(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    assert isinstance(n.attrs, g.Scatter)
    b, mode, further = lanes.b, n.attrs.mode, tuple(a + 1 for a in n.attrs.axes)
    x, v = (lanes.whole(n, i, xs[i]) for i in range(2))
    if any(lanes.has(n, i, y) for i, y in enumerate(xs) if i > 1):
        indices = [lanes.whole(n, i, y) for i, y in enumerate(xs) if i > 1]
        return b.scatter(x, v, [lanes.number(n.operands[2].shape), *indices], (0, *further), mode)
    k = xs[2].ndim
    permuted = b.permute(v, (*range(1, k + 1), 0, *range(k + 1, v.ndim)))
    return b.scatter(x, permuted, xs[2:], further, mode)
