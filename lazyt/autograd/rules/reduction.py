"""Derivatives of reductions, matmul, scans and sorting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.autograd.rules.formula import Value, call, spread, statics_of, working, zeros
from lazyt.autograd.rules.registry import library_vjp, vjp
from lazyt.ir import dtypes, graph as g
from lazyt.ir.adjoints import image_of

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
    return (x.full(1).where(others.eq(0), lone.where(others.eq(1), 0)) * total("prod", s)) / s


@vjp("max", "min")
def _extremum(b: Builder, n: Node, ct: Node) -> Cotangents:
    """max and min share the cotangent among all the elements that attain it (as PyTorch's amax does)."""
    shape, axes = n.operands[0].shape, axes_of(n)
    attains = b.eq(n.operands[0], spread(b, n, shape, axes))
    (c,) = working(b, spread(b, ct, shape, axes))
    mask = Value(b, attains).cast(c.node.dtype)
    count = Value(b, spread(b, b.reduce("sum", mask.node, axes), shape, axes))
    return ((c * mask / count).node,)


@vjp("matmul")
def _matmul(b: Builder, n: Node, ct: Node) -> Cotangents:
    x, y, c = (Value(b, v) for v in (*n.operands, ct))
    return ((c @ y.H).node, (x.H @ c).node)


def _as_filter(b: Builder, found: Node) -> Node:
    """A `convolve_filter` with its features first again."""
    return b.permute(found, (found.ndim - 1, *range(found.ndim - 1)))


@vjp("convolve")
def _convolve(b: Builder, n: Node, ct: Node) -> Cotangents:
    a, (x, w) = n.attrs, n.operands
    assert isinstance(a, g.Convolution)
    return image_of(b, ct, w, a, x.shape), _as_filter(b, b.convolve_filter(x, ct, a, w.shape))


@vjp("convolve_filter")
def _convolve_filter(b: Builder, n: Node, ct: Node) -> Cotangents:
    a, (x, y) = n.attrs, n.operands
    assert isinstance(a, g.Convolution)
    w = _as_filter(b, ct)
    return image_of(b, y, w, a, x.shape), b.convolve(x, w, a, y.shape[1])


@vjp("convolve_image")
def _convolve_image(b: Builder, n: Node, ct: Node) -> Cotangents:
    a, (y, w) = n.attrs, n.operands
    assert isinstance(a, g.Convolution)
    return b.convolve(ct, w, a, y.shape[1]), _as_filter(b, b.convolve_filter(ct, y, a, w.shape))


# Scans and sorting are library calls


def _scan(b: Builder, fn: str, x: Node, axis: int, backwards: bool = False) -> Value:
    x = b.flip(x, (axis,)) if backwards else x
    y = call(b, fn, (x,), (axis,), [(x.shape, x.dtype)])[0]
    return Value(b, b.flip(y, (axis,)) if backwards else y)


def _axis(n: Node) -> int:
    axis: int = statics_of(n)[0]
    return axis % n.operands[0].ndim


@library_vjp("cumsum")
def _cumsum(b: Builder, n: Node, cts: tuple[Node | None, ...]) -> Cotangents:
    assert cts[0] is not None
    return (_scan(b, "cumsum", cts[0], _axis(n), backwards=True).node,)


@library_vjp("cumprod")
def _cumprod(b: Builder, n: Node, cts: tuple[Node | None, ...]) -> Cotangents:
    """What `_prod` does, for every prefix at once.

    The cotangent of x_i is the sum over j >= i of g_j * P_j / s_i * (the product of the zeros among the
    others up to j). With c_j zeros up to j and Z_j their sum, that product is 1 or Z_j for c_j = 0 or 1
    where x_i is not a zero, and 1 or Z_j - x_i for c_j = 1 or 2 where it is one.
    """
    assert cts[0] is not None
    x, ct = working(b, n.operands[0], cts[0])
    axis = _axis(n)

    def after(v: Value) -> Value:
        return _scan(b, "cumsum", v.node, axis, backwards=True)

    zero = x.eq(0)
    s = x.where(zero.not_(), 1)
    count = _scan(b, "cumsum", zero.cast(dtypes.int64).node, axis)
    lone = _scan(b, "cumsum", x.where(zero, 0).node, axis)
    weight = ct * _scan(b, "cumprod", s.node, axis).conj()

    def zeros_are(k: int, v: Value) -> Value:
        return v.where(count.eq(k), 0)

    one = x.full(1)
    lone = lone.conj()
    nonzero = after(weight * (zeros_are(0, one) + zeros_are(1, lone)))
    at_zero = after(weight * (zeros_are(1, one) + zeros_are(2, lone)))
    at_zero = at_zero - x.conj() * after(zeros_are(2, weight))
    return ((at_zero.where(zero, nonzero) / s.conj()).node,)


@library_vjp("sort")
def _sort(b: Builder, n: Node, cts: tuple[Node | None, ...]) -> Cotangents:
    """Every cotangent goes back to where its element came from."""
    assert cts[0] is not None
    x, axis = n.operands[0], _axis(n)
    order = call(b, "argsort", (x,), statics_of(n), [(x.shape, dtypes.int64)])[0]
    indices = [order if i == axis else b.iota(x.shape, i) for i in range(x.ndim)]
    return (b.scatter(zeros(b, x.shape, x.dtype), cts[0], indices, tuple(range(x.ndim)), "add"),)
