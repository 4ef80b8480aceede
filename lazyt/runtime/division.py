"""Where a long trace can be divided: between equal iterations of a loop, and else at places that few values cross.

No place lies between a backward and the steps that it differentiates, unless these are so many that the backward is
divided with them (pulls.py): it is *opened*.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from lazyt.autograd.engine import BACKWARD
from lazyt.forking import cached_property
from lazyt.ir.records import dataclass
from lazyt.runtime.backward_route import Route, divisible, is_end
from lazyt.tracing.program import ASSIGN, INPUT, MODE, Slot, kind_of
from lazyt.tracing.trace import Step

# A trace of less weight is one program: planning it costs little. What trains for several iterations is divided at
# less, because a backward and an update are written as many primitives; what accumulates the gradients of a few batches
# stays whole, unless it comes with other numbers of batches.
MIN_WEIGHT, MIN_ITERATIONS = 2048, 4
MIN_TRAINING_WEIGHT, MIN_TRAINING_ITERATIONS = 256, 8
# A part has as many iterations as go into this weight, one at least; of what trains it has one.
PART_WEIGHT = 64
# Where no iterations are equal, a part has about this weight.
LONGEST = 8192
# A step of a backward stands for about so many primitives for each step that it differentiates.
BACKWARD_WEIGHT = 3
# What a backward of this weight differentiates is divided, if it has so many equal iterations; a part has this weight.
MIN_OPENED_WEIGHT, MIN_OPENED_ITERATIONS = 1024, 8
OPENED_PART_WEIGHT = 128
# Periods that are tried for a range of steps.
MAX_CANDIDATES = 8
# Accumulations that are remembered.
MAX_ACCUMULATIONS = 1 << 12

Array = np.ndarray[Any, Any]


@dataclass
class Iterations:
    """A range of body steps that repeats with one period, and where an iteration begins."""

    start: int
    stop: int
    period: int
    phase: int  # iterations begin at steps whose number is this, modulo the period


class Body:
    """The steps of a trace that compute, in order, and what decides where it can be divided."""

    def __init__(self, path: Sequence[Step], opened: Collection[Step] = ()) -> None:
        """opened: backwards that do not keep together what they differentiate."""
        self.steps = [s for s in path if s.op is not INPUT and s.op is not MODE]
        n = len(self.steps)
        self.opened = bool(opened)
        self.weights = np.array([len(s.slots) for s in self.steps] + [0], np.int64)  # the last stands for the end
        # How many backwards (jvp, vmap) reach across the place before each step.
        self.closed = np.zeros(n + 1, np.int64)
        self.first: dict[Step, int] = {}  # of each backward: where what it differentiates begins
        crossing = np.zeros(n + 2, np.int64)
        wide = np.zeros(n + 1, np.int64)
        position = self.position = {s: i for i, s in enumerate(self.steps)}
        readers: dict[Slot, int] = {}  # the last one of each value
        for i, s in enumerate(self.steps):
            if s.op is BACKWARD:
                first = self.first[s] = min((position[x] for x in _differentiated(s) if x in position), default=i)
                if s in opened:
                    wide[first] += BACKWARD_WEIGHT
                    wide[i] -= BACKWARD_WEIGHT
                else:
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
        self.weights *= 1 + np.cumsum(wide)
        self.closed = np.cumsum(self.closed)
        self.crossing = np.cumsum(crossing)[: n + 1]
        self.total = np.concatenate(([0], np.cumsum(self.weights)))

    def is_light(self, start: int, stop: int) -> bool:
        """Whether a range of steps is little work to plan."""
        training = MIN_TRAINING_WEIGHT if self.trains(start, stop) else MIN_WEIGHT
        return self.weight(start, stop) < (MIN_OPENED_WEIGHT if self.opened else training)

    def trains(self, start: int, stop: int) -> bool:
        """Whether there are backwards in a range of steps."""
        return bool(self.closed[start + 1 : stop].any())

    def weight(self, start: int, stop: int) -> int:
        """About how many primitives a range of steps is written as."""
        return int(self.total[stop] - self.total[start])

    @cached_property
    def tokens(self) -> Array:
        """A number for each step: equal for steps that differ at most in which values they read."""
        numbers: dict[Any, int] = {}
        out = np.empty(len(self.steps), np.int64)
        for i, s in enumerate(self.steps):
            out[i] = numbers.setdefault(_token(s), len(numbers))
        return out


def _token(s: Step) -> tuple[Any, ...]:
    """What is equal for steps that differ at most in which values they read."""
    # NOTE: a backward whose leaves are gone has no results.
    return (kind_of(s), s.n_weak, len(s.slots), s.slots[0].dtype if s.slots else None, s.mode)


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
        if s in found or is_end(x):
            continue
        found.add(s)
        todo += [y for y in references(s) if y.requires_grad]
    return found


def boundaries(body: Body) -> list[int]:
    """Where parts begin, the first at 0; [] where the trace is one program."""
    n = len(body.steps)
    if body.is_light(0, n):
        return []
    found = sorted(_places(body, 0, n) - {0, n})
    assert not body.closed[found].any(), "no part begins between a backward and what it differentiates"
    return [0, *found] if found else []


def opened(path: Sequence[Step], body: Body, starts: Sequence[int]) -> tuple[list[int], list[Route]]:
    """Where parts begin if backwards that are long by themselves are divided too; and what those go through.

    Such a backward is a part of its own.
    """
    heavy, others = _to_open(body)
    found = divisible([*heavy, *others]) if heavy else []
    while any(route.backward in heavy for route in found):
        places = set(starts)
        wide, left = Body(path, {route.backward for route in found}), []
        for route in found:
            i, first = body.position[route.backward], body.first[route.backward]
            if wide.closed[i] or wide.closed[i + 1]:
                continue  # what stays whole reaches across it
            inside: set[int] = set()
            if route.backward in heavy:
                start = ([0, *starts])[bisect_right(starts, first)]
                inside = {j for j in _places(wide, start, i) if start < j < i}
                if not any(j > first for j in inside):
                    continue
            places |= {0, i, i + 1, *inside}
            left.append(route)
        if left == found:
            begins = sorted(places - {len(body.steps)})
            assert not wide.closed[begins].any(), "no part begins between a backward and what it differentiates"
            return begins, found
        found = left
    return list(starts), []


def _to_open(body: Body) -> tuple[dict[Step, None], list[Step]]:
    """The backwards that are long by themselves; others that a place around one would part from what they go through.

    aux = f(v)              a part begins before and behind the backward of a long loss,
    loss.backward()         so that of aux goes through parts too
    aux.backward()
    """
    heavy: dict[Step, None] = {}
    others: list[Step] = []
    last = 0  # the last place around one
    for s, first in body.first.items():
        i = body.position[s]
        if body.weights[i] >= MIN_OPENED_WEIGHT:
            heavy[s] = None
        elif first < last:
            others.append(s)
        else:
            continue
        last = i + 1
    return heavy, others


def _places(body: Body, start: int, stop: int) -> set[int]:
    """Places in a range of steps that divide it between iterations, and where it is very long; with both its ends."""
    found: set[int] = set()
    todo = [(start, stop)]
    while todo:
        start, stop = todo.pop()
        iterations = _iterations(body, start, stop)
        if iterations is None:
            found.update(_by_weight(body, start, stop))
            continue
        places = _between_iterations(body, iterations)
        found.update(places)
        todo += [(a, b) for a, b in ((start, places[0]), (places[-1], stop)) if b - a < stop - start]
    return found


def _iterations(body: Body, start: int, stop: int) -> Iterations | None:
    """The longest run of equal iterations in a range of steps; None where nothing repeats, or not often enough.

    Its period is the distance between occurrences of what is rare: what occurs several times an iteration says less.
    """
    if body.opened:
        fewest = MIN_OPENED_ITERATIONS
    else:
        fewest = MIN_ITERATIONS if body.weight(start, stop) >= MIN_WEIGHT else MIN_TRAINING_ITERATIONS
    if body.is_light(start, stop) or stop - start < max(fewest, 3):
        return None
    t = body.tokens[start:stop]
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
        light = body.is_light(start + a, start + b)
        if b - a >= fewest * period and not light and (best is None or b - a > 1.1 * (best.stop - best.start)):
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
    size = OPENED_PART_WEIGHT if body.opened else PART_WEIGHT
    step = iterations.period * (1 if body.trains(first, iterations.stop) else max(1, size // weight))
    places = list(range(first, iterations.stop + 1, step))
    last = first + (iterations.stop - first) // iterations.period * iterations.period
    # NOTE: what the last iteration began, a backward behind it may differentiate.
    return [i for i in dict.fromkeys([*places, last]) if not body.closed[i]]


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
    if len(_accumulations) >= MAX_ACCUMULATIONS:
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


# --- the bound on a trace --------------------------------------------------------------------------------------------


def left_of_iteration(steps: Sequence[Step]) -> int | None:
    """How many steps at least are left of this iteration, for steps that go round a loop; None for others."""
    body = Body(steps)
    n = len(body.steps)
    iterations = _iterations(body, 0, n)
    if iterations is None or iterations.stop < n:
        return None
    return (iterations.phase - n) % iterations.period
