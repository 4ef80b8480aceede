"""Convolutions in the form that a backend computes best: rules of `canonicalize`.

slice(convolve(x, w)) of places   -->  convolve(slice x, w)               (what nobody reads is not computed)
convolve(pad(x, 0), w)            -->  convolve(x, w) with padding        (where a library computes it)
convolve(float32 of halves x, w)  -->  convolve(x, w)                     (where a backend wants it so)
convolve(x, w)                    -->  products                           (where a backend has no code for it)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lazyt.ir import dtypes, graph as g
from lazyt.ir.attention import before_cast
from lazyt.ir.passes.lower_convolution import by_one_place, by_products, cut_at_both_ends, is_depthwise, zeros_around
from lazyt.ir.passes.phases import by_planes, framed, in_phases
from lazyt.ir.passes.rewriting import Rule, always
from lazyt.ir.prims import CONVOLUTIONS

if TYPE_CHECKING:
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.canonical import Canonicalizer


def _is_wanted(c: Canonicalizer, n: Node, x: Node, y: Node) -> bool:
    """Whether a backend computes it as it is."""
    wanted, a = c.target.convolutions, n.attrs
    assert isinstance(a, g.Convolution)
    if not isinstance(wanted, bool):
        return wanted(n)
    features = n.shape[-1] if n.op == "convolve_filter" else y.shape[0]
    return wanted and n.op != "convolve_image" and not is_depthwise(c.b, x.shape[1], features, a)


def _with_padding(c: Canonicalizer, n: Node, x: Node, y: Node) -> Node:
    """As it is, with its image's zeros as padding."""
    a = n.attrs
    assert isinstance(a, g.Convolution)
    if n.op != "convolve_image" and (found := zeros_around(c.b, x)) is not None:
        x, more = found
        a = replace(a, padding=tuple(p + q for p, q in zip(a.padding, more, strict=True)))
    return _of_halves(c, n, x, y, a) or c.b.make(n.op, (x, y), a, n.shape, n.dtype)


def _of_halves(c: Canonicalizer, n: Node, x: Node, y: Node, a: g.Convolution) -> Node | None:
    """The convolution n as one of bfloat16: of what its operands are copies of, or may be rounded to; else None."""
    b, wanted = c.b, c.target.half_convolutions
    if wanted is None or n.dtype != dtypes.float32:
        return None
    p, q = (before_cast(b, z) or (b.as_bfloat16(z) if b.rounds else None) for z in (x, y))
    if p is None or q is None or not p.dtype == q.dtype == dtypes.bfloat16:
        return None
    made = b.make(n.op, (p, q), a, n.shape, n.dtype)
    return made if wanted(b, made) else None


def _is_part(c: Canonicalizer, n: Node, y: Node) -> bool:
    """Whether n is a slice of a convolution that nobody else reads: the gradient of an input that had been padded."""
    x = n.operands[0]
    return "slices" not in c.off and x.op == y.op in CONVOLUTIONS and c.readers[x] == 1


def _part_of_places(c: Canonicalizer, n: Node, y: Node) -> Node | None:
    """The convolution that gives these places alone; None where there is none."""
    b, a, v = c.b, n.attrs, y.attrs
    assert isinstance(a, g.Slice)
    assert isinstance(v, g.Convolution)
    whole = a.starts[:2] == (0, 0) and all(b.equal(p, q) for p, q in zip(n.shape[:2], y.shape[:2], strict=True))
    if not whole or any(s != 1 for s in a.steps) or y.op == "convolve_filter":
        return None
    x, w = y.operands
    cut = cut_at_both_ends(b, a.starts[2:], n.shape[2:], y.shape[2:])
    if y.op == "convolve" and v.is_plain:
        sizes = [d + r for d, r in zip(n.shape[2:], v.reach, strict=True)]
        part = b.slice(x, a.starts, (*x.shape[:2], *sizes), a.steps)
        return b.make("convolve", (part, w), v, n.shape, n.dtype)
    if cut is None:
        return None
    if y.op == "convolve":
        if set(v.strides) != {1} or any(p < q for p, q in zip(v.padding, cut, strict=True)):
            return None
        cut = tuple(-q for q in cut)
    v = replace(v, padding=tuple(p + q for p, q in zip(v.padding, cut, strict=True)))
    return b.make(y.op, (x, w), v, n.shape, n.dtype)


_EACH = " ".join(CONVOLUTIONS)

RULES = (
    Rule(_EACH, lambda c, n, x, y: isinstance(c.target.convolutions, bool), lambda c, *nxy: by_one_place(c.b, *nxy)),
    Rule(_EACH, lambda c, n, x, y: c.target.convolutions is True and by_planes(c.b, n), _with_padding),
    Rule(
        _EACH,
        lambda c, n, x, y: c.target.convolutions is True and in_phases(n),
        lambda c, n, x, y: _of_halves(c, n, x, y, n.attrs) or framed(c.b, n, x, y),
    ),
    Rule(_EACH, _is_wanted, _with_padding),
    Rule(_EACH, always, lambda c, *nxy: by_products(c.b, *nxy)),
    Rule("slice", _is_part, _part_of_places),
)
