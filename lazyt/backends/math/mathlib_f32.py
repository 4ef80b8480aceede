"""Elementary functions of float32, evaluated in double and rounded once; `single_f32` has the others.

In double the argument reductions and the ends of the range need no care: float32's subnormals are
ordinary numbers, 2**128 does not overflow, and 29 spare bits hide every rounding but the last. So
short polynomials, good to about 2**-30, give results within 0.56 ULP on all float32 values.
Sources: Cody and Waite, "Software Manual for the Elementary Functions" (1980); Muller, "Elementary
Functions" (3rd ed., 2016). Coefficients: Remez exchange on the interval noted.
"""

from __future__ import annotations

import math

from lazyt.backends.math.mathlib import (
    INF,
    MAGIC,
    MANTISSA,
    NAN,
    ONE_BITS,
    ROOT_BITS,
    at_least,
    at_most,
    power_limits,
    vanishing,
)
from lazyt.backends.math.payne_hanek import if_large
from lazyt.backends.math.vector import Rules, Vec, constant, copysign, estrin, fabs, fma, horner, sqrt, where

LN2, LOG2E = math.log(2), 1 / math.log(2)

# exp(r), |r| <= ln(2)/2, 2**-29.0.
EXP = (0.0013836833573831657, 0.008374824071765386, 0.04166822625418771, 0.16666420073003804,
       0.49999992074616306, 1.0000000363437263, 1.000000000554657)  # fmt: skip
# exp2(r), |r| <= 1/2, 2**-29.0.
EXP2 = (0.00015345809753692673, 0.0013399931243353964, 0.009618488971497774, 0.05550328777289904,
        0.24022646890412713, 0.693147205736564, 1.0000000005542156)  # fmt: skip
# expm1(r)/r, |r| <= ln(2)/2, 2**-32.0.
EXPM1 = (0.00019915886598031538, 0.0013941121111037918, 0.008333268554398102, 0.04166635273784801,
         0.16666666853797582, 0.5000000047156047, 0.9999999999910058)  # fmt: skip
# log1p(f)/f, sqrt(1/2) - 1 <= f <= sqrt(2) - 1, 2**-30.5.
LOG = (0.06725877420846936, -0.11718581866209643, 0.119260716704996, -0.12401006197592067,
       0.14212531673522386, -0.16667916805904984, 0.20002576097300168, -0.2500002696901188,
       0.33333301604281157, -0.49999999668377304, 1.0000000006312333)  # fmt: skip
# The same to 2**-38.5, for pow.
LOG_POW = (-0.04833955149608267, 0.09185042783822835, -0.09331795362897012, 0.0903001572938164,
           -0.09877251575169708, 0.11105373200249671, -0.1250692264362162, 0.14286257128466795,
           -0.16666476744516434, 0.1999998527380144, -0.2500000228161304, 0.3333333346086802,
           -0.4999999999189438, 0.999999999998344)  # fmt: skip
# sin(r) = r + r*z*P(z), z = r*r, |r| <= pi/2, 2**-35.3.
SIN = (-2.3888792528359495e-08, 2.7525377951318575e-06, -0.0001984086808698445,
       0.008333331107690146, -0.16666666626128737)  # fmt: skip
# tan(r) = r + r*z*P(z), |r| <= pi/4, 2**-29.6.
TAN = (0.004376830920822595, 8.842787035506601e-05, 0.010836671857659855, 0.02128186224803115,
       0.0540599781983735, 0.1333266280418721, 0.33333349770167003)  # fmt: skip
# asin(r) = r + r*z*P(z), |r| <= 1/2, 2**-31.8.
ASIN = (0.037516478043275604, 0.014438586168349078, 0.031807722856016594, 0.044516954749380167,
        0.07500504185849743, 0.16666659991286575)  # fmt: skip
# atan(r) = r + r*z*P(z), |r| <= 1, 2**-31.2.
ATAN = (0.0011137908242316447, -0.007317968325128954, 0.022539895576051048, -0.04468997988923775,
        0.06741600217291437, -0.0881109290923971, 0.11058224145790335, -0.14279833130953926,
        0.19999671129490698, -0.3333332689973218)  # fmt: skip
