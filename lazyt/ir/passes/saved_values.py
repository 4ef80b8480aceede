"""The values that cross from the forward pass to the backward pass: what training keeps in memory.

A node is *backward* where it pulls a cotangent back (`Origin.backward`), and where it is computed from such a node by a
step that nothing differentiates (an optimizer's update). All else is *forward*: so is the second iteration of a loop in
one trace, although it depends on the gradients of the first.

A *saved value* is a stored forward value, no input of the program, that a backward node reads: itself, or through
forward nodes that are not stored (they are computed again where they are read: a cast, a cheap function).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import graph as g
from lazyt.ir.passes.call_operands import buffer_of, is_delayed_copy, nbytes
from lazyt.ir.prims import SOURCES
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from lazyt.ir.graph import Graph, Node
    from lazyt.ir.symbolic import Dim


@dataclass(frozen=True)
class SavedValue:
    """A value that the backward pass reads from memory. `node.site` is the `Origin` that made it."""

    node: Node  # the stored node
    readers: tuple[Node, ...]  # the backward nodes that read it, in the order of the graph

    @property
    def nbytes(self) -> int | Dim:
        """Its size, an expression over the extents of the program."""
        return nbytes(self.node)


class Sides:
    """Which nodes of a graph belong to the backward pass."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        origins = [n.site for n in graph.nodes if isinstance(n.site, g.Origin)]
        # The steps that something differentiates: what they compute is forward, whatever it is computed from.
        self.pulled = {o.step for o in origins if o.backward}
        self.backward: set[Node] = set()
        # What is kept in few bits is made in the forward pass, of derivatives of functions too.
        early = _made_early(graph)
        # NOTE: operands come before their readers.
        for n in graph.nodes:
            if (_pulls(n) and n not in early) or (n.op not in SOURCES and self._follows(n)):
                self.backward.add(n)

    def _follows(self, n: Node) -> bool:
        differentiated = isinstance(n.site, g.Origin) and n.site.step in self.pulled
        return not differentiated and any(x in self.backward for x in n.operands)

    def second_passes(self) -> set[Node]:
        """What is computed again behind a cotangent, because it was recorded so: by `checkpoint`."""
        found: set[Node] = set()
        for n in self.graph.nodes:
            follows = any(x in found for x in n.operands) and (n.op == "item" or n not in self.backward)
            if follows or is_delayed_copy(n):
                found.add(n)
        return found

    def is_forward(self, n: Node) -> bool:
        """Whether a node of the graph belongs to a forward pass."""
        return n not in self.backward


def _made_early(graph: Graph) -> set[Node]:
    """What is computed without a cotangent for that which is kept in few bits."""
    found = g.reachable(graph.kept, lambda n: not carries(n)) if graph.kept else ()
    return {n for n in found if not carries(n)}


def carries(n: Node) -> bool:
    """Whether a node is computed from a cotangent, by the rule of a derivative."""
    return _pulls(n) and not n.site.local


def _pulls(n: Node) -> bool:
    return isinstance(n.site, g.Origin) and n.site.backward and n.op not in SOURCES


def saved_values(graph: Graph, stored: Collection[Node], sides: Sides | None = None) -> list[SavedValue]:
    """The saved values of a graph, in its order, given the nodes that have a buffer (`fuse(graph, scope).stored`).

    Each is there once, however many read it. Inputs, parameters among them, are not: they are held anyway.
    """
    sides = Sides(graph) if sides is None else sides
    found: dict[Node, dict[Node, None]] = {}
    if not sides.backward:
        return []
    for n in graph.nodes:
        if n in sides.backward:
            for v in stored_operands(n, stored, sides.backward):
                found.setdefault(v, {})[n] = None
    return [SavedValue(v, tuple(found[v])) for v in graph.nodes if v in found]


def stored_operands(n: Node, stored: Collection[Node], but: Collection[Node] = ()) -> Iterable[Node]:
    """The stored nodes, no inputs, that n is computed from without another stored one between; none in `but`."""
    out: dict[Node, None] = {}
    seen: set[Node] = set()
    todo = [*n.operands]
    while todo:
        x = buffer_of(todo.pop())
        if x in seen or x in but:
            continue
        seen.add(x)
        # NOTE: a library call is in `stored`, but its items have the buffers.
        if x in stored and x.op not in SOURCES and x.op != "opaque":
            out[x] = None
        elif x.op != "input":
            todo.extend(x.operands)
    return out
