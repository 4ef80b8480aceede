"""The steps that a function took at a place in the program, taken again at once, without calling the function.

A function of tensors records the same steps whenever it is called at the same place of the trie, on the same values of
the trace, with equal other arguments: only its Python decides which. So the place remembers the steps up to where the
function returned, with their extents and scalars. What the function reads by itself is met before it, as if it were an
argument. Taken again, the trace is as if the function had been called: what plans, differentiates, explains and
computes does not know the difference.
"""

from __future__ import annotations

import weakref
from itertools import chain, repeat
from operator import attrgetter, eq, is_, setitem
from typing import TYPE_CHECKING, Any

from lazyt.tracing.commit import carry_out, prepared, slot_held, storage_held, writes_held
from lazyt.tracing.inference import is_inference
from lazyt.tracing.program import ASSIGN, INPUT, Slot
from lazyt.tracing.steps import new_tensor
from lazyt.tracing.tensor_state import EXTERNAL, Inference, Storage
from lazyt.tracing.trace import Several, several

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.tracing.tensor_state import Handle
    from lazyt.tracing.trace import Ext, Step, Trace

ref = weakref.ref
# A place in the program remembers so many calls: of several functions, on several extents.
MOST_CALLS = 64
ext_of = attrgetter("ext")


class KnownCall:
    """What a function recorded from a step on, under some extents, on some values."""

    __slots__ = (
        "after", "alone", "constants", "exts", "last", "place", "results", "scalars", "slots", "span", "start",
        "steps", "taken", "tree", "writes",
    )  # fmt: skip

    def __init__(self, tr: Trace, start: Step, steps: list[Step], slots: list[Slot]) -> None:
        self.start = start
        self.steps = steps
        self.exts = [*map(ext_of, steps)]
        self.last = steps[-1] if steps else start
        self.after: Any = tr.ext
        self.span = slice(start.index + 1, self.last.index + 1)
        self.place = slice(start.scalar_start + start.n_scalars, self.last.scalar_start + self.last.n_scalars)
        self.scalars = tr.scalars[self.place]
        self.slots = slots  # of the arguments, and of what is met before the call
        # Tensors that the function makes of data of the host, for itself, and where: the same at each call.
        self.constants = [(s, tr.results[s.index]) for s in steps if s.op is INPUT]
        # What the trace holds for each step while nobody else does.
        self.taken = [tr.results[s.index] if s.op is INPUT else None for s in steps]
        # What the call wrote into these: their number, the value behind it, how many writes that were.
        self.writes: list[tuple[int, Slot, int]] = []
        # What it returned: a value that it made, the number of one of these, or that of a result before, as -1 - k; and
        # the tree that they are in.
        self.results: list[Slot | int] = []
        self.tree: Any = None
        self.alone = False  # whether that is a value by itself

    def take(self, tr: Trace, values: Sequence[Any]) -> list[Handle] | None:
        """Take the steps on these values: the results, or None, and nothing done, where this is another call."""
        if [*map(ext_of, self.steps)] != self.exts and not all(map(_enter_again, self.steps, self.exts)):
            return None
        if self.writes or self.constants:
            if not self._carry_out(tr, values):
                return None
        else:
            # NOTE: no call from here on.
            if tr.pos is not self.start:
                return None
            tr.scalars[self.place] = self.scalars
            tr.ext = self.after
            tr.pos = self.last
            # Last: what dies here may be somebody's who is told, and who records.
            tr.results[self.span] = self.taken
        found: list[Handle] = []
        for x in self.results:
            if type(x) is int:
                h = values[x] if x >= 0 else found[-1 - x]
            else:
                h, s = new_tensor(x), x.step  # type: ignore[arg-type, union-attr]
                if len(s.slots) == 1:
                    tr.results[s.index] = h
                else:
                    tr.refs[s.index] = _one_more(tr.refs.get(s.index), x, h)  # type: ignore[arg-type]
            found.append(h)
        return found

    def _carry_out(self, tr: Trace, values: Sequence[Any]) -> bool:
        """Take the steps, with what they write and what is met between them; False, and nothing done, where that is
        another."""
        changes: list[tuple[Any, str, Any]] = []
        targets: list[Any] = []
        storages: list[Any] = []
        holders: list[Any] = []
        references: dict[int, Any] = {}
        old: list[int] = []
        if self.writes and (several or EXTERNAL):
            return False
        for i, slot, _ in self.writes:
            x = values[i]
            st = x._storage
            h = x if st is None else st
            if h._meta is not None or x._view is not None or (Inference.used and is_inference(x)):
                return False
            targets.append(x)
            storages.append(st)
            holders.append(h)
            changes += (h, "_buffer", None), (h, "_slot", slot)
            if type(h) is Storage:
                # Before the write: an alias that derives its value anew never sees half of one.
                h.invalidate(None)
            if st is not None:
                changes.append((x, "_slot", slot))
            n_step = slot.step.index
            references[n_step] = ref(h) if len(slot.step.slots) == 1 else _one_more(references.get(n_step), slot, h)
            own = self.slots[i].step.index
            # NOTE: a handler of signals may have emptied the trie: then the trace is elsewhere, see below.
            if own < len(tr.results) and tr.results[own] is h:
                old.append(own)
        slots, writes = [*map(slot_held, holders)], [*map(writes_held, holders)]
        changes += [(h, "_writes", w + n) for h, w, (_, _, n) in zip(holders, writes, self.writes, strict=True)]
        inputs, nbytes, number = tr.inputs, tr.nbytes, tr.number
        # NOTE: a list of its own: what is met is there with the position, or not at all.
        met = [*inputs]
        for s, h in self.constants:
            data = h._buffer
            if data is None or h._slot is not None or data.bound_in == number:
                return False
            nbytes += data.nbytes * s.counted
            changes += (h, "_slot", s), (data, "bound_in", number)
            met.append(data)
        changes += (tr, "inputs", met), (tr, "nbytes", nbytes), (tr, "ext", self.after), (tr, "pos", self.last)
        assignments = chain(
            map(setitem, repeat(tr.refs), references, references.values()),
            map(setitem, repeat(tr.results), old, repeat(None)),
            prepared(changes),
            # Last: what dies here may be somebody's who is told, and who records.
            map(setitem, (tr.results,), (self.span,), (self.taken,)),
        )
        unchanged = chain(
            map(is_, map(storage_held, targets), storages),
            map(is_, map(slot_held, holders), slots),
            map(eq, map(writes_held, holders), writes),
        )
        # NOTE: no call from here on but of what is entered without a look at signals.
        if tr.pos is not self.start or tr.inputs is not inputs or False in unchanged:
            return False
        tr.scalars[self.place] = self.scalars
        carry_out(assignments)
        return True


