"""Plans on disk, beside the object code: a second process neither plans a program nor compiles it.

So are the plans of single operations (first_run.py). A plan is found by what it is made from: the steps of the program
(operations, operands by their places, attributes, dtypes, modes; not lines), which values are wanted, LAZYT_DEBUG, the
backend's processor and code generator, and lazyt's own source. Several plans of one program, for other extents, have
numbers; the guards of each are in front of it. The object cache checks, replaces and bounds the files. What cannot be
written down (a user's function among the attributes) or depends on more than the program (a memory budget, compression)
is planned in each process, as is everything where a pass was added.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt import on_demand
from lazyt.backends import object_cache
from lazyt.backends.registry import backends
from lazyt.config import general as settings
from lazyt.ir import dtypes
from lazyt.ir.records import dataclass
from lazyt.ir.residuals import Residuals
from lazyt.ops.compression import DRAWS
from lazyt.ops.definition import OPS, OpDef
from lazyt.tracing.steps import ASSIGN, INPUT, MODE
from lazyt.tracing.trace import Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.ir import plan_format
    from lazyt.ir.passes import pipeline
    from lazyt.ir.passes.fusion_result import Fused
    from lazyt.ir.passes.schedule import Schedule
    from lazyt.ir.plan_format import Stored
    from lazyt.ir.symbolic import Scope
    from lazyt.runtime.cache_miss import Guard
    from lazyt.tracing.trace import Step
else:
    plan_format = on_demand.module("lazyt.ir.plan_format")
    pipeline = on_demand.module("lazyt.ir.passes.pipeline")

KIND = "plan"  # how the names of the files end
# Plans of one program, for extents with other guards, that are kept.
VARIANTS = 8

_SPECIAL = {INPUT, MODE, ASSIGN}
_TYPES = frozenset((bool, int, float, complex))


@dataclass
class Counters:
    """What this process found, and kept, on disk."""

    found: int = 0
    kept: int = 0


counters = Counters()


class Unnamed(Exception):
    """Raised for a program with something that another process has no name for."""


class Place:
    """The files of the plans of one program: found once, then read or written."""

    def __init__(self, key: str, sites: Sequence[Any], line: Any) -> None:
        self.key = key
        self.sites, self.line = sites, line  # of the program that asks
        self.free: str | None = None  # the first name under which there is no plan

    def load(self, extents: Sequence[int]) -> Stored | None:
        """The plan whose guards hold at these extents, or None."""
        cache = object_cache.default_cache()
        for number in range(VARIANTS):
            name = object_cache.make_key(self.key, str(number))
            data = cache.load(name, KIND)
            if data is None:
                self.free = name
                return None
            found = plan_format.loads(data, self.sites, extents, self.line)
            if found is not None:
                counters.found += 1
                if found.residuals is not None:
                    found.residuals.key = name
                return found
        return None

    def keep(
        self, schedule: Schedule, division: Fused, fused: bool, guards: list[Guard], scope: Scope,
        residuals: Residuals | None = None,
    ) -> None:  # fmt: skip
        """Write a plan down, if it can be and there is room for one more of its program."""
        if self.free is None:
            return
        try:
            data = plan_format.dumps(plan_format.Stored(schedule, division, fused, guards, residuals), scope)
        except plan_format.Unstorable:
            return
        object_cache.default_cache().store(self.free, data, KIND)
        counters.kept += 1
        if residuals is not None:
            residuals.key = self.free


def place_of(steps: Sequence[Step], wanted: Any, fused: bool, later: Any) -> Place | None:
    """Where the plans of this program are; None where none is kept. later: what names what they store residuals for."""
    device = steps[wanted[0][0]].device
    return _place(device, lambda: ([*map(_step_text, steps)], wanted, fused, later), [s.site for s in steps], None)


def place_of_step(s: Step, form: tuple[Any, ...], line: Any) -> Place | None:
    """Where the plans of one operation on operands of a form are (first_run.py)."""
    parts, n_ints, n_offsets, _ = form

    def text() -> Any:
        return _op_name(s.op), _named(s.statics), _named(s.info), _named(parts), n_ints, n_offsets, _mode_text(s)

    return _place(s.device, text, [], line)


def _place(device: str, text: Callable[[], Any], sites: Sequence[Any], line: Any) -> Place | None:
    if not settings["stored"] or settings["verify"] or settings["interpret"]:
        return None
    if "lazyt.ir.passes.pipeline" in sys.modules and pipeline.is_changed():
        return None
    identity = backends[device].identity(device)
    if identity is None or object_cache.default_cache().directory is None:
        return None
    try:
        program = repr((device, text()))
    except Unnamed:
        return None
    flags = repr(sorted(settings.items()))
    return Place(object_cache.make_key(program, flags, *identity, object_cache.source_identity()), sites, line)


def _step_text(s: Step) -> Any:
    """All that a step is lowered from, as plain data."""
    mode = _mode_text(s)
    if s.op is MODE:  # it computes nothing
        return None
    return (
        _op_name(s.op), _named(s.operands), _named(s.statics), _named(s.info), s.scalar_start, s.ext_start, s.n_ints,
        s.n_offsets, [(x.dtype and x.dtype.name, x.requires_grad, x.leaf is not None) for x in s.slots],
        bool(s.targets), sorted(map(_named, s.stops)), s.device, mode,
    )  # fmt: skip


def _mode_text(s: Step) -> Any:
    mode = s.mode.computing.values
    if mode["memory"] is not None or mode["compress"] is not None or s.op in DRAWS:
        raise Unnamed
    return _named(tuple(mode.values()))


def _op_name(op: Any) -> Any:
    if op in _SPECIAL:
        return repr(op)
    if not isinstance(op, OpDef):
        cls = type(op)
        if not cls.__module__.startswith("lazyt.autograd."):
            raise Unnamed
        return cls.__module__, cls.__qualname__, op.name
    if not (op.lower.__module__ or "").startswith(
        ("lazyt.ops.", "lazyt.autograd.", "lazyt.tracing.", "lazyt.functions.", "lazyt.runtime.")
    ):
        raise Unnamed
    if OPS.get(op.name) is op:
        return op.name
    view = OPS.get(op.name.removeprefix("write to "))
    if view is not None and view.write is op.lower:
        return op.name
    code = getattr(op.lower, "__code__", None)
    if code is None or op.lower.__closure__ is not None or op.lower.__defaults__ is not None:
        raise Unnamed
    return op.name, op.lower.__module__, op.lower.__qualname__, code.co_firstlineno


def _named(x: Any) -> Any:
    """An attribute as plain data whose `repr` says all of it; Unnamed for anything else."""
    cls = x.__class__
    if x is None or cls is str or cls in _TYPES:
        return x
    if isinstance(x, Slot):
        return (Slot, x.step.index, x.k)
    if cls is tuple:
        return tuple(map(_named, x))
    if cls is frozenset:
        return (frozenset, *sorted(map(_named, x), key=repr))
    if isinstance(x, np.dtype) and dtypes.is_known(x):
        return (np.dtype, x.name)
    if cls is type and x in _TYPES:
        return x
    if isinstance(x, Residuals) and x.key is not None:
        return (Residuals, x.key)
    raise Unnamed
