"""Gradients across a sync.

A sync ends the trace. Where a value that somebody holds still has a graph behind it, the trace is kept as a *segment*:
its steps, scalars and inputs, and the values that its derivatives keep (the plan computes those too). A later backward
records the segment's steps again on its own trace, with every kept value read from memory (`known`), and pulls the
cotangent through that. What nobody reads of the repetition is dead code; the steps are found in the trie.

Of steps that were recorded under a compression nothing is kept but what cannot be computed again. The plan stores in
few bits what a backward reads (later.py), and one step stands for all of them on the later trace. Where more is asked
for than gradients of leaves, they are computed again from their inputs, and packed in the program of the backward.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyt import on_demand
from lazyt.autograd.custom import Rule, custom_step, inputs_of
from lazyt.autograd.later import Later, again, later
from lazyt.autograd.reachability import (
    Reach,
    Writes,
    lane_bound,
    refuse_again,
    refuse_overwritten,
    refuse_second_time,
    saved_slots,
)
from lazyt.autograd.track import AGAIN, CUSTOM, SAME, TRACK, has_graph, is_tracked
from lazyt.autograd.vjp_step import track_step
from lazyt.errors import ThreadError
from lazyt.ir.graph import Node
from lazyt.ir.prims import SOURCES
from lazyt.ops.compression import DRAW, DRAWS
from lazyt.ops.definition import OpDef
from lazyt.ops.residuals import EARLIER
from lazyt.tracing.assignments import KEEPS_LEAF, assign_step
from lazyt.tracing.current import return_to, switch_mode
from lazyt.tracing.inputs import bind_input
from lazyt.tracing.lower import lower
from lazyt.tracing.program import ASSIGN, INPUT, MODE, Slot, is_expanded
from lazyt.tracing.record import advance
from lazyt.tracing.tensor_state import ELSEWHERE, Data, Gradient, Holder
from lazyt.tracing.trace import Step, Trace

if TYPE_CHECKING:
    from lazyt.autograd import reverse
    from lazyt.ir.residuals import Residuals
else:
    reverse = on_demand.module("lazyt.autograd.reverse")

ref = weakref.ref
_numbers = itertools.count()

# NOTE: a stored copy is a leaf with extents of its own, and they are y's: a plan that is made where one is 1 says so.
KNOWN = OpDef("known", lambda b, y, x: b.known(y, x, copy=True))


class Shape:
    """What the segments of one program with the same differentiable values have in common: found once."""

    def __init__(self, path: Sequence[Step], outputs: Sequence[Slot]) -> None:
        self.outputs = frozenset(outputs)
        self.order = list(outputs)
        self.reach = reach = Reach(outputs, None)
        self.steps = frozenset(reach.steps)
        # NOTE: only what a backward reaches: the record of a synced value keeps that one's own segment alive.
        self.records = sorted({x.step.index for x in (*reach.leaves, *reach.synced)})
        self.tracked = [x.step for x in reach.leaves if is_tracked(x)]
        writes = Writes(path)
        # Kept values that were written over, and where: found out when somebody differentiates.
        self.overwritten = {(x, s): f"at {writes.over[x].site}" for x, s, _ in writes.lost(reach.steps)}
        # Values that must not be written later, and who holds them: a view may be gone and what it views not.
        self.watched = [
            (x, y)
            for x, _, _ in saved_slots(reach.steps)
            if x not in writes.over
            for y in dict.fromkeys((x, writes.bases.get(x, x)))
        ]
        # What the compressions of this program draw from: the first one's seed and counter.
        self.draw = next((s for s in path if s.op in DRAWS), None)
        # Set by the first segment: what the plan computes for the derivatives, and the inputs of what is repeated.
        self.slots: list[Slot] | None = None
        self.inputs: list[tuple[Step, int]] = []
        self.later: Later | None = None

    def complete(self, path: Sequence[Step], segment: Segment) -> list[Slot]:
        """The kept values."""
        if self.slots is None:
            kept = _kept(path, self.order, self.reach, self.records, segment)
            numbers = input_numbers(path)
            self.inputs = [(s, numbers[s]) for s in _closure(self.order, set(kept)) if s.op is INPUT]
            self.later = later(path, self.order, self.reach)
            self.slots = kept
        return self.slots


class Segment:
    """A trace that was synced while some of its values can still be differentiated."""

    def __init__(self, tr: Trace, shape: Shape, consumed: frozenset[Step]) -> None:
        self.number = next(_numbers)
        self.outputs = shape.outputs
        path = tr.pos.steps()
        self.scalars = tr.scalars[: tr.pos.scalar_start + tr.pos.n_scalars]
        self.extents = tr.ext.values
        self.consumed = consumed
        self.saved: dict[Slot, Data] = {}
        metas = tr.metas
        self.metas = {i: m for i in shape.records if i in metas and (m := metas[i]()) is not None}
        # NOTE: weakly, because the record of a value that was tracked and synced refers to this segment.
        self.tracked = {s: ref(m) for s in shape.tracked if (m := self.metas.pop(s.index, None)) is not None}
        # What was asked of values before the sync: Python functions that take their cotangents, records of gradients.
        self.hooks = {x: hooks for x, hooks in tr.slot_hooks.items() if x in shape.reach.through}
        self.retained = {x: ref(m) for m, x in tr.retained.items() if m.retains and x in shape.reach.through}
        self.customs: dict[Step, Rule] = {s: r for s, r in tr.customs.items() if s in shape.steps}
        self.copies = _copies(tr, shape.reach)
        self.overwritten = shape.overwritten
        self.watched: dict[Slot, tuple[weakref.ref[Any], int]] = {}
        for x, y in shape.watched:
            h = tr.holder(y)
            if h is not None:
                self.watched[x] = (ref(h), h._version)
        self.slots = shape.complete(path, self)
        self.inputs = {s: tr.inputs[n] for s, n in shape.inputs}
        self.draw = shape.draw
        self.later = shape.later
        self.residuals: Residuals | None = None
        self.stored: Sequence[Data] = ()
        self.views: list[Slot] = []  # that were alive when its values were computed

    def keep(self, values: Sequence[Data], residuals: Residuals | None, others: Sequence[Holder]) -> None:
        """Take the kept values, in the order of `slots`, from what the plan computed; then what it stored for these.

        others: holders of no value of their own. Views among them are known by what they are here, on later traces too.
        """
        for h, x in views_of(others):
            if x in self.outputs:
                own = h._meta = h._meta or Gradient(True, is_leaf=False)
                own.slot, own.segment, own.version = x, self, h._storage._writes  # type: ignore[union-attr]
        self.views = self.views or [x for _, x in views_of(others)]
        for s, record in self.tracked.items():
            m = record()
            if m is not None and m.segment is None:
                m.slot, m.segment = s, self
        n = len(self.slots)
        self.saved = dict(zip(self.slots, values[:n], strict=True))
        self.residuals, self.stored = residuals, values[n:]

    def check(self, reach: Reach) -> None:
        """Raise AutogradError if what this backward needs was freed or overwritten."""
        for step in reach.steps:
            if step.op is CUSTOM:
                self.customs[step].check()
        for x, s, i in saved_slots(reach.steps):
            if s in self.consumed:
                raise refuse_second_time(s)
            if (x, s) in self.overwritten:
                raise refuse_overwritten(x, s, i, self.overwritten[x, s])
            watched = self.watched.get(x)
            if watched is not None and (h := watched[0]()) is not None and h._version != watched[1]:
                raise refuse_overwritten(x, s, i, "after the sync")

    def replay(self, tr: Trace, target: Slot, whole: bool = False) -> Slot:
        """Record what leads to `target` again on this trace, or a step that stands for it; its value there.

        whole: values on the way to it are asked for too.
        """
        tr.more = True
        new: dict[Slot, Slot] = tr.replayed.setdefault(self, {})
        whole = whole or any(self.hooks.values()) or bool(self.retained)
        if whole and new and next(iter(new.values())).step.op is EARLIER:
            new.clear()  # one step stood for it here before
        if target in new:
            return new[target]
        if not whole and self.later is not None and self.residuals is not None:
            leaves = {x: self._value_of(x, g) for x, g in zip(self.later.leaves, self.later.groups, strict=True)}
            numbers = self.extents, self.scalars
            new.update(again(tr, self.later, self.residuals, self.stored, leaves, self.metas, numbers))
            return new[target]
        before = tr.mode
        try:
            steps = _closure([target], set(self.saved), self.copies)
            if self.draw is not None and any(s.mode.compress is not None for s in steps):
                at = self.draw.scalar_start
                switch_mode(self.draw.mode)
                advance(tr, DRAW, self.draw.operands[:2], (), None, None, self.scalars[at : at + 2])
            for s, slots in steps.items():
                # NOTE: another target may have asked for other results of the same step.
                new.update((x, self.copies[x].on(tr)) for x in slots if x not in new and x in self.copies)
                missing = [x for x in slots if x not in new]
                if missing:
                    switch_mode(s.mode)
                    self._again(tr, s, missing, new)
        finally:
            return_to(before)
        for x, hooks in self.hooks.items():
            if x in new:
                tr.slot_hooks[new[x]] = hooks
        return new[target]

    def _value_of(self, leaf: Slot, versions: Sequence[Slot]) -> Data:
        """The value of a leaf, the last one that was written."""
        x = versions[-1]
        return self.inputs[leaf.step] if x.step.op is INPUT else self.saved[x]

    def _again(self, tr: Trace, s: Step, wanted: Sequence[Slot], new: dict[Slot, Slot]) -> None:
        if s.op is INPUT:
            new[s] = bind_input(tr, Holder(self.inputs[s], self.metas.get(s.index)))
            return
        if (s.op is TRACK and s in self.saved and not is_tracked(s)) or s.op is AGAIN:
            new[s] = self._leaf(tr, s, self.metas.get(s.index))
            return
        if all(x in self.saved and not x.requires_grad for x in wanted):
            # NOTE: what else the step gave (another gradient of one backward) nobody asks for, and need not be kept.
            for x in wanted:
                new[x] = self._leaf(tr, x)
            return
        if all(_is_version(x) and x in self.saved for x in wanted):
            # A leaf that was written under no_grad, by itself or by an optimizer: its kept value is written again.
            for x in wanted:
                put = assign_step(tr, self._leaf(tr, x), new[x.leaf], KEEPS_LEAF)  # type: ignore[index]
                new[x] = put
            return
        made: Step
        if s.op is TRACK:
            made = self._tracked(tr, s, new[s.operands[0]])
        elif s.op is ASSIGN:
            # NOTE: of a leaf that was written several times only the last write is repeated.
            old = new.get(s.targets[0], new.get(s.leaf)) if s.targets else None  # type: ignore[arg-type]
            kept = bool(s.statics[0]) and s in self.saved
            made = assign_step(tr, self._leaf(tr, s) if kept else new[s.operands[0]], old, s.statics[0])
            if kept:
                # NOTE: `known` would stand between the value written and the one whose gradient it has.
                new[s] = made
                return
        elif s.op is CUSTOM:
            results = [self._leaf(tr, x) for x in s.slots]
            made = custom_step(tr, results, [new[x] for x in inputs_of(s)], self.customs[s])
            new.update(zip(s.slots, made.slots, strict=True))
            return
        elif (again := getattr(s.op, "again", None)) is not None:
            made = again(tr, s, new)
        elif is_expanded(s.op):
            raise refuse_again(s)
        else:
            made = self._op(tr, s, new)
        made.site = s.site  # where the user recorded it
        for x, y in zip(s.slots, made.slots, strict=True):
            if x in new:
                continue
            new[x] = y
            if _is_version(x):
                value = self._leaf(tr, x) if x in self.saved else y
                put = assign_step(tr, value, new[x.leaf], KEEPS_LEAF)  # type: ignore[index]
                new[x] = put
            elif x in self.saved:
                known = advance(tr, KNOWN, [y, self._leaf(tr, x)], (), None, None, ())
                new[x] = known

    def _tracked(self, tr: Trace, s: Step, operand: Slot) -> Step:
        """The step that stands for s: the identity of its record, or its value where no gradient is asked for by it."""
        record = self.tracked.get(s)
        meta = None if record is None else record()
        if meta is None:
            return advance(tr, SAME, [operand], (), None, None, ())
        made = track_step(tr, operand)
        tr.metas[made.index] = ref(meta)
        return made

    def _op(self, tr: Trace, s: Step, new: dict[Slot, Slot]) -> Step:
        operands = [new[x] if isinstance(x, Slot) else x for x in s.operands]
        at = s.scalar_start
        scalars = self.scalars[at : at + s.n_weak]
        ints = self.extents[s.ext_start : s.ext_start + s.n_ints] if "ints" in s.info else None
        offsets = None
        if "offsets" in s.info:
            offsets = tuple(self.scalars[at + s.n_weak : at + s.n_scalars])
        return advance(tr, s.op, operands, s.statics, ints, offsets, scalars)

    def _leaf(self, tr: Trace, x: Slot, meta: Gradient | None = None) -> Slot:
        return bind_input(tr, Holder(self.saved[x], meta))


class Copy(NamedTuple):
    """A value that was recorded again for a backward: of which segment, and which one there.

    computed: what stands before its stored copy.
    """

    segment: Segment
    slot: Slot
    computed: bool = False

    def on(self, tr: Trace) -> Slot:
        """The same on another trace."""
        found = self.segment.replay(tr, self.slot, True)
        made: Slot = found.step.operands[0] if self.computed and found.step.op is KNOWN else found
        return made


def _copies(tr: Trace, reach: Reach) -> dict[Slot, Copy]:
    """What this trace has of earlier segments. On a later trace it is theirs again: each value stands there once."""
    found: dict[Slot, Copy] = {}
    for segment in sorted(tr.replayed, key=lambda x: x.number):
        for there, here in tr.replayed[segment].items():
            if here in reach.through and here.step.op is not EARLIER:
                found.setdefault(here, Copy(segment, there))
                if here.step.op is KNOWN:
                    found.setdefault(here.step.operands[0], Copy(segment, there, True))
    return found


def _is_version(x: Slot) -> bool:
    """Whether x is a later value of a leaf: written under no_grad."""
    return x.leaf is not None and x.leaf is not x


def input_numbers(path: Sequence[Step]) -> dict[Step, int]:
    """Which of the trace's buffers each input step has."""
    numbers: dict[Step, int] = {}
    n = 0
    for s in path:
        if s.op is INPUT:
            at = s.statics[3]
            numbers[s] = at if at >= 0 else n
            n += at < 0
    return numbers


