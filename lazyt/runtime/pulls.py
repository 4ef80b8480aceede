"""Pulls: the parts of a divided backward, each over what a part of its forward pass stored (backward_route.py).

Pulls of equal parts have one template, hence one plan. A template is made when the plan of the forward part is there,
for that decides what it stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lazyt.ops.residuals import PULL
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

    forward: Part  # set when that is made

    def __init__(self, section: Section, inputs: list[Slot], done: list[Slot]) -> None:
        """inputs: values of the trace that are cotangents; done: those of them that no later part reads."""
        self.section, self.inputs, self.done = section, inputs, done
        self.backward = section.route.backward
        self.shapes = [x.shape for x in (*self._received(), *section.results)]
        # Of the last pull of a backward: results of that, and the values that they are the gradients of.
        self.gradients: list[tuple[Slot, Slot]] = []

    def kind(self) -> tuple[Any, ...]:
        """What is equal for pulls that one plan computes."""
        return (PULL, *self.forward.kind(), self.section.ones)

    def _received(self) -> list[Slot]:
        """The values whose cotangents are inputs."""
        return [x for x, one in zip(self.section.outputs, self.section.ones, strict=True) if not one]

    def run(self, progress: Progress) -> PartRun:
        """It with its inputs, which it takes out of what the parts before it have left."""
        section, totals = self.section, progress.totals
        residuals, inputs = progress.residuals.pop(id(self.forward))
        for x, slot, one in zip(section.outputs, section.given, section.ones, strict=True):
            if not one:
                inputs.append(totals.pop((self.backward, x)) if slot is None else progress.value(slot))
        progress.forget(self.done)
        return self.over(residuals, inputs, [d.shape for d in inputs[: len(residuals.stored)]], progress.scalars)

    def over(
        self, residuals: Residuals, inputs: list[Data], stored: Sequence[tuple[int, ...]], scalars: Sequence[Any]
    ) -> PartRun:  # fmt: skip
        """It over what the plan of the forward part stores; stored: the shapes of that."""
        extents, own = self.forward.form.ext.values, self.forward.scalars_of(scalars)
        numbers = [own[k] for k in (*residuals.scalars, *residuals.offsets)]
        types = tuple(map(type, numbers[: len(residuals.scalars)]))
        template = self._template(residuals, types)
        shapes = [*stored, *self.shapes]
        at = len(shapes) - len(self.section.results)
        values = [d for shape in shapes[:at] for d in shape] + [extents[k] for k in residuals.symbols]
        form = template.form_at(values, [*template.end.steps()[:at], *template.end.slots], shapes)
        want = list(template.end.slots)
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
        key = (residuals, self.section.ones, types)
        template = known.get(key)
        if template is None:
            if len(known) >= MAX_PULLS:
                known.clear()
            template = known[key] = _made(residuals, self.section.ones, types, self.backward)
        return template


def _made(residuals: Residuals, ones: tuple[bool, ...], types: tuple[type, ...], backward: Step) -> Template:
    """An input for each residual and each cotangent that is no 1, then the step that pulls back."""
    device = backward.device
    sid = structure_id(ROOT, (residuals.number, ones, types, device))
    pos = root_of(backward, sid)
    forms = [(n.shape, n.dtype) for n in residuals.stored]
    forms += [form for form, one in zip(residuals.values, ones, strict=True) if not one]
    arrays: list[Step] = []
    for shape, dtype in forms:
        pos = input_after(pos, dtype, (0,) * len(shape), 0, device)
        arrays.append(pos)
    key = (PULL, (*arrays, *types), (residuals, ones))
    s = Step(pos, PULL, key[1], key[2], key, pos.index + 1)
    s.n_weak, s.n_offsets, s.n_ints = len(types), len(residuals.offsets), len(residuals.symbols)
    s.n_scalars = s.n_weak + s.n_offsets
    s.info = ("ints",) * bool(s.n_ints) + ("offsets",) * bool(s.n_offsets)
    s.site, s.mode, s.device, s.sid = backward.site, backward.mode, device, sid
    s.slots = tuple(s if k == 0 else Slot(s, k, None, False) for k in range(len(residuals.gradients)))
    for x, n in zip(s.slots, residuals.gradients, strict=True):
        x.dtype = n.dtype
    return Template(s)
