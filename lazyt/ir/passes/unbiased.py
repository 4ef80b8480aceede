"""What a backward has to read exactly, so that unbiased estimates of all else give unbiased gradients.

call(q, carries)        the call is no linear function of q (`linear_in`): a function of an estimate is not an
                        estimate of the function
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import dtypes, graph as g
from lazyt.ir.library_calls import is_linear
from lazyt.ir.passes.saved_values import carries
from lazyt.ir.prims import CONVOLUTIONS, ELEMENTWISE, MOVEMENT

if TYPE_CHECKING:
    from lazyt.ir.graph import Graph, Node

# Besides elementwise operations and library calls, which say so themselves.
LINEAR = MOVEMENT | {"matmul", *CONVOLUTIONS, "cast", "sum", "gather", "scatter", "update", "item", "stop", "known"}


def linear_in(n: Node, operand: int) -> bool:
    """Whether n is a linear function of this operand, the others as they are."""
    if n.op in ELEMENTWISE:
        return operand in ELEMENTWISE[n.op].linear
    if isinstance(n.attrs, g.Opaque):
        return is_linear(n.attrs.fn, operand, len(n.operands))
    return n.op in LINEAR and (n.op != "cast" or dtypes.kind(n.dtype) in "fc")


def read_exactly(graph: Graph) -> set[Node]:
    """The real arrays without a cotangent that something with one is no linear function of."""
    found: set[Node] = set()
    for n in graph.nodes:
        if carries(n):
            found.update(x for i, x in enumerate(n.operands) if not carries(x) and not linear_in(n, i))
    return {x for x in found if dtypes.kind(x.dtype) in "fc"}
