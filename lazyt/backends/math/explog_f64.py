"""exp, log, powers and hyperbolic functions of float64.

Each keeps the last sum and what is small beside it apart, so that one rounding decides: errors are
within 1.1 ULP. Reductions after Cody and Waite (1980) with fma; expm1 and log1p after
Tang, "Table-driven implementation of the Expm1 function" (1992), and fdlibm's comments; the errors
of sums and products are Knuth's and Dekker's. Coefficients: Remez exchange on the interval noted.
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
    log_limits,
    power_limits,
    vanishing,
)
from lazyt.backends.math.vector import Vec, constant, copysign, estrin, fabs, fma, horner, sqrt, where

LOG2E = 1 / math.log(2)
LN2, LN2_TAIL = math.log(2), 2.3190468138462996e-17
# 40 bits, so that a product with an exponent is exact.
LN2_SHORT, LN2_REST = 0.693147180559663, 2.8235290563031577e-13
LOG10_2_SHORT, LOG10_2_REST = 0.30102999566361177, 3.694239077158931e-13
LOG2E_TAIL = 2.0355273740931033e-17
LOG10E, LOG10E_TAIL = 0.4342944819032518, 1.098319650216765e-17

# (exp(r) - 1 - r - r**2/2)/r**3, |r| <= ln(2)/2, 2**-57 of exp.
EXP = (2.5113477300438253e-08, 2.7619718700471846e-07, 2.755723106286884e-06,
       2.4801523484934598e-05, 0.00019841269899766525, 0.0013888888913931449,
       0.008333333333315821, 0.04166666666663944, 0.16666666666666685)  # fmt: skip
# (log1p(f) - f + f**2/2)/f**3, sqrt(1/2) - 1 <= f <= sqrt(2) - 1, 2**-59 of log1p.
LOG = (-0.024378796363410202, 0.0570979510958175, -0.06276397512854215, 0.054116361608480934,
       -0.05325353631635211, 0.058183386996493024, -0.06270081885504117, 0.066751164264504,
       -0.07141973014161143, 0.07691714845580089, -0.08333347244930758, 0.090909335533092,
       -0.10000000335417668, 0.11111110513504283, -0.12499999982894139, 0.14285714293893667,
       -0.16666666666906302, 0.19999999999945675, -0.24999999999998948,
       0.33333333333333454)  # fmt: skip
# (2 atanh(s) - 2s - 2/3 s**3)/s**5 in s**2, s <= (sqrt(2) - 1)/(sqrt(2) + 1), 2**-72 of 2 atanh.
ATANH = (0.11924662007712485, 0.116832655434788, 0.13335858299309425, 0.15384570187295446,
         0.18181818649399495, 0.22222222219611945, 0.28571428571435026,
         0.39999999999999997)  # fmt: skip
TWO_THIRDS_TAIL = 3.700743415417188e-17

Pair = tuple[Vec, Vec]


def fast_two_sum(a: Vec, b: Vec) -> Pair:
    """a + b and its error, for |a| >= |b| or a = 0."""
    s = a + b
    return s, b - (s - a)


def two_sum(a: Vec, b: Vec) -> Pair:
    """a + b and its error."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def two_product(a: Vec, b: Vec) -> Pair:
    """a * b and its error."""
    p = a * b
    return p, fma(a, b, -p)


def reduce_exp(x: Vec) -> tuple[Vec, Vec, Vec]:
    """(MAGIC + n, r, its error): x = n*ln(2) + r, |r| <= ln(2)/2. The first product is exact."""
    t = fma(x, LOG2E, MAGIC)
    n = t - MAGIC
    high = fma(n, -LN2, x)
    r = fma(n, -LN2_TAIL, high)
    return t, r, fma(n, -LN2_TAIL, high - r)


def exp_sum(r: Vec, tail: Vec) -> Pair:
    """exp(r + tail) as a sum still to be rounded; the second term is small, not tiny."""
    high, low = fast_two_sum(constant(r, 1.0), r)
    return high, low + exp_tail(r, tail)


def exp_tail(r: Vec, tail: Vec) -> Vec:
    """exp(r + tail) - 1 - r."""
    return fma(r * r, fma(r, horner(r, EXP), 0.5), fma(r, tail, tail))


def power_of_two(t: Vec) -> Vec:
    """2**n of t = MAGIC + n, for a normal result."""
    return ((t.as_int() << 52) + ONE_BITS).as_float()


def scale(p: Vec, t: Vec) -> Vec:
    """p * 2**n of t = MAGIC + n, |n| < 1100, p near 1: two factors, rounded once."""
    small = t < MAGIC
    near = t + where(small, constant(t, 128.0), -128.0)
    return p * power_of_two(near) * where(small, constant(t, 2.0**-128), 2.0**128)


def _exp(x: Vec) -> Vec:
    t, r, tail = reduce_exp(x)
    high, low = exp_sum(r, tail)
    return scale(high + low, t)


