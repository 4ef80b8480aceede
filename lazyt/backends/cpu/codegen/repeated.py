"""Maps whose last axis has two to eight elements, beside values that move along one axis alone: one, in whole vectors.

    y[i, v] = x[i, v] * c[v], v < 3    -->    y[n] = x[n] * c[n mod 3]
    y[i, v] = x[i, v] * a[i], v < 3    -->    y[n] = x[n] * a[n div 3]

Pixels of few channels and points of space are such. Lanes along i would read and write three elements apart. As one
axis all are neighbours. A vector of c is read from a copy in the stack, where c is repeated for all lanes and each
place to begin at. Of a some neighbours are read, and each is taken to its lanes: in one of a few ways, by the place.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.lane_by_lane import has_moves
from lazyt.backends.cpu.codegen.text import mem_type
from lazyt.ir import kernel as k
from lazyt.ir.passes.kernelize import AccessArg, KernelCall
from lazyt.ir.symbolic import Dim, hint

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.backends.cpu.codegen.emit_scope import Scope


# Elements of a short axis, at most. Half a vector is still filled without this, and each number has a plan of its own.
MOST = 8


def flatten(call: KernelCall) -> None:
    """Make a short axis and the one before it, whichever of them the lanes run along, one axis; else change nothing.

    So all that moves along both must lie. The plan then holds for so many elements of the short axis alone; where they
    are more, only for such (guards).
    """
    kernel = call.kernel
    if kernel.rows or kernel.has_check or kernel.affines or kernel.outer < 2 or call.product is not None:
        return
    if any(isinstance(v, k.Gather) or (isinstance(v, k.Load) and v.where is not None) for v in kernel.values):
        return
    first = kernel.outer - 2
    for short, along in ((first, first + 1), (first + 1, first)):
        own, count = call.extents[short], hint(call.extents[short])
        equal = partial(_equal, own, count)
        both = zip(kernel.accesses, call.accesses, strict=True)
        kinds = [_kind(a, x.strides[short], x.strides[along], count, equal, first) for a, x in both]
        if "" not in kinds and {"repeated", "spread"} & {*kinds}:
            break
    else:
        return
    if not 2 <= count <= MOST:
        if isinstance(own, Dim):
            own.scope.at_least(own, 2 if count < 2 else MOST + 1)
        return
    if isinstance(own, Dim):
        own.scope.unify(own, count)

    def flat(own: k.Access, kind: str) -> k.Access:
        classes = own.classes[:first] + ("0" if kind == "one" else "1")
        period, spread = (count if kind == name else 0 for name in ("repeated", "spread"))
        return replace(own, classes=classes, period=period, spread=spread)

    call.kernel = replace(
        kernel, outer=kernel.outer - 1,
        accesses=tuple(flat(own, kind) for own, kind in zip(kernel.accesses, kinds, strict=True)),
    )  # fmt: skip
    call.extents = (*call.extents[:first], call.extents[along] * count)
    call.accesses = [
        AccessArg(a.buffer, a.offset, (*a.strides[:first], int(kind != "one")), a.itemsize)
        for a, kind in zip(call.accesses, kinds, strict=True)
    ]
    if "repeated" in kinds:
        call.strategies += (f"values along an axis of {count} are repeated in whole vectors",)
    if "spread" in kinds:
        call.strategies += (f"values beside an axis of {count} are spread over whole vectors",)


def _equal(own: int | Dim, count: int, size: int | Dim, value: int) -> bool:
    """Whether a size has this value where the axis has so many elements."""
    if not isinstance(size, Dim):
        return size == value
    return size.scope.known_equal(size, value) or (value == count and size == own)


def _kind(
    own: k.Access, step: int | Dim, beside: int | Dim, count: int, equal: Callable[[int | Dim, int], bool], first: int
) -> str:  # fmt: skip
    """How an access moves: in order ('whole'), not at all ('one'), along the short axis or the other one alone
    ('repeated', 'spread'), or ''.

    step, beside: along the short axis, and along the other one.
    """
    if equal(step, 1) and equal(beside, count):
        return "whole"
    if not own.writes and equal(step, 0) and equal(beside, 1) and has_moves(own.dtype):
        return "spread"
    if own.writes or not equal(beside, 0):
        return ""
    alone = set(own.classes[:first]) <= {"0"}
    return "one" if equal(step, 0) else "repeated" if equal(step, 1) and alone else ""


def repeat(scope: Scope) -> None:
    """Write the repeated copies of a kernel's accesses, before its loops."""
    body = scope.body
    for i, a in enumerate(scope.kernel.accesses):
        if not a.period:
            continue
        element, at = mem_type(a.dtype), scope.argument(scope.kernel.layout.accesses[i], "ptr")
        copy = scope.repeated[i] = scope.alloca((scope.lanes + a.period - 1) * a.dtype.itemsize)
        places = [body.let(f"getelementptr {element}, ptr {at}, i64 {n}") for n in range(a.period)]
        own = [body.let(f"load {element}, ptr {place}, align {a.dtype.itemsize}") for place in places]
        for n in range(scope.lanes + a.period - 1):
            to = body.let(f"getelementptr {element}, ptr {copy}, i64 {n}")
            body.line(f"store {element} {own[n % a.period]}, ptr {to}, align {a.dtype.itemsize}")


