"""Reductions and scans that leave NaN out, beside the four of reductions.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.functions import reductions
from lazyt.functions.arguments import dtype_or_none, record, tensor
from lazyt.functions.arithmetic import divide, multiply, subtract
from lazyt.functions.elementwise import abs, isnan, sqrt, square
from lazyt.functions.logic import logical_not, where
from lazyt.functions.manipulation import astype
from lazyt.functions.statistics import cumprod, cumsum
from lazyt.ir import dtypes
from lazyt.ops.checks import checked

if TYPE_CHECKING:
    from lazyt.functions.arguments import ArrayLike, AxisLike
    from lazyt.runtime.tensor import Tensor

__all__ = ["nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanprod", "nanstd", "nanvar"]


def _filled(a: Any, value: float, dtype: Any = None) -> Tensor:
    """The array with `value` for NaN."""
    t = tensor(a, result=dtype_or_none(dtype))
    return where(isnan(t), value, t) if dtypes.kind(t.dtype) in "fc" else t


def nanprod(a: ArrayLike, axis: AxisLike = None, dtype: Any = None, *, keepdims: bool = False) -> Tensor:
    """`prod` of what is not NaN. As `numpy.nanprod`.

    >>> import lazyt as lt
    >>> lt.nanprod(lt.asarray([2.0, float("nan"), 3.0])).item()
    6.0
    """
    return reductions.prod(_filled(a, 1, dtype), axis=axis, dtype=dtype, keepdims=keepdims)


def nancumsum(a: ArrayLike, axis: int | None = None, dtype: Any = None) -> Tensor:
    """`cumsum` with 0 for NaN. As `numpy.nancumsum`.

    >>> import lazyt as lt
    >>> lt.nancumsum(lt.asarray([2.0, float("nan"), 3.0])).tolist()
    [2.0, 2.0, 5.0]
    """
    return cumsum(_filled(a, 0, dtype), axis=axis, dtype=dtype)


def nancumprod(a: ArrayLike, axis: int | None = None, dtype: Any = None) -> Tensor:
    """`cumprod` with 1 for NaN. As `numpy.nancumprod`.

    >>> import lazyt as lt
    >>> lt.nancumprod(lt.asarray([2.0, float("nan"), 3.0])).tolist()
    [2.0, 2.0, 6.0]
    """
    return cumprod(_filled(a, 1, dtype), axis=axis, dtype=dtype)


def nanargmax(a: ArrayLike, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """`argmax` of what is not NaN. Raises NoResult, a ValueError, at the sync where there is nothing else.

    As `numpy.nanargmax`.

    >>> import lazyt as lt
    >>> lt.nanargmax(lt.asarray([float("nan"), 1.0, 3.0])).item()
    2
    """
    return _checked("nanargmax", a, reductions.argmax(_filled(a, float("-inf")), axis=axis, keepdims=keepdims), axis)


def nanargmin(a: ArrayLike, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """`argmin` of what is not NaN. Raises NoResult, a ValueError, at the sync where there is nothing else.

    As `numpy.nanargmin`.

    >>> import lazyt as lt
    >>> lt.nanargmin(lt.asarray([float("nan"), 1.0, 3.0])).item()
    1
    """
    return _checked("nanargmin", a, reductions.argmin(_filled(a, float("inf")), axis=axis, keepdims=keepdims), axis)


def _checked(name: str, a: ArrayLike, found: Tensor, axis: int | None) -> Tensor:
    """The positions found, if there is a number in each slice."""
    t = tensor(a)
    if dtypes.kind(t.dtype) not in "fc" or not t.size:
        return found
    nothing = reductions.all(isnan(t), axis=axis, keepdims=found.ndim == t.ndim and t.ndim > 0)
    return record(checked(name), (found, nothing))


def nanvar(
    a: ArrayLike, axis: AxisLike = None, dtype: Any = None, *, ddof: float = 0, keepdims: bool = False
) -> Tensor:
    """`var` of what is not NaN; NaN where no more than `ddof` elements are left. As `numpy.nanvar`.

    >>> import lazyt as lt
    >>> lt.nanvar(lt.asarray([1.0, float("nan"), 3.0])).item()
    1.0
    """
    t = tensor(a, result=dtype_or_none(dtype))
    if dtype is not None:
        d = dtypes.as_dtype(dtype)
        t = astype(t, d, copy=False)
        if dtypes.kind(d) == "c":
            return astype(nanvar(t, axis=axis, ddof=ddof, keepdims=keepdims), d)
    if dtypes.kind(t.dtype) not in "fc":
        return reductions.var(t, axis=axis, ddof=ddof, keepdims=keepdims)
    there = logical_not(isnan(t))
    real = dtypes.real_of(t.dtype)
    n = astype(reductions.sum(there, axis=axis, keepdims=True), real)
    mean = divide(reductions.sum(where(there, t, 0), axis=axis, keepdims=True), n)
    apart = where(there, subtract(t, mean), 0)
    total = reductions.sum(
        square(abs(apart)) if real != t.dtype else multiply(apart, apart), axis=axis, keepdims=keepdims
    )
    free = astype(reductions.sum(there, axis=axis, keepdims=keepdims), real) - ddof
    return divide(total, where(free > 0, free, float("nan")))


def nanstd(
    a: ArrayLike, axis: AxisLike = None, dtype: Any = None, *, ddof: float = 0, keepdims: bool = False
) -> Tensor:
    """The square root of `nanvar`. As `numpy.nanstd`.

    >>> import lazyt as lt
    >>> lt.nanstd(lt.asarray([1.0, float("nan"), 3.0])).item()
    1.0
    """
    return sqrt(nanvar(a, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims))
