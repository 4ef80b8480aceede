"""The steps of a trace that an error of a sync belongs to, so that values which depend on none are computed.

An error names the recorded operation that it comes from (`errors.recorded_of`). Where it does not, because planning or
code generation raised it for some node, the step is found by halves: of the steps that lead to what is wanted the first
whose values cannot be computed.

    attempt [loss, y] fails; path x -> a -> b -> loss, x -> y
    attempt [a] is computed; attempt [b] fails: the step is b, what it spoils is b and loss, and y is computed
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.autograd.reachability import lane_bound
from lazyt.autograd.vjp_step import BACKWARD, read_by
from lazyt.errors import (
    NotSupportedError,
    OutOfMemory,
    described,
    found_at,
    is_fault,
    is_lasting,
    recorded_of,
    site_of,
)
from lazyt.runtime.computing import Snapshot, compute, differentiable
from lazyt.runtime.liveness import commit, wanted_of
from lazyt.runtime.sync_report import SyncReport
from lazyt.tracing.program import INPUT, MODE, Slot
from lazyt.tracing.steps import settle
from lazyt.tracing.tensor_state import Data, Holder
from lazyt.tracing.trace import Step, Trace, local

if TYPE_CHECKING:
    from lazyt.autograd.saved_segment import Segment
    from lazyt.ops import effects
    from lazyt.runtime import effect_calls
    from lazyt.tracing.call_site import Site
else:
    effects = on_demand.module("lazyt.ops.effects")
    effect_calls = on_demand.module("lazyt.runtime.effect_calls")

# How often a sync tries again without the steps that failed; then each value is computed by itself when it is read.
TRIES = 64


class Failing:
    """The steps of a trace that fail, and those that read what they give."""

    def __init__(self, path: Sequence[Step]) -> None:
        self.path = path
        self.culprits: list[Step] = []
        self.spoilt: set[Step] = set()
        self.refused: set[Any] = set()  # the lines that a device cannot run
        self._named: set[Any] = set()

    def add(self, error: BaseException) -> bool:
        """Count the steps that an error names; False if it names none that is new."""
        recorded = recorded_of(error)
        if recorded.site is None:
            return False
        refused = isinstance(error, NotSupportedError)
        if refused:
            self.refused.add(recorded.site)
        name = recorded, refused
        again, before = name in self._named, len(self.spoilt)
        self._named.add(name)
        if 0 <= recorded.step < len(self.path):
            step = self.path[recorded.step]
            found = [] if not recorded.backward or again else [s for s in self.path if _pulls(s, step)]
            self.spoil(found or [step])
        else:
            here = [s for s in self.path if s.site == recorded.site and s.op is not INPUT and s.op is not MODE]
            fallible = [s for s in here if s.op.fallible and not effects.is_effect(s.op)]
            self.spoil(here if refused or again or not fallible else fallible)
        return len(self.spoilt) > before

    def spoil(self, culprits: Sequence[Step]) -> None:
        """Count some steps, and all that read what they give."""
        self.culprits += [s for s in culprits if s not in self.spoilt]
        self.spoilt.update(culprits)
        for s in self.path:
            # NOTE: what a backward reads besides its operands led to one of them.
            if any(x.step in self.spoilt for x in _operands(s)):
                self.spoilt.add(s)

    def find(self, want: Sequence[Slot], fails: Callable[[Sequence[Slot]], bool]) -> Step | None:
        """The first of the steps leading to `want` whose values cannot be computed; None if all of `want` can be."""
        if not fails(want):
            return None
        needed = {x.step for x in want}
        for s in reversed(self.path):
            if s in needed:
                needed.update(x.step for x in _operands(s))
        steps = [s for s in self.path if s in needed and s.op is not INPUT and s.op is not MODE]
        without = lane_bound(self.path)
        first, last = 0, len(steps) - 1
        while first < last:
            middle = (first + last) // 2
            some = _across(steps, middle, want, without)
            if some and fails(some):
                last = middle
            else:
                first = middle + 1
        return steps[last]


def _operands(s: Step) -> Iterator[Slot]:
    return (x for x in s.operands if isinstance(x, Slot))


def _pulls(s: Step, step: Step) -> bool:
    """Whether a step is a backward through another one."""
    return s.op is BACKWARD and any(x.step is step for x in read_by(s))


def _across(steps: Sequence[Step], middle: int, want: Sequence[Slot], without: set[Step]) -> list[Slot]:
    """The values of the steps up to `middle` that the steps behind it read, or that are wanted."""
    before = {*steps[: middle + 1]}
    read = [*want, *(x for s in steps[middle + 1 :] for x in _operands(s))]
    return [x for x in dict.fromkeys(read) if x.step in before and x.step not in without]


def is_searched(error: BaseException) -> bool:
    """Whether the step that an error comes from is looked for: not for want of memory, which no step has alone."""
    return isinstance(error, Exception) and not isinstance(error, MemoryError)


def name_culprit(error: BaseException, path: Sequence[Step], culprits: Sequence[Step], slot: Slot) -> None:
    """Have the error of one value say which of the steps that failed it is of."""
    for s in culprits if is_searched(error) else ():
        failing = Failing(path)
        failing.spoil([s])
        if slot.step in failing.spoilt:
            found_at(error, s.op.name, s.site)
            return


def as_raised(error: BaseException, cause: str) -> BaseException:
    """The error as a read raises it: a fault of lazyt's own, and a want of memory, by these names."""
    if isinstance(error, MemoryError) and not isinstance(error, OutOfMemory):
        # Python's own, or NumPy's: what a plan is made of found no memory.
        made: Exception = OutOfMemory(f"{cause}: {str(error) or 'no memory is left'}; what was pending still is")
    elif isinstance(error, Exception) and is_fault(error):
        made = described(error)
    else:
        return error
    notes = getattr(error, "__notes__", ())
    if notes:
        made.args = (f"{made.args[0]} ({'; '.join(notes)})",)
    made.__cause__ = error
    return made


