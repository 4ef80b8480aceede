"""Polynomials as vectors of coefficients, the highest power first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.functions.arguments import tensor, tensors
from lazyt.functions.arithmetic import add, divide, multiply, subtract
from lazyt.functions.creation import ones_like, zeros
from lazyt.functions.joining import concat, stack
from lazyt.functions.manipulation import astype, atleast_1d, ravel
from lazyt.functions.signals import convolve
from lazyt.functions.subscript import getitem
from lazyt.ir import dtypes
from lazyt.ops.axes import integer

if TYPE_CHECKING:
    from lazyt.functions.arguments import ArrayLike
    from lazyt.runtime.tensor import Tensor

__all__ = ["polyadd", "polyder", "polyint", "polymul", "polysub", "polyval", "vander"]


def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803 - NumPy's name
    """The powers of a vector's elements in rows: N columns (as many as rows), decreasing. As `numpy.vander`.

    The dtype is what promoting with int64 gives: float64 for floats. Raises ShapeError for another rank.

    >>> import lazyt as lt
    >>> lt.vander(lt.asarray([2, 3]), 3).tolist()
    [[4, 2, 1], [9, 3, 1]]
    """
    t = tensor(x, result=dtypes.int64)
    if t.ndim != 1:
        raise ShapeError(f"vander: a vector is required, got shape {t.shape}")
    n = t.size if N is None else integer("vander", "N", N)
    t = astype(t, dtypes.promote(t.dtype, dtypes.int64), copy=False)
    if not n:
        return zeros((t.size, 0), dtype=t.dtype)
    # NOTE: neither the first two are computed from the elements: NaN ** 0 is 1, and 1 * inf has a NaN part if complex.
    powers = [ones_like(t), t][:n]
    for _ in range(n - 2):
        powers.append(powers[-1] * t)
    return stack(powers if increasing else powers[::-1], axis=1)


def polyval(p: ArrayLike, x: ArrayLike) -> Tensor:
    """The polynomial of coefficients p at x, by Horner's rule. As `numpy.polyval`.

    >>> import lazyt as lt
    >>> lt.polyval([1, 0, -1], lt.asarray([2, 3])).tolist()
    [3, 8]
    """
    coefficients, at = tensors((p, x))
    coefficients = atleast_1d(coefficients)
    out = multiply(at, 0)
    for i in range(coefficients.shape[0]):
        out = add(multiply(out, at), getitem(coefficients, i))
    return out


def _padded(a: Any, n: int) -> Tensor:
    t = atleast_1d(a)
    return t if t.shape[0] == n else concat([zeros((n - t.shape[0],), dtype=t.dtype), t])


def polyadd(a1: ArrayLike, a2: ArrayLike) -> Tensor:
    """The sum of two polynomials. As `numpy.polyadd`.

    >>> import lazyt as lt
    >>> lt.polyadd([1, 2], [3]).tolist()
    [1, 5]
    """
    p1, p2 = atleast_1d(*tensors((a1, a2)))
    n = max(p1.shape[0], p2.shape[0])
    return add(_padded(p1, n), _padded(p2, n))


def polysub(a1: ArrayLike, a2: ArrayLike) -> Tensor:
    """The difference of two polynomials. As `numpy.polysub`.

    >>> import lazyt as lt
    >>> lt.polysub([1, 2], [3]).tolist()
    [1, -1]
    """
    p1, p2 = atleast_1d(*tensors((a1, a2)))
    n = max(p1.shape[0], p2.shape[0])
    return subtract(_padded(p1, n), _padded(p2, n))


def polymul(a1: ArrayLike, a2: ArrayLike) -> Tensor:
    """The product of two polynomials; leading zeros are kept, where NumPy trims them. As `numpy.polymul`.

    >>> import lazyt as lt
    >>> lt.polymul([1, 2], [1, -2]).tolist()
    [1, 0, -4]
    """
    one, other = tensors((a1, a2))
    return convolve(atleast_1d(one), atleast_1d(other))


def polyder(p: ArrayLike, m: int = 1) -> Tensor:
    """The m-th derivative of a polynomial. Raises ShapeError for a negative m. As `numpy.polyder`.

    >>> import lazyt as lt
    >>> lt.polyder([1, 2, 3]).tolist()
    [2, 2]
    """
    if integer("polyder", "m", m) < 0:
        raise ShapeError(f"polyder: m must not be negative, got {m}")
    t = tensor(p, result=dtypes.int64 if m else None)
    for _ in range(m):
        n = t.shape[0] - 1
        t = multiply(getitem(t, slice(None, -1)), np.arange(n, 0, -1, dtype=np.int64)) if n > 0 else t[:0]
    return t


def polyint(p: ArrayLike, m: int = 1, k: ArrayLike | None = None) -> Tensor:
    """The m-th antiderivative of a polynomial, with constants k (0). Raises ShapeError for too few constants.

    As `numpy.polyint`.

    >>> import lazyt as lt
    >>> lt.polyint([2.0, 2.0]).tolist()
    [1.0, 2.0, 0.0]
    """
    if integer("polyint", "m", m) < 0:
        raise ShapeError(f"polyint: m must not be negative, got {m}")
    t, *given = tensors((p,) if k is None else (p, k), dtypes.float64)
    d = dtypes.promote(t.dtype, dtypes.float64)
    constants = ravel(given[0]) if given else zeros((m,), dtype=d, device=t.device)
    if constants.shape[0] == 1 and m > 1:
        constants = concat([constants] * m)
    if constants.shape[0] < m:
        raise ShapeError(f"polyint: {constants.shape[0]} constants for {m} integrations")
    for i in range(m):
        n = t.shape[0]
        t = concat([divide(t, np.arange(n, 0, -1, dtype=np.int64)), getitem(constants, slice(i, i + 1))])
    return t
