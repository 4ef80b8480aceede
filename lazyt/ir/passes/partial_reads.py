"""Values with checks of which a program reads a part: x[i][:2], or x[i] broadcast along an axis of no elements.

Every index is checked, whether or not somebody reads what it selects, as in NumPy. A kernel computes what its own
points read, so such a value is stored: its kernel has a point for each of its indices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir.builder import Builder
from lazyt.ir.prims import ELEMENTWISE, MOVEMENT, REDUCTIONS

if TYPE_CHECKING:
    from lazyt.ir.graph import Graph, Node
    from lazyt.ir.symbolic import Scope

CHECKED = frozenset({"gather", "position"})
# What a kernel may compute for a part of its points alone.
INLINED = frozenset({"cast", *ELEMENTWISE, *MOVEMENT, *REDUCTIONS})


def read_in_part(graph: Graph, scope: Scope | None) -> frozenset[Node]:
    """The values with checks that kernels would compute in part, if they were not stored."""
    if not any(n.op in CHECKED for n in graph.nodes):
        return frozenset()
    b = Builder(scope)
    partial: set[Node] = set()
    found = set()
    for n in reversed(graph.nodes):
        if n in partial and n.op in CHECKED:
            found.add(n)
        elif n.op in INLINED and (n in partial or _leaves_out(b, n)):
            partial.update(n.operands)
    return frozenset(found)


def _leaves_out(b: Builder, n: Node) -> bool:
    """Whether a movement may read a part of its operand."""
    if n.op == "window":
        return True
    x = n.operands[0] if n.operands else n
    if n.op == "slice":
        return any(not b.equal(p, q) for p, q in zip(n.shape, x.shape, strict=True))
    # NOTE: the plan is for extents that are not 0.
    grown = (q for p, q in zip(x.shape, n.shape, strict=True) if not b.equal(p, q)) if n.op == "expand" else ()
    return not all(b.at_least(d, 1) for d in grown)
