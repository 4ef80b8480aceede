"""Addresses, loads and gathers of a kernel."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.emit_levels import KERNEL
from lazyt.backends.cpu.codegen.lane_by_lane import beside, has_masks, has_moves, load_lanes, load_near, pointed
from lazyt.backends.cpu.codegen.repeated import load_repeated, load_spread
from lazyt.backends.cpu.codegen.text import mem_type, vector
from lazyt.backends.cpu.engine import host_features
from lazyt.ir import dtypes
from lazyt.ir.kernel import LANES, bounds_below

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from lazyt.backends.cpu.codegen.emit_scope import Scope
    from lazyt.ir.kernel import Gather, Load

# What a lane reads when it must read nothing.
NOTHING = "@nothing = private constant [1024 x i8] zeroinitializer, align 64"


def pointer(scope: Scope, access: int, level: int) -> str:
    """The address of `access` with the indices of all axes up to `level` applied (of lane 0)."""
    if level == KERNEL:
        return scope.argument(scope.kernel.layout.accesses[access], "ptr")
    key = (access, level)
    if key not in scope.pointers:
        at = pointer(scope, access, level - 1)
        what = scope.kernel.accesses[access]
        for axis in scope.levels.axes_at(level):
            if what.classes[axis] != "0":
                steps = scope.mul(scope.index[axis], scope.stride(access, axis))
                at = scope.body.let(f"getelementptr {mem_type(what.dtype)}, ptr {at}, i64 {steps}")
        scope.pointers[key] = at
    return scope.pointers[key]


def affine(scope: Scope, number: int, level: int) -> str:
    """The i64 value of an affine with the indices of all axes up to `level` applied (of lane 0)."""
    layout = scope.kernel.layout
    if level == KERNEL:
        return scope.argument(layout.affines[number] + scope.kernel.axes)
    key = (number, level)
    if key not in scope.offsets:
        at = affine(scope, number, level - 1)
        for axis in scope.levels.axes_at(level):
            if scope.kernel.affines[number].classes[axis] != "0":
                step = scope.mul(scope.index[axis], scope.coefficient(number, axis))
                at = scope.body.let(f"add i64 {at}, {step}")
        scope.offsets[key] = at
    return scope.offsets[key]


def index_value(scope: Scope, number: int, level: int) -> str:
    """The lanes of an affine."""
    all_lanes = scope.splat("i64", affine(scope, number, level))
    axis = scope.kernel.vector_axis
    if scope.kernel.affines[number].classes[axis] == "0":
        return all_lanes
    return scope.body.let(f"add {scope.i64} {all_lanes}, {scope.lane_offsets(scope.coefficient(number, axis))}")


def _both(scope: Scope, a: str, b: str) -> str:
    """The lanes of both masks; '' is all lanes."""
    if not a or not b:
        return a or b
    return scope.body.let(f"and {scope.i1} {a}, {b}")


def any_lane(scope: Scope, mask: str) -> str:
    return scope.body.call("i1", f"llvm.vector.reduce.or.v{scope.lanes}i1", (scope.i1, mask))


def _from_memory(scope: Scope, dtype: np.dtype, x: str) -> str:
    """Lanes as they lie in memory -> as they are in registers."""
    if dtypes.kind(dtype) != "b":
        return x
    return scope.body.let(f"icmp ne {scope.in_memory(dtype)} {x}, zeroinitializer")


def _load_one(scope: Scope, dtype: np.dtype, at: str, where: str, vector_where: bool) -> str:
    """The element at `at` in the lanes of `where` ('' is all); not read if there are none."""
    body = scope.body
    if where:
        body.declare(NOTHING)
        read = any_lane(scope, _both(scope, scope.mask, where)) if vector_where else first_lane(scope, scope.i1, where)
        at = body.let(f"select i1 {read}, ptr {at}, ptr @nothing")
    element = mem_type(dtype)
    x = scope.splat(element, body.let(f"load {element}, ptr {at}, align {dtype.itemsize}"))
    if where and vector_where:
        typ = scope.in_memory(dtype)
        x = body.let(f"select {scope.i1} {where}, {typ} {x}, {typ} zeroinitializer")
    return _from_memory(scope, dtype, x)


def first_lane(scope: Scope, kind: str, x: str) -> str:
    return scope.body.let(f"extractelement {kind} {x}, i64 0")


def load(scope: Scope, v: int, value: Load) -> str:
    """A Load: one element for all lanes, 16 neighbours, every other one of 32, or 16 elements at a stride."""
    kernel, levels = scope.kernel, scope.levels
    what = kernel.accesses[value.access]
    level = levels.of_value[v]
    if what.period:
        return _from_memory(scope, what.dtype, load_repeated(scope, value.access))
    at = pointer(scope, value.access, level)
    if what.spread:
        return _from_memory(
            scope, what.dtype, load_spread(scope, value.access, at, partial(load_some, scope, what.dtype))
        )
    where = "" if value.where is None else scope.names[value.where]
    klass = what.classes[kernel.vector_axis]
    if scope.holds is not None and klass in "01-" and (value.where is None or value.where in scope.holds):
        return _load_inside(scope, what.dtype, at, klass, "true" if value.where is None else scope.holds[value.where])
    if klass == "0":
        vector_where = value.where is not None and levels.is_vector(value.where)
        return _load_one(scope, what.dtype, at, where, vector_where)
    mask = _both(scope, scope.mask, where)
    outside = value.where is not None and not levels.is_vector(value.where)
    if value.access in scope.tiles:
        typ = scope.in_memory(what.dtype)
        own = scope.body.let(f"getelementptr {typ}, ptr {scope.tiles[value.access]}, i64 {scope.tile_at}")
        own = scope.body.let(f"getelementptr {typ}, ptr {own}, i64 {scope.slot_at}")
        return _from_memory(scope, what.dtype, scope.body.let(f"load {typ}, ptr {own}"))
    if klass == "1":
        at = _readable(scope, at, where) if outside else at
        return _from_memory(scope, what.dtype, load_neighbours(scope, what.dtype, at, mask))
    if klass == "-":
        last = scope.body.let(f"getelementptr {mem_type(what.dtype)}, ptr {at}, i64 {1 - scope.lanes}")
        last = _readable(scope, last, where) if outside else last
        x = load_neighbours(scope, what.dtype, last, turned(scope, scope.i1, mask))
        return _from_memory(scope, what.dtype, turned(scope, scope.in_memory(what.dtype), x))
    if klass == "2" and not where:
        return _from_memory(scope, what.dtype, _every_other(scope, what.dtype, at))
    if klass == "2" and has_masks(what.dtype):
        at = _readable(scope, at, where) if outside else at
        return _from_memory(scope, what.dtype, _even_places(scope, what.dtype, at, _spread(scope, mask)))
    if klass == "=" and not where:
        return _from_memory(scope, what.dtype, _every_other_back(scope, what.dtype, at))
    offsets = scope.lane_offsets(scope.stride(value.access, kernel.vector_axis))
    return _from_memory(scope, what.dtype, gather_lanes(scope, what.dtype, at, offsets, mask))


def _load_inside(scope: Scope, dtype: np.dtype, at: str, klass: str, holds: str) -> str:
    """Whole vectors of the interior of a map, or zeros where its condition does not hold."""
    body, typ = scope.body, scope.in_memory(dtype)
    if holds == "false":
        return "zeroinitializer"
    if klass == "-":
        at = body.let(f"getelementptr {mem_type(dtype)}, ptr {at}, i64 {1 - scope.lanes}")
    if holds != "true":
        body.declare(NOTHING)
        at = body.let(f"select i1 {holds}, ptr {at}, ptr @nothing")
    if klass == "0":
        x = scope.splat(mem_type(dtype), body.let(f"load {mem_type(dtype)}, ptr {at}, align {dtype.itemsize}"))
    else:
        x = body.let(f"load {typ}, ptr {at}, align {dtype.itemsize}")
    return _from_memory(scope, dtype, turned(scope, typ, x) if klass == "-" else x)


def _readable(scope: Scope, at: str, where: str) -> str:
    """The address if any lane is read there: to leave out all lanes of a page that is not mapped takes 400 cycles."""
    scope.body.declare(NOTHING)
    return scope.body.let(f"select i1 {first_lane(scope, scope.i1, where)}, ptr {at}, ptr @nothing")


def load_neighbours(scope: Scope, dtype: np.dtype, at: str, mask: str) -> str:
    """Neighbours from `at` on, as they lie in memory; zero in the lanes that `mask` leaves out.

    Without AVX-512 AMD's processors stream no memory through masked loads (a sum takes three times as long), and there
    are none below four bytes. So one branch tells whole vectors, which are nearly all, from those of some lanes.
    """
    typ, body = scope.in_memory(dtype), scope.body

    def whole() -> str:
        return body.let(f"load {typ}, ptr {at}, align {dtype.itemsize}")

    def some() -> str:
        return load_some(scope, dtype, at, mask)

    return some() if has_masks(dtype) else _if_whole(scope, mask, typ, whole, some)


def load_some(scope: Scope, dtype: np.dtype, at: str, mask: str) -> str:
    """Neighbours in the lanes of a mask, without a branch for those that are whole."""
    if not has_moves(dtype):
        return load_near(scope, dtype, at, mask)
    typ = scope.in_memory(dtype)
    return scope.body.call(
        typ,
        f"llvm.masked.load.v{scope.lanes}{suffix(dtype)}.p0",
        ("ptr", f"align {dtype.itemsize} {at}"),
        (scope.i1, mask),
        (typ, "zeroinitializer"),
    )


def _if_whole(scope: Scope, mask: str, typ: str, whole: Callable[[], str], some: Callable[[], str]) -> str:
    """What `whole` reads where the mask leaves out no lane, or else `some`; of type `typ`."""
    body = scope.body
    if scope.is_partial:
        return some()
    if mask == scope.mask:
        every = body.let(f"icmp eq i64 {scope.active}, {scope.lanes}")
    else:
        every = body.call("i1", f"llvm.vector.reduce.and.v{scope.lanes}i1", (scope.i1, mask))
    blocks = [body.fresh(name) for name in ("some", "whole", "join")]
    body.line(f"br i1 {every}, label %{blocks[1]}, label %{blocks[0]}")
    read = []
    for block, how in zip(blocks, (some, whole), strict=False):
        body.label(block)
        read.append((how(), body.block))
        body.line(f"br label %{blocks[2]}")
    body.label(blocks[2])
    return body.let(f"phi {typ} " + ", ".join(f"[{x}, %{block}]" for x, block in read))


def _every_other(scope: Scope, dtype: np.dtype, at: str) -> str:
    """The active lanes' elements from `at` on, two apart, as they lie in memory."""
    body, lanes, element, one = scope.body, scope.lanes, mem_type(dtype), scope.in_memory(dtype)

    def some() -> str:
        if not has_moves(dtype):
            return load_lanes(scope, dtype, scope.mask, beside(scope, dtype, at, 2))
        return _even_places(scope, dtype, at, scope.doubled_mask(every_other=False))

    def whole() -> str:
        # The second half begins one element earlier: what lies behind the last element may not be there to read.
        low = body.let(f"load {one}, ptr {at}, align {dtype.itemsize}")
        middle = body.let(f"getelementptr {element}, ptr {at}, i64 {lanes - 1}")
        high = body.let(f"load {one}, ptr {middle}, align {dtype.itemsize}")
        picks = [*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)]
        even = ", ".join(f"i32 {i}" for i in picks)
        return body.let(f"shufflevector {one} {low}, {one} {high}, {scope.i32} <{even}>")

    return some() if has_masks(dtype) or lanes % 2 else _if_whole(scope, scope.mask, one, whole, some)


