"""Distributions on intervals and half lines."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

import lazyt as lt
from lazyt.distributions import constraints
from lazyt.distributions.base import Distribution, broadcast
from lazyt.distributions.constraints import Constraint
from lazyt.distributions.location_scale import EULER


class Uniform(Distribution):
    """Every number from low to high alike. As `torch.distributions.Uniform`.

    >>> import lazyt as lt
    >>> d = lt.distributions.Uniform(1.0, 3.0)
    >>> d.mean.item(), d.cdf(1.5).item()
    (2.0, 0.25)
    """

    has_rsample = True
    _support_reads = ("low", "high")
    arg_constraints: ClassVar[dict[str, Constraint]] = {"low": constraints.real, "high": constraints.real}

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        (self.low, self.high), batch = broadcast(self, low, high)
        super().__init__(batch, (), validate_args, {"low": low, "high": high})
        if not (isinstance(low, lt.Tensor) or isinstance(high, lt.Tensor)):
            self._check("high - low", constraints.positive, np.subtract(high, low))

    @property
    def support(self) -> Constraint:
        """From low to high; reads both."""
        return constraints.interval(self._on_host("low"), self._on_host("high"))

    @property
    def mean(self) -> Any:
        """The middle."""
        return (self.low + self.high) / 2

    @property
    def mode(self) -> Any:
        """NaN: all values are alike."""
        return lt.full_like(self.low, math.nan)

    @property
    def variance(self) -> Any:
        """(high - low)**2 / 12."""
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape: Any = ()) -> Any:
        """low + u * (high - low)."""
        u = self._random(self._extended_shape(sample_shape))
        return self.low + u * (self.high - self.low)

    def log_prob(self, value: Any) -> Any:
        """-log(high - low) from low to below high, -infinity elsewhere."""
        x = self._value(value)
        inside = (x >= self.low) & (x < self.high)
        return lt.where(inside, -lt.log(self.high - self.low), -math.inf)

    def cdf(self, value: Any) -> Any:
        """How far the value is, from 0 to 1."""
        return lt.clip((self._value(value) - self.low) / (self.high - self.low), 0.0, 1.0)

    def icdf(self, value: Any) -> Any:
        """low + value * (high - low)."""
        return self.low + self._probability(value) * (self.high - self.low)

    def entropy(self) -> Any:
        """log(high - low)."""
        return lt.log(self.high - self.low)


class Exponential(Distribution):
    """The waiting time of a rate. As `torch.distributions.Exponential`.

    >>> import lazyt as lt
    >>> lt.distributions.Exponential(2.0).mean.item()
    0.5
    """

    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {"rate": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,), batch = broadcast(self, rate)
        super().__init__(batch, (), validate_args, {"rate": rate})

    @property
    def mean(self) -> Any:
        """1 / rate."""
        return 1 / self.rate

    @property
    def mode(self) -> Any:
        """0."""
        return lt.zeros_like(self.rate)

    @property
    def variance(self) -> Any:
        """1 / rate**2."""
        return 1 / (self.rate * self.rate)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """-log(u) / rate."""
        return -lt.log(self._uniform(self._extended_shape(sample_shape))) / self.rate

    def log_prob(self, value: Any) -> Any:
        """log(rate) - rate * value."""
        return lt.log(self.rate) - self.rate * self._value(value)

    def cdf(self, value: Any) -> Any:
        """1 - exp(-rate * value)."""
        return -lt.expm1(-self.rate * self._value(value))

    def icdf(self, value: Any) -> Any:
        """-log(1 - value) / rate."""
        return -lt.log1p(-self._probability(value)) / self.rate

    def entropy(self) -> Any:
        """1 - log(rate)."""
        return 1 - lt.log(self.rate)


class Pareto(Distribution):
    """A power law above a scale. As `torch.distributions.Pareto`.

    >>> import lazyt as lt
    >>> lt.distributions.Pareto(1.0, 3.0).mean.item()
    1.5
    """

    has_rsample = True
    _support_reads = ("scale",)
    arg_constraints: ClassVar[dict[str, Constraint]] = {"scale": constraints.positive, "alpha": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        (self.scale, self.alpha), batch = broadcast(self, scale, alpha)
        super().__init__(batch, (), validate_args, {"scale": scale, "alpha": alpha})

    @property
    def support(self) -> Constraint:
        """From the scale on; reads it."""
        return constraints.greater_than_eq(self._on_host("scale"))

    @property
    def mean(self) -> Any:
        """alpha * scale / (alpha - 1), infinite where alpha is at most 1."""
        a = lt.maximum(self.alpha, 1.0)
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Any:
        """scale."""
        return self.scale

    @property
    def variance(self) -> Any:
        """Infinite where alpha is at most 2."""
        a = lt.maximum(self.alpha, 2.0)
        return self.scale * self.scale * a / ((a - 1) ** 2 * (a - 2))

    def rsample(self, sample_shape: Any = ()) -> Any:
        """scale * u**(-1 / alpha)."""
        return self.scale * lt.exp(-lt.log(self._uniform(self._extended_shape(sample_shape))) / self.alpha)

    def log_prob(self, value: Any) -> Any:
        """log(alpha) + alpha log(scale) - (alpha + 1) log(value)."""
        x = self._value(value)
        return lt.log(self.alpha) + self.alpha * lt.log(self.scale) - (self.alpha + 1) * lt.log(x)

    def cdf(self, value: Any) -> Any:
        """1 - (scale / value)**alpha."""
        return -lt.expm1(self.alpha * (lt.log(self.scale) - lt.log(self._value(value))))

    def icdf(self, value: Any) -> Any:
        """scale * (1 - value)**(-1 / alpha)."""
        return self.scale * lt.exp(-lt.log1p(-self._probability(value)) / self.alpha)

    def entropy(self) -> Any:
        """log(scale / alpha) + 1 + 1 / alpha."""
        return lt.log(self.scale / self.alpha) + 1 + 1 / self.alpha


class Weibull(Distribution):
    """A power of an exponential number. As `torch.distributions.Weibull`.

    >>> import lazyt as lt
    >>> round(lt.distributions.Weibull(1.0, 2.0).mean.item(), 4)
    0.8862
    """

    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "scale": constraints.positive,
        "concentration": constraints.positive,
    }
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        (self.scale, self.concentration), batch = broadcast(self, scale, concentration)
        super().__init__(batch, (), validate_args, {"scale": scale, "concentration": concentration})

    @property
    def mean(self) -> Any:
        """scale * gamma(1 + 1 / concentration)."""
        return self.scale * lt.exp(lt.lgamma(1 + 1 / self.concentration))

    @property
    def mode(self) -> Any:
        """scale * ((concentration - 1) / concentration)**(1 / concentration)."""
        k = self.concentration
        return self.scale * ((k - 1) / k) ** (1 / k)

    @property
    def variance(self) -> Any:
        """By two gamma functions."""
        first, second = (lt.exp(n * lt.lgamma(1 + m / self.concentration)) for n, m in ((2, 1), (1, 2)))
        return self.scale * self.scale * (second - first)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """scale * (-log(u))**(1 / concentration)."""
        u = self._uniform(self._extended_shape(sample_shape))
        return self.scale * (-lt.log(u)) ** (1 / self.concentration)

    def log_prob(self, value: Any) -> Any:
        """log(k / scale) + (k - 1) log(z) - z**k."""
        z, k = self._value(value) / self.scale, self.concentration
        return lt.log(k / self.scale) + (k - 1) * lt.log(z) - z**k

    def cdf(self, value: Any) -> Any:
        """1 - exp(-z**k)."""
        return -lt.expm1(-((self._value(value) / self.scale) ** self.concentration))

    def icdf(self, value: Any) -> Any:
        """scale * (-log(1 - value))**(1 / k)."""
        q = -lt.log1p(-self._probability(value))
        return self.scale * q ** (1 / self.concentration)

    def entropy(self) -> Any:
        """Euler's constant * (1 - 1 / k) + log(scale / k) + 1."""
        k = self.concentration
        return EULER * (1 - 1 / k) + lt.log(self.scale / k) + 1


