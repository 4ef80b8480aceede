"""Products that read halves: of what they are float32 copies of, or may be rounded to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import dtypes, graph as g
from lazyt.ir.attention import before_cast
from lazyt.ir.builder import Builder
from lazyt.ir.prims import CONVOLUTIONS

if TYPE_CHECKING:
    import numpy as np

    from lazyt.ir.graph import Node
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
