"""lgamma and digamma of float64.

From 1 to 8 rational functions, with the zeros taken out as factors; from 8 on Stirling's series, with the coefficients
of a shorter polynomial (Remez). Below 1 the recurrence, for negative arguments the reflection formula, as in fdlibm's
lgamma. Abramowitz, Stegun 6.1.17, 6.1.40, 6.3.5, 6.3.7, 6.3.18. Errors for positive arguments: lgamma within 6 ULP,
digamma within 4.5. For negative ones the same holds of the larger of the terms, as near their zeros these cancel.
"""

from __future__ import annotations

import math

from lazyt.backends.math.explog_f64 import log
from lazyt.backends.math.mathlib import INF, NAN, at_least, at_most
from lazyt.backends.math.vector import Vec, constant, copysign, fabs, fma, horner, where

LARGE = 8.0
# lgamma(x)/((x - 1)(x - 2)), 1 <= x <= 8, 2**-57.7: numerator and denominator.
LGAMMA = (
    (0.0002129614321893747, 0.04297286027866628, 1.891247931053009, 29.00844496368964, 184.61276656523637,
     520.8496018480998, 651.2424597571382, 337.67543580854976, 61.611248079634215, 2.5041775401570443),
    (3.537356519013289e-05, 0.011175772289075231, 0.697859648137141, 14.93270886764928, 134.23742819051245,
     553.1144481947118, 1069.4805625782249, 941.8746944651936, 342.7993124944382, 41.973058581273925, 1.0),
)  # fmt: skip
# x times what is left of lgamma beyond (x - 1/2)log(x) - x + log(2 pi)/2, in 1/x**2, x >= 8, 2**-57.
STIRLING = (0.00506916309548787, -0.0018905359217435962, 0.0008414727782217188, -0.0005952366063725904,
            0.0007936507898327169, -0.002777777777774096, 0.08333333333333333)  # fmt: skip
# digamma(x)/(x - ROOT), 1 <= x <= 8, 2**-56.
DIGAMMA = (
    (0.3254567823998231, 659.7385606697577, 66268.68508801765, 1901777.2348123656, 21648962.727014296,
     110586048.3361985, 259039303.33031097, 255236383.48040858, 75666344.76843879),
    (111.86167082024718, 15639.15973114846, 582629.0142715359, 8465229.942253886, 55428747.96531326,
     170494302.30459818, 233557464.2932862, 110596350.94802326, 1.0),
)  # fmt: skip
# ROOT - 1, in two parts.
ROOT_1, ROOT_1_TAIL = 0.46163214496836236, -1.552234816285868e-17
# x*x times what digamma is less than log(x) - 1/(2x), in 1/x**2, x >= 8, 2**-58.6.
SERIES = (-0.29980112859618885, 0.08004395738401193, -0.02105150397022872, 0.007575464651507823,
          -0.00416666552746448, 0.003968253966067518, -0.00833333333333173, 0.08333333333333333)  # fmt: skip
# sin(pi g)/g in g*g, 0 <= g <= 1/2, 2**-61.7.
SINPI = (7.69464978499968e-07, -2.1903177708546036e-05, 0.00046629968565740524, -0.007370430478106953,
         0.08214588656981618, -0.5992645293187334, 2.550164039877294, -5.167712780049969, math.pi)  # fmt: skip


def _sinpi(g: Vec) -> Vec:
    """sin(pi g) for 0 <= g <= 1/2."""
    return g * horner(g * g, SINPI)


def _from_whole(a: Vec) -> Vec:
    """a less the nearest whole number."""
    return a - a.intrinsic("roundeven")


def _rational(x: Vec, parts: tuple[tuple[float, ...], tuple[float, ...]]) -> Vec:
    y = at_most(x, LARGE)
    return horner(y, parts[0]) / horner(y, parts[1])


def lgamma(x: Vec) -> Vec:
    a = fabs(x)
    low = a < 1.0
    logarithm = log(a)
    # Of a, or where that is below 1 of a + 1, whose distances from 1 and 2 are known exactly.
    near = where(low, a, a - 1.0) * where(low, a - 1.0, a - 2.0) * _rational(where(low, a + 1.0, a), LGAMMA)
    near = near + 0.0  # at 1 it is 0, not -0
    i = 1.0 / at_least(a, LARGE)
    far = fma(a - 0.5, logarithm - 1.0, fma(i, horner(i * i, STIRLING), 0.5 * math.log(2 * math.pi) - 0.5))
    large = a >= LARGE
    positive = where(large, far, where(low, near - logarithm, near))
    # gamma(-a) = -pi/(a sin(pi a) gamma(a)), and a gamma(a) = gamma(a + 1).
    sine = _sinpi(fabs(_from_whole(a)))
    negative = -(where(large, far, near) + log(sine * (1 / math.pi))) - where(low, 0.0, logarithm)
    r = where(x < 0.0, where(sine.eq(0.0), constant(x, INF), negative), positive)
    return where(a.eq(INF), a, r)


def digamma(x: Vec) -> Vec:
    a = fabs(x)
    less = x < 0.0
    low = a < 1.0
    shifted = less | low
    y = where(shifted, a + 1.0, a)
    # y - 1 is known exactly where y is near the root.
    near = ((where(shifted, a, a - 1.0) - ROOT_1) - ROOT_1_TAIL) * _rational(y, DIGAMMA)
    i = 1.0 / at_least(y, LARGE)
    z = i * i
    far = log(y) - fma(z, horner(z, SERIES), i * 0.5)
    positive = where(y < LARGE, near, far)
    # digamma(-a) = digamma(a + 1) + pi cot(pi a).
    f = _from_whole(a)
    g = fabs(f)
    cotangent = copysign(_sinpi(0.5 - g) / _sinpi(g), f) * math.pi
    r = positive + where(less, where(f.eq(0.0), constant(x, NAN), cotangent), where(low, -1.0 / x, 0.0))
    return where(x.eq(INF), x, r)
