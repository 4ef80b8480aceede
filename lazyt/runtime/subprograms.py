"""Partition of a long trace into subprograms that are planned one by one.

A loop that nobody reads records the same steps again and again. Planned as one graph, n iterations cost n plans' time
and n plans' memory. So a trace with equal iterations is divided between them, and a very long one without at places
that few values cross (division.py). Each part is a program of its own: its *inputs* are the values that it reads and
does not compute. Parts of equal structure share one *template*, hence one plan, whatever iteration, line or trace they
are from.

    0  input x                 part 0: steps 2, 4         template: input, input, matmul, tanh
    1  input w                 part 1: steps 5, 6         the same template, over the result of part 0
    2  matmul 0 1              part 2: ...
    4  tanh 2
    5  matmul 4 1

What no part needs is not computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyt.autograd.engine import BACKWARD
from lazyt.autograd.saved_segment import input_numbers
from lazyt.config import general as settings
from lazyt.ir.records import dataclass
from lazyt.ops.compression import DRAWS
from lazyt.runtime.division import MIN_STEPS, Body, accumulation, boundaries, left_of_iteration, references
from lazyt.tracing.call_site import Site
from lazyt.tracing.steps import ASSIGN, INPUT
from lazyt.tracing.trace import Ext, Slot, Step, structure_id

if TYPE_CHECKING:
    from lazyt.tracing.tensor_state import Data

MAX_TEMPLATES = 1 << 12
# Extents that a template remembers.
MAX_FORMS = 64
# The structure id that those of templates begin from.
ROOT = -8


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
    return None if pos.mixed or not settings["partition"] else left_of_iteration(pos.steps())
