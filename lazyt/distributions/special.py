"""Formulas that several distributions share, and draws by rejection without a loop."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import lazyt as lt


def _polynomial(coefficients: Any, x: Any) -> Any:
    """The sum of coefficients[k] * x**k."""
    total: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


def lbeta(a: Any, b: Any) -> Any:
    """log(beta(a, b))."""
    return lt.lgamma(a) + lt.lgamma(b) - lt.lgamma(a + b)


def xlogy(x: Any, y: Any) -> Any:
    """x * log(y), which is 0 where both are 0."""
    none = (x == 0) & (y == 0)
    return lt.where(none, 0.0, x * lt.log(lt.where(none, 1.0, y)))


# Wichura: algorithm AS 241 (1988), PPND16: numerators and denominators of three ranges.
_CENTRE = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
     4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3, 2.1213794301586595867e4,
     3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
)  # fmt: skip
_TAIL = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
     1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip
_FAR = (
    (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
     2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2, 7.86869131145613259100e-4,
     1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
)  # fmt: skip


def normal_quantile(p: Any) -> Any:
    """The value that a standard normal number is below with probability p."""
    q = p - 0.5
    central = lt.abs(q) <= 0.425
    inner = lt.where(central, q, 0.0)
    r = 0.180625 - inner * inner
    middle = inner * _polynomial(_CENTRE[0], r) / _polynomial(_CENTRE[1], r)
    outer = lt.where(central, 0.25, lt.minimum(p, 1 - p))
    s = lt.sqrt(-lt.log(outer))
    near, far = lt.minimum(s, 5.0) - 1.6, lt.maximum(s, 5.0) - 5.0
    tail = lt.where(
        s <= 5.0,
        _polynomial(_TAIL[0], near) / _polynomial(_TAIL[1], near),
        _polynomial(_FAR[0], far) / _polynomial(_FAR[1], far),
    )
    # At 0 and 1 the series is infinity over infinity.
    tail = lt.where(lt.isinf(s), math.inf, tail)
    return lt.where(central, middle, lt.copysign(tail, q))


def first_accepted(values: Any, accepted: Any, otherwise: Any) -> Any:
    """Along the first axis the first value that was accepted."""
    at = lt.argmax(accepted, axis=0, keepdims=True)
    found = lt.squeeze(lt.take_along_axis(values, at, axis=0), axis=0)
    return lt.where(lt.any(accepted, axis=0), found, otherwise)


# Proposals that are drawn at once: each is accepted with probability above 0.95, so none is once in 10**13 draws.
_TRIES = 10


def _gamma_above_one(a: Any, shape: tuple[int, ...]) -> Any:
    """Gamma numbers for a >= 1: Marsaglia, Tsang (2000)."""
    d = a - 1 / 3
    x = lt.random.standard_normal((_TRIES, *shape), dtype=a.dtype, device=a.device)
    u = 1 - lt.random.random((_TRIES, *shape), dtype=a.dtype, device=a.device)
    v = (1 + x / lt.sqrt(9 * d)) ** 3
    positive = v > 0
    v = lt.where(positive, v, 1.0)
    accepted = positive & (lt.log(u) < 0.5 * x * x + d * (1 - v + lt.log(v)))
    return first_accepted(d * v, accepted, d)


_NODES, _WEIGHTS = ((x + k) / 2 for x, k in zip(np.polynomial.legendre.leggauss(48), (1, 0), strict=True))
# Close together at the left end, where the score has a logarithm. How far they are from there is kept: in float32 they
# would be at the end itself.
_TO_LEFT = (1 - _NODES) ** 3
_LEFT, _BY_LEFT = 1 - _TO_LEFT, _WEIGHTS * 3 * (1 - _NODES) ** 2


def _gamma_slope(a: Any, z: Any) -> Any:
    """How z moves with a while the probability below it stays, for a >= 1.

    That is -dF/da over the density: an integral over the tail on z's side of the mode, by Gauss-Legendre. The tail
    falls by exp(-rate * t - a * t * t / 2) at least, at a relative distance t from z.
    """
    nodes, weights, left, to_left, by_left = (
        lt.asarray(x.reshape(-1, *(1,) * z.ndim), dtype=z.dtype, device=z.device)
        for x in (_NODES, _WEIGHTS, _LEFT, _TO_LEFT, _BY_LEFT)
    )
    below = z < a
    rate = lt.abs(z - a + 1)
    reach = lt.minimum(12 / lt.sqrt(a), 40 / lt.maximum(rate, 1e-3))
    low, high = lt.minimum(reach, 1.0), lt.minimum(reach * 3, 40 / lt.minimum(z, 40.0) + reach)
    length = lt.where(below, low, high)
    t = length * lt.where(below, left, nodes)
    u = lt.where(below, (1 - length) + length * to_left, 1 + t)
    density = lt.exp((a - 1) * lt.log(u) + z * (1 - u))
    score = lt.log(z) + lt.log(u) - lt.digamma(a)
    integral = lt.sum(lt.where(below, by_left, weights) * density * score, axis=0) * length * z
    return lt.where(below, -integral, integral)


@lt.custom_vjp
def _implicit(a: Any, z: Any) -> Any:
    return z + 0 * a


_implicit.defvjp(lambda a, z: (z + 0 * a, (a, z)), lambda res, ct: (ct * _gamma_slope(*res), None))


def standard_gamma(concentration: Any, shape: tuple[int, ...]) -> Any:
    """Gamma numbers of rate 1, whose gradients reach the concentration: implicit reparametrisation.

    Figurnov et al.: Implicit reparameterization gradients (2018). Below 1 the number of concentration + 1 times
    u**(1 / concentration) is taken, which moves with the concentration too.
    """
    a = lt.broadcast_to(concentration, shape)
    small = a < 1
    raised = lt.where(small, a + 1, a)
    with lt.no_grad():
        z = _gamma_above_one(raised, shape)
        u = lt.log(1 - lt.random.random(shape, dtype=a.dtype, device=a.device))
    z = _implicit(raised, z)
    out = z * lt.where(small, lt.exp(u / lt.where(small, a, 1.0)), 1.0)
    return lt.maximum(out, float(lt.finfo(a.dtype).tiny))


def poisson(rate: Any, shape: tuple[int, ...]) -> Any:
    """Poisson numbers: by inversion below a rate of 10, by Hörmann's transformed rejection (1993) above."""
    mu = lt.broadcast_to(rate, shape)
    small = mu < 10
    low = lt.where(small, mu, 1.0)
    counts = lt.asarray(np.arange(64.0).reshape(-1, *(1,) * len(shape)), dtype=mu.dtype, device=mu.device)
    chance = lt.exp(xlogy(counts, low) - low - lt.lgamma(counts + 1))
    below = lt.cumulative_sum(chance, axis=0)
    few = lt.sum(lt.astype(below < lt.random.random(shape, dtype=mu.dtype, device=mu.device), mu.dtype), axis=0)
    high = lt.where(small, 10.0, mu)
    b = 0.931 + 2.53 * lt.sqrt(high)
    a = -0.059 + 0.02483 * b
    u = lt.random.random((16, *shape), dtype=mu.dtype, device=mu.device) - 0.5
    v = 1 - lt.random.random((16, *shape), dtype=mu.dtype, device=mu.device)
    us = lt.maximum(0.5 - lt.abs(u), 1e-12)
    k = lt.floor((2 * a / us + b) * u + high + 0.43)
    ratio = lt.log(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (us * us) + b))
    sure = (us >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
    kept = lt.maximum(k, 0.0)
    likely = (k >= 0) & ((us >= 0.013) | (v <= us)) & (ratio <= kept * lt.log(high) - high - lt.lgamma(kept + 1))
    return lt.where(small, few, first_accepted(kept, sure | likely, lt.floor(high)))
