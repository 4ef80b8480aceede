"""Bounds the size of kernels: a kernel that would need too much stack or code is divided before it is emitted.

    softmax of softmax of ... (30 times), one kernel    -->    kernels of a few softmaxes each, an array between them

A backend computes from a kernel what its code needs (its `needs.py`), as a share of what it allows. The values of a
kernel that needs more are numbered as *pieces*, in recorded order, and the graph is fused again with no kernel over two
pieces; so cuts are at ordinary boundaries, and a kernel of one piece is fused like any other. Cheap values are computed
again by other pieces; from round CHEAP_ROUNDS on, where kernels stay too large by that, they are stored too. A piece
ends where the least has to be stored for the next ones, among places that do not make it much smaller than allowed.
Pieces are found from the beginning, so a longer unroll of a loop reuses the kernels of its prefix.
"""

from __future__ import annotations

from collections.abc import Sequence

from lazyt.ir.graph import Graph, Node
from lazyt.ir.passes.call_operands import buffer_of
from lazyt.ir.passes.equal_groups import Kernels
from lazyt.ir.passes.fuse import fuse
from lazyt.ir.passes.fusion_cost import FUSED
from lazyt.ir.passes.fusion_result import Fused, Group
from lazyt.ir.passes.kernelize import KernelCall
from lazyt.ir.passes.moments import NOTHING_HELD, Held
from lazyt.ir.prims import ELEMENTWISE, MOVEMENT, REDUCTIONS
from lazyt.ir.symbolic import Scope
from lazyt.ir.target import Target

# A piece uses this share of what is allowed, because estimates may be a little too low ...
FILL = 0.8
# ... and may be smaller by this share for a better end.
SLACK = 0.5
# Rounds of dividing kernels that are still too large: each at least halves them.
ROUNDS = 12
CHEAP_ROUNDS = 3


def fuse_bounded(graph: Graph, scope: Scope | None, target: Target, held: Held = NOTHING_HELD) -> Fused:
    """Divide a graph into groups and calls, and make the kernels of the groups, none above the allowed needs."""
    assert target.share is not None, "kernels are bounded"
    pieces: dict[Node, int] = {}
    count = 0
    kernels: Kernels | None = None
    for number in range(ROUNDS):
        fused = fuse(graph, scope, target, True, pieces, held, number < CHEAP_ROUNDS)
        # NOTE: most programs take one round. In further ones most groups are what they were before.
        found = kernels or Kernels(scope, target.stage_reuse, fused.groups)
        large: list[tuple[KernelCall, float]] = []
        for group in fused.groups:
            call = fused.kernels[group] = found.of(group, fused.stored)
            needs = target.share(call)
            if needs > 1:
                large.append((call, needs))
        divided = False
        for call, needs in large:
            for piece in _pieces(call, needs):
                count += 1
                pieces |= dict.fromkeys(piece, count)
                divided = True
        if not divided:
            break
        kernels = kernels or Kernels(scope, target.stage_reuse)
    return fused


def _pieces(call: KernelCall, needs: float) -> list[Sequence[Node]]:
    """The nodes that a kernel computes, divided in their order; none for a kernel of one operation."""
    nodes = call.nodes
    if sum(n.op in FUSED or n.op in REDUCTIONS for n in nodes) < 2:
        return []
    depths = _depths(nodes)
    kept = _kept_behind(nodes, call.group)
    most = _Cost.of(nodes, depths) * FILL / needs
    out: list[Sequence[Node]] = []
    start = 0
    while start < len(nodes):
        end = _end(nodes, depths, kept, start, most)
        out.append(nodes[start:end])
        start = end
    if len(out) == 1:
        half = len(nodes) // 2
        return [nodes[:half], nodes[half:]]
    return out


def _end(nodes: Sequence[Node], depths: Sequence[int], kept: Sequence[int], start: int, most: float) -> int:
    """The best end of the piece that begins at `start`."""
    cost = _Cost()
    best = start + 1
    for i in range(start, len(nodes)):
        cost.add(nodes[i], depths[i])
        if cost.total > most and i > start:
            return best
        if cost.total < most * SLACK or kept[i] <= kept[best - 1]:
            best = i + 1
    return len(nodes)


class _Cost:
    """The approximate needs of a kernel of some nodes: each stage recomputes values of earlier ones."""

    def __init__(self) -> None:
        self.total = 0
        self.once = 0
        self.last = -1

    @classmethod
    def of(cls, nodes: Sequence[Node], depths: Sequence[int]) -> float:
        cost = cls()
        for n, d in zip(nodes, depths, strict=True):
            cost.add(n, d)
        return cost.total

    def add(self, n: Node, depth: int) -> None:
        own = _weight(n)
        if depth > self.last:
            if self.last >= 0:
                self.total += self.once * (depth - self.last)
            self.last = depth
        self.once += own
        self.total += own * (self.last - depth + 1)


def _weight(n: Node) -> int:
    if n.op in ELEMENTWISE:
        return 40 if ELEMENTWISE[n.op].costly else 1
    if n.op in REDUCTIONS:
        return 20
    return 0 if n.op in MOVEMENT else 4


def _depths(nodes: Sequence[Node]) -> list[int]:
    """For each node, the length of the longest chain of the kernel's reductions before it."""
    depth: dict[Node, int] = {}
    for n in nodes:
        depth[n] = max((depth[x] + (x.op in REDUCTIONS) for x in n.operands if x in depth), default=0)
    return list(depth.values())


def _kept_behind(nodes: Sequence[Node], group: Group) -> list[int]:
    """For each node, the size of the unstored values up to it that later nodes read."""
    at = {n: i for i, n in enumerate(nodes)}
    stored = {r.node for r in group.roots}
    last: dict[int, int] = {}
    for i, n in enumerate(nodes):
        for x in n.operands:
            while x.op in MOVEMENT and x in at:
                x = x.operands[0]
            if x in at and x not in stored and buffer_of(x) not in stored:
                last[at[x]] = i
    ends = [0] * (len(nodes) + 1)
    for i, end in last.items():
        # NOTE: by the rank, not by sizes: a new batch size makes no other kernels.
        size = 16 ** sum(not (isinstance(d, int) and d == 1) for d in nodes[i].shape)
        ends[i] += size
        ends[end] -= size
    out: list[int] = []
    for change in ends[:-1]:
        out.append(change + (out[-1] if out else 0))
    return out
