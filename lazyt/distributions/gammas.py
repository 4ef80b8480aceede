"""The gamma family: what gamma numbers are made into."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import lazyt as lt
from lazyt.distributions import constraints
from lazyt.distributions.base import Distribution, broadcast
from lazyt.distributions.constraints import Constraint
from lazyt.distributions.special import lbeta, standard_gamma, xlogy


class Gamma(Distribution):
    """The gamma distribution of a concentration and a rate. As `torch.distributions.Gamma`.

    Gradients of `rsample` are exact (implicit reparametrisation), by a quadrature for each number.

    >>> import lazyt as lt
    >>> d = lt.distributions.Gamma(2.0, 4.0)
    >>> d.mean.item(), d.variance.item()
    (0.5, 0.125)
    """

    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support = constraints.nonnegative

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        (self.concentration, self.rate), batch = broadcast(self, concentration, rate)
        super().__init__(batch, (), validate_args, {"concentration": concentration, "rate": rate})

    @property
    def mean(self) -> Any:
        """concentration / rate."""
        return self.concentration / self.rate

    @property
    def mode(self) -> Any:
        """(concentration - 1) / rate, at least 0."""
        return lt.maximum((self.concentration - 1) / self.rate, 0.0)

    @property
    def variance(self) -> Any:
        """concentration / rate**2."""
        return self.concentration / (self.rate * self.rate)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """A standard gamma number over the rate."""
        return standard_gamma(self.concentration, self._extended_shape(sample_shape)) / self.rate

    def log_prob(self, value: Any) -> Any:
        """a log(rate) + (a - 1) log(x) - rate * x - lgamma(a)."""
        x, a = self._value(value), self.concentration
        return xlogy(a, self.rate) + xlogy(a - 1, x) - self.rate * x - lt.lgamma(a)

    def entropy(self) -> Any:
        """a - log(rate) + lgamma(a) + (1 - a) digamma(a)."""
        a = self.concentration
        return a - lt.log(self.rate) + lt.lgamma(a) + (1 - a) * lt.digamma(a)


class Chi2(Gamma):
    """The sum of the squares of df normal numbers. As `torch.distributions.Chi2`.

    >>> import lazyt as lt
    >>> lt.distributions.Chi2(3.0).mean.item()
    3.0
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (self.df,), batch = broadcast(self, df)
        self.concentration, self.rate = self.df / 2, lt.full_like(self.df, 0.5)
        Distribution.__init__(self, batch, (), validate_args, {"df": df})


class InverseGamma(Distribution):
    """1 / a gamma number. As `torch.distributions.InverseGamma`.

    >>> import lazyt as lt
    >>> lt.distributions.InverseGamma(3.0, 4.0).mean.item()
    2.0
    """

    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = Gamma.arg_constraints
    support = constraints.positive

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        (self.concentration, self.rate), batch = broadcast(self, concentration, rate)
        super().__init__(batch, (), validate_args, {"concentration": concentration, "rate": rate})

    @property
    def mean(self) -> Any:
        """rate / (concentration - 1), infinite where the concentration is at most 1."""
        return lt.where(self.concentration > 1, self.rate / (self.concentration - 1), math.inf)

    @property
    def mode(self) -> Any:
        """rate / (concentration + 1)."""
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Any:
        """rate**2 / ((a - 1)**2 (a - 2)), infinite where the concentration a is at most 2."""
        a = self.concentration
        return lt.where(a > 2, self.rate * self.rate / ((a - 1) ** 2 * (a - 2)), math.inf)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """The rate over a standard gamma number."""
        return self.rate / standard_gamma(self.concentration, self._extended_shape(sample_shape))

    def log_prob(self, value: Any) -> Any:
        """a log(rate) - (a + 1) log(x) - rate / x - lgamma(a)."""
        x, a = self._value(value), self.concentration
        return xlogy(a, self.rate) - (a + 1) * lt.log(x) - self.rate / x - lt.lgamma(a)

    def entropy(self) -> Any:
        """a + log(rate) + lgamma(a) - (1 + a) digamma(a)."""
        a = self.concentration
        return a + lt.log(self.rate) + lt.lgamma(a) - (1 + a) * lt.digamma(a)


