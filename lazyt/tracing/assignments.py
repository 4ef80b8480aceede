"""The steps of a write in place: what a value becomes when a part of it is written, and which value a holder has then.

put_back    each view operation knows how to put a value back (`OpDef.write`); through several, one after another
assign      a holder has one value in place of another, whichever graph that belongs to
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.ops.definition import OpDef, node_of
from lazyt.ops.indexing import spread
from lazyt.tracing.call_site import user_site
from lazyt.tracing.program import ASSIGN
from lazyt.tracing.record import advance
from lazyt.tracing.refusals import check_devices
from lazyt.tracing.steps import child, follow, insert
from lazyt.tracing.trace import Step

if TYPE_CHECKING:
    from lazyt.tracing.program import Slot
    from lazyt.tracing.tensor_state import Holder, View
    from lazyt.tracing.trace import Trace


def _lower_put(b: Any, x: Any, value: Any) -> Any:
    """`value` broadcast and cast to x's shape and dtype: what `x[...] = value` makes of x."""
    return spread(b, "assign", node_of(b, value, x.dtype), x.shape)


PUT = OpDef("assign", _lower_put)
_writes: dict[OpDef, OpDef] = {}
_write_ops: set[OpDef] = set()


def _write_op(view: OpDef) -> OpDef:
    """The operation that writes through one view operation."""
    op = _writes.get(view)
    if op is None:
        assert view.write is not None
        op = _writes[view] = OpDef(f"write to {view.name}", view.write)
        _write_ops.add(op)
    return op


def is_write(op: Any) -> bool:
    """Whether an operation is `_write_op` of a view: its second operand is what the view has after it."""
    return op in _write_ops


# What a value written under no_grad keeps of the one it replaces: a leaf stays that leaf, another value its graph.
KEEPS_LEAF, KEEPS_GRAPH = "leaf", "graph"
STOP = OpDef("detach", lambda b, x: b.stop(x), differentiable=False)


def assign_step(tr: Trace, new: Slot, old: Slot | None, keeps: str) -> Step:
    """Take the step after which a holder has `new` for `old`.

    What is written under no_grad changes no gradient's way.
    """
    while True:
        s = find_assign(tr, new, old, keeps)
        # NOTE: no call from here on.
        if s.parent is tr.pos:
            break
    s.shape, s.ext = new.shape, tr.ext
    tr.results[s.index] = None
    tr.pos = s
    return s


def find_assign(tr: Trace, new: Slot, old: Slot | None, keeps: str, pos: Step | None = None) -> Step:
    """The step, here or behind `pos`; it is not taken."""
    plain = (ASSIGN, (new, old), keeps)
    s = follow(tr, plain) if pos is None else child(pos, plain)
    if s is None:
        if old is not None:
            check_devices("assign", (new, old))
        operands = (new, old) if keeps == KEEPS_GRAPH else (new,)
        s = Step(pos or tr.pos, ASSIGN, operands, (keeps,), plain)
        s.targets = () if old is None else (old,)
        s.dtype = new.dtype
        s.site = user_site()
        s.requires_grad = new.requires_grad or bool(keeps)
        if keeps == KEEPS_LEAF:
            assert old is not None
            s.leaf = old.leaf
        insert(tr, s, plain)
    return s


def kept_of(tr: Trace, holder: Holder, new: Slot, old: Slot) -> tuple[Slot, str]:
    """What a holder gets for `old` when `new` is written to it, and what it keeps of `old`."""
    keeps = ""
    if not tr.mode.grad:
        if new.requires_grad:
            new = advance(tr, STOP, [new], (), None, None, ())
        if old.requires_grad:
            meta = holder._meta
            keeps = KEEPS_LEAF if meta is not None and meta.is_leaf and old.leaf is not None else KEEPS_GRAPH
    return new, keeps


def put_back(tr: Trace, v: View | None, base: Slot, value: Slot) -> Slot:
    """The value of a storage with `base` after `value` is written through a view of it."""
    if v is None:
        return value
    if v.parent is None:
        return advance(tr, _write_op(v.op), (base, value), v.statics, v.ints, v.offsets, ())
    # The chain of values from the base to x, then back up: each view puts the new value into what it views.
    chain: list[View] = [v]
    while (v := v.parent) is not None:
        chain.append(v)
    chain.reverse()
    values: list[Slot] = [base]
    for v in chain[:-1]:
        values.append(advance(tr, v.op, [values[-1]], v.statics, v.ints, v.offsets, ()))
    for v, outer in zip(reversed(chain), reversed(values), strict=True):
        value = advance(tr, _write_op(v.op), [outer, value], v.statics, v.ints, v.offsets, ())
    return value
