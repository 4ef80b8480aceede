"""The first run of a small program: each step by itself, interpreted or through a plan of its own; the same bits, but
for products with a vector, which a plan of several steps may add up as it computes what it multiplies.

Planning a program whole costs hundreds of microseconds a step, which a REPL or a test suite pays for programs that
never come again. A step's plan is found by its operation, attributes, and the dtypes and ranks of its operands, so
nothing is planned here once the steps are known. The kernels are those of one operation each.

Such a plan costs milliseconds, of which most are its code's. So a step whose primitives are exact (ir/bit_exact.py) is
interpreted, by NumPy, until its kind has come so often that code pays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from lazyt import on_demand
from lazyt.backends.common.precision import flushes
from lazyt.backends.registry import backends
from lazyt.config import general as settings
from lazyt.errors import OutOfMemory, found_at, is_from_outside, is_ours
from lazyt.ir import dtypes, graph as g
from lazyt.ir.graph import Graph
from lazyt.ops.arithmetic import MULTIPLY
from lazyt.ops.definition import PRODUCT
from lazyt.runtime import memory
from lazyt.tracing.lower import Lowered, primitives_of
from lazyt.tracing.program import ASSIGN, INPUT, MODE, Slot, kind_of
from lazyt.tracing.shape_inference import form_of
from lazyt.tracing.tensor_state import Data
from lazyt.tracing.trace import Step

if TYPE_CHECKING:
    from lazyt.backends.common.commit_flag import Receipt
    from lazyt.backends.interface import Bound, Executable
    from lazyt.ir import extent_source
    from lazyt.ir.bit_exact import Form
    from lazyt.ir.graph import Node
    from lazyt.ir.passes import pipeline, program, same_division
    from lazyt.ir.passes.program import Options, Program
    from lazyt.ir.passes.schedule import Schedule
    from lazyt.runtime import stored_plans
else:
    extent_source = on_demand.module("lazyt.ir.extent_source")
    stored_plans = on_demand.module("lazyt.runtime.stored_plans")
    pipeline = on_demand.module("lazyt.ir.passes.pipeline")
    program = on_demand.module("lazyt.ir.passes.program")
    same_division = on_demand.module("lazyt.ir.passes.same_division")

Extents = tuple[int, ...]
Array = np.ndarray[Any, Any]
P = TypeVar("P")  # the plan of a program, which this module only makes and does not keep
Value = Data | Array  # an array: NumPy computed it, and no kernel has asked for it
# (same as an earlier one, input, output's position, shape, dtype) of each result; -1 where it is none.
Recipe = list[tuple[int, int, int, Extents, "np.dtype"]]

MAX_KINDS = 4096
# A kind of step is interpreted so often before it is compiled: NumPy takes 8 us more than code, a plan 2 to 20 ms.
INTERPRETED = 256
# Forms of a kind that are kept.
MAX_FORMS = 16


def guards_hold(guards: Sequence[Any]) -> Callable[[Extents], bool]:
    """The test of guards on a trace's extents."""
    function = extent_source.Function("s")
    function.require(guards, "False")
    return function.compiled("True", "guards")


def recipe_of(graph: Graph, sched: Schedule, exe: Executable, bound: Bound) -> Recipe:
    """How each output comes about: the same as another, an input, or a buffer of the plan's; shape and dtype."""
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
    """The outputs of a run, by its recipe."""
    values: list[Data] = []
    for same, at, output, shape, dtype in recipe:
        if same >= 0:
            values.append(values[same])
        elif at >= 0:
            d = inputs[at]
            values.append(d if d.shape == shape else Data(d.buffer, shape, dtype))
        else:
            b = buffers[output]
            if type(b) is Data:  # overwritten with the result: nobody else held it
                values.append(b if b.shape == shape else Data(b.buffer, shape, dtype))
            else:
                values.append(Data(b, shape, dtype))
    return values


def options_for(device: str, fused: bool, settle: bool = False, prefetch: bool = False) -> Options:
    """How programs are compiled for a device, by what it can do and LAZYT_DEBUG; prefetch: compiling begins at once."""
    backend = backends[device]
    off = frozenset(flag for flag, on in settings.items() if not on)
    early = backend.prefetch if prefetch and not settings["interpret"] else None
    target = backend.capabilities(device).without(off)
    return program.Options(target, fused, settle, settings["verify"], off, early, checked=settings["strict"])


