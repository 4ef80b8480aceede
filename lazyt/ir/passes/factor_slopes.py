"""Before compression: the pull-back of a function of elements becomes one product, with one slope.

    (ct * erfc) * 0.5 + ((ct * (x * 0.5)) * e) * c    -->    ct * (erfc * 0.5 + ((x * 0.5) * e) * c)

The pull-back of a step is linear in its cotangent, and the rules of its primitives multiply one factor after another.
Each array among them would be kept, and the estimates of several be multiplied with one another. The slope is computed
in the forward pass and kept in their place. A cotangent that is divided by an array is multiplied with its inverse: the
inverse of an estimate is none of the inverse.

Only where the values in between have no other reader, and there are fewer slopes than arrays that they are made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lazyt.ir import dtypes, graph as g
from lazyt.ir.passes.rewriting import Rule, replaced
from lazyt.ir.passes.saved_values import carries

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.ir.graph import Graph, Node
    from lazyt.ir.passes.rewriting import Rewriter
    from lazyt.ir.symbolic import Scope

# A factor of more operations is not written again.
LONGEST = 64


class Slope(NamedTuple):
    """What a root is multiplied with: an operation on slopes; '' is an array, or 1 where that is None."""

    op: str
    operands: tuple[Slope, ...]
    array: Node | None
    arrays: frozenset[Node]  # those among them that would be kept
    divides: bool  # by one of these
    size: int


ONE = Slope("", (), None, frozenset(), False, 0)


def factor_slopes(graph: Graph, scope: Scope | None, at_hand: Callable[[Node], bool]) -> Graph:
    """The graph with one slope for each pull-back of elements. at_hand: arrays that are not kept."""
    ends = _ends(graph, at_hand)
    rule = Rule("", lambda r, n, *_: n in ends, lambda r, n, *_: _factored(r, n, *ends[n]))
    return replaced(graph, scope, rule) if ends else graph


def _ends(graph: Graph, at_hand: Callable[[Node], bool]) -> dict[Node, tuple[Node, Slope]]:
    """The last node of each pull-back that is written again: its root, and its slope."""
    found: dict[Node, tuple[Node, Slope]] = {}
    readers: dict[Node, list[Node]] = {}
    for n in graph.nodes:
        for x in n.operands:
            readers.setdefault(x, []).append(n)
        if carries(n) and dtypes.kind(n.dtype) == "f" and (way := _way(n, found, at_hand)) is not None:
            found[n] = way
    outputs = {*graph.outputs}
    ends: dict[tuple[Node, int], dict[Node, Slope]] = {}  # by root and step
    spoilt: set[tuple[Node, int]] = set()
    for n, (root, slope) in found.items():
        on = [r for r in readers.get(n, ()) if r in found and found[r][0] is root]
        key = root, n.site.step
        if not on:
            ends.setdefault(key, {})[n] = slope
        elif n in outputs or len(on) < len(readers[n]):
            spoilt.add(key)
    out = {}
    for key, some in ends.items():
        arrays = frozenset(x for s in some.values() for x in s.arrays)
        fewer = len(some) < len(arrays) or any(s.divides for s in some.values())
        if key not in spoilt and fewer and len(some) <= len(arrays):
            out.update({n: (key[0], s) for n, s in some.items()})
    return out


def _way(
    n: Node, found: dict[Node, tuple[Node, Slope]], at_hand: Callable[[Node], bool]
) -> tuple[Node, Slope] | None:  # fmt: skip
    """The root that n is a multiple of, and by what; None where it is no multiple within its step."""

    def from_(x: Node) -> tuple[Node, Slope]:
        if x in found and x.site.step == n.site.step and found[x][1].size < LONGEST:
            return found[x]
        return x, ONE

    carried = [x for x in n.operands if carries(x)]
    if n.op == "neg" and carried:
        root, slope = from_(n.operands[0])
        return root, _joined("neg", slope)
    if n.op in ("mul", "div") and len(carried) == 1 and (n.op == "mul" or n.operands[0] is carried[0]):
        root, slope = from_(carried[0])
        other = n.operands[1] if n.operands[0] is carried[0] else n.operands[0]
        kept = frozenset() if at_hand(other) else frozenset([other])
        leaf = Slope("", (), other, kept, False, 0)
        made = _joined(n.op, slope, leaf)
        return root, made._replace(divides=made.divides or (n.op == "div" and bool(kept)))
    if n.op in ("add", "sub") and len(carried) == 2:
        (root, slope), (other_root, other_slope) = map(from_, n.operands)
        if root is other_root and ONE not in (slope, other_slope):
            return root, _joined(n.op, slope, other_slope)
    return None


def _joined(op: str, *slopes: Slope) -> Slope:
    if op == "mul" and slopes[0] is ONE:
        return slopes[1]
    arrays = frozenset(x for s in slopes for x in s.arrays)
    return Slope(op, slopes, None, arrays, any(s.divides for s in slopes), 1 + sum(s.size for s in slopes))


def _factored(r: Rewriter, n: Node, root: Node, slope: Slope) -> Node:
    """The end n of a pull-back as its root times the slope."""
    r.b.site = g.pulled(n.site, local=True)
    factor = _written(r, slope, n)
    r.b.site = n.site
    return r.b.mul(r.new[root], factor)


def _written(r: Rewriter, slope: Slope, n: Node) -> Node:
    """A slope as nodes, of the shape of n."""
    if slope.array is not None:
        return r.new[slope.array]
    if not slope.op:
        return r.b.expand_to(r.b.constant(1, n.dtype), n.shape)
    return r.b.elementwise(slope.op, *(_written(r, s, n) for s in slope.operands))
