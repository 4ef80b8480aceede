"""Reductions over one axis, several, or all (`axis=None`); `keepdims` leaves the axes, of extent 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions.arguments import axes, dtype_or_none, record, tensor
from lazyt.ops import reductions as ops, statistics as more

if TYPE_CHECKING:
    from lazyt.functions.arguments import ArrayLike, AxisLike
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "logsumexp",
    "max",
    "mean",
    "min",
    "nanmax",
    "nanmean",
    "nanmin",
    "nansum",
    "prod",
    "ptp",
    "std",
    "sum",
    "var",
]


def sum(x: ArrayLike, /, axis: AxisLike = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum over `axis`: int64 for bool and integers (uint64 for unsigned ones), else x's dtype, unless
    given.

    Floats are accumulated in float64 and rounded once. Raises ShapeError for a bad axis. As `numpy.sum`.

    >>> import lazyt as lt
    >>> lt.sum(lt.asarray([[1, 2], [3, 4]]), axis=0).tolist()
    [4, 6]
    """
    d = dtype_or_none(dtype)
    return record(ops.SUM, (x if d is None else tensor(x, result=d),), (axes(axis), d, bool(keepdims)))


def prod(x: ArrayLike, /, axis: AxisLike = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product over `axis`; dtypes as for `sum`. Raises ShapeError for a bad axis. As `numpy.prod`.

    >>> import lazyt as lt
    >>> lt.prod(lt.asarray([[1, 2], [3, 4]]), axis=1).tolist()
    [2, 12]
    """
    d = dtype_or_none(dtype)
    return record(ops.PROD, (x if d is None else tensor(x, result=d),), (axes(axis), d, bool(keepdims)))


def max(x: ArrayLike, /, axis: AxisLike = None, keepdims: bool = False) -> Tensor:
    """The largest element over `axis`; NaN if there is one. As `numpy.max`.

    Raises ShapeError for a bad or zero-size axis, DTypeError for complex values.

    >>> import lazyt as lt
    >>> lt.max(lt.asarray([[1, 5], [3, 4]]), axis=1).tolist()
    [5, 4]
    """
    return record(ops.MAX, (x,), (axes(axis), bool(keepdims)))


def min(x: ArrayLike, /, axis: AxisLike = None, keepdims: bool = False) -> Tensor:
    """The smallest element over `axis`; NaN if there is one. As `numpy.min`.

    Raises ShapeError for a bad or zero-size axis, DTypeError for complex values.

    >>> import lazyt as lt
    >>> lt.min(lt.asarray([[1, 5], [3, 4]]), axis=1).tolist()
    [1, 3]
    """
    return record(ops.MIN, (x,), (axes(axis), bool(keepdims)))


def any(x: ArrayLike, /, axis: AxisLike = None, keepdims: bool = False) -> Tensor:
    """Whether some element over `axis` is true (not 0). Raises ShapeError for a bad axis. As `numpy.any`.

    >>> import lazyt as lt
    >>> lt.any(lt.asarray([[0, 5], [0, 0]]), axis=1).tolist()
    [True, False]
    """
    return record(ops.ANY, (x,), (axes(axis), bool(keepdims)))


def all(x: ArrayLike, /, axis: AxisLike = None, keepdims: bool = False) -> Tensor:
    """Whether every element over `axis` is true (not 0). Raises ShapeError for a bad axis. As `numpy.all`.

    >>> import lazyt as lt
    >>> lt.all(lt.asarray([[1, 5], [0, 1]]), axis=1).tolist()
    [True, False]
    """
    return record(ops.ALL, (x,), (axes(axis), bool(keepdims)))


def argmax(x: ArrayLike, /, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The int64 index of the first largest element (of a NaN, if any) along `axis`, or in all of x. As
    `numpy.argmax`.

    Raises ShapeError for a bad or zero-size axis, DTypeError for complex values.

    >>> import lazyt as lt
    >>> lt.argmax(lt.asarray([[1, 5], [4, 4]]), axis=1).tolist()
    [1, 0]
    """
    return record(ops.ARGMAX, (x,), (axes(axis), bool(keepdims)))


def argmin(x: ArrayLike, /, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The int64 index of the first smallest element (of a NaN, if any) along `axis`, or in all of x. As
    `numpy.argmin`.

    Raises ShapeError for a bad or zero-size axis, DTypeError for complex values.

    >>> import lazyt as lt
    >>> lt.argmin(lt.asarray([[1, 5], [4, 4]]), axis=1).tolist()
    [0, 0]
    """
    return record(ops.ARGMIN, (x,), (axes(axis), bool(keepdims)))


def count_nonzero(x: ArrayLike, /, axis: AxisLike = None, keepdims: bool = False) -> Tensor:
    """How many elements over `axis` are not 0, as int64. Raises ShapeError for a bad axis. As
    `numpy.count_nonzero`.

    >>> import lazyt as lt
    >>> lt.count_nonzero(lt.asarray([[1, 0], [3, 4]]), axis=1).tolist()
    [1, 2]
    """
    return record(ops.COUNT_NONZERO, (x,), (axes(axis), bool(keepdims)))


def ptp(x: ArrayLike, /, axis: AxisLike = None, keepdims: bool = False) -> Tensor:
    """The largest element less the smallest. Raises ShapeError for a bad or zero-size axis. As `numpy.ptp`.

    >>> import lazyt as lt
    >>> lt.ptp(lt.asarray([[1, 5], [3, 4]]), axis=1).tolist()
    [4, 1]
    """
    return record(ops.PTP, (x,), (axes(axis), bool(keepdims)))


def mean(x: ArrayLike, /, axis: AxisLike = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The mean over `axis`: float64 for bool and integers, else x's dtype (float16 and bfloat16 work in
    float32).

    The mean of nothing is NaN. Raises ShapeError for a bad axis. As `numpy.mean`.

    >>> import lazyt as lt
    >>> lt.mean(lt.asarray([[1, 2], [3, 4]]), axis=0).tolist()
    [2.0, 3.0]
    """
    d = dtype_or_none(dtype)
    return record(ops.MEAN, (x if d is None else tensor(x, result=d),), (axes(axis), d, bool(keepdims)))


def _correction(name: str, correction: float, ddof: float | None) -> float:
    if ddof is not None:
        if correction:
            raise ShapeError(f"{name}: correction and ddof are two names for one argument")
        correction = ddof
    return float(correction)


def var(
    x: ArrayLike,
    /,
    axis: AxisLike = None,
    correction: float = 0.0,
    keepdims: bool = False,
    *,
    ddof: float | None = None,
) -> Tensor:
    """The mean squared distance from the mean over `axis`, divided by n - correction. As `numpy.var`.

    float64 for integers, real for complex values. Raises ShapeError for a bad axis.

    >>> import lazyt as lt
    >>> lt.var(lt.asarray([[1.0, 3.0], [2.0, 2.0]]), axis=1).tolist()
    [1.0, 0.0]
    """
    return record(ops.VAR, (x,), (axes(axis), _correction("var", correction, ddof), bool(keepdims)))


def std(
    x: ArrayLike,
    /,
    axis: AxisLike = None,
    correction: float = 0.0,
    keepdims: bool = False,
    *,
    ddof: float | None = None,
) -> Tensor:
    """The square root of `var`. Raises ShapeError for a bad axis. As `numpy.std`.

    >>> import lazyt as lt
    >>> lt.std(lt.asarray([[1.0, 3.0], [2.0, 2.0]]), axis=1).tolist()
    [1.0, 0.0]
    """
    return record(ops.STD, (x,), (axes(axis), _correction("std", correction, ddof), bool(keepdims)))


def logsumexp(x: ArrayLike, /, axis: AxisLike = None, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) over `axis`, without overflow. Raises ShapeError for a bad axis. As
    `scipy.special.logsumexp`.

    >>> import lazyt as lt
    >>> lt.logsumexp(lt.asarray([1000.0, 0.0])).tolist()
    1000.0
    """
    return record(more.LOGSUMEXP, (x,), (axes(axis), bool(keepdims)))


def nansum(x: ArrayLike, /, axis: AxisLike = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """`sum` of what is not NaN. Raises ShapeError for a bad axis. As `numpy.nansum`.

    >>> import lazyt as lt
    >>> lt.nansum(lt.asarray([1.0, float("nan")])).tolist()
    1.0
    """
    d = dtype_or_none(dtype)
    return record(more.NANSUM, (x if d is None else tensor(x, result=d),), (axes(axis), d, bool(keepdims)))


def nanmean(x: ArrayLike, /, axis: AxisLike = None, keepdims: bool = False) -> Tensor:
    """`mean` of what is not NaN. Raises ShapeError for a bad axis. As `numpy.nanmean`.

    >>> import lazyt as lt
    >>> lt.nanmean(lt.asarray([1.0, float("nan"), 3.0])).tolist()
    2.0
    """
    return record(more.NANMEAN, (x,), (axes(axis), bool(keepdims)))


def nanmax(x: ArrayLike, /, axis: AxisLike = None, keepdims: bool = False) -> Tensor:
    """`max` of what is not NaN, NaN where nothing else is. Raises as `max`. As `numpy.nanmax`.

    >>> import lazyt as lt
    >>> lt.nanmax(lt.asarray([1.0, float("nan")])).tolist()
    1.0
    """
    return record(more.NANMAX, (x,), (axes(axis), bool(keepdims)))


def nanmin(x: ArrayLike, /, axis: AxisLike = None, keepdims: bool = False) -> Tensor:
    """`min` of what is not NaN, NaN where nothing else is. Raises as `min`. As `numpy.nanmin`.

    >>> import lazyt as lt
    >>> lt.nanmin(lt.asarray([1.0, float("nan")])).tolist()
    1.0
    """
    return record(more.NANMIN, (x,), (axes(axis), bool(keepdims)))


# NumPy's other names

amax = max
amin = min
