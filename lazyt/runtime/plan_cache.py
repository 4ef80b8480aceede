"""Plans of traces: found by what is wanted of a program and by the guards they rely on; made when there is none.

A program that is new and small runs at once through kernels of one operation each, which most programs share, or by
NumPy (first_run.py); when it comes again it gets fused kernels. All give the same bits.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

import numpy as np

from lazyt import on_demand
from lazyt.autograd.engine import BACKWARD
from lazyt.backends.registry import backends, loaded
from lazyt.config import HOST, general as settings
from lazyt.forking import PLANS, process_lock
from lazyt.ops.joining import CONCAT, STACK
from lazyt.ops.residuals import PULL
from lazyt.runtime import cache_miss, first_run, memory
from lazyt.runtime.first_run import (
    Recipe,
    Stepwise,
    guards_hold,
    is_single,
    options_for,
    recipe_of,
    runs_stepwise,
    values_of,
)
from lazyt.runtime.kept import MAX_PLAN_BYTES, Budget
from lazyt.tracing.lower import Lowered, lower
from lazyt.tracing.program import Slot
from lazyt.tracing.tensor_state import Data
from lazyt.tracing.trace import Ext, holding

if TYPE_CHECKING:
    from lazyt.autograd.later import Later
    from lazyt.backends.common.commit_flag import Receipt
    from lazyt.backends.interface import Executable
    from lazyt.ir import graph_interpreter
    from lazyt.ir.passes import pipeline
    from lazyt.ir.passes.fusion_result import Fused
    from lazyt.ir.passes.program import Program as Begun
    from lazyt.ir.passes.recomputation import Wish
    from lazyt.ir.passes.schedule import Schedule
    from lazyt.ir.plan_format import Stored
    from lazyt.runtime import chain, memory_budget, stored_plans
    from lazyt.tracing.call_site import Site
    from lazyt.tracing.program import Program
    from lazyt.tracing.trace import Trace
else:
    graph_interpreter = on_demand.module("lazyt.ir.graph_interpreter")
    pipeline = on_demand.module("lazyt.ir.passes.pipeline")
    memory_budget = on_demand.module("lazyt.runtime.memory_budget")
    stored_plans = on_demand.module("lazyt.runtime.stored_plans")
    chain = on_demand.module("lazyt.runtime.chain")

# A program with at most this many steps, and no backward among them, runs unfused the first time.
SMALL_PROGRAM = 24
# ... when it touches at most this many elements.
SMALL_SIZE = 1 << 18
# ... and step by step, without a plan of its own, when it touches at most this many: then planning is what costs.
TINY_SIZE = 1 << 14
# From so many steps on, programs as tiny as that run step by step the first time too. Straight-line code that long is
# mostly run once, and its fused kernels, each of them new, cost a millisecond a step to compile; a step alone 30 us.
LONG_PROGRAM = 1024
# Plans of one program for different wishes have the passes up to this one in common.
SHARED = "pack_shared"
# A plan that computes more than is wanted is still used when the rest is at most a twentieth of the bytes.
LITTLE = 20

_lock = process_lock(PLANS)

Wanted = tuple[tuple[int, int], ...]
# The plans for other devices than the host's, wherever they are kept: they end with their backend.
_elsewhere: WeakSet[Plan] = WeakSet()


def _never(tr: Trace, cause: str, site: Site) -> bool:
    """`Again.run` of a plan whose backend is gone."""
    return False


class Plan:
    """How to compute some values of a program; valid for every trace whose extents satisfy its guards."""

    from_disk = False  # whether another process made it
    asynchronous = False  # see `Target`
    parts = 0  # the parts of a long trace that it computes, one after another (see linked_parts.py)

    def __init__(
        self, low: Lowered, want: Sequence[Slot], fused: bool, prefetch: bool = False, wish: Wish | None = None,
        begun: Begun | None = None, later: Later | None = None,
    ) -> None:  # fmt: skip
        """prefetch: compiling begins at once, in the background, because the plan will run as soon as it is made.

        later: what a later backward goes through; behind the wanted values, the plan then computes `residuals`.
        """
        self.wanted: Wanted = names(want)
        self.device = want[0].step.device
        # NOTE: a program without anything to fuse is not planned again when it comes again.
        settle = not fused and settings["fuse"] and settings["tiers"]
        options = replace(options_for(self.device, fused, settle, prefetch), wish=wish)
        self.later = None if later is None else later.name
        if later is not None:
            outputs, numbers = later.pulled(low)
            options = replace(options, later=numbers)
            program = pipeline.compile_graph([*(low.nodes[s] for s in want), *outputs], low.scope, options)
        elif begun is None:
            program = pipeline.compile_graph([low.nodes[s] for s in want], low.scope, options)
        else:
            program = pipeline.continued(begun, options, after=SHARED)
        assert program.division is not None, "`fuse` makes it"
        assert program.schedule is not None, "`order` makes it"
        self.choice, self.residuals = program.choice, program.residuals
        self._use(program.schedule, program.division, program.fused)
        # NOTE: fusion and the choices of the backend leave guards too, so they are read last.
        self.guards = list(low.scope.guards)
        self.holds = guards_hold(self.guards)

    @classmethod
    def stored(cls, found: Stored, want: Sequence[Slot], later: Later | None = None) -> Plan:
        """The plan that was kept on disk."""
        plan = object.__new__(cls)
        plan.wanted, plan.device = names(want), want[0].step.device
        plan.from_disk, plan.choice, plan.residuals = True, None, found.residuals
        plan.later = None if later is None else later.name
        plan._use(found.schedule, found.division, found.fused)
        plan.guards = found.guards
        plan.holds = guards_hold(found.guards)
        return plan

    def _use(self, schedule: Schedule, division: Fused, fused: bool) -> None:
        """Set what depends on the result of the passes."""
        self.graph, self.schedule, self.division, self.fused = schedule.graph, schedule, division, fused
        backend = backends[self.device]
        can = backend.capabilities(self.device)
        self.asynchronous, self.donates = can.asynchronous, can.donation
        self.executable: Executable = backend.compile(self.schedule, self.device)
        self._compiles = (0, 0.0)
        self.recipes: dict[tuple[int, ...], Recipe] = {}
        self.last_recipe: Any = None, None  # of the extents met last (a trace has the same object each time)
        self.kernels = sum(1 for c in self.schedule.launches if getattr(c, "phase_of", None) is None)
        self.launches = len(self.schedule.regions)
        self.runs = 0
        # What the tries of threads remember to run again, where the backend may be removed.
        self.replays: WeakSet[Any] | None = None  # of `replay.Again`
        if self.device != HOST:
            self.replays = WeakSet()
            _elsewhere.add(self)

    def end(self) -> None:
        """It runs no more: who has it looks for another."""
        self.fused, self.holds = False, lambda extents: False
        for again in self.replays or ():
            again.run = _never

    def compile(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> None:
        """Have the machine code of every kernel, unless the interpreter runs in their place."""
        if settings["interpret"]:
            return
        self.executable.compile(extents, scalars)
        self._compiles = (self.executable.compiles, self.executable.compile_time)

    def ran(self, extents: tuple[int, ...]) -> list[tuple[Plan, tuple[int, ...]]]:
        """The plans that a run for these extents is of, with theirs: this one."""
        return [(self, extents)]

    def whole(self) -> Plan:
        """The plan to look at: this one."""
        return self

    def take_compiles(self) -> tuple[int, float]:
        """Kernels compiled for this plan since the last call, and how long that took."""
        out, self._compiles = self._compiles, (0, 0.0)
        return out

    def run(
        self, extents: tuple[int, ...], scalars: Sequence[Any], inputs: Sequence[Data], want: Sequence[Slot],
        receipt: Receipt | None = None,
    ) -> list[Data]:  # fmt: skip
        """The values of `want` (a part of what this plan computes), in its order; for a receipt see `Executable`."""
        if settings["interpret"]:
            return self._interpret(extents, scalars, inputs, want)
        buffers = self.executable.run(extents, scalars, inputs, receipt if self.donates else None)
        self.runs += 1
        return self.values(buffers, extents, inputs, want)

    def values(
        self, buffers: Sequence[Any], extents: tuple[int, ...], inputs: Sequence[Data], want: Sequence[Slot]
    ) -> list[Data]:
        """The values of `want` out of the outputs' buffers, then those of `residuals`."""
        known, recipe = self.last_recipe
        if known is not extents:
            recipe = self.recipe(extents)
        values = values_of(recipe, buffers, inputs)
        # NOTE: nothing of a trace is kept here: a plan outlives the trie, all of which is reached from each slot.
        if names(want) == self.wanted:
            return values
        at = {name: i for i, name in enumerate(self.wanted)}
        return [*(values[at[s.step.index, s.k]] for s in want), *values[len(self.wanted) :]]

    def order_of(self, extents: tuple[int, ...], want: Sequence[Slot]) -> list[int]:
        """The buffer of each of `want`; -1 for what is no buffer of its own."""
        recipe = self.recipe(extents)
        if names(want) != self.wanted:
            return []
        return [-1 if same >= 0 or at >= 0 else output for same, at, output, _, _ in recipe[: len(want)]]

    def recipe(self, extents: tuple[int, ...]) -> Recipe:
        """How each output of a run for these extents comes about."""
        recipe = self.recipes.get(extents)
        if recipe is None:
            recipe = recipe_of(self.graph, self.schedule, self.executable, self.executable.bound[extents])
            if len(self.recipes) > 512:
                self.recipes.clear()
            self.recipes[extents] = recipe
        self.last_recipe = extents, recipe
        return recipe

    def _interpret(
        self, extents: tuple[int, ...], scalars: Sequence[Any], inputs: Sequence[Data], want: Sequence[Slot]
    ) -> list[Data]:
        arrays = [memory.as_array(d) for d in inputs]
        outs = graph_interpreter.interpret(self.graph, self.graph.outputs, arrays, scalars, (extents, scalars))
        n = len(self.wanted)
        by_name = dict(zip(self.wanted, outs[:n], strict=True))
        found = [*(by_name[s.step.index, s.k] for s in want), *outs[n:]]
        return [memory.from_array(np.asarray(x), self.device) for x in found]


