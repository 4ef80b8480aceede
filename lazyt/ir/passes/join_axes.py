"""What a reduction merges axes of is read with the axes that it has, where it cannot be read as it lies.

    y = mul(expand h, expand c) (n, k, v);  sum(reshape(y) (n, k * v))    -->    sum joined(y) over k and v

An outer product is no array whose last two axes are one, so `merge_axes` leaves it: it would be stored for the
reduction. A joined reduction goes over both axes, and adds up in the order of one (kernel.py), so no bit changes.

The lanes of its kernel run along the last axis. So that has enough elements to fill a good part of them, and what is
read lies along it or is the same for all of it. Nobody wants the value but such reductions, or values for them alone.
And there are enough rows for all threads: a few long ones are stored, and divided among them (split_reduction.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import dtypes, graph as g
from lazyt.ir.passes.call_operands import buffer_of
from lazyt.ir.passes.index_maps import equal
from lazyt.ir.passes.merge_axes import is_elementwise, merges_axes
from lazyt.ir.passes.rewriting import Rule, replaced
from lazyt.ir.passes.row_kernels import lanes_of
from lazyt.ir.prims import ELEMENTWISE, MOVEMENT, SOURCES
from lazyt.ir.symbolic import Dim, hint, product

if TYPE_CHECKING:
    from lazyt.ir.graph import Graph, Node
    from lazyt.ir.passes.rewriting import Rewriter
    from lazyt.ir.symbolic import Scope

# Elements of the last axis, at least: fewer leave most lanes idle, where a map has its lanes along another axis. Of
# elementary functions so many that a map never makes one axis of them and the one before (repeated.py of the CPU).
NARROW, FILLED = 6, 9
# Rows, at least: see `worth_splitting`.
ROWS = 64


def join_axes(graph: Graph, scope: Scope | None) -> Graph:
    """The graph with such reductions over the axes of their operands; the same graph if there are none."""
    merging = [n for n in graph.nodes if merges_axes(n)]
    if not merging:
        return graph
    able = {n for n in merging if _merges_two(n, scope) and _pays(n, scope)}
    joined = able & _free(graph, able) if able else able

    return replaced(graph, scope, Rule("", lambda r, n, *xs: n in joined, _joined)) if joined else graph


def _joined(r: Rewriter, n: Node, merged: Node) -> Node:
    assert isinstance(n.attrs, g.Axes)
    (x,) = merged.operands
    return r.b.reduce(n.op, x, (*n.attrs.axes[:-1], x.ndim - 2, x.ndim - 1), joined=True)


def _free(graph: Graph, able: set[Node]) -> set[Node]:
    """The reductions whose operand nobody wants but such reductions, and what is computed for those alone."""
    readers: dict[Node, list[Node]] = {}
    for n in graph.nodes:
        for x in n.operands:
            readers.setdefault(x, []).append(n)
    kept = {*graph.outputs, *graph.kept}
    free: set[Node] = set()
    for n in reversed(graph.nodes):
        own = readers.get(n, [])
        if n not in kept and (
            (is_elementwise(n) and free.issuperset(own)) or (n.op == "reshape" and able.issuperset(own))
        ):
            free.add(n)
    return {n for n in able if free.issuperset((n.operands[0], n.operands[0].operands[0]))}


def _merges_two(n: Node, scope: Scope | None) -> bool:
    """Whether a reduction along rows merges the last two axes of its operand, and no others."""
    (merged,) = n.operands
    value, rest = merged.operands[0].shape, merged.ndim - 1
    if n.op in ("argmax", "argmin") or len(value) != merged.ndim + 1 or lanes_of(n, scope) != "row":
        return False
    same = zip((*value[:rest], value[-2] * value[-1]), merged.shape, strict=True)
    return all(equal(scope, a, b) for a, b in same)


def _pays(n: Node, scope: Scope | None) -> bool:
    """Whether it is better to join them. The plan then holds for a short axis alone, or for others (a guard)."""
    value = n.operands[0].operands[0]
    along = _along_last(value, scope)
    if along is None or hint(product(n.shape)) < ROWS:
        return False
    costly = any(x.op in ELEMENTWISE and ELEMENTWISE[x.op].costly for x in along)
    last, least = value.shape[-1], FILLED if costly else NARROW
    return scope.at_least(last, least) if isinstance(last, Dim) and scope is not None else hint(last) >= least


def _along_last(value: Node, scope: Scope | None) -> set[Node] | None:
    """What a value is computed from that moves along its last axis, if all of that lies along it; else None."""
    seen, todo = {value}, [value]
    while todo:
        x = todo.pop()
        if x.op in SOURCES or x.op == "iota" or equal(scope, x.shape[-1], 1):
            continue
        own = _along(x, scope)
        if own is None:
            return None
        todo.extend(y for y in own if y not in seen)
        seen.update(own)
    return seen


def _along(x: Node, scope: Scope | None) -> tuple[Node, ...] | None:
    """What must lie along its last axis so that x does; None where it does not in any case."""
    a = x.attrs
    if x.op in ELEMENTWISE or x.op == "cast":
        return x.operands if all(dtypes.kind(y.dtype) != "c" for y in (x, *x.operands)) else None
    match x.op:
        case "expand":
            return x.operands
        case "slice":
            assert isinstance(a, g.Slice)
            return x.operands if a.steps[-1] == 1 else None
        case "permute":
            assert isinstance(a, g.Axes)
            return x.operands if a.axes[-1] == x.ndim - 1 else None
        case "reshape":
            y = x.operands[0]
            if y.ndim and equal(scope, y.shape[-1], x.shape[-1]):
                return (y,)
            return None if _is_computed_where_read(buffer_of(y)) else ()
    return None if _is_computed_where_read(x) else ()


def _is_computed_where_read(x: Node) -> bool:
    """Whether a value may have no memory of its own."""
    return is_elementwise(x) or x.op in MOVEMENT or x.op in ("gather", "position")
