"""The state of `canonicalize`: what nodes have become, complex ones as two parts; a builder of products of halves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import NotSupportedError
from lazyt.ir import dtypes, graph as g
from lazyt.ir.attention import before_cast
from lazyt.ir.builder import Builder
from lazyt.ir.passes.rewriting import Rewriter
from lazyt.ir.prims import CONVOLUTIONS

if TYPE_CHECKING:
    import numpy as np

    from lazyt.ir.graph import Node
    from lazyt.ir.passes.rewriting import Rules
    from lazyt.ir.symbolic import Scope
    from lazyt.ir.target import Target


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
        moved = []
        while x.op in ("permute", "reshape", "expand"):
            moved.append(x)
            x = x.operands[0]
        x = self.cast(x, dtypes.bfloat16)
        for n in reversed(moved):
            x = self.make(n.op, (x,), n.attrs, n.shape, x.dtype)
        return x


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

    def _sized(self, x: Node, shape: g.Shape) -> Node:
        """The replacement of a value of this shape: an extent that is a number there is one here.

        NOTE: a stored copy has symbols for all extents, and rewrites ask whether an extent is 1 always.
        """
        known = any(isinstance(p, int) and not isinstance(q, int) for p, q in zip(shape, x.shape, strict=True))
        return self.b.reshape(x, shape) if known else x