def names(want: Sequence[Slot]) -> Wanted:
    """Slots by their position in the trace, which does not depend on who recorded it."""
    return tuple((s.step.index, s.k) for s in want)


class Plans:
    """The plans of one program, shared by every call site and thread that records it."""

    __slots__ = ("misses", "plans", "seen", "stepped")

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.seen = 0
        self.stepped = False  # whether it has run step by step
        self.misses: list[Wanted] = []


# NOTE: slots reach all of their trie, so they are kept by its steps alone: these outlive a trie that is forgotten.
_programs: dict[int, Plans] = {}
MAX_PROGRAMS = 1 << 14
budget = Budget(MAX_PLAN_BYTES)


class Shown(NamedTuple):
    """A plan that was shown before a sync, and the program that it is of: a sync runs what was shown."""

    number: int
    plan: Plan


# The last one only: it serves the sync that follows.
_shown: Shown | None = None


def drop_plans(tr: Trace) -> bool:
    """Forget plans and programs where they, or their code, are too much; whether the trie of a trace has to go too.

    That is at its own next sync: tries are their threads'.
    """
    budget.add_steps(tr.n_new, tr.pos.index + 1)
    tr.n_new = 0
    if budget.is_spent() or any(b.is_crowded() for b in loaded()):
        drop_all()
    # NOTE: a new trace has nothing of what was dropped before it began.
    gone, tr.dropped = tr.dropped not in (-1, budget.drops), budget.drops
    return gone


