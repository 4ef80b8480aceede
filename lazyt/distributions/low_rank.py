"""The normal distribution of vectors whose covariance is of low rank beside its diagonal."""

from __future__ import annotations

from typing import Any, ClassVar

import lazyt as lt
from lazyt.distributions import constraints
from lazyt.distributions.base import HALF_LOG_2PI, Distribution, broadcast
from lazyt.distributions.constraints import Constraint
from lazyt.errors import ShapeError


class LowRankMultivariateNormal(Distribution):
    """Of covariance W W^T + D, W = `cov_factor` and D = `cov_diag`. As `torch.distributions.LowRankMultivariateNormal`.

    What is factored is of W's rank, by the matrix determinant lemma and Woodbury's identity.

    >>> import lazyt as lt
    >>> d = lt.distributions.LowRankMultivariateNormal(lt.zeros(2), lt.asarray([[1.0], [0.0]]), lt.ones(2))
    >>> d.variance.tolist()
    [2.0, 1.0]
    """

    has_rsample = True
    support = constraints.real_vector
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None) -> None:
        (self.loc, self.cov_factor, self.cov_diag), batch = broadcast(
            self, loc, cov_factor, cov_diag, event_dims=(1, 2, 1)
        )  # fmt: skip
        n = self.loc.shape[-1]
        if self.cov_factor.shape[-2] != n or self.cov_diag.shape[-1] != n:
            raise ShapeError(
                f"LowRankMultivariateNormal: loc has {n} elements, cov_factor has shape {self.cov_factor.shape}, "
                f"cov_diag {self.cov_diag.shape}"
            )
        given = {"loc": loc, "cov_factor": cov_factor, "cov_diag": cov_diag}
        super().__init__(batch, (n,), validate_args, given)
        # W^T D^-1, and the Cholesky factor of I + W^T D^-1 W.
        self._scaled = lt.matrix_transpose(self.cov_factor) / lt.expand_dims(self.cov_diag, -2)
        rank = self.cov_factor.shape[-1]
        self._factor = lt.linalg.cholesky(
            lt.matmul(self._scaled, self.cov_factor) + lt.eye(rank, dtype=self.loc.dtype, device=self.loc.device)
        )

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
        return lt.sum(self.cov_factor * self.cov_factor, axis=-1) + self.cov_diag

    @property
    def covariance_matrix(self) -> Any:
        """W W^T + D."""
        return lt.matmul(self.cov_factor, lt.matrix_transpose(self.cov_factor)) + self._diagonal(self.cov_diag)

    @property
    def precision_matrix(self) -> Any:
        """The covariance's inverse, by Woodbury's identity."""
        a = lt.linalg.solve(self._factor, self._scaled)
        return self._diagonal(1 / self.cov_diag) - lt.matmul(lt.matrix_transpose(a), a)

    @property
    def scale_tril(self) -> Any:
        """The covariance's Cholesky factor."""
        return lt.linalg.cholesky(self.covariance_matrix)

    def _diagonal(self, x: Any) -> Any:
        return lt.expand_dims(x, -1) * lt.eye(x.shape[-1], dtype=x.dtype, device=x.device)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """loc + W times normal numbers + sqrt(D) times others."""
        shape = self._extended_shape(sample_shape)
        along = self._normal((*shape[:-1], self.cov_factor.shape[-1], 1))
        spread = lt.squeeze(lt.matmul(self.cov_factor, along), axis=-1)
        return self.loc + spread + lt.sqrt(self.cov_diag) * self._normal(shape)

    def _log_determinant(self) -> Any:
        """Half the covariance's."""
        return lt.sum(lt.log(lt.linalg.diagonal(self._factor)), axis=-1) + 0.5 * lt.sum(lt.log(self.cov_diag), axis=-1)

    def _whitened(self, x: Any) -> Any:
        """The sum of squares of columns x (..., n, k) less what the low rank takes: the trace of x^T precision x."""
        scaled = lt.matmul(self._scaled, x)
        factor = lt.broadcast_to(self._factor, (*scaled.shape[:-2], *self._factor.shape[-2:]))
        a = lt.linalg.solve(factor, scaled)
        return lt.sum(x * x / lt.expand_dims(self.cov_diag, -1), axis=(-2, -1)) - lt.sum(a * a, axis=(-2, -1))

    def log_prob(self, value: Any) -> Any:
        """By solutions of the rank's size."""
        away = lt.expand_dims(self._value(value) - self.loc, -1)
        return -0.5 * self._whitened(away) - self._log_determinant() - self.loc.shape[-1] * HALF_LOG_2PI

    def entropy(self) -> Any:
        """n / 2 * (1 + log(2 pi)) + half the covariance's log determinant."""
        return self._log_determinant() + self.loc.shape[-1] * (0.5 + HALF_LOG_2PI)
