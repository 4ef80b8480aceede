"""The step that compressed activations draw their random numbers from: see `ir/passes/compress.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import dtypes
from lazyt.ops.definition import OpDef, Operand, node_of

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node, Shape


def _draw(b: Builder, seed: Operand, counter: Operand, *told: Node) -> Node:
    """A value that nobody reads: the step is there for its operands, which the pass finds by itself."""
    return b.add(*(node_of(b, x, dtypes.uint64) for x in (seed, counter)))


def _mixed_draw(b: Builder, seed: Operand, counter: Operand, told: Node, ints: Shape = ()) -> tuple[Node, Node]:
    """The same, of bits that differ, and what the pass reports: as `told`, float32 (4, arrays, samples).

    Of each array and sample:

        0   how much its error counts: the squared norm of the gradient. `told` has that of earlier steps
        1   the same times its ranges; 0 for an array that only factors are made of, and no product
        2   the elements of a sample
        3   the samples

    ints: the average bits of each array, in parts. Here the report is -1 or less: nothing is known where the pass did
    not meet a backward in the program.
    """
    unknown = b.sub(b.neg(b.abs(told)), b.constant(1, told.dtype))
    return _draw(b, seed, counter), unknown


DRAW = OpDef("compress", _draw)
MIXED_DRAW = OpDef("compress_mixed", _mixed_draw)
DRAWS = frozenset((DRAW, MIXED_DRAW))
