"""Programs that fusion divides as it does each operation by itself: they are planned once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lazyt.ir.graph import reachable
from lazyt.ir.passes.fuse import CALLS, fuse
from lazyt.ir.passes.fusion_cost import FUSED, WRITES
from lazyt.ir.passes.merge_axes import merges_axes
from lazyt.ir.prims import REDUCTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.graph import Graph, Node
    from lazyt.ir.passes.fusion_result import Fused
    from lazyt.ir.symbolic import Scope
    from lazyt.ir.target import Target


def divided_alike(graph: Graph, scope: Scope | None, target: Target, apart: Fused) -> Fused | None:
    """The graph divided as it is when fusion is on, if that comes to the same as each operation by itself.

    None where passes before or behind do more than with single operations: around products, merged axes, and updates.
    """
    read_by = Counter([x for n in graph.nodes for x in n.operands] + graph.outputs)
    for n in graph.nodes:
        if n.op in WRITES or n.op in CALLS or merges_axes(n):
            return None
        if n.op in FUSED and any(x.op in FUSED and read_by[x] == 1 for x in n.operands):
            return None  # mostly fused, so this is not computed
    fused = fuse(graph, scope, target)
    return fused if len(fused.units) == len(apart.units) and fused.stored == apart.stored else None


def is_divided_alike(outputs: Sequence[Node]) -> bool:
    """Whether all of these outputs come from one operation, which is one kernel fused or not."""
    nodes = reachable(outputs)
    return sum(n.op in FUSED or n.op in REDUCTIONS for n in nodes) == 1 and not any(
        n.op in WRITES or n.op in CALLS for n in nodes
    )
