"""Linear algebra (`lazyt.linalg`): all of the Array API's extension, and a little more."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lazyt.errors import ShapeError
from lazyt.functions import products
from lazyt.functions.arguments import adopted, axes as regular_axes, record, record_many, tensor, tensors
from lazyt.functions.arithmetic import divide
from lazyt.functions.creation import eye, full_like
from lazyt.functions.elementwise import isfinite, isnan
from lazyt.functions.logic import logical_and, logical_not, not_equal, where
from lazyt.functions.manipulation import astype, moveaxis, reshape
from lazyt.functions.numpy_calls import refuse_gradient
from lazyt.functions.products import cross, matmul, matrix_transpose, tensordot, vecdot
from lazyt.functions.reductions import all as all_, any as any_
from lazyt.ir import dtypes
from lazyt.ir.library_calls import NO_GRADIENT, check_svd
from lazyt.ops import linalg as ops
from lazyt.ops.axes import integer
from lazyt.tracing.autocast import autocasts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.runtime.tensor import Tensor

__all__ = [
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors in columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EigResult(NamedTuple):
    """Eigenvalues in no order, and eigenvectors in columns; complex."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """Orthonormal columns, and an upper triangle."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """The determinant as a sign and the logarithm of its magnitude."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """Left singular vectors, singular values in descending order, right singular vectors in rows."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def inv(x: Any, /) -> Tensor:
    """The inverses of square matrices (..., n, n). Raises ShapeError, DTypeError; LinAlgError at the sync if singular.

    As `numpy.linalg.inv`.

    >>> import lazyt as lt
    >>> lt.linalg.inv(lt.asarray([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return record(ops.INV, (x,))


def det(x: Any, /) -> Tensor:
    """The determinants of square matrices: (..., n, n) gives (...). Raises ShapeError, DTypeError.

    As `numpy.linalg.det`.

    >>> import lazyt as lt
    >>> lt.linalg.det(lt.asarray([[2.0, 0.0], [0.0, 4.0]])).item()
    8.0
    """
    return record(ops.DET, (x,))


def slogdet(x: Any, /) -> SlogdetResult:
    """The sign and the logarithm of the magnitude of determinants. Raises ShapeError, DTypeError.

    As `numpy.linalg.slogdet`.

    >>> import lazyt as lt
    >>> lt.linalg.slogdet(lt.asarray([[1.0, 0.0], [0.0, -1.0]])).sign.item()
    -1.0
    """
    return SlogdetResult(*record_many(ops.SLOGDET, (x,)))


def cholesky(x: Any, /, *, upper: bool = False) -> Tensor:
    """The lower (or upper) triangular L of a positive definite L @ L.H. Only the lower triangle of x is read.

    Raises ShapeError, DTypeError; LinAlgError at the sync if x is not positive definite. As `numpy.linalg.cholesky`.

    >>> import lazyt as lt
    >>> lt.linalg.cholesky(lt.asarray([[4.0, 0.0], [0.0, 9.0]])).tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    return record(ops.CHOLESKY, (x,), (bool(upper),))


def eigh(x: Any, /) -> EighResult:
    """Eigenvalues (ascending) and eigenvectors of symmetric or Hermitian matrices; the lower triangle is read.

    Eigenvectors have any sign (of many matrices at once on the CPU other signs than NumPy's). Raises ShapeError,
    DTypeError. As `numpy.linalg.eigh`.

    >>> import lazyt as lt
    >>> lt.linalg.eigh(lt.asarray([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
    [1.0, 2.0]
    """
    return EighResult(*record_many(ops.EIGH, (x,)))


def eigvalsh(x: Any, /) -> Tensor:
    """The eigenvalues (ascending) of symmetric or Hermitian matrices. Raises ShapeError, DTypeError.

    As `numpy.linalg.eigvalsh`.

    >>> import lazyt as lt
    >>> lt.linalg.eigvalsh(lt.asarray([[2.0, 0.0], [0.0, 1.0]])).tolist()
    [1.0, 2.0]
    """
    return record(ops.EIGVALSH, (x,))


