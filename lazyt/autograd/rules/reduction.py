"""Derivatives of reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lazyt.autograd.rules.formula import Value, spread, working
from lazyt.autograd.rules.registry import vjp
from lazyt.ir import dtypes, graph as g
from lazyt.ops.reductions import count, reduce

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

    Cotangents = tuple[Node | None, ...]


def axes_of(n: Node) -> tuple[int, ...]:
    """The axes that a reduction removes."""
    assert isinstance(n.attrs, g.Axes)
    return n.attrs.axes


@vjp("sum")
def _sum(b: Builder, n: Node, ct: Node) -> Cotangents:
    return (spread(b, ct, n.operands[0].shape, axes_of(n)),)


@vjp("prod")
def _prod(b: Builder, n: Node, ct: Node) -> Cotangents:
    x, c = working(b, n.operands[0], spread(b, ct, n.operands[0].shape, axes_of(n)))
    return ((c * product_of_others(x, axes_of(n)).conj()).node,)


def product_of_others(x: Value, axes: tuple[int, ...]) -> Value:
    """The product of the others, exact with zeros in it, and exact again when differentiated once more.

    Zeros are set aside: with s = x where x != 0, else 1, the product of the others is prod(s) / s times the
    product of the zeros among them, which is 1 if there is none and is that zero itself if there is one: kept
    as a value rather than as 0, so that its own derivative is seen. Two zeros or more matter at order 3 only.
    """
    b = x.b

    def total(name: str, v: Value) -> Value:
        return Value(b, spread(b, b.reduce(name, v.node, axes), v.node.shape, axes))

    zero = x.eq(0)
    s = x.where(zero.not_(), 1)
    own = x.where(zero, 0)
    count = zero.cast(dtypes.int64)
    others = total("sum", count) - count
    lone = total("sum", own) - own
    product = total("prod", s)
    if dtypes.kind(x.node.dtype) == "f":
        # NOTE: beside a zero a product that overflows is none of the result: 0 times infinity would be NaN.
        most = float(np.finfo(x.node.dtype).max)
        product = product.where(others.eq(0), product.minimum(most).maximum(-most))
    return (x.full(1).where(others.eq(0), lone.where(others.eq(1), 0)) * product) / s


def normalized_slope(b: Builder, n: Node, c: Node) -> Node:
    """The derivative of `normalized` applied to c: it is symmetric, so a tangent's as well as a cotangent's."""
    axes, shape = axes_of(n), n.shape
    y, r, v = Value(b, n), Value(b, n.operands[2]), Value(b, c)
    size = b.extent(count(n, axes), n.dtype)

    def mean(x: Value) -> Value:
        return Value(b, spread(b, b.div(reduce(b, "sum", x.node, axes), size), shape, axes))

    return ((v - mean(v) - y * mean(v * y)) * r).node


@vjp("normalized")
def _normalized(b: Builder, n: Node, ct: Node) -> Cotangents:
    return (None, normalized_slope(b, n, ct), None)


@vjp("max", "min")
def _extremum(b: Builder, n: Node, ct: Node) -> Cotangents:
    """max and min share the cotangent among all the elements that attain it (as PyTorch's amax does)."""
    shape, axes = n.operands[0].shape, axes_of(n)
    attains = b.eq(n.operands[0], spread(b, n, shape, axes))
    (c,) = working(b, spread(b, ct, shape, axes))
    mask = Value(b, attains).cast(c.node.dtype)
    count = Value(b, spread(b, b.reduce("sum", mask.node, axes), shape, axes))
    return ((c * mask / count).node,)
