"""The shapes and dtypes of a step's values: inferred over ints, then by a rule that inference over symbols leaves.

An operation's `lower` finds its results' shapes and every error that can be known when it is recorded. Over ints that
costs tens of microseconds. So a step that meets ever new extents (batches of all sizes) is lowered over symbols too:
that gives the shapes as expressions, the guards under which they hold, and the extents that were looked at to find
errors. Where the guards hold and what was looked at is the same, the errors are none and the expressions are right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.config import general
from lazyt.errors import ShapeError
from lazyt.ir import dtypes
from lazyt.ir.builder import Builder, Weak
from lazyt.ir.graph import Scalar
from lazyt.ir.symbolic import Scope
from lazyt.ops.definition import OpDef
from lazyt.tracing.program import Slot
from lazyt.tracing.trace import Step

if TYPE_CHECKING:
    import numpy as np

    from lazyt.ir import bit_exact, extent_source
    from lazyt.ir.graph import Node
else:
    bit_exact = on_demand.module("lazyt.ir.bit_exact")
    extent_source = on_demand.module("lazyt.ir.extent_source")

Shapes = tuple[tuple[int, ...], ...]
# The shapes of a step's values for the extents of its operands and its integers, one after another; None: unknown.
Rule = Callable[[Sequence[int]], Shapes | None]

# A step gets a rule when it meets other extents for this many times.
OTHERS = 2
MOST_RULES = 2
# (shape, dtype) of each value; (scalar's position, least, greatest) of each that is a weak integer.
Inferred = tuple[tuple[tuple[tuple[int, ...], "np.dtype"], ...], tuple[tuple[int, int, int], ...]]
_inferred: dict[tuple[Any, ...], Inferred] = {}
MOST_INFERRED = 4096
# What those calls were written as, the latest of them.
_forms: dict[tuple[Any, ...], bit_exact.Form] = {}
MOST_FORMS = 512
MOST_BYTES = (1 << 63) - 1


def infer(
    op: OpDef,
    slots: Sequence[Any],
    statics: tuple[Any, ...],
    ints: tuple[int, ...] | None,
    offsets: tuple[int, ...] | None,
) -> tuple[Builder, tuple[Node, ...]]:
    """Lower over ints: the result's shapes and dtypes, and every error that can be known now."""
    b, nodes = _lower(Builder(), op, slots, [s.shape for s in slots if isinstance(s, Slot)], statics, ints, offsets)
    _bounded(op, [n.shape for n in nodes], nodes)
    return b, nodes


def inferred(
    op: OpDef,
    slots: Sequence[Any],
    statics: tuple[Any, ...],
    ints: tuple[int, ...] | None,
    offsets: tuple[int, ...] | None,
) -> Inferred:
    """What `infer` finds, looked up where such a call was met: new programs are made of operations that were."""
    types = tuple(map(type, statics))
    key = (op, tuple((s.dtype, s.shape) if isinstance(s, Slot) else s for s in slots), statics, types, ints, offsets)
    found = _inferred.get(key) if general["shapes"] else None
    if found is None:
        b, nodes = infer(op, slots, statics, ints, offsets)
        found = tuple((n.shape, n.dtype) for n in nodes), _ranges(b, slots)  # type: ignore[misc]
        if len(_inferred) >= MOST_INFERRED:
            _inferred.clear()
        _inferred[key] = found
        _keep(key, nodes)
    return found


def _ranges(b: Builder, slots: Sequence[Any]) -> tuple[tuple[int, int, int], ...]:
    weak = [s for s in slots if not isinstance(s, Slot)]
    found: dict[tuple[int, int, int], None] = {}
    for n in b.nodes:
        if isinstance(n.attrs, Scalar):
            p = n.attrs.position
            if dtypes.kind(n.dtype) in "iu" or (p < len(weak) and weak[p] is int):
                found[p, *dtypes.dtype_range(n.dtype)] = None
    return tuple(found)


def _keep(key: tuple[Any, ...], nodes: tuple[Node, ...]) -> bit_exact.Form:
    if len(_forms) >= MOST_FORMS:
        _forms.clear()
    form = _forms[key] = bit_exact.Form(nodes)
    return form