def _even_places(scope: Scope, dtype: np.dtype, at: str, mask: str) -> str:
    """The even ones of twice as many neighbours from `at` on, of which a mask is read."""
    body, lanes = scope.body, 2 * scope.lanes
    typ, kind = vector(mem_type(dtype), lanes), vector("i1", lanes)
    name = f"llvm.masked.load.v{lanes}{suffix(dtype)}.p0"
    both = body.call(typ, name, ("ptr", f"align {dtype.itemsize} {at}"), (kind, mask), (typ, "zeroinitializer"))
    even = ", ".join(f"i32 {i}" for i in range(0, lanes, 2))
    return body.let(f"shufflevector {typ} {both}, {typ} poison, {scope.i32} <{even}>")


def _spread(scope: Scope, mask: str) -> str:
    """A mask of twice as many lanes, of which the even ones are a mask's."""
    body, lanes = scope.body, scope.lanes
    if lanes == LANES and "bmi2" in host_features():
        bits = body.let(f"zext i{lanes} {body.let(f'bitcast {scope.i1} {mask} to i{lanes}')} to i32")
        bits = body.call("i32", "llvm.x86.bmi.pdep.32", ("i32", bits), ("i32", f"{0x55555555}"))
        return body.let(f"bitcast i32 {bits} to {vector('i1', 2 * lanes)}")
    picks = ", ".join(f"i32 {i // 2 if i % 2 == 0 else lanes}" for i in range(2 * lanes))
    both = f"{scope.i1} {mask}, {scope.i1} zeroinitializer"
    return body.let(f"shufflevector {both}, {vector('i32', 2 * lanes)} <{picks}>")


