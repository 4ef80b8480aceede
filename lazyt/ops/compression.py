"""The step that compressed activations draw their random numbers from: see `ir/passes/compress.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import dtypes
from lazyt.ops.definition import OpDef, Operand, node_of

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node


def _draw(b: Builder, seed: Operand, counter: Operand, *tops: Node) -> Node:
    """A value that nobody reads: the step is there for its operands, which the pass finds by itself."""
    return b.add(*(node_of(b, x, dtypes.uint64) for x in (seed, counter)))


DRAW = OpDef("compress", _draw)
