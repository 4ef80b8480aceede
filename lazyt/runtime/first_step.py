"""Division of a first training step from the initialization of its parameters, so later steps reuse its plan.

    w = lt.randn(...); w.requires_grad_()          the first trace makes the parameters too
    loss(w, x).backward(); opt.step(); lt.sync()
    loss(w, x).backward(); opt.step(); lt.sync()   the second one has them as inputs

Planned as one program, the first trace would have a plan that hardly ever comes again. So it is divided behind the last
step before its first backward that makes or writes a leaf, if it makes most of the leaves that this backward leads to.
The rest is the program that the next trace will record, an input before its first use, and has its number. If the next
trace is another one, it is planned as any. A trace that comes again and again is one program from its third time on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile

from lazyt.autograd.engine import BACKWARD
from lazyt.autograd.track import SYNCED, TRACK, is_synced
from lazyt.runtime.chain import Part, Template
from lazyt.runtime.division import Body, references
from lazyt.tracing.inference import INFERENCE
from lazyt.tracing.program import INPUT, MODE, Builder, Call, Slot, number_of
from lazyt.tracing.trace import Step

# Number of times that the same trace is divided.
TIMES = 2
# Most bytes of leaves in a trace that is divided: both parts have them in memory, and the step may not overwrite its
# inputs. For large models that costs more than planning.
MOST = 1 << 28


def begins(path: Sequence[Step], body: Body) -> int:
    """Index of the step with which training begins; 0 where the trace stays one program."""
    # NOTE: a memory budget and compression apply to the whole trace.
    if not body.first or any(s.mode.memory is not None or s.mode.compress is not None for s in path):
        return 0
    backward, first = next(iter(body.first.items()))
    before = body.steps[:first]
    made = [i for i, s in enumerate(before) if s.targets or _makes_leaf(s)]
    leaves = {group[0].leaf for group in backward.info if group[0].leaf is not None}
    own = [x for x in leaves if body.position.get(x.step, first) < first]
    at = made[-1] + 1 if made else 0
    if body.closed[at] or 2 * len(own) < len(leaves):
        return 0
    return at if sum(math.prod(x.shape) * x.dtype.itemsize for x in own) <= MOST else 0


def _makes_leaf(s: Step) -> bool:
    """Whether a step makes a leaf that lasts; the arguments of a transform are leaves inside of it alone."""
    return any(x.leaf is not None for x in s.slots) and not (s.op is TRACK and s.statics)


class _Recorder(Builder):
    """Builds a program in the order of recording, each input before its first use."""

    def __init__(self, like: Step) -> None:
        super().__init__(like.mode, like.device, number_of(0, (like.mode,)))
        self.inputs: list[Slot] = []
        self.shapes: list[tuple[int, ...]] = []
        self.extents: list[int] = []

    def meet(self, x: Slot) -> bool:
        """Adds an input for a value; False where the next trace will not have it as an input."""
        s = x.step
        if s.op is INPUT:
            tracked, at = s.statics[2:4]
        else:
            tracked, at = 0 if not x.requires_grad else 1 if x.leaf is not None and not is_synced(s) else SYNCED, -1
        if tracked in (SYNCED, INFERENCE) or at >= 0:
            return False
        self.input((x.dtype, len(x.shape), tracked, -1, s.device), x)
        self.inputs.append(x)
        self.shapes.append(x.shape)
        self.extents += x.shape
        return True

    def step(self, s: Step, extents: tuple[int, ...]) -> None:
        """Adds a step."""
        c = self.copy(s)
        if s.op is BACKWARD and s.pulled is not None:
            self._order(c, s)
        self.shapes += [x.shape for x in c.slots]
        self.extents += extents[s.ext_start : s.ext_start + s.n_ints]

    def _order(self, c: Call, s: Step) -> None:
        """Sorts the gradients of a `backward()` by the order of their leaves in this program."""
        order = sorted(range(len(c.info)), key=lambda i: c.info[i][0].step.index)
        c.info = tuple(c.info[i] for i in order)
        for i, y in zip(order, c.slots, strict=True):
            x = s.slots[i]
            y.dtype, y.shape, y.requires_grad = x.dtype, x.shape, x.requires_grad
            self.slots[x] = y


def first_step(steps: Sequence[Step], extents: tuple[int, ...], need: set[Slot]) -> Part | None:
    """The part of `steps`, the last ones of a trace with these extents; None where the next trace will be another one.

    need: the wanted values.
    """
    steps = steps[sum(1 for _ in takewhile(lambda s: s.op is MODE, steps)) :]
    to = _Recorder(steps[0])
    met: list[Step] = []  # inputs that are not read yet
    for s in steps:
        if s.op is INPUT:
            met.append(s)
            continue
        read = [] if s.op is MODE else [x for x in (*references(s), *s.targets) if x not in to.slots]
        unread = [x for x in met if x not in read]
        if not all(map(to.meet, dict.fromkeys([*unread, *read]))):
            return None
        met = []
        to.step(s, extents)
    template = Template(to.program())
    slots = [x for c in to.calls for x in c.slots]
    of = {v: x for x, v in to.slots.items()}
    want = [of[v] for v in slots if v.step.op is not INPUT and v in of and of[v] in need]
    form = template.form(to.extents, slots, to.shapes)
    scalars = [(steps[0].scalar_start, steps[-1].scalar_start + steps[-1].n_scalars)]
    sites = [c.site for c in to.calls]
    return Part(template, form, to.inputs, sites, want, [to.slots[x] for x in want], scalars, [], [])