def drop_all() -> None:
    """Forget all plans; each trie is forgotten by the next sync that is planned there."""
    global _shown
    with _lock:
        budget.drop()
        _shown = None
        _programs.clear()
        chain.forget()
        first_run.forget()


def forget_plans(kind: str) -> None:
    """Forget the plans for devices of a kind, and what any thread remembers to run again of them."""
    with holding, _lock:
        gone = {p for p in _elsewhere if p.device.partition(":")[0] == kind}
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
) -> tuple[Plan | Stepwise[Plan], str | cache_miss.Why]:  # fmt: skip
    """A plan that computes `want` for these extents, and why one had to be made ('' when none had).

    later: what a later backward goes through, of which such a plan computes the residuals too. exact: it computes
    nothing else.
    """
    global _shown
    with _lock:
        known, plan = _plans_of(program), program.plan
        name = None if later is None else later.name
        found: Plan | Stepwise[Plan]
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
) -> tuple[Plan | Stepwise[Plan], str | cache_miss.Why]:  # fmt: skip
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
        # NOTE: of what a plan is made of hardly anything is garbage, and to look for it takes a fifth of the time.
        gc.disable()
        plan = shown(program, ext, want, fused, later) or build(program, ext, want, scalars, fused, True, later)
        plan.compile(ext.values, scalars)
    finally:
        # NOTE: nothing is called before this, so an interrupt comes after it.
        if collects:
            gc.enable()
    known.plans.append(plan)
    budget.add_plan((program.number, plan.wanted, len(plan.guards)), len(plan.graph.nodes), perf_counter() - begun)
    cache_miss.mark_known(program)
    return plan, reason


def _stepwise(
    program: Program, ext: Ext, want: Sequence[Slot], wanted: Wanted, scalars: Sequence[Any]
) -> Stepwise[Plan]:
    def build_one() -> Plan:
        plan = build(program, ext, want, scalars, False)
        plan.executable.bound[ext.values] = plan.executable.bind(ext.values, scalars)
        return plan

    return Stepwise(program.calls, wanted, build_one)


def _fused(known: Plans | None, program: Program, ext: Ext, later: Later | None) -> bool:
    """Whether the next run of a program is through fused kernels."""
    if later is not None or program.end.op is PULL:
        # NOTE: a backward of the residuals of another plan is another program, so the first plan is one that stays.
        return settings["fuse"]
    new = (known is None or known.seen == 0) and (_shown is None or _shown.number != program.number)
    return settings["fuse"] and not (settings["tiers"] and new and (_is_small(program, ext) or _is_long(program, ext)))


