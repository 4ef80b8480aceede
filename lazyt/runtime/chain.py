"""The parts of a long trace: programs of their own over what earlier parts have computed, run one after another.

A part of equal calls is one program whatever iteration, line or trace it is from: its *template*, whose calls no
recording ever takes. A *pull* is the part of a divided backward that goes back through one part of its forward pass,
over what the plan of that has stored (backward_route.py): a program of one call, made when that plan is there, for that
decides what it stores.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyt.autograd.later import Later
from lazyt.autograd.track import SYNCED, is_synced
from lazyt.ir.records import dataclass
from lazyt.ops.residuals import ABSENT, GIVEN, ONE, PULL
from lazyt.tracing.program import INPUT, Builder, Key, Program, Slot, key_of, number_of
from lazyt.tracing.trace import Ext, Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyt.ir.residuals import Residuals
    from lazyt.runtime.backward_route import Passage, Section
    from lazyt.tracing.call_site import Site
    from lazyt.tracing.tensor_state import Data

MAX_TEMPLATES = 1 << 12
# Extents that a template remembers.
MAX_FORMS = 64
# Programs that go back through one template; those of plans that were dropped are never asked for again.
MAX_PULLS = 8


class Form(NamedTuple):
    """Extents of a part as one object, and the shapes that its values have then."""

    ext: Ext
    shapes: list[tuple[Slot, tuple[int, ...]]]


class Template:
    """The program of parts of equal calls, and what it was met with."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.forms: dict[tuple[int, ...], Form] = {}
        self.current: Form | None = None
        self.pulls: dict[tuple[Any, ...], Template] = {}  # that go back through it

    def form(self, extents: Sequence[int], slots: Sequence[Slot], shapes: Sequence[tuple[int, ...]]) -> Form:
        """The form at these extents, in which these values have these shapes; of equal extents it is the same."""
        key = tuple(extents)
        found = self.forms.get(key)
        if found is None:
            if len(self.forms) >= MAX_FORMS:
                self.forms.clear()
            found = self.forms[key] = Form(Ext(None, key), list(zip(slots, shapes, strict=True)))
        return found

    def enter(self, form: Form) -> Program:
        """The program, its values in these shapes."""
        if self.current is not form:
            for v, shape in form.shapes:
                v.shape = shape
            self.current = form
        return self.program


@dataclass
class PartRun:
    """A part with the values that it reads: a sync computes it as it does a trace."""

    program: Program
    ext: Ext
    scalars: list[Any]
    inputs: list[Data]
    want: list[Slot]
    sites: Callable[[], list[Site | None]]  # the user's line of each call
    later: Later | None = None  # what a later part pulls back here
    residuals: Residuals | None = None  # of `later`, once it is computed: its values are behind the others


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
    """Some calls of a trace."""

    template: Template
    form: Form
    inputs: list[Slot]
    sites: list[Site | None]  # the user's line of each call of the template
    want: list[Slot]  # values of the trace
    wanted: list[Slot]  # the same of the template
    scalars: list[tuple[int, int]]  # ranges of the trace's scalars
    done: list[Slot]  # the inputs that no later part reads
    unread: list[Slot]  # of `want`, what no later part reads
    passage: Passage | None = None  # what backwards pull back here
    later: Later | None = None  # the same of the template

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
        """It over these inputs and the trace's scalars; the template's values get the shapes that they have here."""
        program = self.template.enter(self.form)
        sites = self.sites
        return PartRun(
            program, self.form.ext, self.scalars_of(scalars), inputs, self.wanted, lambda: [*sites], self.later
        )

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


_templates: dict[int, Template] = {}


def forget() -> None:
    """Forget all templates, which have the plans of their programs."""
    _templates.clear()


