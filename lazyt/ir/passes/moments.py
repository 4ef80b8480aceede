"""When the values of a step are there: what fusion heeds under a memory budget, so that arrays die early.

    h2 = relu(n2 + h1); h3 = relu(n3 + h2)         without: h3's kernel computes h2 again, of n2 and h1, which live on
    sum(dy1 * x1), sum(dy2 * x2): one kernel       without: dy1 and x1 wait for dy2, a whole layer later

Fusion saves launches and traffic. Both of these cost memory: a cheap value that several steps of the program read is
computed in each of their kernels, so that all it is made of lives until the last of them; and kernels of the same shape
become one, which runs when the last of their operands is there. Under a budget the first are stored, and the second
stay apart. Small arrays are as ever, an optimizer's updates of biases for one. No bit of a result depends on it.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from lazyt.ir import graph as g
from lazyt.ir.passes.call_operands import bytes_hint
from lazyt.ir.prims import ELEMENTWISE, MOVEMENT, SOURCES
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lazyt.ir.graph import Graph, Node

    # The step, and whether it is the forward (0), its pull-back (1) or a copy of the forward in the backward (2).
    Moment = tuple[int, int]

# Arrays of less than this share of the largest one do not count.
SMALL = 64


@dataclass(frozen=True)
class Held:
    """What fusion is to know of a graph that computes values of its forward again: see recompute.py."""

    kept: frozenset[Node] = frozenset()  # values of the forward that the backward reads: stored
    late: frozenset[Node] = frozenset()  # the nodes of the backward, and the copies
    copies: frozenset[Node] = frozenset()  # stored by no kernel that does not store a late node already
    # When a large value is there: values of different moments are no siblings.
    moments: Mapping[Node, Moment] = field(default_factory=dict)


NOTHING_HELD = Held()


def moments(graph: Graph, backward: Collection[Node]) -> dict[Node, Moment]:
    """When the large values of a graph are there; what is computed from a gradient comes with its last step."""
    is_large = _large(graph)
    out: dict[Node, Moment] = {}
    large: dict[Node, Moment] = {}
    for n in graph.nodes:
        if n.op in SOURCES or not isinstance(n.site, g.Origin):
            continue
        at = n.site.step, 2 if n.site.again else int(n.site.backward and n in backward)
        if n in backward and not n.site.backward:
            # NOTE: a backward comes from the last step to the first.
            at = min((out[x] for x in n.operands if x in backward and x in out), default=at)
        out[n] = at
        if n in is_large or any(x in is_large for x in n.operands):
            large[n] = at
    return large


def ends_of_steps(graph: Graph) -> frozenset[Node]:
    """The large cheap values that several steps read: the results of a step, and their gradients."""
    is_large = _large(graph)
    readers: dict[Node, set[int]] = {}
    # NOTE: readers come after what they read, so a view has all of its readers before it gives them to its operand.
    for n in reversed(graph.nodes):
        if n.op in SOURCES or not isinstance(n.site, g.Origin):
            continue
        mine = readers.get(n, set()) if n.op in MOVEMENT else {n.site.step}
        for x in n.operands:
            readers.setdefault(x, set()).update(mine)
    return frozenset(
        n
        for n in graph.nodes
        if n.op in ELEMENTWISE and n in is_large and isinstance(n.site, g.Origin)
        and len(readers.get(n, set()) - {n.site.step}) > 1
    )  # fmt: skip


def _large(graph: Graph) -> set[Node]:
    """The arrays that are not small against the largest one."""
    sizes = {n: bytes_hint(n) for n in graph.nodes}
    made = [size for n, size in sizes.items() if n.op not in SOURCES and n.op not in MOVEMENT]
    least = max(made, default=0) // SMALL
    return {n for n, size in sizes.items() if size >= least}