def form_of(
    s: Step, operands: Sequence[Any], ints: tuple[int, ...] | None, offsets: tuple[int, ...] | None
) -> bit_exact.Form:  # fmt: skip
    """What a step is written as, over ints, on operands of these (dtype, shape), or of a scalar's type."""
    key = (s.op, tuple(operands), s.statics, tuple(map(type, s.statics)), ints, offsets)
    form = _forms.get(key)
    if form is None:
        shapes = [x[1] for x in operands if isinstance(x, tuple)]
        form = _keep(key, _lower(Builder(), s.op, s.operands, shapes, s.statics, ints, offsets)[1])
    return form


def _bounded(op: OpDef, shapes: Sequence[Any], values: Sequence[Any]) -> None:
    """ShapeError for a value whose bytes no address reaches: sizes are 64 bits wide."""
    for shape, v in zip(shapes, values, strict=True):
        size = math.prod(shape) * v.dtype.itemsize
        if size > MOST_BYTES:
            raise ShapeError(f"{op.name}: shape {shape} of {v.dtype} is {size} bytes, more than {MOST_BYTES} at most")


def _lower(
    b: Builder, op: OpDef, slots: Sequence[Any], shapes: Sequence[Any], statics: tuple[Any, ...], ints: Any,
    offsets: Any,
) -> tuple[Builder, tuple[Node, ...]]:  # fmt: skip
    operands: list[Any] = []
    n = 0
    given = iter(shapes)
    for i, s in enumerate(slots):
        if isinstance(s, Slot):
            operands.append(b.input(i, next(given), s.dtype))
        else:
            operands.append(Weak(n, s))
            n += 1
    more: dict[str, Any] = {}
    if ints is not None:
        more["ints"] = ints
    if offsets is not None:
        more["offsets"] = offsets
    out = op.lower(b, *operands, *statics, **more)
    return b, out if isinstance(out, tuple) else (out,)


def shapes_of(s: Step, ints: tuple[int, ...] | None, offsets: tuple[int, ...] | None) -> Shapes:
    """The shapes of a known step's values for its operands' shapes now; raises what recording it must raise."""
    ruled = offsets is None and general["shapes"]
    if ruled:
        sizes: list[int] = []
        for x in s.operands:
            if isinstance(x, Slot):
                sizes += x.shape
        if ints is not None:
            sizes += ints
        for rule in s.rules:
            found: Shapes | None = rule(sizes)
            if found is not None:
                return found
    _, nodes = infer(s.op, s.operands, s.statics, ints, offsets)
    # NOTE: an extent of 0 excuses much, so no rule is made of it or for it.
    if ruled and len(s.rules) < MOST_RULES and len(s.by_ext) >= OTHERS and 0 not in sizes:
        s.rules = (*s.rules, _rule(s, sizes, None if ints is None else len(ints)))
    return tuple(n.shape for n in nodes)  # type: ignore[misc]


def _rule(s: Step, sizes: Sequence[int], n_ints: int | None) -> Rule:
    scope = Scope()
    scope.looked = []
    symbols = [scope.symbol(i, n) for i, n in enumerate(sizes)]
    shapes, at = [], 0
    for x in s.operands:
        if isinstance(x, Slot):
            shapes.append(tuple(symbols[at : at + len(x.shape)]))
            at += len(x.shape)
    ints = None if n_ints is None else tuple(symbols[at:])
    _, nodes = _lower(Builder(scope), s.op, s.operands, shapes, s.statics, ints, None)
    function = extent_source.Function("s", "if 0 in s: return None")
    function.require(scope.guards, "None")
    function.require([("eq", d, d.hint) for d in dict.fromkeys(scope.looked)], "None")
    for n in nodes:
        # What is too large is left to inference over ints, which says so.
        elements = "*".join(map(function.source, n.shape)) or "1"
        function.lines.append(f"if {elements} > {MOST_BYTES // n.dtype.itemsize}: return None")
    return function.compiled(f"({''.join(f'{_tuple(map(function.source, n.shape))},' for n in nodes)})", "shapes")


def _tuple(texts: Iterable[str]) -> str:
    return f"({''.join(f'{t},' for t in texts)})"
