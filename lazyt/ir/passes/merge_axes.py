"""Axes that a reduction merges are merged in what its operand is computed from.

    sum(reshape(mul(x, x)))        -->  sum(mul(reshape x, reshape x))
    sum(reshape(sub(x, expand y))) -->  sum(sub(reshape x, expand(reshape y)))

A reduction over adjacent axes reads its operand with these as one axis. An array in memory is read so as it lies, but
an elementwise value would have to be stored first. So the reshape goes to the arrays that the value is computed from.
The elements and the order of the reduction are the same.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lazyt.ir import dtypes, graph as g
from lazyt.ir.builder import Builder
from lazyt.ir.prims import CONVOLUTIONS, ELEMENTWISE, REDUCTIONS
from lazyt.ir.symbolic import product

if TYPE_CHECKING:
    from lazyt.ir.graph import Node, Shape
    from lazyt.ir.symbolic import Dim, Scope

    Groups = tuple[tuple[int, ...], ...]

# What others read too is computed once more for the reduction, if it is at most so many operations, all of them cheap.
SHARED = 4
# Values of more operations than this are stored: a long chain is no deep recursion here.
LONGEST = 64
# The results of these are in memory.
STORED = frozenset({"input", "matmul", "item", "scatter", *CONVOLUTIONS})


def merge_axes(graph: g.Graph, scope: Scope | None) -> g.Graph:
    """The graph with such reshapes moved; the same graph if there are none."""
    if not any(map(merges_axes, graph.nodes)):
        return graph
    m = _Merger(graph, scope)
    for n in graph.nodes:
        m.visit(n)
    if not m.changed:
        return graph
    outs = [m.new[n] for n in graph.outputs]
    return g.Graph(g.reachable(outs), outs)


def merges_axes(n: Node) -> bool:
    """Whether a node is a reduction over merged axes of an elementwise value."""
    if n.op not in REDUCTIONS or n.operands[0].op != "reshape":
        return False
    x = n.operands[0]
    return _is_elementwise(x.operands[0]) and x.ndim < x.operands[0].ndim


def _is_elementwise(n: Node) -> bool:
    return (n.op in ELEMENTWISE or n.op == "cast") and dtypes.kind(n.dtype) != "c"


class _Merger:
    def __init__(self, graph: g.Graph, scope: Scope | None) -> None:
        self.b = Builder(scope)
        self.scope = scope
        self.new: dict[Node, Node] = {}
        self.readers = Counter(x for n in graph.nodes for x in n.operands) + Counter(graph.outputs)
        self.outputs = set(graph.outputs)
        self.changed = False
        self.left = 0  # operations that a value may still have

    def visit(self, n: Node) -> None:
        operands = tuple(self.new[x] for x in n.operands)
        if merges_axes(n):
            x = n.operands[0]
            value = x.operands[0]
            groups = self._groups(value.shape, x.shape)
            self.left = LONGEST
            if groups is not None and self._can_move(value, groups, {}, self.readers[value] > 1):
                operands = (self._moved(value, groups, x.shape, {}),)
                self.changed = True
        self.b.site = n.site
        self.new[n] = self.b.make(n.op, operands, n.attrs, n.shape, n.dtype)

    def _groups(self, old: Shape, new: Shape) -> Groups | None:
        """Which axes of the old shape become each axis of the new one; None if that is not known."""
        found, at = [], 0
        for d in new:
            first, size = at, old[at] if at < len(old) else 1
            at += 1
            while not self._equal(size, d):
                if at >= len(old):
                    return None
                size = size * old[at]
                at += 1
            found.append(tuple(range(first, at)))
        if any(not self._equal(e, 1) for e in old[at:]) or at > len(old):
            return None
        found[-1] += tuple(range(at, len(old)))
        return tuple(found)

    def _equal(self, a: int | Dim, b: int | Dim) -> bool:
        return a is b or a == b or (self.scope is not None and self.scope.known_equal(a, b))

    def _can_move(self, n: Node, groups: Groups, known: dict[Node, bool], shared: bool) -> bool:
        """Whether the reshape can move to what n is computed from; what others read too is computed again for it."""
        if n in known:
            return known[n]
        if _is_elementwise(n):
            self.left -= 1
            if self.left < 0 or (shared and (n in self.outputs or self._operations(n) > SHARED)):
                found = False
            else:
                found = all(self._can_move(x, groups, known, self.readers[x] > n.operands.count(x)) for x in n.operands)
        elif n.op == "expand":
            found = self._expanded(n, groups) is not None
        else:
            found = n.op in STORED or not n.shape
        known[n] = found
        return found

    def _operations(self, n: Node, most: int = SHARED) -> int:
        """How many cheap operations n takes, from arrays in memory on; more than `most` if there is a costly one.

        NOTE: it goes no deeper than that many.
        """
        if not _is_elementwise(n):
            return 0
        if most < 1 or (n.op in ELEMENTWISE and ELEMENTWISE[n.op].costly):
            return most + 1
        total = 1
        for x in dict.fromkeys(n.operands):
            total += self._operations(x, most - total)
            if total > most:
                break
        return total

    def _expanded(self, n: Node, groups: Groups) -> tuple[int | Dim, ...] | None:
        """The shape of an expanded operand with its axes merged: each group is expanded whole, or as it is."""
        x = n.operands[0]
        shape: list[int | Dim] = []
        for group in groups:
            small, large = [x.shape[i] for i in group], [n.shape[i] for i in group]
            if all(isinstance(d, int) and d == 1 for d in small):
                shape.append(1)
            elif all(self._equal(p, q) for p, q in zip(small, large, strict=True)):
                shape.append(product(small))
            else:
                return None
        return tuple(shape)

    def _moved(self, n: Node, groups: Groups, shape: Shape, made: dict[Node, Node]) -> Node:
        """n with its axes merged."""
        if n in made:
            return made[n]
        if _is_elementwise(n):
            operands = tuple(self._moved(x, groups, shape, made) for x in n.operands)
            self.b.site = n.site
            found = self.b.make(n.op, operands, n.attrs, shape, n.dtype)
        elif n.op == "expand":
            small = self._expanded(n, groups)
            assert small is not None, "it can be moved"
            found = self.b.expand(self.b.reshape(self.new[n.operands[0]], small), shape)
        else:
            found = self.b.reshape(self.new[n], shape)
        made[n] = found
        return found
