"""Distributions of counts and of categories."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

import lazyt as lt
from lazyt.distributions import constraints
from lazyt.distributions.base import Distribution, broadcast, device_of, is_tensor, one_of
from lazyt.distributions.constraints import Constraint
from lazyt.distributions.special import poisson, standard_gamma, xlogy
from lazyt.errors import DistributionError, NotSupportedError


def _clamped(probs: Any) -> Any:
    eps = float(lt.finfo(probs.dtype).eps)
    return lt.clip(probs, eps, 1 - eps)


class _OfProbability(Distribution):
    """Given by `probs` or `logits`, one of them, each of which is the other's function."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"probs": constraints.unit_interval, "logits": constraints.real}

    def _take(self, probs: Any, logits: Any) -> tuple[tuple[int, ...], dict[str, Any]]:
        name, value = one_of(type(self).__name__, probs=probs, logits=logits)
        (x,), batch = broadcast(self, value)
        if name == "probs":
            self.probs, self.logits = x, lt.log(_clamped(x)) - lt.log1p(-_clamped(x))
        else:
            self.logits, self.probs = x, lt.sigmoid(x)
        return batch, {name: value}


class Bernoulli(_OfProbability):
    """1 with a probability, else 0. As `torch.distributions.Bernoulli`.

    >>> import lazyt as lt
    >>> round(lt.distributions.Bernoulli(0.25).log_prob(1.0).exp().item(), 4)
    0.25
    """

    support = constraints.boolean
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        batch, given = self._take(probs, logits)
        super().__init__(batch, (), validate_args, given)

    @property
    def mean(self) -> Any:
        """probs."""
        return self.probs

    @property
    def mode(self) -> Any:
        """1 where probs is above 1/2, NaN where it is 1/2."""
        likely = lt.astype(self.probs > 0.5, self.probs.dtype)
        return lt.where(self.probs == 0.5, math.nan, likely)

    @property
    def variance(self) -> Any:
        """probs * (1 - probs)."""
        return self.probs * (1 - self.probs)

    def _draw(self, sample_shape: Any) -> Any:
        u = self._random(self._extended_shape(sample_shape))
        return lt.astype(u < self.probs, self._dtype)

    def log_prob(self, value: Any) -> Any:
        """value * logits - softplus(logits)."""
        return self._value(value) * self.logits - lt.softplus(self.logits)

    def entropy(self) -> Any:
        """softplus(logits) - probs * logits."""
        return lt.softplus(self.logits) - self.probs * self.logits

    def enumerate_support(self, expand: bool = True) -> Any:
        """0 and 1."""
        values = lt.reshape(lt.arange(2, dtype=self._dtype, device=self._device), (2, *(1,) * len(self.batch_shape)))
        return lt.broadcast_to(values, (2, *self.batch_shape)) if expand else values


class Geometric(_OfProbability):
    """How often it failed before the first success. As `torch.distributions.Geometric`.

    >>> import lazyt as lt
    >>> lt.distributions.Geometric(0.25).mean.item()
    3.0
    """

    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        batch, given = self._take(probs, logits)
        super().__init__(batch, (), validate_args, given)

    @property
    def mean(self) -> Any:
        """1 / probs - 1."""
        return 1 / self.probs - 1

    @property
    def mode(self) -> Any:
        """0."""
        return lt.zeros_like(self.probs)

    @property
    def variance(self) -> Any:
        """(1 / probs - 1) / probs."""
        return (1 / self.probs - 1) / self.probs

    def _draw(self, sample_shape: Any) -> Any:
        u = self._uniform(self._extended_shape(sample_shape))
        return lt.floor(lt.log(u) / lt.log1p(-self.probs))

    def log_prob(self, value: Any) -> Any:
        """value * log(1 - probs) + log(probs)."""
        return xlogy(self._value(value), 1 - self.probs) + lt.log(self.probs)

    def entropy(self) -> Any:
        """The entropy of a trial over probs."""
        return Bernoulli(logits=self.logits, validate_args=False).entropy() / self.probs


