"""Distributions made of others, and the normal distribution of vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import lazyt as lt
from lazyt.distributions import constraints
from lazyt.distributions.base import HALF_LOG_2PI, Distribution, broadcast, one_of, sum_last
from lazyt.distributions.constraints import Constraint
from lazyt.distributions.discrete import Categorical
from lazyt.distributions.location_scale import Normal
from lazyt.distributions.transforms import ComposeTransform, StickBreakingTransform, Transform
from lazyt.errors import DistributionError, ShapeError


class Independent(Distribution):
    """The last axes of a batch as parts of one value. As `torch.distributions.Independent`.

    >>> import lazyt as lt
    >>> d = lt.distributions.Independent(lt.distributions.Normal(lt.zeros(3), lt.ones(3)), 1)
    >>> d.batch_shape, d.event_shape, d.log_prob(lt.zeros(3)).shape
    ((), (3,), ())
    """

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        n, batch = reinterpreted_batch_ndims, base_distribution.batch_shape
        if not 0 <= n <= len(batch):
            raise DistributionError(f"Independent: reinterpreted_batch_ndims is from 0 to {len(batch)}, got {n}")
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, n
        self.has_rsample = base_distribution.has_rsample
        at = len(batch) - n
        super().__init__(batch[:at], (*batch[at:], *base_distribution.event_shape), validate_args)

    @property
    def _dtype(self) -> Any:
        return self.base_dist._dtype

    @property
    def _device(self) -> Any:
        return self.base_dist._device

    def _knows_support(self) -> bool:
        return self.base_dist._knows_support()

    @property
    def support(self) -> Constraint:
        """The base's, of all parts."""
        return constraints.independent(self.base_dist.support, self.reinterpreted_batch_ndims)

    @property
    def mean(self) -> Any:
        """The base's."""
        return self.base_dist.mean

    @property
    def mode(self) -> Any:
        """The base's."""
        return self.base_dist.mode

    @property
    def variance(self) -> Any:
        """The base's."""
        return self.base_dist.variance

    def _draw(self, sample_shape: Any) -> Any:
        return self.base_dist._draw(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """The base's."""
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Any) -> Any:
        """The sum over the parts."""
        return sum_last(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Any:
        """The sum over the parts."""
        return sum_last(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def expand(self, batch_shape: Any) -> Independent:
        """The same distribution for a larger batch shape."""
        parts = self.event_shape[: self.reinterpreted_batch_ndims]
        base = self.base_dist.expand((*batch_shape, *parts))
        return Independent(base, self.reinterpreted_batch_ndims, self._validate)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """What transforms make of a distribution's values. As `torch.distributions.TransformedDistribution`.

    >>> import lazyt as lt
    >>> from lazyt.distributions import ExpTransform, Normal, TransformedDistribution
    >>> d = TransformedDistribution(Normal(0.0, 1.0), ExpTransform())
    >>> round(d.log_prob(1.0).item(), 4)
    -0.9189
    """

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        for t in self.transforms:
            if not isinstance(t, Transform):
                raise DistributionError(f"TransformedDistribution: transforms are required, got {type(t).__name__!r}")
        self.base_dist = base_distribution
        self.has_rsample = base_distribution.has_rsample
        whole = ComposeTransform(self.transforms)
        base = (*base_distribution.batch_shape, *base_distribution.event_shape)
        if len(base) < whole.event_dim:
            raise ShapeError(
                f"TransformedDistribution: the transforms read {whole.event_dim} axes, the base has shape {base}"
            )
        shape = whole.forward_shape(base)
        # Axes of the batch that the transforms read are parts of one value.
        more = whole.event_dim - len(base_distribution.event_shape)
        self._inner = Independent(base_distribution, more) if more > 0 else base_distribution
        event = whole.out_dim + max(-more, 0)
        at = len(shape) - event
        super().__init__(shape[:at], shape[at:], validate_args)

    @property
    def _dtype(self) -> Any:
        return self.base_dist._dtype

    @property
    def _device(self) -> Any:
        return self.base_dist._device

    def _knows_support(self) -> bool:
        return bool(self.transforms) or self.base_dist._knows_support()

    @property
    def support(self) -> Constraint:
        """What the last transform gives."""
        return self.transforms[-1].codomain if self.transforms else self.base_dist.support

    def _forward(self, x: Any) -> Any:
        for t in self.transforms:
            x = t(x)
        return x

    def _draw(self, sample_shape: Any) -> Any:
        return self._forward(self.base_dist._draw(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Any:
        """The base's, transformed."""
        return self._forward(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        """The base's at the inverse, less the logarithms of the Jacobians."""
        y = self._value(value)
        n = len(self.event_shape)
        total: Any = 0.0
        for t in reversed(self.transforms):
            x = t.inverse(y)
            n += t.event_dim - t.out_dim
            total = total - sum_last(t.log_abs_det_jacobian(x, y), n - t.event_dim)
            y = x
        return self._inner.log_prob(y) + total

    def _sign(self) -> Any:
        return ComposeTransform(self.transforms).sign

    def cdf(self, value: Any) -> Any:
        """The base's at the inverse, or 1 less it where the transforms fall."""
        y = self._value(value)
        for t in reversed(self.transforms):
            y = t.inverse(y)
        p = self.base_dist.cdf(y)
        sign = self._sign()
        return sign * (p - 0.5) + 0.5

    def icdf(self, value: Any) -> Any:
        """The base's, transformed."""
        p = self._probability(value)
        return self._forward(self.base_dist.icdf(self._sign() * (p - 0.5) + 0.5))

    def expand(self, batch_shape: Any) -> TransformedDistribution:
        """The same distribution for a larger batch shape."""
        event = ComposeTransform(self.transforms).inverse_shape((*batch_shape, *self.event_shape))
        base = self.base_dist.expand(event[: len(event) - len(self.base_dist.event_shape)])
        return TransformedDistribution(base, self.transforms, self._validate)

    def __repr__(self) -> str:
        return f"TransformedDistribution({self.base_dist}, {self.transforms})"


class LogisticNormal(TransformedDistribution):
    """Normal numbers as shares of 1, one more of them, by breaking a stick. As `torch.distributions.LogisticNormal`.

    >>> import lazyt as lt
    >>> lt.distributions.LogisticNormal(lt.zeros(2), lt.ones(2)).sample().shape
    (3,)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args)
        super().__init__(base if base.batch_shape else base.expand((1,)), StickBreakingTransform(), validate_args)

    @property
    def loc(self) -> Any:
        """Those of the normal numbers."""
        return self.base_dist.loc  # type: ignore[attr-defined]

    @property
    def scale(self) -> Any:
        """Those of the normal numbers."""
        return self.base_dist.scale  # type: ignore[attr-defined]

    def expand(self, batch_shape: Any) -> LogisticNormal:
        """The same distribution for a larger batch shape."""
        shape = (*batch_shape, self.loc.shape[-1])
        return LogisticNormal(lt.broadcast_to(self.loc, shape), lt.broadcast_to(self.scale, shape), self._validate)

    def __repr__(self) -> str:
        return f"LogisticNormal(loc: {self.loc.shape}, scale: {self.scale.shape})"


class MixtureSameFamily(Distribution):
    """One of several distributions, chosen by a Categorical. As `torch.distributions.MixtureSameFamily`.

    >>> import lazyt as lt
    >>> from lazyt.distributions import Categorical, MixtureSameFamily, Normal
    >>> d = MixtureSameFamily(Categorical(probs=[0.5, 0.5]), Normal([-1.0, 1.0], [1.0, 1.0]))
    >>> d.mean.item(), d.variance.item()
    (0.0, 2.0)
    """

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            kind = type(mixture_distribution).__name__
            raise DistributionError(f"MixtureSameFamily: a Categorical chooses the component, got {kind!r}")
        batch = component_distribution.batch_shape
        if not batch or mixture_distribution._categories != batch[-1]:
            raise ShapeError(
                f"MixtureSameFamily: {mixture_distribution._categories} categories for components of shape {batch}"
            )
        self.mixture_distribution, self.component_distribution = mixture_distribution, component_distribution
        self._events = len(component_distribution.event_shape)
        super().__init__(batch[:-1], component_distribution.event_shape, validate_args)

    @property
    def _dtype(self) -> Any:
        return self.component_distribution._dtype

    @property
    def _device(self) -> Any:
        return self.component_distribution._device

    def _knows_support(self) -> bool:
        return self.component_distribution._knows_support()

    @property
    def support(self) -> Constraint:
        """The components'."""
        return self.component_distribution.support

    def _weights(self) -> Any:
        p = self.mixture_distribution.probs
        return lt.reshape(p, (*p.shape, *(1,) * self._events))

    @property
    def mean(self) -> Any:
        """The components' means, weighted."""
        return lt.sum(self._weights() * self.component_distribution.mean, axis=-1 - self._events)

    @property
    def variance(self) -> Any:
        """The mean of the variances, and the variance of the means."""
        axis, w, c = -1 - self._events, self._weights(), self.component_distribution
        spread = c.mean - lt.expand_dims(self.mean, axis)
        return lt.sum(w * (c.variance + spread * spread), axis=axis)

    def _padded(self, value: Any) -> Any:
        return lt.expand_dims(self._value(value), -1 - self._events)

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the weighted sum of probabilities."""
        parts = self.component_distribution.log_prob(self._padded(value)) + self.mixture_distribution.logits
        return lt.logsumexp(parts, axis=-1)

    def cdf(self, value: Any) -> Any:
        """The components', weighted."""
        return lt.sum(self.component_distribution.cdf(self._padded(value)) * self.mixture_distribution.probs, axis=-1)

    def _draw(self, sample_shape: Any) -> Any:
        shape = self._extended_shape(sample_shape)
        head = shape[: len(shape) - self._events]
        chosen = self.mixture_distribution._draw(head[: len(head) - len(self.batch_shape)])
        values = self.component_distribution._draw(head[: len(head) - len(self.batch_shape)])
        axis = len(head)
        at = lt.reshape(chosen, (*head, 1, *(1,) * self._events))
        at = lt.broadcast_to(at, (*head, 1, *shape[axis:]))
        return lt.squeeze(lt.take_along_axis(values, at, axis=axis), axis=axis)

    def expand(self, batch_shape: Any) -> MixtureSameFamily:
        """The same distribution for a larger batch shape."""
        n = self.mixture_distribution._categories
        components = self.component_distribution.expand((*batch_shape, n))
        return MixtureSameFamily(self.mixture_distribution.expand(batch_shape), components, self._validate)

    def __repr__(self) -> str:
        return f"MixtureSameFamily({self.mixture_distribution}, {self.component_distribution})"


class OfCovariance(Distribution):
    """Given by a covariance, its inverse or its Cholesky factor, each of which is the others' function."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }

    def _take_matrix(self, name: str, matrix: Any) -> None:
        setattr(self, name, matrix)
        if name == "scale_tril":
            self._factor = lt.tril(matrix)  # so that no gradient reaches what is above the diagonal
        else:
            covariance = matrix if name == "covariance_matrix" else lt.linalg.inv(matrix)
            self._factor = lt.linalg.cholesky(covariance)

    def __getattr__(self, name: str) -> Any:
        # The other forms, computed when they are asked for.
        if name == "scale_tril":
            return self._factor
        if name == "covariance_matrix":
            return lt.matmul(self._factor, lt.matrix_transpose(self._factor))
        if name == "precision_matrix":
            return lt.linalg.inv(self.covariance_matrix)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _log_determinant(self) -> Any:
        """Half the covariance's."""
        return lt.sum(lt.log(lt.linalg.diagonal(self._factor)), axis=-1)


class MultivariateNormal(OfCovariance):
    """The normal distribution of vectors. As `torch.distributions.MultivariateNormal`.

    It is given by a covariance, its inverse (`precision_matrix`) or its Cholesky factor (`scale_tril`).

    >>> import lazyt as lt
    >>> d = lt.distributions.MultivariateNormal(lt.zeros(2), scale_tril=lt.asarray([[2.0, 0.0], [1.0, 1.0]]))
    >>> d.variance.tolist()
    [4.0, 2.0]
    """

    has_rsample = True
    support = constraints.real_vector
    arg_constraints: ClassVar[dict[str, Constraint]] = {**OfCovariance.arg_constraints, "loc": constraints.real_vector}

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        name, value = one_of(
            "MultivariateNormal",
            covariance_matrix=covariance_matrix, precision_matrix=precision_matrix, scale_tril=scale_tril,
        )  # fmt: skip
        (self.loc, matrix), batch = broadcast(self, loc, value, event_dims=(1, 2))
        n = self.loc.shape[-1]
        if matrix.shape[-2:] != (n, n):
            raise ShapeError(f"MultivariateNormal: loc has {n} elements, {name} has shape {matrix.shape}")
        self._take_matrix(name, matrix)
        super().__init__(batch, (n,), validate_args, {"loc": loc, name: value})

    @property
    def mean(self) -> Any:
        """loc."""
        return self.loc

    @property
    def mode(self) -> Any:
        """loc."""
        return self.loc

    @property
    def variance(self) -> Any:
        """The covariance's diagonal."""
        return lt.sum(self._factor * self._factor, axis=-1)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """loc + the Cholesky factor times normal numbers."""
        x = self._normal(self._extended_shape(sample_shape))
        return self.loc + lt.squeeze(lt.matmul(self._factor, lt.expand_dims(x, -1)), axis=-1)

    def log_prob(self, value: Any) -> Any:
        """By a solution with the Cholesky factor."""
        away = self._value(value) - self.loc
        factor = lt.broadcast_to(self._factor, (*away.shape, away.shape[-1]))
        z = lt.squeeze(lt.linalg.solve(factor, lt.expand_dims(away, -1)), axis=-1)
        return -0.5 * lt.sum(z * z, axis=-1) - self._log_determinant() - self.loc.shape[-1] * HALF_LOG_2PI

    def entropy(self) -> Any:
        """n / 2 * (1 + log(2 pi)) + half the covariance's log determinant."""
        return self._log_determinant() + self.loc.shape[-1] * (0.5 + 0.5 * math.log(2 * math.pi))
