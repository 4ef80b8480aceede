"""Derivatives of library calls without a family of their own: scans and sorting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.autograd.rules.formula import Value, call, statics_of, working, zeros
from lazyt.autograd.rules.registry import library_vjp
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

    Cotangents = tuple[Node | None, ...]


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
    """What `_prod` (reduction.py) does, for every prefix at once.

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
