"""The rules of a sync: which values are wanted, which holder gets a value, and what leaves the trace.

    wanted     a holder waits for a pending value: its slot is of that step, and it has no storage, which would hold the
               value for it
    given      the value goes to the holder that waits for it, with the record of its gradient
    leaves     every other holder that the trace knows forgets its slot, if that is of this trace and the holder has its
               value (or a storage) by now: what has neither was written by another thread and is pending there
    released   the aliases of a storage forget theirs: a view's slot is a cache

The rules are text, once. The functions here are compiled from it, and so are those that replays write out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lazyt.interrupts import uninterrupted
from lazyt.runtime import memory
from lazyt.tracing.commit import finish
from lazyt.tracing.fast_paths import fill
from lazyt.tracing.program import INPUT, Slot
from lazyt.tracing.tensor_state import EXTERNAL, Data, Gradient, Holder, Storage, is_external
from lazyt.tracing.trace import Several, Step, Trace

# Whether the holder {h} waits for a value of {step}.
WANTED = "({h}._slot is not None and {h}._slot.step is {step} and {h}._storage is None)"
# The holder {h} has its {value}.
GIVEN = """\
{h}._buffer = {value}
{h}._slot = None"""
# Whether {h} forgets its slot when the trace `tr` ends.
LEAVES = (
    "({h}._slot is not None and {h}._slot.step.owner is tr and ({h}._buffer is not None or {h}._storage is not None))"
)
# A holder that leaves, if it is there.
LEAVE = f"""\
if {{h}} is not None:
    if {LEAVES}:
        {{h}}._slot = None
    if type({{h}}) is Storage:
        {{h}}.let_go()"""


def lines(text: str, **names: str) -> list[str]:
    """A rule for these names, line by line."""
    return text.format(**names).splitlines()


# NOTE: entered without a look at signals, so no other thread and no handler comes before what follows.
is_wanted: Callable[[Holder, Step], bool] = uninterrupted(eval(f"lambda h, step: {WANTED.format(h='h', step='step')}"))


def wanted_of(tr: Trace) -> tuple[list[Slot], list[Holder], list[Holder]]:
    """The values that somebody holds and that are not computed yet, in order, and who holds them; and every other
    holder that this trace knows."""
    slots: list[Slot] = []
    holders: list[Holder] = []
    others: list[Holder] = []
    path = tr.pos.steps()
    end = len(path)
    refs, results = tr.refs, tr.results
    # NOTE: who only looks (`explain`) has no lock: another thread may move a holder from the results to refs meanwhile.
    for i in sorted({*tr.held_results(), *refs}):
        h = results[i]
        if h is None:
            r = refs[i]
            if type(r) is Several:
                _several(r, path[i] if i < end else None, slots, holders, others)
                continue
            h = r()
            if h is None:
                continue
        # NOTE: one with another slot was written since; one with a storage holds no value of its own.
        if i < end and is_wanted(h, path[i]) and path[i].op is not INPUT:
            slots.append(h._slot)
            holders.append(h)
        else:
            others.append(h)
    return slots, holders, others


def _several(
    refs: Several, step: Step | None, slots: list[Slot], holders: list[Holder], others: list[Holder]
) -> None:  # fmt: skip
    """As in `wanted_of`, for the values of one step."""
    alive = refs() or []
    if step is not None and tuple([h._slot for h in alive]) == step.slots:  # mostly all or none are held
        slots += step.slots
        holders += alive
        return
    for h in alive:
        if step is not None and is_wanted(h, step):
            slots.append(h._slot)
            holders.append(h)
        else:
            others.append(h)


_GIVE = """
def give(tr, slots, holders, others, values, segment):
    for h, slot, value in zip(holders, slots, values):
        if h._slot is slot:
            if slot.leaf is None and (slot.requires_grad or h._meta is not None):
                record(h, slot, segment)
            {given}
        if type(h) is Storage:
            h.let_go()
    for h in others:
        {leave}
"""


def _record(h: Holder, slot: Slot, segment: Any) -> None:
    """The record of the gradient of a value that is no leaf."""
    meta = h._meta
    if slot.requires_grad:
        if meta is None:
            meta = Gradient(True, is_leaf=False)
        meta.slot = slot
        meta.segment = segment if segment is not None and slot in segment.outputs else None
        h._meta = meta
    elif meta is not None and not meta.is_leaf:
        h._meta = None


def _giving() -> Callable[..., None]:
    space: dict[str, Any] = {"Storage": Storage, "record": _record}
    text = fill(_GIVE, given=GIVEN.format(h="h", value="value"), leave=LEAVE.format(h="h"))
    exec(compile(text, "<lazyt commit>", "exec"), space)
    found: Callable[..., None] = space["give"]
    return found


_give = _giving()


def apart(values: Sequence[Data]) -> list[Data]:
    """Values for holders: a copy of each that lies where other processes write."""
    return [memory.from_array(memory.as_array(d)) if is_external(d) else d for d in values]


def commit(
    tr: Trace, slots: Sequence[Slot], holders: Sequence[Holder], others: Sequence[Holder], values: Sequence[Data],
    segment: Any, residuals: Any = None,
) -> None:  # fmt: skip
    """Values go to their holders, and every holder leaves the trace: an interrupt goes on when all have.

    values: those of `slots`, then what the segment keeps, the values of `residuals` last. Done twice it has been done
    once.
    """
    if segment is not None:
        segment.keep(values[len(slots) :], residuals, others)
    if EXTERNAL:
        values = apart(values)
    try:
        _give(tr, slots, holders, others, values, segment)
    except BaseException:
        finish(lambda: _give(tr, slots, holders, others, values, segment))
        raise


def stand(tr: Trace, act: Callable[[], None]) -> None:
    """After an interrupt that came when inputs were overwritten: `act` commits the results, and the trace ends."""

    def done() -> None:
        act()
        tr.start()

    finish(done)
