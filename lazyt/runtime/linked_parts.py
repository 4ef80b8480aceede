"""The parts of a repeated long trace as one native run.

Each part of a partition (subprograms.py) is looked up, bound and run by Python, which takes longer than a small part
itself. Where the same partition comes a third time, by known plans, the backend links the runs: a value that a part
makes lies where the parts behind it read it. The trace is replayed by that as a trace of one plan is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from lazyt.backends.interface import Run
from lazyt.backends.registry import backends
from lazyt.runtime.chain import Part
from lazyt.runtime.partition import Partition
from lazyt.runtime.plan import Plan, names
from lazyt.runtime.plan_cache import find_plan
from lazyt.runtime.subprograms import partition

if TYPE_CHECKING:
    from lazyt.autograd.saved_segment import Segment
    from lazyt.tracing.program import Slot
    from lazyt.tracing.trace import Trace

Extents = tuple[int, ...]
# Most seconds of a part, on average, and of all parts: beside a longer part the lookup costs little, and an interrupt
# waits for the end of a native program.
LONG_PART, LONG = 1e-3, 0.1
# States of `Partition.linked`: after the first run by known plans; where the parts cannot be linked.
ONCE, NEVER = "once", "never"


class LinkedPlan(Plan):
    """The plans of all parts as one plan, which only a replay runs."""

    def __init__(self, of: Sequence[tuple[Plan, Extents]], want: Sequence[Slot], bound: Any) -> None:
        self.of = of
        self.wanted, self.device = names(want), want[0].step.device
        self.later, self.choice, self.residuals = None, None, None
        self.replays: WeakSet[Any] | None = None
        self.kernels, self.launches = sum(p.kernels for p, _ in of), sum(p.launches for p, _ in of)
        self.parts, self.runs = len(of), 0
        self.executable = _Bindings(bound)  # type: ignore[assignment]

    def ran(self, extents: Extents) -> list[tuple[Plan, Extents]]:
        return [*self.of]

    def order_of(self, extents: Extents, want: Sequence[Slot]) -> list[int]:
        return [*range(len(want))] if names(want) == self.wanted else []


class _Bindings:
    """Stands for the executable of a linked plan: the one binding, for one trace's extents."""

    def __init__(self, bound: Any) -> None:
        self.bound = {bound.extents: bound}


def link(tr: Trace, want: Sequence[Slot], segment: Segment | None, seconds: float) -> LinkedPlan | None:
    """The linked plan of a trace; None where it did not repeat often enough or cannot be linked.

    want: the wanted values and those that the segment keeps. seconds: how long the parts have just run.
    """
    pos, ext = tr.pos, tr.ext
    parts = partition(pos, ext, want)
    # NOTE: a memory budget bounds the memory of each part.
    if pos.mode.memory is not None or (segment is not None and segment.later is not None):
        return None
    if parts is None or parts.linked is NEVER:
        return None
    if parts.linked is None:
        parts.linked = ONCE
    elif parts.linked is ONCE and seconds < min(LONG, LONG_PART * len(parts.parts)):
        parts.linked = _linked(parts, want, tr.scalars, ext.values) or NEVER
        return None if parts.linked is NEVER else parts.linked
    found: LinkedPlan | None = parts.linked if isinstance(parts.linked, LinkedPlan) else None
    return found


def _linked(parts: Partition, want: Sequence[Slot], scalars: Sequence[Any], extents: Extents) -> LinkedPlan | None:
    numbers: dict[Slot, int] = dict(parts.numbers)
    n_inputs = n_values = max(numbers.values(), default=-1) + 1
    of: list[tuple[Plan, Extents]] = []
    runs: list[Run] = []
    for part in parts.parts:
        # NOTE: residuals for pulls are handed on beside the values, which a linked run does not do.
        if not isinstance(part, Part) or part.later is not None:
            return None
        own = part.form.ext.values
        plan, why = find_plan(part.template.enter(part.form), part.form.ext, part.wanted, part.scalars_of(scalars))
        if why or not isinstance(plan, Plan) or plan.replays is not None or own not in plan.executable.bound:
            return None
        bound = plan.executable.bound[own]
        inputs = [numbers[x] for x in part.inputs]
        outputs = [*range(n_values, n_values + len(bound.sizes))]
        n_values += len(outputs)
        numbers.update(_places(part, plan, inputs, outputs))
        of.append((plan, own))
        runs.append(Run(bound, inputs, outputs, [p for start, stop in part.scalars for p in range(start, stop)]))
    wanted = [numbers[x] for x in want]
    # NOTE: a replay gives each value memory of its own.
    if len({*wanted}) < len(wanted) or min(wanted) < n_inputs:
        return None
    bound = backends[of[0][0].device].link(runs, n_inputs, wanted, extents)
    return None if bound is None else LinkedPlan(of, want, bound)


def _places(part: Part, plan: Plan, inputs: Sequence[int], outputs: Sequence[int]) -> dict[Slot, int]:
    """Number of each value of a part: that of an input, or of a result of its plan."""
    recipe = plan.recipe(part.form.ext.values)
    places: list[int] = []
    for same, at, output, _, _ in recipe:
        places.append(places[same] if same >= 0 else inputs[at] if at >= 0 else outputs[output])
    of = dict(zip(plan.wanted, places, strict=False))
    return {x: of[name] for x, name in zip(part.want, names(part.wanted), strict=True)}
