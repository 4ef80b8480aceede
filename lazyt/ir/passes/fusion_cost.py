"""What it costs to compute a node from stored values: what fusion asks before it stores one, or computes it again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lazyt.ir.passes.casts import rounds, widens
from lazyt.ir.prims import ELEMENTWISE, MOVEMENT, REDUCTIONS, SOURCES
from lazyt.ir.symbolic import hint

if TYPE_CHECKING:
    from lazyt.ir.graph import Graph, Node

MAX_DEPTH = 256
MAX_PADS = 64  # one within the other in a kernel: each has its condition, at all points
CHEAP = 4
COSTLY = 12  # of one elementary function: more than storing it for all the sums that read it
REDUCED = 8
MOST = 1 << 20
# Copies of each element of an operand that is spread.
SPREAD = 16
# Where functions are light, two of them are computed again, at so many places, from so many values.
LIGHT, LIGHT_PLACES, LIGHT_SOURCES = 2 * COSTLY + REDUCED, 3, 2

WRITES = frozenset({"concat", "update"})
FUSED = frozenset({"cast", "iota", "gather", "position", *ELEMENTWISE})


class Costs:
    """Of the nodes of a graph: operations from stored values on, and how many read them.

    light: to compute elementary functions takes no longer than to read what they give. cut: what is stored, because the
    chains that end there are long. at_each: the operations at each element, where what is spread along axes is there.
    """

    def __init__(self, graph: Graph, light: bool) -> None:
        self.graph, self.light = graph, light
        self.of: dict[Node, int] = {}
        self.at_each: dict[Node, int] = {}
        self.users: dict[Node, int] = {}
        self.cut: list[Node] = []
        self._sources: dict[Node, frozenset[Node] | None] = {}  # what is loaded for a node; None: too much
        depth: dict[Node, int] = {}
        pads: dict[Node, int] = {}
        for n in graph.nodes:
            for x in n.operands:
                self.users[x] = self.users.get(x, 0) + 1
            if _is_inlined(n):
                # NOTE: casts are free so that a program in halves is divided as the same one in float32.
                free = n.op in MOVEMENT or n.op == "iota" or widens(n) or rounds(n)
                own = 0 if free else 6 if n.op == "gather" else 1
                if n.op in ELEMENTWISE and ELEMENTWISE[n.op].costly:
                    own = COSTLY
                self.of[n] = min(own + sum(self.of[x] for x in n.operands), MOST)
                spread = n.op == "expand" and _is_spread(n)
                self.at_each[n] = 0 if spread else min(own + sum(self.at_each[x] for x in n.operands), MOST)
                d = max((depth[x] for x in n.operands), default=0) + (n.op in FUSED)
                p = max((pads[x] for x in n.operands), default=0) + (n.op == "pad")
                if (d >= MAX_DEPTH and n.op in FUSED) or p >= MAX_PADS:
                    self.cut.append(n)
                    d = p = 0
                depth[n], pads[n] = d, p
            else:
                self.of[n] = self.at_each[n] = REDUCED if n.op in REDUCTIONS else 0
                depth[n] = pads[n] = 0
            if n in graph.kept:
                self.of[n] = self.at_each[n] = depth[n] = pads[n] = 0
            if light:
                self._sources[n] = self._loaded(n)

    def is_light(self, n: Node, places: int) -> bool:
        """Whether it takes longer to store and read n than to compute it at all places, from few values in memory."""
        return self.light and places <= LIGHT_PLACES and self.of[n] <= LIGHT and self._sources[n] is not None

    def _loaded(self, n: Node) -> frozenset[Node] | None:
        """The stored values that n is computed from; None where they are more than it may be computed again from."""
        if n.op in SOURCES and n.op != "input":
            return frozenset()
        if n in self.graph.kept or not _is_inlined(n):
            return frozenset((n,))
        found: frozenset[Node] = frozenset()
        for x in n.operands:
            own = self._sources[x]
            if own is None:
                return None
            found |= own
        return found if len(found) <= LIGHT_SOURCES else None


def _is_inlined(n: Node) -> bool:
    return n.op in FUSED or (n.op in MOVEMENT and n.op not in WRITES)


def _is_spread(n: Node) -> bool:
    """Whether each element is repeated so often that what it takes to compute it does not count.

    It is computed outside the loop over its copies, or stored.
    """
    return math.prod(map(hint, n.shape)) >= SPREAD * math.prod(map(hint, n.operands[0].shape))