class _Line:
    """The line of the step that runs now: plans of one step are shared by all lines, and runs hold the sync's lock."""

    __slots__ = ("site",)

    def __init__(self, site: Any) -> None:
        self.site = site

    def __str__(self) -> str:
        return str(self.site)


class OneStep:
    """How to run one operation on operands of some dtypes and ranks; valid for extents that satisfy its guards."""

    def __init__(
        self, s: Step, key: tuple[Any, ...], operands: Sequence[Data], extents: Extents, scalars: Sequence[Any]
    ) -> None:  # fmt: skip
        """key: that of its kind, which operands, extents and scalars are of."""
        self.line = _Line(s.site)
        place = stored_plans.place_of_step(s, key, self.line)
        found = None if place is None else place.load(extents)
        if found is None:
            low = Lowered(extents, scalars)
            program = self._planned(s, low, operands)
            assert program.schedule is not None, "the last pass makes it"
            assert program.division is not None, "`fuse` makes it"
            made = program.schedule, program.division, program.fused
        else:
            made = found.schedule, found.division, found.fused
        self.schedule, self.graph = made[0], made[0].graph
        self.executable: Executable = backends[s.device].compile(self.schedule, s.device)
        # NOTE: the choices of the backend leave guards too, so they are read last.
        guards = list(low.scope.guards) if found is None else found.guards
        if found is None and place is not None:
            place.keep(*made, guards, low.scope)
        self.holds = guards_hold(guards)
        self.executable.compile(extents, scalars)
        self.kernels, self.launches = len(self.schedule.launches), len(self.schedule.regions)
        self.recipes: dict[Extents, Recipe] = {}

    def _planned(self, s: Step, low: Lowered, operands: Sequence[Data]) -> Program:
        low.builder.site = g.Origin(s.op.name, self.line, rounded=s.mode.rounded)
        at = 0
        distinct = dict.fromkeys(x for x in s.operands if isinstance(x, Slot))
        for i, (x, d) in enumerate(zip(distinct, operands, strict=True)):
            low.nodes[x] = low.builder.input(i, low.symbols(at, len(d.shape)), d.dtype)
            at += len(d.shape)
        return pipeline.compile_graph(primitives_of(low, s, 0, at), low.scope, options_for(s.device, False))

    def run(self, site: Any, extents: Extents, scalars: Sequence[Any], operands: Sequence[Data]) -> list[Data]:
        """The results of the operation; an error names the line of `site`."""
        self.line.site = site
        exe = self.executable
        buffers = exe.run(extents, scalars, operands)
        recipe = self.recipes.get(extents)
        if recipe is None:
            if len(self.recipes) > 256:
                self.recipes.clear()
            recipe = self.recipes[extents] = recipe_of(self.graph, self.schedule, exe, exe.bound[extents])
        return values_of(recipe, buffers, operands)


class Kind(list[OneStep]):
    """The plans of such steps; how often they were interpreted, and what they are written as on some extents."""

    __slots__ = ("forms", "interpreted")

    def __init__(self) -> None:
        super().__init__()
        self.interpreted = 0
        self.forms: dict[tuple[Extents, tuple[int, ...] | None], Form] = {}

    def find(self, extents: Extents) -> OneStep | None:
        """A plan for such extents, if there is one."""
        for plan in self:
            if plan.holds(extents):
                return plan
        return None

    def form(self, s: Step, operands: Sequence[Any], extents: Extents, scalars: Sequence[Any]) -> Form:
        """What the step is written as, over ints."""
        offsets = tuple(scalars[s.n_weak :]) if "offsets" in s.info else None
        form = self.forms.get((extents, offsets))
        if form is None:
            if len(self.forms) >= MAX_FORMS:
                self.forms.clear()
            ints = tuple(extents[len(extents) - s.n_ints :]) if "ints" in s.info else None
            shaped = [x if isinstance(x, type) else (x.dtype, x.shape) for x in operands]
            form = self.forms[extents, offsets] = form_of(s, shaped, ints, offsets)
        return form

    def interpret(
        self, s: Step, operands: Sequence[Any], extents: Extents, scalars: Sequence[Any]
    ) -> list[Value] | None:  # fmt: skip
        """The results of a step by NumPy; None where a plan is better: not every bit is certain, or it comes often.

        operands: of each a value, or the type of a scalar.
        """
        if self.interpreted >= INTERPRETED:
            self.forms.clear()
            return None
        form = self.form(s, operands, extents, scalars)
        if not form.exact or flushes():
            return None
        try:
            values = form.values([memory.as_array(x) if type(x) is Data else x for x in operands], scalars)
        except Exception as e:
            # What is the user's mistake a plan raises in its own words.
            if settings["strict"] and is_ours(e):
                raise
            return None
        self.interpreted += 1
        return [_result(n, values, operands) for n in form.outputs]


