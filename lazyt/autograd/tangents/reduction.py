"""Tangents through reductions that are not linear."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.autograd.rules.formula import Value, spread, working
from lazyt.autograd.rules.reduction import axes_of, normalized_slope, product_of_others
from lazyt.autograd.tangents.registry import jvp

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

    Tangents = tuple[Node | None, ...]


@jvp("prod")
def _prod(b: Builder, n: Node, ts: Tangents) -> Node:
    (t,) = ts
    assert t is not None
    x, c = working(b, n.operands[0], t)
    return b.reduce("sum", (c * product_of_others(x, axes_of(n))).node, axes_of(n))


@jvp("normalized")
def _normalized(b: Builder, n: Node, ts: Tangents) -> Node | None:
    return None if ts[1] is None else normalized_slope(b, n, ts[1])


@jvp("max", "min")
def _extremum(b: Builder, n: Node, ts: Tangents) -> Node:
    """The mean of the tangents of all elements that attain it."""
    (t,) = ts
    assert t is not None
    x, axes = n.operands[0], axes_of(n)
    (c,) = working(b, t)
    mask = Value(b, b.eq(x, spread(b, n, x.shape, axes))).cast(c.node.dtype)
    total = Value(b, b.reduce("sum", (c * mask).node, axes))
    return (total / Value(b, b.reduce("sum", mask.node, axes))).node
