"""Elementary functions of float32 in float32: half the registers that double takes.

Largest errors: exp 1.02 ULP (all values), log 0.77, log2 1.02, log10 0.92, log1p 0.80, tanh 1.36, erf 1.06, atanh 0.68,
acos 0.92, atan2 1.39 (a share of the values; all in a slow test).

exp, log, tanh and erf stand in the inner loops of whole models; of the others the double versions of `mathlib_f32` took
longer than the memory they go through. Coefficients: least squares reweighted to the minimax (Lawson), each rounded to
float32 before the rest was fitted again; the accuracy of the polynomial is noted.
Method of exp and log: Cody and Waite; of tanh and erf by two ranges: after Njuffa.
"""

from __future__ import annotations

import math

import numpy as np

from lazyt.backends.math.mathlib import INF, NAN, at_least, at_most, log_limits, vanishing
from lazyt.backends.math.vector import Rules, Vec, constant, copysign, estrin, fabs, fma, horner, sqrt, where

# Added to a float below 2**22 it leaves the nearest integer in the low bits of the sum.
MAGIC = 1.5 * 2.0**23
LOG2E = 1 / math.log(2)
# ln(2) = HIGH + LOW; multiples of HIGH up to 256 leave no rounding in the fma that takes them off.
LN2_HIGH, LN2_LOW = 0.693147182464599609375, -1.904654299957768e-09
# A multiple of few bits, exact when a logarithm's exponent multiplies it.
LN2_SHORT, LN2_REST = 0.693359375, -2.12194440054690583e-4
# log10(2) likewise.
LOG10_2_SHORT, LOG10_2_REST = 0.301025390625, 4.605038981195214e-06
PI_2, PI_2_REST = 1.57079637050628662109375, -4.371139000186241e-08
PI, PI_REST = 2 * PI_2, 2 * PI_2_REST
# The bits of sqrt(1/2): a logarithm's argument is brought to [sqrt(1/2), sqrt(2)).
ROOT_BITS = 0x3F3504F3

# (exp(r) - 1 - r)/r**2, |r| <= ln(2)/2, 2**-28.2 of exp.
EXP = (0.0013819546438753605, 0.008368691429495811, 0.041668280959129333, 0.1666652113199234,
       0.4999999403953552)  # fmt: skip
# (log1p(f) - f + f**2/2)/f**3, sqrt(1/2) - 1 <= f <= sqrt(2) - 1, 2**-30.3 of log.
LOG = (0.06749216467142105, -0.11670076102018356, 0.11883553862571716, -0.12406235933303833,
       0.14220358431339264, -0.16667988896369934, 0.2000207155942917, -0.25000008940696716,
       0.3333331346511841)  # fmt: skip
# (atan(x)/x - 1)/x**2 in x**2, |x| <= 1, 2**-28.5.
ATAN = (-0.0017904058331623673, 0.010899696499109268, -0.031148936599493027, 0.05792722851037979,
        -0.08401581645011902, 0.10951506346464157, -0.14264102280139923, 0.1999853402376175,
        -0.33333298563957214)  # fmt: skip
# (atanh(x)/x - 1)/x**2 in x**2, |x| <= 1/2, 2**-29.4.
ATANH = (0.1763785034418106, 0.05160436034202576, 0.11816386133432388, 0.1422378569841385,
         0.2000245302915573, 0.33333301544189453)  # fmt: skip
# (asin(x)/x - 1)/x**2 in x**2, |x| <= 1/2, 2**-27.6.
ASIN = (0.042158305644989014, 0.024184778332710266, 0.04546914994716644, 0.074953094124794,
        0.16666752099990845)  # fmt: skip
# (tanh(x)/x - 1)/x**2 in x**2, |x| <= 0.57, 2**-29.2.
TANH = (-0.006104770582169294, 0.02095436491072178, -0.053824637085199356, 0.1333233267068863,
        -0.3333331048488617)  # fmt: skip
# erf(x)/x - 1 in x**2, |x| <= 0.93, 2**-30.1.
ERF_NEAR = (7.99664921942167e-05, -0.0008049769676290452, 0.005192405078560114, -0.02685573138296604,
            0.11283625662326813, -0.3761262893676758, 0.12837916612625122)  # fmt: skip
# -log(erfc(x))/x, 0.9 <= x <= 4.05, 2**-30.1 of erf.
ERF_FAR = (1.04308846857748e-05, -0.0003148390387650579, 0.0036102787125855684, -0.023694464936852455,
           0.10615897178649902, 0.6351980566978455, 1.1286370754241943)  # fmt: skip


def _reduced(x: Vec) -> tuple[Vec, Vec]:
    """(MAGIC + n, exp(r)) with x = n*ln(2) + r."""
    t = fma(x, LOG2E, MAGIC)
    n = t - MAGIC
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))
    return t, fma(r * r, horner(r, EXP), r) + 1.0


def _scale(e: Vec, t: Vec) -> Vec:
    """e * 2**n for a float t that holds MAGIC + n; rounded once, where it is subnormal."""
    n = t.as_int() - 0x4B400000
    if e.body.native_scale:
        return e.renamed(e.body.scale(e, n.name))
    # Two factors, neither of them out of range. NOTE: for a NaN they are anything, and what they multiply is a NaN.
    half = n.ashr(1)
    return e * ((half + 127) << 23).as_float() * ((n - half + 127) << 23).as_float()


def _exp_normal(x: Vec) -> Vec:
    """exp of an x between -80 and 80."""
    t, e = _reduced(x)
    return (e.as_int() + (t.as_int() << 23)).as_float()


def _exp(x: Vec) -> Vec:
    t, e = _reduced(x)
    return _scale(e, t)


