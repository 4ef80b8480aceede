"""Stores of a kernel: to neighbours, to every other element, at a stride, of one element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.emit_memory import first_lane, pointer, suffix, turned
from lazyt.backends.cpu.codegen.lane_by_lane import beside, has_masks, has_moves, pointed, store_lanes
from lazyt.backends.cpu.codegen.text import mem_type, vector
from lazyt.backends.cpu.engine import host_features
from lazyt.backends.cpu.flags import switches
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

    from lazyt.backends.cpu.codegen.emit_scope import Scope
    from lazyt.ir.kernel import Kernel, Store

# Bytes of the widest registers there are, which are a line of the caches too.
REGISTER = 64
# So many bytes of results are written past the caches: more than the last of them keeps.
STREAMED = 32 << 20


def store_all(scope: Scope, stores: Sequence[Store]) -> None:
    """Write what a stage stores at these points.

    Without AVX-512 a masked store takes AMD's processors a dozen cycles or more, and others a branch a lane. So one
    branch tells whole vectors from the last one, and their stores are written twice; what computes them is not.
    Stores that go past the caches take whole vectors, and so this branch, everywhere.
    """
    kernel, body = scope.kernel, scope.body
    neighbours: list[Store] = []
    others: list[Store] = []
    streams = _may_stream(kernel, stores)
    for what in stores:
        access = kernel.accesses[what.access]
        unmasked = streams or scope.holds is not None or not has_masks(access.dtype)
        near = access.classes[kernel.vector_axis] in "1-" and unmasked
        (neighbours if near else others).append(what)
    if scope.is_partial:
        others = [*neighbours, *others]
    elif neighbours:
        parts = [_to_neighbours(scope, what) for what in neighbours]
        some, whole, join = (body.fresh(name) for name in ("some", "whole", "join"))
        if scope.holds is None:
            full = body.let(f"icmp eq i64 {scope.active}, {scope.lanes}")
            body.line(f"br i1 {full}, label %{whole}, label %{some}")
            body.label(whole)
        if streams:
            _stream(scope, parts, join)
        for dtype, at, x, _ in parts:
            _store_whole(scope, dtype, at, x)
        body.line(f"br label %{join}")
        if scope.holds is None:
            body.label(some)
            for part in parts:
                _store_some(scope, *part)
            body.line(f"br label %{join}")
        body.label(join)
    besides = {kernel.accesses[what.access].beside: what for what in others}
    for what in others:
        second = besides.get(what.access)
        if second is not None:
            _store_both(scope, what, second)
        elif kernel.accesses[what.access].beside is None:
            store(scope, what, scope.levels.lanes)


def _register_size() -> int:
    """Bytes of the widest registers that this processor has."""
    features = host_features()
    return REGISTER if "avx512f" in features else REGISTER // 2 if "avx" in features else REGISTER // 4


def _may_stream(kernel: Kernel, stores: Sequence[Store]) -> bool:
    """Whether a kernel writes nothing but results that lie as its points do, by an instruction that x86 has."""
    plain = not kernel.rows and len(kernel.stages) == 1
    forward = all(kernel.accesses[what.access].classes[kernel.vector_axis] == "1" for what in stores)
    return plain and forward and switches["stream"] and "avx" in host_features()


def _stream(scope: Scope, parts: Sequence[tuple[np.dtype, str, str, str]], join: str) -> None:
    """Write whole vectors past the caches, if the results are larger than those: else a line is read to be written."""
    body = scope.body
    body.module.strategies["large results are written past the caches"] = None
    if not scope.streams:
        scope.streams = "%streams"
        extents = [scope.extent[axis] for axis in range(scope.kernel.axes)]
        at = str(sum(dtype.itemsize for dtype, *_ in parts))
        for i, extent in enumerate(extents):
            scope.entry.append(f"  %stored{i} = mul i64 {at}, {extent}")
            at = f"%stored{i}"
        scope.entry.append(f"  %streams = icmp sge i64 {at}, {STREAMED}")
    large, stream, plain = (body.fresh(name) for name in ("large", "stream", "plain"))
    body.line(f"br i1 {scope.streams}, label %{large}, label %{plain}")
    body.label(large)
    low = "0"
    for _, at, _, _ in parts:
        low = body.let(f"or i64 {low}, {body.let(f'ptrtoint ptr {at} to i64')}")
    size = _register_size()
    aligned = body.let(f"icmp eq i64 {body.let(f'and i64 {low}, {size - 1}')}, 0")
    body.line(f"br i1 {aligned}, label %{stream}, label %{plain}")
    body.label(stream)
    body.declare("!0 = !{i32 1}")
    for dtype, at, x, _ in parts:
        for count, _, part, to in _parts(scope, dtype, at, x, size):
            kind = vector(mem_type(dtype), count)
            body.line(f"store {kind} {part}, ptr {to}, align {count * dtype.itemsize}, !nontemporal !0")
    body.line(f"br label %{join}")
    body.label(plain)


def finish_stores(scope: Scope) -> list[str]:
    """The last lines of a function: other threads see what was written past the caches only behind a fence."""
    if not scope.streams:
        return []
    scope.body.declare("declare void @llvm.x86.sse.sfence()")
    return [
        f"  br i1 {scope.streams}, label %fence, label %out",
        "fence:",
        "  call void @llvm.x86.sse.sfence()",
        "  br label %out",
        "out:",
    ]


def store(scope: Scope, what: Store, level: int) -> None:
    """Write the active lanes; one element outside the lanes' loop or if of class '0' there."""
    kernel, body = scope.kernel, scope.body
    access = kernel.accesses[what.access]
    x = scope.names[what.value]
    at = pointer(scope, what.access, level)
    klass = access.classes[kernel.vector_axis]
    typ = scope.in_memory(access.dtype)
    x = _to_memory(scope, access.dtype, x)
    if klass == "0" or level != scope.levels.lanes:
        one = first_lane(scope, typ, x)
        body.line(f"store {mem_type(access.dtype)} {one}, ptr {at}, align {access.dtype.itemsize}")
        return
    if klass == "2":
        _store_every_other(scope, access.dtype, at, x)
        return
    if klass in "1-":
        _store_some(scope, *_to_neighbours(scope, what))
        return
    offsets = scope.lane_offsets(scope.stride(what.access, kernel.vector_axis))
    ptrs = body.let(f"getelementptr {mem_type(access.dtype)}, ptr {at}, {scope.i64} {offsets}")
    if has_masks(access.dtype):
        _scatter(scope, access.dtype, ptrs, x, scope.mask)
        return
    # As a gather: of all lanes, which needs no mask, or lane by lane.
    some, whole, join = (body.fresh(name) for name in ("some", "whole", "join"))
    full = body.let(f"icmp eq i64 {scope.active}, {scope.lanes}")
    body.line(f"br i1 {full}, label %{whole}, label %{some}")
    body.label(whole)
    _scatter(scope, access.dtype, ptrs, x, "splat (i1 true)")
    body.line(f"br label %{join}")
    body.label(some)
    store_lanes(scope, access.dtype, x, scope.mask, pointed(scope, ptrs))
    body.line(f"br label %{join}")
    body.label(join)