class FisherSnedecor(Distribution):
    """The ratio of two mean squares, of df1 and df2 normal numbers. As `torch.distributions.FisherSnedecor`.

    >>> import lazyt as lt
    >>> lt.distributions.FisherSnedecor(2.0, 4.0).mean.item()
    2.0
    """

    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        (self.df1, self.df2), batch = broadcast(self, df1, df2)
        super().__init__(batch, (), validate_args, {"df1": df1, "df2": df2})

    @property
    def mean(self) -> Any:
        """df2 / (df2 - 2), NaN where df2 is at most 2."""
        return lt.where(self.df2 <= 2, math.nan, self.df2 / (self.df2 - 2))

    @property
    def mode(self) -> Any:
        """(df1 - 2) / df1 * df2 / (df2 + 2), NaN where df1 is at most 2."""
        found = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return lt.where(self.df1 <= 2, math.nan, found)

    @property
    def variance(self) -> Any:
        """2 b**2 (a + b - 2) / (a (b - 2)**2 (b - 4)), NaN where b is at most 4."""
        a, b = self.df1, self.df2
        return lt.where(b <= 4, math.nan, 2 * b * b * (a + b - 2) / (a * (b - 2) ** 2 * (b - 4)))

    def rsample(self, sample_shape: Any = ()) -> Any:
        """The ratio of two gamma numbers."""
        shape = self._extended_shape(sample_shape)
        a, b = (standard_gamma(0.5 * df, shape) / df for df in (self.df1, self.df2))
        tiny = float(lt.finfo(self._dtype).tiny)
        return lt.maximum(a / lt.maximum(b, tiny), tiny)

    def log_prob(self, value: Any) -> Any:
        """By the beta function of df1 / 2 and df2 / 2."""
        x, a, b = self._value(value), 0.5 * self.df1, 0.5 * self.df2
        ratio = self.df1 / self.df2
        return a * lt.log(ratio) + (a - 1) * lt.log(x) - (a + b) * lt.log1p(ratio * x) - lbeta(a, b)


class StudentT(Distribution):
    """Student's t, of df degrees of freedom, a location and a scale. As `torch.distributions.StudentT`.

    >>> import lazyt as lt
    >>> lt.distributions.StudentT(4.0).variance.item()
    2.0
    """

    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        (self.df, self.loc, self.scale), batch = broadcast(self, df, loc, scale)
        super().__init__(batch, (), validate_args, {"df": df, "loc": loc, "scale": scale})

    @property
    def mean(self) -> Any:
        """loc, NaN where df is at most 1."""
        return lt.where(self.df <= 1, math.nan, self.loc)

    @property
    def mode(self) -> Any:
        """loc."""
        return self.loc

    @property
    def variance(self) -> Any:
        """scale**2 * df / (df - 2); infinite where df is at most 2, NaN where at most 1."""
        df = lt.where(self.df > 2, self.df, 3.0)
        found = lt.where(self.df > 2, self.scale * self.scale * df / (df - 2), math.inf)
        return lt.where(self.df <= 1, math.nan, found)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """A normal number over the root of a mean of squares."""
        shape = self._extended_shape(sample_shape)
        x = self._normal(shape)
        z = 2 * standard_gamma(self.df / 2, shape)
        return self.loc + self.scale * x * lt.rsqrt(z / self.df)

    def log_prob(self, value: Any) -> Any:
        """By the gamma function at df / 2 and (df + 1) / 2."""
        z, df = (self._value(value) - self.loc) / self.scale, self.df
        half = 0.5 * (df + 1)
        norm = lt.log(self.scale) + 0.5 * lt.log(df) + 0.5 * math.log(math.pi) + lt.lgamma(0.5 * df) - lt.lgamma(half)
        return -half * lt.log1p(z * z / df) - norm

    def entropy(self) -> Any:
        """By the gamma function and its logarithmic derivative."""
        df = self.df
        half = 0.5 * (df + 1)
        spread = half * (lt.digamma(half) - lt.digamma(0.5 * df))
        return lt.log(self.scale) + spread + 0.5 * lt.log(df) + lbeta(0.5 * df, lt.full_like(df, 0.5))


