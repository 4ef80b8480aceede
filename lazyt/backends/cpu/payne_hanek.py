"""x mod pi/2 for arguments that Cody and Waite's reduction cannot hold: Payne and Hanek's.

Payne and Hanek, "Radian reduction for trigonometric functions" (1983): of the bits of 2/pi only those
matter whose product with x is neither a multiple of 4 nor below the precision wanted. Integers of 128
bits, one lane at a time, in a function of its own: such arguments are rare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cpu.text import Body, function, vector
from lazyt.backends.cpu.vector import Vec, fabs, fma, where

if TYPE_CHECKING:
    from collections.abc import Callable

LARGE = 2.0**40
PI_2, PI_2_TAIL = 1.5707963267948966, 6.123233995736766e-17
# 64 zeros, then the first bits of 2/pi.
TWO_OVER_PI = (
    0, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484,
    0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B, 0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B,
    0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB,
)  # fmt: skip
_TABLE = "lazyt.two_over_pi"


def _product(x: Vec) -> Vec:
    """|x| * 2/pi mod 4 for LARGE <= |x| < inf, as an i128 in units of 2**-126."""
    body = x.body
    words = ", ".join(f"i64 {w}" for w in TWO_OVER_PI)
    count = len(TWO_OVER_PI)
    body.declare(f"@{_TABLE} = internal constant [{count} x i64] [{words}]")
    bits = fabs(x).as_int()
    m = (bits & (2**52 - 1)) | 2**52
    # The first bit that is not a multiple of 4 once multiplied, counted in the table.
    first = (bits >> 52) - (1075 + 2 - 64)
    base = body.let(f"getelementptr i64, ptr @{_TABLE}, i64 {(first >> 6).name}")
    window = []
    for i in range(4):
        address = body.let(f"getelementptr i64, ptr {base}, i64 {i}")
        window.append(Vec(body, body.let(f"load i64, ptr {address}"), "i64", 0))
    shift = first & 63
    a, b, c = (window[i].intrinsic("fshl", window[i + 1], shift) for i in range(3))
    wide = m.convert("zext", "i128")
    high = (m * a).convert("zext", "i128") << 64
    return high + wide * b.convert("zext", "i128") + ((wide * c.convert("zext", "i128")) >> 64)


def _reduce(x: Vec) -> tuple[Vec, Vec, Vec]:
    """(r, its tail, quadrant) of one number: x = quadrant*pi/2 + r, |r| <= pi/4."""
    body = x.body
    p = _product(x)
    quadrant = (p + 2**125) >> 126
    f = p - (quadrant << 126)
    below = f < 0
    size = where(below, 0 - f, f)
    zeros = body.call("i128", "llvm.ctlz.i128", ("i128", size.name), ("i1", "true"))
    z = Vec(body, zeros, "i128", 0)
    normal = size << z
    z = z.convert("trunc", "i64")
    # Two times 53 bits, each exact as a double, then brought to their place.
    top = (normal >> 75).convert("trunc", "i64").convert("sitofp", "double")
    rest = ((normal >> 22).convert("trunc", "i64") & (2**53 - 1)).convert("sitofp", "double")
    negative = x < 0.0
    flip = (below ^ negative).convert("zext", "i64") << 63
    top = top * (((1023 - 51 - z) << 52) | flip).as_float()
    rest = rest * (((1023 - 104 - z) << 52) | flip).as_float()
    r = top * PI_2
    tail = fma(top, PI_2_TAIL, rest * PI_2) + fma(top, PI_2, -r)
    q = quadrant.convert("trunc", "i64")
    s = r + tail
    return s, tail - (s - r), where(negative, 0 - q, q)


def _write(symbol: str, body: Body, lanes: int) -> str:
    """The loop over lanes, as a function of a vector."""
    doubles, ints = vector("double", lanes), vector("i64", lanes)
    result = f"{{ {doubles}, {doubles}, {ints} }}"
    body.line("br label %lane")
    body.label("lane")
    body.line("%i = phi i32 [0, %entry], [%next, %lane]")
    for name, kind in (("r", doubles), ("s", doubles), ("q", ints)):
        body.line(f"%{name} = phi {kind} [zeroinitializer, %entry], [%{name}.next, %lane]")
    x = Vec(body, body.let(f"extractelement {doubles} %x, i32 %i"), "double", 0)
    for name, kind, value in zip("rsq", (doubles, doubles, ints), _reduce(x), strict=True):
        element = f"{value.element} {value.name}"
        body.line(f"%{name}.next = insertelement {kind} %{name}, {element}, i32 %i")
    body.line("%next = add i32 %i, 1")
    body.line(f"%more = icmp ult i32 %next, {lanes}")
    body.line("br i1 %more, label %lane, label %done")
    body.label("done")
    a = body.let(f"insertvalue {result} undef, {doubles} %r.next, 0")
    b = body.let(f"insertvalue {result} {a}, {doubles} %s.next, 1")
    c = body.let(f"insertvalue {result} {b}, {ints} %q.next, 2")
    body.line(f"ret {result} {c}")
    return function(result, symbol, [f"{doubles} %x"], body)


def reduce_large(x: Vec) -> tuple[Vec, Vec, Vec]:
    """Like `_reduce` for every lane, by a call; each must hold LARGE <= |x| < inf."""
    body, lanes = x.body, x.lanes
    symbol = f"lazyt.payne_hanek.v{lanes}"
    body.module.define(symbol, lambda: _write(symbol, Body(body.module), lanes))
    doubles, ints = vector("double", lanes), vector("i64", lanes)
    result = f"{{ {doubles}, {doubles}, {ints} }}"
    call = body.let(f"call {result} @{symbol}({x.type} {x.name}) cold")
    r, tail, q = (body.let(f"extractvalue {result} {call}, {i}") for i in range(3))
    return Vec(body, r, "double", lanes), Vec(body, tail, "double", lanes), Vec(body, q, "i64", lanes)


def rarely(
    condition: Vec, usual: tuple[Vec, ...], write: Callable[[], tuple[Vec, ...]]
) -> tuple[Vec, ...]:
    """`usual`, but where `condition` holds the vectors of `write`, run only if any lane needs it."""
    body = condition.body
    rare, join, before = body.fresh("rare"), body.fresh("join"), body.block
    body.line(f"br i1 {condition.any()}, label %{rare}, label %{join}")
    body.label(rare)
    chosen = [where(condition, x, u) for x, u in zip(write(), usual, strict=True)]
    after = body.block
    body.line(f"br label %{join}")
    body.label(join)
    return tuple(
        Vec(
            body,
            body.let(f"phi {u.type} [{u.name}, %{before}], [{c.name}, %{after}]"),
            u.element,
            u.lanes,
        )
        for u, c in zip(usual, chosen, strict=True)
    )


def if_large(
    x: Vec, usual: tuple[Vec, ...], convert: Callable[[Vec, Vec, Vec], tuple[Vec, ...]]
) -> tuple[Vec, ...]:
    """`usual`, but for LARGE <= |x| < inf what `convert` makes of (r, tail, quadrant)."""
    a = fabs(x)
    large = (a >= LARGE) & (a < float("inf"))
    return rarely(large, usual, lambda: convert(*reduce_large(where(large, x, LARGE))))