_kinds: dict[tuple[Any, ...], Kind] = {}


def _kind(key: tuple[Any, ...]) -> Kind:
    kind = _kinds.get(key)
    if kind is None:
        if len(_kinds) >= MAX_KINDS:
            _kinds.clear()
        kind = _kinds[key] = Kind()
    return kind


def forget() -> None:
    """Drop the plans of single steps."""
    _kinds.clear()


def _result(n: Node, values: dict[Node, Any], inputs: Sequence[Any]) -> Value:
    """A result of what was interpreted; an operand under its own or another shape is that, as in a plan."""
    base = n
    while base.op == "reshape":
        base = base.operands[0]
    x = inputs[base.attrs.index] if isinstance(base.attrs, g.Input) else None
    if type(x) is Data:
        return x if x.shape == n.shape else Data(x.buffer, n.shape, n.dtype)  # type: ignore[arg-type]
    found: Array = np.asarray(values[n], n.dtype)
    return found


def _in_memory(x: Value) -> Data:
    """A value in memory of the pool's."""
    if isinstance(x, Data):
        return x
    try:
        return memory.from_array(x)
    except MemoryError as e:
        raise OutOfMemory(f"sync: {e}") from None


def runs_stepwise(steps: Sequence[Step]) -> bool:
    """Whether each step can run alone, on devices that allow it: none writes a backward's graph.

    Nor is one a product that may read float32 copies of halves: a plan of both reads the halves, with other bits.
    """
    if not all(backends[d].capabilities(d).first_run for d in {s.device for s in steps}):
        return False
    computing = _computing(steps)
    if any(hasattr(s.op, "expand") for s in computing):
        return False
    return not any(map(_is_product, computing)) or not any(map(_widens, computing))


def _computing(steps: Sequence[Step]) -> list[Step]:
    return [s for s in steps if s.op not in (INPUT, ASSIGN, MODE)]


def _is_product(s: Step) -> bool:
    return s.op.saves == PRODUCT and s.op is not MULTIPLY


def _widens(s: Step) -> bool:
    """Whether a step gives a half as float32."""
    if all(x.dtype != dtypes.float32 for x in s.slots):
        return False
    return any(isinstance(x, Slot) and x.dtype in dtypes.HALVES for x in s.operands)


def is_single(steps: Sequence[Step]) -> bool:
    """Whether a program is one operation of one kernel, which code has to compute: its own plan is then the fused one.

    Not where the plan of such a step is there already: that runs at once.
    """
    computing = _computing(steps)
    if len(computing) != 1 or not settings["tiers"]:
        return False
    s = computing[0]
    if "ints" in s.info or "offsets" in s.info:
        return False  # kernels are shared by all sizes and positions, as single steps' plans are by all programs
    if _kinds.get(_key(s, [x for x in s.operands if isinstance(x, Slot)])):
        return False
    form = form_of(s, [(x.dtype, x.shape) if isinstance(x, Slot) else x for x in s.operands], None, None)
    return not (settings["first"] and form.exact) and same_division.is_divided_alike(form.outputs)


def _key(s: Step, values: Sequence[Slot | Value]) -> tuple[Any, ...]:
    """What the plans of a step are kept under, by what is given as its operands that are no scalars."""
    seen: dict[Slot, int] = {}
    parts: list[Any] = []
    given = iter(values)
    for x in s.operands:
        if isinstance(x, Slot):
            d, i = next(given), seen.setdefault(x, len(seen))
            parts.append((i, d.dtype, len(d.shape)))
        else:
            parts.append(x)
    return kind_of(s), tuple(parts)


