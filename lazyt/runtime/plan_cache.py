"""Lookup of plans by program, wanted values and guards; a missing plan is made.

A program that is new and small runs at once through kernels of one operation each, which most programs share, or by
NumPy (first_run.py); when it comes again it gets fused kernels. All give the same bits.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyt import on_demand
from lazyt.autograd.engine import BACKWARD
from lazyt.backends.registry import loaded
from lazyt.config import general as settings
from lazyt.forking import PLANS, process_lock
from lazyt.ops.joining import CONCAT, STACK
from lazyt.ops.residuals import PULL
from lazyt.runtime import cache_miss, first_run
from lazyt.runtime.first_run import Stepwise, is_single, runs_stepwise
from lazyt.runtime.kept import MAX_PLAN_BYTES, Budget
from lazyt.runtime.plan import Plan, Wanted, build, elsewhere, guards_hold, names
from lazyt.tracing.program import Slot
from lazyt.tracing.trace import Ext, holding

if TYPE_CHECKING:
    from lazyt.autograd.later import Later
    from lazyt.runtime import chain
    from lazyt.tracing.program import Program
    from lazyt.tracing.trace import Trace
else:
    chain = on_demand.module("lazyt.runtime.chain")

# A program with at most this many steps, and without a backward, runs unfused the first time ...
SMALL_PROGRAM = 24
# ... if its values have at most this many elements,
SMALL_SIZE = 1 << 18
# ... and step by step, without a plan of its own, if they have at most this many: planning would cost most.
TINY_SIZE = 1 << 14
# A program with at least this many steps on such small values runs step by step the first time too. Straight-line code
# of this length mostly runs once; its fused kernels cost a millisecond a step to compile, a step alone 30 us.
LONG_PROGRAM = 1024
# A plan that computes more than the wanted values is used if the rest is at most this part of its bytes.
LITTLE = 20

_lock = process_lock(PLANS)


class Plans:
    """The plans of all equal programs, shared by lines and threads."""

    __slots__ = ("misses", "plans", "seen", "stepped")

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.seen = 0
        self.stepped = False  # it has run step by step
        self.misses: list[Wanted] = []


# NOTE: these entries outlive tries. They keep no slot, which would keep a whole trie alive.
_programs: dict[int, Plans] = {}
MAX_PROGRAMS = 1 << 14
budget = Budget(MAX_PLAN_BYTES)


class Shown(NamedTuple):
    """A plan that inspection showed, and the number of its program; the next sync of the program runs this plan."""

    number: int
    plan: Plan


# The latest one alone: it serves the next sync.
_shown: Shown | None = None


def drop_plans(tr: Trace) -> bool:
    """Drops all plans where they or their code take too much memory; True if the trie of a trace has to go too.

    That is at its own next sync: tries are their threads'.
    """
    budget.add_steps(tr.n_new, tr.pos.index + 1)
    tr.n_new = 0
    if budget.is_spent() or any(b.is_crowded() for b in loaded()):
        drop_all()
    # NOTE: a new trace has none of the plans that were dropped before it began.
    gone, tr.dropped = tr.dropped not in (-1, budget.drops), budget.drops
    return gone


def drop_all() -> None:
    """Drops all plans; each thread drops its trie at its next planned sync."""
    global _shown
    with _lock:
        budget.drop()
        _shown = None
        _programs.clear()
        chain.forget()
        first_run.forget()


def forget_plans(kind: str) -> None:
    """Drops the plans for devices of a kind and ends the replays that run them."""
    with holding, _lock:
        gone = {p for p in elsewhere if p.device.partition(":")[0] == kind}
        for p in gone:
            p.end()
        for known in _programs.values():
            known.plans = [p for p in known.plans if p not in gone]
        first_run.forget()


def _plans_of(program: Program) -> Plans:
    found: Plans | None = program.plans
    if found is None:
        found = _programs.get(program.number)
        if found is None:
            if len(_programs) >= MAX_PROGRAMS:
                _programs.clear()
            found = _programs[program.number] = Plans()
        program.plans = found
    return found


def find_plan(
    program: Program, ext: Ext, want: Sequence[Slot], scalars: Sequence[Any], later: Later | None = None,
    exact: bool = False,
) -> tuple[Plan | Stepwise, str | cache_miss.Why]:  # fmt: skip
    """A plan that computes `want` for these extents, and the reason why it was made ('' for a known plan).

    later: the differentiation behind a sync whose residuals it computes too. exact: it computes no other values.
    """
    global _shown
    with _lock:
        known, plan = _plans_of(program), program.plan
        name = None if later is None else later.name
        found: Plan | Stepwise
        why: str | cache_miss.Why
        same = plan is not None and ext is program.ext and want == program.want and plan.fused and plan.later == name
        if same and not (exact and len(plan.wanted) > len(want)):
            found, why = plan, ""
        else:
            found, why = _choose(known, program, ext, want, names(want), scalars, later, exact)
            program.plan = found if isinstance(found, Plan) else None
            program.ext, program.want = ext, list(want)
        if is_shown(program):
            _shown = None
        return found, why


def _choose(
    known: Plans, program: Program, ext: Ext, want: Sequence[Slot], wanted: Wanted, scalars: Sequence[Any],
    later: Later | None, exact: bool,
) -> tuple[Plan | Stepwise, str | cache_miss.Why]:  # fmt: skip
    fused = _fused(known, program, ext, later)
    known.seen += 1
    if later is None and not fused and (_is_tiny(program, ext) or _is_long(program, ext)):
        known.stepped = True
        why = cache_miss.new_program(program)
        cache_miss.mark_known(program)
        return _stepwise(program, ext, want, wanted, scalars), why
    found, reason = _search(known, program, ext, wanted, fused, later, exact)
    if found is not None:
        cache_miss.mark_known(program)
        return found, ""
    want = list(want)
    if reason.startswith(cache_miss.OTHERS) and known.misses and not exact and _cannot_fail(program) and later is None:
        want = _union(known, program, want)
    known.misses.append(wanted)
    del known.misses[:-4]
    collects, begun = gc.isenabled(), perf_counter()
    try:
        # NOTE: planning leaves hardly any garbage, and collections would take a fifth of its time.
        gc.disable()
        plan = shown(program, ext, want, fused, later) or build(program, ext.values, want, scalars, fused, True, later)
        plan.compile(ext.values, scalars)
    finally:
        # NOTE: no call comes before this, so no interrupt does.
        if collects:
            gc.enable()
    known.plans.append(plan)
    budget.add_plan((program.number, plan.wanted, len(plan.guards)), len(plan.graph.nodes), perf_counter() - begun)
    cache_miss.mark_known(program)
    return plan, reason


def _stepwise(program: Program, ext: Ext, want: Sequence[Slot], wanted: Wanted, scalars: Sequence[Any]) -> Stepwise:
    def build_one() -> Plan:
        plan = build(program, ext.values, want, scalars, False)
        plan.executable.bound[ext.values] = plan.executable.bind(ext.values, scalars)
        return plan

    return Stepwise(program.calls, wanted, build_one)


def _fused(known: Plans | None, program: Program, ext: Ext, later: Later | None) -> bool:
    """Whether the next run of a program uses fused kernels."""
    if later is not None or program.end.op is PULL:
        # NOTE: a pull belongs to one forward plan, so this one has to be the plan that stays.
        return settings["fuse"]
    new = (known is None or known.seen == 0) and (_shown is None or _shown.number != program.number)
    return settings["fuse"] and not (settings["tiers"] and new and (_is_small(program, ext) or _is_long(program, ext)))


def _search(
    known: Plans, program: Program, ext: Ext, wanted: Wanted, fused: bool, later: Later | None = None,
    exact: bool = False,
) -> tuple[Plan | None, str]:  # fmt: skip
    """A known plan for the wanted values; or None and the reason."""
    need = set(wanted)
    name = None if later is None else later.name
    near: Plan | None = None
    unfused = known.stepped and fused
    safe = not exact and _cannot_fail(program)
    for plan in known.plans:
        if fused and not plan.fused and settings["fuse"]:
            unfused = True
        elif not plan.holds(ext.values) or plan.later != name:
            near = near or plan
        elif plan.wanted == wanted or (safe and need < set(plan.wanted) and _little_more(plan, ext, need)):
            return plan, ""
        else:
            near = plan
    if near is not None:
        if near.holds(ext.values) and near.later != name:
            return None, cache_miss.LATER
        if near.holds(ext.values):
            return None, cache_miss.liveness(near.wanted, wanted, program)
        if guards_hold(near.guards)(ext.values):
            return None, cache_miss.OVER_BUDGET
        return None, cache_miss.guards_fail(near.guards, ext.values, program)
    return None, cache_miss.SEEN_AGAIN if unfused else cache_miss.new_program(program)()


def peek(
    program: Program, ext: Ext, want: Sequence[Slot], later: Later | None = None
) -> tuple[Plan | None, str, bool]:  # fmt: skip
    """The plan that a sync would find, or None and the reason; and whether it would fuse. Changes nothing."""
    with _lock:
        known: Plans | None = program.plans or _programs.get(program.number)
        fused = _fused(known, program, ext, later)
        if known is None:
            return None, cache_miss.new_program(program)(), fused
        plan, reason = _search(known, program, ext, names(want), fused, later)
        return plan, reason, fused


def show(program: Program, plan: Plan) -> None:
    """Makes the next sync of this program run a plan, undivided."""
    global _shown
    with _lock:
        _shown = Shown(program.number, plan)


def is_shown(program: Program) -> bool:
    """Whether the latest shown plan is one of this program."""
    return _shown is not None and _shown.number == program.number


def shown(program: Program, ext: Ext, want: Sequence[Slot], fused: bool, later: Later | None = None) -> Plan | None:
    """The shown plan, if it computes these values for these extents."""
    if _shown is None or _shown.number != program.number:
        return None
    plan = _shown.plan
    name = None if later is None else later.name
    fits = plan.fused == fused and plan.later == name and plan.wanted == names(want) and plan.holds(ext.values)
    return plan if fits else None


def _is_tiny(program: Program, ext: Ext, steps: int = SMALL_PROGRAM) -> bool:
    """Whether an unfused program with fewer than `steps` steps runs step by step."""
    planned = not settings["fuse"] or settings["verify"] or settings["interpret"]
    if planned or not _is_small(program, ext, TINY_SIZE, steps):
        return False
    return runs_stepwise(program.calls) and not is_single(program.calls)


def runs_alone(program: Program, ext: Ext) -> bool:
    """Whether the steps of an unfused program run one by one, by NumPy where that has the same bits."""
    return settings["first"] and (_is_tiny(program, ext) or _is_long(program, ext))


def _is_long(program: Program, ext: Ext) -> bool:
    """Whether a program is long and its data small, so that it runs step by step the first time."""
    return program.end.index >= LONG_PROGRAM and _is_tiny(program, ext, program.end.index + 1)


def _is_small(program: Program, ext: Ext, most: int = SMALL_SIZE, steps: int = SMALL_PROGRAM) -> bool:
    size = joined = 0
    for s in program.calls:
        # NOTE: a growing list is a new program each time; its join has one input an element, which do not count.
        if s.op is CONCAT or s.op is STACK:
            joined += len(s.operands)
        # NOTE: only fused plans obey a memory budget.
        if s.op is BACKWARD or s.mode.memory is not None:
            return False
        for slot in s.slots:
            n = 1
            for d in slot.shape:
                n *= d
            size = max(size, n)
    return program.end.index - joined < steps and size <= most


def _little_more(plan: Plan, ext: Ext, need: set[tuple[int, int]]) -> bool:
    """Whether what the plan computes beyond `need` is at most 5 % of the bytes."""
    bound = plan.executable.bound.get(ext.values)
    if bound is None:
        return False
    total = wasted = 0
    for name, n in zip(plan.wanted, plan.graph.outputs):  # noqa: B905 - residuals follow
        size = n.dtype.itemsize
        for d in n.shape:
            size *= bound.value(d)
        total += size
        if name not in need:
            wasted += size
    return _is_little(wasted, total)


def _cannot_fail(program: Program) -> bool:
    """Whether computing unwanted values cannot raise: no index read from data may be out of range."""
    return not any(s.op.fallible for s in program.calls)


def _union(known: Plans, program: Program, want: list[Slot]) -> list[Slot]:
    """The wanted values with those of the last miss, if that computes little more."""
    steps = program.calls
    have = set(names(want))
    others = [
        steps[index].slots[kk]
        for index, kk in known.misses[-1]
        if (index, kk) not in have and index < len(steps) and steps[index].device == want[0].step.device
    ]
    wasted, own = sum(map(_bytes_of, others)), sum(map(_bytes_of, want))
    return [*want, *others] if _is_little(wasted, wasted + own) else want


def _bytes_of(slot: Slot) -> int:
    """Size of a value in bytes, by its latest recorded shape."""
    size: int = math.prod(slot.shape) * slot.dtype.itemsize
    return size


def _is_little(wasted: int, total: int) -> bool:
    """Whether this number of unwanted bytes may be computed with the rest."""
    return wasted * LITTLE <= total
