"""A sync: what is alive says what is wanted, the trace's plan computes it, and the trace ends."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import partial
from time import perf_counter, sleep
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt import on_demand
from lazyt.autograd.custom import drop_unused
from lazyt.autograd.engine import consumed_on
from lazyt.autograd.saved_segment import Segment, graphs_of, make_segment
from lazyt.autograd.track import has_graph
from lazyt.backends.common.commit_flag import Receipt
from lazyt.errors import (
    LazytError,
    NotSupportedError,
    OutOfMemory,
    SyncError,
    described,
    failed_to_plan,
    is_fault,
    relocate,
    site_of,
)
from lazyt.ir import dtypes
from lazyt.runtime import memory
from lazyt.runtime.first_run import Stepwise
from lazyt.runtime.liveness import apart, commit, is_wanted, stand, wanted_of
from lazyt.runtime.plan_cache import Plan, drop_plans, find_plan, is_shown
from lazyt.runtime.replay import ENQUEUE, Again, counters, sites_of
from lazyt.runtime.replay_update import remember
from lazyt.runtime.subprograms import iteration_left, partition
from lazyt.runtime.sync_report import SyncReport
from lazyt.tracing import record as recording
from lazyt.tracing.call_site import Site, user_site
from lazyt.tracing.inference import mark
from lazyt.tracing.inputs import MANY, without_value
from lazyt.tracing.lanes import InLanes, note_impure
from lazyt.tracing.steps import hooks, settle
from lazyt.tracing.tensor_state import EXTERNAL, Data, Handle, Holder, Storage
from lazyt.tracing.trace import Slot, Trace, holding, local

if TYPE_CHECKING:
    from lazyt.ir.residuals import Residuals
    from lazyt.ops import effects
    from lazyt.runtime import effect_calls, linked_parts
    from lazyt.runtime.partition import Partition
    from lazyt.runtime.templates import PartRun
else:
    effects = on_demand.module("lazyt.ops.effects")
    effect_calls = on_demand.module("lazyt.runtime.effect_calls")
    linked_parts = on_demand.module("lazyt.runtime.linked_parts")

# Syncs that come at a line which has nothing to do with what is computed.
UNASKED = frozenset(("bound", "another thread"))


def last_report() -> SyncReport | None:
    """What the last sync of this thread did; that of a repeated one is written now."""
    tr = local.trace
    if type(tr.report) is tuple:
        tr.report = _repeated(*tr.report)
    found: SyncReport | None = tr.report
    return found


def differentiable(tr: Trace, wanted: Sequence[Slot], others: Sequence[Holder]) -> Segment | None:
    """What a later backward through these values will need, and through views; None when none goes through them."""
    graphs = graphs_of(wanted, others)
    return make_segment(tr, graphs, consumed_on(tr)) if graphs else None


def check_allowed(tr: Trace, cause: str, site: Site | None) -> None:
    """`no_sync()` refuses at the line that would compute."""
    if tr.syncs_forbidden:
        if isinstance(last := tr.syncs_forbidden[-1], InLanes):
            raise last.refusal(cause, site)
        raise SyncError(
            f"no_sync: a sync is not allowed here (cause: {cause}, at {site}), inside no_sync() entered at "
            f"{tr.syncs_forbidden[-1]}"
        )


def sync(
    tr: Trace, cause: str, site: Site | None = None, extra: Sequence[tuple[Slot, Holder]] = (),
    asked: Holder | None = None,
) -> None:  # fmt: skip
    """Compute everything alive (and `extra`), put it behind its holders, and start a new trace.

    What fails because of its data (an index) stays pending, in a trace left behind; the rest is computed. The error is
    raised if `asked` is among what failed, or nothing in particular was asked for.
    """
    pos = tr.pos
    if pos.parent is None or (extra and not _in_trace(tr, extra)):
        return
    if site is None:
        site = user_site()
    if tr.syncs_forbidden:
        check_allowed(tr, cause, site)
    if tr.busy:
        _read_aside(tr, cause, site, extra, asked)
        return
    if tr.effects and not effect_calls.are_called(tr):
        effect_calls.with_effects(tr, partial(sync, tr, cause, site, extra, asked))
        return
    if pos.mode is not tr.mode:
        settle(tr)
        pos = tr.pos
    if tr.mode.inference:
        mark(tr)
    if tr.customs and not all(rule.freed for rule in tr.customs.values()):
        drop_unused(tr, lambda: wanted_of(tr)[0])
    if pos.again and not extra:
        # NOTE: extents that come in turn, as lengths and batch sizes do, have a replay each.
        again = pos.again = pos.again.by_extents.get(tr.ext, pos.again)
        if again.run(tr, cause, site):
            if tr.expectations:
                expected(tr)
            return
    if tr.pos.parent is None:
        return  # a handler of signals has synced meanwhile
    # NOTE: also what is computed goes behind its holders under the lock: another thread that waits for it to compute a
    # value of this trace must then find the value, because the trace's inputs may be overwritten.
    with holding:
        # NOTE: whoever records meanwhile (a handler of signals, a finalizer) has a trace of its own.
        aside = tr.aside()
        own, pos = local.trace, tr.pos
        tr.computing, local.trace = True, aside
        try:
            slots, holders, others = wanted_of(tr)
            if not _in_trace(tr, extra):
                return
            for slot, h in extra:
                if slot not in slots:
                    slots.append(slot)
                    holders.append(h)
            report = SyncReport(cause, site, pos.index + 1, len(slots), perf_counter() - tr.started)
            segment = differentiable(tr, slots, others)
            want = slots if segment is None else [*slots, *segment.slots]
            idle = tr.let_go()
            snapshot, receipt = _Snapshot(tr, segment), Receipt(cause not in ENQUEUE)
            try:
                values = _compute(snapshot, want, report, receipt) if want else []
                commit(tr, slots, holders, others, values, segment, snapshot.residuals)
            except BaseException as e:
                raised, fault = True, None
                if isinstance(e, Exception) and _without(tr, e, snapshot, slots, holders, others, report):
                    raised = cause not in UNASKED if asked is None else asked._data is None
                    # What an effect reads nobody else may read.
                    raised = raised or (bool(tr.effects) and effect_calls.lost(tr))
                    tr.leave()
                elif receipt.written and isinstance(report.plan, Plan):
                    # An interrupt after the inputs were overwritten: the results stand, and it goes on afterwards.
                    plan = report.plan
                    stand(tr, lambda: _results(tr, plan, receipt, snapshot, want, slots, holders, others, segment))
                elif isinstance(e, Exception) and is_fault(e):
                    # What a value of this trace needs alone may be without the fault: whoever wants one tries.
                    tr.leave()
                    raised, fault = False, described(e)
                # NOTE: a traceback keeps this frame, which must not keep tensors alive: they would be wanted again.
                del slots, holders, others, segment, want, snapshot, extra
                if fault is not None:
                    raise fault from e
                if raised:
                    if isinstance(e, MemoryError) and not isinstance(e, LazytError):
                        # Python's own, or NumPy's: what a plan is made of found no memory.
                        raise OutOfMemory(f"{cause}: {str(e) or 'no memory is left'}; what was pending still is") from e
                    raise
                _finish(tr, report)
                return
            if (report.plan_hit or not slots) and not extra:
                parts = report.parts
                as_one = linked_parts.link(tr, want, segment, report.run_time) if parts else report.plan
                if as_one is not None or not parts:
                    remember(tr, as_one, slots, holders, others, segment, idle, receipt.donated)
            _finish(tr, report)
        finally:
            tr.computing = False
            local.trace = own


def _in_trace(tr: Trace, extra: Sequence[tuple[Slot, Holder]]) -> bool:
    """Whether this trace still has these values: a signal handler may have ended the one that they were found on."""
    if not extra:
        return True
    path = tr.pos.steps()
    return all(slot.step.index < len(path) and path[slot.step.index] is slot.step for slot, _ in extra)


def called_from(again: Again, frame: FrameType) -> None:
    """The line that calls `lazyt.sync()` is another one than the last time here."""
    site = again.site = user_site()
    again.code, again.lasti = frame.f_code, frame.f_lasti if site.code is frame.f_code else -1


def expected(tr: Trace) -> None:
    """The sync that was done again just now is one of those that are counted."""
    _note(tr, _repeated(*tr.report))


def _repeated(again: Again, cause: str, site: Site, record_time: float, run_time: float) -> SyncReport:
    report = SyncReport(cause, site, again.steps, again.n_outputs, record_time)
    plan = again.plan
    if plan is not None:
        for part, extents in plan.ran(again.ext.values):
            report.add(part, extents)
        report.plan_hit, report.parts = True, plan.parts
        report.kernels, report.launches = plan.kernels, plan.launches
        report.run_time, report.in_place = run_time, again.in_place
    return report


def _note(tr: Trace, report: SyncReport) -> None:
    for expected in tr.expectations:
        expected.note(report)


def _finish(tr: Trace, report: SyncReport) -> None:
    """What follows every sync: it is counted, and the trace starts anew."""
    counters.syncs += 1
    tr.report = report
    _note(tr, report)
    if drop_plans(tr):
        tr.reset_trie()
        gc.collect()  # steps refer to each other
    else:
        tr.start()


def _without(
    tr: Trace, error: Exception, snapshot: _Snapshot, slots: Sequence[Slot], holders: Sequence[Holder],
    others: Sequence[Holder], report: SyncReport,
) -> bool:  # fmt: skip
    """After an error of one line's data, or one that its device does not support: compute what no such line leads to.

    False if that fails in another way.
    """
    failing: set[Any] = set()
    refused = isinstance(error, NotSupportedError)
    while site_of(error) is not None and site_of(error) not in failing:
        failing.add(site_of(error))
        spoilt: set[Any] = set()
        for s in snapshot.pos.steps():
            # NOTE: what a backward reads besides its operands led to one of them.
            reads = any(x.step in spoilt for x in s.operands if isinstance(x, Slot))
            fails = refused or (s.op.fallible and not effects.is_effect(s.op))
            if reads or (fails and s.site in failing):
                spoilt.add(s)
        good = [(s, h) for s, h in zip(slots, holders, strict=True) if s.step not in spoilt]
        want = [s for s, _ in good]
        segment = differentiable(tr, want, [h for h in others if h._slot is None or h._slot.step not in spoilt])
        left = effect_calls.left_over(tr, spoilt, failing if refused else ()) if tr.effects else []
        for x in effect_calls.read_by(left, want) if left else ():
            want.append(x)
            good.append((x, Holder()))
            good[-1][1]._slot = x
        rest = _Snapshot(tr, segment)
        rest.pos, rest.ext, rest.scalars, rest.inputs = snapshot.pos, snapshot.ext, snapshot.scalars, snapshot.inputs
        report.forget()  # what failed is not what ran
        try:
            need = want if segment is None else [*want, *segment.slots]
            values = _compute(rest, need, report) if need else []
        except Exception as e:  # noqa: BLE001 - the first error is the one that is raised
            # NOTE: its traceback has this frame, which would keep it, and tensors with it, until a collection.
            error, refused = e.with_traceback(None), refused or isinstance(e, NotSupportedError)
            continue
        # NOTE: a holder that was written is met at its old value too.
        unable = {id(h) for s, h in zip(slots, holders, strict=True) if s.step in spoilt}
        still = [h for h in others if id(h) not in unable]
        commit(tr, want, [h for _, h in good], still, values, segment, rest.residuals)
        if left:
            effect_calls.make_left(left, dict(zip(want, values, strict=False)), rest)
        return True
    return False


class _Snapshot:
    """A trace as it stands: another thread may compute it while its owner goes on."""

    __slots__ = ("ext", "inputs", "later", "pos", "residuals", "scalars")

    def __init__(self, tr: Trace, segment: Segment | None = None) -> None:
        """segment: what a later backward needs of the trace."""
        self.later = None if segment is None else segment.later
        self.residuals: Residuals | None = None  # of `later`, once it is computed: its values are behind the others
        pos = self.pos = tr.pos
        self.ext = tr.ext
        self.scalars = tr.scalars[: pos.scalar_start + pos.n_scalars]
        self.inputs = tr.inputs

    def sites(self) -> list[Any]:
        return sites_of(self.pos)


def _compute(
    snapshot: _Snapshot, want: Sequence[Slot], report: SyncReport, receipt: Receipt | None = None
) -> list[Data]:  # fmt: skip
    """Run the plan of this trace for these slots, one a device; raises with everything still pending."""
    tr = snapshot.pos.owner
    if not snapshot.pos.mixed:
        if tr.effects:
            effect_calls.run_of(tr, snapshot.pos.device)
        return _compute_on_one(snapshot, want, report, receipt)
    values: dict[Slot, Data] = {}
    devices = dict.fromkeys(s.step.device for s in want)
    for d in devices:
        some = [s for s in want if s.step.device == d]
        if tr.effects:
            effect_calls.run_of(tr, d)
        found = _compute_on_one(snapshot, some, report, receipt if len(devices) == 1 else None)
        values.update(zip(some, found, strict=True))
    return [values[s] for s in want]


def _compute_parts(
    snapshot: _Snapshot, parts: Partition, want: Sequence[Slot], report: SyncReport
) -> list[Data]:  # fmt: skip
    """The values of `want` from the parts of a long trace, one after the other.

    NOTE: no input of the trace is overwritten, for any part may fail; what an earlier part computed may be.
    """
    progress = parts.progress(snapshot.scalars, snapshot.inputs)
    for part in parts.parts:
        run = part.run(progress)
        found = _compute_on_one(run, run.want, report, Receipt())
        part.receive(progress, run, found)
        # NOTE: what only these hold the next part may overwrite.
        del run, found
    report.parts += len(parts.parts)
    return [progress.values[x] for x in want]


def _compute_on_one(
    snapshot: _Snapshot | PartRun, want: Sequence[Slot], report: SyncReport, receipt: Receipt | None
) -> list[Data]:  # fmt: skip
    if type(snapshot) is _Snapshot and not is_shown(snapshot.pos):
        parts = partition(snapshot.pos, snapshot.ext, want)
        if parts is not None:
            try:
                return _compute_parts(snapshot, parts, want, report)
            except OutOfMemory:
                if not parts.undivided():
                    raise
                report.forget()  # what failed is not what ran
    extents = snapshot.ext.values
    t0 = perf_counter()
    try:
        plan, reason = find_plan(snapshot.pos, snapshot.ext, want, snapshot.scalars, snapshot.later)
    except Exception as e:
        failed_to_plan(e)
        raise
    t1 = perf_counter()
    report.add(plan, extents)
    if reason:
        report.why = report.why or reason
        report.plans += 1
        counters.plans += 1
        report.stored += isinstance(plan, Plan) and plan.from_disk
    report.plan_hit = not report.plans
    if len(plan.wanted) > len(want):
        report.superset = True
        counters.superset_plans += 1
    try:
        out = plan.run(extents, snapshot.scalars, snapshot.inputs, want, receipt)
    except Exception as e:
        relocate(e, snapshot.sites)
        raise
    if isinstance(plan, Plan):
        snapshot.residuals = plan.residuals
    if plan.asynchronous:
        for data in out:
            if (locate := getattr(data.buffer, "located", None)) is not None:
                locate(snapshot.sites)
        # Before anything is put behind a handle, so that it all stays pending.
        for data in out if report.cause not in ENQUEUE else ():
            data.buffer.settle()
    compiles, seconds = plan.take_compiles()
    # Added up: a trace over two devices has a plan on each.
    report.run_time += perf_counter() - t1
    report.plan_time += t1 - t0
    # What runs step by step compiles while it runs.
    if isinstance(plan, Stepwise):
        report.run_time -= seconds
    else:
        report.plan_time -= seconds
    report.kernels += plan.kernels
    report.launches += plan.launches
    if isinstance(plan, Stepwise):
        report.interpreted += len(plan.interpreted)
        if not plan.launches:
            # Nothing was planned: NumPy computed it all.
            report.plans -= 1
            counters.plans -= 1
    if compiles:
        report.compiles += compiles
        report.compile_time += seconds
    if receipt is not None:
        report.in_place = receipt.donated
    counters.kernels += plan.kernels
    return out


def _results(
    tr: Trace, plan: Plan, receipt: Receipt, snapshot: _Snapshot, want: Sequence[Slot], slots: Sequence[Slot],
    holders: Sequence[Holder], others: Sequence[Holder], segment: Any,
) -> None:  # fmt: skip
    """Commit what a plan has put into inputs and buffers."""
    values = plan.values(receipt.buffers, snapshot.ext.values, snapshot.inputs, want)
    commit(tr, slots, holders, others, values, segment, plan.residuals)


def _read_aside(
    tr: Trace, cause: str, site: Site | None, extra: Sequence[tuple[Slot, Holder]], asked: Holder | None
) -> None:  # fmt: skip
    """While an operation is being recorded a handler of signals, or a finalizer, reads: the trace does not end for it.

    What is asked for is computed of the trace as it stands; what `sync()` would compute is left to the next one.
    """
    wanted = [*extra]
    if asked is not None and asked._slot is not None:
        wanted.append((asked._slot, asked))
    if not wanted:
        return
    report = SyncReport(cause, user_site() if site is None else site)
    with holding:
        values = _compute(_Snapshot(tr), [s for s, _ in wanted], report)
        values = apart(values) if EXTERNAL else values
    tr.more = True  # NOTE: a handle that has a value is none for another trace (see `Trace.results`)
    for (slot, h), data in zip(wanted, values, strict=True):
        if h._slot is slot and is_wanted(h, slot.step):
            h._data = data
    counters.syncs += 1
    tr.report = report


def materialise(h: Handle, cause: str) -> Data:
    """The computed value of h, syncing if it is pending."""
    note_impure("it reads a value")
    if h._view is not None:
        tr = local.trace
        for _ in range(MANY):
            box = Holder()
            box._slot = recording.slot_of(tr, h)
            sync(tr, cause, None, [(box._slot, box)], box)
            if box._data is not None:
                return box._data
        raise without_value()
    for _ in range(MANY):
        holder: Holder = h._storage if h._storage is not None else h
        data = holder._data
        if data is not None:
            return data
        pending = holder._slot
        if pending is None:  # NOTE: another thread computes it, or makes a storage of it, between two looks
            sleep(0)
        elif pending.step.owner is not local.trace:
            return compute_foreign(h)
        else:
            # NOTE: this function and who calls it are lazyt's.
            sync(local.trace, cause, user_site(2), (), holder)
    raise without_value()


def compute_foreign(holder: Holder) -> Data:
    """Compute what another thread has pending so that this one can read it; the owner's trace goes on untouched."""
    asked = local.trace
    if asked.syncs_forbidden:
        slot = (holder._storage or holder)._slot
        failed = slot is not None and slot.step.owner.failed
        check_allowed(asked, "a value that could not be computed" if failed else "another thread", user_site())
    report = SyncReport("another thread", user_site())
    # NOTE: from here on the owner cannot overwrite the inputs of its trace.
    with holding:
        for _ in range(MANY):
            if holder._storage is not None:
                holder = holder._storage
            found, slot = holder._data, holder._slot
            if found is not None:
                return found  # its owner was faster
            if slot is None:  # NOTE: between two looks it got a value, or a storage
                sleep(0)
                continue
            tr = slot.step.owner
            if tr.computing:
                raise SyncError(
                    "sync: a value that is being computed cannot be used by what interrupts that (a handler of "
                    "signals, a finalizer): it can be used afterwards"
                )
            inputs = tr.inputs
            snapshot = _Snapshot(tr)
            # NOTE: the owner may have synced meanwhile: only one trace's parts belong together.
            if tr.inputs is inputs and holder._slot is slot:
                break
        else:
            raise without_value()
        try:
            data = _compute(snapshot, [slot], report)[0]
            data = apart([data])[0] if EXTERNAL else data
        except Exception as e:
            if is_fault(e):
                raise described(e) from e
            raise
        limit = recording.MAX_BYTES
    # NOTE: no call in here. The same slot may stand for a value of the owner's next trace.
    if tr.inputs is inputs:
        tr.more = True  # NOTE: a handle that has a value is none for another trace (see `Trace.results`)
        tr.polled += 1
        if tr.polled >= recording.POLLS:
            tr.nbytes = limit  # so the owner looks
        if holder._slot is slot and is_wanted(holder, slot.step):
            holder._data = data
    counters.syncs += 1
    local.trace.report = report
    return data