def _kept(
    path: Sequence[Step], outputs: Sequence[Slot], reach: Reach, records: Sequence[int], segment: Segment
) -> list[Slot]:
    """What the plan must compute for a later backward.

    The values that the gradients read, where they are values of steps; for one inside a step (the exponentials of a
    softmax) the operands of that step, from which it is made again. And results that cannot be replayed.
    """
    low = lower(path, segment.extents, segment.scalars)
    groups = [[low.nodes[s] for s in versions] for versions in reach.leaves.values()]
    groups += [[low.nodes[s]] for s in reach.synced]
    slot_of_node = {low.nodes[x]: x for s in reversed(path) for x in s.slots if x in low.nodes}
    kept: dict[Slot, None] = {}
    # What custom functions hand cotangents on to is pulled back from there.
    behind = [x for s in reach.steps if s.op is CUSTOM for x in inputs_of(s) if x.requires_grad]
    sources = [low.nodes[x] for x in dict.fromkeys((*outputs, *behind))]
    todo = sorted(reverse.needed(low.builder, sources, groups), key=lambda n: -n.serial)
    met: set[Node] = set()
    while todo:
        n = todo.pop()
        if n in met or n.op in SOURCES:
            continue
        met.add(n)
        slot = slot_of_node.get(n)
        # NOTE: under a compression all is computed again, in the program of the backward, which packs it.
        if slot is not None and (slot.step.mode.compress is None or _is_version(slot)):
            kept[slot] = None
        else:
            # A value inside a step is computed again, from what the step read.
            todo.extend(reversed(n.operands))
    # Later values of leaves: what wrote them, a step of an optimizer with the gradients behind it, is not repeated.
    kept.update((x, None) for versions in reach.leaves.values() for x in versions if _is_version(x))
    closure = _closure(outputs, set(kept))
    inside = lane_bound(closure)
    for s in closure:
        # NOTE: what stands for a lane has no value.
        if s in inside:
            continue
        # NOTE: whoever holds it: the next segment of this program keeps the same, and there it may be another's.
        if s.op is AGAIN or (s.op is TRACK and s.index in records):
            kept[s] = None
        if s.op is CUSTOM:
            kept.update(dict.fromkeys(s.slots))
            continue
        for x in s.operands:
            if isinstance(x, Slot) and is_expanded(x.step.op) and not x.requires_grad:
                kept[x] = None
    return [x for x in kept if x.step.op is not INPUT]


