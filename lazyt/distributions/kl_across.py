"""Divergences between distributions of different families: what the second expects of the first's moments.

Each is -entropy(p) less the mean of log q under p, which reads a few means of p: of x, its square, log(x), exp(-x).
"""

from __future__ import annotations

import math
from typing import Any

import lazyt as lt
from lazyt.distributions.continuous import Exponential, Pareto, Uniform
from lazyt.distributions.discrete import Bernoulli, Binomial, Poisson
from lazyt.distributions.gammas import Beta, Gamma
from lazyt.distributions.kl import register_kl
from lazyt.distributions.location_scale import Gumbel, Laplace, Normal
from lazyt.distributions.special import lbeta, xlogy
from lazyt.distributions.unit_interval import ContinuousBernoulli

# Where the first has values that the second has not.
INFINITE: dict[type, tuple[type, ...]] = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}


def _infinite(p: Any, q: Any) -> Any:
    shape = lt.broadcast_shapes(p.batch_shape, q.batch_shape)
    return lt.full(shape, math.inf, dtype=p._dtype, device=p._device)


def _normal(p: Any, q: Any) -> Any:
    away = p.mean - q.loc
    spread = (p.variance + away * away) / (2 * q.scale * q.scale)
    return spread + lt.log(q.scale) + 0.5 * math.log(2 * math.pi) - p.entropy()


def _exponential(p: Any, q: Any) -> Any:
    return q.rate * p.mean - lt.log(q.rate) - p.entropy()


def _mean_log(p: Any) -> Any:
    """The mean of log(x)."""
    if isinstance(p, Beta):
        return lt.digamma(p.concentration1) - lt.digamma(p.concentration1 + p.concentration0)
    if isinstance(p, Pareto):
        return lt.log(p.scale) + 1 / p.alpha
    return _mean_log_between(p.low, p.high)


def _mean_log_between(low: Any, high: Any) -> Any:
    return (xlogy(high, high) - xlogy(low, low)) / (high - low) - 1


def _gamma(p: Any, q: Any) -> Any:
    a = q.concentration
    return lt.lgamma(a) - a * lt.log(q.rate) - (a - 1) * _mean_log(p) + q.rate * p.mean - p.entropy()


def _gumbel(p: Any, q: Any) -> Any:
    return lt.log(q.scale) + (p.mean - q.loc) / q.scale + _mean_exp(p, q.loc, q.scale) - p.entropy()


def _mean_exp(p: Any, loc: Any, scale: Any) -> Any:
    """The mean of exp(-(x - loc) / scale)."""
    if isinstance(p, Normal):
        return lt.exp((loc - p.loc) / scale + 0.5 * (p.scale / scale) ** 2)
    if isinstance(p, Uniform):
        ends = lt.exp((loc - p.low) / scale) - lt.exp((loc - p.high) / scale)
        return ends * scale / (p.high - p.low)
    shape = p.concentration if isinstance(p, Gamma) else 1.0
    return lt.exp(loc / scale - shape * lt.log1p(1 / (p.rate * scale)))


def _continuous_bernoulli(p: Any, q: Any) -> Any:
    return -p.entropy() - p.mean * q.logits - lt.log1p(-q.probs) - q._log_norm()


def _uniform(p: Any, q: Any) -> Any:
    """Of numbers between 0 and 1."""
    return lt.where((q.low > 0) | (q.high < 1), math.inf, lt.log(q.high - q.low) - p.entropy())


def _inside(rule: Any, low: Any, high: Any) -> Any:
    """A rule for a Uniform, infinite where it has values below `low` of q or above `high`."""

    def divergence(p: Any, q: Any) -> Any:
        outside = (p.low < low(q)) | (p.high > high(q))
        return lt.where(outside, math.inf, rule(p, q))

    return divergence


def _uniform_beta(p: Any, q: Any) -> Any:
    a, b = q.concentration1, q.concentration0
    means = (a - 1) * _mean_log_between(p.low, p.high) + (b - 1) * _mean_log_between(1 - p.high, 1 - p.low)
    return lbeta(a, b) - means - p.entropy()


def _uniform_pareto(p: Any, q: Any) -> Any:
    norm = lt.log(q.alpha) + q.alpha * lt.log(q.scale)
    return (q.alpha + 1) * _mean_log_between(p.low, p.high) - norm - p.entropy()


def _zero(q: Any) -> float:
    return 0.0


def _one(q: Any) -> float:
    return 1.0


def _infinity(q: Any) -> float:
    return math.inf


def _bernoulli_poisson(p: Any, q: Any) -> Any:
    return -p.entropy() - (p.probs * lt.log(q.rate) - q.rate)


ACROSS: dict[tuple[type, type], Any] = {
    **{(p, q): _infinite for p, others in INFINITE.items() for q in others},
    **{(p, Normal): _normal for p in (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Pareto)},
    **{(p, Exponential): _exponential for p in (Beta, ContinuousBernoulli, Pareto)},
    **{(p, Gamma): _gamma for p in (Beta, Pareto)},
    **{(p, Gumbel): _gumbel for p in (Exponential, Gamma, Normal, Uniform)},
    **{(p, Uniform): _uniform for p in (Beta, ContinuousBernoulli)},
    (Beta, ContinuousBernoulli): _continuous_bernoulli,
    (Bernoulli, Poisson): _bernoulli_poisson,
    (Uniform, Beta): _inside(_uniform_beta, _zero, _one),
    (Uniform, ContinuousBernoulli): _inside(_continuous_bernoulli, _zero, _one),
    (Uniform, Exponential): _inside(_exponential, _zero, _infinity),
    (Uniform, Gamma): _inside(_gamma, _zero, _infinity),
    (Uniform, Pareto): _inside(_uniform_pareto, lambda q: q.scale, _infinity),
}
for (_p, _q), _rule in ACROSS.items():
    register_kl(_p, _q)(_rule)
