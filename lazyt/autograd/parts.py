"""A backward in parts: one step between each two places where a Python function takes a cotangent over.

Such places are values with a hook and results of custom functions. Steps are visited from the last to the first; at
such a place all that comes behind it is pulled back, so its cotangent is complete. No step is pulled back twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lazyt.autograd.custom import inputs_of
from lazyt.autograd.reachability import Reach
from lazyt.autograd.saved_segment import KNOWN, Asked, Passed, asked_here, link_synced, refuse_other_thread, retained
from lazyt.autograd.track import CUSTOM, TRACK
from lazyt.autograd.transfers import Totals, add_to
from lazyt.autograd.vjp_step import BACKWARD, Create, read_by, vjp_step
from lazyt.errors import AutogradError, ShapeError
from lazyt.ops.definition import OPS
from lazyt.tracing.current import restore_grad_mode, set_grad_mode
from lazyt.tracing.program import Slot, position
from lazyt.tracing.record import record, slot_of
from lazyt.tracing.tensor_state import Gradient, Handle
from lazyt.tracing.trace import Step, Trace

# Where a step stands: that of a repeated trace (see saved_segment.py) by the number of its segment, older ones first.
Place = tuple[float, int]
FIRST: Place = (-1.0, -1)


class _Below:
    """The values of steps up to a place, where a part ends; leaves end the search themselves."""

    def __init__(self, cut: Place, place: Callable[[Step], Place]) -> None:
        self.cut, self.place = cut, place

    def __contains__(self, slot: object) -> bool:
        assert isinstance(slot, Slot)
        return (slot.leaf is None or slot.step.op is TRACK) and self.place(slot.step) <= self.cut


class Parts:
    """One backward that Python functions take part in."""

    def __init__(
        self, tr: Trace, passed: Passed, is_wanted: Callable[[Gradient], bool], create: Create, retain: bool,
        keeps: bool, asked: Asked,
    ) -> None:  # fmt: skip
        self.tr, self.passed, self.is_wanted = tr, passed, is_wanted
        self.create, self.retain, self.keeps, self.asked = create, retain, keeps, asked
        self.pending: dict[Slot, Handle] = {}  # cotangents on their way
        self.totals: Totals = {}
        self.groups: dict[Gradient, list[Slot]] = {}
        self.origins: dict[Slot, Slot] = {}  # a synced value as it is met -> made again on this trace
        self.through: set[Slot] = set()
        self.places: dict[Step, Place] = {}  # of steps that repeat others: their segments, and where those stand there
        self.barriers: set[Step] = set()
        self.done: set[Step] = set()
        self.read: dict[Step, Sequence[Slot]] = {}
        # Where some leaf is not wanted, the steps that lead to what is; None: all do.
        self.leading: set[Step] | None = None
        self.unwanted = False

    def run(self, outputs: Sequence[Slot], cotangents: Sequence[Handle]) -> Totals:
        """The cotangents of all that is wanted."""
        before = set_grad_mode(bool(self.create))
        try:
            self._discover(outputs)
            for slot, ct in zip(outputs, cotangents, strict=True):
                self._add(slot, ct)
            while self.barriers:
                barrier = max(self.barriers, key=self._place)
                self.barriers.discard(barrier)
                self.done.add(barrier)
                self._pull_above(self._place(barrier))
                self._take_over(barrier)
            self._pull_above(FIRST)
        finally:
            restore_grad_mode(before)
        return self.totals

    def _place(self, s: Step) -> Place:
        return self.places.get(s) or (math.inf, s.index)

    def _add(self, slot: Slot, ct: Handle) -> None:
        before = self.pending.get(slot)
        self.pending[slot] = ct if before is None else record(OPS["add"], (before, ct))
        if slot.step.op is CUSTOM:  # again, if a function has recorded what leads there
            self.barriers.add(slot.step)

    def _discover(self, sources: Sequence[Slot]) -> None:
        """Follow these values: across syncs, and to what is wanted."""
        tr = self.tr
        reach = Reach(sources, None)
        links, versions = link_synced(tr, reach, self.passed, self.asked)
        for _, origin in links:
            if origin.leaf is not None:
                raise refuse_other_thread(origin.step)
        self.origins.update(links)
        todo = [reach]
        while todo:
            r = todo.pop()
            behind = [self.origins[x] for x in r.synced if x in self.origins and self.origins[x] not in self.through]
            self.through |= r.through
            todo += [Reach([x], None) for x in behind]
        for m, group in versions.items():
            if self.is_wanted(m):
                self._want(m, group)
            else:
                self.unwanted = True
        if self.keeps:
            behind_sync = retained(tr, self.passed)
            for m, s in tr.retained.items():
                # NOTE: a synced value hands its cotangent on to itself as it was made again, which is counted.
                if m.retains and s in self.through and m not in behind_sync:
                    self._want(m, [s])
            for m, group_there in behind_sync.items():
                self._want(m, group_there)
        for m, s in asked_here(tr, self.asked, self.through, self.passed).items():
            self._want(m, [s])
        # NOTE: the oldest last, for a later segment has values of earlier ones.
        for segment, slots in sorted(tr.replayed.items(), key=lambda item: -item[0].number):
            for before, x in slots.items():
                # NOTE: by the order of that trace: values are repeated as they are asked for, the last ones first.
                place = self.places[x.step] = (segment.number, before.step.index)
                if x.step.op is KNOWN:
                    # What a kept value is the result of stands where that does, too.
                    self.places[x.step.operands[0].step] = place
        steps = {s for s in tr.customs if not self.through.isdisjoint(s.slots)}
        steps |= {x.step for x, hooks in tr.slot_hooks.items() if hooks and x in self.through}
        self.barriers |= steps - self.done
        self.leading = self._found_leading() if self.unwanted else None

    def _found_leading(self) -> set[Step]:
        """The steps from which something wanted is reached; Python functions of the others are not called."""
        wanted = {x for group in self.groups.values() for x in group}
        found: set[Step] = set()
        # NOTE: a kept value stands where what it is the result of does, and comes behind it.
        for s in sorted({x.step for x in self.through}, key=lambda s: (self._place(s), s.index)):
            before = s.operands if s.op is not CUSTOM else inputs_of(s)
            unknown = s.op is CUSTOM and not before
            before = (*before, *(self.origins[x] for x in s.slots if x in self.origins))
            # NOTE: what a checkpoint depends on is found out when its function is called again.
            if (
                unknown
                or not wanted.isdisjoint(s.slots)
                or any(isinstance(x, Slot) and x.step in found for x in (*before, *self._inside(s)))
            ):
                found.add(s)
        return found

    def _leads(self, slot: Slot) -> bool:
        return self.leading is None or slot.step in self.leading

    def _inside(self, s: Step) -> Sequence[Slot]:
        """What a step reads besides its operands: what comes of that ends in this part too, or goes on from there."""
        reads = read_by if s.op is BACKWARD else getattr(s.op, "reads", None)
        if reads is None:
            return ()
        if s not in self.read:
            self.read[s] = sorted(reads(s), key=position)
        return self.read[s]

    def _want(self, m: Gradient, slots: Sequence[Slot]) -> None:
        group = self.groups.setdefault(m, [])
        group.extend(s for s in slots if s not in group)

    def _pull_above(self, cut: Place) -> None:
        """Pull back all steps behind this place; what stands before a sync has its cotangent only then."""
        while self.pending:
            top = max(self._place(s.step) for s in self.pending)
            if top <= cut:
                return
            self._part(max(cut, (top[0], -1)))

    def _part(self, cut: Place) -> None:
        tr = self.tr
        outs = [s for s in self.pending if self._place(s.step) > cut]
        cts = [slot_of(tr, self.pending.pop(s)) for s in outs]
        reach = Reach(outs, _Below(cut, self._place), self._inside)
        ends = set(reach.barriers)
        here = {m: own for m, group in self.groups.items()
                if (own := tuple(s for s in group if s in reach.through and s not in ends))}  # fmt: skip
        on = [x for x in (*reach.barriers, *(x for x in reach.synced if x in self.origins)) if self._leads(x)]
        if not here and not on:
            return
        asked = [*here.values(), *((s,) for s in on)]
        got = vjp_step(tr, outs, cts, asked, (), self.create, self.retain, reach)
        for m, ct in zip(here, got, strict=False):
            add_to(self.totals, m, ct)
        for s, ct in zip(on, got[len(here) :], strict=True):
            self._add(self.origins.get(s, s), ct)

    def _take_over(self, step: Step) -> None:
        """Run the Python functions at a place."""
        tr = self.tr
        cts: list[Any] = [self.pending.pop(s, None) for s in step.slots]
        for k, s in enumerate(step.slots):
            if cts[k] is not None:
                cts[k] = through_hooks(list(tr.slot_hooks.get(s, ())), cts[k])
        rule = tr.customs.get(step) if step.op is CUSTOM else None
        if rule is None:
            self.pending.update((s, ct) for s, ct in zip(step.slots, cts, strict=True) if ct is not None)
            return
        if all(ct is None for ct in cts):
            return
        for m, group in self.groups.items():
            for s, ct in zip(step.slots, cts, strict=True):
                if s in group and ct is not None:
                    add_to(self.totals, m, ct)
        pairs = rule.pull(tr, step, cts, bool(self.create))
        self.passed.rules.append(rule)
        new = [s for s, _ in pairs if s not in self.through and s.requires_grad]
        if new:
            self._discover(new)
        for s, ct in pairs:
            if s.requires_grad and self._leads(s):
                self._add(s, ct)


def through_hooks(hooks: Sequence[Callable[[Any], Any]], ct: Any) -> Any:
    """A gradient as hooks leave it."""
    for hook in hooks:
        replaced = hook(ct)
        if replaced is None:
            continue
        if not isinstance(replaced, Handle):
            raise AutogradError(f"register_hook: a hook must return a tensor or None, not {type(replaced).__name__!r}")
        if replaced.shape != ct.shape:
            raise ShapeError(
                f"register_hook: a hook has changed the size of value: the gradient has shape {ct.shape}, it returned "
                f"{replaced.shape}"
            )
        ct = replaced
    return ct
