"""A write as it was made here the last time: all its steps are taken at once, without asking again what it means.

A write through a view is several steps: the view, the value cast and broadcast, what is put back into each view, and
the assignment. Which ones depends on nothing but how the target is seen, the value, and the place in the program. So
the first of them remembers the write (as in call_cache.py): when it comes again under the same extents, the trace goes
on behind the last, and no handle is made for the view.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from lazyt.config import general as settings
from lazyt.tracing.assignments import PUT, is_write
from lazyt.tracing.call_cache import CHANGES, plain
from lazyt.tracing.inference import is_inference
from lazyt.tracing.program import ASSIGN
from lazyt.tracing.steps import hooks
from lazyt.tracing.tensor_state import EXTERNAL, Handle, Inference
from lazyt.tracing.trace import NO_CALL, several

if TYPE_CHECKING:
    from lazyt.tracing.program import Slot
    from lazyt.tracing.trace import Ext, Step, Trace

ref = weakref.ref
# Writes of more steps, and values of other types than these and tensors, are recorded at length.
MOST_STEPS = 12
_SCALARS = (float, int, bool)


class Write:
    """A write of `f` that took the steps from one that refers to this."""

    __slots__ = (
        "at", "before", "blank", "f", "high", "key", "kind", "last", "left", "low", "old", "parent", "place",
        "scalars", "seen", "span", "steps", "value", "x1",
    )  # fmt: skip

    # What a cached call has: `f` bound no operands here, and these are the extents of no trace.
    binds = False
    after: Any = object()

    def __init__(self, f: Any, left: int) -> None:
        self.f = f
        self.left = left  # how often it may be another one
        self.before: Any = None  # the extents before the first step
        self.x1: Any = None  # the target's slot, None for a view that is derived anew
        self.parent: Any = None  # how the target is seen in its storage
        self.kind: Any = None  # the type of the key, and what is kept of it
        self.key: Any = None
        self.value: Any = None  # the value's slot, or its type, and what a scalar is between
        self.low = self.high = 0.0
        self.old: Any = None  # the value that is superseded
        self.steps: tuple[tuple[Step, Ext], ...] = ()  # each with the extents it must have
        self.last: Any = None
        self.seen: Any = None  # the target's slot behind the write
        self.scalars: list[Any] = []  # of all steps, with their place; where among them the value is, or -1
        self.place = slice(0, 0)
        self.at = -1
        self.span = slice(0, 0)  # the places of the steps' results
        self.blank: list[None] = []


_ONCE, _NEVER = Write(None, 1), Write(None, 0)


def held_value(x: Any) -> Any:
    """What a write knows a value by: a tensor's slot, a scalar's type; None for all others."""
    return x._slot if type(x) is hooks.tensor else type(x) if type(x) in _SCALARS else None


def target_slot(tr: Trace, x: Handle) -> Slot | None:
    """The slot of what is written, found without a step; None for what has none in this trace."""
    slot, st = x._slot, x._storage
    if slot is None and st is not None and x._view is None:
        slot = st._slot
    return slot if slot is None or slot.step.owner is tr else None


def rewritten(tr: Trace, c: Write, s: Step, x: Any, value: Any, seen: bool) -> bool:
    """Take the steps of a write that s begins; False, and nothing done, if this is another write.

    seen: whether x itself was written, not a part of it.
    """
    if type(x) is not hooks.tensor or c.before is not tr.ext or x._view is not c.parent:
        return False
    if tr.watched or several or EXTERNAL or (Inference.used and is_inference(x)):
        return False
    given = type(value)
    if given is hooks.tensor:
        if value._slot is None or value._slot is not c.value:
            return False
    elif given is not c.value or not c.low <= value <= c.high:
        return False
    st = x._storage
    if x._slot is not c.x1 and (x._slot is not None or st is None or c.parent is not None or st._slot is not c.x1):
        return False
    for step, ext in c.steps:
        if step.ext is not ext or step.cut:
            return False
    holder = x if st is None else st
    held = ref(holder)
    scalars = c.scalars
    if c.at >= 0:
        scalars = [*scalars]
        scalars[c.at] = value
    # Before the write: an alias that derives its value anew never sees half of one.
    if st is not None:
        st.invalidate(None)
    last, old, results = c.last, c.old, tr.results
    i, assigned = old.step.index, old.step.op is ASSIGN
    # NOTE: no call from here on: the trace and the holder go on together, or not.
    if s.parent is not tr.pos or old is not holder._slot or st is not x._storage or holder._meta is not None:
        return False
    if scalars:
        tr.scalars[c.place] = scalars
    results[c.span] = c.blank
    refs = tr.refs
    refs[last.index] = held
    if results[i] is holder:
        results[i] = None
    elif assigned and i in refs:
        del refs[i]  # nobody holds what one write put there and the next supersedes
    tr.ext = last.ext
    tr.pos = last
    holder._slot = last
    holder._buffer = None
    holder._writes += 1
    # NOTE: a part of a view was written: the view is derived anew.
    x._slot = last if c.parent is None else c.seen if seen else None
    return True


def note_write(
    f: Any, tr: Trace, start: Step, ext: Ext, x: Any, x1: Any, parent: Any, value: Any, known: Any, kind: Any = None,
    key: Any = None,
) -> None:  # fmt: skip
    """Remember the write of `f` that went from `start` to here, if its steps follow from what is compared.

    x1, parent, known: the target's slot and view, and the value's `held_value`, before. NOTE: the first time it is only
    counted: what comes once costs no more.
    """
    last = tr.pos
    steps: list[Step] = []
    s: Any = last
    while s is not start:
        steps.append(s)
        s = s.parent
        if s is None or len(steps) > MOST_STEPS:
            return
    steps.reverse()
    if not steps or steps[0].index == 0:
        return
    first = steps[0]
    before = first.call
    if before is NO_CALL:
        first.call = _ONCE
        return
    if not before.left:
        return
    first.call = _NEVER
    c = _write_of(f, tr, steps, x, x1, parent, value, known, Write(f, before.left - 1 if before.f is f else CHANGES))
    if c is not None and plain(key if kind is not slice else ()):
        c.before, c.kind, c.key = ext, kind, key
        first.call = c


def _write_of(
    f: Any, tr: Trace, steps: list[Step], x: Any, x1: Any, parent: Any, value: Any, known: Any, c: Write
) -> Write | None:  # fmt: skip
    first, last = steps[0], steps[-1]
    if not settings["calls"] or tr.mode.intercepted or tr.mode is not first.parent.mode or x._view is not parent:  # type: ignore[union-attr]
        return None
    if last.op is not ASSIGN or len(last.targets) != 1 or last.mode is not tr.mode:
        return None
    if known is None or type(x) is not hooks.tensor:
        return None
    old = last.targets[0]
    if x1 is None and parent is None:
        return None
    holder = x if x._storage is None else x._storage
    if holder._slot is not last or holder._meta is not None or old.requires_grad:
        return None
    weak = 0
    for k, s in enumerate(steps[:-1]):
        moves = s.op is PUT or is_write(s.op) or getattr(s.op, "write", None) is not None
        # What an update computes comes first.
        if not (moves or (k == 0 and s.bare)) or s.op.fallible or len(s.slots) != 1 or s.requires_grad:
            return None
        if s.n_weak:
            weak += s.n_weak
            c.at = s.scalar_start - first.scalar_start
            c.low, c.high = s.low, s.high
            if s.checks:
                c.low, c.high = s.checks[0][1:]
    scalar = isinstance(known, type)
    if last.requires_grad or weak != scalar:
        return None
    c.x1, c.parent, c.value, c.old, c.last = x1, parent, known, old, last
    c.steps = tuple((s, s.ext) for s in steps)  # type: ignore[misc]
    # NOTE: a write of a value in place is seen through the view that it went through, or derived anew.
    c.seen = x._slot if parent is not None else last
    start = first.scalar_start
    c.place = slice(start, last.scalar_start + last.n_scalars)
    c.scalars = tr.scalars[c.place]
    c.span = slice(first.index, last.index + 1)
    c.blank = [None] * len(steps)
    return c
