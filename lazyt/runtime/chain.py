"""Parts of a long trace: programs of their own that run one after another, on values that earlier parts computed.

Parts with equal calls share one program, their *template*, whichever iteration, line or trace they come from. A *pull*
is a part of a divided backward: it goes back through one part of the forward pass, on the residuals that the plan of
this part stores (backward_route.py). It is a program of one call, and is made when that plan exists, because the plan
decides what is stored.
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
# Number of forms that a template keeps.
MAX_FORMS = 64
# Number of pulls that a template keeps; those of dropped plans are not looked up again.
MAX_PULLS = 8


class Form(NamedTuple):
    """The extents of a part, as one object for equal extents, and the shapes of its values at these extents."""

    ext: Ext
    shapes: list[tuple[Slot, tuple[int, ...]]]


class Template:
    """The program that parts with equal calls share, and its forms."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.forms: dict[tuple[int, ...], Form] = {}
        self.current: Form | None = None
        self.pulls: dict[tuple[Any, ...], Template] = {}  # templates of pulls through such a part

    def form(self, extents: Sequence[int], slots: Sequence[Slot], shapes: Sequence[tuple[int, ...]]) -> Form:
        """Returns the form at these extents, in which `slots` have `shapes`; the same object for equal extents."""
        key = tuple(extents)
        found = self.forms.get(key)
        if found is None:
            if len(self.forms) >= MAX_FORMS:
                self.forms.clear()
            found = self.forms[key] = Form(Ext(None, key), list(zip(slots, shapes, strict=True)))
        return found

    def enter(self, form: Form) -> Program:
        """Sets the shapes of the program's values to those of a form, and returns the program."""
        if self.current is not form:
            for v, shape in form.shapes:
                v.shape = shape
            self.current = form
        return self.program


@dataclass
class PartRun:
    """A part bound to its inputs and scalars, which a sync computes as it does a trace."""

    program: Program
    ext: Ext
    scalars: list[Any]
    inputs: list[Data]
    want: list[Slot]
    sites: Callable[[], list[Site | None]]  # the user's line of each call
    later: Later | None = None  # the differentiation that a pull completes
    residuals: Residuals | None = None  # of `later`, set by the run; their values follow the wanted ones


class Progress:
    """The values that parts have computed so far and later parts read."""

    def __init__(self, numbers: Mapping[Slot, int], scalars: Sequence[Any], inputs: Sequence[Data]) -> None:
        """numbers: the index of each input of the trace."""
        self.numbers, self.scalars, self.inputs = numbers, scalars, inputs
        self.values: dict[Slot, Data] = {}
        # By the identity of a part: what its plan stored for pulls. By backward and value: the cotangent so far.
        self.residuals: dict[int, tuple[Residuals, list[Data]]] = {}
        self.totals: dict[tuple[Step, Slot], Data] = {}

    def value(self, x: Slot) -> Data:
        """Returns the data of an input of a part: an input of the trace, or a value of an earlier part."""
        number = self.numbers.get(x)
        return self.values[x] if number is None else self.inputs[number]

    def forget(self, values: Sequence[Slot]) -> None:
        """Drops values that no later part reads."""
        for x in values:
            del self.values[x]


