"""Distributions of a location and a scale."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import lazyt as lt
from lazyt.distributions import constraints
from lazyt.distributions.base import HALF_LOG_2PI, Distribution, broadcast
from lazyt.distributions.constraints import Constraint
from lazyt.distributions.special import normal_quantile

EULER = 0.57721566490153286060


class _LocationScale(Distribution):
    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        (self.loc, self.scale), batch = broadcast(self, loc, scale)
        super().__init__(batch, (), validate_args, {"loc": loc, "scale": scale})

    def _standard(self, shape: tuple[int, ...]) -> Any:
        raise NotImplementedError

    def rsample(self, sample_shape: Any = ()) -> Any:
        """loc + scale * a standard number."""
        return self.loc + self.scale * self._standard(self._extended_shape(sample_shape))

    def _z(self, value: Any) -> Any:
        return (self._value(value) - self.loc) / self.scale

    @property
    def mean(self) -> Any:
        """loc."""
        return self.loc

    @property
    def mode(self) -> Any:
        """loc."""
        return self.loc


class Normal(_LocationScale):
    """The normal distribution. As `torch.distributions.Normal`.

    >>> import lazyt as lt
    >>> d = lt.distributions.Normal(0.0, 2.0)
    >>> round(d.log_prob(1.0).item(), 4), d.variance.item()
    (-1.7371, 4.0)
    """

    def _standard(self, shape: tuple[int, ...]) -> Any:
        return self._normal(shape)

    @property
    def variance(self) -> Any:
        """scale squared."""
        return self.scale * self.scale

    def log_prob(self, value: Any) -> Any:
        """-z**2 / 2 - log(scale) - log(2 pi) / 2."""
        z = self._z(value)
        return -0.5 * z * z - lt.log(self.scale) - HALF_LOG_2PI

    def cdf(self, value: Any) -> Any:
        """By the error function."""
        return 0.5 * (1 + lt.erf(self._z(value) / math.sqrt(2)))

    def icdf(self, value: Any) -> Any:
        """By Wichura's rational functions."""
        return self.loc + self.scale * normal_quantile(self._probability(value))

    def entropy(self) -> Any:
        """1/2 + log(2 pi) / 2 + log(scale)."""
        return 0.5 + HALF_LOG_2PI + lt.log(self.scale)


class Laplace(_LocationScale):
    """The two-sided exponential distribution. As `torch.distributions.Laplace`.

    >>> import lazyt as lt
    >>> round(lt.distributions.Laplace(0.0, 1.0).log_prob(1.0).item(), 4)
    -1.6931
    """

    def _standard(self, shape: tuple[int, ...]) -> Any:
        u = self._uniform(shape) - 0.5
        # Not 1: its logarithm is -infinity.
        size = lt.minimum(2 * lt.abs(u), 1 - float(lt.finfo(self._dtype).eps) / 2)
        return -lt.sign(u) * lt.log1p(-size)

    @property
    def variance(self) -> Any:
        """2 * scale**2."""
        return 2 * self.scale * self.scale

    def log_prob(self, value: Any) -> Any:
        """-abs(z) - log(2 * scale)."""
        return -lt.abs(self._z(value)) - lt.log(2 * self.scale)

    def cdf(self, value: Any) -> Any:
        """An exponential on each side."""
        z = self._z(value)
        return 0.5 - 0.5 * lt.sign(z) * lt.expm1(-lt.abs(z))

    def icdf(self, value: Any) -> Any:
        """A logarithm on each side."""
        q = self._probability(value) - 0.5
        return self.loc - self.scale * lt.sign(q) * lt.log1p(-2 * lt.abs(q))

    def entropy(self) -> Any:
        """1 + log(2 * scale)."""
        return 1 + lt.log(2 * self.scale)


class Cauchy(_LocationScale):
    """The Cauchy distribution, which has no mean. As `torch.distributions.Cauchy`.

    >>> import lazyt as lt
    >>> lt.distributions.Cauchy(0.0, 1.0).cdf(1.0).item()
    0.75
    """

    def _standard(self, shape: tuple[int, ...]) -> Any:
        return lt.tan(math.pi * (self._uniform(shape) - 0.5))

    @property
    def mean(self) -> Any:
        """NaN."""
        return lt.full_like(self.loc, math.nan)

    @property
    def variance(self) -> Any:
        """Infinity."""
        return lt.full_like(self.loc, math.inf)

    def log_prob(self, value: Any) -> Any:
        """-log(pi * scale * (1 + z**2))."""
        z = self._z(value)
        return -math.log(math.pi) - lt.log(self.scale) - lt.log1p(z * z)

    def cdf(self, value: Any) -> Any:
        """By the arc tangent."""
        return lt.atan(self._z(value)) / math.pi + 0.5

    def icdf(self, value: Any) -> Any:
        """By the tangent."""
        return self.loc + self.scale * lt.tan(math.pi * (self._probability(value) - 0.5))

    def entropy(self) -> Any:
        """log(4 pi scale)."""
        return math.log(4 * math.pi) + lt.log(self.scale)


