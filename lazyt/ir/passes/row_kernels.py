"""Kernels of rows: which axis of a reduction carries the lanes, and what its kernel computes of the results.

What is decided by extents that may change is decided by their hints, without a guard: each way gives the same bits, and
a new batch size must make no plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import graph as g
from lazyt.ir.symbolic import hint, product

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.graph import Node
    from lazyt.ir.passes.index_maps import AxisVar
    from lazyt.ir.symbolic import Dim, Scope

# A reduction over fewer elements than this, innermost ones included, runs with a lane for each output.
NARROW = 16
# Elementary functions of a reduction's results have lanes of their own, in another kernel, where there are so many of
# them in all, and rows of at most so many elements a function: one at a time, each takes as long as a vector of them.
APART, APART_ROW = 64, 64
# A reduction over outer axes joins its readers only when this many lanes' worth of outputs are left to divide.
COLUMN_JOIN = 256


def lanes_of(n: Node, scope: Scope | None = None) -> str:
    """The axis of a reduction that carries the lanes, a kernel's `vector`: decided by its extents and axes alone."""
    x = n.operands[0]
    assert isinstance(n.attrs, g.Axes)
    if n.attrs.joined:
        return "rows"
    if x.ndim - 1 not in n.attrs.axes:
        return "outer"
    if len(n.attrs.axes) == x.ndim:
        return "row"
    count = product(x.shape[a] for a in n.attrs.axes)
    if isinstance(count, int):
        return "row" if count >= NARROW else "outer"
    assert scope is not None, "a symbol has a scope"
    return "row" if scope.at_least(count, NARROW) else "outer"


def stands_apart(costly: int, outer: Sequence[AxisVar], mode: str, reduced: Sequence[int | Dim]) -> bool:
    """Whether elementary functions of a reduction's results are better computed by lanes, in a kernel of their own."""
    if mode == "outer" or not costly:
        return False
    count, row = hint(product(a.extent for a in outer)), hint(product(reduced))
    return count * costly >= APART and row <= APART_ROW * costly


def is_parallel(n: Node, outer: Sequence[AxisVar], mode: str) -> bool:
    """Whether a row kernel of a reduction over these outer axes still has work for several threads."""
    assert isinstance(n.attrs, g.Axes)
    count = product(a.extent for a in outer)
    if mode != "outer" or n.operands[0].ndim - 1 in n.attrs.axes:  # rows, however narrow
        return not (isinstance(count, int) and count < 2)
    return hint(count) >= COLUMN_JOIN