def part_of(
    live: list[Step], inputs: list[Slot], want: list[Slot], unread: list[Slot], done: list[Slot],
    extents: tuple[int, ...], passage: Passage | None,
) -> Part:  # fmt: skip
    """The part of these steps over these values; its template is that of an equal one, if there was one."""
    # NOTE: gradients are asked of what a backward hands cotangents on to.
    tracked = frozenset() if passage is None else passage.entering
    forms = [_form_of(x, tracked) for x in inputs]
    place: dict[Slot, tuple[int, int]] = {x: (i, 0) for i, x in enumerate(inputs)}
    number = 0
    for form in forms:
        number = number_of(number, (INPUT, *form))
    for i, s in enumerate(live, len(inputs)):
        number = number_of(number, key_of(s, place.__getitem__))
        for x in s.slots:
            place[x] = (i, x.k)
    template = _templates.get(number)
    if template is None:
        if len(_templates) >= MAX_TEMPLATES:
            _templates.clear()
        template = _templates[number] = _template_of(live, inputs, forms, number)
    calls = template.program.calls

    def placed(values: Sequence[Slot]) -> list[Slot]:
        return [calls[i].slots[k] for i, k in map(place.__getitem__, values)]

    values = [d for x in inputs for d in x.shape]
    scalars: list[tuple[int, int]] = []
    for s in live:
        values += extents[s.ext_start : s.ext_start + s.n_ints]
        if s.n_scalars:
            start, stop = s.scalar_start, s.scalar_start + s.n_scalars
            if scalars and scalars[-1][1] == start:
                start = scalars.pop()[0]
            scalars.append((start, stop))
    own = [*inputs, *(x for s in live for x in s.slots)]
    at = template.form(values, placed(own), [x.shape for x in own])
    sites = [*(x.step.site for x in inputs), *(s.site for s in live)]
    later = None if passage is None else Later(placed(passage.outputs), [[x] for x in placed(passage.results)])
    return Part(template, at, inputs, sites, want, placed(want), scalars, done, unread, passage, later)


def _form_of(x: Slot, tracked: Container[Slot]) -> Key:
    """The form of an input for a value, which gradients are asked of if it is one of `tracked`.

    So they are of a leaf, a later value of one, or one computed by another sync.
    """
    s = x.step
    asked = (
        0 if x.leaf is None or not x.requires_grad else SYNCED if is_synced(s) else s.statics[2] if s.op is INPUT else 1
    )
    return (x.dtype, len(x.shape), 1 if x in tracked else asked, -1, s.device)


def _template_of(live: Sequence[Step], inputs: Sequence[Slot], forms: Sequence[Key], number: int) -> Template:
    made = Builder(live[0].mode, live[0].device)
    for x, form in zip(inputs, forms, strict=True):
        made.input(form, x)
    for s in live:
        made.copy(s)
    return Template(Program(made.calls, number))


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
        calls, results = template.program.calls, template.program.end.slots
        shapes = [*stored, *self.shapes]
        at = len(stored) + len(self.received)
        values = [d for shape in shapes[:at] for d in shape] + [extents[k] for k in residuals.symbols]
        form = template.form(values, [*calls[:at], *results], shapes)
        want = [results[k] for k in self.wanted]
        return PartRun(
            template.enter(form), form.ext, numbers, inputs, want, lambda: [None] * at + [self.backward.site]
        )

    def receive(self, progress: Progress, run: PartRun, found: list[Data]) -> None:
        """Hand on what it has computed."""
        totals, s = progress.totals, self.backward
        totals.update({(s, x): d for x, d in zip(self.section.results, found, strict=True)})
        for y, x in self.gradients:
            progress.values[y] = totals[s, x]
        if self.gradients:
            for x in self.section.route.wanted:
                del totals[s, x]

    def _template(self, residuals: Residuals, types: tuple[type, ...]) -> Template:
        known = self.forward.template.pulls
        key = (residuals, self.known, types)
        template = known.get(key)
        if template is None:
            if len(known) >= MAX_PULLS:
                known.clear()
            template = known[key] = _pull_of(residuals, self.known, types, self.backward)
        return template


def _pull_of(residuals: Residuals, known: tuple[int, ...], types: tuple[type, ...], backward: Step) -> Template:
    """An input for each residual and each given cotangent, then the call that pulls back."""
    made = Builder(backward.mode, backward.device)
    forms = [(n.shape, n.dtype) for n in residuals.stored]
    forms += [form for form, how in zip(residuals.values, known, strict=True) if how == GIVEN]
    arrays = [made.input((dtype, len(shape), 0, -1, backward.device)) for shape, dtype in forms]
    more = len(residuals.symbols), len(residuals.offsets), len(residuals.gradients)
    c = made.call(backward, PULL, (*arrays, *types), (residuals, known), more)
    for x, n in zip(c.slots, residuals.gradients, strict=True):
        x.dtype = n.dtype
    return Template(made.program())
