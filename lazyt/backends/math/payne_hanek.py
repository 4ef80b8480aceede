"""x mod pi/2 for arguments that Cody and Waite's reduction cannot hold: Payne and Hanek's.

Payne and Hanek, "Radian reduction for trigonometric functions" (1983): of the bits of 2/pi only
those matter whose product with x is neither a multiple of 4 nor below the precision wanted. One
lane at a time, in integers, in a function of its own: such arguments are rare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.math.control import each_lane, outlined, rarely
from lazyt.backends.math.vector import Vec, fabs, fma, where

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
_RESULTS = ("double", "double", "i64")


def _product(x: Vec) -> tuple[Vec, Vec]:
    """|x| * 2/pi mod 4 for LARGE <= |x| < inf: two words, 2 bits before the point, 126 behind."""
    bits = fabs(x).as_int()
    m = (bits & (2**52 - 1)) | 2**52
    # The first bit that is not a multiple of 4 once multiplied, counted in the table.
    first = (bits >> 52) - (1075 + 2 - 64)
    word = first >> 6
    window = [word.renamed(x.body.table(_TABLE, TWO_OVER_PI, word + i)) for i in range(4)]
    a, b, c = (window[i].intrinsic("fshl", window[i + 1], first) for i in range(3))
    carry = m.multiply_high(c)
    low = m * b + carry
    high = m * a + m.multiply_high(b)
    return high + low.compare("ult", carry).convert("zext", "i64"), low


def _reduce(x: Vec) -> tuple[Vec, Vec, Vec]:
    """(r, its tail, quadrant) of one number: x = quadrant*pi/2 + r, |r| <= pi/4."""
    high, low = _product(x)
    quadrant = (high + 2**61).ashr(62)
    high = high - (quadrant << 62)
    # Three doubles, the last two exact, hold all bits of the fraction.
    top = high.convert("sitofp", "double")
    rest = (high - top.convert("fptosi", "i64")) << 32
    middle = (rest + (low >> 32)).convert("sitofp", "double") * 2.0**-94
    last = (low & 0xFFFFFFFF).convert("sitofp", "double") * 2.0**-126
    top = top * 2.0**-62
    f = top + middle
    f_tail = (middle - (f - top)) + last
    r = f * PI_2
    tail = fma(f, PI_2_TAIL, f_tail * PI_2) + fma(f, PI_2, -r)
    s = r + tail
    tail = tail - (s - r)
    negative = x < 0.0
    return (
        where(negative, -s, s),
        where(negative, -tail, tail),
        where(negative, -quadrant, quadrant),
    )


def _each_lane(x: Vec) -> tuple[Vec, ...]:
    return each_lane(x, _RESULTS, _reduce)


def if_large(x: Vec, usual: tuple[Vec, ...], convert: Callable[[Vec, Vec, Vec], tuple[Vec, ...]]) -> tuple[Vec, ...]:
    """`usual`, but for LARGE <= |x| < inf what `convert` makes of (r, tail, quadrant)."""
    a = fabs(x)
    large = (a >= LARGE) & (a < float("inf"))

    def write() -> tuple[Vec, ...]:
        operands = (where(large, x, LARGE),)
        return convert(*outlined("lazyt.payne_hanek", _RESULTS, operands, _each_lane, cold=True))

    return rarely(large, usual, write)
