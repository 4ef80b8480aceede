"""Functions of matrices that are products of others: the exponential, and products of Householder reflections."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.errors import DTypeError, ShapeError
from lazyt.functions.arguments import tensor
from lazyt.functions.arithmetic import clip
from lazyt.functions.creation import eye, tril, triu
from lazyt.functions.elementwise import ceil, exp2, log2
from lazyt.functions.linalg import matrix_norm, solve
from lazyt.functions.logic import greater, where
from lazyt.functions.manipulation import astype, expand_dims
from lazyt.functions.products import matmul, matrix_transpose
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = ["householder_product", "matrix_exp"]

# How many squarings there may be: more than for any matrix of floats whose exponential is worth having.
_SQUARINGS = 16
# Norms up to which the Taylor polynomial of degree 18 is exact to rounding.
_SMALL = {4: 3.010066362817634, 8: 1.090863719290036}


def _floating(name: str, x: Any) -> Tensor:
    t = tensor(x)
    if dtypes.kind(t.dtype) not in "fc":
        raise DTypeError(f"linalg.{name}: floating numbers are required, got {t.dtype}")
    return t


def _taylor(x: Tensor) -> Tensor:
    """The Taylor polynomial of the exponential, of degree 18 (Paterson, Stockmeyer 1973: 7 products)."""
    powers = [eye(x.shape[-1], dtype=x.dtype, device=x.device), x]
    for _ in range(5):
        powers.append(matmul(powers[-1], x))

    def part(first: int, n: int) -> Tensor:
        total = powers[0] / math.factorial(first)
        for k in range(1, n):
            total = total + powers[k] / math.factorial(first + k)
        return total

    return part(0, 6) + matmul(powers[6], part(6, 6) + matmul(powers[6], part(12, 7)))


def matrix_exp(x: Any, /) -> Tensor:
    """The exponentials of square matrices (..., n, n).

    By scaling, a polynomial, and squarings: 23 products whatever the values are, for norms up to 65,536 (float64). Of
    float16 and bfloat16 it is computed in float32. Raises ShapeError unless square, DTypeError unless floating. As
    `torch.linalg.matrix_exp`. Bader, Blanes, Casas (2019).

    >>> import lazyt as lt
    >>> lt.linalg.matrix_exp(lt.zeros((2, 2))).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    t = _floating("matrix_exp", x)
    if t.ndim < 2 or t.shape[-1] != t.shape[-2]:
        raise ShapeError(f"linalg.matrix_exp: square matrices (..., n, n) are required, got shape {t.shape}")
    if t.dtype.itemsize == 2:
        return astype(matrix_exp(astype(t, dtypes.float32)), t.dtype)
    part = t.dtype.itemsize // (2 if dtypes.kind(t.dtype) == "c" else 1)
    norm = matrix_norm(t.detach(), ord=1, keepdims=True)
    halvings = clip(ceil(log2(norm / _SMALL[part])), 0, _SQUARINGS)
    out = _taylor(t * exp2(-halvings))
    for k in range(_SQUARINGS):
        out = where(greater(halvings, k), matmul(out, out), out)
    return out


def householder_product(x: Any, tau: Any, /) -> Tensor:
    """The first n columns of H_1 @ ... @ H_k, for H_i = I - tau_i v_i v_i^H: (..., m, n) and (..., k) give (..., m, n).

    v_i is 0 above its place i, 1 there, and column i of x below. Raises ShapeError unless m >= n >= k, DTypeError
    unless floating. As `torch.linalg.householder_product`.

    >>> import lazyt as lt
    >>> lt.linalg.householder_product(lt.zeros((2, 1)), lt.asarray([2.0])).tolist()
    [[-1.0], [0.0]]
    """
    t, factors = _floating("householder_product", x), _floating("householder_product", tau)
    k = factors.shape[-1] if factors.ndim else 0
    if t.ndim < 2 or not t.shape[-2] >= t.shape[-1] >= k or factors.shape[:-1] != t.shape[:-2]:
        raise ShapeError(
            "linalg.householder_product: shapes (..., m, n) and (..., k) with m >= n >= k are required, got "
            f"{t.shape} and {factors.shape}"
        )
    m, n = t.shape[-2:]
    options: dict[str, Any] = {"dtype": t.dtype, "device": t.device}
    # The product is I - v @ T @ v^H, and the inverse of T an upper triangle (Schreiber, Van Loan 1989).
    v = tril(t[..., :k], -1) + eye(m, k, **options)
    adjoint = matrix_transpose(v.conj())
    rows = expand_dims(factors, -1)
    upper = eye(k, **options) + rows * triu(matmul(adjoint, v), 1)
    return eye(m, n, **options) - matmul(v, solve(upper, rows * adjoint[..., :n]))