def _nobody() -> None:
    """What stands for the holder of a value that has none."""


def _one_more(known: Any, slot: Slot, h: Any) -> Several:
    """The holders of a step's several values, with one more."""
    before = known if type(known) is Several else [_nobody] * len(slot.step.slots)
    return Several(ref(h) if k == slot.k else r for k, r in enumerate(before))


def _enter_again(s: Step, ext: Ext) -> bool:
    """The shapes of a step under extents that it has met before; False where they are not known any more."""
    if s.ext is ext:
        return True
    shapes = s.by_ext.get(ext)
    if shapes is None:
        return False
    for slot, shape in zip(s.slots, shapes, strict=True):
        slot.shape = shape
    s.ext = ext
    return True


def steps_since(tr: Trace, start: Step) -> list[Step] | None:
    """The steps behind `start`, in order; None where the trace did not come from there."""
    found: list[Step] = []
    s: Any = tr.pos
    while s is not start:
        if s is None or s.index <= start.index:
            return None
        found.append(s)
        s = s.parent
    return found[::-1]


def written_over(slot: Slot, first: int) -> Slot | None:
    """What was written over by this value, from before the step of index `first`; None if it is of something new."""
    while slot.step.index >= first and slot.step.op is not INPUT:
        s = slot.step
        if not s.targets:
            return None
        slot = s.targets[slot.k if s.op is not ASSIGN else 0]
    return slot


def read_before(tr: Trace, start: Step, steps: Sequence[Step], slots: Sequence[Slot]) -> list[Any] | str:
    """Who holds the values that these steps read and did not make, but for `slots`; or what cannot be met again.

    What nobody else holds was made of data of the host, by the function and for itself.
    """
    given, first = set(slots), start.index + 1
    found: dict[Slot, Any] = {}
    held = set(tr.held_places(first))
    written = {written_over(h._slot, first): h for _, h in tr.alive(first) if h is not None and h._slot}
    for s in steps:
        if s.op is INPUT:
            if s in written:
                found[s] = written[s]
            elif s.index in held or tr.results[s.index] is None:
                found[s] = tr.holder(s)
            elif tr.results[s.index]._storage is not None or s.statics[3] >= 0:
                return f"it makes a tensor of data of the host at {s.site}, and views of it"
            else:
                given.add(s)
        for x in s.operands:
            if isinstance(x, Slot) and x.step.index < first and x not in given and x not in found:
                over = written.get(x)
                found[x] = tr.holder(x) if over is None else over
        if None in found.values():
            return f"nobody holds the value any more that is read at {s.site}"
    return [*found.values()]


def inside(tr: Trace, start: Step) -> str:
    """What the steps behind `start` have that would not be called when they are taken again; '' if nothing."""
    if not (tr.more or tr.effects):
        return ""
    kinds: dict[str, list[Any]] = {
        "a custom function": [*tr.customs], "a hook": [*tr.slot_hooks], "a retained gradient": [*tr.retained.values()],
        "an effect": [h._slot for h in tr.effects.values()],
    }  # fmt: skip
    return next((k for k, found in kinds.items() if any(_step_of(x).index > start.index for x in found)), "")


def _step_of(x: Any) -> Step:
    found: Step = x.step if isinstance(x, Slot) else x
    return found


def remember(start: Step, key: Any, call: KnownCall) -> None:
    """Have `start` know a call."""
    if start.known_calls is None or len(start.known_calls) >= MOST_CALLS:
        start.known_calls = {}
    start.known_calls[key] = call