class Gumbel(_LocationScale):
    """The distribution of largest values. As `torch.distributions.Gumbel`.

    >>> import lazyt as lt
    >>> round(lt.distributions.Gumbel(0.0, 1.0).mean.item(), 4)
    0.5772
    """

    def _standard(self, shape: tuple[int, ...]) -> Any:
        return -lt.log(-lt.log(self._uniform(shape)))

    @property
    def mean(self) -> Any:
        """loc + scale * Euler's constant."""
        return self.loc + self.scale * EULER

    @property
    def variance(self) -> Any:
        """(pi * scale)**2 / 6."""
        return self.scale * self.scale * (math.pi**2 / 6)

    def log_prob(self, value: Any) -> Any:
        """-z - exp(-z) - log(scale)."""
        z = self._z(value)
        return -z - lt.exp(-z) - lt.log(self.scale)

    def cdf(self, value: Any) -> Any:
        """exp(-exp(-z))."""
        return lt.exp(-lt.exp(-self._z(value)))

    def icdf(self, value: Any) -> Any:
        """-log(-log(value))."""
        return self.loc - self.scale * lt.log(-lt.log(self._probability(value)))

    def entropy(self) -> Any:
        """log(scale) + 1 + Euler's constant."""
        return lt.log(self.scale) + 1 + EULER


class LogNormal(_LocationScale):
    """What has a normal logarithm. As `torch.distributions.LogNormal`.

    >>> import lazyt as lt
    >>> round(lt.distributions.LogNormal(0.0, 1.0).mean.item(), 4)
    1.6487
    """

    support = constraints.positive

    def rsample(self, sample_shape: Any = ()) -> Any:
        """exp of a normal number."""
        return lt.exp(self.loc + self.scale * self._normal(self._extended_shape(sample_shape)))

    @property
    def mean(self) -> Any:
        """exp(loc + scale**2 / 2)."""
        return lt.exp(self.loc + 0.5 * self.scale * self.scale)

    @property
    def mode(self) -> Any:
        """exp(loc - scale**2)."""
        return lt.exp(self.loc - self.scale * self.scale)

    @property
    def variance(self) -> Any:
        """expm1(scale**2) * exp(2 loc + scale**2)."""
        square = self.scale * self.scale
        return lt.expm1(square) * lt.exp(2 * self.loc + square)

    def _base(self) -> Normal:
        return Normal(self.loc, self.scale, validate_args=False)

    def log_prob(self, value: Any) -> Any:
        """The normal density of the logarithm, over the value."""
        y = lt.log(self._value(value))
        return self._base().log_prob(y) - y

    def cdf(self, value: Any) -> Any:
        """The normal one of the logarithm."""
        return self._base().cdf(lt.log(self._value(value)))

    def icdf(self, value: Any) -> Any:
        """exp of the normal one."""
        return lt.exp(self._base().icdf(value))

    def entropy(self) -> Any:
        """The normal entropy + loc."""
        return self._base().entropy() + self.loc


class _Half(Distribution):
    """The absolute value of something around 0."""

    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {"scale": constraints.positive}
    support = constraints.nonnegative
    whole: type[_LocationScale]

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        (self.scale,), batch = broadcast(self, scale)
        super().__init__(batch, (), validate_args, {"scale": scale})

    def _base(self) -> _LocationScale:
        return self.whole(0.0, self.scale, validate_args=False)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """abs of the whole one."""
        return lt.abs(self._base().rsample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        """Twice the density, on one side."""
        x = self._value(value)
        return lt.where(x >= 0, self._base().log_prob(x) + math.log(2), -math.inf)

    def cdf(self, value: Any) -> Any:
        """2 cdf - 1 of the whole one."""
        return 2 * self._base().cdf(self._value(value)) - 1

    def icdf(self, value: Any) -> Any:
        """The whole one's at (value + 1) / 2."""
        return self._base().icdf((self._probability(value) + 1) / 2)

    def entropy(self) -> Any:
        """That of the whole one - log(2)."""
        return self._base().entropy() - math.log(2)

    @property
    def mode(self) -> Any:
        """0."""
        return lt.zeros_like(self.scale)


class HalfNormal(_Half):
    """The absolute value of a normal number. As `torch.distributions.HalfNormal`.

    >>> import lazyt as lt
    >>> round(lt.distributions.HalfNormal(1.0).mean.item(), 4)
    0.7979
    """

    whole = Normal

    @property
    def mean(self) -> Any:
        """scale * sqrt(2 / pi)."""
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Any:
        """scale**2 * (1 - 2 / pi)."""
        return self.scale * self.scale * (1 - 2 / math.pi)


class HalfCauchy(_Half):
    """The absolute value of a Cauchy number. As `torch.distributions.HalfCauchy`.

    >>> import lazyt as lt
    >>> lt.distributions.HalfCauchy(1.0).cdf(1.0).item()
    0.5
    """

    whole = Cauchy

    @property
    def mean(self) -> Any:
        """Infinity."""
        return lt.full_like(self.scale, math.inf)

    @property
    def variance(self) -> Any:
        """Infinity."""
        return lt.full_like(self.scale, math.inf)
