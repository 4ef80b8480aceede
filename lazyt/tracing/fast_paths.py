"""`record` for the operations of one and of two operands and nothing else, as it mostly goes.

What followed the last time is compared and taken, as the operators do (see operators.py); all else is for `record`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lazyt.errors import ScalarRangeError
from lazyt.tracing.inputs import LEAF_CALLERS, bind_leaf
from lazyt.tracing.record import MAX_BYTES, record, slot_of
from lazyt.tracing.steps import LEAF, hooks
from lazyt.tracing.trace import local

if TYPE_CHECKING:
    from lazyt.ops.definition import OpDef


def record_one(op: OpDef, x: Any) -> Any:
    """`record` of one operand and nothing else."""
    tr, tensor = local.trace, hooks.tensor
    if type(x) is tensor and not tr.watched:
        s = tr.pos.next
        if s.op is LEAF and x._slot is None and tr.nbytes < MAX_BYTES:
            bind_leaf(tr, x) if x._storage is None else slot_of(tr, x, LEAF_CALLERS)
            s = tr.pos.next
        if s.op is op and s.a is x._slot and s.ext is tr.ext:
            h = tr.results[s.index]
            if h is not None:
                h._slot = s
                tr.pos = s
                return h
            for h in hooks.made:  # noqa: B007 - as in `record`
                break
            h._data = h._meta = h._storage = h._view = None
            h._writes = 0
            if s.parent is tr.pos:
                tr.results[s.index] = h
                h._slot = s
                tr.pos = s
                return h
    return record(op, (x,))


def record_two(op: OpDef, x: Any, y: Any) -> Any:
    """`record` of two operands and nothing else."""
    tr, tensor, kind = local.trace, hooks.tensor, type(y)
    if type(x) is tensor and not tr.watched:
        s = tr.pos.next
        if s.op is LEAF and tr.nbytes < MAX_BYTES:
            if x._slot is None:
                bind_leaf(tr, x) if x._storage is None else slot_of(tr, x, LEAF_CALLERS)
            if kind is tensor and y._slot is None:
                bind_leaf(tr, y) if y._storage is None else slot_of(tr, y, LEAF_CALLERS)
            s = tr.pos.next
        if (
            s.op is op
            and s.a is x._slot
            and s.ext is tr.ext
            and (s.b is y._slot if kind is tensor else s.b is kind and s.low <= y <= s.high)
        ):
            if s.n_scalars:
                tr.scalars[s.scalar_start] = y
            h = tr.results[s.index]
            if h is not None:
                h._slot = s
                tr.pos = s
                return h
            for h in hooks.made:  # noqa: B007 - as in `record`
                break
            h._data = h._meta = h._storage = h._view = None
            h._writes = 0
            if s.parent is tr.pos:
                tr.results[s.index] = h
                h._slot = s
                tr.pos = s
                return h
    return record(op, (x, y))


def record_comparison(op: OpDef, x: Any, y: Any) -> Any:
    """`record_two`, and a Python integer that the array's dtype does not hold compares as infinity does."""
    try:
        return record_two(op, x, y)
    except ScalarRangeError:
        x, y = ((math.inf if v > 0 else -math.inf) if type(v) is int else v for v in (x, y))
        return record_two(op, x, y)


# --- the same under NumPy's signature, without a function between: `exp(x)` is recorded as fast as `-x`


def of_one(op: OpDef, slow: Callable[..., Any]) -> Callable[..., Any]:
    """The function that is `record_one(op, x)`, and `slow` where it is asked for more."""
    tensor, made = hooks.tensor, hooks.made

    def call(x: Any, /, out: Any = None, **options: Any) -> Any:
        if type(x) is tensor and out is None and not options:
            tr = local.trace
            s = tr.pos.next
            if s.op is LEAF and x._slot is None and not tr.watched and tr.nbytes < MAX_BYTES:
                bind_leaf(tr, x, 2) if x._storage is None else slot_of(tr, x, 2)
                s = tr.pos.next
            if s.op is op and s.a is x._slot and s.ext is tr.ext:
                h = tr.results[s.index]
                if h is not None:
                    h._slot = s
                    tr.pos = s
                    return h
                for h in made:  # noqa: B007 - as in `record`
                    break
                h._data = h._meta = h._storage = h._view = None
                h._writes = 0
                if s.parent is tr.pos:
                    tr.results[s.index] = h
                    h._slot = s
                    tr.pos = s
                    return h
        return slow(x, out, **options)

    return call


def of_two(op: OpDef, slow: Callable[..., Any]) -> Callable[..., Any]:
    """The function that is `record_two(op, x1, x2)`, and `slow` where it is asked for more."""
    tensor, made = hooks.tensor, hooks.made

    def call(x1: Any, x2: Any, /, out: Any = None, **options: Any) -> Any:
        if type(x1) is tensor and out is None and not options:
            tr, kind = local.trace, type(x2)
            s = tr.pos.next
            if s.op is LEAF and not tr.watched and tr.nbytes < MAX_BYTES:
                if x1._slot is None:
                    bind_leaf(tr, x1, 2) if x1._storage is None else slot_of(tr, x1, 2)
                if kind is tensor and x2._slot is None:
                    bind_leaf(tr, x2, 2) if x2._storage is None else slot_of(tr, x2, 2)
                s = tr.pos.next
            if (
                s.op is op
                and s.a is x1._slot
                and s.ext is tr.ext
                and (s.b is x2._slot if kind is tensor else s.b is kind and s.low <= x2 <= s.high)
            ):
                if s.n_scalars:
                    tr.scalars[s.scalar_start] = x2
                h = tr.results[s.index]
                if h is not None:
                    h._slot = s
                    tr.pos = s
                    return h
                for h in made:  # noqa: B007 - as in `record`
                    break
                h._data = h._meta = h._storage = h._view = None
                h._writes = 0
                if s.parent is tr.pos:
                    tr.results[s.index] = h
                    h._slot = s
                    tr.pos = s
                    return h
        return slow(x1, x2, out, **options)

    return call
