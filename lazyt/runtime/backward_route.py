"""What a backward goes through, and what of it belongs to each part of a divided trace.

A backward is one step, and what it differentiates may be hundreds of equal iterations: an unrolled recurrence. Where
its forward pass is divided into parts, each part stores what its derivatives read (ir/residuals.py), and the backward
is a *pull* for each part, from the last one to the first: a program from residuals and cotangents of what the part
computed to cotangents of what it read.

    part 0: h1 = f(w, h0)             pull 1: residuals 1, ct(h2)         -> ct(w), ct(h1)
    part 1: h2 = f(w, h1)             pull 0: residuals 0, ct(h1), ct(w)  -> ct(w)

The cotangent of what several parts read goes through their pulls as a running total. Several backwards may go through
one part: it stores once what all of them read, and each has a pull of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lazyt.autograd.track import TRACK
from lazyt.ir.records import dataclass
from lazyt.tracing.program import Slot, is_expanded
from lazyt.tracing.trace import Step

# How many backwards through one step are divided: each has a pull of its own for each part, which costs more at every
# turn than one program of them all. The rows of a Jacobian are more.
MAX_ROUTES = 4


def is_end(x: Slot) -> bool:
    """Whether a backward that reaches this value ends there: a leaf, or a later value of one."""
    return x.leaf is not None and (x.step.op is not TRACK or not x.step.operands[0].requires_grad)


class Route:
    """What a backward goes through: from the values that it begins with to those whose gradients are asked for."""

    def __init__(self, backward: Step) -> None:
        _, _, n, given, links, _ = backward.statics
        self.backward = backward
        self.wanted = [group[0] for group in backward.info]
        self.outputs: list[Slot] = list(backward.operands[:n])
        self.cotangents: list[Slot] = list(backward.operands[n : 2 * n]) if given else []
        if links:
            # A value of this trace stands for one of the segment behind it.
            self.outputs = [backward.operands[-1]]
        steps: set[Step] = set()
        met: set[Slot] = set()
        todo = [x for x in self.outputs if x.requires_grad]
        while todo:
            x = todo.pop()
            if x in met:
                continue
            met.add(x)
            if not is_end(x):
                steps.add(x.step)
                todo += [y for y in x.step.operands if isinstance(y, Slot) and y.requires_grad]
        # The values on the way that depend on a wanted one, and the steps that compute them.
        self.values = {x for x in self.wanted if x in met}
        self.steps: list[Step] = []
        for s in sorted(steps, key=lambda s: s.index):
            if any(y in self.values for y in s.operands):
                self.values.update(x for x in s.slots if x in met)
            if any(x in self.values for x in s.slots):
                self.steps.append(s)

    def is_plain(self) -> bool:
        """Whether each part can be pulled back by itself.

        It begins with no leaf and reaches what is wanted, nobody differentiates the gradients, and no step on the way
        has a derivative or a policy of its own.
        """
        s = self.backward
        create, _, n, _, links, barriers = s.statics
        plain = not (create or barriers or s.stops or _is_bounded(s)) and all(len(group) == 1 for group in s.info)
        alone = links == 0 or (links == 1 and n == 1 and s.operands[-2] is s.operands[0])
        apart = len({*self.outputs}) == len(self.outputs) and len({*self.wanted}) == len(self.wanted)
        computed = not any(map(is_end, self.outputs))
        return (
            plain and alone and apart and computed
            and all(x in self.values for x in (*self.outputs, *self.wanted))
            and not any(_is_special(x) for x in self.steps)
        )  # fmt: skip


def _is_special(s: Step) -> bool:
    return (is_expanded(s.op) and s.op is not TRACK) or _is_bounded(s)


def _is_bounded(s: Step) -> bool:
    return s.mode.compress is not None or s.mode.memory is not None


def divisible(backwards: Sequence[Step]) -> list[Route]:
    """The routes of those that can be divided."""
    found = [route for route in map(Route, backwards) if route.is_plain()]
    times = Counter(s for route in found for s in route.steps)
    return [route for route in found if all(times[s] <= MAX_ROUTES for s in route.steps)]


@dataclass
class Section:
    """What a backward pulls back through the steps of one part."""

    route: Route
    given: dict[Slot, Slot | None]  # whose cotangents it is given: values of the trace; None: a running total, or 1
    ones: frozenset[Slot]  # those whose cotangent is 1
    results: list[Slot]  # whose cotangents it computes
    entering: list[Slot]  # those of them that the part reads


class Passage:
    """What backwards pull back through the steps of one part, all of them together."""

    def __init__(self, sections: Sequence[Section]) -> None:
        self.outputs = [*dict.fromkeys(x for s in sections for x in s.given)]
        self.results = [*dict.fromkeys(x for s in sections for x in s.results)]
        self.entering = frozenset(x for s in sections for x in s.entering)


def sections(route: Route, chunks: Sequence[Sequence[Step]], stop: int) -> list[tuple[int, Section]]:
    """What is pulled back through the parts before number `stop`, the last one first; with the numbers of these."""
    first: dict[Slot, Slot | None] = dict.fromkeys(route.outputs)
    first.update(zip(route.outputs, route.cotangents))  # noqa: B905 - none are given where they are 1
    totals: set[Slot] = set(route.outputs)
    wanted = {*route.wanted}
    on_route = {*route.steps}
    found: list[tuple[int, Section]] = []
    for number in reversed(range(stop)):
        if not on_route:
            break
        passed = [s for s in chunks[number] if s in on_route]
        on_route.difference_update(passed)
        own = [x for s in passed for x in s.slots if x in route.values and not is_end(x)]
        computed = {*own}
        entering = [
            *dict.fromkeys(
                y for s in passed for y in s.operands
                if isinstance(y, Slot) and y in route.values and y not in computed
            )
        ]  # fmt: skip
        outputs = [x for x in (*own, *entering) if x in totals]
        if not outputs or not own:
            continue
        new = first.keys() & outputs
        given = {x: first.pop(x, None) for x in outputs}
        ones = frozenset(x for x in new if given[x] is None)
        results = [*entering, *(x for x in own if x in wanted)]
        found.append((number, Section(route, given, ones, results, entering)))
        totals.difference_update(outputs)
        totals.update(results)
    return found