# -log(erfc(5 + u)), -5 <= u <= 5.25, absolute 2**-29.2.
ERFC = (4.4487072869372794e-18, -2.5875274376488425e-17, -5.428330476685783e-16,
        3.5590072482086475e-15, 2.2359430171215747e-14, -1.5633463317645745e-13,
        -5.733964446501518e-13, 3.892125583671546e-12, 1.095459528749884e-11,
        -8.271798434415916e-11, 9.180128334734416e-11, -9.18396318089617e-10,
        1.2702943324736073e-08, -9.689716422919357e-08, 6.983890155465596e-07,
        -5.164012671159779e-06, 3.801891365376289e-05, -0.00028148271345062535,
        0.0021526435372337498, 0.9820669439569736, 10.19270005658206,
        27.200889543980836)  # fmt: skip

PI_2 = math.pi / 2
# pi minus the double next to it.
PI_TAIL = 1.2246467991473532e-16


def up(x: Vec) -> Vec:
    return x.convert("fpext", "double")


def down(x: Vec) -> Vec:
    return x.convert("fptrunc", "float")


def _power_of_two(n: Vec, of: Vec) -> Vec:
    """`of` * 2**n for a double `n` that holds MAGIC + n; a NaN stays one."""
    return ((n.as_int() << 52) + of.as_int()).as_float()


def _exp(x: Vec) -> Vec:
    """exp of a double within +-700."""
    n = fma(x, LOG2E, MAGIC)
    r = fma(n - MAGIC, -LN2, x)
    return _power_of_two(n, horner(r, EXP))


def _expm1(x: Vec) -> Vec:
    """expm1 of a double within +-700, of small relative error near 0 too."""
    n = fma(x, LOG2E, MAGIC)
    r = fma(n - MAGIC, -LN2, x)
    scale = _power_of_two(n, constant(n, 1.0))
    return fma(scale, r * horner(r, EXPM1), scale - 1.0)


def _split(x: Vec) -> tuple[Vec, Vec]:
    """(k, f) with x = 2**k * (1 + f), for a positive normal double."""
    shifted = x.as_int() + (ONE_BITS - ROOT_BITS)
    k = ((shifted >> 52) | 0x4330000000000000).as_float() - (2.0**52 + 1023)
    m = (shifted & MANTISSA) + ROOT_BITS
    return k, m.as_float() - 1.0


def exp2(x: Vec) -> Vec:
    return vanishing(_exp2, x, -151.0, 130.0)


def _exp2(x: Vec) -> Vec:
    x = up(x)
    n = x + MAGIC
    return down(_power_of_two(n, horner(x - (n - MAGIC), EXP2)))


def expm1(x: Vec) -> Vec:
    return copysign(down(_expm1(up(at_most(at_least(x, -30.0), 90.0)))), x)


def _log_terms(u: Vec) -> tuple[Vec, Vec]:
    """(k, log(1 + f)) of a positive normal double."""
    k, f = _split(u)
    return k, f * estrin(f, LOG)


def _log(u: Vec) -> Vec:
    k, t = _log_terms(u)
    return fma(k, LN2, t)


def sinh(x: Vec) -> Vec:
    e = _expm1(up(at_most(fabs(x), 91.0)))
    r = (e + e / (e + 1.0)) * 0.5
    return copysign(down(r), x)


def cosh(x: Vec) -> Vec:
    e = _exp(up(at_most(fabs(x), 91.0)))
    return down((e + 1.0 / e) * 0.5)


def asinh(x: Vec) -> Vec:
    a = up(fabs(x))
    z = a * a
    r = where(a < 2.0**-12, a * fma(z, -1 / 6, 1.0), _log(a + sqrt(z + 1.0)))
    return where(fabs(x) < INF, copysign(down(r), x), x)


def acosh(x: Vec) -> Vec:
    wide = up(x)
    r = down(_log(wide + sqrt(fma(wide, wide, -1.0))))
    return where(x < INF, where(x >= 1.0, r, NAN), x)


