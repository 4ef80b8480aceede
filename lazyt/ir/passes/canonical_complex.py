"""Complex values by their parts: rules of `canonicalize` for nodes that are complex, or read what is.

    add(z, w) of complex              -->  complex(add(re z, re w), add(im z, im w))        and so on
    real(complex(a, b))               -->  a

Library calls, products through BLAS and outputs take whole complex arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import dtypes, graph as g
from lazyt.ir.passes.canonical import is_complex
from lazyt.ir.passes.rewriting import Rule, always, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.canonical import Canonicalizer, Parts

    Arithmetic = Callable[..., Node | Parts]


def _pairs(c: Canonicalizer, *xs: Node) -> list[Parts]:
    """The parts of operands; of a real one, twice what it has become."""
    return [c.split(x) if is_complex(x) else (c.new[x], c.new[x]) for x in xs]


def _of_parts(f: Arithmetic) -> Callable[..., Node | Parts]:
    """The rule whose value is a function of the builder and the parts of the operands."""
    return lambda c, n, *xs: f(c.b, *_pairs(c, *xs))


def _each(op: str) -> Callable[..., Parts]:
    return lambda b, *zs: tuple(b.elementwise(op, *xs) for xs in zip(*zs, strict=True))


def _both(op: str, joined: str) -> Arithmetic:
    """Joins a predicate of both parts by `and` or `or`."""
    return lambda b, *zs: b.elementwise(joined, *_each(op)(b, *zs))


def _mul(m: Builder, z: Parts, w: Parts) -> Parts:
    (a, b), (c, d) = z, w
    return m.sub(m.mul(a, c), m.mul(b, d)), m.add(m.mul(a, d), m.mul(b, c))


def _div(m: Builder, z: Parts, w: Parts) -> Parts:
    """Smith's algorithm (1962), as NumPy: scale by the larger part of the divisor."""
    (a, b), (c, d) = z, w
    big = m.ge(m.abs(c), m.abs(d))
    zero = m.and_(m.eq(c, m.sub(c, c)), m.eq(d, m.sub(d, d)))
    r1, r2 = m.div(d, c), m.div(c, d)
    s1, s2 = m.add(c, m.mul(d, r1)), m.add(m.mul(c, r2), d)
    re = m.select(big, m.div(m.add(a, m.mul(b, r1)), s1), m.div(m.add(m.mul(a, r2), b), s2))
    im = m.select(big, m.div(m.sub(b, m.mul(a, r1)), s1), m.div(m.sub(m.mul(b, r2), a), s2))
    return m.select(zero, m.div(a, m.abs(c)), re), m.select(zero, m.div(b, m.abs(c)), im)


def _sign(m: Builder, z: Parts) -> Parts:
    """z / |z|, zero at zero (Array API, NumPy 2)."""
    re, im = z
    size = m.hypot(re, im)
    zero = m.eq(size, m.sub(size, size))
    return m.select(zero, re, m.div(re, size)), m.select(zero, im, m.div(im, size))


def _source(c: Canonicalizer, n: Node) -> Parts:
    d = dtypes.real_of(n.dtype)
    if isinstance(n.attrs, g.Constant):
        v = complex(n.attrs.value)
        return c.b.constant(v.real, d), c.b.constant(v.imag, d)
    s = c.b.make("scalar", (), n.attrs, (), n.dtype)
    return c.b.make("real", (s,), None, (), d), c.b.make("imag", (s,), None, (), d)


def _partwise(c: Canonicalizer, n: Node, *xs: Node) -> Parts:
    return tuple(c.moved(n, parts, parts[0].dtype) for parts in zip(*_pairs(c, *xs), strict=True))


def _cast(c: Canonicalizer, n: Node, x: Node) -> Parts:
    d, b = dtypes.real_of(n.dtype), c.b
    if is_complex(x):
        return tuple(b.cast(part, d) for part in c.split(x))
    return b.cast(c.new[x], d), b.expand_to(b.constant(0, d), x.shape)


def _is_nonzero(c: Canonicalizer, n: Node, x: Node) -> Node:
    b = c.b
    zero = b.expand_to(b.constant(0, dtypes.real_of(x.dtype)), x.shape)
    re, im = c.split(x)
    return b.or_(b.ne(re, zero), b.ne(im, zero))


BY_OP = table(
    # A concatenation is stored anyhow: with its parts side by side, as whoever wants all of it does.
    Rule("input matmul opaque item concat", always, lambda c, n, *xs: c.copy(n, *(c.whole(x) for x in xs))),
    Rule("stop track normalized", always, lambda c, n, x, *_: c.become(x)),
    Rule("known", always, lambda c, n, y, x: c.become(x)),
    Rule("constant scalar", always, _source),
    # What is stored under another shape: its parts are read where they lie.
    Rule("reshape", lambda c, n, x: x in c.new, lambda c, n, x: c.moved(n, (c.new[x],), n.dtype)),
    Rule("permute reshape expand slice pad window sum gather scatter update", always, _partwise),
    Rule("cast", lambda c, n, x: is_complex(n), _cast),
    Rule("cast", lambda c, n, x: dtypes.kind(n.dtype) == "b", _is_nonzero),
    Rule("cast", always, lambda c, n, x: c.b.cast(c.split(x)[0], n.dtype)),
    Rule("complex", always, lambda c, n, x, y: (c.new[x], c.new[y])),
    Rule("real", always, _of_parts(lambda b, z: z[0])),
    Rule("imag", always, _of_parts(lambda b, z: z[1])),
    Rule("conj", always, _of_parts(lambda b, z: (z[0], b.neg(z[1])))),
    Rule("abs", always, _of_parts(lambda b, z: b.hypot(*z))),
    Rule("sign", always, _of_parts(_sign)),
    Rule("mul", always, _of_parts(_mul)),
    Rule("div", always, _of_parts(_div)),
    *(Rule(op, always, _of_parts(_each(op))) for op in ("add", "sub", "neg", "select")),
    *(Rule(op, always, _of_parts(_both(op, "and"))) for op in ("eq", "isfinite")),
    *(Rule(op, always, _of_parts(_both(op, "or"))) for op in ("ne", "isnan", "isinf")),
)