def _closure(targets: Sequence[Slot], known: set[Slot], copies: Container[Slot] = ()) -> dict[Step, list[Slot]]:
    """The steps that compute the targets, in order, and which of their values are used.

    A kept value that needs no gradient ends the search, and so do a kept value of a leaf, a kept view and a copy.
    """
    found: dict[Step, list[Slot]] = {}
    seen: set[Slot] = set()
    todo = list(targets)
    while todo:
        slot = todo.pop()
        s = slot.step
        if slot in seen or s.op is MODE:
            continue
        seen.add(slot)
        found.setdefault(s, []).append(slot)
        if slot in copies or (slot in known and (not slot.requires_grad or s.op is AGAIN)):
            continue
        if slot in known and _is_version(slot):
            todo.append(slot.leaf)  # type: ignore[arg-type]
            continue
        operands = inputs_of(s) if s.op is CUSTOM else s.operands
        todo.extend(x for x in operands if isinstance(x, Slot))
        if s.op is not INPUT and getattr(s.op, "again", None) is not None:
            todo.extend(x for group in s.info for x in group)
            todo.extend(s.stops)
        if _is_version(slot):
            todo.append(slot.leaf)  # type: ignore[arg-type]
        elif s.op is ASSIGN and s.statics[0]:
            todo.extend(s.targets)
    return dict(sorted(found.items(), key=lambda item: item[0].index))


