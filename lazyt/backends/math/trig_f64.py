"""Circular functions of float64 and their inverses.

Reduction by pi/2 in three parts with fma up to 2**40, Payne and Hanek's beyond; kernels on
[-pi/4, pi/4] that take the reduced argument as a pair, after fdlibm's. Coefficients: Remez exchange
on the interval noted.
"""

from __future__ import annotations

import math

from lazyt.backends.math.explog_f64 import Pair, fast_two_sum, two_product, two_sum
from lazyt.backends.math.mathlib import INF, MAGIC, NAN, at_least, at_most
from lazyt.backends.math.payne_hanek import PI_2, PI_2_TAIL, if_large
from lazyt.backends.math.vector import Vec, constant, copysign, estrin, fabs, fma, horner, sqrt, where

PI, PI_TAIL = 2 * PI_2, 2 * PI_2_TAIL
PI_2_LAST = -1.4973849048591698e-33

# sin(r) = r + r*z*P(z), z = r*r, |r| <= pi/4, 2**-57.9.
SIN = (1.5895431273613443e-10, -2.505073436667446e-08, 2.75573135384347e-06,
       -0.00019841269829358438, 0.00833333333332184, -0.1666666666666663)  # fmt: skip
# cos(r) = 1 - z/2 + z*z*P(z), |r| <= pi/4, 2**-62.
COS = (-1.1366167981522643e-11, 2.0875859299294568e-09, -2.7557315445217105e-07,
       2.4801587293674127e-05, -0.0013888888888881712, 0.04166666666666665)  # fmt: skip
# asin(r) = r + r*z*P(z), |r| <= 1/2, 2**-59.9.
ASIN = (0.032626553971229294, -0.020995579938863838, 0.02170484514095399, 0.0037075458132215253,
        0.0107799305741379, 0.011398974246882354, 0.013980812287576814, 0.017351612774447953,
        0.02237221494001606, 0.030381942709734443, 0.04464285717456315, 0.07499999999970865,
        0.1666666666666676)  # fmt: skip
# atan(r) = r - r*z/3 + r*z*z*P(z), |r| <= 1, 2**-56.5.
ATAN = (-1.174314522870335e-05, 0.0001363099693820376, -0.0007508426643534305,
        0.0026248502568426597, -0.006588906874589773, 0.012789010839325925,
        -0.020289288575146256, 0.02762246816173913, -0.03379329390804707, 0.03875204651687361,
        -0.043092725620233197, 0.047524784048863074, -0.05261365270886656, 0.058820935309807164,
        -0.06666638905075445, 0.07692305577810762, -0.09090908982277228, 0.11111111107637649,
        -0.1428571428565402, 0.19999999999999585, -1 / 3)  # fmt: skip


def _reduce(x: Vec) -> tuple[Vec, Vec, Vec]:
    """(r, its tail, quadrant) with x = quadrant*pi/2 + r; the first product is cut exactly."""
    t = fma(x, 2 / math.pi, MAGIC)
    n = t - MAGIC
    first = fma(n, -PI_2, x)
    p, p_tail = two_product(n, constant(n, PI_2_TAIL))
    r, error = two_sum(first, -p)
    tail = fma(n, -PI_2_LAST, error - p_tail)
    r, q, s = *fast_two_sum(r, tail), t.as_int()
    found = if_large(x, (r, q, s), lambda *large: large)
    return found[0], found[1], found[2]


def _sin_tail(r: Vec, z: Vec, tail: Vec) -> Vec:
    """sin(r + tail) - r."""
    return fma(r * z, horner(z, SIN), fma(z * -0.5, tail, tail))


def _cos_pair(r: Vec, z: Vec, tail: Vec) -> Pair:
    """cos(r + tail) as a sum."""
    half = z * 0.5
    high = 1.0 - half
    return high, ((1.0 - high) - half) + fma(z * z, horner(z, COS), -(r * tail))


def _sin_quadrant(x: Vec, turn: int) -> Vec:
    r, tail, q = _reduce(x)
    if turn:
        q = q + turn
    z = r * r
    high, low = _cos_pair(r, z, tail)
    odd = (q & 1).ne(0)
    s = where(odd, high + low, r + _sin_tail(r, z, tail))
    return (s.as_int() ^ ((q & 2) << 62)).as_float()


def sin(x: Vec) -> Vec:
    return where(x.eq(0.0), x, _sin_quadrant(x, 0))


