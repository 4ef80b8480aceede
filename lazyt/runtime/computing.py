"""Computation of a trace's values by its plan, or by the plans of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.autograd.engine import consumed_on
from lazyt.autograd.saved_segment import Segment, graphs_of, make_segment
from lazyt.backends.common.commit_flag import Receipt
from lazyt.errors import OutOfMemory, failed_to_plan, relocate
from lazyt.runtime.first_run import Stepwise
from lazyt.runtime.plan import Plan
from lazyt.runtime.plan_cache import find_plan, is_shown
from lazyt.runtime.replay import ENQUEUE, counters, sites_of
from lazyt.runtime.subprograms import partition
from lazyt.runtime.sync_report import SyncReport
from lazyt.tracing.program import Program, Slot
from lazyt.tracing.tensor_state import Data, Holder
from lazyt.tracing.trace import Trace

if TYPE_CHECKING:
    from lazyt.ir.residuals import Residuals
    from lazyt.runtime import effect_calls, memory_errors
    from lazyt.runtime.chain import PartRun
    from lazyt.runtime.partition import Partition
else:
    effect_calls = on_demand.module("lazyt.runtime.effect_calls")
    memory_errors = on_demand.module("lazyt.runtime.memory_errors")


def differentiable(tr: Trace, wanted: Sequence[Slot], others: Sequence[Holder] = ()) -> Segment | None:
    """The segment that a later backward through these values and views needs; None where they have no graph."""
    graphs = graphs_of(wanted, others)
    return make_segment(tr, graphs, consumed_on(tr)) if graphs else None


class Snapshot:
    """State of a trace at a sync, which another thread may compute while the owner records."""

    __slots__ = ("exact", "ext", "inputs", "later", "pos", "residuals", "scalars")

    def __init__(self, tr: Trace, segment: Segment | None = None) -> None:
        """segment: the part of the trace that a later backward needs."""
        self.later = None if segment is None else segment.later
        self.residuals: Residuals | None = None  # of `later`, set by the run; their values follow the wanted ones
        self.exact = False  # compute nothing else: a plan for more values might fail
        pos = self.pos = tr.pos
        self.ext = tr.ext
        self.scalars = tr.scalars[: pos.scalar_start + pos.n_scalars]
        self.inputs = tr.inputs

    def again(self, segment: Segment | None) -> Snapshot:
        """The same state, to compute some of the values alone."""
        made = object.__new__(Snapshot)
        made.pos, made.ext, made.scalars, made.inputs = self.pos, self.ext, self.scalars, self.inputs
        made.later, made.residuals, made.exact = None if segment is None else segment.later, None, True
        return made

    @property
    def program(self) -> Program:
        """The recorded program."""
        return self.pos.program

    def sites(self) -> list[Any]:
        return sites_of(self.pos)


def compute(
    snapshot: Snapshot, want: Sequence[Slot], report: SyncReport, receipt: Receipt | None = None
) -> list[Data]:  # fmt: skip
    """Runs a plan for each device of these slots; where it raises, everything is still pending."""
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
    snapshot: Snapshot, parts: Partition, want: Sequence[Slot], report: SyncReport
) -> list[Data]:  # fmt: skip
    """Computes the values of `want` by the parts of a long trace, one after another.

    NOTE: no input of the trace is overwritten, for any part may fail; what an earlier part computed may be.
    """
    progress = parts.progress(snapshot.scalars, snapshot.inputs)
    for part in parts.parts:
        run = part.run(progress)
        # NOTE: a part that only led to failed values has no wanted ones.
        found = _compute_on_one(run, run.want, report, Receipt()) if run.want else []
        part.receive(progress, run, found)
        # NOTE: so the next part may overwrite values that only these hold.
        del run, found
    report.parts += len(parts.parts)
    return [progress.values[x] for x in want]


def _compute_on_one(
    snapshot: Snapshot | PartRun, want: Sequence[Slot], report: SyncReport, receipt: Receipt | None
) -> list[Data]:  # fmt: skip
    if type(snapshot) is Snapshot and not is_shown(snapshot.program):
        parts = partition(snapshot.pos, snapshot.ext, want)
        if parts is not None:
            try:
                return _compute_parts(snapshot, parts, want, report)
            except OutOfMemory:
                if not parts.undivided():
                    raise
                report.forget()  # the failed parts did not run
    extents = snapshot.ext.values
    t0 = perf_counter()
    whole = type(snapshot) is Snapshot
    exact = whole and snapshot.exact  # type: ignore[union-attr]
    try:
        plan, reason = find_plan(snapshot.program, snapshot.ext, want, snapshot.scalars, snapshot.later, exact)
    except Exception as e:
        failed_to_plan(e)
        relocate(e, snapshot.sites, whole)
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
    except BaseException as e:
        if isinstance(e, MemoryError) and isinstance(plan, Plan):
            memory_errors.name_largest(e, plan, extents, snapshot.scalars)
        relocate(e, snapshot.sites, whole)
        raise
    if isinstance(plan, Plan):
        snapshot.residuals = plan.residuals
    if plan.asynchronous:
        for data in out:
            if (locate := getattr(data.buffer, "located", None)) is not None:
                locate(snapshot.sites)
        # Before any handle gets its value, so everything stays pending where it raises.
        for data in out if report.cause not in ENQUEUE else ():
            data.buffer.settle()
    compiles, seconds = plan.take_compiles()
    # Sums: a trace on two devices has a plan on each.
    report.run_time += perf_counter() - t1
    report.plan_time += t1 - t0
    # A stepwise run compiles while it runs.
    if isinstance(plan, Stepwise):
        report.run_time -= seconds
    else:
        report.plan_time -= seconds
    report.kernels += plan.kernels
    report.launches += plan.launches
    if isinstance(plan, Stepwise):
        report.interpreted += len(plan.interpreted)
        if not plan.launches:
            # NumPy computed everything: there is no plan.
            report.plans -= 1
            counters.plans -= 1
    if compiles:
        report.compiles += compiles
        report.compile_time += seconds
    if receipt is not None:
        report.in_place = receipt.donated
    counters.kernels += plan.kernels
    return out