def culprits_of(
    tr: Trace, error: BaseException, snapshot: Snapshot, slots: Sequence[Slot], holders: Sequence[Holder],
    others: Sequence[Holder], report: SyncReport,
) -> Sequence[Step] | None:  # fmt: skip
    """After a sync that failed: compute what depends on no step that fails, and return these; the trace is left next.

    None, and all is pending as before, after an interrupt, or an exception of a handler of signals, which is one too.
    Where a function of the user's raised the interrupt, the trace is left, so that what does not call it can be read.
    """
    if not isinstance(error, Exception):
        # NOTE: an effect that was called is not called again; those behind it are.
        return None if site_of(error) is None or tr.effects else ()
    failing = Failing(snapshot.pos.steps())

    def attempt(
        want: Sequence[Slot], views: Sequence[Holder] = ()
    ) -> tuple[list[Data], Segment | None, Snapshot]:  # fmt: skip
        segment = differentiable(tr, want, views)
        rest = snapshot.again(segment)
        report.forget()  # what failed is not what ran
        need = want if segment is None else [*want, *segment.slots]
        return compute(rest, need, report) if need else [], segment, rest

    def fails(want: Sequence[Slot]) -> bool:
        try:
            attempt(want)
        except Exception:  # noqa: BLE001 - only where it fails is asked
            return True
        return False

    want = list(slots)
    first = error
    for _ in range(TRIES):
        if not failing.add(error):
            step = failing.find(want, fails) if is_searched(error) else None
            if step is None and is_searched(error):  # it was a handler of signals
                if error is first:
                    return None
                raise error
            if step is None or step in failing.spoilt:
                break
            failing.spoil([step])
            found_at(error, step.op.name, step.site)
        good = [(s, h) for s, h in zip(slots, holders, strict=True) if s.step not in failing.spoilt]
        want = [s for s, _ in good]
        left = effect_calls.left_over(tr, failing.spoilt, failing.refused) if tr.effects else []
        for x in effect_calls.read_by(left, want) if left else ():
            want.append(x)
            good.append((x, Holder()))
            good[-1][1]._slot = x
        try:
            values, segment, rest = attempt(
                want, [h for h in others if h._slot is None or h._slot.step not in failing.spoilt]
            )
        except Exception as e:  # noqa: BLE001 - the first error is the one that is raised
            # NOTE: its traceback has this frame, which would keep it, and tensors with it, until a collection.
            error = e.with_traceback(None)
            continue
        # NOTE: a holder that was written is met at its old value too.
        unable = {id(h) for s, h in zip(slots, holders, strict=True) if s.step in failing.spoilt}
        still = [h for h in others if id(h) not in unable]
        commit(tr, want, [h for _, h in good], still, values, segment, rest.residuals)
        if left:
            effect_calls.make_left(left, dict(zip(want, values, strict=False)), rest)
        return failing.culprits
    if tr.effects:
        effect_calls.left_over(tr, {*failing.path}, ())
    return failing.culprits


def own_error(asked: Holder, cause: str, site: Site | None) -> Exception | None:
    """Why a value that a sync has left cannot be computed; None, and it is, if it can be by itself."""
    try:
        recover(asked, SyncReport(cause, site))
    except Exception as e:  # noqa: BLE001 - the sync raises it
        return e
    return None


def recover(holder: Holder, report: SyncReport) -> None:
    """Compute a value of a trace that was left, as a sync would, and what else is wanted of it, if that can be."""
    slot = holder._slot
    assert slot is not None, "it is pending"
    tr: Trace = slot.step.owner
    if tr.pos.mode.memory is not local.trace.mode.memory:  # a budget around the read takes the place of others
        tr.mode = local.trace.mode
        settle(tr)

    def give(slots: Sequence[Slot], holders: Sequence[Holder]) -> None:
        segment = differentiable(tr, slots)
        snapshot = Snapshot(tr).again(segment)
        want = slots if segment is None else [*slots, *segment.slots]
        values = compute(snapshot, want, report) if want else []
        commit(tr, slots, holders, (), values, segment, snapshot.residuals)

    tr.computing = True
    try:
        try:
            give([slot], [holder])
        except Exception as e:
            name_culprit(e, tr.pos.steps(), tr.culprits, slot)
            raise
        slots, holders, _ = wanted_of(tr)
        try:
            give(slots, holders)
        except Exception as e:
            if not is_lasting(e, lambda: give(slots, holders)):
                raise
    finally:
        tr.computing = False