class Poisson(Distribution):
    """Counts of a rate. As `torch.distributions.Poisson`.

    >>> import lazyt as lt
    >>> round(lt.distributions.Poisson(2.0).log_prob(0.0).item(), 4)
    -2.0
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,), batch = broadcast(self, rate)
        super().__init__(batch, (), validate_args, {"rate": rate})

    @property
    def mean(self) -> Any:
        """rate."""
        return self.rate

    @property
    def mode(self) -> Any:
        """The rate, rounded down."""
        return lt.floor(self.rate)

    @property
    def variance(self) -> Any:
        """rate."""
        return self.rate

    def _draw(self, sample_shape: Any) -> Any:
        return poisson(self.rate, self._extended_shape(sample_shape))

    def log_prob(self, value: Any) -> Any:
        """value * log(rate) - rate - log(value!)."""
        x = self._value(value)
        return xlogy(x, self.rate) - self.rate - lt.lgamma(x + 1)


class Binomial(_OfProbability):
    """Successes in total_count trials. As `torch.distributions.Binomial`.

    A sample is the sum of that many trials, drawn at once. `total_count` as a tensor is read for its largest element.

    >>> import lazyt as lt
    >>> lt.distributions.Binomial(4, 0.25).variance.item()
    0.75
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        **_OfProbability.arg_constraints,
        "total_count": constraints.nonnegative_integer,
    }
    _support_reads = ("total_count",)
    has_enumerate_support = True

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        name, value = one_of("Binomial", probs=probs, logits=logits)
        if not is_tensor(total_count):
            counts = lt.asarray(total_count, dtype=lt.float32, device=device_of(value))
        else:
            counts = lt.astype(total_count, lt.float32)
        (n, x), batch = broadcast(self, counts, value)
        self._take(**{"probs": None, "logits": None, name: x})
        self.total_count = n
        super().__init__(batch, (), validate_args, {"total_count": total_count, name: value})

    @property
    def _dtype(self) -> Any:
        return self.probs.dtype

    def _most(self) -> int:
        return int(self._on_host("total_count").max(initial=0))

    @property
    def support(self) -> Constraint:
        """From 0 to total_count; reads it."""
        return constraints.integer_interval(0, self._most())

    @property
    def mean(self) -> Any:
        """total_count * probs."""
        return self.total_count * self.probs

    @property
    def mode(self) -> Any:
        """(total_count + 1) * probs, rounded down."""
        return lt.minimum(lt.floor((self.total_count + 1) * self.probs), self.total_count)

    @property
    def variance(self) -> Any:
        """total_count * probs * (1 - probs)."""
        return self.total_count * self.probs * (1 - self.probs)

    def _draw(self, sample_shape: Any) -> Any:
        shape, most = self._extended_shape(sample_shape), self._most()
        trial = np.arange(most, dtype=np.float32).reshape(-1, *(1,) * len(shape))
        u = self._random((most, *shape))
        return lt.sum(lt.astype((u < self.probs) & (trial < self.total_count), self._dtype), axis=0)

    def log_prob(self, value: Any) -> Any:
        """log(n over value) + value * log(probs) + (n - value) * log(1 - probs), by logits."""
        x, n = self._value(value), self.total_count
        ways = lt.lgamma(n + 1) - lt.lgamma(x + 1) - lt.lgamma(n - x + 1)
        # log(1 - probs) is -softplus(logits).
        return ways + x * self.logits - n * lt.softplus(self.logits)

    def entropy(self) -> Any:
        """The sum over all counts, where all totals are alike."""
        n = self._on_host("total_count")
        if n.size and n.min() != n.max():
            raise NotSupportedError("Binomial.entropy: not supported: total_count differs among the batch")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -lt.sum(lt.exp(log_prob) * log_prob, axis=0)

    def enumerate_support(self, expand: bool = True) -> Any:
        """From 0 to the largest total_count."""
        n = self._most() + 1
        values = lt.reshape(lt.arange(n, dtype=self._dtype, device=self._device), (n, *(1,) * len(self.batch_shape)))
        return lt.broadcast_to(values, (n, *self.batch_shape)) if expand else values


