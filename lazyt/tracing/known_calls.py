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
from operator import attrgetter, setitem
from typing import TYPE_CHECKING, Any

from lazyt.tracing.commit import carry_out, prepared
from lazyt.tracing.inference import is_inference
from lazyt.tracing.steps import INPUT, new_tensor
from lazyt.tracing.tensor_state import EXTERNAL, Inference
from lazyt.tracing.trace import Several, Slot, several

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
        "after", "blank", "exts", "last", "place", "results", "scalars", "slots", "span", "start", "steps", "tree", "writes",
    )  # fmt: skip

    def __init__(self, tr: Trace, start: Step, steps: Sequence[Step], slots: list[Slot]) -> None:
        self.start = start
        self.steps = steps
        self.exts = [*map(ext_of, steps)]
        self.last = steps[-1] if steps else start
        self.after: Any = tr.ext
        first, end = start.index + 1, self.last.index + 1
        self.span = slice(first, end)
        self.blank: list[None] = [None] * (end - first)
        self.place = slice(start.scalar_start + start.n_scalars, self.last.scalar_start + self.last.n_scalars)
        self.scalars = tr.scalars[self.place]
        self.slots = slots  # of the arguments, and of what is met before the call
        # What the call wrote into these: their number, the value behind it, how many writes that were.
        self.writes: list[tuple[int, Slot, int]] = []
        # What it returned: a value that it made, or the number of one of these; and the tree that they are in.
        self.results: list[Slot | int] = []
        self.tree: Any = None

    def take(self, tr: Trace, slots: list[Slot], values: Sequence[Any]) -> list[Handle] | None:
        """Take the steps on these values: the results, or None, and nothing done, where this is another call."""
        if slots != self.slots:
            return None
        if [*map(ext_of, self.steps)] != self.exts and not all(map(_enter_again, self.steps, self.exts)):
            return None
        if self.writes:
            if not self._write(tr, values):
                return None
        else:
            # NOTE: no call from here on.
            if tr.pos is not self.start:
                return None
            tr.scalars[self.place] = self.scalars
            tr.results[self.span] = self.blank
            tr.ext = self.after
            tr.pos = self.last
        found: list[Handle] = []
        made: dict[Step, list[Handle]] = {}
        for x in self.results:
            if type(x) is int:
                h = values[x]
            elif len(x.step.slots) == 1:  # type: ignore[union-attr]
                h = new_tensor(x)  # type: ignore[arg-type]
                tr.results[x.step.index] = h  # type: ignore[union-attr]
            else:
                s: Step = x.step  # type: ignore[union-attr]
                if s not in made:
                    made[s] = [*map(new_tensor, s.slots)]
                    tr.refs[s.index] = Several(map(ref, made[s]))
                h = made[s][x.k]  # type: ignore[union-attr]
            found.append(h)
        return found

    def _write(self, tr: Trace, values: Sequence[Any]) -> bool:
        """Take the steps, and give what they write into its new value; False, and nothing done, where that is new."""
        if several or EXTERNAL:
            return False
        changes: list[tuple[Any, str, Any]] = [(tr, "ext", self.after), (tr, "pos", self.last)]
        at: list[int] = []
        references: list[Any] = []
        old: list[int] = []
        before = []
        for i, slot, n in self.writes:
            x = values[i]
            st = x._storage
            h = x if st is None else st
            if h._meta is not None or x._view is not None or (Inference.used and is_inference(x)):
                return False
            before.append((x, st, h, h._slot, h._writes))
            changes += (h, "_data", None), (h, "_writes", h._writes + n), (h, "_slot", slot)
            if st is not None:
                # Before the write: an alias that derives its value anew never sees half of one.
                st.invalidate(None)
                changes.append((x, "_slot", slot))
            at.append(slot.step.index)
            references.append(ref(h))
            if tr.results[self.slots[i].step.index] is h:
                old.append(self.slots[i].step.index)
        assignments = chain(
            map(setitem, repeat(tr.refs), at, references),
            map(setitem, repeat(tr.results), old, repeat(None)),
            prepared(changes),
        )
        # NOTE: no call from here on but of what is entered without a look at signals.
        if tr.pos is not self.start:
            return False
        for x, st, h, slot, n in before:
            if x._storage is not st or h._slot is not slot or h._writes != n:
                return False
        tr.scalars[self.place] = self.scalars
        tr.results[self.span] = self.blank
        carry_out(assignments)
        return True


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


def read_before(tr: Trace, start: Step, steps: Sequence[Step], slots: Sequence[Slot]) -> list[Any] | str:
    """Who holds the values that these steps read and did not make, but for `slots`; or what cannot be met again."""
    given, found = set(slots), {}
    for s in steps:
        for x in (s,) if s.op is INPUT else s.operands:
            outside = isinstance(x, Slot) and (x.step.op is INPUT or x.step.index <= start.index)
            if outside and x not in given and x not in found:
                found[x] = tr.holder(x)
                if found[x] is None:
                    return f"nobody holds the value any more that is read at {s.site}"
    return [*found.values()]


def inside(tr: Trace, start: Step) -> str:
    """What of Python's the steps behind `start` have, which would not be called when they are taken again; '' if none."""
    if not tr.more:
        return ""
    kinds = {"a custom function": tr.customs, "a hook": tr.slot_hooks, "a retained gradient": tr.retained,
             "an effect": {h._slot: h for h in tr.effects.values()}}  # fmt: skip
    return next((k for k, found in kinds.items() if any(_step_of(x).index > start.index for x in found)), "")


def _step_of(x: Any) -> Step:
    return x.step if isinstance(x, Slot) else x  # type: ignore[no-any-return]


def remember(start: Step, key: Any, call: KnownCall) -> None:
    """Have `start` know a call."""
    if start.known_calls is None or len(start.known_calls) >= MOST_CALLS:
        start.known_calls = {}
    start.known_calls[key] = call