def _every_other_back(scope: Scope, dtype: np.dtype, at: str) -> str:
    """The active lanes' elements from `at` back, two apart, as they lie in memory."""
    body, lanes = scope.body, 2 * scope.lanes
    typ, kind = vector(mem_type(dtype), lanes), vector("i1", lanes)
    mask = scope.doubled_mask(every_other=True)
    # Lane 0 is the last but one of them; the odd ones are never active.
    order = ", ".join(f"i32 {1 if i % 2 else lanes - 2 - i}" for i in range(lanes))
    mask = body.let(f"shufflevector {kind} {mask}, {kind} poison, {vector('i32', lanes)} <{order}>")
    first = body.let(f"getelementptr {mem_type(dtype)}, ptr {at}, i64 {2 - lanes}")
    both = body.call(
        typ,
        f"llvm.masked.load.v{lanes}{suffix(dtype)}.p0",
        ("ptr", f"align {dtype.itemsize} {first}"),
        (kind, mask),
        (typ, "zeroinitializer"),
    )
    back = ", ".join(f"i32 {i}" for i in range(lanes - 2, -1, -2))
    return body.let(f"shufflevector {typ} {both}, {typ} poison, {scope.i32} <{back}>")


def turned(scope: Scope, typ: str, x: str) -> str:
    """The lanes in the opposite order."""
    order = ", ".join(f"i32 {i}" for i in reversed(range(scope.lanes)))
    return scope.body.let(f"shufflevector {typ} {x}, {typ} poison, {scope.i32} <{order}>")