def _scatter(scope: Scope, dtype: np.dtype, ptrs: str, x: str, mask: str) -> None:
    """Write the lanes of a mask to their addresses."""
    typ, pointers = scope.in_memory(dtype), f"<{scope.lanes} x ptr>"
    name = f"llvm.masked.scatter.v{scope.lanes}{suffix(dtype)}.v{scope.lanes}p0"
    scope.body.declare(f"declare void @{name}({typ}, {pointers}, {scope.i1})")
    scope.body.line(f"call void @{name}({typ} {x}, {pointers} align {dtype.itemsize} {ptrs}, {scope.i1} {mask})")


def _store_every_other(scope: Scope, dtype: np.dtype, at: str, x: str) -> None:
    """Write the active lanes two elements apart; what lies between them is left alone."""
    body, lanes = scope.body, 2 * scope.lanes
    one, typ, mask = scope.in_memory(dtype), vector(mem_type(dtype), lanes), scope.doubled_mask(every_other=True)
    spread = ", ".join(f"i32 {i // 2}" if i % 2 == 0 else "i32 poison" for i in range(lanes))
    wide = body.let(f"shufflevector {one} {x}, {one} poison, <{lanes} x i32> <{spread}>")
    name = f"llvm.masked.store.v{lanes}{suffix(dtype)}.p0"
    kind = vector("i1", lanes)
    body.declare(f"declare void @{name}({typ}, ptr align {dtype.itemsize}, {kind})")
    body.line(f"call void @{name}({typ} {wide}, ptr align {dtype.itemsize} {at}, {kind} {mask})")