class Beta(Distribution):
    """The beta distribution on [0, 1]. As `torch.distributions.Beta`.

    >>> import lazyt as lt
    >>> lt.distributions.Beta(1.0, 3.0).mean.item()
    0.25
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

    @property
    def mean(self) -> Any:
        """a / (a + b)."""
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Any:
        """(a - 1) / (a + b - 2), or an end."""
        return _dirichlet_mode(lt.stack([self.concentration1, self.concentration0], axis=-1))[..., 0]

    @property
    def variance(self) -> Any:
        """a b / ((a + b)**2 (a + b + 1))."""
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total * total * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Any:
        """A gamma number's share of the sum of two."""
        shape = self._extended_shape(sample_shape)
        a, b = (standard_gamma(c, shape) for c in (self.concentration1, self.concentration0))
        return a / (a + b)

    def log_prob(self, value: Any) -> Any:
        """(a - 1) log(x) + (b - 1) log(1 - x) - log(beta(a, b))."""
        x, a, b = self._value(value), self.concentration1, self.concentration0
        return xlogy(a - 1, x) + xlogy(b - 1, 1 - x) - lbeta(a, b)

    def entropy(self) -> Any:
        """By the logarithmic derivatives of the gamma function."""
        a, b = self.concentration1, self.concentration0
        rest = (a - 1) * lt.digamma(a) + (b - 1) * lt.digamma(b) - (a + b - 2) * lt.digamma(a + b)
        return lbeta(a, b) - rest


def _dirichlet_mode(a: Any) -> Any:
    """Where the density is greatest; the largest concentration's corner where all are below 1."""
    above = lt.maximum(a - 1, 0.0)
    corner = lt.astype(lt.one_hot(lt.argmax(a, axis=-1), a.shape[-1]), a.dtype)
    inside = above / lt.sum(above, axis=-1, keepdims=True)
    return lt.where(lt.all(a < 1, axis=-1, keepdims=True), corner, inside)


class Dirichlet(Distribution):
    """The distribution of shares of 1. As `torch.distributions.Dirichlet`.

    >>> import lazyt as lt
    >>> lt.distributions.Dirichlet([1.0, 3.0]).mean.tolist()
    [0.25, 0.75]
    """

    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.independent(constraints.positive, 1)
    }
    support = constraints.simplex

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        (self.concentration,), batch = broadcast(self, concentration, event_dims=(1,))
        super().__init__(batch, self.concentration.shape[-1:], validate_args, {"concentration": concentration})

    @property
    def mean(self) -> Any:
        """Each concentration's share."""
        return self.concentration / lt.sum(self.concentration, axis=-1, keepdims=True)

    @property
    def mode(self) -> Any:
        """The shares of the concentrations above 1, or a corner."""
        return _dirichlet_mode(self.concentration)

    @property
    def variance(self) -> Any:
        """a (total - a) / (total**2 (total + 1))."""
        a = self.concentration
        total = lt.sum(a, axis=-1, keepdims=True)
        return a * (total - a) / (total * total * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Any:
        """The shares of gamma numbers in their sum."""
        x = standard_gamma(self.concentration, self._extended_shape(sample_shape))
        return x / lt.sum(x, axis=-1, keepdims=True)

    def log_prob(self, value: Any) -> Any:
        """The sum of (a - 1) log(x), less the logarithm of its integral."""
        a = self.concentration
        norm = lt.sum(lt.lgamma(a), axis=-1) - lt.lgamma(lt.sum(a, axis=-1))
        return lt.sum(xlogy(a - 1, self._value(value)), axis=-1) - norm

    def entropy(self) -> Any:
        """By the logarithmic derivatives of the gamma function."""
        a = self.concentration
        total, n = lt.sum(a, axis=-1), a.shape[-1]
        norm = lt.sum(lt.lgamma(a), axis=-1) - lt.lgamma(total)
        return norm - (n - total) * lt.digamma(total) - lt.sum((a - 1) * lt.digamma(a), axis=-1)
