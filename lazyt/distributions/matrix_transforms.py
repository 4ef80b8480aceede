"""Transforms of numbers to triangular and to positive definite matrices. As `torch.distributions.transforms`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.distributions import constraints
from lazyt.distributions.transforms import NoSign, Transform
from lazyt.errors import ShapeError


class LowerCholeskyTransform(Transform):
    """What is below the diagonal, and exp of the diagonal. As `torch.distributions.LowerCholeskyTransform`.

    >>> import lazyt as lt
    >>> lt.distributions.LowerCholeskyTransform()(lt.asarray([[0.0, 5.0], [2.0, 0.0]])).tolist()
    [[1.0, 0.0], [2.0, 1.0]]
    """

    event_dim = 2
    bijective = False
    codomain = constraints.lower_cholesky
    sign = NoSign()

    def _with_diagonal(self, x: Any, f: Any) -> Any:
        identity = lt.eye(x.shape[-1], dtype=x.dtype, device=x.device)
        return lt.tril(x, -1) + lt.expand_dims(f(lt.linalg.diagonal(x)), -1) * identity

    def _call(self, x: Any) -> Any:
        return self._with_diagonal(x, lt.exp)

    def _inverse(self, y: Any) -> Any:
        return self._with_diagonal(y, lt.log)


class PositiveDefiniteTransform(LowerCholeskyTransform):
    """A LowerCholeskyTransform's matrix times its transpose. As `torch.distributions.PositiveDefiniteTransform`.

    >>> import lazyt as lt
    >>> lt.distributions.PositiveDefiniteTransform()(lt.asarray([[0.0, 5.0], [2.0, 0.0]])).tolist()
    [[1.0, 2.0], [2.0, 5.0]]
    """

    codomain = constraints.positive_definite

    def _call(self, x: Any) -> Any:
        factor = super()._call(x)
        return lt.matmul(factor, lt.matrix_transpose(factor))

    def _inverse(self, y: Any) -> Any:
        return super()._inverse(lt.linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """n (n - 1) / 2 numbers to the Cholesky factor of a correlation matrix of size n, by breaking sticks row by row.

    As `torch.distributions.CorrCholeskyTransform`; the Jacobian is that of what is below the diagonal.

    >>> import lazyt as lt
    >>> y = lt.distributions.CorrCholeskyTransform()(lt.asarray([0.5, -1.0, 2.0]))
    >>> y.shape, (y * y).sum(-1).round(4).tolist()
    ((3, 3), [1.0, 1.0, 1.0])
    """

    event_dim = 1
    out_dim = 2
    codomain = constraints.corr_cholesky
    sign = NoSign()

    def _below(self, y: Any, diagonal: int = -1) -> Any:
        """What is below the diagonal, row by row."""
        n = y.shape[-1]
        rows, columns = np.tril_indices(n, diagonal)
        return lt.take(lt.reshape(y, (*y.shape[:-2], n * n)), rows * n + columns, axis=-1)

    def _call(self, x: Any) -> Any:
        n = self.forward_shape(x.shape)[-1]
        eps = float(lt.finfo(x.dtype).eps)
        at = np.zeros((n, n), np.int64)
        at[np.tril_indices(n, -1)] = np.arange(n * (n - 1) // 2)
        r = lt.tril(lt.take(lt.clip(lt.tanh(x), -1 + eps, 1 - eps), at, axis=-1), -1)
        left = lt.cumulative_prod(lt.sqrt(1 - r * r), axis=-1)
        one = lt.ones((*r.shape[:-1], 1), dtype=x.dtype, device=x.device)
        return (r + lt.eye(n, dtype=x.dtype, device=x.device)) * lt.concat([one, left[..., :-1]], axis=-1)

    def _left(self, y: Any) -> Any:
        """What is left of 1 behind each square of a row."""
        return 1 - lt.cumulative_sum(y * y, axis=-1)

    def _inverse(self, y: Any) -> Any:
        one = lt.ones((*y.shape[:-1], 1), dtype=y.dtype, device=y.device)
        left = lt.concat([one, self._left(y)[..., :-1]], axis=-1)
        return lt.atanh(self._below(y) / lt.sqrt(self._below(left)))

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """That of the sticks and that of tanh."""
        sticks = 0.5 * lt.sum(lt.log(self._below(self._left(y), -2)), axis=-1)
        return sticks - 2 * lt.sum(x + lt.softplus(-2 * x) - math.log(2), axis=-1)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A square matrix for the last axis."""
        count = shape[-1]
        n = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != count:
            raise ShapeError(f"CorrCholeskyTransform: n (n - 1) / 2 numbers are required, got {count}")
        return (*shape[:-1], n, n)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """What is below the diagonal."""
        n = shape[-1]
        if shape[-2:] != (n, n):
            raise ShapeError(f"CorrCholeskyTransform: square matrices are required, got shape {shape}")
        return (*shape[:-2], n * (n - 1) // 2)
