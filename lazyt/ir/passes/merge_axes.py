"""Axes that a reduction merges are merged in what its operand is computed from, and in what else is computed with that.

    y = mul(x, x);  sum(reshape(y));  neg(y)  -->  m = mul(reshape x, reshape x);  sum(m);  reshape(neg(m))
    sum(reshape(sub(x, expand y)))            -->  sum(sub(reshape x, expand(reshape y)))

A reduction over adjacent axes reads its operand with these as one axis. An array in memory is read so as it lies, but
an elementwise value would have to be stored first. So the reshape goes to the arrays that the value is computed from,
and all elementwise values around it are computed with merged axes: they stay one kernel. Who reads one of them with all
its axes (a padded image, a slice) finds each element at an affine place. The elements and the order of the reduction
are the same.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lazyt.ir import dtypes, graph as g
from lazyt.ir.builder import Builder
from lazyt.ir.passes.call_operands import IN_MEMORY, buffer_of, single
from lazyt.ir.passes.index_maps import equal
from lazyt.ir.passes.rewriting import Rewriter, Rule, always, table
from lazyt.ir.prims import ELEMENTWISE, REDUCTIONS
from lazyt.ir.symbolic import product

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.ir.graph import Node, Shape
    from lazyt.ir.symbolic import Dim, Scope

    Groups = tuple[tuple[int, ...], ...]


def merge_axes(graph: g.Graph, scope: Scope | None) -> g.Graph:
    """The graph with such reshapes moved; the same graph if there are none."""
    if not any(map(merges_axes, graph.nodes)):
        return graph
    m = _Merger(graph, scope)
    for n in graph.nodes:
        if merges_axes(n):
            m.find(n.operands[0])
    return m.run(_RULES) if m.merged else graph


def merges_axes(n: Node) -> bool:
    """Whether a node is a reduction over merged axes of an elementwise value."""
    if n.op not in REDUCTIONS or n.operands[0].op != "reshape":
        return False
    x = n.operands[0]
    return is_elementwise(x.operands[0]) and x.ndim < x.operands[0].ndim


def is_elementwise(n: Node) -> bool:
    return (n.op in ELEMENTWISE or n.op == "cast") and dtypes.kind(n.dtype) != "c"


class _Merger(Rewriter):
    def __init__(self, graph: g.Graph, scope: Scope | None) -> None:
        super().__init__(graph, Builder(scope))
        self._equal = partial(equal, scope)
        self.merged: dict[Node, tuple[Groups, Shape]] = {}  # how the axes of a value are merged
        self.values: dict[Node, Node] = {}  # and the values so computed
        self.tried: set[tuple[Node, Groups]] = set()
        self.can: set[tuple[Node, Groups]] = set()
        self.around: dict[Node, list[Node]] = {}  # the elementwise readers of a value
        for n in graph.nodes:
            if is_elementwise(n):
                for x in n.operands:
                    self.around.setdefault(x, []).append(n)

    def find(self, x: Node) -> None:
        """Merge the axes of what the reshape x reads as x does, and of the elementwise values around it.

        Where two reductions want one value in two ways, the first has its own.
        """
        value = x.operands[0]
        groups = None if value in self.merged else self._groups(value.shape, x.shape)
        if groups is None:
            return
        if (value, groups) not in self.tried:
            self._try(x, groups)
        if (value, groups) in self.can:
            kept = self._reached(value, lambda n: (n, groups) in self.can and n not in self.merged)
            self.merged.update(dict.fromkeys(kept, (groups, x.shape)))

    def _try(self, x: Node, groups: Groups) -> None:
        """Find which values around the operand of the reshape x can be merged as it does."""
        value = x.operands[0]
        around = self._reached(value, lambda n: n not in self.merged and self._same_shape(n.shape, value.shape))
        self.tried.update((n, groups) for n in around)
        # What reads an array that cannot be read so keeps its axes, and what is computed from that.
        left = [n for n in around if not all(y in around or self._can_read(y, groups, x.shape) for y in n.operands)]
        while left:
            n = left.pop()
            if n in around:
                around.remove(n)
                left.extend(self.around.get(n, ()))
        self.can.update((n, groups) for n in around)

    def _reached(self, value: Node, wanted: Callable[[Node], bool]) -> set[Node]:
        """The elementwise values that are computed from one another, one of which is `value`."""
        found, left = {value}, [value]
        while left:
            n = left.pop()
            for x in (*n.operands, *self.around.get(n, ())):
                if x not in found and is_elementwise(x) and wanted(x):
                    found.add(x)
                    left.append(x)
        return found

    def _can_read(self, x: Node, groups: Groups, shape: Shape) -> bool:
        """Whether a value that is not merged itself can be read with its axes merged, in such a shape."""
        if single(x) is not x:
            return True
        if x.op == "expand":
            return self._expanded(x, groups) is not None
        if x.op in ("slice", "pad"):
            inside = x.operands[0]
            return self._leaves_whole(x, groups) and self._can_read(inside, groups, _merged(inside.shape, groups))
        # NOTE: elementwise values whose axes a reshape merges are stored for it.
        if x.op == "reshape" and (x.operands[0].ndim > x.ndim or self._same_shape(x.operands[0].shape, shape)):
            return True
        return buffer_of(x).op in IN_MEMORY

    def merge(self, n: Node, *_: Node) -> Node:
        """A value that is computed with merged axes, with its own."""
        groups, shape = self.merged[n]
        operands = tuple(self._read(x, groups, shape) for x in n.operands)
        self.values[n] = self.b.make(n.op, operands, n.attrs, shape, n.dtype)
        return self.b.reshape(self.values[n], n.shape)

    def _read(self, x: Node, groups: Groups, shape: Shape) -> Node:
        """x with its axes merged."""
        if self.merged.get(x, ((), ()))[0] == groups:
            return self.values[x]
        if (one := single(x)) is not x:
            return self.b.expand(self.b.reshape(self.new[one], (1,) * len(shape)), shape)
        if x.op == "expand":
            small = self._expanded(x, groups)
            assert small is not None, "it can be read so"
            return self.b.expand(self.b.reshape(self.new[x.operands[0]], small), shape)
        if x.op in ("slice", "pad") and self._leaves_whole(x, groups):
            return self._moved(x, groups, shape)
        return self.b.reshape(self.new[x], shape)

    def _moved(self, x: Node, groups: Groups, shape: Shape) -> Node:
        """A slice or a padded array with its axes merged."""
        inside, a = x.operands[0], x.attrs
        read = self._read(inside, groups, _merged(inside.shape, groups))
        if isinstance(a, g.Slice):
            first = [group[0] for group in groups]
            return self.b.slice(read, tuple(a.starts[i] for i in first), shape, tuple(a.steps[i] for i in first))
        assert isinstance(a, g.Pad)
        return self.b.pad(read, tuple(a.lo[group[0]] for group in groups), shape, self.new[x.operands[1]])

    def _leaves_whole(self, x: Node, groups: Groups) -> bool:
        """Whether a slice or a padded array has the axes that are merged as its operand has them."""
        a = x.attrs
        assert isinstance(a, g.Slice | g.Pad)
        starts, steps = (a.starts, a.steps) if isinstance(a, g.Slice) else (a.lo, (1,) * x.ndim)
        return all(
            self._equal(starts[i], 0) and steps[i] == 1 and self._equal(x.shape[i], x.operands[0].shape[i])
            for group in groups
            if len(group) > 1
            for i in group
        )

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

    def _same_shape(self, a: Shape, b: Shape) -> bool:
        return a == b or (len(a) == len(b) and all(map(self._equal, a, b)))

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


_RULES = table(
    Rule("reshape", always, lambda m, n, x: m.b.reshape(x, n.shape)),
    Rule("", lambda m, n, *_: n in m.merged, _Merger.merge),
)


def _merged(shape: Shape, groups: Groups) -> Shape:
    return tuple(product(shape[i] for i in group) for group in groups)
