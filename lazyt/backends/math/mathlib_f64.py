"""Elementary functions of float64: the table, and the functions without a family of their own."""

from __future__ import annotations

from lazyt.backends.math import erf_f64, erfinv_f64, explog_f64 as e, gamma_f64, trig_f64
from lazyt.backends.math.mathlib import INF
from lazyt.backends.math.vector import Rules, Vec, constant, fabs, fma, sqrt, where
from lazyt.ir.prims import ELEMENTWISE


def hypot(x: Vec, y: Vec) -> Vec:
    """sqrt(x*x + y*y), corrected: Borges, "An improved algorithm for hypot(a, b)" (2020)."""
    ax, ay = fabs(x), fabs(y)
    a, b = where(ax > ay, ax, ay), where(ax > ay, ay, ax)
    large, small = a > 2.0**500, a < 2.0**-500
    factor = where(large, constant(a, 2.0**-700), where(small, constant(a, 2.0**700), 1.0))
    back = where(large, constant(a, 2.0**700), where(small, constant(a, 2.0**-700), 1.0))
    a, b = a * factor, b * factor
    h = sqrt(fma(a, a, b * b))
    h_square, a_square = h * h, a * a
    error = fma(-b, b, h_square - a_square) + fma(h, h, -h_square) - fma(a, a, -a_square)
    r = where(h > 0.0, h - error / (h + h), h) * back
    return where(ax.eq(INF) | ay.eq(INF), constant(r, INF), r)


# A function of a family that has a primitive's name is the rule of that primitive.
RULES: Rules = {"pow": e.power, "hypot": hypot} | {
    name: rule
    for family in (e, trig_f64, erf_f64, erfinv_f64, gamma_f64)
    for name, rule in vars(family).items()
    if name in ELEMENTWISE and rule.__module__ == family.__name__
}
