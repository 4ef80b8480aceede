"""Rewrites before fusion: remove autograd's marks, split complex arithmetic into parts, drop dead code.

    stop x, track x, known(y, x)      -->  x
    mul(x, 1), div(x, 1)              -->  x                                  (exact for every x)
    attention, attention_gradient     -->  products, where a backend has no code for them (ir/attention.py)

The other rules are in a table for each family: canonical_complex, canonical_products, and movement in canonical.py. Two
rules change values: a product or a convolution of float32 is one of bfloat16 where the program allows that, and the
weights of attention of bfloat16 are rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import graph as g
from lazyt.ir.attention import by_products, is_attention
from lazyt.ir.passes import canonical_complex, canonical_products
from lazyt.ir.passes.canonical import MOVES, Canonicalizer
from lazyt.ir.passes.rewriting import Rule, always, table

if TYPE_CHECKING:
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Scope
    from lazyt.ir.target import Target


def canonicalize(graph: g.Graph, scope: Scope | None, target: Target, off: frozenset[str] = frozenset()) -> g.Graph:
    """The graph of what a graph's outputs need, rewritten; off: of `cover`, `slices`, `turn` and `vectors`."""
    return Canonicalizer(graph, scope, target, off, canonical_complex.BY_OP).run(_BY_OP)


def _is_one(n: Node) -> bool:
    while n.op in ("expand", "reshape"):
        n = n.operands[0]
    return isinstance(n.attrs, g.Constant) and n.attrs.value == 1


def _attention(c: Canonicalizer, n: Node, *xs: Node) -> tuple[Node, ...]:
    """The results of the call n, in the form of the backend or of products."""
    calls = None if c.target.attention is None else c.target.attention(c.b, n, xs)
    return by_products(c.b, n, xs) if calls is None else calls


_BY_OP = table(
    Rule("stop track normalized", always, lambda c, n, x, *_: x),
    Rule("known", always, lambda c, n, y, x: x),
    Rule("mul", lambda c, n, x, y: _is_one(y), lambda c, n, x, y: x),
    Rule("mul", lambda c, n, x, y: _is_one(x), lambda c, n, x, y: y),
    Rule("div", lambda c, n, x, y: _is_one(y), lambda c, n, x, y: x),
    Rule("opaque", lambda c, n, *xs: is_attention(n), _attention),
    Rule("item", lambda c, n, call: isinstance(call, tuple), lambda c, n, call: call[n.attrs.index]),
    *canonical_products.RULES,
    *MOVES,
)