def transposed(scope: Scope, typ: str, rows: list[str]) -> list[str]:
    """As many registers as they have lanes -> the registers of their first lanes, second lanes, ...

    A bit of (register, lane) after the other is exchanged.
    """
    n = len(rows)
    bit = n // 2
    while bit:
        low = [lane if not lane & bit else n + lane - bit for lane in range(n)]
        high = [lane + bit if not lane & bit else n + lane for lane in range(n)]
        new = list(rows)
        for i in range(n):
            if not i & bit:
                for at, picks in ((i, low), (i | bit, high)):
                    order = ", ".join(f"i32 {p}" for p in picks)
                    both = f"{typ} {rows[i]}, {typ} {rows[i | bit]}"
                    new[at] = scope.body.let(f"shufflevector {both}, <{n} x i32> <{order}>")
        rows = new
        bit //= 2
    return rows


def gather(scope: Scope, v: int, value: Gather) -> str:
    """A Gather; out of a table without elements it reads nothing, whatever its indices are."""
    kernel, levels, body = scope.kernel, scope.levels, scope.body
    what = kernel.accesses[value.access]
    at = pointer(scope, value.access, levels.of_value[v])
    where = "" if value.where is None else scope.names[value.where]
    for bound in sorted(bounds_below(kernel, [i for i, _ in value.indices])):
        some = body.let(f"icmp sgt {scope.i64} {scope.names[bound]}, zeroinitializer")
        where = _both(scope, where, some)
    if not levels.is_vector(v):
        for i, s in value.indices:
            steps = scope.mul(first_lane(scope, scope.i64, scope.names[i]), scope.scalar(s))
            at = body.let(f"getelementptr {mem_type(what.dtype)}, ptr {at}, i64 {steps}")
        return _load_one(scope, what.dtype, at, where, vector_where=False)
    mask = _both(scope, scope.mask, where)
    klass = what.classes[kernel.vector_axis]
    if (klass == "1" or (klass == "2" and not where)) and not any(levels.is_vector(i) for i, _ in value.indices):
        # One index for all lanes: neighbours of one row.
        for i, s in value.indices:
            steps = scope.mul(first_lane(scope, scope.i64, scope.names[i]), scope.scalar(s))
            at = body.let(f"getelementptr {mem_type(what.dtype)}, ptr {at}, i64 {steps}")
        row = _every_other(scope, what.dtype, at) if klass == "2" else load_neighbours(scope, what.dtype, at, mask)
        return _from_memory(scope, what.dtype, row)
    offsets = ""
    if klass != "0":
        offsets = scope.lane_offsets(scope.stride(value.access, kernel.vector_axis))
    for i, s in value.indices:
        steps = body.let(f"mul {scope.i64} {scope.names[i]}, {scope.splat_argument(scope.scalar(s))}")
        offsets = body.let(f"add {scope.i64} {offsets}, {steps}") if offsets else steps
    if not offsets:
        offsets = "zeroinitializer"
    return _from_memory(scope, what.dtype, gather_lanes(scope, what.dtype, at, offsets, mask))