def _search(
    known: Plans, program: Program, ext: Ext, wanted: Wanted, fused: bool, later: Later | None = None,
    exact: bool = False,
) -> tuple[Plan | None, str]:  # fmt: skip
    """A known plan for what is wanted; or None, and why there is none."""
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
    """What a sync would find: a plan, or None and why, and whether it runs fused kernels. Changes nothing."""
    with _lock:
        known: Plans | None = program.plans or _programs.get(program.number)
        fused = _fused(known, program, ext, later)
        if known is None:
            return None, cache_miss.new_program(program)(), fused
        plan, reason = _search(known, program, ext, names(want), fused, later)
        return plan, reason, fused


def show(program: Program, plan: Plan) -> None:
    """Have the next sync of this program run a plan, as a whole."""
    global _shown
    with _lock:
        _shown = Shown(program.number, plan)


def is_shown(program: Program) -> bool:
    """Whether the last plan that was shown is one of this program: a sync runs it as a whole then."""
    return _shown is not None and _shown.number == program.number


def shown(program: Program, ext: Ext, want: Sequence[Slot], fused: bool, later: Later | None = None) -> Plan | None:
    """The plan that was shown, if it is one for this."""
    if _shown is None or _shown.number != program.number:
        return None
    plan = _shown.plan
    name = None if later is None else later.name
    fits = plan.fused == fused and plan.later == name and plan.wanted == names(want) and plan.holds(ext.values)
    return plan if fits else None


def build(
    program: Program, ext: Ext, want: Sequence[Slot], scalars: Sequence[Any], fused: bool, prefetch: bool = False,
    later: Later | None = None,
) -> Plan:  # fmt: skip
    """A plan that nobody keeps yet and that has no machine code; prefetch: compiling begins at once."""
    steps = program.calls
    place = stored_plans.place_of(program, names(want), fused, None if later is None else later.name)
    stored = None if place is None else place.load(ext.values)
    if stored is not None:
        return Plan.stored(stored, want, later)
    low = lower(steps, ext.values, scalars, () if later is None else later.asked())
    if later is not None or not (fused and any(s.mode.memory is not None for s in steps)):
        plan = Plan(low, want, fused, prefetch, later=later)
        if prefetch and not settings["interpret"]:
            plan.executable.begin()
        if place is not None:
            place.keep(plan.schedule, plan.division, plan.fused, plan.guards, low.scope, plan.residuals)
        return plan
    options = options_for(want[0].step.device, fused)
    begun = pipeline.compile_graph([low.nodes[s] for s in want], low.scope, options, until=SHARED)
    made, found = partial(Plan, low, want, fused, begun=begun), memory_budget.budget_of(steps, begun.graph)
    return made() if found is None else memory_budget.plan_within(made, found, ext.values, scalars)


def _is_tiny(program: Program, ext: Ext, steps: int = SMALL_PROGRAM) -> bool:
    """Whether a program that is not fused, and has fewer steps than that, runs step by step."""
    planned = not settings["fuse"] or settings["verify"] or settings["interpret"]
    if planned or not _is_small(program, ext, TINY_SIZE, steps):
        return False
    return runs_stepwise(program.calls) and not is_single(program.calls)


def runs_alone(program: Program, ext: Ext) -> bool:
    """Whether the steps of a program that is not fused run one by one, by NumPy where that has the same bits."""
    return settings["first"] and (_is_tiny(program, ext) or _is_long(program, ext))


def _is_long(program: Program, ext: Ext) -> bool:
    """Whether a program is so long, over so little data, that it runs step by step the first time."""
    return program.end.index >= LONG_PROGRAM and _is_tiny(program, ext, program.end.index + 1)


def _is_small(program: Program, ext: Ext, most: int = SMALL_SIZE, steps: int = SMALL_PROGRAM) -> bool:
    size = joined = 0
    for s in program.calls:
        # NOTE: a list that grows is another program each time; what is joined of it are as many inputs and one step.
        if s.op is CONCAT or s.op is STACK:
            joined += len(s.operands)
        # NOTE: only fused plans keep to a memory budget.
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
    """Whether computing more than is wanted does no harm: no index read from data may be out of range."""
    return not any(s.op.fallible for s in program.calls)


def _union(known: Plans, program: Program, want: list[Slot]) -> list[Slot]:
    """After two misses that differ only in who is alive: the union of them, if that is little more."""
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
    """What a value takes, as it was recorded first."""
    size: int = math.prod(slot.shape) * slot.dtype.itemsize
    return size


def _is_little(wasted: int, total: int) -> bool:
    """Whether so many bytes that nobody wants may be computed with the rest."""
    return wasted * LITTLE <= total