def _freed(output: Slot, consumed: frozenset[Step]) -> bool:
    """Whether a backward from here needs something that was freed; sums and copies keep nothing."""
    return any(s in consumed for _, s, _ in saved_slots(Reach([output], None).steps))


def graphs_of(wanted: Sequence[Slot], others: Sequence[Holder]) -> list[Slot]:
    """The values that a later backward may begin with: those of `wanted`, and views, which are derived anew."""
    return [*filter(has_graph, wanted), *(x for _, x in views_of(others))]


def views_of(holders: Sequence[Holder]) -> list[tuple[Holder, Slot]]:
    """The views among these that have a graph, and their values."""
    return [(h, x) for h in holders if h._view is not None and (x := h._slot) is not None and has_graph(x)]


def make_segment(tr: Trace, outputs: Sequence[Slot], consumed: frozenset[Step]) -> Segment | None:
    """The segment to keep for these values (held, not leaves, requiring grad); None when nothing is left to pull."""
    memo = tr.pos.kept
    key = tuple(outputs)
    if key not in memo:
        # NOTE: what was consumed is a matter of the path too.
        live = [s for s in outputs if s.step not in consumed or not _freed(s, consumed)]
        memo[key] = Shape(tr.pos.steps(), live) if live else None
    shape = memo[key]
    return Segment(tr, shape, consumed) if shape is not None else None


