"""Movement and writes in canonical form: rules of `canonicalize` for real values, for parts and for whole complex ones.

scatter(x, v, i, j) at axes 0, 1  -->  scatter of rows, at position(i, j) alone (every axis before the last
                                       that is indexed gets an index, which is its own number)
update(x, v), most of x           -->  select(inside, pad(v), x)          (one pass; see `_covers`)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import dtypes, graph as g
from lazyt.ir.passes.rewriting import Rule, always, table
from lazyt.ir.symbolic import hint, product

if TYPE_CHECKING:
    import numpy as np

    from lazyt.ir.graph import Node
    from lazyt.ir.passes.canonical import Canonicalizer

# So many values are looked at to find what one is made of.
NEAR = 64


def moved(c: Canonicalizer, n: Node, operands: tuple[Node, ...], dtype: np.dtype) -> Node:
    """The movement n, or another operation that goes element by element, of these operands."""
    found: Node | None = c.value(_BY_OP, n, *operands)
    return c.b.make(n.op, operands, n.attrs, n.shape, dtype) if found is None else found


def _permuted(c: Canonicalizer, n: Node, x: Node) -> Node:
    assert isinstance(n.attrs, g.Axes)
    return c.b.permute(x, n.attrs.axes)


def _reshaped(c: Canonicalizer, n: Node, x: Node) -> Node:
    inner = x.operands[0] if x.op == "reshape" else x
    return inner if inner.shape == n.shape else c.b.make("reshape", (inner,), None, n.shape, x.dtype)


def _covers(c: Canonicalizer, n: Node, x: Node, v: Node) -> bool:
    """Whether an update is better computed over all of x than as a copy of x that v is then written over.

    Where v is most of it that halves what is moved. Not where the copy may fall away because x, an input, is
    overwritten in place (see donate.py): that cannot be if v is made of x.
    """
    assert isinstance(n.attrs, g.Slice)
    if "cover" in c.off or any(s != 1 for s in n.attrs.steps):
        return False
    if 2 * hint(product(v.shape)) < hint(product(x.shape)):
        return False
    while x.op == "reshape":
        x = x.operands[0]
    return x.op != "input" or _made_of(v, x)


def _made_of(n: Node, source: Node) -> bool:
    """Whether `source` is among the values nearest to n that n is made from."""
    seen: set[Node] = set()
    todo = [n]
    while todo and len(seen) < NEAR:
        y = todo.pop()
        if y is source:
            return True
        if y not in seen:
            seen.add(y)
            todo.extend(y.operands)
    return False


def _covered(c: Canonicalizer, n: Node, x: Node, v: Node) -> Node:
    """update(x, v) as select(inside, pad(v), x)."""
    b, attrs = c.b, n.attrs
    assert isinstance(attrs, g.Slice)
    inside = b.expand_to(b.constant(True, dtypes.bool_), v.shape)
    there = b.pad(inside, attrs.starts, x.shape, b.constant(False, dtypes.bool_))
    return b.select(there, b.pad(v, attrs.starts, x.shape, b.constant(0, x.dtype)), x)


def _by_rows(c: Canonicalizer, n: Node, x: Node, v: Node, *indices: Node) -> Node:
    """A scatter as one of rows: x as (positions, rest), v as (indices, rest)."""
    assert isinstance(n.attrs, g.Scatter)
    b, axes, inner = c.b, n.attrs.axes, indices[0].shape
    last = max(axes) + 1
    lead = [a for a in range(last) if a not in axes]
    # Axes of v: the indices', those before the last indexed axis, the rest.
    k = len(inner)
    v = b.permute(v, (*range(k, k + len(lead)), *range(k), *range(k + len(lead), v.ndim)))
    grid = tuple(x.shape[a] for a in lead) + inner
    found: dict[int, Node] = {a: b.iota(grid, i) for i, a in enumerate(lead)}
    for a, i in zip(axes, indices, strict=True):
        found[a] = b.expand_to(i, grid)
    sizes, rest = x.shape[:last], x.shape[last:]
    at = b.position([found[a] for a in range(last)], sizes)
    rows, values = b.reshape(x, (product(sizes), *rest)), b.reshape(v, (product(grid), *rest))
    at = b.reshape(at, (product(grid),))
    y = b.make("scatter", (rows, values, at), g.Scatter((0,), n.attrs.mode), (product(sizes), *rest), x.dtype)
    return b.reshape(y, x.shape)


RULES = (
    Rule("permute", always, _permuted),
    Rule("reshape", always, _reshaped),
    Rule("scatter", always, _by_rows),
    Rule("update", _covers, _covered),
)
_BY_OP = table(*RULES)
