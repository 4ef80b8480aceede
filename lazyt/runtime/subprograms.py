"""Partition of a long trace into subprograms that are planned one by one.

A loop that nobody reads records the same steps again and again. Planned as one graph, n iterations cost n plans' time
and n plans' memory. So a trace with equal iterations is divided between them, and a very long one without at places
that few values cross. Each part is a program of its own: its *inputs* are the values that it reads and does not
compute. Parts of equal structure share one *template*, hence one plan, whatever iteration, line or trace they are from.

    0  input x                 part 0: steps 2, 4         template: input, input, matmul, tanh
    1  input w                 part 1: steps 5, 6         the same template, over the result of part 0
    2  matmul 0 1              part 2: ...
    4  tanh 2
    5  matmul 4 1

No part begins between a backward and the steps that it differentiates. What no part needs is not computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lazyt.autograd.engine import BACKWARD
from lazyt.autograd.saved_segment import input_numbers
from lazyt.config import general as settings
from lazyt.ir.records import dataclass
from lazyt.ops.compression import DRAWS
from lazyt.tracing.call_site import Site
from lazyt.tracing.steps import ASSIGN, INPUT, MODE
from lazyt.tracing.trace import Ext, Slot, Step, structure_id

if TYPE_CHECKING:
    from lazyt.tracing.tensor_state import Data

# A trace of fewer steps is one program, and so is one of less weight: planning it costs little. What trains for several
# iterations is divided at less, because a backward and an update are written as many primitives; what accumulates the
# gradients of a few batches stays whole, unless it comes with other numbers of batches.
MIN_STEPS = 64
MIN_WEIGHT, MIN_ITERATIONS = 2048, 4
MIN_TRAINING_WEIGHT, MIN_TRAINING_ITERATIONS = 256, 8
# A part has as many iterations as go into this weight, one at least; of what trains it has one.
PART_WEIGHT = 64
# Where no iterations are equal, a part has about this weight.
LONGEST = 8192
# A step of a backward stands for about so many primitives for each step that it differentiates.
BACKWARD_WEIGHT = 3
# Periods that are tried for a range of steps.
MAX_CANDIDATES = 8
MAX_TEMPLATES = 1 << 12
# Extents that a template remembers.
MAX_FORMS = 64
# The structure id that those of templates begin from.
ROOT = -8

Array = np.ndarray[Any, Any]


# --- where a trace can be divided ----------------------------------------------------------------------------------


@dataclass
class Iterations:
    """A range of body steps that repeats with one period, and where an iteration begins."""

    start: int
    stop: int
    period: int
    phase: int  # iterations begin at steps whose number is this, modulo the period


class Body:
    """The steps of a trace that compute, in order, and what decides where it can be divided."""

    def __init__(self, path: Sequence[Step]) -> None:
        self.steps = [s for s in path if s.op is not INPUT and s.op is not MODE]
        n = len(self.steps)
        self.weights = np.ones(n + 1, np.int64)  # the last stands for the end
        self.closed = np.zeros(
            n + 1, np.int64
        )  # how many backwards (jvp, vmap) reach across the place before each step
        crossing = np.zeros(n + 2, np.int64)
        position = {s: i for i, s in enumerate(self.steps)}
        readers: dict[Slot, int] = {}  # the last one of each value
        for i, s in enumerate(self.steps):
            self.weights[i] = len(s.slots)
            if s.op is BACKWARD:
                first = min((position[x] for x in _differentiated(s) if x in position), default=i)
                self.weights[i] += BACKWARD_WEIGHT * (i - first)
                self.closed[first + 1] += 1
                self.closed[i + 1] -= 1
            elif (opened_by := getattr(s.op, "opened_by", None)) is not None:
                # The expansion of a jvp or a vmap goes through all that was recorded since.
                first = min((position[x] for x in opened_by(s) or _differentiated(s) if x in position), default=i)
                self.weights[i] += i - first
                self.closed[first + 1] += 1
                self.closed[i + 1] -= 1
            readers.update(dict.fromkeys(references(s), i))
        for x, i in readers.items():
            at = position.get(x.step)
            if at is not None:
                crossing[at + 1] += 1
                crossing[i + 1] -= 1
        self.weights[n] = 0
        self.closed = np.cumsum(self.closed)
        self.trains = bool(self.closed.any())
        self.crossing = np.cumsum(crossing)[: n + 1]
        self.total = np.concatenate(([0], np.cumsum(self.weights)))

    def is_light(self, start: int, stop: int) -> bool:
        """Whether a range of steps is little work to plan."""
        return self.weight(start, stop) < (MIN_TRAINING_WEIGHT if self.trains else MIN_WEIGHT)

    def weight(self, start: int, stop: int) -> int:
        """About how many primitives a range of steps is written as."""
        return int(self.total[stop] - self.total[start])

    def tokens(self) -> Array:
        """A number for each step: equal for steps that differ at most in which values they read."""
        numbers: dict[Any, int] = {}
        out = np.empty(len(self.steps), np.int64)
        for i, s in enumerate(self.steps):
            out[i] = numbers.setdefault(_token(s), len(numbers))
        return out


def _token(s: Step) -> tuple[Any, ...]:
    """What is equal for steps that differ at most in which values they read."""
    attrs = len(s.operands) if hasattr(s.op, "expand") else s.statics
    # NOTE: a backward whose leaves are gone has no results.
    return (s.op, attrs, s.n_weak, s.n_ints, s.n_offsets, len(s.slots), s.slots[0].dtype if s.slots else None, s.mode)


def references(s: Step) -> list[Slot]:
    """The values that the expansion of a step names: its operands, and what a backward is asked for."""
    found = [x for x in s.operands if isinstance(x, Slot)]
    if s.op is BACKWARD:
        found += [x for group in s.info for x in group]
        found += s.stops
    return found


def _differentiated(backward: Step) -> set[Step]:
    """The steps that a backward passes through."""
    found: set[Step] = set()
    todo = [x for x in references(backward) if x.requires_grad]
    while todo:
        x = todo.pop()
        s = x.step
        # NOTE: a leaf, or a later value of one, ends the search: its gradient is asked for there.
        if s in found or (x.leaf is not None and not hasattr(s.op, "expand")):
            continue
        found.add(s)
        todo += [y for y in references(s) if y.requires_grad]
    return found


def boundaries(body: Body) -> list[int]:
    """Where parts begin, the first at 0; [] where the trace is one program."""
    n = len(body.steps)
    if body.is_light(0, n):
        return []
    tokens = body.tokens()
    found: set[int] = set()
    todo = [(0, n)]
    while todo:
        start, stop = todo.pop()
        iterations = _iterations(body, tokens, start, stop)
        if iterations is None:
            found.update(_by_weight(body, start, stop))
            continue
        places = _between_iterations(body, iterations)
        found.update(places)
        todo += [(a, b) for a, b in ((start, places[0]), (places[-1], stop)) if b - a < stop - start]
    found -= {0, n}
    return [0, *sorted(found)] if found else []


def _iterations(body: Body, tokens: Array, start: int, stop: int) -> Iterations | None:
    """The longest run of equal iterations in a range of steps; None where nothing repeats, or not often enough.

    Its period is the distance between occurrences of what is rare: what occurs several times an iteration says less.
    """
    fewest = MIN_ITERATIONS if body.weight(start, stop) >= MIN_WEIGHT else MIN_TRAINING_ITERATIONS
    if body.is_light(start, stop) or stop - start < max(fewest, 3):
        return None
    t = tokens[start:stop]
    # Three steps in a row, as one number.
    base = int(t.max()) + 1
    grams = (t[:-2] * base + t[1:-1]) * base + t[2:]
    _, inverse, counts = np.unique(grams, return_inverse=True, return_counts=True)
    often = np.flatnonzero(counts >= fewest - 1)
    tried: set[int] = set()
    best: Iterations | None = None
    for gram in often[np.argsort(counts[often], kind="stable")][: 4 * MAX_CANDIDATES]:
        places = np.flatnonzero(inverse == gram)
        period = int(np.median(np.diff(places)))
        if period in tried:
            continue
        tried.add(period)
        a, b = _longest(t[period:] == t[:-period])
        b += period
        if b - a >= fewest * period and (best is None or b - a > 1.1 * (best.stop - best.start)):
            phase = _phase(body, start + a, start + b, period)
            if phase is not None:
                best = Iterations(start + a, start + b, period, phase)
        if len(tried) >= MAX_CANDIDATES:
            break
    return best


def _longest(equal: Array) -> tuple[int, int]:
    """The longest range in which all is true."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], equal.view(np.int8), [0]))))
    if not len(edges):
        return 0, 0
    i = 2 * int(np.argmax(edges[1::2] - edges[::2]))
    return int(edges[i]), int(edges[i + 1])


