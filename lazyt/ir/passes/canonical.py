"""The state of `canonicalize`: what nodes have become, complex ones as two parts; a builder of products of halves.

Movement and writes are here too: their rules are for real values, for parts, and for whole complex values that move.

    scatter(x, v, i, j) at axes 0, 1  -->  scatter of rows, at position(i, j) alone (every axis before the last
                                           that is indexed gets an index, which is its own number)
    update(x, v), most of x           -->  select(inside, pad(v), x)          (one pass; see `_covers`)
    movement of a complex array, all  -->  the same, of whole elements        (where nobody reads its parts)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import NotSupportedError
from lazyt.ir import dtypes, graph as g
from lazyt.ir.attention import before_cast, under
from lazyt.ir.builder import Builder
from lazyt.ir.passes.call_operands import buffer_of
from lazyt.ir.passes.rewriting import Rewriter, Rule, always, table
from lazyt.ir.prims import CONVOLUTIONS, MOVEMENT
from lazyt.ir.symbolic import hint, product

if TYPE_CHECKING:
    import numpy as np

    from lazyt.ir.graph import Node
    from lazyt.ir.passes.rewriting import Rules
    from lazyt.ir.symbolic import Scope
    from lazyt.ir.target import Target

    Parts = tuple[Node, ...]  # real and imaginary

# Number of values that are searched for an operand of another one.
NEAR = 64
# The operations whose products are no user's: by how their names begin.
OF_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "conv_transpose")
OF_ATTENTION = "scaled_dot_product_attention"


def may_be_rounded(n: Node) -> bool:
    """Whether the program allows to round the operands of a product or a convolution to bfloat16.

    A convolution of one place is a product as it is recorded.
    """
    site = n.site
    if n.dtype != dtypes.float32 or not isinstance(site, g.Origin) or not site.rounded or site.name == OF_ATTENTION:
        return False
    if n.op in CONVOLUTIONS or (n.op == "matmul" and site.name.startswith(OF_CONVOLUTIONS)):
        return "convolutions" in site.rounded
    return n.op == "matmul" and "products" in site.rounded


class OperandBuilder(Builder):
    """A builder whose products are of halves where a target's read them and operands are float32 copies of such.

    rounds: whether operands of float32 may be rounded to bfloat16.
    """

    def __init__(self, scope: Scope | None, target: Target) -> None:
        super().__init__(scope)
        self.target, self.rounds = target, False

    def matmul(self, a: Node, b: Node, dtype: np.dtype | None = None) -> Node:
        target = self.target
        halves = target.half_products or target.alike_products
        if not halves or not a.dtype == b.dtype == dtypes.float32:
            return super().matmul(a, b, dtype)
        p, q = (before_cast(self, x) or x for x in (a, b))
        if p.dtype == q.dtype or not target.alike_products:
            a, b = p, q
        made = super().matmul(a, b, dtype)
        wanted = target.rounded_products
        if not self.rounds or wanted is None or dtypes.float16 in (a.dtype, b.dtype):
            return made
        return super().matmul(self.as_bfloat16(a), self.as_bfloat16(b)) if wanted(self, made) else made

    def as_bfloat16(self, x: Node) -> Node:
        """x, which is no copy of a half, rounded before it is moved."""
        return under(self, x, ("permute", "reshape", "expand"), lambda y: self.cast(y, dtypes.bfloat16)) or x


def is_complex(n: Node) -> bool:
    return dtypes.kind(n.dtype) == "c"


class Canonicalizer(Rewriter):
    """A rewriter whose nodes may become several values; off: flags of its rules that are off.

    Rules for nodes that are complex, or read what is, are in a table of their own, and are given operands as the graph
    has them.
    """

    b: OperandBuilder

    def __init__(
        self, graph: g.Graph, scope: Scope | None, target: Target, off: frozenset[str], of_complex: Rules
    ) -> None:  # fmt: skip
        super().__init__(graph, OperandBuilder(scope, target))
        self.target, self.off, self.of_complex = target, off, of_complex
        self.vectors = target.vector_products and "vectors" not in off
        # The parts of a complex value, or the results of a call that is none any more.
        self.several: dict[Node, tuple[Node, ...]] = {}
        self.wholes: dict[Node, Node] = {}  # what is split, as one value again

    def write(self, n: Node, rules: Rules) -> bool:
        self.b.rounds = may_be_rounded(n)
        if is_complex(n) or any(map(is_complex, n.operands)):
            found = self.value(self.of_complex, n, *n.operands)
            if found is None:
                dtype = n.operands[-1].dtype if n.operands else n.dtype
                raise NotSupportedError(f"not supported: {n.op} of {dtype}, because it has no complex form yet")
        else:
            operands = tuple([self.become(x) for x in n.operands])
            found = self.value(rules, n, *operands)
            found = self.copy(n, *operands) if found is None else found
        if isinstance(found, tuple):
            self.several[n] = found
        else:
            self.new[n] = found if found.shape is n.shape else self._sized(found, n.shape)
        return True

    def become(self, n: Node) -> Any:
        """The value that n has become, or several."""
        return self.new[n] if n in self.new else self.several[n]

    def whole(self, n: Node) -> Node:
        """n as one value: parts are put together where it was split."""
        if n in self.new:
            return self.new[n]
        if n not in self.wholes:
            self.wholes[n] = self._moved(n) or self.b.make("complex", self.split(n), None, n.shape, n.dtype)
        return self.wholes[n]

    def split(self, n: Node) -> Parts:
        """n's parts; a whole complex array is read part by part."""
        if n not in self.several:
            x, b = self.new[n], self.b
            if is_complex(x):
                d = dtypes.real_of(x.dtype)
                self.several[n] = tuple(b.make(part, (x,), None, x.shape, d) for part in ("real", "imag"))
            else:
                self.several[n] = x, b.expand_to(b.constant(0, x.dtype), x.shape)
        return self.several[n]

    def moved(self, n: Node, operands: tuple[Node, ...], dtype: np.dtype) -> Node:
        """The movement n, or another operation that goes element by element, of these operands."""
        found: Node | None = self.value(_BY_OP, n, *operands)
        return self.b.make(n.op, operands, n.attrs, n.shape, dtype) if found is None else found

    def _moved(self, n: Node) -> Node | None:
        """n as movement of whole elements of an array that is stored; None where it is not, or is read by parts too.

        A copy then moves words, and a table is not taken apart before it is read at indices.
        """
        if self.readers[n] > 1:
            return None
        chain = []
        x = n
        while x not in self.new and self._is_movement(x):
            chain.append(x)
            x = x.operands[0]
        if x not in self.new or not is_complex(self.new[x]):
            return None
        found, site = self.new[x], self.b.site
        for y in reversed(chain):
            self.b.site = y.site  # whose index may be out of range
            more = [self.b.constant(0, n.dtype)] if y.op == "pad" else [self.new[i] for i in y.operands[1:]]
            found = self.moved(y, (found, *more), y.dtype)
        self.b.site = site
        return found

    def _is_movement(self, n: Node) -> bool:
        if n.op == "gather":
            # NOTE: costly where others read its parts: those would be read at its indices once more.
            return self.readers[n] == 1
        if n.op == "pad":
            fill = n.operands[1].attrs
            return isinstance(fill, g.Constant) and repr(complex(fill.value)) == "0j"  # and no part is -0.0
        if n.op == "slice" and n.dtype == dtypes.complex128:
            # Two words that do not follow one another would be two passes over memory, their parts are one.
            assert isinstance(n.attrs, g.Slice)
            return n.attrs.steps[-1:] in ((), (1,))
        return n.op in MOVEMENT and n.op != "concat"

    def _sized(self, x: Node, shape: g.Shape) -> Node:
        """The replacement of a value of this shape: an extent that is a number there is one here.

        NOTE: a stored copy has symbols for all extents, and rewrites ask whether an extent is 1 always.
        """
        known = any(isinstance(p, int) and not isinstance(q, int) for p, q in zip(shape, x.shape, strict=True))
        return self.b.reshape(x, shape) if known else x


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
    x = buffer_of(x)
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


MOVES = (
    Rule("permute", always, _permuted),
    Rule("reshape", always, _reshaped),
    Rule("scatter", always, _by_rows),
    Rule("update", _covers, _covered),
)
_BY_OP = table(*MOVES)
