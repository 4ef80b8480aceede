"""Packing bits into bytes, unpacking them, and splitting floats into their two parts: native, in one pass.

A register of bytes is compared with 0, and its mask is the bits; `big` reverses each eight of them before. A unit
is one packed byte, or LANES floats.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.routine import Routine, Routines
from lazyt.backends.cpu.codegen.text import body_of, mem_type, type_of, vector
from lazyt.backends.math.vector import Vec
from lazyt.ir import graph as g
from lazyt.ir.kernel import LANES
from lazyt.ir.passes.call_operands import buffer_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from lazyt.backends.common.binding import ScheduleBinding
    from lazyt.ir.passes.schedule import LibraryCall

# Arguments.
X, Y, Z, LENGTH = range(4)
SIZE = LENGTH + 1
# Elements that a chunk should have at least.
GRAIN = 16384
# Packed bytes that are one step.
WORD = 8
# The bits of a float: of all of it, of its mantissa, and of its exponent; and a factor that makes any a normal one.
FORMATS = {"float": (32, 23, 8, 64), "double": (64, 52, 11, 64)}


def native(c: LibraryCall) -> bool:
    """Whether there is machine code for this call."""
    if not isinstance(c.node.attrs, g.Opaque):
        return False
    return c.node.attrs.fn in _WRITERS and None not in c.results


def suits(b: ScheduleBinding, c: LibraryCall) -> bool:
    """For all extents."""
    return True


def prepare(c: LibraryCall) -> None:
    """Have the machine code that a call needs."""
    _routines(c)


def launch(
    b: ScheduleBinding, c: LibraryCall, rows: list[list[int]], table: list[int], patches: list[tuple[int, int, int]]
) -> None:
    """Write the row of a program for one call."""
    x, at, n = c.operands[0], len(table), 1
    for d in x.shape:
        n *= b.value(d)
    ((_, address),) = _routines(c).address.items()
    if _fn(c) == "frexp":
        units, grain = -(-n // LANES), GRAIN // LANES
    elif _fn(c) == "packbits":
        units, grain = n // WORD, GRAIN // WORD
    else:
        units, grain = n, GRAIN // WORD
    if not units:
        return
    for slot, node in zip((X, Y, Z), (x, *c.results), strict=False):
        assert node is not None, "asked for in `native`"
        b._address(buffer_of(node), 0, node.dtype.itemsize, at + slot, patches)
    rows.append([address, at, units, grain, 0])
    args = [0] * SIZE
    args[LENGTH] = n
    table.extend(args)


def _fn(c: LibraryCall) -> str:
    assert isinstance(c.node.attrs, g.Opaque)
    return c.node.attrs.fn


def _routines(c: LibraryCall) -> Routines:
    assert isinstance(c.node.attrs, g.Opaque)
    return routines(c.node.attrs.fn, c.operands[0].dtype, c.node.attrs.statics)


@lru_cache(maxsize=32)
def routines(fn: str, dtype: np.dtype, statics: tuple[str, ...]) -> Routines:
    """The machine code of one function, for a dtype or an order of bits."""
    name = "_".join((fn, *statics))
    return Routines({name: lambda r: _WRITERS[fn](r, mem_type(dtype), *statics)})


def _by_words(write: Callable[[Routine, str, int, str], None]) -> Callable[[Routine, str, str], None]:
    """Units by eight, the last few one by one."""

    def routine(r: Routine, element: str, order: str) -> None:
        body = r.body
        count = body.let("sub i64 %end, %begin")
        whole = body.let(f"add i64 %begin, {body.let(f'and i64 {count}, {-WORD}')}")
        with r.loop("%begin", whole, WORD) as i:
            write(r, i.index, WORD, order)
        with r.loop(whole, "%end") as i:
            write(r, i.index, 1, order)

    return routine


def _ordered(r: Routine, bits: str, n: int, order: str) -> str:
    """So many bytes of which each eight are reversed where the first is to be the highest bit."""
    if order == "little":
        return bits
    lanes = ", ".join(f"i32 {8 * (i // 8) + 7 - i % 8}" for i in range(n))
    return r.body.let(f"shufflevector <{n} x i8> {bits}, <{n} x i8> poison, <{n} x i32> <{lanes}>")


def _pack(r: Routine, unit: str, count: int, order: str) -> None:
    body, n = r.body, 8 * count
    at = r.at("i8", r.argument(X, "ptr"), body.let(f"shl i64 {unit}, 3"))
    x = _ordered(r, body.let(f"load <{n} x i8>, ptr {at}, align 1"), n, order)
    some = body.let(f"icmp ne <{n} x i8> {x}, zeroinitializer")
    packed = body.let(f"bitcast <{n} x i1> {some} to i{n}")
    body.line(f"store i{n} {packed}, ptr {r.at('i8', r.argument(Y, 'ptr'), unit)}, align 1")


def _unpack(r: Routine, unit: str, count: int, order: str) -> None:
    body, n = r.body, 8 * count
    packed = body.let(f"load i{n}, ptr {r.at('i8', r.argument(X, 'ptr'), unit)}, align 1")
    some = body.let(f"bitcast i{n} {packed} to <{n} x i1>")
    x = _ordered(r, body.let(f"zext <{n} x i1> {some} to <{n} x i8>"), n, order)
    at = r.at("i8", r.argument(Y, "ptr"), body.let(f"shl i64 {unit}, 3"))
    body.line(f"store <{n} x i8> {x}, ptr {at}, align 1")


def _frexp(r: Routine, element: str) -> None:
    """Both parts of LANES floats: what is not finite, and 0, is its own mantissa, of exponent 0."""
    body = r.body
    width, mantissa, exponent, lift = FORMATS[element]
    kind, word = vector(element, LANES), f"i{width}"
    ones, bias = (1 << exponent) - 1, (1 << (exponent - 1)) - 2
    with r.loop("%begin", "%end") as unit:
        first = body.let(f"mul i64 {unit.index}, {LANES}")
        mask = r.lanes(body.let(f"sub i64 {r.argument(LENGTH)}, {first}"))
        x = r.load(element, r.at(element, r.argument(X, "ptr"), first), mask)

        def parts(v: Vec) -> tuple[Vec, Vec]:
            bits = Vec(body, body.let(f"bitcast {kind} {v.name} to {vector(word, LANES)}"), word, LANES)
            return bits, (bits >> mantissa) & ones

        bits, e = parts(x)
        # A subnormal number is made a normal one before.
        small = e.compare("eq", 0)
        lifted, lifted_e = parts(x * float(2**lift))
        bits = _chosen(small, lifted, bits)
        e = _chosen(small, lifted_e - lift, e)
        plain = (bits & ~(ones << mantissa)) | (bias << mantissa)
        zero = Vec(body, body.let(f"fcmp oeq {kind} {x.name}, zeroinitializer"), "i1", LANES)
        special = zero | e.compare("eq", ones)
        found = Vec(body, body.let(f"bitcast {type_of(plain)} {plain.name} to {kind}"), element, LANES)
        # x + x is x of what is infinite or 0, and quiet of a NaN.
        m = _chosen(special, x + x, found)
        power = _chosen(special, e & 0, e - bias)
        r.store(m, r.at(element, r.argument(Y, "ptr"), first), mask)
        if width > 32:
            power = Vec(body, body.let(f"trunc {type_of(power)} {power.name} to {vector('i32', LANES)}"), "i32", LANES)
        r.store(power, r.at("i32", r.argument(Z, "ptr"), first), mask)


def _chosen(condition: Vec, a: Vec, b: Vec) -> Vec:
    return a.renamed(body_of(a).select(condition, a, a.name, b.name))


_WRITERS: dict[str, Callable[..., None]] = {
    "packbits": _by_words(_pack),
    "unpackbits": _by_words(_unpack),
    "frexp": _frexp,
}
