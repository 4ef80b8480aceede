"""Continuous forms of discrete distributions, whose samples have gradients.

Maddison, Mnih, Teh: The concrete distribution (2017); Jang, Gu, Poole: Categorical reparameterization with
Gumbel-softmax (2017); straight through: Bengio, Léonard, Courville (2013).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import lazyt as lt
from lazyt.distributions import constraints
from lazyt.distributions.base import Distribution
from lazyt.distributions.composed import TransformedDistribution
from lazyt.distributions.constraints import Constraint
from lazyt.distributions.discrete import OneHotCategorical, _OfCategories, _OfProbability
from lazyt.distributions.transforms import ExpTransform, SigmoidTransform


def _temperature(given: Any, like: Any) -> Any:
    return lt.asarray(given, dtype=like.dtype, device=like.device)


class LogitRelaxedBernoulli(_OfProbability):
    """The logit of a RelaxedBernoulli number. As `torch.distributions.relaxed_bernoulli.LogitRelaxedBernoulli`.

    >>> import lazyt as lt
    >>> round(lt.distributions.LogitRelaxedBernoulli(1.0, logits=0.0).log_prob(0.0).item(), 4)
    -1.3863
    """

    has_rsample = True
    support = constraints.real
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        **_OfProbability.arg_constraints, "temperature": constraints.positive,
    }  # fmt: skip

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        batch, given = self._take(probs, logits)
        self.temperature = _temperature(temperature, self.logits)
        super().__init__(batch, (), validate_args, given, {"temperature": temperature})
        self._check("temperature", constraints.positive, temperature)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """A logistic number and the logit, over the temperature."""
        eps = float(lt.finfo(self._dtype).eps)
        u = lt.clip(self._random(self._extended_shape(sample_shape)), eps, 1 - eps)
        return (lt.log(u) - lt.log1p(-u) + self.logits) / self.temperature

    def log_prob(self, value: Any) -> Any:
        """log(temperature) + d - 2 softplus(d), d = logits - temperature * value."""
        d = self.logits - self._value(value) * self.temperature
        return lt.log(self.temperature) + d - 2 * lt.softplus(d)


class _Relaxed(TransformedDistribution):
    """Of a temperature, and of probs or logits; what a transform makes of the base."""

    has_rsample = True

    def _describe(self, temperature: Any, probs: Any, logits: Any) -> None:
        """As it was given, for `expand` and `repr`."""
        name = "logits" if probs is None else "probs"
        self._given, self._options = {name: getattr(self, name)}, {"temperature": temperature}

    @property
    def temperature(self) -> Any:
        """How far samples are from those of the discrete distribution."""
        return self.base_dist.temperature  # type: ignore[attr-defined]

    @property
    def probs(self) -> Any:
        """The base's."""
        return self.base_dist.probs  # type: ignore[attr-defined]

    @property
    def logits(self) -> Any:
        """The base's."""
        return self.base_dist.logits  # type: ignore[attr-defined]

    def expand(self, batch_shape: Any) -> Any:
        """The same distribution for a larger batch shape."""
        return Distribution.expand(self, batch_shape)

    def __repr__(self) -> str:
        return Distribution.__repr__(self)


class RelaxedBernoulli(_Relaxed):
    """Numbers between 0 and 1, nearly 0 or 1 at low temperatures. As `torch.distributions.RelaxedBernoulli`.

    >>> import lazyt as lt
    >>> d = lt.distributions.RelaxedBernoulli(0.5, probs=[0.2, 0.9])
    >>> d.rsample((4,)).shape, round(d.log_prob([0.5, 0.5])[0].item(), 4)
    ((4, 2), -1.1394)
    """

    support = constraints.unit_interval

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits, validate_args)
        super().__init__(base, SigmoidTransform(), validate_args)
        self._describe(temperature, probs, logits)


class ExpRelaxedCategorical(_OfCategories):
    """The logarithm of a RelaxedOneHotCategorical vector.

    As `torch.distributions.relaxed_categorical.ExpRelaxedCategorical`.

    >>> import lazyt as lt
    >>> lt.distributions.ExpRelaxedCategorical(1.0, probs=[0.5, 0.5]).sample((3,)).shape
    (3, 2)
    """

    has_rsample = True
    has_enumerate_support = False
    support = constraints.real_vector

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        batch, given = self._take(probs, logits)
        self.temperature = _temperature(temperature, self.logits)
        super().__init__(batch, (self._categories,), validate_args, given, {"temperature": temperature})
        self._check("temperature", constraints.positive, temperature)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """The logits and Gumbel numbers, over the temperature; their logarithm of softmax."""
        eps = float(lt.finfo(self._dtype).eps)
        u = lt.clip(self._random(self._extended_shape(sample_shape)), eps, 1 - eps)
        return lt.log_softmax((self.logits - lt.log(-lt.log(u))) / self.temperature, axis=-1)

    def log_prob(self, value: Any) -> Any:
        """The sum of the log softmax of logits - temperature * value, and (n - 1)! temperature**(n - 1)."""
        n = self._categories
        score = lt.log_softmax(self.logits - self._value(value) * self.temperature, axis=-1)
        return lt.sum(score, axis=-1) + math.lgamma(n) + (n - 1) * lt.log(self.temperature)


class RelaxedOneHotCategorical(_Relaxed):
    """Shares of 1, nearly one-hot at low temperatures. As `torch.distributions.RelaxedOneHotCategorical`.

    >>> import lazyt as lt
    >>> d = lt.distributions.RelaxedOneHotCategorical(0.5, probs=[0.2, 0.3, 0.5])
    >>> round(d.rsample().sum().item(), 4)
    1.0
    """

    support = constraints.simplex

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args)
        super().__init__(base, ExpTransform(), validate_args)
        self._describe(temperature, probs, logits)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """A OneHotCategorical whose samples have the gradients of `probs`.

    As `torch.distributions.OneHotCategoricalStraightThrough`.

    >>> import lazyt as lt
    >>> lt.distributions.OneHotCategoricalStraightThrough(probs=[0.0, 1.0]).rsample().tolist()
    [0.0, 1.0]
    """

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Any:
        """A sample, to which probs - probs without its gradient is added."""
        with lt.no_grad():
            drawn = super()._draw(sample_shape).detach()
        return drawn + (self.probs - self.probs.detach())

    def _draw(self, sample_shape: Any) -> Any:
        return super()._draw(sample_shape)