def suffix(dtype: np.dtype) -> str:
    """How intrinsics spell the element type in memory."""
    return {"half": "f16", "float": "f32", "double": "f64"}.get(mem_type(dtype), mem_type(dtype))


def gather_lanes(scope: Scope, dtype: np.dtype, at: str, offsets: str, mask: str) -> str:
    """Elements at `at` + `offsets` elements, as they lie in memory; zero in the other lanes.

    Without AVX-512 a masked gather may be a branch a lane, so that of the lanes up to the last one is written twice: of
    all lanes, which needs no mask, and lane by lane.
    """
    where = scope.body.let(f"getelementptr {mem_type(dtype)}, ptr {at}, {scope.i64} {offsets}")
    if mask != scope.mask or has_masks(dtype):
        return _gathered(scope, dtype, where, mask)
    typ, every = scope.in_memory(dtype), "splat (i1 true)"
    return _if_whole(
        scope, mask, typ,
        whole=lambda: _gathered(scope, dtype, where, every),
        some=lambda: load_lanes(scope, dtype, mask, pointed(scope, where)),
    )  # fmt: skip


def _gathered(scope: Scope, dtype: np.dtype, where: str, mask: str) -> str:
    """Elements at addresses, as they lie in memory; zero in the other lanes.

    No host gathers one or two bytes, and LLVM's substitute is a branch a lane. So the aligned word
    around such an element is gathered: it is on the element's page, so it can be read.
    """
    body = scope.body
    if dtype.itemsize >= 4:
        return _masked_gather(scope, scope.in_memory(dtype), suffix(dtype), dtype.itemsize, where, mask)
    address = body.let(f"ptrtoint <{scope.lanes} x ptr> {where} to {scope.i64}")
    word = body.let(f"and {scope.i64} {address}, splat (i64 -4)")
    words = body.let(f"inttoptr {scope.i64} {word} to <{scope.lanes} x ptr>")
    x = _masked_gather(scope, scope.i32, "i32", 4, words, mask)
    byte = body.let(f"and {scope.i64} {address}, splat (i64 3)")
    bits = body.let(f"shl {scope.i32} {body.let(f'trunc {scope.i64} {byte} to {scope.i32}')}, splat (i32 3)")
    shifted = body.let(f"lshr {scope.i32} {x}, {bits}")
    raw = f"<{scope.lanes} x i{8 * dtype.itemsize}>"
    small = body.let(f"trunc {scope.i32} {shifted} to {raw}")
    return small if scope.in_memory(dtype) == raw else body.let(f"bitcast {raw} {small} to {scope.in_memory(dtype)}")


def _masked_gather(scope: Scope, typ: str, suffix: str, align: int, where: str, mask: str) -> str:
    return scope.body.call(
        typ,
        f"llvm.masked.gather.v{scope.lanes}{suffix}.v{scope.lanes}p0",
        (f"<{scope.lanes} x ptr>", f"align {align} {where}"),
        (scope.i1, mask),
        (typ, "zeroinitializer"),
    )
