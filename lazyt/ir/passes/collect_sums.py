"""Long sums, of the iterations of a loop above all, as one operation over all that is summed up.

    add(..., matmul(a_1, b_1), ..., matmul(a_n, b_n))  -->  add(..., matmul(concat a, concat b))
    add(..., sum(x_1, 0), ..., sum(x_n, 0))            -->  add(..., sum(concat x, 0))
    add(..., pad(x_1, 0), ..., pad(x_n, 0)) of places
        that lie side by side and make up the whole    -->  add(..., concat x)
    concat(x_1 with an axis of 1, ...) along it         -->  reshape(concat x along the next)

Such sums are the gradients of what every iteration of a loop reads: of a weight, of a bias, of an array that is read
part by part. One after the other, each is a pass over all of the gradient. What is concatenated is written there when
it is computed. A product is collected only where its operands are no larger than the product that is then not stored.
The bits of a sum of products may change, for its order does; of halves, parts alone are collected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import dtypes, graph as g
from lazyt.ir.builder import Builder
from lazyt.ir.extents import prefix_sums
from lazyt.ir.passes.rewriting import Rewriter, Rule, always, table
from lazyt.ir.symbolic import hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Dim, Scope

# So many terms of a kind are collected: fewer are as well added one by one.
PRODUCTS = 4
PARTS = 2
# Operands of products with fewer elements are collected however small the product is: launches cost more.
SMALL = 1 << 15

Term = tuple["Node", "Node"]  # as the graph had it, and rewritten


def collect_sums(graph: g.Graph, scope: Scope | None) -> g.Graph:
    """The graph with its long sums collected; the same graph if there are none."""
    if not any(_begins(n) for n in graph.nodes):
        return graph
    return _Collector(graph, scope).run(_RULES)


def _begins(n: Node) -> bool:
    return n.op == "concat" or (n.op == "add" and dtypes.kind(n.dtype) == "f")


class _Collector(Rewriter):
    def __init__(self, graph: g.Graph, scope: Scope | None) -> None:
        super().__init__(graph, Builder(scope))
        # Sums that are only a term of a longer one.
        self.inner = {
            x for n in graph.nodes if n.op == "add" for x in n.operands if x.op == "add" and self.readers[x] == 1
        }
        # What is put at some place of a larger array -> where: products are collected in that order, so that what they
        # read is that array.
        self.rank: dict[Node, int] = {}
        for n in graph.nodes:
            if isinstance(n.attrs, g.Pad):
                self.rank[_stored(n.operands[0])] = max(map(hint, n.attrs.lo), default=0)

    def flat(self, n: Node, *xs: Node) -> Node | None:
        """A stack as a concatenation of what is stored: each value is then written to its place at once."""
        assert isinstance(n.attrs, g.Axis)
        axis = n.attrs.axis
        parts = _without_axis(xs, axis)
        if parts is None or axis == parts[0].ndim:
            return None
        return self.b.reshape(self.b.concat(parts, axis), n.shape)

    # Sums

    def _terms(self, n: Node) -> list[Node]:
        """What a sum adds up, from left to right."""
        found, todo = [], [n]
        while todo:
            x = todo.pop()
            if x is n or x in self.inner:
                todo.extend(reversed(x.operands))
            else:
                found.append(x)
        return found

    def is_whole(self, n: Node, *_: Node) -> bool:
        """Whether an addition ends a sum that may be collected."""
        return _begins(n) and n not in self.inner

    def sum(self, n: Node, *_: Node) -> Node | None:
        terms = [(x, self.new[x]) for x in self._terms(n)]
        if len(terms) < PARTS:
            return None
        length = len(terms)
        kinds: list[tuple[Callable[[Term], object], Callable[[list[Term]], Node | None], int]]
        kinds = [(self._place, self._parts, PARTS)]
        if n.dtype not in dtypes.HALVES:
            kinds += [(self._product, self._products, PRODUCTS), (self._column_sum, self._column_sums, PRODUCTS)]
        for kind, collected, least in kinds:
            terms = self._collected(terms, kind, collected, least)
        if len(terms) == length:
            return None
        total = terms[0][1]
        for t in terms[1:]:
            total = self.b.add(total, t[1])
        return total

    def _collected(
        self,
        terms: list[Term],
        kind: Callable[[Term], object],
        collected: Callable[[list[Term]], Node | None],
        least: int,
    ) -> list[Term]:
        """The terms, those of one kind replaced by one at the first one's place."""
        groups: dict[object, list[int]] = {}
        for i, t in enumerate(terms):
            if (key := kind(t)) is not None:
                groups.setdefault(key, []).append(i)
        found: dict[int, Node | None] = {}
        for at in groups.values():
            if len(at) >= least and (y := collected([terms[i] for i in at])) is not None:
                found |= dict.fromkeys(at)
                found[at[0]] = y
        made = [(t[0], found[i]) if i in found else t for i, t in enumerate(terms)]
        return [(x, y) for x, y in made if y is not None]

    def _shape(self, x: Node) -> g.Shape:
        """The shape by the symbols that the guards so far leave."""
        scope = self.b.scope
        return x.shape if scope is None else tuple(scope.normal(d) for d in x.shape)

    def _place(self, t: Term) -> object:
        """The axis along which a term is zero but for one part; None where it is no such term."""
        x = t[1]
        if x.op != "pad" or self.readers[t[0]] != 1:
            return None
        zero = x.operands[1].attrs
        if not isinstance(zero, g.Constant) or zero.value != 0:
            return None
        inner = x.operands[0].shape
        differing = [i for i, (d, e) in enumerate(zip(inner, x.shape, strict=True)) if not self.b.equal(d, e)]
        return (differing[0], self._shape(x)) if len(differing) == 1 else None

    def _parts(self, terms: list[Term]) -> Node | None:
        pads = [x for _, x in terms]
        shape = pads[0].shape
        inner = pads[0].operands[0].shape
        axis = next(i for i, (d, e) in enumerate(zip(inner, shape, strict=True)) if not self.b.equal(d, e))
        pads = sorted(pads, key=lambda x: hint(_start(x, axis)))
        *begins, end = prefix_sums([x.operands[0].shape[axis] for x in pads])
        if not all(map(self.b.equal, (*(_start(x, axis) for x in pads), shape[axis]), (*begins, end))):
            return None
        parts = [x.operands[0] for x in pads]
        flat = _without_axis(parts, axis)
        if flat is not None and axis < flat[0].ndim:
            return self.b.reshape(self.b.concat(flat, axis), shape)
        return self.b.concat(parts, axis)

    def _product(self, t: Term) -> object:
        """What is equal in products that can be collected: the shape, and the dtypes that they read."""
        x = t[1]
        if x.op == "permute" and x.operands[0].op == "matmul" and self._transposes(x):
            x = x.operands[0]
        # NOTE: a product that gives a half is rounded by itself.
        if x.op != "matmul" or x.ndim != 2 or self.readers[t[0]] != 1 or x.dtype in dtypes.HALVES:
            return None
        read = [y.dtype for y in x.operands]
        return self._shape(t[1]), *(read if x is t[1] else read[::-1])

    def _transposes(self, x: Node) -> bool:
        return isinstance(x.attrs, g.Axes) and x.attrs.axes == (1, 0)

    def _ranks(self, x: Node) -> list[int | None]:
        """Where the operands of a product stand in larger arrays."""
        product = x if x.op == "matmul" else x.operands[0]
        return [self.rank.get(_stored(y)) for y in product.operands]

    def _products(self, terms: list[Term]) -> Node | None:
        b = self.b
        for ranks in zip(*(self._ranks(x) for x, _ in terms), strict=True):
            if None not in ranks:
                terms = [t for _, t in sorted(zip(ranks, terms, strict=True), key=lambda pair: pair[0] or 0)]
                break
        lefts, rights = [], []
        for _, x in terms:
            p, q = x.operands if x.op == "matmul" else [b.permute(y, (1, 0)) for y in x.operands[0].operands[::-1]]
            lefts.append(p)
            rights.append(q)
        m, n = terms[0][1].shape
        depth: int | Dim = 0
        for p in lefts:
            depth = depth + p.shape[1]
        spare = 2 * len(terms) * m * n + SMALL - depth * (m + n)
        if not b.at_least(spare, 0):
            return None
        return b.matmul(b.permute(self._below([b.permute(p, (1, 0)) for p in lefts]), (1, 0)), self._below(rights))

    def _below(self, xs: Sequence[Node]) -> Node:
        """Matrices one below the other, in the layout that they have."""
        b = self.b
        if all(x.op == "permute" for x in xs):
            return b.permute(b.concat([b.permute(x, (1, 0)) for x in xs], 1), (1, 0))
        return b.concat(xs, 0)

    def _column_sum(self, t: Term) -> object:
        x = t[1]
        if x.op != "sum" or x.operands[0].ndim != 2 or self.readers[t[0]] != 1:
            return None
        return self._shape(x) if isinstance(x.attrs, g.Axes) and x.attrs.axes == (0,) else None

    def _column_sums(self, terms: list[Term]) -> Node:
        found = [(self.rank.get(_stored(x.operands[0]), 0), y.operands[0]) for x, y in terms]
        return self.b.reduce("sum", self.b.concat([y for _, y in sorted(found, key=lambda pair: pair[0])], 0), (0,))


_RULES = table(Rule("concat", always, _Collector.flat), Rule("add", _Collector.is_whole, _Collector.sum))


def _start(x: Node, axis: int) -> int | Dim:
    assert isinstance(x.attrs, g.Pad)
    return x.attrs.lo[axis]


def _stored(x: Node) -> Node:
    """What a value is a view of."""
    while x.op in ("reshape", "permute"):
        x = x.operands[0]
    return x


def _without_axis(xs: Iterable[Node], axis: int) -> list[Node] | None:
    """What was given an axis of extent 1, if all were."""
    found = []
    for x in xs:
        if x.op != "reshape" or x.operands[0].shape != (*x.shape[:axis], *x.shape[axis + 1 :]) or x.shape[axis] != 1:
            return None
        found.append(x.operands[0])
    return found
