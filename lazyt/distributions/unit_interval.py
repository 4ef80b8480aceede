"""Distributions of numbers between 0 and 1."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import lazyt as lt
from lazyt.distributions import constraints
from lazyt.distributions.base import Distribution, broadcast
from lazyt.distributions.constraints import Constraint
from lazyt.distributions.discrete import _clamped, _OfProbability
from lazyt.distributions.location_scale import EULER


class Kumaraswamy(Distribution):
    """Like the beta distribution, with a closed form of its quantiles. As `torch.distributions.Kumaraswamy`.

    >>> import lazyt as lt
    >>> d = lt.distributions.Kumaraswamy(1.0, 3.0)
    >>> round(d.mean.item(), 4), round(d.cdf(0.5).item(), 4)
    (0.25, 0.875)
    """

    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        (self.concentration1, self.concentration0), batch = broadcast(self, concentration1, concentration0)
        given = {"concentration1": concentration1, "concentration0": concentration0}
        super().__init__(batch, (), validate_args, given)

    def _moment(self, n: int) -> Any:
        a, b = 1 + n / self.concentration1, self.concentration0
        return b * lt.exp(lt.lgamma(a) + lt.lgamma(b) - lt.lgamma(a + b))

    @property
    def mean(self) -> Any:
        """b * beta(1 + 1 / a, b)."""
        return self._moment(1)

    @property
    def mode(self) -> Any:
        """((a - 1) / (a b - 1))**(1 / a), as PyTorch computes it; NaN where a or b is below 1."""
        a, b = self.concentration1, self.concentration0
        found = lt.exp(lt.log1p(-b) / b - lt.log1p(-b * a))
        return lt.where((a < 1) | (b < 1), math.nan, found)

    @property
    def variance(self) -> Any:
        """By the second moment."""
        return self._moment(2) - self.mean**2

    def rsample(self, sample_shape: Any = ()) -> Any:
        """The quantile of a uniform number."""
        return self.icdf(self._uniform(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        """log(a b) + (a - 1) log(x) + (b - 1) log(1 - x**a)."""
        x, a, b = self._value(value), self.concentration1, self.concentration0
        return lt.log(a * b) + (a - 1) * lt.log(x) + (b - 1) * lt.log1p(-(x**a))

    def cdf(self, value: Any) -> Any:
        """1 - (1 - x**a)**b."""
        return -lt.expm1(self.concentration0 * lt.log1p(-(self._value(value) ** self.concentration1)))

    def icdf(self, value: Any) -> Any:
        """(1 - (1 - value)**(1 / b))**(1 / a)."""
        q = lt.log1p(-self._probability(value))
        return (-lt.expm1(q / self.concentration0)) ** (1 / self.concentration1)

    def entropy(self) -> Any:
        """1 - 1 / b + (1 - 1 / a) (digamma(b + 1) + Euler's constant) - log(a b)."""
        a, b = self.concentration1, self.concentration0
        return 1 - 1 / b + (1 - 1 / a) * (lt.digamma(b + 1) + EULER) - lt.log(a) - lt.log(b)


class ContinuousBernoulli(_OfProbability):
    """Density in proportion to probs**x (1 - probs)**(1 - x). As `torch.distributions.ContinuousBernoulli`.

    Loaiza-Ganem, Cunningham: The continuous Bernoulli (2019). Between the `lims` around 1/2, where the formulas
    cancel, Taylor's series is taken.

    >>> import lazyt as lt
    >>> d = lt.distributions.ContinuousBernoulli(0.2)
    >>> round(d.mean.item(), 4), round(d.log_prob(0.0).exp().item(), 4)
    (0.388, 1.8484)
    """

    has_rsample = True
    support = constraints.unit_interval

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        batch, given = self._take(probs, logits)
        self.probs = _clamped(self.probs)
        self._lims = lims
        super().__init__(batch, (), validate_args, given, {"lims": lims})

    def _parts(self) -> tuple[Any, Any, Any]:
        """Where the formulas hold, probs there (at the lower limit elsewhere), and log(1 - p) - log(p)."""
        outside = (self.probs <= self._lims[0]) | (self.probs > self._lims[1])
        p = lt.where(outside, self.probs, self._lims[0])
        return outside, p, lt.log1p(-p) - lt.log(p)

    def _log_norm(self) -> Any:
        """The logarithm of what makes the density's integral 1."""
        outside, p, away = self._parts()
        below, above = lt.where(p <= 0.5, p, 0.0), lt.where(p >= 0.5, p, 1.0)
        width = lt.where(p <= 0.5, lt.log1p(-2 * below), lt.log(2 * above - 1))
        x = (self.probs - 0.5) ** 2
        series = math.log(2) + (4 / 3 + 104 / 45 * x) * x
        return lt.where(outside, lt.log(lt.abs(away)) - width, series)

    @property
    def mean(self) -> Any:
        """p / (2 p - 1) + 1 / log(1 / p - 1)."""
        outside, p, away = self._parts()
        x = self.probs - 0.5
        return lt.where(outside, p / (2 * p - 1) + 1 / away, 0.5 + (1 / 3 + 16 / 45 * x * x) * x)

    @property
    def variance(self) -> Any:
        """p (p - 1) / (1 - 2 p)**2 + 1 / log(1 / p - 1)**2."""
        outside, p, away = self._parts()
        x = (self.probs - 0.5) ** 2
        series = 1 / 12 - (1 / 15 - 128 / 945 * x) * x
        return lt.where(outside, p * (p - 1) / (1 - 2 * p) ** 2 + 1 / (away * away), series)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """The quantile of a uniform number."""
        return self.icdf(self._random(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        """value * logits - softplus(logits), and the norm's logarithm."""
        return self._value(value) * self.logits - lt.softplus(self.logits) + self._log_norm()

    def cdf(self, value: Any) -> Any:
        """(p**x (1 - p)**(1 - x) + p - 1) / (2 p - 1), from 0 to 1."""
        x = self._value(value)
        outside, p, _ = self._parts()
        found = lt.where(outside, (p**x * (1 - p) ** (1 - x) + p - 1) / (2 * p - 1), x)
        return lt.where(x <= 0, 0.0, lt.where(x >= 1, 1.0, found))

    def icdf(self, value: Any) -> Any:
        """log1p(value (2 p - 1) / (1 - p)) / log(p / (1 - p))."""
        q = self._probability(value)
        outside, p, away = self._parts()
        return lt.where(outside, (lt.log1p(q * (2 * p - 1) - p) - lt.log1p(-p)) / -away, q)

    def entropy(self) -> Any:
        """The mean times the logit, less the logarithms of the norm and of 1 - p."""
        other = lt.log1p(-self.probs)
        return self.mean * (other - lt.log(self.probs)) - self._log_norm() - other
