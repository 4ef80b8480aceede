"""Weights that stay orthogonal while they are trained."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, LazytError, NotSupportedError, ShapeError
from lazyt.functions.conversion import asarray
from lazyt.functions.creation import eye, tril, zeros
from lazyt.functions.elementwise import absolute, sign, trunc
from lazyt.functions.joining import concat
from lazyt.functions.linalg import qr, solve
from lazyt.functions.logic import less_equal, where
from lazyt.functions.manipulation import expand_dims
from lazyt.functions.matrix_functions import householder_product, matrix_exp
from lazyt.functions.products import diagonal, matmul, matrix_transpose
from lazyt.functions.random import standard_normal
from lazyt.functions.reductions import amax
from lazyt.ir import dtypes
from lazyt.nn.init import drawn_on
from lazyt.nn.module import Module
from lazyt.nn.utils.parametrize import register_parametrization
from lazyt.tracing.current import restore_grad_mode, set_grad_mode

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

_MAPS = ("matrix_exp", "cayley", "householder")


def _adjoint(x: Any) -> Tensor:
    return matrix_transpose(x.conj() if dtypes.kind(x.dtype) == "c" else x)


def _orthogonalized(x: Any) -> Tensor:
    """The Q of a decomposition whose R has a positive diagonal."""
    q, r = qr(x)
    return q * expand_dims(sign(diagonal(r, 0, -2, -1)), -2)


def _kept_or_made(x: Any) -> Tensor:
    """x if it is orthogonal to rounding, else orthogonalized."""
    n = x.shape[-1]
    error = amax(
        absolute(matmul(_adjoint(x), x) - eye(n, dtype=x.dtype, device=x.device)), axis=(-2, -1), keepdims=True
    )
    return where(less_equal(error, 10 * n * float(np.finfo(x.dtype).eps)), x, _orthogonalized(x))


class Orthogonal(Module):
    """A matrix, or matrices, as an orthogonal function of one without constraints."""

    def __init__(self, weight: Any, orthogonal_map: str, use_trivialization: bool = True) -> None:
        super().__init__()
        self.shape, self.orthogonal_map, self.use_trivialization = weight.shape, orthogonal_map, use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Any) -> Any:
        wide = x.shape[-2] < x.shape[-1]
        x = matrix_transpose(x) if wide else x
        q = self._reflected(x) if self.orthogonal_map == "householder" else self._rotated(x)
        if self.use_trivialization:
            q = matmul(self.base, q)
        return matrix_transpose(q) if wide else q

    def _rotated(self, x: Any) -> Tensor:
        """A function of the skew-symmetric matrix that the lower triangle of x makes."""
        n, k = x.shape[-2:]
        x = tril(x)
        if n != k:
            x = concat([x, zeros((*x.shape[:-2], n, n - k), dtype=x.dtype, device=x.device)], axis=-1)
        skew = x - _adjoint(x)
        if self.orthogonal_map == "matrix_exp":
            return matrix_exp(skew)[..., :k]
        one = eye(n, dtype=x.dtype, device=x.device)
        return solve(one - 0.5 * skew, one + 0.5 * skew)[..., :k]

    def _reflected(self, x: Any) -> Tensor:
        """Reflections by the columns below the diagonal of x, whose elements are signs."""
        v = tril(x, -1)
        signs = trunc(diagonal(x.detach(), 0, -2, -1))
        return householder_product(v, 2.0 / (1.0 + (v * v).sum(axis=-2))) * expand_dims(signs, -2)

    def right_inverse(self, value: Any) -> Any:
        """What gives `value`, or the orthogonal matrix that its decomposition has."""
        if tuple(value.shape) != tuple(self.shape):
            raise ShapeError(f"orthogonal: a tensor of shape {self.shape} is required, got {value.shape}")
        if not self.use_trivialization and self.orthogonal_map != "householder":
            raise NotSupportedError(
                f"orthogonal: not supported: assigning to a weight by {self.orthogonal_map} with "
                "use_trivialization=False, because that map has no inverse here; use_trivialization=True has a base"
            )
        before = set_grad_mode(False)
        try:
            return self._inverse(value.detach())
        finally:
            restore_grad_mode(before)

    def _inverse(self, value: Tensor) -> Tensor:
        wide = value.shape[-2] < value.shape[-1]
        q = matrix_transpose(value) if wide else value
        n, k = q.shape[-2:]
        if not self.use_trivialization:
            made = _reflections(q)
            return matrix_transpose(made) if wide else made
        if n == k:
            self.base = _kept_or_made(q)
        else:
            with drawn_on(q):
                more = standard_normal((*q.shape[:-2], n, n - k), dtype=q.dtype)
            self.base = _orthogonalized(concat([q, more], axis=-1))
        # By reflections, the map of zeros with this diagonal is the identity; by the others, whatever the diagonal is.
        return zeros(value.shape, dtype=value.dtype, device=value.device) - eye(
            *value.shape[-2:], dtype=value.dtype, device=value.device
        )


def _reflections(q: Tensor) -> Tensor:
    """The reflections whose product is the Q of q, as columns, with the signs of R in the diagonal."""
    columns, factors = [], []
    matrices = q.numpy()
    for one in matrices.reshape(math.prod(matrices.shape[:-2]), *matrices.shape[-2:]):
        h, tau = np.linalg.qr(one, mode="raw")
        columns.append(h.T)
        factors.append(tau)
    a = np.stack(columns).reshape(matrices.shape)
    tau = np.stack(factors).reshape(*matrices.shape[:-2], -1)
    at = np.arange(a.shape[-1])
    signs = np.sign(a[..., at, at]) * np.where(tau == 0, -1, 1)
    a[..., at, at] = signs
    return asarray(a, device=q.device)


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Keep a weight (..., m, n) orthogonal: its columns orthonormal, or its rows if there are fewer of these.

    It is `matrix_exp` or `cayley` of a skew-symmetric matrix (the first by default for square matrices), or a product
    of reflections (`householder`), times a `base`, at which the weight begins: the weight itself if it is orthogonal,
    else the Q of its decomposition. Without `use_trivialization` there is no base; then `householder` syncs once to
    begin. Raises LazytError if there is no such tensor, ShapeError unless it has matrices, DTypeError for reflections
    of complex numbers. As `torch.nn.utils.parametrizations.orthogonal`. Lezcano Casado (2019).

    >>> import lazyt as lt
    >>> w = lt.nn.utils.parametrizations.orthogonal(lt.nn.Linear(3, 3)).weight
    >>> bool((lt.abs(w.mT @ w - lt.eye(3)) < 1e-5).all())
    True
    """
    weight = getattr(module, name, None)
    if weight is None or not hasattr(weight, "shape"):
        raise LazytError(f"orthogonal: {type(module).__name__} has no parameter or buffer {name!r}")
    if len(weight.shape) < 2:
        raise ShapeError(f"orthogonal: matrices (..., m, n) are required, got {name!r} of shape {weight.shape}")
    is_complex = dtypes.kind(weight.dtype) == "c"
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or is_complex else "householder"
    if orthogonal_map not in _MAPS:
        raise LazytError(f"orthogonal: orthogonal_map is one of {', '.join(_MAPS)}, got {orthogonal_map!r}")
    if is_complex and orthogonal_map == "householder":
        raise DTypeError(
            f"orthogonal: not supported: householder of {weight.dtype}, because reflections do not give all unitary "
            "matrices; use matrix_exp or cayley"
        )
    made = Orthogonal(weight, orthogonal_map, use_trivialization)
    return register_parametrization(module, name, made, unsafe=True)