class Stepwise(Generic[P]):
    """One run of a program, step by step; `build` makes the plan of one operation a kernel, to be looked at."""

    fused = False
    asynchronous = False

    def __init__(self, steps: Sequence[Step], wanted: tuple[tuple[int, int], ...], build: Callable[[], P]) -> None:
        self.steps = steps
        self.wanted = wanted
        self.build = build
        self.kernels = self.launches = 0
        self.interpreted: set[int] = set()  # the steps that NumPy computed, by index
        self._compiles = (0, 0.0)
        self._plan: P | None = None

    def whole(self) -> P:
        """The plan of the program, a kernel for each operation, to look at; it has no machine code."""
        if self._plan is None:
            self._plan = self.build()
        return self._plan

    def take_compiles(self) -> tuple[int, float]:
        """Kernels compiled for this run since the last call, and how long that took."""
        out, self._compiles = self._compiles, (0, 0.0)
        return out

    def run(
        self, extents: Extents, scalars: Sequence[Any], inputs: Sequence[Data], want: Sequence[Slot],
        receipt: Receipt | None = None,
    ) -> list[Data]:  # fmt: skip
        """The values of `want`; no leaf is overwritten."""
        values: dict[Slot, Value] = {}
        last = self._last_uses(want)
        n_inputs = 0
        for s in self.steps:
            if s.op is INPUT:
                dtype, ndim, _, at = s.statics[:4]
                d = inputs[n_inputs if at < 0 else at]
                n_inputs += at < 0
                shape = extents[s.ext_start : s.ext_start + ndim]
                values[s] = d if d.shape == shape else Data(d.buffer, shape, dtype)
            elif s in last:
                if s.op is ASSIGN:
                    values[s] = values[s.operands[0]]
                else:
                    try:
                        self._step(s, extents, scalars, values)
                    except Exception as e:
                        if not is_from_outside(e):
                            found_at(e, s.op.name, s.site, s.index)
                        raise
                for x in last[s]:
                    del values[x]
        for x in want:
            values[x] = _in_memory(values[x])
        return [values[x] for x in want]  # type: ignore[misc]

    def _last_uses(self, want: Sequence[Slot]) -> dict[Step, list[Slot]]:
        """The steps that are needed, each with the values that nothing needs after it."""
        kept, needed = set(want), {s.step for s in want}
        last: dict[Step, list[Slot]] = {}
        for s in reversed(self.steps):
            if s not in needed or s.op is INPUT:
                continue
            done = last[s] = [x for x in s.slots if x not in kept]
            reads = s.operands[:1] if s.op is ASSIGN else s.operands
            for x in reads:
                if isinstance(x, Slot) and x not in kept:
                    kept.add(x)
                    needed.add(x.step)
                    done.append(x)
        return last

    def _step(self, s: Step, extents: Extents, scalars: Sequence[Any], values: dict[Slot, Value]) -> None:
        read = [x for x in s.operands if isinstance(x, Slot)]
        operands = list(dict.fromkeys(read))
        own: Extents = ()
        for x in operands:
            own += values[x].shape
        if s.n_ints:
            own += extents[s.ext_start : s.ext_start + s.n_ints]
        more = scalars[s.scalar_start : s.scalar_start + s.n_scalars]
        key = _key(s, [values[x] for x in read])
        kind = _kind(key)
        plan = kind.find(own)
        if plan is None and settings["first"]:
            found = kind.interpret(s, [values[x] if isinstance(x, Slot) else x for x in s.operands], own, more)
            if found is not None:
                self.interpreted.add(s.index)
                values.update(zip(s.slots, found, strict=True))
                return
        arrays = [_in_memory(values[x]) for x in operands]
        values.update(zip(operands, arrays, strict=True))
        if plan is None:
            plan = OneStep(s, key, arrays, own, more)
            kind.append(plan)
        compiles, seconds = plan.executable.compiles, plan.executable.compile_time
        if compiles:
            self._compiles = (self._compiles[0] + compiles, self._compiles[1] + seconds)
            plan.executable.compiles = 0
        self.kernels += plan.kernels
        self.launches += plan.launches
        values.update(zip(s.slots, plan.run(s.site, own, more, arrays), strict=True))
