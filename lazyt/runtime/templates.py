"""Templates: the steps of parts of equal structure, on paths of their own, which no recording ever takes."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyt.autograd.track import SYNCED, is_synced
from lazyt.ir.records import dataclass
from lazyt.tracing.steps import ASSIGN, INPUT
from lazyt.tracing.trace import Ext, Slot, Step

if TYPE_CHECKING:
    from lazyt.autograd.later import Later
    from lazyt.ir.residuals import Residuals
    from lazyt.tracing.call_site import Site
    from lazyt.tracing.tensor_state import Data

# Extents that a template remembers.
MAX_FORMS = 64


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
        self.pulls: dict[tuple[Any, ...], Template] = {}  # that go back through it (see pulls.py)

    def form(self, live: Sequence[Step], inputs: Sequence[Slot], extents: tuple[int, ...]) -> Form:
        """That of a part, whose values have their shapes now; of equal extents it is the same."""
        path = self.end.steps()
        n = len(inputs)
        values = [d for x in inputs for d in x.shape]
        for s in live:
            if s.n_ints:
                values += extents[s.ext_start : s.ext_start + s.n_ints]
        slots = [*path[:n], *(y for v in path[n:] for y in v.slots)]
        return self.form_at(values, slots, [x.shape for x in (*inputs, *(x for s in live for x in s.slots))])

    def form_at(self, extents: Sequence[int], slots: Sequence[Slot], shapes: Sequence[tuple[int, ...]]) -> Form:
        """The form at these extents, in which these values have these shapes."""
        key = tuple(extents)
        found = self.forms.get(key)
        if found is None:
            if len(self.forms) >= MAX_FORMS:
                self.forms.clear()
            found = self.forms[key] = Form(Ext(None, key), list(zip(slots, shapes, strict=True)))
        return found

    def enter(self, form: Form) -> Step:
        """The end of the path, its values in these shapes."""
        if self.current is not form:
            for v, shape in form.shapes:
                v.shape = shape
            self.current = form
        return self.end


def input_key(x: Slot, tracked: Container[Slot]) -> tuple[Any, ...]:
    """An input by its dtype, number of dimensions and device, and whether it is one of `tracked`.

    So is a value that gradients are asked of: a leaf, a later value of one, or one computed by another sync.
    """
    s = x.step
    asked = (
        0 if x.leaf is None or not x.requires_grad else SYNCED if is_synced(s) else s.statics[2] if s.op is INPUT else 1
    )
    return (INPUT, x.dtype, len(x.shape), 1 if x in tracked else asked, -1, s.device)


def step_key(s: Step, place: dict[Slot, tuple[int, int]]) -> tuple[Any, ...]:
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


def root_of(like: Step, sid: int) -> Step:
    """Where a path begins, in the mode and on the device of a step."""
    root = Step(None, None, (), (), (), -1)
    root.mode, root.device, root.sid = like.mode, like.device, sid
    return root


def input_after(pos: Step, dtype: Any, shape: tuple[int, ...], tracked: int, device: str) -> Step:
    """The step of an input behind `pos`."""
    key = (INPUT, dtype, len(shape), tracked, -1, device)
    v = Step(pos, INPUT, (), key[1:], key, pos.index + 1)
    v.dtype, v.shape, v.n_ints = dtype, shape, len(shape)
    v.requires_grad = tracked != 0
    v.leaf = v if v.requires_grad else None
    v.device = device
    return v


def template_of(live: Sequence[Step], inputs: Sequence[Slot], tracked: Container[Slot], sid: int) -> Template:
    """The steps of a part on a path of its own."""
    pos = root_of(live[0], sid)
    slots: dict[Slot, Slot] = {}
    for x in inputs:
        v = input_after(pos, x.dtype, x.shape, input_key(x, tracked)[3], x.step.device)
        v.site = x.step.site
        slots[x] = pos = v
    for s in live:
        pos = copied(s, pos, slots)
    pos.sid = sid
    return Template(pos)


def copied(s: Step, pos: Step, slots: dict[Slot, Slot]) -> Step:
    """A step behind `pos`, on the values that `slots` has for its operands; its own values are added there."""

    def mapped(x: Any) -> Any:
        if isinstance(x, Slot):
            return slots[x]
        if isinstance(x, tuple | frozenset):
            return type(x)(mapped(y) for y in x)
        return x

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
    return v


@dataclass
class PartRun:
    """A part with the values that it reads: what a sync takes as a trace of its own."""

    pos: Step
    ext: Ext
    scalars: list[Any]
    inputs: list[Data]
    want: list[Slot]
    sites: Callable[[], list[Site | None]]  # the user's line of each step
    later: Later | None = None  # what a later part pulls back here
    residuals: Residuals | None = None  # of `later`, once it is computed: its values are behind the others
