"""Transposes a matrix in memory once that several products of few rows read transposed: a weight in a loop, say.

    matmul(a_1, permute(w)), ..., matmul(a_n, permute(w))    -->    matmul(a_1, t), ..., matmul(a_n, t)
        where t = slice(concat(permute(w), zeros))

A product packs a transposed right operand, and each packs it again. A concatenation is stored, and products read it as
it lies; their sums have the same order. Products of so few rows that they read the weight where it lies have another
order, so a plan with a copy does not serve them: what a plan was made for changes no bit. The zeros move the rows a
little apart: rows at multiples of 2 KiB fall into the same few sets of the first-level cache.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lazyt.ir import dtypes, graph as g
from lazyt.ir.builder import Builder
from lazyt.ir.passes.rewriting import Rewriter, Rule, always, table
from lazyt.ir.symbolic import hint

if TYPE_CHECKING:
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Scope

# So many products read a matrix that is copied for them: to write and read it takes as long as three packings.
READERS = 4
# Products of at most FEW rows read it where it lies (as in lazyt/backends/cpu/library/gemv.py); of those of more than
# ROWS, packing is a small share.
FEW, ROWS = 8, 64
# Elements between rows.
PAD = 16


def pack_shared(graph: g.Graph, scope: Scope | None) -> g.Graph:
    """The graph with such matrices transposed once; the same graph if there are none."""
    readers = Counter(n.operands[1] for n in graph.nodes if n.op == "matmul" and FEW < hint(n.shape[-2]) <= ROWS)
    shared = {x for x, count in readers.items() if count >= READERS and _is_transposed(x)}
    if not shared:
        return graph
    b = Builder(scope)
    reads = [n for n in graph.nodes if n.op == "matmul" and n.operands[1] in shared]
    shared -= {n.operands[1] for n in reads if not b.at_least(n.shape[-2], FEW + 1)}
    if not shared:
        return graph
    copies: dict[Node, Node] = {}

    def copied(r: Rewriter, n: Node, x: Node) -> Node:
        matrix, (rows, cols) = r.copy(n, x), n.shape
        room = b.expand_to(b.constant(0, n.dtype), (rows, PAD))
        copies[n] = b.slice(b.concat([matrix, room], 1), (0, 0), (rows, cols), (1, 1))
        return matrix

    def of_copy(r: Rewriter, n: Node, x: Node, y: Node) -> Node:
        return r.copy(n, x, copies.get(n.operands[1], y))

    return Rewriter(graph, b).run(
        table(Rule("permute", lambda r, n, x: n in shared, copied), Rule("matmul", always, of_copy))
    )


def _is_transposed(x: Node) -> bool:
    """Whether a right operand is a matrix with its axes exchanged. What halves are cast to is packed as it is read."""
    if x.op != "permute" or x.ndim != 2 or x.dtype not in (dtypes.float32, dtypes.float64):
        return False
    return isinstance(x.attrs, g.Axes) and x.attrs.axes == (1, 0) and x.operands[0].op != "cast"