class GeneralizedPareto(Distribution):
    """What lies beyond a high threshold, in the limit. As `torch.distributions.GeneralizedPareto`.

    A concentration of 0 is an exponential distribution, a negative one has a largest value.

    >>> import lazyt as lt
    >>> lt.distributions.GeneralizedPareto(0.0, 1.0, 0.5).mean.item()
    2.0
    """

    has_rsample = True
    _support_reads = ("loc", "scale", "concentration")
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        (self.loc, self.scale, self.concentration), batch = broadcast(self, loc, scale, concentration)
        given = {"loc": loc, "scale": scale, "concentration": concentration}
        super().__init__(batch, (), validate_args, given)

    @property
    def support(self) -> Constraint:
        """From loc on, up to loc - scale / concentration where that is negative; reads them."""
        loc, scale, k = (self._on_host(name) for name in self._support_reads)
        with np.errstate(divide="ignore"):
            return constraints.interval(loc, np.where(k < 0, loc - scale / k, math.inf))

    def _parts(self) -> tuple[Any, Any]:
        """Where the concentration is 0, as `isclose` tells, and a concentration that is not."""
        zero = lt.abs(self.concentration) <= 1e-8
        return zero, lt.where(zero, 1.0, self.concentration)

    @property
    def mean(self) -> Any:
        """loc + scale / (1 - concentration), NaN where that is at least 1."""
        valid = self.concentration < 1
        k = lt.where(valid, self.concentration, 0.5)
        return lt.where(valid, self.loc + self.scale / (1 - k), math.nan)

    @property
    def mode(self) -> Any:
        """loc."""
        return self.loc

    @property
    def variance(self) -> Any:
        """scale**2 / ((1 - k)**2 (1 - 2 k)), NaN where the concentration k is at least 1/2."""
        valid = self.concentration < 0.5
        k = lt.where(valid, self.concentration, 0.25)
        return lt.where(valid, self.scale**2 / ((1 - k) ** 2 * (1 - 2 * k)), math.nan)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """The quantile of a uniform number."""
        return self.icdf(self._random(self._extended_shape(sample_shape)))

    def _log_tail(self, value: Any) -> Any:
        z = (self._value(value) - self.loc) / self.scale
        zero, k = self._parts()
        return lt.where(zero, -z, -lt.log1p(k * lt.where(zero, 0.0, z)) / k)

    def log_prob(self, value: Any) -> Any:
        """(1 + concentration) times the logarithm of the probability of a larger value, less log(scale)."""
        return (1 + self.concentration) * self._log_tail(value) - lt.log(self.scale)

    def cdf(self, value: Any) -> Any:
        """1 - (1 + k z)**(-1 / k)."""
        return -lt.expm1(self._log_tail(value))

    def icdf(self, value: Any) -> Any:
        """loc + scale * ((1 - value)**-k - 1) / k."""
        zero, k = self._parts()
        q = lt.log1p(-self._probability(value))
        return self.loc + self.scale * lt.where(zero, -q, lt.expm1(-k * q) / k)

    def entropy(self) -> Any:
        """log(scale) + concentration + 1."""
        return lt.log(self.scale) + self.concentration + 1