def exp(x: Vec) -> Vec:
    return vanishing(_exp, x, -746.0, 710.0)


def exp2(x: Vec) -> Vec:
    return vanishing(_exp2, x, -1076.0, 1024.0)


def _exp2(x: Vec) -> Vec:
    t = x + MAGIC
    f = x - (t - MAGIC)
    r = f * LN2
    high, low = exp_sum(r, fma(f, LN2_TAIL, fma(f, LN2, -r)))
    return scale(high + low, t)


def _expm1_quarter(x: Vec) -> Pair:
    """expm1(x)/4 as a sum, for -50 <= x <= 711 and not subnormal; a quarter cannot overflow."""
    t, r, tail = reduce_exp(x)
    s = power_of_two(t - 2.0)
    high, low = fast_two_sum(s - 0.25, s * r)
    return high, fma(s, exp_tail(r, tail), low)


def _tiny_is_itself(x: Vec, r: Vec, below: float = 2.0**-53) -> Vec:
    return where(fabs(x) < below, x, r)


def _odd(x: Vec, r: Vec) -> Vec:
    """An odd function that is x*(1 + O(x*x)) near 0, from its value `r` elsewhere at |x|."""
    return _tiny_is_itself(x, copysign(r, x), 2.0**-28)


def expm1(x: Vec) -> Vec:
    high, low = _expm1_quarter(at_most(at_least(x, -50.0), 710.0))
    return _tiny_is_itself(x, (high + low) * 4.0)


def split(x: Vec) -> Pair:
    """(k, f) with x = 2**k * (1 + f), f from sqrt(1/2) - 1 to sqrt(2) - 1, for x > 0."""
    small = x < 2.0**-1022
    i = where(small, x * 2.0**54, x).as_int() + (ONE_BITS - ROOT_BITS)
    bias = where(small, constant(x, 2.0**52 + 1023 + 54), 2.0**52 + 1023)
    k = ((i >> 52) | 0x4330000000000000).as_float() - bias
    return k, ((i & MANTISSA) + ROOT_BITS).as_float() - 1.0


def log1p_sum(f: Vec) -> Pair:
    """log1p(f) as a sum, f as `split` gives it."""
    half = f * 0.5
    square = half * f
    high, low = fast_two_sum(f, -square)
    return high, fma(f * f * f, estrin(f, LOG), low - fma(half, f, -square))


def _with_exponent(k: Vec, high: Vec, low: Vec) -> Vec:
    """k*ln(2) + high + low."""
    s, error = fast_two_sum(k * LN2_SHORT, high)
    return s + (error + fma(k, LN2_REST, low))


def log(x: Vec) -> Vec:
    k, f = split(x)
    return log_limits(_with_exponent(k, *log1p_sum(f)), x, 0.0)


def log2(x: Vec) -> Vec:
    k, f = split(x)
    high, low = log1p_sum(f)
    p = high * LOG2E
    tail = fma(low, LOG2E, fma(high, LOG2E_TAIL, fma(high, LOG2E, -p)))
    s, error = fast_two_sum(k, p)
    return log_limits(s + (error + tail), x, 0.0)


def log10(x: Vec) -> Vec:
    k, f = split(x)
    high, low = log1p_sum(f)
    p = high * LOG10E
    tail = fma(low, LOG10E, fma(high, LOG10E_TAIL, fma(high, LOG10E, -p)))
    s, error = fast_two_sum(k * LOG10_2_SHORT, p)
    return log_limits(s + (error + fma(k, LOG10_2_REST, tail)), x, 0.0)


def log1p_pair(high: Vec, low: Vec, doubled: Vec | None = None) -> Vec:
    """log(1 + high + low), of twice that where `doubled`."""
    u, error = two_sum(constant(high, 1.0), high)
    k, f = split(u)
    if doubled is not None:
        k = where(doubled, k + 1.0, k)
    s, tail = log1p_sum(f)
    return _with_exponent(k, s, fma((error + low), 1.0 / u, tail))


def log1p(x: Vec) -> Vec:
    r = log1p_pair(x, constant(x, 0.0))
    return _tiny_is_itself(x, log_limits(r, x, -1.0))


def _log_pair(x: Vec) -> Pair:
    """log(x) to about 2**-66 as a rounded value and the rest, for 0 < x < inf."""
    k, f = split(x)
    d, d_tail = fast_two_sum(constant(f, 2.0), f)
    s = f / d
    s_tail = fma(-s, d_tail, fma(-s, d, f)) / d
    z, z_tail = two_product(s, s)
    z_tail = fma(s + s, s_tail, z_tail)
    c, c_tail = fast_two_sum(constant(z, 2 / 3), z * horner(z, ATANH))
    c_tail = c_tail + TWO_THIRDS_TAIL
    cube, cube_tail = two_product(s, z)
    cube_tail = fma(s, z_tail, fma(s_tail, z, cube_tail))
    w, w_tail = two_product(cube, c)
    w_tail = fma(cube, c_tail, fma(cube_tail, c, w_tail))
    high, low = fast_two_sum(s + s, w)
    low = low + (w_tail + (s_tail + s_tail))
    high, error = fast_two_sum(k * LN2_SHORT, high)
    return fast_two_sum(high, error + fma(k, LN2_REST, low))


