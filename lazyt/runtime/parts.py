"""Parts of a trace: programs of their own over what earlier parts have computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lazyt.autograd.later import Later
from lazyt.ir.records import dataclass
from lazyt.runtime.templates import PartRun, input_key, step_key, template_of
from lazyt.tracing.trace import Slot, Step, structure_id

if TYPE_CHECKING:
    from lazyt.ir.residuals import Residuals
    from lazyt.runtime.backward_route import Passage
    from lazyt.runtime.templates import Form, Template
    from lazyt.tracing.call_site import Site
    from lazyt.tracing.tensor_state import Data

MAX_TEMPLATES = 1 << 12
# The structure id that those of templates begin from.
ROOT = -8


class Progress:
    """What the parts of a trace have computed so far, and what the later ones still read."""

    def __init__(self, numbers: Mapping[Slot, int], scalars: Sequence[Any], inputs: Sequence[Data]) -> None:
        """numbers: which of the trace's inputs a value is."""
        self.numbers, self.scalars, self.inputs = numbers, scalars, inputs
        self.values: dict[Slot, Data] = {}
        # Of parts that a backward goes through, by their identity; and the cotangents of each backward.
        self.residuals: dict[int, tuple[Residuals, list[Data]]] = {}
        self.totals: dict[tuple[Step, Slot], Data] = {}

    def value(self, x: Slot) -> Data:
        """An input of a part: one of the trace, or what an earlier part computed."""
        number = self.numbers.get(x)
        return self.values[x] if number is None else self.inputs[number]

    def forget(self, values: Sequence[Slot]) -> None:
        """No later part reads these."""
        for x in values:
            del self.values[x]


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
    unread: list[Slot]  # of `want`, what no later part reads
    passage: Passage | None  # what backwards pull back here
    later: Later | None  # the same on the template's path

    def kind(self) -> tuple[Any, ...]:
        """What is equal for parts that one plan computes."""
        later = None if self.later is None else self.later.name
        return (id(self.template), id(self.form), tuple(map(id, self.wanted)), later)

    def run(self, progress: Progress) -> PartRun:
        """It with its inputs."""
        inputs = [progress.value(x) for x in self.inputs]
        progress.forget(self.done)
        return self.over(inputs, progress.scalars)

    def over(self, inputs: list[Data], scalars: Sequence[Any]) -> PartRun:
        """It over these inputs and the trace's scalars; the values of its path get the shapes that they have here."""
        end = self.template.enter(self.form)
        return PartRun(end, self.form.ext, self.scalars_of(scalars), inputs, self.wanted, self._sites, self.later)

    def receive(self, progress: Progress, run: PartRun, found: list[Data]) -> None:
        """Hand on what it has computed."""
        n = len(self.want)
        progress.values.update(zip(self.want, found[:n], strict=True))
        progress.forget(self.unread)
        if self.later is not None:
            assert run.residuals is not None, "a plan of what a backward pulls back stores them"
            progress.residuals[id(self)] = run.residuals, found[n:]

    def scalars_of(self, scalars: Sequence[Any]) -> list[Any]:
        """Of the trace's scalars those of this part."""
        return [v for start, stop in self.scalars for v in scalars[start:stop]]

    def _sites(self) -> list[Site | None]:
        """The user's lines, as the template numbers its steps."""
        return [x.step.site for x in self.inputs] + [s.site for s in self.steps]


_templates: dict[int, Template] = {}


def forget() -> None:
    """Forget all templates, which have the plans of their programs."""
    _templates.clear()


def part_of(
    live: list[Step], inputs: list[Slot], want: list[Slot], unread: list[Slot], done: list[Slot],
    extents: tuple[int, ...], passage: Passage | None,
) -> Part:  # fmt: skip
    """A part of these steps; its template is that of an equal one, if there was one."""
    place: dict[Slot, tuple[int, int]] = {}
    # NOTE: gradients are asked of what a backward hands cotangents on to.
    tracked = frozenset() if passage is None else passage.entering
    sid = structure_id(ROOT, (live[0].device,))
    for i, x in enumerate(inputs):
        sid = structure_id(sid, input_key(x, tracked))
        place[x] = (i, 0)
    n = len(inputs)
    for i, s in enumerate(live, n):
        sid = structure_id(sid, step_key(s, place))
        for x in s.slots:
            place[x] = (i, x.k)
    template = _templates.get(sid)
    if template is None:
        if len(_templates) >= MAX_TEMPLATES:
            _templates.clear()
        template = _templates[sid] = template_of(live, inputs, tracked, sid)
    path = template.end.steps()
    scalars: list[tuple[int, int]] = []
    for s in live:
        if s.n_scalars:
            start, stop = s.scalar_start, s.scalar_start + s.n_scalars
            if scalars and scalars[-1][1] == start:
                start = scalars.pop()[0]
            scalars.append((start, stop))

    def placed(values: Sequence[Slot]) -> list[Slot]:
        return [path[i].slots[k] for i, k in map(place.__getitem__, values)]

    later = None if passage is None else Later(placed(passage.outputs), [[x] for x in placed(passage.results)])
    form = template.form(live, inputs, extents)
    return Part(template, form, inputs, live, want, placed(want), scalars, done, unread, passage, later)