@dataclass
class Part:
    """Some calls of a trace, as a program on the values that they read."""

    template: Template
    form: Form
    inputs: list[Slot]
    sites: list[Site | None]  # the user's line of each call of the template
    want: list[Slot]  # the values to compute, in the trace
    wanted: list[Slot]  # the same values in the template
    scalars: list[tuple[int, int]]  # ranges of the trace's scalars
    done: list[Slot]  # inputs that no later part reads
    unread: list[Slot]  # values of `want` that no later part reads
    passage: Passage | None = None  # the values between which backwards go through it
    later: Later | None = None  # the same in the template

    def kind(self) -> tuple[Any, ...]:
        """Key of the plan: equal for parts that one plan computes."""
        later = None if self.later is None else self.later.name
        return (id(self.template), id(self.form), tuple(map(id, self.wanted)), later)

    def run(self, progress: Progress) -> PartRun:
        """Takes the inputs out of `progress` and binds them."""
        inputs = [progress.value(x) for x in self.inputs]
        progress.forget(self.done)
        return self.over(inputs, progress.scalars)

    def over(self, inputs: list[Data], scalars: Sequence[Any]) -> PartRun:
        """Binds inputs and the trace's scalars, and gives the template's values the shapes of this part."""
        program = self.template.enter(self.form)
        sites = self.sites
        return PartRun(
            program, self.form.ext, self.scalars_of(scalars), inputs, self.wanted, lambda: [*sites], self.later
        )

    def receive(self, progress: Progress, run: PartRun, found: list[Data]) -> None:
        """Stores the results of a run in `progress`."""
        n = len(self.want)
        progress.values.update(zip(self.want, found[:n], strict=True))
        progress.forget(self.unread)
        if self.later is not None:
            assert run.residuals is not None, "a plan of what a backward pulls back stores them"
            progress.residuals[id(self)] = run.residuals, found[n:]

    def scalars_of(self, scalars: Sequence[Any]) -> list[Any]:
        """Selects the scalars of this part from those of the trace."""
        return [v for start, stop in self.scalars for v in scalars[start:stop]]


_templates: dict[int, Template] = {}


def forget() -> None:
    """Drops all templates and the plans of their programs."""
    _templates.clear()


def part_of(
    live: list[Step], inputs: list[Slot], want: list[Slot], unread: list[Slot], done: list[Slot],
    extents: tuple[int, ...], passage: Passage | None,
) -> Part:  # fmt: skip
    """Makes the part that consists of the steps `live` and reads `inputs`; equal parts get one template."""
    # NOTE: a backward hands cotangents on to these values, so gradients are asked of them.
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
    """The form of an input that stands for a value (see `Builder.input`).

    Gradients are asked of values in `tracked`, of a leaf, of a later version of a leaf, and of values of another sync.
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
    """A part of a backward: the pull-back of cotangents through one part of the forward pass."""

    # Set by `go_through`: the forward part; for each of its outputs whether the cotangent is absent, one or given; the
    # outputs whose cotangents are inputs; the shapes of these and of the passage's results; the results it computes.
    forward: Part
    known: tuple[int, ...]
    received: list[Slot]
    shapes: list[tuple[int, ...]]
    wanted: tuple[int, ...]

    def __init__(self, section: Section, inputs: list[Slot], done: list[Slot], is_last: bool) -> None:
        """inputs: values of the trace that are cotangents; done: inputs that no later part reads.

        is_last: whether it is the last pull through its forward part.
        """
        self.section, self.inputs, self.done, self.is_last = section, inputs, done, is_last
        self.backward = section.route.backward
        # For the last pull of a backward: its results, and the values that they are gradients of.
        self.gradients: list[tuple[Slot, Slot]] = []

    def go_through(self, part: Part) -> None:
        """Sets the part of the forward pass that it goes back through."""
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
        """Key of the plan: equal for pulls that one plan computes."""
        return (PULL, *self.forward.kind(), self.known, self.wanted)

    def run(self, progress: Progress) -> PartRun:
        """Takes residuals and cotangents out of `progress` and binds them."""
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
        """Binds the residuals that the forward part's plan stores, and cotangents; stored: the shapes of residuals."""
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
        """Stores the results of a run in `progress`."""
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
    """Makes the program of a pull: inputs for residuals and given cotangents, then one call."""
    made = Builder(backward.mode, backward.device)
    forms = [(n.shape, n.dtype) for n in residuals.stored]
    forms += [form for form, how in zip(residuals.values, known, strict=True) if how == GIVEN]
    arrays = [made.input((dtype, len(shape), 0, -1, backward.device)) for shape, dtype in forms]
    more = len(residuals.symbols), len(residuals.offsets), len(residuals.gradients)
    c = made.call(backward, PULL, (*arrays, *types), (residuals, known), more)
    for x, n in zip(c.slots, residuals.gradients, strict=True):
        x.dtype = n.dtype
    return Template(made.program())
