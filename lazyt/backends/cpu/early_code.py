"""Code that a plan in preparation will need: another thread makes it, while this one goes on planning.

Products, convolutions and attention are calls before and after fusion, and their code depends on little more than how
their operands lie. So it is begun before kernels are made. What is begun and then not needed costs the other thread's
time alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cpu.binding import product_of
from lazyt.backends.cpu.engine import compile_early
from lazyt.backends.cpu.library import attention
from lazyt.backends.cpu.thread_pool import get_num_threads, unloaded
from lazyt.ir.attention import is_attention
from lazyt.ir.passes.call_operands import operands_of_call
from lazyt.ir.passes.schedule import MatmulCall
from lazyt.ir.prims import CONVOLUTIONS
from lazyt.ir.symbolic import hint

if TYPE_CHECKING:
    from lazyt.ir.graph import Graph
    from lazyt.ir.symbolic import Scope
    from lazyt.ir.target import Target


class _Recorded:
    """What a binding says of sizes, before there is one: the extents that the graph was recorded with."""

    value = staticmethod(hint)


def begin_calls(graph: Graph, scope: Scope | None, target: Target, gemm: bool, library: bool) -> None:
    """Begin to make what the calls in a graph will need; the flags are those of `product_of`."""
    if get_num_threads() < 2:
        return
    sizes = _Recorded()
    found: dict[tuple[str, str], None] = {}
    for n in graph.nodes:
        if n.op == "matmul" or n.op in CONVOLUTIONS:
            c = MatmulCall(n, tuple(operands_of_call(scope, n, target)))
            found.update(dict.fromkeys(product_of(sizes, c, gemm, library, False).modules))
        elif is_attention(n):
            found[attention.text_of(n)] = None
    if found:
        compile_early([*unloaded(), *found])