class NegativeBinomial(_OfProbability):
    """Successes before total_count failures, which need not be whole. As `torch.distributions.NegativeBinomial`.

    >>> import lazyt as lt
    >>> lt.distributions.NegativeBinomial(3.0, 0.5).mean.item()
    3.0
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
        "total_count": constraints.nonnegative,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        name, value = one_of("NegativeBinomial", probs=probs, logits=logits)
        (self.total_count, x), batch = broadcast(self, total_count, value)
        self._take(**{"probs": None, "logits": None, name: x})
        super().__init__(batch, (), validate_args, {"total_count": total_count, name: value})

    @property
    def _dtype(self) -> Any:
        return self.probs.dtype

    @property
    def mean(self) -> Any:
        """total_count * exp(logits)."""
        return self.total_count * lt.exp(self.logits)

    @property
    def mode(self) -> Any:
        """(total_count - 1) * exp(logits), rounded down, at least 0."""
        return lt.maximum(lt.floor((self.total_count - 1) * lt.exp(self.logits)), 0.0)

    @property
    def variance(self) -> Any:
        """mean / (1 - probs)."""
        return self.mean / lt.sigmoid(-self.logits)

    def _draw(self, sample_shape: Any) -> Any:
        shape = self._extended_shape(sample_shape)
        return poisson(standard_gamma(self.total_count, shape) * lt.exp(self.logits), shape)

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the number of orders, and of the probabilities."""
        x, n = self._value(value), self.total_count
        ways = lt.lgamma(n + x) - lt.lgamma(1 + x) - lt.lgamma(n)
        # Without failures to come there are no successes: lgamma(0) is infinite.
        ways = lt.where(n + x == 0, 0.0, ways)
        return ways - n * lt.softplus(self.logits) - x * lt.softplus(-self.logits)


class _OfCategories(Distribution):
    """Given by `probs`, which are normalized, or `logits`, over the last axis."""

    has_enumerate_support = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.independent(constraints.nonnegative, 1), "logits": constraints.real_vector
    }  # fmt: skip

    def _take(self, probs: Any, logits: Any) -> tuple[tuple[int, ...], dict[str, Any]]:
        name, value = one_of(type(self).__name__, probs=probs, logits=logits)
        (x,), batch = broadcast(self, value, event_dims=(1,))
        if name == "probs":
            self.probs = x / lt.sum(x, axis=-1, keepdims=True)
            self.logits = lt.log(_clamped(self.probs))
        else:
            self.logits = x - lt.logsumexp(x, axis=-1, keepdims=True)
            self.probs = lt.softmax(x, axis=-1)
        self._categories = x.shape[-1]
        return batch, {name: value}

    def _drawn(self, shape: tuple[int, ...]) -> Any:
        """Categories of a shape: the largest of the logits and Gumbel numbers."""
        noise = -lt.log(-lt.log(self._uniform((*shape, self._categories))))
        # The clamped logarithm of 0 would let what cannot happen happen.
        return lt.argmax(lt.where(self.probs > 0, self.logits, -math.inf) + noise, axis=-1)

    def _entropy(self) -> Any:
        low = float(lt.finfo(self._dtype).min)
        return -lt.sum(self.probs * lt.maximum(self.logits, low), axis=-1)


class Categorical(_OfCategories):
    """One of several categories, as an integer. As `torch.distributions.Categorical`.

    >>> import lazyt as lt
    >>> d = lt.distributions.Categorical(probs=[1.0, 3.0])
    >>> [round(x, 2) for x in d.log_prob(lt.asarray([0, 1])).exp().tolist()]
    [0.25, 0.75]
    """

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        batch, given = self._take(probs, logits)
        super().__init__(batch, (), validate_args, given)

    @property
    def support(self) -> Constraint:
        """From 0 to one less than there are categories."""
        return constraints.integer_interval(0, self._categories - 1)

    @property
    def mean(self) -> Any:
        """NaN: categories are no numbers."""
        return lt.full(self.batch_shape, math.nan, dtype=self._dtype, device=self._device)

    @property
    def variance(self) -> Any:
        """NaN: categories are no numbers."""
        return lt.full(self.batch_shape, math.nan, dtype=self._dtype, device=self._device)

    @property
    def mode(self) -> Any:
        """The likeliest category."""
        return lt.argmax(self.probs, axis=-1)

    def _draw(self, sample_shape: Any) -> Any:
        return self._drawn(self._extended_shape(sample_shape))

    def log_prob(self, value: Any) -> Any:
        """The category's logit."""
        x = self._value(value if is_tensor(value) else np.asarray(value))
        index = lt.astype(x, lt.int64)
        shape = lt.broadcast_shapes(index.shape, self.batch_shape)
        index = lt.expand_dims(lt.broadcast_to(index, shape), -1)
        logits = lt.broadcast_to(self.logits, (*shape, self._categories))
        return lt.squeeze(lt.take_along_axis(logits, index, axis=-1), axis=-1)

    def entropy(self) -> Any:
        """-sum(probs * logits)."""
        return self._entropy()

    def enumerate_support(self, expand: bool = True) -> Any:
        """All categories."""
        n = self._categories
        values = lt.reshape(lt.arange(n, device=self._device), (n, *(1,) * len(self.batch_shape)))
        return lt.broadcast_to(values, (n, *self.batch_shape)) if expand else values


