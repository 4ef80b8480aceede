"""The soft maximum and its logarithm, and cumulative sums and products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions.arguments import axes, dtype_or_none, record, tensor
from lazyt.functions.manipulation import in_one_axis
from lazyt.ops import statistics as ops

if TYPE_CHECKING:
    from lazyt.functions.arguments import ArrayLike, AxisLike
    from lazyt.ops.definition import OpDef
    from lazyt.runtime.tensor import Tensor

__all__ = ["cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "log_softmax", "softmax"]


def softmax(x: ArrayLike, /, axis: AxisLike = -1) -> Tensor:
    """exp(x) / sum(exp(x)) over `axis`, without overflow; x's floating dtype. As `scipy.special.softmax`.

    Raises ShapeError for a bad axis, DTypeError for complex values.

    >>> import lazyt as lt
    >>> lt.softmax(lt.asarray([[0.0, 0.0], [0.0, 200.0]])).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    return record(ops.SOFTMAX, (x,), (axes(axis),))


def log_softmax(x: ArrayLike, /, axis: AxisLike = -1) -> Tensor:
    """log(softmax(x)) over `axis`, exact where softmax is tiny. As `scipy.special.log_softmax`.

    Raises ShapeError for a bad axis, DTypeError for complex values.

    >>> import lazyt as lt
    >>> lt.log_softmax(lt.asarray([0.0, 200.0])).tolist()
    [-200.0, 0.0]
    """
    return record(ops.LOG_SOFTMAX, (x,), (axes(axis),))


def _cumulative(
    op: OpDef, x: ArrayLike, axis: int | None, dtype: Any, include_initial: bool, flat: bool = False
) -> Tensor:
    d = dtype_or_none(dtype)
    t = tensor(x, result=d)
    if axis is None:
        if flat:
            t = in_one_axis(t)
        elif t.ndim != 1:
            raise ShapeError(f"{op.name}: an axis is required for an array of {t.ndim} dimensions")
        axis = 0
    return record(op, (t,), (axis, d, bool(include_initial)))


def cumulative_sum(
    x: ArrayLike, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """The sums of all first elements along `axis`, led by 0 with `include_initial`; dtypes as for `sum`.

    Raises ShapeError for a bad axis, or none for an array of several. As `numpy.cumulative_sum`.

    >>> import lazyt as lt
    >>> lt.cumulative_sum(lt.asarray([1, 2, 3]), include_initial=True).tolist()
    [0, 1, 3, 6]
    """
    return _cumulative(ops.CUMULATIVE_SUM, x, axis, dtype, include_initial)


def cumulative_prod(
    x: ArrayLike, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """The products of all first elements along `axis`, led by 1 with `include_initial`; dtypes as for `prod`.

    Raises ShapeError for a bad axis, or none for an array of several. As `numpy.cumulative_prod`.

    >>> import lazyt as lt
    >>> lt.cumulative_prod(lt.asarray([1, 2, 3])).tolist()
    [1, 2, 6]
    """
    return _cumulative(ops.CUMULATIVE_PROD, x, axis, dtype, include_initial)


def cumsum(x: ArrayLike, /, axis: int | None = None, dtype: Any = None) -> Tensor:
    """`cumulative_sum` that flattens x when no axis is given. As `numpy.cumsum`.

    >>> import lazyt as lt
    >>> lt.cumsum(lt.asarray([[1, 2], [3, 4]])).tolist()
    [1, 3, 6, 10]
    """
    return _cumulative(ops.CUMULATIVE_SUM, x, axis, dtype, False, flat=True)


def cumprod(x: ArrayLike, /, axis: int | None = None, dtype: Any = None) -> Tensor:
    """`cumulative_prod` that flattens x when no axis is given. As `numpy.cumprod`.

    >>> import lazyt as lt
    >>> lt.cumprod(lt.asarray([[1, 2], [3, 4]])).tolist()
    [1, 2, 6, 24]
    """
    return _cumulative(ops.CUMULATIVE_PROD, x, axis, dtype, False, flat=True)
