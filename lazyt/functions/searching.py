"""Searching and counting. Functions whose result's shape depends on data are sync points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.functions.arguments import adopted, found_on_device, record, record_view, tensor, tensors
from lazyt.functions.numpy_calls import refuse_gradient
from lazyt.ops import arithmetic, logic, manipulation, searching as ops
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "argwhere",
    "bincount",
    "digitize",
    "flatnonzero",
    "isin",
    "nonzero",
    "searchsorted",
]


def host(x: Any, cause: str) -> np.ndarray[Any, Any]:
    """The value of an operand: a sync, for this cause, if it is pending."""
    return tensor(x)._array(cause)


def hosts(cause: str, *xs: Any) -> list[Any]:
    """The values of operands, lists among them as wide as what they give with the others."""
    return [t._array(cause) for t in tensors(xs)]


class _Open:
    """An array's memory, said to be writable."""

    def __init__(self, a: np.ndarray[Any, Any]) -> None:
        self.owner = a
        own = a.__array_interface__
        self.__array_interface__ = own | {"data": (own["data"][0], False)}


def _open(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """For `numpy.bincount`, which only reads but copies whatever is not writable."""
    return np.asarray(_Open(a))


def searchsorted(x1: Any, x2: Any, /, side: str = "left", sorter: Any = None) -> Tensor:
    """Where each of x2 would go into the sorted vector x1 (x1[sorter]): before equal elements, or after ('right').

    int64, of the shape of x2. Raises ShapeError unless x1 is a vector. As `numpy.searchsorted`.

    >>> import lazyt as lt
    >>> lt.searchsorted(lt.asarray([1, 2, 3]), lt.asarray([2, 5])).tolist()
    [1, 3]
    """
    return record(ops.SEARCHSORTED, (x1, x2) if sorter is None else (x1, x2, sorter), (side,))


def digitize(x: Any, bins: Any, /, right: bool = False) -> Tensor:
    """The bin of each element of x, for bins that increase or decrease. Raises ShapeError unless they are a vector.

    As `numpy.digitize`.

    >>> import lazyt as lt
    >>> lt.digitize(lt.asarray([0.5, 3.0]), lt.asarray([1.0, 2.0])).tolist()
    [0, 2]
    """
    x, edges = tensors((x, bins))
    side = "left" if right else "right"
    found = searchsorted(edges, x, side=side)
    if edges.size < 2:
        return found
    known = np.asarray(bins) if not isinstance(bins, Handle) else None if bins.is_pending else host(bins, "digitize")
    if known is not None and bool(known[0] <= known[-1]):
        return found
    # Which way a tensor's bins go is data: both are found, and one is chosen, so nothing has to be computed now.
    turned = record_view(manipulation.FLIP, edges, (None,))
    down = record(arithmetic.SUBTRACT, (edges.size, searchsorted(turned, x, side=side)))
    return record(logic.WHERE, (record(logic.LESS_EQUAL, (edges[0], edges[-1])), found, down))


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Tensor:
    """Whether each element of x1 is (with `invert`: is not) one of x2; bool, of the shape of x1. As `numpy.isin`.

    >>> import lazyt as lt
    >>> lt.isin(lt.asarray([1, 2, 3]), lt.asarray([3, 1])).tolist()
    [True, False, True]
    """
    return record(ops.ISIN, (x1, x2), (bool(invert),))


def nonzero(x: Any, /) -> tuple[Tensor, ...]:
    """The positions of what is not 0, one int64 vector an axis. A sync: their length is data.

    Raises ShapeError for a 0-d operand. As `numpy.nonzero`.

    >>> import lazyt as lt
    >>> [i.tolist() for i in lt.nonzero(lt.asarray([[0, 1], [1, 0]]))]
    [[0, 1], [1, 0]]
    """
    if not tensor(x).ndim:
        raise ShapeError("nonzero: at least 1 dimension is required, got a 0-d operand")
    if there := found_on_device(x, "nonzero", "nonzero"):
        return tuple(there)
    a = host(x, "nonzero")
    return tuple(adopted(i, x) for i in np.nonzero(a))


def argwhere(x: Any, /) -> Tensor:
    """The positions of what is not 0, one row each: (n, ndim), int64. A sync: n is data. As `numpy.argwhere`.

    >>> import lazyt as lt
    >>> lt.argwhere(lt.asarray([[0, 1], [1, 0]])).tolist()
    [[0, 1], [1, 0]]
    """
    if tensor(x).ndim and (there := found_on_device(x, "argwhere", "argwhere")):
        return there[0]
    a = host(x, "argwhere")
    if not a.ndim:
        return adopted(np.argwhere(a), x)
    parts = np.nonzero(a)
    # NumPy's positions are the columns of the matrix that is asked for.
    whole = parts[0].base
    if whole is None or whole.shape != (len(parts[0]), a.ndim) or not whole.flags.c_contiguous:
        whole = np.stack(parts, axis=-1)
    return adopted(whole, x)


def flatnonzero(x: Any, /) -> Tensor:
    """The positions in C order of what is not 0. A sync: their number is data. As `numpy.flatnonzero`.

    >>> import lazyt as lt
    >>> lt.flatnonzero(lt.asarray([[0, 1], [1, 0]])).tolist()
    [1, 2]
    """
    if there := found_on_device(x, "flatnonzero", "flatnonzero"):
        return there[0]
    return adopted(np.flatnonzero(host(x, "flatnonzero")), x)


def bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, 2, ... occurs in a vector, or the sums of its weights. A sync: the length is data.

    Raises ShapeError for another rank or a negative element. As `numpy.bincount`.

    >>> import lazyt as lt
    >>> lt.bincount(lt.asarray([0, 2, 2])).tolist()
    [1, 0, 2]
    """
    refuse_gradient("bincount", (x, weights), "the host computes it; index_add(zeros(n), 0, x, weights) has one")
    a = host(x, "bincount")
    # The sums are float64.
    w = None if weights is None else host(tensor(weights, result=np.dtype(np.float64)), "bincount")
    refused = f"bincount: a vector of numbers that are at least 0 is required, got shape {a.shape}"
    if a.ndim != 1:
        raise ShapeError(refused)
    try:
        return adopted(np.bincount(_open(a), None if w is None else _open(w), minlength), x)
    except ValueError as e:
        if a.size and a.min() < 0:
            raise ShapeError(refused) from None
        raise e
