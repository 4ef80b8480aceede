"""Distributions of matrices."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

import lazyt as lt
from lazyt.distributions import constraints
from lazyt.distributions.base import Distribution, broadcast, one_of
from lazyt.distributions.composed import OfCovariance
from lazyt.distributions.constraints import Constraint
from lazyt.distributions.special import standard_gamma
from lazyt.errors import DistributionError, ShapeError


class Wishart(OfCovariance):
    """Sums of df outer products of normal vectors of a covariance. As `torch.distributions.Wishart`.

    It is given by a covariance, its inverse (`precision_matrix`) or its Cholesky factor (`scale_tril`); df is above the
    matrix's size less 1. Samples are by Bartlett's decomposition (Odell, Feiveson 1966); where df is small they may be
    singular in float32, and none is drawn again, which would sync.

    >>> import lazyt as lt
    >>> d = lt.distributions.Wishart(4.0, scale_tril=lt.eye(2))
    >>> d.mean.tolist(), d.sample().shape
    ([[4.0, 0.0], [0.0, 4.0]], (2, 2))
    """

    has_rsample = True
    support = constraints.positive_definite
    arg_constraints: ClassVar[dict[str, Constraint]] = {**OfCovariance.arg_constraints, "df": constraints.positive}

    def __init__(
        self,
        df: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        name, value = one_of(
            "Wishart", covariance_matrix=covariance_matrix, precision_matrix=precision_matrix, scale_tril=scale_tril
        )
        (self.df, matrix), batch = broadcast(self, df, value, event_dims=(0, 2))
        n = matrix.shape[-1]
        if matrix.shape[-2] != n:
            raise ShapeError(f"Wishart: a square {name} is required, got shape {matrix.shape}")
        self._take_matrix(name, matrix)
        super().__init__(batch, (n, n), validate_args, {"df": df, name: value})
        self._check("df", constraints.greater_than(n - 1), df)

    @property
    def _dtype(self) -> Any:
        return self._factor.dtype

    def _of_matrix(self, x: Any) -> Any:
        return lt.expand_dims(x, (-2, -1))

    @property
    def mean(self) -> Any:
        """df times the covariance."""
        return self._of_matrix(self.df) * self.covariance_matrix

    @property
    def mode(self) -> Any:
        """(df - n - 1) times the covariance; NaN where df is at most n + 1."""
        factor = self.df - self.event_shape[-1] - 1
        return self._of_matrix(lt.where(factor <= 0, math.nan, factor)) * self.covariance_matrix

    @property
    def variance(self) -> Any:
        """df (V_ij**2 + V_ii V_jj)."""
        v = self.covariance_matrix
        diagonal = lt.linalg.diagonal(v)
        return self._of_matrix(self.df) * (v * v + lt.expand_dims(diagonal, -1) * lt.expand_dims(diagonal, -2))

    def rsample(self, sample_shape: Any = ()) -> Any:
        """The covariance's factor times a triangle of normal numbers with roots of chi-squared ones on its diagonal."""
        shape = self._extended_shape(sample_shape)
        n = shape[-1]
        df = lt.expand_dims(self.df, -1) - lt.arange(n, dtype=self._dtype, device=self._device)
        roots = lt.sqrt(2 * standard_gamma(0.5 * df, shape[:-1]))
        noise = lt.tril(self._normal(shape), -1) + lt.expand_dims(roots, -1) * lt.eye(
            n, dtype=self._dtype, device=self._device
        )
        root = lt.matmul(self._factor, noise)
        return lt.matmul(root, lt.matrix_transpose(root))

    def _half_log_determinant(self) -> Any:
        """Half that of twice the covariance."""
        return self._log_determinant() + self.event_shape[-1] * math.log(2) / 2

    def log_prob(self, value: Any) -> Any:
        """By the value's log determinant and the trace of the precision times it."""
        x, n = self._value(value), self.event_shape[-1]
        covariance = lt.broadcast_to(self.covariance_matrix, lt.broadcast_shapes(x.shape, self._factor.shape))
        trace = lt.sum(lt.linalg.diagonal(lt.linalg.solve(covariance, x)), axis=-1)
        norm = self.df * self._half_log_determinant() + lt.mvlgamma(self.df / 2, n)
        return (self.df - n - 1) / 2 * lt.linalg.slogdet(x)[1] - 0.5 * trace - norm

    def entropy(self) -> Any:
        """By the multivariate gamma function and its logarithmic derivative."""
        n = self.event_shape[-1]
        slope = lt.sum(
            lt.digamma(lt.expand_dims(self.df / 2, -1) - lt.arange(n, dtype=self._dtype, device=self._device) / 2),
            axis=-1,
        )
        first = (n + 1) * self._half_log_determinant() + lt.mvlgamma(self.df / 2, n)
        return first - (self.df - n - 1) / 2 * slope + self.df * n / 2


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices, of density det**(concentration - 1) of the matrix.

    Lewandowski, Kurowicka, Joe (2009): samples by the onion method. As `torch.distributions.LKJCholesky`.

    >>> import lazyt as lt
    >>> d = lt.distributions.LKJCholesky(3, 1.5)
    >>> x = d.sample()
    >>> x.shape, (x @ x.T).diagonal().round(4).tolist()
    ((3, 3), [1.0, 1.0, 1.0])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if not isinstance(dim, int) or dim < 2:
            raise DistributionError(f"LKJCholesky: dim is an integer of at least 2, got {dim!r}")
        self.dim = dim
        (self.concentration,), batch = broadcast(self, concentration)
        super().__init__(batch, (dim, dim), validate_args, {"concentration": concentration}, {"dim": dim})

    def _draw(self, sample_shape: Any) -> Any:
        shape = self._extended_shape(sample_shape)
        offset = lt.asarray(np.array([0, *range(self.dim - 1)]) / 2, dtype=self._dtype, device=self._device)
        other = lt.expand_dims(self.concentration + 0.5 * (self.dim - 2), -1) - offset
        a, b = (standard_gamma(c, shape[:-1]) for c in (lt.broadcast_to(offset + 0.5, other.shape), other))
        directions = lt.tril(self._normal(shape), -1)
        length = lt.sqrt(lt.sum(directions * directions, axis=-1, keepdims=True))
        # The first row has no direction.
        rows = lt.expand_dims(lt.sqrt(a / (a + b)), -1) * directions / lt.where(length > 0, length, 1.0)
        tiny = float(lt.finfo(self._dtype).tiny)
        rest = lt.sqrt(lt.maximum(1 - lt.sum(rows * rows, axis=-1, keepdims=True), tiny))
        return rows + rest * lt.eye(self.dim, dtype=self._dtype, device=self._device)

    def log_prob(self, value: Any) -> Any:
        """The sum of (2 concentration - 2 + dim - i) log(x_ii), less the logarithm of its integral."""
        n, c = self.dim, self.concentration
        diagonal = lt.linalg.diagonal(self._value(value))[..., 1:]
        order = 2 * lt.expand_dims(c - 1, -1) + lt.asarray(
            n - np.arange(2, n + 1), dtype=self._dtype, device=self._device
        )
        alpha = c + 0.5 * (n - 1)
        norm = 0.5 * (n - 1) * math.log(math.pi) + lt.mvlgamma(alpha - 0.5, n - 1) - (n - 1) * lt.lgamma(alpha)
        return lt.sum(order * lt.log(diagonal), axis=-1) - norm
