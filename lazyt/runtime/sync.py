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
from lazyt.autograd.reachability import lane_bound
from lazyt.autograd.saved_segment import views_of
from lazyt.autograd.track import has_graph
from lazyt.backends.common.commit_flag import Receipt
from lazyt.errors import OutOfMemory, SyncError, is_out_of_frames
from lazyt.ir import dtypes
from lazyt.runtime import memory
from lazyt.runtime.computing import Snapshot, compute, differentiable
from lazyt.runtime.liveness import apart, commit, is_wanted, stand, wanted_of
from lazyt.runtime.plan import Plan
from lazyt.runtime.plan_cache import drop_plans
from lazyt.runtime.replay import ENQUEUE, Again, counters
from lazyt.runtime.replay_update import remember
from lazyt.runtime.subprograms import iteration_left
from lazyt.runtime.sync_report import SyncReport
from lazyt.tracing import record as recording
from lazyt.tracing.call_site import Site, user_site
from lazyt.tracing.inference import mark
from lazyt.tracing.inputs import MANY, without_value
from lazyt.tracing.lanes import InLanes, note_impure
from lazyt.tracing.program import Slot
from lazyt.tracing.steps import hooks, settle
from lazyt.tracing.tensor_state import EXTERNAL, Data, Handle, Holder, Storage
from lazyt.tracing.trace import Trace, holding, local

if TYPE_CHECKING:
    from lazyt.runtime import effect_calls, failures, linked_parts
else:
    effect_calls = on_demand.module("lazyt.runtime.effect_calls")
    failures = on_demand.module("lazyt.runtime.failures")
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

    What fails stays pending, in a trace left behind; the rest is computed. The error is raised if nothing in particular
    was asked for; if `asked` is among what failed, its own error.
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
        drop_unused(tr, lambda: [*_held(tr), *(slot for slot, _ in extra)])
    if pos.again and not extra:
        # NOTE: extents that come in turn, as lengths and batch sizes do, have a replay each.
        again = pos.again = pos.again.by_extents.get(tr.ext, pos.again)
        if again.run(tr, cause, site):
            if tr.expectations:
                expected(tr)
            return
    if tr.pos.parent is None:
        return  # a handler of signals has synced meanwhile
    if tr.customs or tr.slot_hooks or tr.retained:
        drop_unused(tr, lambda: [*_held(tr), *(slot for slot, _ in extra)])
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
            segment, want = None, slots
            snapshot, receipt = Snapshot(tr), Receipt(cause not in ENQUEUE)
            try:
                segment = differentiable(tr, slots, others)
                want = slots if segment is None else [*slots, *segment.slots]
                snapshot.later = None if segment is None else segment.later
                idle = tr.let_go()
                values = compute(snapshot, want, report, receipt) if want else []
                commit(tr, slots, holders, others, values, segment, snapshot.residuals)
            except BaseException as e:  # noqa: BLE001 - it is raised, or what it leads to
                error: BaseException | None = e
                if receipt.written and isinstance(report.plan, Plan):
                    # An interrupt after the inputs were overwritten: the results stand, and it goes on afterwards.
                    plan = report.plan
                    stand(tr, lambda: _results(tr, plan, receipt, snapshot, want, slots, holders, others, segment))
                elif not is_out_of_frames(e):
                    error = _after(tr, e, snapshot, slots, holders, others, report, asked)
                # NOTE: a traceback keeps this frame, which must not keep tensors alive: they would be wanted again.
                del slots, holders, others, segment, want, snapshot, extra
                try:
                    if error is e:
                        raise
                    if error is not None:
                        raise error from error.__cause__
                finally:
                    del error
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


