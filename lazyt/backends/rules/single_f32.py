"""exp, log, tanh and erf of float32 in float32: half the registers that double takes.

Largest errors: exp 1.02 ULP (all values), log 0.76, tanh 1.36, erf 1.06 (every 211th value; all in a slow test).

These four stand in the inner loops of whole models, where the double versions of `mathlib_f32` made kernels wait for
arithmetic rather than for memory. Coefficients: least squares reweighted to the minimax (Lawson), each rounded to
float32 before the rest was fitted again; the accuracy of the polynomial is noted.
Method of exp and log: Cody and Waite; of tanh and erf by two ranges: after Njuffa.
"""

from __future__ import annotations

import math

from lazyt.backends.rules.mathlib import at_least, at_most, log_limits
from lazyt.backends.rules.vector import Rules, Vec, copysign, fabs, fma, horner, where

# Added to a float below 2**22 it leaves the nearest integer in the low bits of the sum.
MAGIC = 1.5 * 2.0**23
LOG2E = 1 / math.log(2)
# ln(2) = HIGH + LOW; multiples of HIGH up to 256 leave no rounding in the fma that takes them off.
LN2_HIGH, LN2_LOW = 0.693147182464599609375, -1.904654299957768e-09
# A multiple of few bits, exact when a logarithm's exponent multiplies it.
LN2_SHORT, LN2_REST = 0.693359375, -2.12194440054690583e-4
# The bits of sqrt(1/2): a logarithm's argument is brought to [sqrt(1/2), sqrt(2)).
ROOT_BITS = 0x3F3504F3

# (exp(r) - 1 - r)/r**2, |r| <= ln(2)/2, 2**-28.2 of exp.
EXP = (0.0013819546438753605, 0.008368691429495811, 0.041668280959129333, 0.1666652113199234,
       0.4999999403953552)  # fmt: skip
# (log1p(f) - f + f**2/2)/f**3, sqrt(1/2) - 1 <= f <= sqrt(2) - 1, 2**-30.3 of log.
LOG = (0.06749216467142105, -0.11670076102018356, 0.11883553862571716, -0.12406235933303833,
       0.14220358431339264, -0.16667988896369934, 0.2000207155942917, -0.25000008940696716,
       0.3333331346511841)  # fmt: skip
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


def exp(x: Vec) -> Vec:
    t, e = _reduced(at_most(at_least(x, -105.0), 90.0))
    return _scale(e, t)


def log(x: Vec) -> Vec:
    small = x < 2.0**-126
    bits = where(small, x * 2.0**23, x).as_int() - ROOT_BITS
    k = bits.ashr(23).convert("sitofp", "float")
    k = where(small, k - 23.0, k)
    f = ((bits & 0x7FFFFF) + ROOT_BITS).as_float() - 1.0
    z = f * f
    y = fma(z, -0.5, fma(k, LN2_REST, z * f * horner(f, LOG)))
    return log_limits(fma(k, LN2_SHORT, f + y), x, 0.0)


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


RULES: Rules = {rule.__name__: rule for rule in (exp, log, tanh, erf)}