Links = tuple[tuple[Slot, Slot], ...]
Versions = dict[Gradient, list[Slot]]


class Passed(list[tuple[Segment, Reach]]):
    """The segments that a backward went through, and by which steps; `rules`: of the custom functions there."""

    def __init__(self) -> None:
        super().__init__()
        self.rules: list[Rule] = []


# Intermediate values whose cotangents are asked for: their segment, if they were synced, and the value there.
Asked = Mapping[Gradient, tuple[Any, Any]]
EMPTY: Asked = {}


def behind(tr: Trace, meta: Gradient, passed: Passed, asked: Asked = EMPTY, whole: bool = False) -> Slot:
    """The synced value of a record, made again on this trace; what is behind it must be whole.

    whole: each step is asked for too.
    """
    assert meta.slot is not None
    if meta.segment is ELSEWHERE:
        raise refuse_other_thread(meta.slot.step)
    if meta.segment is None and (record := tr.metas.get(meta.slot.step.index)) is not None and record() is meta:
        return meta.slot  # another thread's program has it as an input
    if meta.segment is None:
        raise refuse_second_time(meta.slot.step)
    inside = Reach([meta.slot], None)
    meta.segment.check(inside)
    passed.append((meta.segment, inside))
    whole = whole or any(segment is meta.segment and s is not meta.slot for segment, s in asked.values())
    found: Slot = meta.segment.replay(tr, meta.slot, whole)
    return found


Records = Callable[[int], Gradient | None]


def _records_of(tr: Trace) -> Records:
    return lambda i: None if (found := tr.metas.get(i)) is None else found()


def across_syncs(tr: Trace, reach: Reach, records: Records | None = None) -> Iterator[tuple[Reach, Records]]:
    """Give the reach of a backward and those behind its synced values, in earlier traces, each with its records."""
    todo, met = [(reach, records or _records_of(tr))], set[Gradient]()
    while todo:
        r, of = todo.pop()
        yield r, of
        for x in r.synced:
            m = of(x.step.index)
            if m is not None and m not in met and isinstance(m.segment, Segment):
                assert m.slot is not None, "its segment has it"
                met.add(m)
                todo.append((Reach([m.slot], None), m.segment.metas.get))


