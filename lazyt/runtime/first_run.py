"""First run of a small program, step by step: each step is interpreted or runs by a plan of its own. Bits are those of
later runs, except for products with a vector, which a fused plan may sum in another order.

Planning a program whole costs hundreds of microseconds a step, which a REPL or a test suite pays for programs that
never come again. A step's plan is found by its operation, attributes, and the dtypes and ranks of its operands, so
nothing is planned here once the steps are known. The kernels are those of one operation each.

Such a plan costs milliseconds, of which most are its code's. So a step whose primitives are exact (ir/bit_exact.py) is
interpreted, by NumPy, until its kind has come so often that code pays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt import on_demand
from lazyt.backends.common.precision import flushes
from lazyt.backends.registry import backends
from lazyt.config import general as settings
from lazyt.errors import OutOfMemory, found_at, is_from_outside, is_ours, relocate
from lazyt.ir import dtypes, graph as g
from lazyt.ops.arithmetic import MULTIPLY
from lazyt.ops.definition import PRODUCT
from lazyt.runtime import memory
from lazyt.runtime.plan import Plan, build, values_of
from lazyt.tracing.program import ASSIGN, INPUT, MODE, Builder, Program, Slot, is_expanded, kind_of
from lazyt.tracing.shape_inference import form_of
from lazyt.tracing.tensor_state import Data
from lazyt.tracing.trace import Step

if TYPE_CHECKING:
    from lazyt.backends.common.commit_flag import Receipt
    from lazyt.ir.bit_exact import Form
    from lazyt.ir.graph import Node
    from lazyt.ir.passes import same_division
else:
    same_division = on_demand.module("lazyt.ir.passes.same_division")

Extents = tuple[int, ...]
Array = np.ndarray[Any, Any]
Value = Data | Array  # an array: a result of NumPy that no kernel has read
MAX_KINDS = 4096
# Interpreted runs of a kind of step before it is compiled: NumPy takes 8 us more than code, a plan 2 to 20 ms.
INTERPRETED = 256
# Number of forms that a kind keeps.
MAX_FORMS = 16


class Kind(list[Plan]):
    """The plans of equal steps, the number of their interpreted runs, and their primitives at some extents."""

    __slots__ = ("forms", "interpreted", "program")

    def __init__(self) -> None:
        super().__init__()
        self.interpreted = 0
        self.forms: dict[tuple[Extents, tuple[int, ...] | None], Form] = {}
        self.program: Program | None = None

    def find(self, extents: Extents) -> Plan | None:
        """A plan whose guards hold at these extents, or None."""
        for plan in self:
            if plan.holds(extents):
                return plan
        return None

    def made(self, s: Step, operands: dict[Slot, Data], extents: Extents, scalars: Sequence[Any]) -> Plan:
        """Makes a plan for these extents."""
        if self.program is None:
            self.program = _alone(s, operands)
        end = self.program.end
        end.site = s.site  # named by an error of planning
        plan = build(self.program, extents, end.slots, scalars, False, settle=False)
        plan.compile(extents, scalars)
        self.append(plan)
        return plan

    def form(self, s: Step, operands: Sequence[Any], extents: Extents, scalars: Sequence[Any]) -> Form:
        """The primitives of a step at these extents."""
        offsets = tuple(scalars[s.n_weak :]) if "offsets" in s.info else None
        form = self.forms.get((extents, offsets))
        if form is None:
            if len(self.forms) >= MAX_FORMS:
                self.forms.clear()
            ints = tuple(extents[len(extents) - s.n_ints :]) if "ints" in s.info else None
            shaped = [x if isinstance(x, type) else (x.dtype, x.shape) for x in operands]
            form = self.forms[extents, offsets] = form_of(s, shaped, ints, offsets)
        return form

    def interpret(
        self, s: Step, operands: Sequence[Any], extents: Extents, scalars: Sequence[Any]
    ) -> list[Value] | None:  # fmt: skip
        """The results of a step by NumPy; None where some bits may differ from a plan's, or a plan pays.

        operands: of each a value, or the type of a scalar.
        """
        if self.interpreted >= INTERPRETED:
            self.forms.clear()
            return None
        form = self.form(s, operands, extents, scalars)
        if not form.exact or flushes():
            return None
        try:
            values = form.values([memory.as_array(x) if type(x) is Data else x for x in operands], scalars)
        except Exception as e:
            # NOTE: a plan raises the same mistake of the user in its own words.
            if settings["strict"] and is_ours(e):
                raise
            return None
        self.interpreted += 1
        return [_result(n, values, operands) for n in form.outputs]


def _alone(s: Step, operands: dict[Slot, Data]) -> Program:
    """The program of one step, without gradients: its plans do not depend on them."""
    made = Builder(s.mode.computing, s.device)
    for x, d in operands.items():
        made.input((d.dtype, len(d.shape), 0, -1, s.device), x)
    c = made.copy(s)
    c.mode, c.targets = s.mode.computing, ()
    for y in c.slots:
        y.requires_grad, y.leaf = False, None
    return made.program()


_kinds: dict[tuple[Any, ...], Kind] = {}


def _kind(key: tuple[Any, ...]) -> Kind:
    kind = _kinds.get(key)
    if kind is None:
        if len(_kinds) >= MAX_KINDS:
            _kinds.clear()
        kind = _kinds[key] = Kind()
    return kind


def forget() -> None:
    """Drops the plans of single steps."""
    _kinds.clear()


def _result(n: Node, values: dict[Node, Any], inputs: Sequence[Any]) -> Value:
    """A result of the interpreter; a reshaped operand shares the operand's memory, as in a plan."""
    base = n
    while base.op == "reshape":
        base = base.operands[0]
    x = inputs[base.attrs.index] if isinstance(base.attrs, g.Input) else None
    if type(x) is Data:
        return x if x.shape == n.shape else Data(x.buffer, n.shape, n.dtype)  # type: ignore[arg-type]
    found: Array = np.asarray(values[n], n.dtype)
    return found


