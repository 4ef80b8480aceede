"""Sorting along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lazyt.functions.arguments import record, record_many
from lazyt.functions.manipulation import in_one_axis
from lazyt.ops import sorting as ops
from lazyt.ops.axes import integer

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = ["argsort", "sort", "topk"]


class TopK(NamedTuple):
    """The elements and their positions along the axis."""

    values: Tensor
    indices: Tensor


def sort(x: Any, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in order along an axis (None: flattened first); NaN is the greatest. Always stable.

    Raises ShapeError for an axis that is not there, DTypeError for a complex dtype. As `numpy.sort`.

    >>> import lazyt as lt
    >>> lt.sort(lt.asarray([3, 1, 2]), descending=True).tolist()
    [3, 2, 1]
    """
    x, axis = (in_one_axis(x), 0) if axis is None else (x, axis)
    return record(ops.SORT, (x,), (axis, bool(descending)))


def argsort(x: Any, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Tensor:
    """The int64 positions of the elements in order along an axis (None: flattened first); equal ones keep theirs.

    Raises ShapeError for an axis that is not there, DTypeError for a complex dtype. As `numpy.argsort`.

    >>> import lazyt as lt
    >>> lt.argsort(lt.asarray([3, 1, 2])).tolist()
    [1, 2, 0]
    """
    x, axis = (in_one_axis(x), 0) if axis is None else (x, axis)
    return record(ops.ARGSORT, (x,), (axis, bool(descending)))


def topk(x: Any, k: int, /, axis: int = -1, largest: bool = True, sorted: bool = True) -> TopK:
    """The k greatest (or least) elements along an axis in order, and their positions; always sorted.

    Raises ShapeError unless 0 <= k <= the extent. As `torch.topk`.

    >>> import lazyt as lt
    >>> lt.topk(lt.asarray([3, 1, 2]), 2).values.tolist()
    [3, 2]
    """
    return TopK(*record_many(ops.TOPK, (x,), (axis, bool(largest)), (integer("topk", "k", k),)))