def refuse_other_thread(step: Step) -> ThreadError:
    return ThreadError(
        f"backward: its way leads through a value that another thread has recorded ({step.op.name} at {step.site}) "
        "and not computed, and that graph is the other thread's: call sync() there first, or detach() the value"
    )


def _is_elsewhere(tr: Trace, meta: Gradient) -> bool:
    """Whether a record is that of a value which a transform tracks in another thread, and which is pending there."""
    return meta.segment is None and meta.slot is not None and meta.slot.step.owner is not tr


def refuse_elsewhere(tr: Trace, versions: Versions, is_wanted: Callable[[Gradient], bool]) -> None:
    """Raise ThreadError if gradients may be asked of what lies behind a value that is pending in another thread."""
    for m in versions:
        if _is_elsewhere(tr, m) and not is_wanted(m):
            assert m.slot is not None
            raise refuse_other_thread(m.slot.step)


def retained(tr: Trace, passed: Passed) -> dict[Gradient, tuple[Slot, ...]]:
    """The records of synced values that keep their gradient, among what a backward goes through; the values there."""
    found = [
        (record(), (tr.replayed[segment][x],))
        for segment, inside in passed
        for x, record in segment.retained.items()
        if x in inside.through
    ]
    return {m: group for m, group in found if m is not None and m.retains}


def asked_here(tr: Trace, asked: Asked, through: Container[Slot], passed: Passed) -> dict[Gradient, Slot]:
    """Where the values that `asked` names stand on this trace, among those that a backward goes through."""
    found = {m: s for m, (segment, s) in asked.items() if segment is None and s in through}
    for segment, inside in passed:
        found |= {
            m: tr.replayed[segment][s] for m, (where, s) in asked.items() if where is segment and s in inside.through
        }
        for x, copy in segment.copies.items() if asked else ():
            if x in inside.through and not copy.computed:
                found |= {m: copy.on(tr) for m, (where, s) in asked.items() if where is copy.segment and s is copy.slot}
    return found


def consume(passed: Passed) -> None:
    """Free the graph of all that a backward went through."""
    for segment, inside in passed:
        segment.consumed = segment.consumed | set(inside.steps)
    for rule in passed.rules:
        rule.free()


def link_synced(
    tr: Trace, reach: Reach, passed: Passed, asked: Asked = EMPTY, whole: bool = False
) -> tuple[Links, Versions]:
    """Follow a backward across syncs: which leaf of this trace stands for which replayed value, and every leaf met.

    As leaves count values without anything behind them on this device: copies from another one, and what a function
    is differentiated by.
    """
    versions: Versions = {}
    links: dict[Slot, tuple[float, Slot]] = {}
    todo = [(reach, math.inf)]
    met: set[Slot] = set()
    while todo:
        r, number = todo.pop()
        for leaf, slots in r.leaves.items():
            found = tr.metas.get(leaf.step.index)
            meta = found() if found is not None else None
            if meta is not None:
                group = versions.setdefault(meta, [])
                group.extend(s for s in slots if s not in group)
        for slot in r.synced:
            if slot in met:
                if slot in links and links[slot][1] is tr.metas[slot.step.index]().slot:
                    links[slot] = min(links[slot][0], number - 0.5), links[slot][1]
                continue
            met.add(slot)
            meta = tr.metas[slot.step.index]()
            if meta is None:
                continue
            if meta.slot is None or _is_elsewhere(tr, meta):
                versions.setdefault(meta, []).append(slot)
                continue
            origin = behind(tr, meta, passed, asked, whole)
            # NOTE: a value of this trace stands before what another thread has computed from it.
            at = number - 0.5 if meta.segment is None else meta.segment.number
            links[slot] = at, origin
            todo.append((Reach([origin], None), at))
    order = sorted(links, key=lambda x: (-links[x][0], x.step.index))
    return tuple((x, links[x][1]) for x in order), versions


__all__ = [
    "EMPTY", "Passed", "Segment", "across_syncs", "asked_here", "behind", "consume", "link_synced", "make_segment",
    "refuse_elsewhere", "refuse_other_thread", "retained",
]  # fmt: skip
