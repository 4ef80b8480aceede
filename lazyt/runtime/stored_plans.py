"""Plans on disk, beside the object code, so that a second process neither plans nor compiles a program.

So are the plans of single operations (first_run.py), programs of one call. A plan is found by what it is made from: the
calls of the program (operations, operands by their places, attributes, dtypes, modes; not lines), which values are
wanted, LAZYT_DEBUG, the backend's processor and code generator, and lazyt's own source. Several plans of one program,
for other extents, have numbers; the guards of each are in front of it. The object cache checks, replaces and bounds the
files. What cannot be written down (a user's function among the attributes) or depends on more than the program (a
memory budget, compression) is planned in each process, as is everything where a pass was added.
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
from lazyt.tracing.mode import Mode
from lazyt.tracing.program import ASSIGN, INPUT, MODE, is_expanded, key_of, position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir import plan_format
    from lazyt.ir.passes import pipeline
    from lazyt.ir.passes.fusion_result import Fused
    from lazyt.ir.passes.schedule import Schedule
    from lazyt.ir.plan_format import Stored
    from lazyt.ir.symbolic import Scope
    from lazyt.runtime.cache_miss import Guard
    from lazyt.tracing.program import Call, Program
else:
    plan_format = on_demand.module("lazyt.ir.plan_format")
    pipeline = on_demand.module("lazyt.ir.passes.pipeline")

KIND = "plan"  # suffix of file names
# Number of plans with different guards that are kept for one program.
VARIANTS = 8

_SPECIAL = {INPUT, ASSIGN}
_TYPES = frozenset((bool, int, float, complex))


@dataclass
class Counters:
    """Numbers of plans that this process read and wrote."""

    found: int = 0
    kept: int = 0


counters = Counters()


class Unnamed(Exception):
    """Raised for a program with an attribute that has no name in another process."""


class Place:
    """The files of the plans of one program."""

    def __init__(self, key: str, sites: Sequence[Any]) -> None:
        self.key = key
        self.sites = sites  # the user's lines of this process
        self.free: str | None = None  # the first unused file name

    def load(self, extents: Sequence[int]) -> Stored | None:
        """Reads the plan whose guards hold at these extents, or returns None."""
        cache = object_cache.default_cache()
        for number in range(VARIANTS):
            name = object_cache.make_key(self.key, str(number))
            data = cache.load(name, KIND)
            if data is None:
                self.free = name
                return None
            found = plan_format.loads(data, self.sites, extents)
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
        """Writes a plan, if it can be serialized and there is room for one more of its program."""
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


def place_of(program: Program, wanted: Any, fused: bool, later: Any) -> Place | None:
    """The files for the plans of a program; None where none are kept. later: name of the stored residuals."""
    if not settings["stored"] or settings["verify"] or settings["interpret"]:
        return None
    if "lazyt.ir.passes.pipeline" in sys.modules and pipeline.is_changed():
        return None
    calls = program.calls
    device = calls[wanted[0][0]].device
    identity = backends[device].identity(device)
    if identity is None or object_cache.default_cache().directory is None:
        return None
    try:
        # NOTE: a change of mode computes nothing; None keeps its position.
        text = repr((device, [None if c.op is MODE else _text(c) for c in calls], wanted, fused, later))
    except Unnamed:
        return None
    flags = repr(sorted(settings.items()))
    key = object_cache.make_key(text, flags, *identity, object_cache.source_identity())
    return Place(key, [c.site for c in calls])


def _text(c: Call) -> Any:
    """The key of a call as plain data: all that it is lowered from."""
    mode = c.mode.computing.values
    if mode["memory"] is not None or mode["compress"] is not None or c.op in DRAWS:
        raise Unnamed
    key = key_of(c, position)
    # NOTE: the text of an attribute shows its type.
    return _named(key if c.op is INPUT else (key[0][:-1], *key[1:]))


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
    """An attribute as plain data with a complete `repr`. Raises Unnamed for anything else."""
    cls = x.__class__
    if x is None or cls is str or cls in _TYPES:
        return x
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
    if isinstance(x, Mode):
        return _named(tuple(x.values.values()))
    if isinstance(x, OpDef) or cls is type(INPUT) or is_expanded(x):
        return _op_name(x)
    raise Unnamed
