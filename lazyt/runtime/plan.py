"""A plan: how to compute some values of a program, for every trace whose extents satisfy its guards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from lazyt import on_demand
from lazyt.backends.registry import backends
from lazyt.config import HOST, general as settings
from lazyt.ir import graph as g
from lazyt.runtime import memory
from lazyt.tracing.lower import Lowered, lower
from lazyt.tracing.program import position
from lazyt.tracing.tensor_state import Data

if TYPE_CHECKING:
    from lazyt.autograd.later import Later
    from lazyt.backends.common.commit_flag import Receipt
    from lazyt.backends.interface import Bound, Executable
    from lazyt.ir import extent_source, graph_interpreter
    from lazyt.ir.graph import Graph
    from lazyt.ir.passes import pipeline, program as programs
    from lazyt.ir.passes.fusion_result import Fused
    from lazyt.ir.passes.program import Options, Program as Begun
    from lazyt.ir.passes.recomputation import Wish
    from lazyt.ir.passes.schedule import Schedule
    from lazyt.ir.plan_format import Stored
    from lazyt.runtime import memory_budget, stored_plans
    from lazyt.tracing.call_site import Site
    from lazyt.tracing.program import Program, Slot
    from lazyt.tracing.trace import Trace
else:
    extent_source = on_demand.module("lazyt.ir.extent_source")
    graph_interpreter = on_demand.module("lazyt.ir.graph_interpreter")
    pipeline = on_demand.module("lazyt.ir.passes.pipeline")
    programs = on_demand.module("lazyt.ir.passes.program")
    memory_budget = on_demand.module("lazyt.runtime.memory_budget")
    stored_plans = on_demand.module("lazyt.runtime.stored_plans")

Extents = tuple[int, ...]
Wanted = tuple[tuple[int, int], ...]
# Last pass whose result is shared by the plans tried for different memory budgets.
SHARED = "pack_shared"
# For each result (index of an equal earlier result, index of an input, index of a buffer, shape, dtype); -1: none.
Recipe = list[tuple[int, int, int, Extents, "np.dtype"]]


def names(want: Sequence[Slot]) -> Wanted:
    """Slots by their place in the program, equal for all traces of equal programs."""
    return tuple(map(position, want))


def guards_hold(guards: Sequence[Any]) -> Callable[[Extents], bool]:
    """Compiles guards to a predicate over the extents of a trace."""
    function = extent_source.Function("s")
    function.require(guards, "False")
    return function.compiled("True", "guards")


def recipe_of(graph: Graph, sched: Schedule, exe: Executable, bound: Bound) -> Recipe:
    """Maps each output to an earlier output, an input or a buffer of the plan, with shape and dtype."""
    made: dict[tuple[Any, Extents], int] = {}
    recipe: Recipe = []
    outputs = {n: i for i, n in enumerate(exe.outputs)}
    for i, (n, base, shape) in enumerate(zip(graph.outputs, sched.outputs, bound.shapes, strict=True)):
        same = made.setdefault((base, shape), i)
        at = base.attrs.index if isinstance(base.attrs, g.Input) else -1
        output = -1 if at >= 0 else outputs[base]
        recipe.append((same if same != i else -1, at, output, shape, n.dtype))
    return recipe


def values_of(recipe: Recipe, buffers: Sequence[Any], inputs: Sequence[Data]) -> list[Data]:
    """Makes the outputs of a run from its buffers and inputs."""
    values: list[Data] = []
    for same, at, output, shape, dtype in recipe:
        if same >= 0:
            values.append(values[same])
        elif at >= 0:
            d = inputs[at]
            values.append(d if d.shape == shape else Data(d.buffer, shape, dtype))
        else:
            b = buffers[output]
            if type(b) is Data:  # an input that was overwritten with the result
                values.append(b if b.shape == shape else Data(b.buffer, shape, dtype))
            else:
                values.append(Data(b, shape, dtype))
    return values


def options_for(device: str, fused: bool, settle: bool = False, prefetch: bool = False) -> Options:
    """The options of the passes for a device and LAZYT_DEBUG; prefetch: compile calls in the background."""
    backend = backends[device]
    off = frozenset(flag for flag, on in settings.items() if not on)
    early = backend.prefetch if prefetch and not settings["interpret"] else None
    target = backend.capabilities(device).without(off)
    return programs.Options(target, fused, settle, settings["verify"], off, early, checked=settings["strict"])


# All plans for devices other than the host: they end when their backend is removed.
elsewhere: WeakSet[Plan] = WeakSet()


def _never(tr: Trace, cause: str, site: Site) -> bool:
    """`Again.run` of a plan whose backend was removed."""
    return False


class Plan:
    """Schedule and executable for some values of a program, valid for all extents that satisfy its guards."""

    from_disk = False  # whether it was read from disk
    asynchronous = False  # see `Target`
    parts = 0  # number of parts that it computes one after another (see linked_parts.py)

    def __init__(
        self, low: Lowered, want: Sequence[Slot], fused: bool, prefetch: bool = False, wish: Wish | None = None,
        begun: Begun | None = None, later: Later | None = None, settle: bool = True,
    ) -> None:  # fmt: skip
        """prefetch: compile calls in the background while the passes run, because the plan will run at once.

        settle: mark an unfused plan as fused where fusion would divide the program in the same way.
        later: what a later backward goes through; behind the wanted values, the plan then computes `residuals`.
        """
        self.wanted: Wanted = names(want)
        self.device = want[0].step.device
        # NOTE: so a program without anything to fuse is not planned a second time.
        settle = settle and not fused and settings["fuse"] and settings["tiers"]
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
        """Makes a plan from a stored one."""
        plan = object.__new__(cls)
        plan.wanted, plan.device = names(want), want[0].step.device
        plan.from_disk, plan.choice, plan.residuals = True, None, found.residuals
        plan.later = None if later is None else later.name
        plan._use(found.schedule, found.division, found.fused)
        plan.guards = found.guards
        plan.holds = guards_hold(found.guards)
        return plan

    def _use(self, schedule: Schedule, division: Fused, fused: bool) -> None:
        """Sets the attributes that depend on the result of the passes."""
        self.graph, self.schedule, self.division, self.fused = schedule.graph, schedule, division, fused
        backend = backends[self.device]
        can = backend.capabilities(self.device)
        self.asynchronous, self.donates = can.asynchronous, can.donation
        self.executable: Executable = backend.compile(self.schedule, self.device)
        self._compiles = (0, 0.0)
        self.recipes: dict[tuple[int, ...], Recipe] = {}
        self.last_recipe: Any = None, None  # by the identity of the extents
        self.kernels = sum(1 for c in self.schedule.launches if getattr(c, "phase_of", None) is None)
        self.launches = len(self.schedule.regions)
        self.runs = 0
        # Replays of syncs (`replay.Again`) that run this plan, for backends that may be removed.
        self.replays: WeakSet[Any] | None = None
        if self.device != HOST:
            self.replays = WeakSet()
            elsewhere.add(self)

    def end(self) -> None:
        """Makes it unusable: lookups and replays find another plan."""
        self.fused, self.holds = False, lambda extents: False
        for again in self.replays or ():
            again.run = _never

    def compile(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> None:
        """Compiles the machine code of every kernel; nothing where the interpreter runs."""
        if settings["interpret"]:
            return
        self.executable.compile(extents, scalars)
        self._compiles = (self.executable.compiles, self.executable.compile_time)

    def ran(self, extents: tuple[int, ...]) -> list[tuple[Plan, tuple[int, ...]]]:
        """The plans that a run for these extents consists of, with their extents: this one."""
        return [(self, extents)]

    def whole(self) -> Plan:
        """The plan that inspection shows: this one."""
        return self

    def take_compiles(self) -> tuple[int, float]:
        """Number of kernels compiled since the last call, and the seconds that took."""
        out, self._compiles = self._compiles, (0, 0.0)
        return out

    def run(
        self, extents: tuple[int, ...], scalars: Sequence[Any], inputs: Sequence[Data], want: Sequence[Slot],
        receipt: Receipt | None = None,
    ) -> list[Data]:  # fmt: skip
        """Runs, and returns the values of `want`, a subset of `wanted`, in order; receipt: see `Executable`."""
        if settings["interpret"]:
            return self._interpret(extents, scalars, inputs, want)
        buffers = self.executable.run(extents, scalars, inputs, receipt if self.donates else None)
        self.runs += 1
        return self.values(buffers, extents, inputs, want)

    def values(
        self, buffers: Sequence[Any], extents: tuple[int, ...], inputs: Sequence[Data], want: Sequence[Slot]
    ) -> list[Data]:
        """Makes the values of `want`, then those of `residuals`, from the buffers of a run."""
        known, recipe = self.last_recipe
        if known is not extents:
            recipe = self.recipe(extents)
        values = values_of(recipe, buffers, inputs)
        # NOTE: a plan keeps no slot: it outlives the trie, and each slot keeps the whole trie alive.
        if names(want) == self.wanted:
            return values
        index = {name: i for i, name in enumerate(self.wanted)}
        return [*(values[index[position(s)]] for s in want), *values[len(self.wanted) :]]

    def order_of(self, extents: tuple[int, ...], want: Sequence[Slot]) -> list[int]:
        """Index of the buffer of each of `want`; -1 for a result without a buffer of its own."""
        recipe = self.recipe(extents)
        if names(want) != self.wanted:
            return []
        return [-1 if same >= 0 or at >= 0 else output for same, at, output, _, _ in recipe[: len(want)]]

    def recipe(self, extents: tuple[int, ...]) -> Recipe:
        """The recipe of the outputs for these extents."""
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
        found = [*(by_name[position(s)] for s in want), *outs[n:]]
        return [memory.from_array(np.asarray(x), self.device) for x in found]


def build(
    program: Program, extents: Extents, want: Sequence[Slot], scalars: Sequence[Any], fused: bool,
    prefetch: bool = False, later: Later | None = None, settle: bool = True,
) -> Plan:  # fmt: skip
    """Makes or reads a plan, without machine code; the caller keeps it. prefetch, settle: see `Plan`."""
    steps = program.calls
    place = stored_plans.place_of(program, names(want), fused, None if later is None else later.name)
    stored = None if place is None else place.load(extents)
    if stored is not None:
        return Plan.stored(stored, want, later)
    low = lower(steps, extents, scalars, () if later is None else later.asked())
    if later is not None or not (fused and any(s.mode.memory is not None for s in steps)):
        plan = Plan(low, want, fused, prefetch, later=later, settle=settle)
        if prefetch and not settings["interpret"]:
            plan.executable.begin()
        if place is not None:
            place.keep(plan.schedule, plan.division, plan.fused, plan.guards, low.scope, plan.residuals)
        return plan
    options = options_for(want[0].step.device, fused)
    begun = pipeline.compile_graph([low.nodes[s] for s in want], low.scope, options, until=SHARED)
    made, found = partial(Plan, low, want, fused, begun=begun), memory_budget.budget_of(steps, begun.graph)
    return made() if found is None else memory_budget.plan_within(made, found, extents, scalars)