class OneHotCategorical(_OfCategories):
    """One of several categories, as a vector with one 1. As `torch.distributions.OneHotCategorical`.

    >>> import lazyt as lt
    >>> lt.distributions.OneHotCategorical(probs=[0.0, 1.0]).sample().tolist()
    [0.0, 1.0]
    """

    support = constraints.one_hot

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        batch, given = self._take(probs, logits)
        super().__init__(batch, (self._categories,), validate_args, given)

    @property
    def mean(self) -> Any:
        """probs."""
        return self.probs

    @property
    def mode(self) -> Any:
        """The likeliest category."""
        return lt.astype(lt.one_hot(lt.argmax(self.probs, axis=-1), self._categories), self._dtype)

    @property
    def variance(self) -> Any:
        """probs * (1 - probs)."""
        return self.probs * (1 - self.probs)

    def _draw(self, sample_shape: Any) -> Any:
        shape = self._extended_shape(sample_shape)[:-1]
        return lt.astype(lt.one_hot(self._drawn(shape), self._categories), self._dtype)

    def log_prob(self, value: Any) -> Any:
        """The logit where the value is 1."""
        x = self._value(value)
        return lt.sum(lt.where(x == 1, self.logits, 0.0), axis=-1)

    def entropy(self) -> Any:
        """-sum(probs * logits)."""
        return self._entropy()

    def enumerate_support(self, expand: bool = True) -> Any:
        """All vectors with one 1."""
        n = self._categories
        values = lt.reshape(lt.eye(n, dtype=self._dtype, device=self._device), (n, *(1,) * len(self.batch_shape), n))
        return lt.broadcast_to(values, (n, *self.batch_shape, n)) if expand else values


class Multinomial(_OfCategories):
    """How often each category came in total_count draws. As `torch.distributions.Multinomial`.

    >>> import lazyt as lt
    >>> lt.distributions.Multinomial(4, probs=[1.0, 3.0]).mean.tolist()
    [1.0, 3.0]
    """

    has_enumerate_support = False

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, int):
            raise DistributionError(f"Multinomial: total_count is one integer for all, got {total_count!r}")
        batch, given = self._take(probs, logits)
        self.total_count = total_count
        super().__init__(batch, (self._categories,), validate_args, given, {"total_count": total_count})

    @property
    def support(self) -> Constraint:
        """Counts whose sum is total_count."""
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Any:
        """total_count * probs."""
        return self.total_count * self.probs

    @property
    def variance(self) -> Any:
        """total_count * probs * (1 - probs)."""
        return self.total_count * self.probs * (1 - self.probs)

    def _draw(self, sample_shape: Any) -> Any:
        shape = self._extended_shape(sample_shape)[:-1]
        drawn = lt.one_hot(self._drawn((self.total_count, *shape)), self._categories)
        return lt.astype(lt.sum(drawn, axis=0), self._dtype)

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the number of orders, and of each of them's probability."""
        x = self._value(value)
        ways = lt.lgamma(lt.sum(x, axis=-1) + 1) - lt.sum(lt.lgamma(x + 1), axis=-1)
        return ways + lt.sum(xlogy(x, lt.where((x == 0) & (self.probs == 0), 1.0, lt.exp(self.logits))), axis=-1)

    def entropy(self) -> Any:
        """By the binomial distributions of the counts."""
        n = float(self.total_count)
        counts = Binomial(self.total_count, probs=self.probs, validate_args=False)
        support = counts.enumerate_support(False)[1:]
        weights = lt.exp(counts.log_prob(support))
        rest = lt.sum(weights * lt.lgamma(support + 1), axis=(0, -1))
        return n * self._entropy() - math.lgamma(n + 1) + rest