def _in_memory(x: Value) -> Data:
    """A value in memory of the backend's pool."""
    if isinstance(x, Data):
        return x
    try:
        return memory.from_array(x)
    except MemoryError as e:
        raise OutOfMemory(f"sync: {e}") from None


def runs_stepwise(steps: Sequence[Step]) -> bool:
    """Whether each step can run alone: devices allow it, and none is an expanded one (a backward, a transform).

    Nor is one a product that may read float32 copies of halves: a plan of both reads the halves, with other bits.
    """
    if not all(backends[d].capabilities(d).first_run for d in {s.device for s in steps}):
        return False
    computing = _computing(steps)
    if any(is_expanded(s.op) for s in computing):
        return False
    return not any(map(_is_product, computing)) or not any(map(_widens, computing))


def _computing(steps: Sequence[Step]) -> list[Step]:
    return [s for s in steps if s.op not in (INPUT, ASSIGN, MODE)]


def _is_product(s: Step) -> bool:
    return s.op.saves == PRODUCT and s.op is not MULTIPLY


def _widens(s: Step) -> bool:
    """Whether a step gives float32 of a half."""
    if all(x.dtype != dtypes.float32 for x in s.slots):
        return False
    return any(isinstance(x, Slot) and x.dtype in dtypes.HALVES for x in s.operands)


def is_single(steps: Sequence[Step]) -> bool:
    """Whether a program is one operation of one compiled kernel, so that its own plan is the fused one.

    Not where the plan of such a step is there already: that runs at once.
    """
    computing = _computing(steps)
    if len(computing) != 1 or not settings["tiers"]:
        return False
    s = computing[0]
    if "ints" in s.info or "offsets" in s.info:
        return False  # the plan of a single step serves all sizes and positions, and all programs
    if _kinds.get(_key(s, [x for x in s.operands if isinstance(x, Slot)])):
        return False
    form = form_of(s, [(x.dtype, x.shape) if isinstance(x, Slot) else x for x in s.operands], None, None)
    return not (settings["first"] and form.exact) and same_division.is_divided_alike(form.outputs)


def _key(s: Step, values: Sequence[Slot | Value]) -> tuple[Any, ...]:
    """Key of a kind of step; values: its operands that are no scalars."""
    seen: dict[Slot, int] = {}
    parts: list[Any] = []
    given = iter(values)
    for x in s.operands:
        if isinstance(x, Slot):
            d, i = next(given), seen.setdefault(x, len(seen))
            parts.append((i, d.dtype, len(d.shape)))
        else:
            parts.append(x)
    return kind_of(s), tuple(parts)


