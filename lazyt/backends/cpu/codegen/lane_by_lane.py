"""Accesses of some lanes, one after the other, for what the processor has no masked access of.

    masked load of <16 x i8>    -->    a loop over the lanes of the mask, through a slot on the stack

LLVM writes such an access as a branch a lane: thirty blocks, which its code generator takes fifteen milliseconds for.
Only the last vector of an axis goes this way, or all of an axis that is shorter.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.text import mem_type
from lazyt.backends.cpu.engine import host_features

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np

    from lazyt.backends.cpu.codegen.emit_scope import Scope


# Bytes: the least that any processor has.
PAGE = 4096


def has_masks(dtype: np.dtype) -> bool:
    """Whether a masked access takes hardly longer than another."""
    return ("avx512bw" if dtype.itemsize < 4 else "avx512f") in host_features()


def has_moves(dtype: np.dtype) -> bool:
    """Whether there is a masked access to neighbours at all."""
    return has_masks(dtype) or ("avx" in host_features() and dtype.itemsize >= 4)


def load_lanes(scope: Scope, dtype: np.dtype, mask: str, address: Callable[[str], str]) -> str:
    """The elements of a mask's lanes, `address` being that of a lane (an i64); zero in the other lanes."""
    body, typ, element = scope.body, scope.in_memory(dtype), mem_type(dtype)
    slot = scope.spare(typ)
    body.line(f"store {typ} zeroinitializer, ptr {slot}")
    with _each(scope, mask) as lane:
        x = body.let(f"load {element}, ptr {address(lane)}, align {dtype.itemsize}")
        body.line(f"store {element} {x}, ptr {body.let(f'getelementptr {element}, ptr {slot}, i64 {lane}')}")
    return body.let(f"load {typ}, ptr {slot}")


def load_near(scope: Scope, dtype: np.dtype, at: str, mask: str) -> str:
    """Neighbours in the lanes of a mask; zero in the other lanes.

    A register that lies on one page is read whole if any lane of it is asked for: then the page is there.
    """
    body, typ = scope.body, scope.in_memory(dtype)
    size = dtype.itemsize * scope.lanes
    bits = body.let(f"bitcast {scope.i1} {mask} to i{scope.lanes}")
    asked = body.let(f"icmp ne i{scope.lanes} {bits}, 0")
    on_page = body.let(f"and i64 {body.let(f'ptrtoint ptr {at} to i64')}, {PAGE - 1}")
    one_page = body.let(f"icmp ule i64 {on_page}, {PAGE - size}")
    near, apart, join = (body.fresh(name) for name in ("near", "apart", "join"))
    body.line(f"br i1 {body.let(f'and i1 {asked}, {one_page}')}, label %{near}, label %{apart}")
    body.label(near)
    whole = body.let(f"load {typ}, ptr {at}, align {dtype.itemsize}")
    whole = body.let(f"select {scope.i1} {mask}, {typ} {whole}, {typ} zeroinitializer")
    body.line(f"br label %{join}")
    body.label(apart)
    some, last = load_lanes(scope, dtype, mask, beside(scope, dtype, at)), body.block
    body.line(f"br label %{join}")
    body.label(join)
    return body.let(f"phi {typ} [{whole}, %{near}], [{some}, %{last}]")


def store_lanes(scope: Scope, dtype: np.dtype, x: str, mask: str, address: Callable[[str], str]) -> None:
    """Write the lanes of a mask, as they lie in memory, from the first on."""
    body, typ, element = scope.body, scope.in_memory(dtype), mem_type(dtype)
    slot = scope.spare(typ)
    body.line(f"store {typ} {x}, ptr {slot}")
    with _each(scope, mask) as lane:
        one = body.let(f"load {element}, ptr {body.let(f'getelementptr {element}, ptr {slot}, i64 {lane}')}")
        body.line(f"store {element} {one}, ptr {address(lane)}, align {dtype.itemsize}")


def beside(scope: Scope, dtype: np.dtype, at: str, step: int = 1) -> Callable[[str], str]:
    """The addresses of lanes that are so many elements apart, from `at` on."""

    def address(lane: str) -> str:
        places = lane if step == 1 else scope.body.let(f"mul i64 {lane}, {step}")
        return scope.body.let(f"getelementptr {mem_type(dtype)}, ptr {at}, i64 {places}")

    return address


def pointed(scope: Scope, pointers: str) -> Callable[[str], str]:
    """The addresses of lanes that a register of pointers has; it goes to the stack here."""
    body = scope.body
    slot = scope.spare(f"<{scope.lanes} x ptr>")
    body.line(f"store <{scope.lanes} x ptr> {pointers}, ptr {slot}")
    return lambda lane: body.let(f"load ptr, ptr {body.let(f'getelementptr ptr, ptr {slot}, i64 {lane}')}")


@contextmanager
def _each(scope: Scope, mask: str) -> Iterator[str]:
    """A loop over the lanes of a mask, from the first on; nothing written inside opens a block."""
    body, bits = scope.body, f"i{scope.lanes}"
    # NOTE: lane 0 is the lowest bit, as on every processor that there is code for (the last byte is the highest).
    some = body.let(f"bitcast {scope.i1} {mask} to {bits}")
    begun, before = body.let(f"icmp ne {bits} {some}, 0"), body.block
    each, done, left, rest = (body.fresh(name) for name in ("each", "done", "left", "rest"))
    body.line(f"br i1 {begun}, label %{each}, label %{done}")
    body.label(each)
    body.line(f"%{left} = phi {bits} [{some}, %{before}], [%{rest}, %{each}]")
    lane = body.call(bits, f"llvm.cttz.{bits}", (bits, f"%{left}"), ("i1", "true"))
    if scope.lanes != 64:
        lane = body.let(f"{'zext' if scope.lanes < 64 else 'trunc'} {bits} {lane} to i64")
    yield lane
    less = body.let(f"add {bits} %{left}, -1")
    body.line(f"%{rest} = and {bits} %{left}, {less}")
    body.line(f"br i1 {body.let(f'icmp ne {bits} %{rest}, 0')}, label %{each}, label %{done}")
    body.label(done)
