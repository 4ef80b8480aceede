"""erfinv of float64: Wichura, algorithm AS 241 (1988), PPND16, at (1 + x)/2, whose distance from the ends is 1 - |x|.

Errors: within 5 ULP.
"""

from __future__ import annotations

import math

from lazyt.backends.math.explog_f64 import log
from lazyt.backends.math.mathlib import INF, at_least, at_most
from lazyt.backends.math.vector import Vec, constant, copysign, fabs, fma, horner, sqrt, where

# Numerators and denominators: |x| <= 0.85, and of sqrt(-log((1 - |x|)/2)) up to 5 and beyond.
CENTRE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
TAIL = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
     3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)  # fmt: skip
FAR = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)  # fmt: skip
ROOT_2 = math.sqrt(0.5)


def _ratio(x: Vec, parts: tuple[tuple[float, ...], tuple[float, ...]]) -> Vec:
    return horner(x, parts[0]) / horner(x, parts[1])


def erfinv(x: Vec) -> Vec:
    a = fabs(x)
    q = x * 0.5
    near = x * (_ratio(at_least(fma(-q, q, 0.180625), 0.0), CENTRE) * (0.5 * ROOT_2))
    s = sqrt(-log((1.0 - a) * 0.5))
    tail = where(s <= 5.0, _ratio(at_most(s, 5.0) - 1.6, TAIL), _ratio(at_least(s, 5.0) - 5.0, FAR)) * ROOT_2
    tail = where(a.eq(1.0), constant(a, INF), tail)
    return where(a <= 0.85, near, copysign(tail, x))
