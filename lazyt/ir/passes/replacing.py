"""A graph with some of its nodes computed otherwise: what passes have in common that replace one node by several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import graph as g
from lazyt.ir.builder import Builder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.ir.graph import Graph, Node
    from lazyt.ir.symbolic import Scope

    Rewrite = Callable[[Builder, Node, tuple[Node, ...]], Node | None]


def replaced(graph: Graph, scope: Scope | None, rewrite: Rewrite) -> Graph:
    """The graph with what `rewrite` gives for a node and its new operands; the same graph where that is None for all.

    The order of nodes and what is kept for the backward stay.
    """
    b = Builder(scope)
    new: dict[Node, Node] = {}
    changed = False
    for n in graph.nodes:
        b.site = n.site
        operands = tuple(new[x] for x in n.operands)
        found = rewrite(b, n, operands)
        changed = changed or found is not None
        new[n] = b.make(n.op, operands, n.attrs, n.shape, n.dtype) if found is None else found
    if not changed:
        return graph
    outputs = [new[n] for n in graph.outputs]
    alive = set(g.reachable(outputs))
    nodes = [n for n in _in_order([new[n] for n in graph.nodes]) if n in alive]
    return g.Graph(nodes, outputs, frozenset(new[n] for n in graph.kept), graph.rounded)


def _in_order(nodes: Sequence[Node]) -> list[Node]:
    """Each node behind what it is computed from, otherwise as they are given."""
    order: dict[Node, None] = {}
    for n in nodes:
        stack = [n]
        while stack:
            x = stack[-1]
            missing = [o for o in x.operands if o not in order]
            if missing and x not in order:
                stack.extend(missing)
            else:
                order[x] = None
                stack.pop()
    return list(order)
