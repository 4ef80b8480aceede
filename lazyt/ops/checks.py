"""Values that a function rejects, checked at the sync: an integer test that kernels make like an index check."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from lazyt.ir import dtypes
from lazyt.ops.definition import OpDef, Operand, node_of, result_type

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node


def _lower(b: Builder, x: Operand, bad: Operand) -> Node:
    """x, where nothing of `bad` (bools of its shape) is true."""
    d = result_type(x)
    v = node_of(b, x, d)
    zero = b.position((node_of(b, bad, dtypes.int64),), (1,))
    return b.add(v, b.cast(zero, d))


@cache
def checked(name: str) -> OpDef:
    """The operation under which `name` checks its values; see `errors.REFUSALS` for what it raises."""
    return OpDef(name, _lower, fallible=True)