def erfc(x: Vec) -> Vec:
    a = up(at_most(fabs(x), 10.2))
    r = _exp(-estrin(a - 5.0, ERFC))
    return down(where(up(x) < 0.0, 2.0 - r, r))


def _asin(a: Vec) -> tuple[Vec, Vec]:
    """(far, s): asin(a) = s, or with `far` asin(sqrt((1 - a)/2)) = s, which is exact near 1."""
    far = a > 0.5
    z = where(far, fma(a, -0.5, 0.5), a * a)
    r = where(far, sqrt(z), a)
    return far, fma(r * z, horner(z, ASIN), r)


def asin(x: Vec) -> Vec:
    far, s = _asin(up(fabs(x)))
    return copysign(down(where(far, fma(s, -2.0, PI_2), s)), x)


def _atan(t: Vec) -> Vec:
    z = t * t
    return fma(t * z, estrin(z, ATAN), t)


def atan(x: Vec) -> Vec:
    a = up(fabs(x))
    far = a > 1.0
    r = _atan(where(far, 1.0 / a, a))
    return copysign(down(where(far, PI_2 - r, r)), x)


def hypot(x: Vec, y: Vec) -> Vec:
    a, b = up(x), up(y)
    r = down(sqrt(fma(a, a, b * b)))
    infinite = fabs(x).eq(INF) | fabs(y).eq(INF)
    return where(infinite, constant(r, INF), r)


def power(x: Vec, y: Vec) -> Vec:
    """exp2(y*log2|x|) in double, then C99's special values (Annex F.10.4.4)."""
    a, e = up(fabs(x)), up(y)
    k, f = _split(a)
    log2 = fma(f * estrin(f, LOG_POW), LOG2E, k)
    log2 = where(a.eq(0.0), constant(a, -INF), where(a < INF, log2, a))
    p = at_most(at_least(e * log2, -155.0), 130.0)
    n = p + MAGIC
    r = down(_power_of_two(n, horner(p - (n - MAGIC), EXP2)))
    return power_limits(r, x, y)


def _sin_turned(x: Vec, turn: int) -> Vec:
    """sin(x + turn*pi/2), turn 0 or 1: (-1)**n sin(r) with x + turn*pi/2 = n*pi + r, |r| <= pi/2.

    The first product is cut exactly by the fma: pi has 53 bits from 2 down, n - turn/2 few.
    """
    x = up(x)
    if turn:
        t = fma(x, 1 / math.pi, -0.5) + MAGIC
        k, n = (t - MAGIC) + 0.5, t.as_int() + 1
    else:
        t = fma(x, 1 / math.pi, MAGIC)
        k, n = t - MAGIC, t.as_int()
    r = fma(k, -PI_TAIL, fma(k, -math.pi, x))

    def from_quadrant(r: Vec, _: Vec, quadrant: Vec) -> tuple[Vec, Vec]:
        q = quadrant + turn if turn else quadrant
        return where((q & 1).ne(0), PI_2 - fabs(r), r), q >> 1

    r, n = if_large(x, (r, n), from_quadrant)
    z = r * r
    s = r * fma(z, horner(z, SIN), 1.0)
    return down((s.as_int() ^ (n << 63)).as_float())


def sin(x: Vec) -> Vec:
    return _sin_turned(x, 0)


def cos(x: Vec) -> Vec:
    return _sin_turned(x, 1)


def tan(x: Vec) -> Vec:
    x = up(x)
    t = fma(x, 2 / math.pi, MAGIC)
    n = t - MAGIC
    r = fma(n, -PI_TAIL / 2, fma(n, -PI_2, x))
    r, q = if_large(x, (r, t.as_int()), lambda r, _, q: (r, q))
    z = r * r
    w = r * fma(z, horner(z, TAN), 1.0)
    return down(where((q & 1).ne(0), -1.0 / w, w))


RULES: Rules = {"pow": power} | {
    rule.__name__: rule
    for rule in (
        exp2, expm1, sin, cos, tan, asin, atan, sinh, cosh, asinh, acosh, erfc, hypot,
    )
}  # fmt: skip
