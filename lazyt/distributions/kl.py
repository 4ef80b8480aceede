"""The Kullback-Leibler divergence of pairs of distributions, in a registry that users can add to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import lazyt as lt
from lazyt.distributions.base import Distribution, sum_last
from lazyt.distributions.composed import Independent, MultivariateNormal, TransformedDistribution
from lazyt.distributions.continuous import Exponential, Pareto, Uniform
from lazyt.distributions.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    OneHotCategorical,
    Poisson,
)
from lazyt.distributions.gammas import Beta, Dirichlet, Gamma, InverseGamma
from lazyt.distributions.location_scale import (
    EULER,
    Cauchy,
    Gumbel,
    HalfNormal,
    Laplace,
    LogNormal,
    Normal,
)
from lazyt.distributions.low_rank import LowRankMultivariateNormal
from lazyt.distributions.special import lbeta, xlogy
from lazyt.distributions.unit_interval import ContinuousBernoulli
from lazyt.errors import LazytError, NotSupportedError

Divergence = Callable[[Any, Any], Any]
_REGISTRY: dict[tuple[type, type], Divergence] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Divergence], Divergence]:
    """A decorator: the function gives `kl_divergence(p, q)` for these classes and those below them.

    As `torch.distributions.kl.register_kl`.

    >>> import lazyt as lt
    >>> class Sure(lt.distributions.Normal):
    ...     pass
    >>> @lt.distributions.register_kl(Sure, Sure)
    ... def nothing(p, q):
    ...     return 0.0
    >>> lt.distributions.kl_divergence(Sure(0.0, 1.0), Sure(0.0, 1.0))
    0.0
    """
    for t in (type_p, type_q):
        if not (isinstance(t, type) and issubclass(t, Distribution)):
            raise LazytError(f"register_kl: classes of distributions are required, got {t!r}")

    def register(f: Divergence) -> Divergence:
        _REGISTRY[type_p, type_q] = f
        return f

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Any:
    """The divergence of q from p in nats, one a batch element; the rule of the nearest classes.

    NotSupportedError for a pair that has none. As `torch.distributions.kl_divergence`.

    >>> import lazyt as lt
    >>> p, q = lt.distributions.Normal(0.0, 1.0), lt.distributions.Normal(1.0, 1.0)
    >>> lt.distributions.kl_divergence(p, q).item()
    0.5
    """
    ways = [
        (type(p).__mro__.index(a) + type(q).__mro__.index(b), f)
        for (a, b), f in _REGISTRY.items()
        if isinstance(p, a) and isinstance(q, b)
    ]
    if not ways:
        raise NotSupportedError(
            f"kl_divergence: not supported: {type(p).__name__} and {type(q).__name__} have no closed form here; "
            "register one by register_kl, or average p.log_prob(x) - q.log_prob(x) over samples of p"
        )
    if p._device is not None and q._device is not None and p._device != q._device:
        p, q = (p._on(q._device), q) if q._plain is None else (p, q._on(p._device))
    return min(ways, key=lambda way: way[0])[1](p, q)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Any:
    return p.probs * (p.logits - q.logits) + lt.softplus(q.logits) - lt.softplus(p.logits)


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Any:
    n, m = (d._on_host("total_count") for d in (p, q))
    if (n < m).any():
        raise NotSupportedError(
            "kl_divergence: not supported: Binomials of which the second has the larger total_count"
        )
    found = p.total_count * (p.probs * (p.logits - q.logits) + lt.softplus(q.logits) - lt.softplus(p.logits))
    return lt.where(p.total_count > q.total_count, math.inf, found)


def _shares(p: Any, q: Any) -> Any:
    found = p.probs * (p.logits - q.logits)
    found = lt.where(q.probs == 0, math.inf, found)
    return lt.sum(lt.where(p.probs == 0, 0.0, found), axis=-1)


register_kl(Categorical, Categorical)(_shares)
register_kl(OneHotCategorical, OneHotCategorical)(_shares)


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - lt.log1p(-q.probs) / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Any:
    return xlogy(p.rate, p.rate) - p.rate * lt.log(q.rate) - p.rate + q.rate


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Any:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    rest = (a - c) * lt.digamma(a) + (b - d) * lt.digamma(b) + (c + d - a - b) * lt.digamma(a + b)
    return lbeta(c, d) - lbeta(a, b) + rest


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    total, other = lt.sum(a, axis=-1), lt.sum(b, axis=-1)
    norms = lt.lgamma(total) - lt.lgamma(other) - lt.sum(lt.lgamma(a) - lt.lgamma(b), axis=-1)
    return norms + lt.sum((a - b) * (lt.digamma(a) - lt.expand_dims(lt.digamma(total), -1)), axis=-1)


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    first = b * lt.log(p.rate / q.rate) + lt.lgamma(b) - lt.lgamma(a)
    return first + (a - b) * lt.digamma(a) + (q.rate - p.rate) * (a / p.rate)


# A divergence does not change where both are transformed alike.
register_kl(InverseGamma, InverseGamma)(_gamma)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: Any, q: Any) -> Any:
    own = p.mean * (p.logits - q.logits) + p._log_norm() + lt.log1p(-p.probs)
    return own - q._log_norm() - lt.log1p(-q.probs)


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return -lt.log(ratio) + ratio - 1


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return -q.concentration * lt.log(ratio) + ratio + lt.lgamma(q.concentration) + q.concentration * EULER - (1 + EULER)


@register_kl(Gamma, Exponential)
def _gamma_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - lt.log(q.rate) + q.rate * p.concentration / p.rate


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale) ** 2
    away = (p.loc - q.loc) / q.scale
    return 0.5 * (ratio + away * away - 1 - lt.log(ratio))


register_kl(LogNormal, LogNormal)(_normal)


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio - 1 - lt.log(ratio))


@register_kl(Normal, Laplace)
def _normal_laplace(p: Any, q: Any) -> Any:
    away = p.loc - q.loc
    z = away / p.scale
    near = math.sqrt(2 / math.pi) * p.scale * lt.exp(-0.5 * z * z) + away * lt.erf(z / math.sqrt(2))
    return -lt.log(p.scale / q.scale / math.sqrt(2 / math.pi)) + near / q.scale - 0.5


@register_kl(Laplace, Normal)
def _laplace_normal(p: Any, q: Any) -> Any:
    spread = (2 * p.scale * p.scale + (p.loc - q.loc) ** 2) / (2 * q.scale * q.scale)
    return spread + lt.log(math.sqrt(2 * math.pi) * q.scale / (2 * p.scale)) - 1


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Any:
    away = lt.abs(p.loc - q.loc)
    return lt.log(q.scale / p.scale) + away / q.scale + p.scale / q.scale * lt.exp(-away / p.scale) - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Any:
    return lt.log(((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2) / (4 * p.scale * q.scale))


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Any:
    ratio, away = p.scale / q.scale, (p.loc - q.loc) / q.scale
    rest = EULER * ratio + lt.exp(-away + lt.lgamma(1 + ratio)) + away
    return -lt.log(ratio) + rest - (1 + EULER)


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Any:
    outside = (q.low > p.low) | (q.high < p.high)
    return lt.where(outside, math.inf, lt.log((q.high - q.low) / (p.high - p.low)))


@register_kl(Uniform, Normal)
def _uniform_normal(p: Any, q: Any) -> Any:
    width = p.high - p.low
    spread = (width**2 / 12 + ((p.high + p.low) / 2 - q.loc) ** 2) / (2 * q.scale * q.scale)
    return lt.log(math.sqrt(2 * math.pi) * q.scale / width) + spread


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Any:
    ratio = p.scale / q.scale
    share = q.alpha / p.alpha
    found = q.alpha * lt.log(ratio) - lt.log(share) + share - 1
    return lt.where(p.scale < q.scale, math.inf, found)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p: Any, q: Any) -> Any:
    shape = lt.broadcast_shapes(p.batch_shape, q.batch_shape)
    n = p.loc.shape[-1]
    left, right = (lt.broadcast_to(d._factor, (*shape, n, n)) for d in (q, p))
    away = lt.broadcast_to(lt.expand_dims(q.loc - p.loc, -1), (*shape, n, 1))
    solved = lt.linalg.solve(left, lt.concat([right, away], axis=-1))
    return q._log_determinant() - p._log_determinant() + 0.5 * (lt.sum(solved * solved, axis=(-2, -1)) - n)


def _of_low_rank(p: Any, q: Any, trace: Any) -> Any:
    """Of q of low rank, by the trace of its precision times p's covariance."""
    rest = trace + q._whitened(lt.expand_dims(q.loc - p.loc, -1)) - p.loc.shape[-1]
    return q._log_determinant() - p._log_determinant() + 0.5 * rest


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _low_rank(p: Any, q: Any) -> Any:
    return _of_low_rank(p, q, q._whitened(p.cov_factor) + q._whitened(p._diagonal(lt.sqrt(p.cov_diag))))


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _multivariate_low_rank(p: Any, q: Any) -> Any:
    return _of_low_rank(p, q, q._whitened(p._factor))


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _low_rank_multivariate(p: Any, q: Any) -> Any:
    return _multivariate(MultivariateNormal(p.loc, p.covariance_matrix, validate_args=False), q)


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotSupportedError("kl_divergence: not supported: Independents of different reinterpreted_batch_ndims")
    return sum_last(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Any:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotSupportedError("kl_divergence: not supported: TransformedDistributions of different transforms")
    return kl_divergence(p._inner, q._inner)