def load_repeated(scope: Scope, access: int) -> str:
    """The lanes of a repeated value, as they lie in memory."""
    body, a = scope.body, scope.kernel.accesses[access]
    first = body.let(f"urem i64 {scope.index[scope.kernel.vector_axis]}, {a.period}")
    at = body.let(f"getelementptr {mem_type(a.dtype)}, ptr {scope.repeated[access]}, i64 {first}")
    return body.let(f"load {scope.in_memory(a.dtype)}, ptr {at}, align {a.dtype.itemsize}")


def load_spread(scope: Scope, access: int, at: str, some: Callable[[str, str], str]) -> str:
    """The lanes of values that are spread, as they lie in memory.

    at: where lane 0's would be, were they not; some(at, mask) reads neighbours in the lanes of a mask.
    """
    body, a, lanes = scope.body, scope.kernel.accesses[access], scope.lanes
    kind, counter = scope.in_memory(a.dtype), f"<{lanes} x i32>"
    index, extent = (names[scope.kernel.vector_axis] for names in (scope.index, scope.extent))
    first, place = body.let(f"udiv i64 {index}, {a.spread}"), body.let(f"urem i64 {index}, {a.spread}")
    back = body.let(f"sub i64 {first}, {index}")
    at = body.let(f"getelementptr {mem_type(a.dtype)}, ptr {at}, i64 {back}")
    # NOTE: no lane reads behind the last element, whatever is left of the axis.
    left = body.let(f"sub i64 {body.let(f'udiv i64 {extent}, {a.spread}')}, {first}")
    most = (lanes + 2 * a.spread - 2) // a.spread
    count = body.call("i64", "llvm.smin.i64", ("i64", left), ("i64", str(most)))
    ahead = scope.splat("i32", body.let(f"trunc i64 {count} to i32"))
    numbers = ", ".join(f"i32 {n}" for n in range(lanes))
    mask = body.let(f"icmp ugt {counter} {ahead}, <{numbers}>")
    near = some(at, mask)
    found = ""
    for n in range(a.spread):
        order = ", ".join(f"i32 {(n + lane) // a.spread}" for lane in range(lanes))
        here = body.let(f"shufflevector {kind} {near}, {kind} poison, {counter} <{order}>")
        is_here = body.let(f"icmp eq i64 {place}, {n}") if n else ""
        found = body.let(f"select i1 {is_here}, {kind} {here}, {kind} {found}") if n else here
    return found
