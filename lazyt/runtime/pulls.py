"""Pulls: the parts of a divided backward, each over what a part of its forward pass stored (backward_route.py).

Pulls of equal parts have one template, hence one plan. A template is made when the plan of the forward part is there,
for that decides what it stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lazyt.ops.residuals import ABSENT, GIVEN, ONE, PULL
from lazyt.runtime.templates import PartRun, Template, input_after, root_of
from lazyt.tracing.trace import Slot, Step, structure_id

if TYPE_CHECKING:
    from lazyt.ir.residuals import Residuals
    from lazyt.runtime.backward_route import Section
    from lazyt.runtime.parts import Part, Progress
    from lazyt.tracing.call_site import Site
    from lazyt.tracing.tensor_state import Data

# The structure id that those of pulls begin from.
ROOT = -9
# Templates that a part of a forward pass has; those of plans that were dropped are never asked for again.
MAX_PULLS = 8


class Pull:
    """A part of a trace that pulls cotangents back through an earlier part."""

    # Set when that is made: what there is of the cotangent of each of its outputs; the values whose cotangents are
    # inputs; the shapes of these and of all results of the passage; which of those this pull computes.
    forward: Part
    known: tuple[int, ...]
    received: list[Slot]
    shapes: list[tuple[int, ...]]
    wanted: tuple[int, ...]

    def __init__(self, section: Section, inputs: list[Slot], done: list[Slot], is_last: bool) -> None:
        """inputs: values of the trace that are cotangents; done: those of them that no later part reads.

        is_last: whether no other pull goes through this part after it.
        """
        self.section, self.inputs, self.done, self.is_last = section, inputs, done, is_last
        self.backward = section.route.backward
        # Of the last pull of a backward: results of that, and the values that they are the gradients of.
        self.gradients: list[tuple[Slot, Slot]] = []

    def go_through(self, part: Part) -> None:
        """This is the part of the forward pass that it goes back through."""
        section, passage = self.section, part.passage
        assert passage is not None, "its section is one of that"
        self.forward = part
        self.known = tuple(
            [ABSENT if x not in section.given else ONE if x in section.ones else GIVEN for x in passage.outputs]
        )
        self.received = [x for x, how in zip(passage.outputs, self.known, strict=True) if how == GIVEN]
        self.shapes = [x.shape for x in (*self.received, *passage.results)]
        place = {x: k for k, x in enumerate(passage.results)}
        self.wanted = tuple(map(place.__getitem__, section.results))

    def kind(self) -> tuple[Any, ...]:
        """What is equal for pulls that one plan computes."""
        return (PULL, *self.forward.kind(), self.known, self.wanted)

    def run(self, progress: Progress) -> PartRun:
        """It with its inputs, which it takes out of what the parts before it have left."""
        given, totals, at = self.section.given, progress.totals, id(self.forward)
        residuals, stored = progress.residuals.pop(at) if self.is_last else progress.residuals[at]
        shapes, inputs = [d.shape for d in stored], [*stored]
        for x in self.received:
            slot = given[x]
            inputs.append(totals.pop((self.backward, x)) if slot is None else progress.value(slot))
        progress.forget(self.done)
        return self.over(residuals, inputs, shapes, progress.scalars)

    def over(
        self, residuals: Residuals, inputs: list[Data], stored: Sequence[tuple[int, ...]], scalars: Sequence[Any]
    ) -> PartRun:  # fmt: skip
        """It over what the plan of the forward part stores; stored: the shapes of that."""
        extents, own = self.forward.form.ext.values, self.forward.scalars_of(scalars)
        numbers = [own[k] for k in (*residuals.scalars, *residuals.offsets)]
        types = tuple(map(type, numbers[: len(residuals.scalars)]))
        template = self._template(residuals, types)
        shapes = [*stored, *self.shapes]
        at = len(stored) + len(self.received)
        values = [d for shape in shapes[:at] for d in shape] + [extents[k] for k in residuals.symbols]
        form = template.form_at(values, [*template.end.steps()[:at], *template.end.slots], shapes)
        want = [template.end.slots[k] for k in self.wanted]
        return PartRun(template.enter(form), form.ext, numbers, inputs, want, lambda: self._sites(at))

    def receive(self, progress: Progress, run: PartRun, found: list[Data]) -> None:
        """Hand on what it has computed."""
        totals, s = progress.totals, self.backward
        totals.update({(s, x): d for x, d in zip(self.section.results, found, strict=True)})
        for y, x in self.gradients:
            progress.values[y] = totals[s, x]
        if self.gradients:
            for x in self.section.route.wanted:
                del totals[s, x]

    def _sites(self, inputs: int) -> list[Site | None]:
        return [None] * inputs + [self.backward.site]

    def _template(self, residuals: Residuals, types: tuple[type, ...]) -> Template:
        known = self.forward.template.pulls
        key = (residuals, self.known, types)
        template = known.get(key)
        if template is None:
            if len(known) >= MAX_PULLS:
                known.clear()
            template = known[key] = _made(residuals, self.known, types, self.backward)
        return template


def _made(residuals: Residuals, known: tuple[int, ...], types: tuple[type, ...], backward: Step) -> Template:
    """An input for each residual and each given cotangent, then the step that pulls back."""
    device = backward.device
    sid = structure_id(ROOT, (residuals.number, known, types, device))
    pos = root_of(backward, sid)
    forms = [(n.shape, n.dtype) for n in residuals.stored]
    forms += [form for form, how in zip(residuals.values, known, strict=True) if how == GIVEN]
    arrays: list[Step] = []
    for shape, dtype in forms:
        pos = input_after(pos, dtype, (0,) * len(shape), 0, device)
        arrays.append(pos)
    key = (PULL, (*arrays, *types), (residuals, known))
    s = Step(pos, PULL, key[1], key[2], key, pos.index + 1)
    s.n_weak, s.n_offsets, s.n_ints = len(types), len(residuals.offsets), len(residuals.symbols)
    s.n_scalars = s.n_weak + s.n_offsets
    s.info = ("ints",) * bool(s.n_ints) + ("offsets",) * bool(s.n_offsets)
    s.site, s.mode, s.device, s.sid = backward.site, backward.mode, device, sid
    s.slots = tuple(s if k == 0 else Slot(s, k, None, False) for k in range(len(residuals.gradients)))
    for x, n in zip(s.slots, residuals.gradients, strict=True):
        x.dtype = n.dtype
    return Template(s)