class Stepwise:
    """A run of a program, step by step; `build` makes an unfused plan of it for inspection."""

    fused = False
    asynchronous = False

    def __init__(self, steps: Sequence[Step], wanted: tuple[tuple[int, int], ...], build: Callable[[], Plan]) -> None:
        self.steps = steps
        self.wanted = wanted
        self.build = build
        self.kernels = self.launches = 0
        self.interpreted: set[int] = set()  # the steps that NumPy computed, by index
        self._compiles = (0, 0.0)
        self._plan: Plan | None = None

    def whole(self) -> Plan:
        """The unfused plan of the program for inspection, without machine code."""
        if self._plan is None:
            self._plan = self.build()
        return self._plan

    def take_compiles(self) -> tuple[int, float]:
        """Number of kernels compiled since the last call, and the seconds that took."""
        out, self._compiles = self._compiles, (0, 0.0)
        return out

    def run(
        self, extents: Extents, scalars: Sequence[Any], inputs: Sequence[Data], want: Sequence[Slot],
        receipt: Receipt | None = None,
    ) -> list[Data]:  # fmt: skip
        """Computes the values of `want`; overwrites no input."""
        values: dict[Slot, Value] = {}
        last = self._last_uses(want)
        n_inputs = 0
        for s in self.steps:
            if s.op is INPUT:
                dtype, ndim, _, at = s.statics[:4]
                d = inputs[n_inputs if at < 0 else at]
                n_inputs += at < 0
                shape = extents[s.ext_start : s.ext_start + ndim]
                values[s] = d if d.shape == shape else Data(d.buffer, shape, dtype)
            elif s in last:
                if s.op is ASSIGN:
                    values[s] = values[s.operands[0]]
                else:
                    try:
                        self._step(s, extents, scalars, values)
                    except Exception as e:
                        if not is_from_outside(e):
                            found_at(e, s.op.name, s.site, s.index)
                        raise
                for x in last[s]:
                    del values[x]
        for x in want:
            values[x] = _in_memory(values[x])
        return [values[x] for x in want]  # type: ignore[misc]

    def _last_uses(self, want: Sequence[Slot]) -> dict[Step, list[Slot]]:
        """The needed steps, each with the values that no later step reads."""
        kept, needed = set(want), {s.step for s in want}
        last: dict[Step, list[Slot]] = {}
        for s in reversed(self.steps):
            if s not in needed or s.op is INPUT:
                continue
            done = last[s] = [x for x in s.slots if x not in kept]
            reads = s.operands[:1] if s.op is ASSIGN else s.operands
            for x in reads:
                if isinstance(x, Slot) and x not in kept:
                    kept.add(x)
                    needed.add(x.step)
                    done.append(x)
        return last

    def _step(self, s: Step, extents: Extents, scalars: Sequence[Any], values: dict[Slot, Value]) -> None:
        read = [x for x in s.operands if isinstance(x, Slot)]
        operands = list(dict.fromkeys(read))
        own: Extents = ()
        for x in operands:
            own += values[x].shape
        if s.n_ints:
            own += extents[s.ext_start : s.ext_start + s.n_ints]
        more = scalars[s.scalar_start : s.scalar_start + s.n_scalars]
        key = _key(s, [values[x] for x in read])
        kind = _kind(key)
        plan = kind.find(own)
        if plan is None and settings["first"]:
            found = kind.interpret(s, [values[x] if isinstance(x, Slot) else x for x in s.operands], own, more)
            if found is not None:
                self.interpreted.add(s.index)
                values.update(zip(s.slots, found, strict=True))
                return
        arrays = {x: _in_memory(values[x]) for x in operands}
        values.update(arrays)
        if plan is None:
            plan = kind.made(s, arrays, own, more)
        compiles, seconds = plan.take_compiles()
        self._compiles = (self._compiles[0] + compiles, self._compiles[1] + seconds)
        self.kernels += plan.kernels
        self.launches += plan.launches
        given = [*arrays.values()]
        try:
            buffers = plan.executable.run(own, more, given)
            results = values_of(plan.recipe(own), buffers, given)
        except Exception as e:
            relocate(e, lambda: [*repeat(None, len(arrays)), s.site])
            raise
        values.update(zip(s.slots, results, strict=True))
