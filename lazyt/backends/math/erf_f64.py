"""erf and erfc of float64.

Near 0 the series' shape x + x*P(x**2); beyond, exp(-a**2) times erfcx(a), a rational change of
variable t = (a - 5/2)/(a + 5/2) making erfcx(a)*(a + 5/2) a short polynomial, as in Shepherd
and Laframboise, "Chebyshev approximation of (1 + 2x)exp(x**2)erfc x" (1981). Errors: erf within 0.8
ULP, erfc within 1.7. Coefficients: Remez exchange.
"""

from __future__ import annotations

from lazyt.backends.math.explog_f64 import Pair, exp_sum, fast_two_sum, reduce_exp, scale, two_product, two_sum
from lazyt.backends.math.mathlib import at_most
from lazyt.backends.math.vector import Vec, constant, copysign, fabs, fma, horner, where

NEAR = 0.83
# erf(x)/x - 1 - c in z = x*x, divided by z, x <= NEAR, 2**-61; c in two parts.
ERF = (-8.769803887397574e-10, 1.4165368252206766e-08, -1.6296797486954893e-07,
       1.6457364425101917e-06, -1.492543430278017e-05, 0.00012055326448734974,
       -0.0008548326894464705, 0.005223977623852162, -0.026866170645018943,
       0.11283791670954742, -0.3761263890318375)  # fmt: skip
ERF_0, ERF_0_TAIL = 0.1283791670955126, -1.2420116002463032e-17
# (erfcx(a)*(a + 5/2) - c)/t, NEAR <= a <= 27.3, 2**-56.7; c in two parts.
ERFCX = (3.999032197866478e-08, -2.040001435627321e-07, 1.415704826428815e-07,
         5.733929689399248e-07, -7.274971769941513e-08, -2.003431667359524e-06,
         -2.29219778898616e-06, 6.758175249470059e-06, 1.823327961283167e-05,
         -1.9531450325873376e-05, -0.00011260312153406075, 5.830757252745392e-05,
         0.0007026935701673544, -0.00043920824304019497, -0.004818785515335903,
         0.00839304430130682, 0.02836155013178436, -0.17125114524602228, 0.4539141166480983,
         -0.804651849439149)  # fmt: skip
ERFCX_0, ERFCX_0_TAIL = 1.054031820305718, -5.589420516218018e-17


def _near(x: Vec) -> Vec:
    """erf(x)/x - 1 for |x| <= NEAR."""
    z = x * x
    return fma(z, horner(z, ERF), ERF_0_TAIL) + ERF_0


def _erfcx(a: Vec) -> Pair:
    """exp(a*a)*erfc(a) for NEAR <= a <= 28, as a rounded value and the rest."""
    d, d_tail = two_sum(a, constant(a, 2.5))
    i = 1.0 / d
    i_tail = fma(-i, d_tail, fma(-i, d, 1.0)) * i
    n = a - 2.5
    t = n * i
    t = fma(fma(-t, d_tail, fma(-t, d, n)), i, t)
    g, g_tail = fast_two_sum(constant(t, ERFCX_0), fma(t, horner(t, ERFCX), ERFCX_0_TAIL))
    r, r_tail = two_product(g, i)
    return r, fma(g, i_tail, fma(g_tail, i, r_tail))


def _far(a: Vec) -> Vec:
    """erfc(a) for NEAR <= a <= 28."""
    square, error = two_product(a, a)
    t, r, tail = reduce_exp(-square)
    high, low = fast_two_sum(*exp_sum(*fast_two_sum(r, tail - error)))
    s, s_tail = _erfcx(a)
    return scale(fma(high, s, fma(high, s_tail, low * s)), t)


def erf(x: Vec) -> Vec:
    a = fabs(x)
    near = fma(x, _near(x), x)
    far = copysign(1.0 - _far(at_most(a, 6.0)), x)
    return where(a < NEAR, near, far)


def erfc(x: Vec) -> Vec:
    a = fabs(x)
    high, error = two_sum(constant(x, 1.0), -x)
    near = high + fma(-x, _near(x), error)
    far = _far(at_most(a, 28.0))
    return where(a < NEAR, near, where(x < 0.0, 2.0 - far, far))
