"""The order in which fusion visits nodes: every node after all its readers.

Among those ready come values of few axes first. A loss is then a group of its own that runs last, and does not come
between the rows that it sums up and the gradient over the same rows.

A reduction of rows that no call is computed from waits until nothing else is ready, if it reads a value that is not
cheap and that a call is computed from by other readers. Visited first, its kernel would run after the call, so what
they share would be stored for it:

    loss = -sum(where(hit, z, 0), -1)
    dw = transposed(x) @ where(hit, ..., exp(z) / sum(exp(z), -1))        here z and hit
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from lazyt.ir import graph as g
from lazyt.ir.prims import ELEMENTWISE, MOVEMENT, REDUCTIONS

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from lazyt.ir.graph import Graph, Node

# Values further from a reduction than this are not examined.
STEPS = 4
INSIDE = frozenset({"cast", *ELEMENTWISE, *MOVEMENT})


def readers_first(
    graph: Graph, users: Mapping[Node, int], cost: Mapping[Node, int], cheap: int, calls: Container[str]
) -> Iterator[Node]:  # fmt: skip
    """The nodes in the order of visits. users: how many operands each is; cost: of what is computed in a kernel."""
    if graph.kept:  # recorded so that this order keeps little in memory
        yield from reversed(graph.nodes)
        return
    left = dict(users)
    called = _called(graph, calls)
    costly = {n for n in called if cost[n] > cheap and (n.op in ELEMENTWISE or n.op == "gather")}
    ready = [(n.ndim, -n.serial, n) for n in graph.nodes if not left.get(n)]
    waiting: list[tuple[int, int, Node]] = []
    heapq.heapify(ready)
    while ready or waiting:
        waits = bool(ready)
        entry = heapq.heappop(ready or waiting)
        n = entry[2]
        if waits and n not in called and _is_row_sum(n) and _shares(n, costly, left):
            heapq.heappush(waiting, entry)
            continue
        yield n
        for x in n.operands:
            left[x] -= 1
            if not left[x]:
                # NOTE: a value whose axes are only split for its reader is as early as that.
                axes = min(x.ndim, entry[0]) if n.op == "reshape" else x.ndim
                heapq.heappush(ready, (axes, -x.serial, x))


def _called(graph: Graph, calls: Container[str]) -> set[Node]:
    """The nodes that a call is computed from."""
    found: set[Node] = set()
    for n in reversed(graph.nodes):
        if n.op in calls or n in found:
            found.update(n.operands)
    return found


def _is_row_sum(n: Node) -> bool:
    if n.op not in REDUCTIONS or not n.ndim:
        return False
    assert isinstance(n.attrs, g.Axes)
    return n.operands[0].ndim - 1 in n.attrs.axes


def _shares(n: Node, costly: Container[Node], left: Mapping[Node, int]) -> bool:
    """Whether a costly value that n is computed from has readers that n is not computed from, not all visited."""
    own: dict[Node, int] = {}  # -> its readers among what n is computed from
    layer = [n]
    for _ in range(STEPS):
        below = []
        for x in (x for y in layer for x in y.operands if x.op in INSIDE):
            if x not in own:
                below.append(x)
            own[x] = own.get(x, 0) + 1
        layer = below
    return any(x in costly and left[x] > count for x, count in own.items())