def exp(x: Vec) -> Vec:
    return vanishing(_exp, x, -104.0, 90.0)


def _log_terms(x: Vec) -> tuple[Vec, Vec]:
    """(k, f) with x = 2**k * (1 + f), 1 + f in [sqrt(1/2), sqrt(2)), for positive x."""
    small = x < 2.0**-126
    bits = where(small, x * 2.0**23, x).as_int() - ROOT_BITS
    k = bits.ashr(23).convert("sitofp", "float")
    k = where(small, k - 23.0, k)
    return k, ((bits & 0x7FFFFF) + ROOT_BITS).as_float() - 1.0


def _log_rest(f: Vec, more: Vec | float = 0.0) -> Vec:
    """log(1 + f) - f + `more`."""
    z = f * f
    return fma(z, -0.5, fma(z * f, horner(f, LOG), more))


def log(x: Vec) -> Vec:
    k, f = _log_terms(x)
    return log_limits(_log_sum(k, f, constant(x, 0.0)), x, 0.0)


def _log_sum(k: Vec, f: Vec, c: Vec) -> Vec:
    """k*log(2) + log(1 + f) + c, c small."""
    return fma(k, LN2_SHORT, f + _log_rest(f, fma(k, LN2_REST, c)))


def _scaled_log(x: Vec, one: float, per_k: tuple[float, float]) -> Vec:
    """The logarithm of x in the base whose log(e) is `one`; `per_k` that of 2, in few bits and the rest."""
    k, f = _log_terms(x)
    y, high = _log_rest(f), float(np.float32(one))
    t = fma(f, high, fma(y, high, fma(f, one - high, k * per_k[1] if per_k[1] else 0.0)))
    return log_limits(fma(k, per_k[0], t), x, 0.0)


def log2(x: Vec) -> Vec:
    return _scaled_log(x, LOG2E, (1.0, 0.0))


def log10(x: Vec) -> Vec:
    return _scaled_log(x, 1 / math.log(10), (LOG10_2_SHORT, LOG10_2_REST))


def _log_near(u: Vec, c: Vec) -> Vec:
    """log(u + c), u normal and c no more than half a unit of it."""
    k, f = _log_terms(u)
    return _log_sum(k, f, c / u)


def log1p(x: Vec) -> Vec:
    u = x + 1.0
    # What the sum has lost (Knuth's two-sum).
    part = u - x
    lost = (x - (u - part)) + (1.0 - part)
    near = x + _log_rest(x)
    r = where((x > -0.29) & (x < 0.41), near, _log_near(u, where(x < INF, lost, 0.0)))
    # NOTE: near -0 the sum is +0.
    return copysign(log_limits(r, x, -1.0), x)


def atanh(x: Vec) -> Vec:
    a = fabs(x)
    z = x * x
    near = fma(x * z, horner(z, ATANH), x)
    # (1 + a)/(1 - a) = q + c; 1 - a is exact here.
    n, d = a + 1.0, 1.0 - a
    q = n / d
    c = (fma(-q, d, n) + (a - (n - 1.0))) / d
    far = copysign(_log_near(q, where(a < 1.0, c, 0.0)) * 0.5, x)
    r = where(a >= 0.5, far, near)
    r = where(a.eq(1.0), copysign(constant(x, INF), x), r)
    return where(a <= 1.0, r, NAN)


def acos(x: Vec) -> Vec:
    a = fabs(x)
    far = a > 0.5
    z = where(far, fma(a, -0.5, 0.5), a * a)
    root = sqrt(z)
    r = where(far, root, x)
    t = r * z * horner(z, ASIN)
    # What the root has lost; its square is exact in an fma.
    lost = fma(-root, root, z) / at_least(root + root, 2.0**-60)
    s = t + lost
    near = PI_2 - (x - (PI_2_REST - t))
    acute = root + s
    wide = PI_2 - (acute - PI_2_REST)
    far_r = where(x < 0.0, wide + wide, acute + acute)
    return where(a <= 1.0, where(far, far_r, near), NAN)


def atan2(y: Vec, x: Vec) -> Vec:
    ay, ax = fabs(y), fabs(x)
    steep = ay > ax
    low, high = where(steep, ax, ay), where(steep, ay, ax)
    # 0/0 counts as 0 and inf/inf as 1: the signs choose the multiple of pi/4.
    diagonal = low.eq(INF)
    low, high = where(diagonal, constant(low, 1.0), low), where(diagonal, constant(low, 1.0), high)
    t = low / where(high.eq(0.0), constant(high, 1.0), high)
    z = t * t
    r = fma(t * z, estrin(z, ATAN), t)
    r = where(steep, PI_2 - (r - PI_2_REST), r)
    r = where(x.as_int() < 0, PI - (r - PI_REST), r)
    r = where(x.compare("uno", y), constant(r, NAN), r)
    return copysign(r, y)


def tanh(x: Vec) -> Vec:
    a = fabs(x)
    z = x * x
    near = fma(x * z, horner(z, TANH), x)
    b = at_most(a, 10.0)
    far = 1.0 - 2.0 / (_exp_normal(b + b) + 1.0)
    # NOTE: near -0 the sum is +0.
    return copysign(where(a >= 0.57, far, near), x)


def erf(x: Vec) -> Vec:
    a = fabs(x)
    z = x * x
    near = fma(x, horner(z, ERF_NEAR), x)
    b = at_most(a, 4.05)
    far = 1.0 - _exp_normal(-(b * horner(b, ERF_FAR)))
    return where(a >= 0.92, copysign(far, x), near)


RULES: Rules = {rule.__name__: rule for rule in (exp, log, log2, log10, log1p, tanh, erf, atanh, acos, atan2)}