def eig(x: Any, /) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices, always complex; not differentiable.

    Raises ShapeError, DTypeError. As `numpy.linalg.eig`.

    >>> import lazyt as lt
    >>> lt.linalg.eig(lt.asarray([[2.0]])).eigenvalues.tolist()
    [(2+0j)]
    """
    refuse_gradient("linalg.eig", (x,), NO_GRADIENT["linalg_eig"])
    return EigResult(*record_many(ops.EIG, (x,)))


def eigvals(x: Any, /) -> Tensor:
    """The eigenvalues of square matrices, always complex; not differentiable. Raises ShapeError, DTypeError.

    As `numpy.linalg.eigvals`.

    >>> import lazyt as lt
    >>> lt.linalg.eigvals(lt.asarray([[2.0]])).tolist()
    [(2+0j)]
    """
    refuse_gradient("linalg.eigvals", (x,), NO_GRADIENT["linalg_eigvals"])
    return record(ops.EIGVALS, (x,))


def svd(x: Any, /, full_matrices: bool = True) -> SVDResult:
    """The singular value decomposition U @ diag(S) @ Vh of (..., m, n).

    U is (..., m, m) and Vh (..., n, n), or (..., m, k) and (..., k, n), k = min(m, n), without `full_matrices`. Vectors
    have any sign (of many matrices at once on the CPU other signs than NumPy's). Raises
    ShapeError, DTypeError; LinAlgError at the sync if x holds NaN or an infinity (with which NumPy may never return).
    As `numpy.linalg.svd`.

    >>> import lazyt as lt
    >>> lt.linalg.svd(lt.asarray([[3.0, 0.0], [0.0, 4.0]])).S.tolist()
    [4.0, 3.0]
    """
    return SVDResult(*record_many(ops.SVD, (x,), (bool(full_matrices),)))


def svdvals(x: Any, /) -> Tensor:
    """The singular values in descending order: (..., m, n) gives (..., min(m, n)). Raises ShapeError, DTypeError.

    As `numpy.linalg.svdvals`.

    >>> import lazyt as lt
    >>> lt.linalg.svdvals(lt.asarray([[3.0, 0.0], [0.0, 4.0]])).tolist()
    [4.0, 3.0]
    """
    return record(ops.SVDVALS, (x,))


def qr(x: Any, /, mode: str = "reduced") -> QRResult | Tensor:
    """Orthonormal Q and upper triangular R with Q @ R = x: k = min(m, n) columns, or m if mode is 'complete'.

    With mode 'r' R alone.

    Raises ShapeError, DTypeError. As `numpy.linalg.qr`.

    >>> import lazyt as lt
    >>> lt.linalg.qr(lt.ones((4, 2))).R.shape
    (2, 2)
    """
    found = QRResult(*record_many(ops.QR, (x,), ("reduced" if mode == "r" else mode,)))
    return found.R if mode == "r" else found


def solve(x1: Any, x2: Any, /) -> Tensor:
    """The y with x1 @ y = x2, for x2 a vector (1-d) or matrices; the axes before the last two broadcast.

    Raises ShapeError, DTypeError; LinAlgError at the sync if x1 is singular. As `numpy.linalg.solve`.

    >>> import lazyt as lt
    >>> lt.linalg.solve(lt.asarray([[2.0, 0.0], [0.0, 4.0]]), lt.asarray([2.0, 2.0])).tolist()
    [1.0, 0.5]
    """
    return record(ops.SOLVE, (x1, x2))


def pinv(x: Any, /, *, rtol: Any = None) -> Tensor:
    """The Moore-Penrose inverses; singular values below rtol times the largest count as 0.

    `rtol`, a number or one for each matrix, is by default max(m, n) * eps. Raises ShapeError, DTypeError; LinAlgError
    at the sync if x holds NaN or an infinity.

    As `numpy.linalg.pinv`.

    >>> import lazyt as lt
    >>> lt.linalg.pinv(lt.asarray([[2.0, 0.0], [0.0, 0.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.0]]
    """
    return record(ops.PINV, (x,) if rtol is None else (x, rtol))


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Tensor:
    """How many singular values are above rtol (by default max(m, n) * eps) times the largest; int64.

    `rtol` is a number or one for each matrix. Of less than a matrix, whether it has anything but zeros. Raises
    ShapeError, DTypeError. As `numpy.linalg.matrix_rank`.

    >>> import lazyt as lt
    >>> lt.linalg.matrix_rank(lt.ones((3, 3))).item()
    1
    """
    t = tensor(x)
    if t.ndim < 2:
        return astype(any_(not_equal(t, 0)), dtypes.int64)
    return record(ops.MATRIX_RANK, (t,) if rtol is None else (t, rtol))


def matrix_power(x: Any, n: int, /) -> Tensor:
    """x multiplied by itself n times; the inverse's power for a negative n, the identity for 0.

    Integers stay integers unless n is negative. Raises ShapeError, DTypeError. As `numpy.linalg.matrix_power`.

    >>> import lazyt as lt
    >>> lt.linalg.matrix_power(lt.asarray([[1.0, 1.0], [0.0, 1.0]]), 3).tolist()
    [[1.0, 3.0], [0.0, 1.0]]
    """
    t, times = tensor(x), integer("linalg.matrix_power", "n", n)
    if dtypes.kind(t.dtype) in "fc" or times < 0 or t.ndim < 2 or t.shape[-1] != t.shape[-2]:
        return record(ops.MATRIX_POWER, (t,), (times,))
    if not times:
        return full_like(t, eye(t.shape[-1], dtype=t.dtype, device=t.device))
    out = None
    while True:
        if times & 1:
            out = t if out is None else matmul(out, t)
        times >>= 1
        if not times:
            assert out is not None, "a positive number has a bit that is set"
            return out
        t = matmul(t, t)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float | None = 2) -> Tensor:
    """sum(|x| ** ord) ** (1 / ord) over one axis, several, or all; inf is the greatest, 0 counts what is not 0.

    Raises ShapeError, DTypeError. As `numpy.linalg.vector_norm`, but of float16 and bfloat16 it is computed in float32
    and rounded once (NumPy's squares of float16 overflow from 256 on).

    >>> import lazyt as lt
    >>> lt.linalg.vector_norm(lt.asarray([3.0, 4.0])).item()
    5.0
    """
    return record(ops.VECTOR_NORM, (x,), (regular_axes(axis), bool(keepdims), 2.0 if ord is None else float(ord)))


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: float | str | None = "fro") -> Tensor:
    """A norm of matrices: 'fro' (all elements), 'nuc' (singular values' sum), 2 and -2 (their greatest and least).

    1, -1, inf, -inf are the greatest and least sums of columns and rows. Raises ShapeError, DTypeError (singular values
    of float16). As `numpy.linalg.matrix_norm`, but of float16 and bfloat16 it is computed in float32 and rounded once.

    >>> import lazyt as lt
    >>> lt.linalg.matrix_norm(lt.asarray([[3.0, 0.0], [0.0, 4.0]])).item()
    5.0
    """
    ord = "fro" if ord is None else ord
    return record(ops.MATRIX_NORM, (x,), (bool(keepdims), ord if isinstance(ord, str) else float(ord)))


def norm(x: Any, /, ord: float | str | None = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    """`vector_norm` of a vector or over one axis (or of all elements without `ord`), else `matrix_norm` over two.

    Raises ShapeError, DTypeError. As `numpy.linalg.norm`.

    >>> import lazyt as lt
    >>> lt.linalg.norm(lt.asarray([[3.0, 0.0], [0.0, 4.0]])).item()
    5.0
    """
    x = tensor(x)
    rank, axis = len(x.shape), regular_axes(axis)
    if ord is None and axis is None:
        return vector_norm(x, keepdims=keepdims)
    axes = tuple(range(rank)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ShapeError(f"linalg.norm: ord is a number for vectors, got {ord!r}")
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        raise ShapeError(f"linalg.norm: one axis or two are required, got {axes}")
    y = matrix_norm(moveaxis(x, axes, (-2, -1)), ord="fro" if ord is None else ord)
    if not keepdims:
        return y
    kept = {a % rank for a in axes}
    return reshape(y, tuple(1 if i in kept else d for i, d in enumerate(x.shape)))


@autocasts("linalg.cond")
def cond(x: Any, /) -> Tensor:
    """The greatest singular value over the least, infinite for zeros alone; NaN where the matrix has one.

    Raises ShapeError, DTypeError. As `numpy.linalg.cond`.

    >>> import lazyt as lt
    >>> lt.linalg.cond(lt.asarray([[4.0, 0.0], [0.0, 2.0]])).item()
    2.0
    """
    t = tensor(x)
    # NOTE: NumPy from 2.5 on refuses the singular values of what is not finite.
    finite = where(all_(isfinite(t), axis=(-2, -1), keepdims=True), t, 0)
    ratio = divide(matrix_norm(finite, ord=2), matrix_norm(finite, ord=-2))
    lost = logical_and(isnan(ratio), logical_not(any_(isnan(t), axis=(-2, -1))))
    return where(lost, math.inf, ratio)


@autocasts("linalg.multi_dot")
def multi_dot(arrays: Sequence[Any], /) -> Tensor:
    """The product of several matrices in the cheapest order; the first and the last may be vectors.

    Raises ShapeError if they do not match. As `numpy.linalg.multi_dot`.

    >>> import lazyt as lt
    >>> lt.linalg.multi_dot([lt.ones((2, 3)), lt.ones((3, 4)), lt.ones(4)]).tolist()
    [12.0, 12.0]
    """
    xs = tensors(arrays)
    if len(xs) < 2:
        raise ShapeError(f"linalg.multi_dot: at least 2 arrays are required, got {len(xs)}")
    sizes = [x.shape[0] if len(x.shape) > 1 else (x.shape[0] if i else 1) for i, x in enumerate(xs)]
    sizes.append(xs[-1].shape[-1] if len(xs[-1].shape) > 1 else 1)
    n = len(xs)
    cost = {(i, i): (0, i) for i in range(n)}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i, j] = min(
                (cost[i, k][0] + cost[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )

    def product(i: int, j: int) -> Tensor:
        k = cost[i, j][1]
        return xs[i] if i == j else matmul(product(i, k), product(k + 1, j))

    return product(0, n - 1)


@autocasts("linalg.lstsq")
def lstsq(a: Any, b: Any, /, rcond: float | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The x that makes |a @ x - b| least: (x, residuals, rank, singular values). A sync: the residuals' shape is data.

    a is one matrix, and no gradient passes: `pinv(a) @ b` has stacks and gradients. Raises ShapeError, AutogradError;
    LinAlgError if it does not converge, as with NaN or an infinity in a. As `numpy.linalg.lstsq`.

    >>> import lazyt as lt
    >>> lt.linalg.lstsq(lt.asarray([[2.0], [2.0]]), lt.asarray([4.0, 4.0]))[0].shape
    (1,)
    """
    a, b = tensors((a, b))
    if len(a.shape) != 2 or len(b.shape) not in (1, 2) or a.shape[0] != b.shape[0]:
        raise ShapeError(
            "linalg.lstsq: a matrix (m, n) and a vector (m,) or matrix (m, k) are required, got shapes "
            f"{tuple(a.shape)} and {tuple(b.shape)}; pinv(a) @ b takes stacks"
        )
    refuse_gradient("linalg.lstsq", (a, b), "the host computes it; pinv(a) @ b has one")
    left = tensor(a).numpy()
    check_svd(left)
    found = np.linalg.lstsq(left, tensor(b).numpy(), rcond=rcond)
    x, residuals, rank, s = (adopted(v, a, b) for v in found)
    return x, residuals, rank, s


def outer(x1: Any, x2: Any, /) -> Tensor:
    """Every product of an element of one vector and one of the other: (m,), (n,) gives (m, n).

    Raises ShapeError unless both are vectors. As `numpy.linalg.outer`.

    >>> import lazyt as lt
    >>> lt.linalg.outer(lt.asarray([1, 2]), lt.asarray([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    x1, x2 = tensors((x1, x2))
    if len(x1.shape) != 1 or len(x2.shape) != 1:
        raise ShapeError(f"linalg.outer: vectors are required, got shapes {x1.shape} and {x2.shape}")
    return products.outer(x1, x2)


def diagonal(x: Any, /, *, offset: int = 0) -> Tensor:
    """The diagonals x[..., i, i + offset] of the last two axes. Raises ShapeError. As `numpy.linalg.diagonal`.

    >>> import lazyt as lt
    >>> lt.linalg.diagonal(lt.asarray([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """
    return products.diagonal(x, offset, -2, -1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sums of the diagonals of the last two axes. Raises ShapeError. As `numpy.linalg.trace`.

    >>> import lazyt as lt
    >>> lt.linalg.trace(lt.asarray([[1, 2], [3, 4]])).item()
    5
    """
    return products.trace(x, offset, -2, -1, dtype)
