"""A sync: what is alive says what is wanted, the walk's plan computes it, and the walk ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from lazyt import record as recording
from lazyt.autograd.engine import consumed_on
from lazyt.autograd.segment import Segment, make_segment
from lazyt.backends.cpu.receipt import Receipt
from lazyt.errors import SyncError
from lazyt.handle import Data, Gradient, Handle, Holder, Storage
from lazyt.looking.report import SyncReport
from lazyt.planning import Plan, find_plan
from lazyt.record import LEAF
from lazyt.trace import Site, Slot, Trace, local, user_site


class Counters:
    """Totals of the process, for tests and benchmarks."""

    def __init__(self) -> None:
        self.syncs = self.plans = self.kernels = self.superset_plans = 0


counters = Counters()
_last = threading.local()
_lock = threading.RLock()


def last_report() -> SyncReport | None:
    return getattr(_last, "report", None)


def _place(x: tuple[Slot, Holder]) -> tuple[int, int]:
    return x[0].step.index, x[0].k


def wanted_of(tr: Trace) -> tuple[list[tuple[Slot, Holder]], list[Holder]]:
    """The values that somebody holds and that are not computed yet; and every holder this walk knows."""
    wanted: list[tuple[Slot, Holder]] = []
    met: list[Holder] = []
    path = tr.pos.steps()
    end = len(path)
    for i, h in tr.alive():
        met.append(h)
        slot = h._slot
        # NOTE: a handle with a storage holds no value of its own; a holder with another slot was written since.
        if slot is not None and i < end and slot.step is path[i] and slot.step.op is not LEAF and h._storage is None:
            wanted.append((slot, h))
    if len(wanted) > 1:
        wanted.sort(key=_place)
    return wanted, met


def differentiable(tr: Trace, wanted: Sequence[tuple[Slot, Holder]]) -> Segment | None:
    """What a later backward through these values will need; None when none goes through them."""
    graphs = [s for s, _ in wanted if s.requires_grad and s.leaf is None]
    return make_segment(tr, graphs, consumed_on(tr)) if graphs else None


def check_allowed(tr: Trace, cause: str, site: Site | None) -> None:
    """`no_sync()` refuses at the line that would compute."""
    if tr.syncs_forbidden:
        raise SyncError(
            f"no_sync: a sync is not allowed here (cause: {cause}, at {site}), inside no_sync() entered at "
            f"{tr.syncs_forbidden[-1]}"
        )


def sync(tr: Trace, cause: str, site: Site | None = None, extra: Sequence[tuple[Slot, Holder]] = ()) -> None:
    """Compute everything alive (and `extra`), put it behind its holders, and start a new walk."""
    if tr.pos.parent is None:
        return
    if site is None:
        site = user_site()
    check_allowed(tr, cause, site)
    wanted, met = wanted_of(tr)
    known = {slot for slot, _ in wanted}
    wanted.extend((s, h) for s, h in extra if s not in known)
    report = SyncReport(cause, site, tr.pos.index + 1, len(wanted), record_time=time.perf_counter() - tr.started)
    segment = differentiable(tr, wanted)
    # NOTE: also what is computed goes behind its holders under the lock: another thread that waits for it to compute a
    # value of this walk must then find the value, because the walk's leaves may be overwritten.
    with _lock:
        slots = [s for s, _ in wanted]
        saved = segment.slots if segment is not None else ()
        walk, receipt = _Snapshot(tr), Receipt()
        try:
            values = _compute(walk, slots, saved, report, receipt) if wanted else []
            report.in_place = receipt.donated
            _commit(tr, wanted, met, values, segment)
        except BaseException:
            if receipt.written and isinstance(report.plan, Plan):
                # An interrupt after the leaves were overwritten: the results stand, and it goes on afterwards.
                values = report.plan.values(receipt.buffers, walk.ext.values, walk.leaves, [*slots, *saved])
                _commit(tr, wanted, met, values, segment)
                tr.start()
            # NOTE: a traceback keeps this frame, which must not keep tensors alive: they would be wanted again.
            del wanted, met, segment, slots, saved, walk
            raise
    counters.syncs += 1
    _last.report = report
    for e in tr.expectations:
        e.note(report)
    if tr.n_steps > recording.MAX_TRIE:
        tr.reset_trie()
    else:
        tr.start()


class _Snapshot:
    """A walk as it stands: another thread may compute it while its owner goes on."""

    __slots__ = ("ext", "leaves", "pos", "scalars")

    def __init__(self, tr: Trace) -> None:
        pos = self.pos = tr.pos
        self.ext = tr.ext
        self.scalars = tr.scalars[: pos.scalar_start + pos.n_scalars]
        self.leaves = tr.leaves


def _compute(
    walk: _Snapshot, slots: Sequence[Slot], saved: Sequence[Slot], report: SyncReport, receipt: Receipt | None = None
) -> list[Data]:
    """Run the plan of this walk for these slots, one a device; raises with everything still pending."""
    want = [*slots, *saved]
    devices = dict.fromkeys(s.step.device for s in want)
    if len(devices) == 1:
        return _compute_on_one(walk, want, report, receipt)
    values: dict[Slot, Data] = {}
    for d in devices:
        some = [s for s in want if s.step.device == d]
        values.update(zip(some, _compute_on_one(walk, some, report, None), strict=True))
    return [values[s] for s in want]


def _compute_on_one(walk: _Snapshot, want: list[Slot], report: SyncReport, receipt: Receipt | None) -> list[Data]:
    t0 = time.perf_counter()
    plan, report.reason = find_plan(walk.pos, walk.ext, want, walk.scalars)
    t1 = time.perf_counter()
    report.plan, report.extents = plan, walk.ext.values
    report.plan_hit = not report.reason
    plans = 0 if report.plan_hit else 1
    superset = len(plan.wanted) > len(want)
    counters.plans += plans
    counters.superset_plans += superset
    out = plan.run(walk.ext.values, walk.scalars, walk.leaves, want, receipt)
    compiles, compile_time = plan.take_compiles()
    counters.kernels += plan.kernels
    # Added up: a walk over two devices has a plan on each.
    report.plans += plans
    report.superset |= superset
    report.run_time += time.perf_counter() - t1
    report.kernels += plan.kernels
    report.launches += plan.launches
    report.compiles += compiles
    report.compile_time += compile_time
    report.plan_time += t1 - t0 - compile_time
    return out


def _commit(
    tr: Trace, wanted: Sequence[tuple[Slot, Holder]], met: Sequence[Holder], values: Sequence[Data], segment: Any
) -> None:
    """Values go behind their holders; every holder leaves the walk. Cannot fail."""
    for (slot, h), data in zip(wanted, values, strict=False):
        h._data = data
        if slot.requires_grad and slot.leaf is None:
            if h._meta is None:
                h._meta = Gradient(True, is_leaf=False)
            h._meta.slot = slot
            h._meta.segment = segment if segment is not None and slot in segment.outputs else None
        elif slot.leaf is None and h._meta is not None and not h._meta.is_leaf:
            h._meta = None
    if segment is not None:
        segment.keep(values[len(wanted) :])
    for h in met:
        h._slot = None
        if type(h) is Storage:
            h.invalidate(None)


def materialise(h: Handle, cause: str) -> Data:
    """The computed value of h, syncing if it is pending."""
    if h._view is not None:
        box = Holder()
        tr = local.trace
        slot = recording.slot_of(tr, h)
        sync(tr, cause, None, [(slot, box)])
        assert box._data is not None
        return box._data
    holder: Holder = h._storage if h._storage is not None else h
    if holder._data is None:
        slot = holder._slot  # type: ignore[assignment]
        if slot.step.owner is not local.trace:
            return compute_foreign(holder)
        sync(local.trace, cause)
    assert holder._data is not None
    return holder._data


def compute_foreign(holder: Holder) -> Data:
    """Compute what another thread has pending so that this one can read it; the owner's walk goes on untouched."""
    check_allowed(local.trace, "another thread", None)
    report = SyncReport("another thread", user_site())
    # NOTE: from here on the owner cannot overwrite the leaves of its walk.
    with _lock:
        while True:
            slot = holder._slot
            if slot is None:
                assert holder._data is not None, "a holder with neither a pending nor a computed value"
                return holder._data  # its owner was faster
            tr = slot.step.owner
            leaves = tr.leaves
            walk = _Snapshot(tr)
            # NOTE: the owner may have synced meanwhile: only one walk's parts belong together.
            if tr.leaves is leaves and holder._slot is slot:
                break
        data = _compute(walk, [slot], (), report)[0]
    if holder._slot is slot:
        holder._data = data
    counters.syncs += 1
    _last.report = report
    return data


def _run(tr: Trace, cause: str, site: Any = None) -> None:
    sync(tr, cause, site)


recording.hooks.sync = _run
recording.hooks.compute_foreign = compute_foreign
