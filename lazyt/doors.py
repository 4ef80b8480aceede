"""`record` for the operations of one and of two operands and nothing else, as it mostly goes.

What followed the last time is compared and taken, as the operators do (see operators.py); all else is for `record`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.handle import Handle
from lazyt.record import MAX_BYTES, bind_leaf, record
from lazyt.trace import local
from lazyt.walk import LEAF, hooks

if TYPE_CHECKING:
    from lazyt.ops.core import OpDef
    from lazyt.trace import Trace

_new = object.__new__


def _is_met(tr: Trace, x: Handle) -> bool:
    """Whether a value is a leaf that this walk meets now."""
    return x._slot is None and x._storage is None and tr.nbytes < MAX_BYTES


def record_one(op: OpDef, x: Any) -> Any:
    """`record` of one operand and nothing else."""
    tr = local.trace
    s = tr.pos.next
    if s.op is LEAF and isinstance(x, Handle) and _is_met(tr, x):
        bind_leaf(tr, x)
        s = tr.pos.next
    if s.op is op and isinstance(x, Handle) and s.a is x._slot and s.ext is tr.ext and not tr.watched:
        h = _new(hooks.tensor)
        h._slot = s
        h._data = h._meta = h._storage = h._view = None
        h._writes = 0
        tr.results[s.index] = h
        tr.pos = s
        return h
    return record(op, (x,))


def record_two(op: OpDef, x: Any, y: Any) -> Any:
    """`record` of two operands and nothing else."""
    tr = local.trace
    s = tr.pos.next
    if s.op is LEAF and isinstance(x, Handle):
        if _is_met(tr, x):
            bind_leaf(tr, x)
        if isinstance(y, Handle) and _is_met(tr, y):
            bind_leaf(tr, y)
        s = tr.pos.next
    if (
        s.op is op
        and s.ext is tr.ext
        and isinstance(x, Handle)
        and s.a is x._slot
        and (s.b is y._slot if isinstance(y, Handle) else s.b is type(y) and s.low <= y <= s.high)
        and not tr.watched
    ):
        if s.n_scalars:
            tr.scalars[s.scalar_start] = y
        h = _new(hooks.tensor)
        h._slot = s
        h._data = h._meta = h._storage = h._view = None
        h._writes = 0
        tr.results[s.index] = h
        tr.pos = s
        return h
    return record(op, (x, y))
