"""Compression under a memory budget: of what may be kept in few bits, only what has to be.

One search chooses for each saved value whether it is kept, computed again, or packed (`checkpoint_search.solve`, on the
graph without compression); what it packs is compressed, and `recompute` goes on with that graph. To pack a value is to
pack all that cotangents are multiplied with and that is made of it. Bits that an earlier step was measured for (level
L3, `adapt`) belong to all arrays of a program: then all of them are packed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import dtypes, graph as g
from lazyt.ir.compression import GROUP
from lazyt.ir.passes.call_operands import buffer_of, bytes_hint
from lazyt.ir.passes.checkpoint_search import solve
from lazyt.ir.passes.compress import Cut, compress, draw_of, factored
from lazyt.ir.passes.fuse import fuse
from lazyt.ir.passes.moments import Held, ends_of_steps, moments
from lazyt.ir.passes.recompute import Model, Packing
from lazyt.ir.passes.saved_values import Sides, carries, saved_values, stored_operands
from lazyt.ir.symbolic import hint, product

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyt.ir.graph import Graph, Node
    from lazyt.ir.passes.checkpointing import Kept
    from lazyt.ir.passes.recomputation import Wish
    from lazyt.ir.symbolic import Scope
    from lazyt.ir.target import Target

# Nanoseconds to pack and unpack an element of one core, about.
ROUNDING = 2.0


def is_choosable(graph: Graph) -> bool:
    """Whether something may be packed, and each array by itself."""
    draws = {draw for n in graph.nodes if (draw := draw_of(n)) is not None}
    return bool(draws) and all(d.told is None and not d.settings.table for d in draws)


def compress_within(graph: Graph, scope: Scope | None, wish: Wish, target: Target) -> Graph:
    """The graph with what a wish's limit has no room for in few bits."""
    if not is_choosable(graph):
        return wish.once("compress", graph, lambda: compress(graph, scope, moves=target.offload))
    made = wish.once("factored", graph, lambda: factored(graph, scope))
    found = wish.once("choice", made, lambda: _Choices(made, scope, wish, target))
    packed = found.packed(wish.limit)
    return wish.once(("compress", packed), made, lambda: compress(made, scope, only=packed))


class _Choices:
    """The saved values of a graph, and what is packed for each."""

    def __init__(self, graph: Graph, scope: Scope | None, wish: Wish, target: Target) -> None:
        sides = Sides(graph)
        held = Held(ends_of_steps(graph), moments=moments(graph, sides.backward))
        stored = fuse(graph, scope, target, held=held).stored
        self.cut = Cut(graph, scope)
        self.sources: dict[Node, set[Node]] = {}  # a stored value -> what is packed in its place
        early = stored - sides.backward
        for o in dict.fromkeys(o for n in graph.nodes if carries(n) for o in n.operands if not carries(o)):
            p = self.cut.source(o)
            if p in self.cut.packs:
                for x in self._saved(o, p, early):
                    self.sources.setdefault(x, set()).add(p)
        whole = _read_as_it_is(graph, stored, sides, self.cut)
        # What is made of several values counts for the largest.
        bases: dict[Node, Node] = {}
        for x, packs in self.sources.items():
            for p in packs:
                bases[p] = max(bases.get(p, x), x, key=bytes_hint)
        packing = {
            x: self._cost([p for p in packs if bases[p] is x]) for x, packs in self.sources.items() if x not in whole
        }
        saved = saved_values(graph, stored, sides)
        self.model = Model(graph, stored, sides, saved, wish, packing)

    def _saved(self, o: Node, p: Node, early: set[Node]) -> Iterable[Node]:
        """What is stored for a cotangent that is multiplied with o, which is made of p alone."""
        n: Node | None = o
        while n is not None:
            if buffer_of(n) in early:
                return [buffer_of(n)]
            n = None if n is p else self.cut.moved(n)
        return stored_operands(p, early)

    def _cost(self, packs: Iterable[Node]) -> Packing:
        """What some arrays take in few bits."""
        size, elements, unpacked = 1, 0, 0
        for p in packs:
            n = hint(product(p.shape))
            groups = -(-n // GROUP)
            size += groups * (GROUP * self.cut.packs[p] // 8 + (4 if dtypes.kind(p.dtype) == "f" else 0))
            elements += n
            unpacked += bytes_hint(p)
        return Packing(size, unpacked, elements * ROUNDING)

    def packed(self, limit: int | None) -> frozenset[Node]:
        """What is packed for a limit; without one all that may be, but for what a policy says."""
        m = self.model
        if limit is None:
            kept: Kept = frozenset(~i for i, v in enumerate(m.problem.values) if v.packed and i not in m.told)
        else:
            kept = solve(m.problem, limit)
            if m.problem.peak(kept) > limit:
                # NOTE: the same whatever the limit is, so that the least that is named works.
                return frozenset(self.cut.packs)
        kept = frozenset(i for i in kept if i not in m.asked and ~i not in m.asked) | {~i for i in m.pressed}
        return frozenset(p for i in m.problem.packed(kept) for p in self.sources[m.vertices[i]])


def _read_as_it_is(graph: Graph, stored: set[Node], sides: Sides, cut: Cut) -> set[Node]:
    """The stored values that the backward reads even if all is packed that may be."""
    out: set[Node] = set()
    seen: set[Node] = set()
    todo = []
    for n in graph.nodes:
        if n in sides.backward and (carries(n) or not (isinstance(n.site, g.Origin) and n.site.backward)):
            todo += [cut.source(o) for o in n.operands if o not in sides.backward or not carries(o)]
    while todo:
        x = buffer_of(todo.pop())
        if x in seen or x in cut.packs or (x in sides.backward and carries(x)):
            continue
        seen.add(x)
        if x in stored and x not in sides.backward and x.op != "opaque":
            out.add(x)
        else:
            todo += x.operands
    return {x for x in out if bytes_hint(x)}