def _after(
    tr: Trace, error: BaseException, snapshot: Snapshot, slots: Sequence[Slot], holders: Sequence[Holder],
    others: Sequence[Holder], report: SyncReport, asked: Holder | None,
) -> BaseException | None:  # fmt: skip
    """Compute what can be after an error of a sync, and leave the trace to the rest: the error to raise, if any."""
    culprits = failures.culprits_of(tr, error, snapshot, slots, holders, others, report)
    if culprits is None:
        return failures.as_raised(error, report.cause)
    # What an effect reads nobody else may read.
    raised = not isinstance(error, Exception) or (bool(tr.effects) and effect_calls.lost(tr))
    tr.leave(culprits)
    if not raised and asked is None:
        raised = report.cause not in UNASKED
    elif not raised and asked is not None:
        own = None if asked._buffer is not None else failures.own_error(asked, report.cause, report.site)
        if isinstance(own, OutOfMemory) and isinstance(error, OutOfMemory):
            own.args = error.args  # the least that it names is that of all that is pending
        try:
            return None if own is None else failures.as_raised(own, report.cause)
        finally:
            del own, error  # NOTE: its traceback leads here, as in `sync`
    return failures.as_raised(error, report.cause) if raised else None


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


def _results(
    tr: Trace, plan: Plan, receipt: Receipt, snapshot: Snapshot, want: Sequence[Slot], slots: Sequence[Slot],
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
        values = compute(Snapshot(tr), [s for s, _ in wanted], report)
        values = apart(values) if EXTERNAL else values
    tr.more = True  # NOTE: a handle that has a value is none for another trace (see `Trace.results`)
    for (slot, h), data in zip(wanted, values, strict=True):
        if h._slot is slot and is_wanted(h, slot.step):
            h._buffer = data
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
            if box._buffer is not None:
                return box._buffer
        raise without_value()
    for _ in range(MANY):
        holder: Holder = h._storage if h._storage is not None else h
        data = holder._buffer
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
            found, slot = holder._buffer, holder._slot
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
            snapshot = Snapshot(tr)
            # NOTE: the owner may have synced meanwhile: only one trace's parts belong together.
            if tr.inputs is inputs and holder._slot is slot:
                break
        else:
            raise without_value()
        lanes = next((x for x in reversed(tr.syncs_forbidden) if isinstance(x, InLanes)), None)
        if lanes is not None and slot.step in lane_bound(snapshot.pos.steps()):
            raise lanes.refusal(report.cause, user_site())
        try:
            if tr.failed:
                failures.recover(holder, report)
                assert holder._buffer is not None, "it is computed"
                return holder._buffer
            data = compute(snapshot, [slot], report)[0]
            data = apart([data])[0] if EXTERNAL else data
        except Exception as e:  # noqa: BLE001 - it is raised
            error = failures.as_raised(e, report.cause)
            try:
                if error is e:
                    raise
                raise error from e
            finally:
                del error  # NOTE: its traceback leads here
        limit = recording.MAX_BYTES
    # NOTE: no call in here. The same slot may stand for a value of the owner's next trace.
    if tr.inputs is inputs:
        tr.more = True  # NOTE: a handle that has a value is none for another trace (see `Trace.results`)
        tr.polled += 1
        if tr.polled >= recording.POLLS:
            tr.nbytes = limit  # so the owner looks
        if holder._slot is slot and is_wanted(holder, slot.step):
            holder._buffer = data
    counters.syncs += 1
    local.trace.report = report
    return data


def give_up(holder: Holder) -> None:
    """Let a value that could not be computed be NaN, or 0: it is overwritten next."""
    with holding:
        slot = holder._slot
        if slot is None or holder._buffer is not None:
            return
        kind = dtypes.kind(slot.dtype)
        blank = np.full(slot.shape, np.nan if kind in "fc" else 0, slot.dtype)
        data = memory.from_array(blank, slot.step.device)
        if type(holder) is Storage:
            holder.invalidate(None)
        if holder._slot is slot:
            # NOTE: no call from here on.
            holder._buffer = data
            holder._slot = None


def _held(tr: Trace) -> list[Slot]:
    """The values that are held, those of views among them."""
    slots, _, others = wanted_of(tr)
    return [*slots, *(x for _, x in views_of(others))]


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
    if holder._buffer is None:
        sync(tr, "another thread", None, (), holder)


hooks.sync, hooks.sync_for = _run, _sync_for
hooks.iteration_left, hooks.may_end = _iteration_left, _may_end
hooks.compute_foreign = compute_foreign
hooks.give_up = give_up
