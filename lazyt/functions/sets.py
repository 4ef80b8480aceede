"""Sets of elements: sync points, since the shape of the result is data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lazyt.functions.arguments import adopted, found_on_device
from lazyt.functions.numpy_calls import refuse_gradient
from lazyt.functions.searching import host, hosts
from lazyt.ir import dtypes
from lazyt.ops.axes import one_axis

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "intersect1d",
    "setdiff1d",
    "union1d",
    "unique",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]


class UniqueAllResult(NamedTuple):
    """The values, where each occurs first, which of them each element is, and how often each occurs."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCountsResult(NamedTuple):
    """The values and how often each occurs."""

    values: Tensor
    counts: Tensor


class UniqueInverseResult(NamedTuple):
    """The values and which of them each element is."""

    values: Tensor
    inverse_indices: Tensor


# Why no gradient passes through these functions.
_WHY = "which elements there are depends on their values"


def _keys(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What NumPy can sort: bfloat16 as float32."""
    return a.astype(dtypes.of(a.dtype).numpy, copy=False)


def unique_values(x: Any, /) -> Tensor:
    """The different elements, in order; every NaN is one. A sync. As `numpy.unique_values`.

    >>> import lazyt as lt
    >>> lt.unique_values(lt.asarray([2, 1, 2])).tolist()
    [1, 2]
    """
    refuse_gradient("unique_values", (x,), _WHY)
    if there := found_on_device(x, "unique_values", "unique", False):
        return there[0]
    a = host(x, "unique_values")
    return adopted(np.unique(_keys(a), equal_nan=False).astype(a.dtype, copy=False), x)


def unique_counts(x: Any, /) -> UniqueCountsResult:
    """The different elements, in order, and how often each occurs. A sync. As `numpy.unique_counts`.

    >>> import lazyt as lt
    >>> lt.unique_counts(lt.asarray([2, 1, 2])).counts.tolist()
    [1, 2]
    """
    refuse_gradient("unique_counts", (x,), _WHY)
    if there := found_on_device(x, "unique_counts", "unique", False):
        return UniqueCountsResult(there[0], there[3])
    a = host(x, "unique_counts")
    values, counts = np.unique(_keys(a), return_counts=True, equal_nan=False)
    return UniqueCountsResult(adopted(values.astype(a.dtype, copy=False), x), adopted(counts, x))


def unique_inverse(x: Any, /) -> UniqueInverseResult:
    """The different elements, in order, and which of them each element is. A sync. As `numpy.unique_inverse`.

    >>> import lazyt as lt
    >>> lt.unique_inverse(lt.asarray([2, 1, 2])).inverse_indices.tolist()
    [1, 0, 1]
    """
    refuse_gradient("unique_inverse", (x,), _WHY)
    if there := found_on_device(x, "unique_inverse", "unique", False):
        return UniqueInverseResult(there[0], there[2])
    a = host(x, "unique_inverse")
    values, inverse = np.unique(_keys(a), return_inverse=True, equal_nan=False)
    return UniqueInverseResult(adopted(values.astype(a.dtype, copy=False), x), adopted(inverse.reshape(a.shape), x))


def unique_all(x: Any, /) -> UniqueAllResult:
    """The different elements, in order, with first positions, inverse and counts. A sync. As `numpy.unique_all`.

    >>> import lazyt as lt
    >>> lt.unique_all(lt.asarray([2, 1, 2])).indices.tolist()
    [1, 0]
    """
    refuse_gradient("unique_all", (x,), _WHY)
    if there := found_on_device(x, "unique_all", "unique", False):
        return UniqueAllResult(*there)
    a = host(x, "unique_all")
    values, index, inverse, counts = np.unique(_keys(a), True, True, True, equal_nan=False)
    parts = (values.astype(a.dtype, copy=False), index, inverse.reshape(a.shape), counts)
    return UniqueAllResult(*(adopted(part, x) for part in parts))


def unique(
    x: Any,
    /,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
) -> Any:
    """The different elements (or slices along an axis), in order, and what else is asked for. A sync.

    As `numpy.unique`.

    >>> import lazyt as lt
    >>> lt.unique(lt.asarray([2, 1, 2])).tolist()
    [1, 2]
    """
    refuse_gradient("unique", (x,), _WHY)
    if axis is None and (there := found_on_device(x, "unique", "unique", bool(equal_nan))):
        wanted = [t for t, w in zip(there, (True, return_index, return_inverse, return_counts), strict=True) if w]
        return tuple(wanted) if len(wanted) > 1 else wanted[0]
    a = host(x, "unique")
    axis = None if axis is None else one_axis("unique", axis, a.ndim)
    numpy_unique: Any = np.unique  # its overloads are for flags known to the checker
    got = numpy_unique(_keys(a), return_index, return_inverse, return_counts, axis, equal_nan=equal_nan)
    if not isinstance(got, tuple):
        return adopted(got.astype(a.dtype, copy=False), x)
    return (adopted(got[0].astype(a.dtype, copy=False), x), *(adopted(part, x) for part in got[1:]))


def union1d(x1: Any, x2: Any, /) -> Tensor:
    """What is in one operand or the other, in order. A sync. As `numpy.union1d`.

    >>> import lazyt as lt
    >>> lt.union1d(lt.asarray([3, 1]), lt.asarray([2, 1])).tolist()
    [1, 2, 3]
    """
    refuse_gradient("union1d", (x1, x2), _WHY)
    return adopted(np.union1d(*hosts("union1d", x1, x2)), x1, x2)


def intersect1d(x1: Any, x2: Any, /) -> Tensor:
    """What is in both operands, in order. A sync. As `numpy.intersect1d`.

    >>> import lazyt as lt
    >>> lt.intersect1d(lt.asarray([3, 1]), lt.asarray([2, 1])).tolist()
    [1]
    """
    refuse_gradient("intersect1d", (x1, x2), _WHY)
    return adopted(np.intersect1d(*hosts("intersect1d", x1, x2)), x1, x2)


def setdiff1d(x1: Any, x2: Any, /) -> Tensor:
    """What is in the first operand and not in the second, in order. A sync. As `numpy.setdiff1d`.

    >>> import lazyt as lt
    >>> lt.setdiff1d(lt.asarray([3, 1]), lt.asarray([2, 1])).tolist()
    [3]
    """
    refuse_gradient("setdiff1d", (x1, x2), _WHY)
    return adopted(np.setdiff1d(*hosts("setdiff1d", x1, x2)), x1, x2)