def give_up(holder: Holder) -> None:
    """Let a value that could not be computed be NaN, or 0: it is overwritten next."""
    with holding:
        slot = holder._slot
        if slot is None or holder._data is not None:
            return
        kind = dtypes.kind(slot.dtype)
        blank = np.full(slot.shape, np.nan if kind in "fc" else 0, slot.dtype)
        data = memory.from_array(blank, slot.step.device)
        if type(holder) is Storage:
            holder.invalidate(None)
        if holder._slot is slot:
            # NOTE: no call from here on.
            holder._data = data
            holder._slot = None


def _run(tr: Trace, cause: str, site: Any = None) -> None:
    sync(tr, cause, site)


def _iteration_left(tr: Trace) -> int | None:
    """How many steps at least are left of a loop's iteration; None for a trace that goes round none, or must not end.

    A function under `jit` keeps its trace.
    """
    return None if tr.syncs_forbidden or tr.impure is not None else iteration_left(tr.pos)


def _may_end(tr: Trace) -> bool:
    """Whether a trace may end here: a value that somebody may still differentiate keeps it."""
    if tr.syncs_forbidden or tr.impure is not None:
        return False
    freed = consumed_on(tr)
    return not any(has_graph(x) and x.step not in freed for x in wanted_of(tr)[0])


def _sync_for(tr: Trace, x: Handle) -> None:
    """Compute what is pending here for x, which threads take turns at writing."""
    holder: Holder = x._storage or x
    if holder._data is None:
        sync(tr, "another thread", None, (), holder)


hooks.sync, hooks.sync_for = _run, _sync_for
hooks.iteration_left, hooks.may_end = _iteration_left, _may_end
hooks.compute_foreign = compute_foreign
hooks.give_up = give_up