def cos(x: Vec) -> Vec:
    return _sin_quadrant(x, 1)


def tan(x: Vec) -> Vec:
    r, tail, q = _reduce(x)
    z = r * r
    s, s_tail = fast_two_sum(r, _sin_tail(r, z, tail))
    c, c_tail = fast_two_sum(*_cos_pair(r, z, tail))
    odd = (q & 1).ne(0)
    a, a_tail = where(odd, -c, s), where(odd, -c_tail, s_tail)
    b, b_tail = where(odd, s, c), where(odd, s_tail, c_tail)
    t = a / b
    t = t + (fma(-t, b, a) + fma(-t, b_tail, a_tail)) / b
    return where(x.eq(0.0), x, t)


def _asin_parts(a: Vec) -> tuple[Vec, Vec, Vec]:
    """(far, s, rest): asin(a) = s + rest, or with `far` asin(sqrt((1 - a)/2)) = s + rest."""
    far = a > 0.5
    z = where(far, fma(a, -0.5, 0.5), a * a)
    root = sqrt(z)
    root_tail = fma(-root, root, z) / at_least(root + root, 2.0**-100)
    s = where(far, root, a)
    return far, s, fma(s * z, estrin(z, ASIN), where(far, root_tail, 0.0))


def asin(x: Vec) -> Vec:
    a = fabs(x)
    far, s, rest = _asin_parts(a)
    high, error = fast_two_sum(constant(s, PI_2), s * -2.0)
    r = where(far, high + (error + fma(rest, -2.0, PI_2_TAIL)), s + rest)
    return copysign(where(a <= 1.0, r, NAN), x)


def acos(x: Vec) -> Vec:
    a = fabs(x)
    far, s, rest = _asin_parts(a)
    negative = x < 0.0
    # near: pi/2 - (s + rest) signed; far: 2(s + rest), from pi when x is negative.
    base = where(far, where(negative, constant(s, PI), 0.0), PI_2)
    base_tail = where(far, where(negative, constant(s, PI_TAIL), 0.0), PI_2_TAIL)
    factor = where(far, constant(s, 2.0), -1.0)
    factor = where(negative, -factor, factor)
    high, error = fast_two_sum(base, s * factor)
    return where(a <= 1.0, high + (error + fma(rest, factor, base_tail)), NAN)


def _atan_rest(t: Vec, tail: Vec) -> Vec:
    """atan(t + tail) - t, 0 <= t <= 1; the tail's factor 1/(1 + t*t) need not be exact."""
    z = t * t
    return fma(t * z, horner(z, ATAN), fma(z * -0.5, tail, tail))


def atan(x: Vec) -> Vec:
    a = at_most(fabs(x), 2.0**1000)
    far = a > 1.0
    i = 1.0 / a
    t = where(far, i, a)
    rest = _atan_rest(t, where(far, fma(-i, a, 1.0) * i, 0.0))
    high, error = fast_two_sum(constant(t, PI_2), -t)
    return copysign(where(far, high + (error + (PI_2_TAIL - rest)), t + rest), x)


def atan2(y: Vec, x: Vec) -> Vec:
    ay, ax = fabs(y), fabs(x)
    steep = ay > ax
    low, high = where(steep, ax, ay), where(steep, ay, ax)
    # 0/0 counts as 0 and inf/inf as 1: the signs choose the multiple of pi/4.
    diagonal = low.eq(INF)
    low = where(diagonal, constant(low, 1.0), low)
    high = at_least(where(diagonal, constant(high, 1.0), high), 2.0**-1074)
    t = low / high
    error = fma(-t, high, low)
    # Not where it underflowed, nor NaN from an infinite `high`.
    rest = _atan_rest(t, where(fabs(error) > 2.0**-1000, error / high, 0.0))
    back = x.as_int() < 0
    base = where(back, constant(t, PI), 0.0)
    base = where(steep, constant(t, PI_2), base)
    base_tail = where(steep, constant(t, PI_2_TAIL), where(back, constant(t, PI_TAIL), 0.0))
    minus = steep ^ back
    t, rest = where(minus, -t, t), where(minus, -rest, rest)
    s, tail = fast_two_sum(base, t)
    r = where(x.compare("uno", y), constant(s, NAN), s + (tail + (base_tail + rest)))
    return copysign(r, y)