def _store_both(scope: Scope, first: Store, second: Store) -> None:
    """Write the active lanes of two values, one beside the other."""
    body, lanes = scope.body, 2 * scope.lanes
    dtype = scope.kernel.accesses[first.access].dtype
    at = pointer(scope, first.access, scope.levels.lanes)
    one, typ, kind = scope.in_memory(dtype), vector(mem_type(dtype), lanes), vector("i1", lanes)
    x, y = (_to_memory(scope, dtype, scope.names[what.value]) for what in (first, second))
    picks = ", ".join(f"i32 {i // 2 + scope.lanes * (i % 2)}" for i in range(lanes))
    both = body.let(f"shufflevector {one} {x}, {one} {y}, <{lanes} x i32> <{picks}>")
    name = f"llvm.masked.store.v{lanes}{suffix(dtype)}.p0"
    body.declare(f"declare void @{name}({typ}, ptr align {dtype.itemsize}, {kind})")
    mask = scope.doubled_mask(every_other=False, behind=True)
    body.line(f"call void @{name}({typ} {both}, ptr align {dtype.itemsize} {at}, {kind} {mask})")


def _to_neighbours(scope: Scope, what: Store) -> tuple[np.dtype, str, str, str]:
    """What a store to neighbours writes: dtype, the lowest address, the lanes from there on and their mask."""
    access = scope.kernel.accesses[what.access]
    at, mask = pointer(scope, what.access, scope.levels.lanes), scope.mask
    x = _to_memory(scope, access.dtype, scope.names[what.value])
    if access.classes[scope.kernel.vector_axis] == "-":
        at = scope.body.let(f"getelementptr {mem_type(access.dtype)}, ptr {at}, i64 {1 - scope.lanes}")
        x, mask = turned(scope, scope.in_memory(access.dtype), x), turned(scope, scope.i1, mask)
    return access.dtype, at, x, mask


def _parts(scope: Scope, dtype: np.dtype, at: str, x: str, size: int) -> Iterator[tuple[int, str, str, str]]:
    """Lanes in parts of at most `size` bytes, from the lowest address up: how many, which, their values and address.

    LLVM divides a wide store the other way round, and lines that two registers share then cost half as much again.
    """
    body = scope.body
    count = min(scope.lanes, max(size // dtype.itemsize, 1))
    for first in range(0, scope.lanes, count):
        picks = f"<{count} x i32> <{', '.join(f'i32 {first + i}' for i in range(count))}>"
        part, to = x, at
        if count < scope.lanes:
            whole = scope.in_memory(dtype)
            part = body.let(f"shufflevector {whole} {x}, {whole} poison, {picks}")
            to = body.let(f"getelementptr {mem_type(dtype)}, ptr {at}, i64 {first}")
        yield count, picks, part, to


def _store_whole(scope: Scope, dtype: np.dtype, at: str, x: str) -> None:
    """Write all lanes from `at` on."""
    for count, _, part, to in _parts(scope, dtype, at, x, _register_size()):
        scope.body.line(f"store {vector(mem_type(dtype), count)} {part}, ptr {to}, align {dtype.itemsize}")


def _store_some(scope: Scope, dtype: np.dtype, at: str, x: str, mask: str) -> None:
    """Write the lanes of `mask` from `at` on."""
    body, element = scope.body, mem_type(dtype)
    if not has_moves(dtype):
        store_lanes(scope, dtype, x, mask, beside(scope, dtype, at))
        return
    for count, picks, part, to in _parts(scope, dtype, at, x, REGISTER):
        kind, bits, on = vector(element, count), vector("i1", count), mask
        name = f"llvm.masked.store.v{count}{suffix(dtype)}.p0"
        body.declare(f"declare void @{name}({kind}, ptr align {dtype.itemsize}, {bits})")
        if count < scope.lanes:
            on = body.let(f"shufflevector {scope.i1} {mask}, {scope.i1} poison, {picks}")
        body.line(f"call void @{name}({kind} {part}, ptr align {dtype.itemsize} {to}, {bits} {on})")


def _to_memory(scope: Scope, dtype: np.dtype, x: str) -> str:
    if dtypes.kind(dtype) != "b":
        return x
    return scope.body.let(f"zext {scope.in_registers(dtype)} {x} to {scope.in_memory(dtype)}")
