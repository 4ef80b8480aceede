"""What lgamma, digamma and erfinv mean, for one Python float each: by other methods than the backends'."""

from __future__ import annotations

import math

# -B(2k) / 2k: Abramowitz, Stegun 6.3.18.
_DIGAMMA = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12)


def lgamma(x: float) -> float:
    """log(abs(gamma(x))), infinite at the poles."""
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # at a pole, or beyond the largest float
        return math.inf


def digamma(x: float) -> float:
    """The derivative of lgamma: -inf at 0 (inf at -0.0), NaN at the other poles."""
    if x == 0:
        return -math.copysign(math.inf, x)
    if x < 0:
        if math.isinf(x) or x == math.floor(x):
            return math.nan
        # NOTE: the cotangent's argument is reduced exactly.
        return digamma(1 - x) - math.pi / math.tan(math.pi * math.remainder(x, 1.0))
    if math.isinf(x) or math.isnan(x):
        return x
    terms = [-1 / (x + k) for k in range(max(0, math.ceil(15 - x)))]
    z = x + len(terms)
    terms += [c * (1 / z) ** (2 * k + 2) for k, c in enumerate(_DIGAMMA)]
    return math.fsum([*terms, math.log(z), -0.5 / z])


def erfinv(x: float) -> float:
    """The y with erf(y) = x, for -1 <= x <= 1; by Newton's method, from Winitzki's approximation (2008)."""
    a = abs(x)
    if not a < 1:
        return math.copysign(math.inf, x) if a == 1 else math.nan
    w = math.log1p(-a * a)
    h = 2 / (math.pi * 0.147) + w / 2
    # NOTE: h*h - w/0.147 less h*h would cancel near 0.
    y = math.sqrt(-w / 0.147 / (math.sqrt(h * h - w / 0.147) + h))
    for _ in range(4):
        # What is missing of 1 is known exactly where a is near it.
        error = math.erf(y) - a if a < 0.5 else (1 - a) - math.erfc(y)
        step = error * math.sqrt(math.pi) / 2 * math.exp(y * y)
        y -= step / (1 + y * step)
    return math.copysign(y, x)