def _phase(body: Body, start: int, stop: int, period: int) -> int | None:
    """Where iterations begin: at a place that no backward reaches across in any, and that the fewest values cross."""
    n = (stop - start) // period * period
    closed = body.closed[start : start + n].reshape(-1, period).max(axis=0)
    crossing = body.crossing[start : start + n].reshape(-1, period).sum(axis=0)
    open_places = np.flatnonzero(closed == 0)
    if not len(open_places):
        return None
    # Of equally good ones that where the trace itself begins.
    order = np.lexsort(((open_places + start) % period, crossing[open_places]))
    return int(open_places[order[0]] + start) % period


def _between_iterations(body: Body, iterations: Iterations) -> list[int]:
    """The places between groups of iterations, from the first iteration's beginning to the last one's end."""
    first = iterations.start + (iterations.phase - iterations.start) % iterations.period
    weight = max(body.weight(first, first + iterations.period), 1)
    # NOTE: between iterations that train, the values that one replaces give their memory to what replaces them.
    step = iterations.period * (1 if body.trains else max(1, PART_WEIGHT // weight))
    places = list(range(first, iterations.stop + 1, step))
    last = first + (iterations.stop - first) // iterations.period * iterations.period
    return places if places[-1] == last else [*places, last]


def _by_weight(body: Body, start: int, stop: int) -> list[int]:
    """Both ends of a range that does not repeat, and places that divide it if it is very long."""
    found = [start, stop]
    parts = body.weight(start, stop) // LONGEST
    for i in range(1, parts):
        # Of the open places around the i-th share that which the fewest values cross.
        about = np.searchsorted(body.total, body.total[start] + i * (body.total[stop] - body.total[start]) / parts)
        around = range(max(start, int(about) - LONGEST // 8), min(stop, int(about) + LONGEST // 8))
        usable = [j for j in around if not body.closed[j]]
        if usable:
            found.append(min(usable, key=lambda j: int(body.crossing[j])))
    return found


# --- gradients of several batches -------------------------------------------------------------------------------------

# How many batches an accumulation had when it was first met, by its first batch and by what follows the last.
_accumulations: dict[tuple[Any, ...], int] = {}


def accumulation(body: Body) -> list[int]:
    """Where the parts of a trace begin that accumulates the gradients of several batches; [] where it is one program.

    A part is a batch up to where its gradients are added, and the last what follows: an update. With a number of
    batches that is always the same the trace stays whole. From the second number on it is divided, so that any further
    one runs the same plans.
    """
    ends: list[int] = []
    for i, s in enumerate(body.steps):
        if s.op is BACKWARD:
            end, adds = _added(body.steps, i)
            if body.closed[end] or (ends and not adds):
                return []
            ends.append(end)
    if len(ends) < 2 or any(_updates(s) for s in body.steps[ends[0] : ends[-1]]):
        return []
    key = tuple(map(_token, [*body.steps[: ends[0]], *body.steps[ends[-1] :]])), ends[0]
    if len(_accumulations) >= MAX_TEMPLATES:
        _accumulations.clear()
    first = _accumulations.setdefault(key, len(ends))
    if first == len(ends):
        return []
    return [0, *ends] if ends[-1] < len(body.steps) else [0, *ends[:-1]]


def _added(steps: Sequence[Step], i: int) -> tuple[int, bool]:
    """Where the steps end that add the gradients of a backward to what was there; whether there are such."""
    sums: set[Step] = set()
    adds = False
    for j in range(i + 1, len(steps)):
        s = steps[j]
        reads = [x.step for x in references(s)]
        if s.op is ASSIGN and reads[-1] in sums:
            adds = True
        elif steps[i] in reads and s.op is not BACKWARD and not s.targets:
            sums.add(s)
        else:
            return j, adds
    return len(steps), adds


def _updates(s: Step) -> bool:
    """Whether a step writes a parameter."""
    return any(x.requires_grad for x in s.targets)


# --- parts ---------------------------------------------------------------------------------------------------------


class Form(NamedTuple):
    """Extents of a part as one object, and the shapes that its values have then."""

    ext: Ext
    shapes: list[tuple[Slot, tuple[int, ...]]]


class Template:
    """The steps of parts of equal structure, on a path of their own: an input step for each input, then the body."""

    def __init__(self, end: Step) -> None:
        self.end = end
        self.forms: dict[tuple[int, ...], Form] = {}
        self.current: Form | None = None

    def form(self, live: Sequence[Step], inputs: Sequence[Slot], extents: tuple[int, ...]) -> Form:
        """That of a part, whose values have their shapes now; of equal extents it is the same."""
        path = self.end.steps()
        n = len(inputs)
        values = [d for x in inputs for d in x.shape]
        for s in live:
            if s.n_ints:
                values += extents[s.ext_start : s.ext_start + s.n_ints]
        key = tuple(values)
        found = self.forms.get(key)
        if found is None:
            if len(self.forms) >= MAX_FORMS:
                self.forms.clear()
            shapes: list[tuple[Slot, tuple[int, ...]]] = [(path[i], x.shape) for i, x in enumerate(inputs)]
            for s, v in zip(live, path[n:], strict=True):
                shapes += [(y, x.shape) for x, y in zip(s.slots, v.slots, strict=True)]
            found = self.forms[key] = Form(Ext(None, key), shapes)
        return found

    def enter(self, form: Form) -> Step:
        """The end of the path, its values in these shapes."""
        if self.current is not form:
            for v, shape in form.shapes:
                v.shape = shape
            self.current = form
        return self.end


@dataclass
class Part:
    """A subprogram of a trace."""

    template: Template
    form: Form
    inputs: list[Slot]
    steps: list[Step]
    want: list[Slot]  # values of the trace
    wanted: list[Slot]  # the same on the template's path
    scalars: list[tuple[int, int]]  # ranges of the trace's scalars
    done: list[Slot]  # the inputs that no later part reads

    def end(self) -> Step:
        """The end of the template's path, its values in the shapes that they have in this part."""
        return self.template.enter(self.form)

    def scalars_of(self, scalars: Sequence[Any]) -> list[Any]:
        """Of the trace's scalars those of this part."""
        return [v for start, stop in self.scalars for v in scalars[start:stop]]

    def sites(self) -> list[Site | None]:
        """The user's lines, as the template numbers its steps."""
        return [x.step.site for x in self.inputs] + [s.site for s in self.steps]


class Partition:
    """The parts of one trace for some wanted values."""

    linked: Any = None  # whether all of them were computed by known plans, then as one run (see linked_parts.py)

    def __init__(
        self, path: Sequence[Step], steps: Sequence[Step], starts: Sequence[int], extents: tuple[int, ...],
        want: Sequence[Slot],
    ) -> None:  # fmt: skip
        self.want = list(want)
        self.numbers: dict[Slot, int] = dict(input_numbers(path).items())
        need, kept = set(want), set(want)
        parts: list[Part] = []
        for start, stop in reversed(list(zip(starts, [*starts[1:], len(steps)], strict=True))):
            live: list[Step] = []
            inside: set[Slot] = set()
            for s in reversed(steps[start:stop]):
                # NOTE: nobody reads what a compression draws from, and its scalars are what the part needs.
                draws = s.op in DRAWS and any(x.mode.compress is not None for x in live)
                if draws or any(x in need or x in inside for x in s.slots):
                    live.append(s)
                    inside.update(references(s))
            if not live:
                continue
            live.reverse()
            own = {x for s in live for x in s.slots}
            inputs = list(dict.fromkeys(x for s in live for x in references(s) if x not in own))
            wanted = [x for s in live for x in s.slots if x in need]
            # NOTE: from the last part to the first, so what is needed already is read later.
            done = [x for x in inputs if x not in need and x not in kept and x.step.op is not INPUT]
            need.update(inputs)
            parts.append(_part(live, inputs, wanted, done, extents))
        self.parts = parts[::-1]

    def alike(self) -> list[list[Part]]:
        """The parts that one plan computes together, in the order of their first ones."""
        found: dict[tuple[int, int, tuple[int, ...]], list[Part]] = {}
        for p in self.parts:
            found.setdefault((id(p.template), id(p.form), tuple(map(id, p.wanted))), []).append(p)
        return list(found.values())

    def value(self, x: Slot, values: dict[Slot, Data], inputs: Sequence[Data]) -> Data:
        """An input of a part: one of the trace, or what an earlier part computed."""
        number = self.numbers.get(x)
        return values[x] if number is None else inputs[number]


_templates: dict[int, Template] = {}


def _part(
    live: list[Step], inputs: list[Slot], want: list[Slot], done: list[Slot], extents: tuple[int, ...]
) -> Part:  # fmt: skip
    """A part of these steps; its template is that of an equal one, if there was one."""
    place: dict[Slot, tuple[int, int]] = {}
    sid = structure_id(ROOT, (live[0].device,))
    for i, x in enumerate(inputs):
        sid = structure_id(sid, _input_key(x))
        place[x] = (i, 0)
    n = len(inputs)
    for i, s in enumerate(live, n):
        sid = structure_id(sid, _step_key(s, place))
        for x in s.slots:
            place[x] = (i, x.k)
    template = _templates.get(sid)
    if template is None:
        if len(_templates) >= MAX_TEMPLATES:
            _templates.clear()
        template = _templates[sid] = _template(live, inputs, sid)
    path = template.end.steps()
    scalars: list[tuple[int, int]] = []
    for s in live:
        if s.n_scalars:
            start, stop = s.scalar_start, s.scalar_start + s.n_scalars
            if scalars and scalars[-1][1] == start:
                start = scalars.pop()[0]
            scalars.append((start, stop))
    wanted = [path[place[x][0]].slots[place[x][1]] for x in want]
    return Part(template, template.form(live, inputs, extents), inputs, live, want, wanted, scalars, done)


def _input_key(x: Slot) -> tuple[Any, ...]:
    s = x.step
    # A value that gradients are asked of is tracked: a leaf, a later value of one, or one computed by another sync.
    tracked = 0 if x.leaf is None or not x.requires_grad else s.statics[2] if s.op is INPUT else 1
    return (INPUT, x.dtype, len(x.shape), tracked, -1, s.device)


def _step_key(s: Step, place: dict[Slot, tuple[int, int]]) -> tuple[Any, ...]:
    """A step by what it does to values at given places, and whether gradients flow into its own."""
    operands = tuple([place[x] if isinstance(x, Slot) else x for x in s.operands])
    grads = tuple([(x.requires_grad, x.leaf is not None) for x in s.slots])
    if s.op is ASSIGN:
        return (ASSIGN, operands, s.statics, grads)
    if hasattr(s.op, "expand"):
        statics = tuple([_named(v, place) for v in s.statics])
        return (s.op, operands, statics, tuple([_named(e, place) for e in s.info or ()]), grads, s.n_ints)
    return (
        s.op,
        operands,
        s.statics,
        tuple(map(type, s.statics)),
        s.info,
        s.n_ints,
        s.n_offsets,
        grads,
        bool(s.targets),
        s.mode.computing,
    )


def _named(x: Any, place: dict[Slot, tuple[int, int]]) -> Any:
    """Slots in an attribute of a backward as their places."""
    if isinstance(x, Slot):
        return place[x]
    if isinstance(x, tuple | frozenset):
        return type(x)(_named(y, place) for y in x)
    return x


def _template(live: Sequence[Step], inputs: Sequence[Slot], sid: int) -> Template:
    """The steps of a part on a path of its own, which no recording ever takes."""
    device = live[0].slots[0].step.device
    root = Step(None, None, (), (), (), -1)
    root.mode, root.device = live[0].mode, device
    root.sid = sid
    pos = root
    slots: dict[Slot, Slot] = {}

    def mapped(x: Any) -> Any:
        if isinstance(x, Slot):
            return slots[x]
        if isinstance(x, tuple | frozenset):
            return type(x)(mapped(y) for y in x)
        return x

    for x in inputs:
        key = _input_key(x)
        v = Step(pos, INPUT, (), key[1:], key, pos.index + 1)
        v.dtype, v.shape, v.n_ints = x.dtype, x.shape, len(x.shape)
        v.requires_grad = key[3] != 0
        v.leaf = v if v.requires_grad else None
        v.device, v.site = x.step.device, x.step.site
        slots[x] = pos = v
    for s in live:
        special = hasattr(s.op, "expand")
        v = Step(pos, s.op, mapped(s.operands), mapped(s.statics) if special else s.statics, s.key, pos.index + 1)
        v.n_weak, v.n_offsets, v.n_scalars, v.n_ints = s.n_weak, s.n_offsets, s.n_scalars, s.n_ints
        v.info = mapped(s.info) if special and s.info is not None else s.info
        v.simple, v.bare, v.checks, v.low, v.high = s.simple, s.bare, s.checks, s.low, s.high
        v.site, v.mode, v.device = s.site, s.mode, s.device
        v.slots = tuple(v if x.k == 0 else Slot(v, x.k, None, False) for x in s.slots)
        v.stops = frozenset(slots[x] for x in s.stops)
        # NOTE: of an update's targets only that there are some is asked; they are among its operands.
        v.targets = tuple(slots[x] for x in s.targets if x in slots)
        for x, y in zip(s.slots, v.slots, strict=True):
            y.dtype, y.shape, y.requires_grad = x.dtype, x.shape, x.requires_grad
            slots[x] = y
        for x, y in zip(s.slots, v.slots, strict=True):
            y.leaf = None if x.leaf is None else slots.get(x.leaf, y)
        pos = v
    pos.sid = sid
    return Template(pos)


# --- found again ---------------------------------------------------------------------------------------------------


class Places:
    """Where the trace that ends in a step is divided, and its last partitions."""

    def __init__(self, path: Sequence[Step]) -> None:
        body = Body(path)
        self.starts = accumulation(body) or ([] if len(path) <= MIN_STEPS else boundaries(body))
        self.steps = body.steps if self.starts else []
        self.known: dict[Ext, Partition] = {}

    def partition(self, path: Sequence[Step], ext: Ext, want: Sequence[Slot]) -> Partition | None:
        """The parts for these wanted values; None where the trace is one program."""
        if not self.starts:
            return None
        found = self.known.get(ext)
        if found is None or found.want != want:
            if len(self.known) >= 4:
                self.known.clear()
            found = self.known[ext] = Partition(path, self.steps, self.starts, ext.values, want)
        return found


WHOLE = Places(())


def partition(pos: Step, ext: Ext, want: Sequence[Slot]) -> Partition | None:
    """The parts of the trace that ends in `pos`; None where it is planned as one program."""
    # NOTE: most traces end here.
    if pos.mixed or not settings["partition"]:
        return None
    division = pos.division
    if division is None:
        path = pos.steps()
        short = len(path) <= MIN_STEPS and sum(s.op is BACKWARD for s in path) < 2
        division = pos.division = WHOLE if short else Places(path)
    found: Partition | None = division.partition(pos.steps(), ext, want)
    return found


def iteration_left(pos: Step) -> int | None:
    """How many steps at least are left of this iteration, for a trace that goes round a loop; None for another one."""
    if pos.mixed or not settings["partition"]:
        return None
    body = Body(pos.steps())
    n = len(body.steps)
    iterations = _iterations(body, body.tokens(), 0, n)
    if iterations is None or iterations.stop < n:
        return None
    return (iterations.phase - n) % iterations.period