def power(x: Vec, y: Vec) -> Vec:
    """exp(y*log|x|) with the logarithm and the product in pairs, then C99's special values."""
    a = fabs(x)
    high, low = _log_pair(a)
    high = where(a.eq(0.0), constant(a, -INF), where(a < INF, high, a))
    low = where(a.eq(0.0) | a.eq(INF), constant(a, 0.0), low)
    p = y * high
    tail = fma(y, low, fma(y, high, -p))
    bounded = at_most(at_least(p, -746.0), 710.0)
    tail = where(bounded.eq(p), tail, 0.0)
    t, r, error = reduce_exp(bounded)
    r, low = fast_two_sum(r, error + tail)
    high, low = exp_sum(r, low)
    return power_limits(scale(high + low, t), x, y)


def sinh(x: Vec) -> Vec:
    """E/2 + E/(2E + 2) of E = expm1|x|."""
    a = at_most(fabs(x), 710.5)
    q, low = fast_two_sum(*_expm1_quarter(a))
    d, d_tail = two_sum(q * 4.0, constant(q, 1.0))
    d_tail = fma(low, 4.0, d_tail)
    e = q / d
    e_tail = (fma(-e, d, q) + fma(-e, d_tail, low)) / d
    s, error = fast_two_sum(q, e)
    near = s + (error + (low + e_tail))
    r = where(a > 40.0, q + low, near)
    return _odd(x, r + r)


def cosh(x: Vec) -> Vec:
    t, r, tail = reduce_exp(at_most(fabs(x), 710.5))
    high, low = fast_two_sum(*exp_sum(r, tail))
    s = power_of_two(t - 2.0)
    e, e_tail = s * high, s * low
    # With e = exp|x|/4, cosh|x|/2 = e + 1/(16 e).
    i = 0.0625 / e
    i_tail = fma(-i, e_tail, fma(-i, e, 0.0625)) * i * 16.0
    high, low = fast_two_sum(e, i)
    half = high + (low + (e_tail + i_tail))
    return half + half


def tanh(x: Vec) -> Vec:
    """E/(E + 2) of E = expm1(2|x|)."""
    a = at_most(fabs(x), 22.0)
    q, low = fast_two_sum(*_expm1_quarter(a + a))
    d, d_tail = two_sum(q, constant(q, 0.5))
    r = q / d
    r = r + (fma(-r, d, q) + fma(-r, d_tail + low, low)) / d
    return _odd(x, r)


def asinh(x: Vec) -> Vec:
    """log1p(a + a**2/(1 + sqrt(1 + a**2)))."""
    a = fabs(x)
    huge = a > 2.0**30
    z = a * a
    high, low = two_sum(a, z / (sqrt(z + 1.0) + 1.0))
    high, low = where(huge, a, high), where(huge, constant(a, -1.0), low)
    return _odd(x, where(a < INF, log1p_pair(high, low, huge), x))


def acosh(x: Vec) -> Vec:
    """log1p(t + sqrt(x**2 - 1)), t = x - 1."""
    huge = x > 2.0**30
    square, error = two_product(x, x)
    v, v_tail = two_sum(square, constant(x, -1.0))
    s = sqrt(v)
    s_tail = (fma(-s, s, v) + (v_tail + error)) / at_least(s + s, 2.0**-100)
    high, low = two_sum(x - 1.0, s)
    high = where(huge, x, high)
    low = where(huge, constant(x, -1.0), low + s_tail)
    r = log1p_pair(high, low, huge)
    return where(x < INF, where(x >= 1.0, r, NAN), x)


def atanh(x: Vec) -> Vec:
    """log1p(2a/(1 - a))/2."""
    a = fabs(x)
    d = 1.0 - a
    twice = a + a
    q = twice / d
    q_tail = fma(-q, (1.0 - d) - a, fma(-q, d, twice)) / d
    r = where(a.eq(1.0), constant(x, INF), log1p_pair(q, q_tail) * 0.5)
    return _odd(x, where(a <= 1.0, r, NAN))


def logaddexp(x: Vec, y: Vec) -> Vec:
    """max + log1p(exp(-|x - y|))."""
    high = where(x > y, x, y)
    same = x.eq(y)
    d = at_least(where(same, constant(x, 0.0), -fabs(x - y)), -746.0)
    t, r, tail = reduce_exp(d)
    e, e_tail = exp_sum(r, tail)
    e = scale(e + e_tail, t)
    s = log1p_pair(e, constant(e, 0.0))
    return where(x.compare("uno", y), x + y, high + s)
