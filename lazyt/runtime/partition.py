"""Division of a long trace into parts, found once for each step in which traces end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lazyt.autograd.saved_segment import input_numbers
from lazyt.ops.compression import DRAWS
from lazyt.runtime.backward_route import Passage, sections
from lazyt.runtime.chain import Part, Progress, Pull, part_of
from lazyt.runtime.division import Body, accumulation, boundaries, opened, references
from lazyt.runtime.first_step import TIMES, begins, first_step
from lazyt.tracing.program import INPUT, Slot
from lazyt.tracing.trace import Ext, Step

if TYPE_CHECKING:
    from lazyt.runtime.backward_route import Route
    from lazyt.tracing.tensor_state import Data


class Partition:
    """The parts of one trace that compute some wanted values.

    `is_one` if it is divided only because a backward is, or what makes its parameters.
    """

    linked: Any = None  # state of linking: see linked_parts.py

    def __init__(
        self, path: Sequence[Step], places: Places, extents: tuple[int, ...], want: Sequence[Slot],
    ) -> None:  # fmt: skip
        self.want, self.places, self.is_one = list(want), places, places.is_one
        self.numbers: dict[Slot, int] = dict(input_numbers(path).items())
        self._extents = extents
        self._need, self._kept = set(want), set(want)
        chunks = places.chunks
        pulled: dict[int, list[Pull]] = {}  # by the number of their chunk, last one first
        found: list[Part | Pull] = []
        for number in reversed(range(len(chunks))):
            chunk = chunks[number]
            route = places.routes.get(chunk[0])
            if route is not None:
                if self._need.intersection(chunk[0].slots):
                    found += self._pulls(route, chunks, number, pulled)
                continue
            if places.training and number:
                part: Part | None = self._first_step(path[chunks[0][-1].index + 1 :], chunk)
            else:
                part = self._part(chunk, pulled.get(number, ()))
            if part is not None:
                found.append(part)
        self.parts = found[::-1]

    def _first_step(self, steps: Sequence[Step], chunk: Sequence[Step]) -> Part | None:
        """The part of a chunk after the making of parameters; steps: the chunk with inputs and changes of mode."""
        part = first_step(steps, self._extents, self._need)
        if part is None:
            return self._part(chunk, ())
        part.done = self._unread(part.inputs)
        self._need.update(part.inputs)
        return part

    def _unread(self, values: Sequence[Slot]) -> list[Slot]:
        """Selects computed values that no later part reads; called from the last part to the first."""
        return [
            x for x in dict.fromkeys(values)
            if x not in self._need and x not in self._kept and x.step.op is not INPUT
        ]  # fmt: skip

    def _pulls(
        self, route: Route, chunks: Sequence[Sequence[Step]], stop: int, pulled: dict[int, list[Pull]]
    ) -> list[Pull]:  # fmt: skip
        """The pulls of the backward that is chunk number `stop`, last one first."""
        found: list[Pull] = []
        for number, section in sections(route, chunks, stop):
            inputs = [x for x in section.given.values() if x is not None]
            same = pulled.setdefault(number, [])
            pull = Pull(section, inputs, [], not same)
            same.append(pull)
            found.append(pull)
        found.reverse()
        for pull in found:
            pull.done = self._unread(pull.inputs)
            self._need.update(pull.inputs)
        wanted = zip(route.backward.slots, route.wanted, strict=True)
        found[0].gradients = [(y, x) for y, x in wanted if y in self._need]
        return found

    def _part(self, steps: Sequence[Step], pulls: Sequence[Pull]) -> Part | None:
        """The part of the needed steps among `steps`; pulls: those that go back through it."""
        need = self._need
        passage = Passage([p.section for p in pulls]) if pulls else None
        passed = () if passage is None else passage.outputs
        live: list[Step] = []
        inside: set[Slot] = {*passed}
        for s in reversed(steps):
            # NOTE: the value of a draw is not read, but the part needs its scalars.
            draws = s.op in DRAWS and any(x.mode.compress is not None for x in live)
            if draws or any(x in need or x in inside for x in s.slots):
                live.append(s)
                inside.update(references(s))
        if not live:
            assert not pulls, "backwards go through it"
            return None
        live.reverse()
        own = {x for s in live for x in s.slots}
        inputs = list(dict.fromkeys(x for s in live for x in references(s) if x not in own))
        want = [x for s in live for x in s.slots if x in need]
        # NOTE: a plan computes at least one value.
        unread = [] if want else [x for x in passed if x in own][:1]
        done = self._unread(inputs)
        need.update(inputs)
        part = part_of(live, inputs, [*want, *unread], unread, done, self._extents, passage)
        for pull in pulls:
            pull.go_through(part)
        return part

    def progress(self, scalars: Sequence[Any], inputs: Sequence[Data]) -> Progress:
        """The state before the first part runs, with the trace's scalars and inputs."""
        self.places.runs += 1
        return Progress(self.numbers, scalars, inputs)

    def undivided(self) -> bool:
        """Plans the trace as one program from now on; True where that needs less memory for certain."""
        if self.places.training:
            self.places.runs = TIMES
        return self.places.training

    def alike(self) -> list[list[Part | Pull]]:
        """Groups the parts by the plan that computes them, in the order of their first ones."""
        found: dict[tuple[Any, ...], list[Part | Pull]] = {}
        for p in self.parts:
            found.setdefault(p.kind(), []).append(p)
        return list(found.values())


class Places:
    """The places at which the trace that ends in a step is divided, and its latest partitions."""

    def __init__(self, path: Sequence[Step], loops: bool) -> None:
        """loops: whether to divide it between iterations too."""
        body = Body(path)
        starts = accumulation(body) or (boundaries(body) if loops else [])
        self.is_one = not starts  # before backwards and first steps of training are divided
        starts, routes = opened(path, body, starts)
        # Whether it is divided because it makes the parameters that it trains.
        at = begins(path, body) if loops and not starts else 0
        self.training = at > 0
        if self.training:
            starts = [0, at]
        ends = [*starts[1:], len(body.steps)]
        self.chunks = [body.steps[a:b] for a, b in zip(starts, ends, strict=True)] if starts else []
        # The routes of divided backwards, each of which is a chunk.
        self.routes = {route.backward: route for route in routes}
        self.known: dict[Ext, Partition] = {}
        self.runs = 0

    def partition(self, path: Sequence[Step], ext: Ext, want: Sequence[Slot]) -> Partition | None:
        """The parts that compute `want`; None where the trace is one program."""
        if not self.chunks or (self.training and self.runs >= TIMES):
            return None
        found = self.known.get(ext)
        if found is None or found.want != want:
            if len(self.known) >= 4:
                self.known.clear()
            found = self.known[ext] = Partition(path, self, ext.values, want)
        return found
