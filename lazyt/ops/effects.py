"""Effects: host functions that a program calls for their effect, in the order in which they were recorded.

An effect gives a *token*, which only the next effect takes, as its last operand. So two effects are
never merged (they differ in that operand), none is moved across another, and the last token depends on all of them. The
trace holds that token until a sync has computed it (`Trace.effects`). `ir/verify.py` has the rules of the graph.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from lazyt.ir import dtypes
from lazyt.ir.graph import Node
from lazyt.ops.definition import OpDef, Operand, node_of

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder


def lower(b: Builder, *rest: Any) -> Node:
    """Statics: the call (numpy_calls.py), and for each of its values the dtype that it is cast to, or None."""
    operands: tuple[Operand, ...] = rest[:-2]
    call, casts = rest[-2:]
    n = len(casts)
    tokens = [None] * (len(operands) - n)
    nodes = [
        x if isinstance(x, Node) and d is None else node_of(b, x, d)
        for x, d in zip(operands, (*casts, *tokens), strict=True)
    ]
    # NOTE: a call on nothing has an operand too, as library calls do.
    if not nodes:
        nodes.append(b.constant(False, dtypes.bool_))
    return b.opaque("effect", nodes, (call, n), [((), dtypes.bool_)])[0]


@cache
def operation(name: str) -> OpDef:
    """The operation under which such effects are recorded. What one raises names the user's line."""
    return OpDef(name, lower, fallible=True, differentiable=False)


def is_effect(op: Any) -> bool:
    """Whether an operation is called for its effect."""
    return getattr(op, "lower", None) is lower
