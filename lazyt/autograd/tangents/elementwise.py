"""Tangents through elementwise primitives; slopes and choices at kinks are those of `rules/elementwise.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.autograd.rules.elementwise import BINARY, UNARY, constant_slope, library_slopes
from lazyt.autograd.rules.formula import Value, is_complex, working, zeros
from lazyt.autograd.tangents.registry import jvp, library_jvp

if TYPE_CHECKING:
    from lazyt.autograd.tangents.registry import LibraryRule, Rule
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

    Tangents = tuple[Node | None, ...]


def _total(parts: list[Value]) -> Node | None:
    total = None
    for p in parts:
        total = p if total is None else total + p
    return None if total is None else total.node


def _unary(name: str) -> Rule:
    def rule(b: Builder, n: Node, ts: Tangents) -> Node:
        (t,) = ts
        assert t is not None
        x, y, c = working(b, n.operands[0], n, t)
        return (c * UNARY[name](x, y)).node

    return rule


def _binary(name: str) -> Rule:
    def rule(b: Builder, n: Node, ts: Tangents) -> Node | None:
        x, y, z = working(b, *n.operands, n)
        if name == "pow" and (slope := constant_slope(b, n)) is not None:
            return None if ts[0] is None else (working(b, ts[0])[0] * slope).node if slope != 0 else None
        slopes = BINARY[name](x, y, z)
        return _total(
            [working(b, t)[0] * d for t, d in zip(ts, slopes, strict=True) if t is not None and d is not None]
        )

    return rule


@jvp("abs")
def _abs(b: Builder, n: Node, ts: Tangents) -> Node:
    (t,) = ts
    assert t is not None
    along = Value(b, t) * Value(b, b.sign(n.operands[0])).conj()
    return along.real().node if is_complex(n.operands[0]) else along.node


@jvp("sign")
def _sign(b: Builder, n: Node, ts: Tangents) -> Node | None:
    """z / |z| turns with z: the part of the tangent across sign(z), over |z|. Real signs are flat."""
    (t,) = ts
    if not is_complex(n):
        return None
    assert t is not None
    z, s, c = Value(b, n.operands[0]), Value(b, n), Value(b, t)
    at_zero = z.eq(0)
    size = z.where(at_zero.not_(), 1).abs().cast(n.dtype)
    along = (c * s.conj()).real().cast(n.dtype)
    return ((c - s * along) / size).where(at_zero.not_(), 0).node


def _extremum(loses: str) -> Rule:
    def rule(b: Builder, n: Node, ts: Tangents) -> Node | None:
        x, y = n.operands
        tied, nothing = b.eq(x, y), zeros(b, n.shape, n.dtype)
        parts = []
        for pair, t in zip(((x, y), (y, x)), ts, strict=True):
            if t is not None:
                c = Value(b, t)
                shared = (c * 0.5).where(tied, c)
                parts.append(Value(b, b.select(b.elementwise(loses, *pair), nothing, shared.node)))
        return _total(parts)

    return rule


@jvp("select")
def _select(b: Builder, n: Node, ts: Tangents) -> Node | None:
    condition, (_, s, t) = n.operands[0], ts
    if s is None and t is None:
        return None
    nothing = zeros(b, n.shape, n.dtype)
    found: Node = b.select(condition, nothing if s is None else s, nothing if t is None else t)
    return found


jvp("maximum")(_extremum("lt"))
jvp("minimum")(_extremum("gt"))
for _name in UNARY:
    jvp(_name)(_unary(_name))
for _name in BINARY:
    jvp(_name)(_binary(_name))


def _library(name: str) -> LibraryRule:
    def rule(b: Builder, n: Node, ts: Tangents, used: frozenset[int]) -> Tangents:
        slopes = library_slopes(b, n, name)
        return (_total([Value(b, t) * d for t, d in zip(ts, slopes, strict=True) if t is not None]),)

    return rule


for _name in (
    *("exp", "expm1", "log", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sqrt", "pow"),
):
    library_jvp(f"complex_{_name}")(_library(_name))
