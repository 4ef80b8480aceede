"""Orders that are less, or more, than one sort."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.functions.arguments import tensor, tensors
from lazyt.functions.indexing import take_along_axis
from lazyt.functions.manipulation import astype, in_one_axis
from lazyt.functions.numpy_calls import record_numpy
from lazyt.functions.sorting import argsort, sort
from lazyt.ir import dtypes
from lazyt.ops.axes import integer, one_axis
from lazyt.tracing import inplace, record as recording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.functions.arguments import ArrayLike
    from lazyt.runtime.tensor import Tensor

__all__ = ["argpartition", "lexsort", "partition", "sort_complex"]


def _flat(a: Any, axis: int | None) -> tuple[Tensor, int]:
    t = tensor(a)
    return (in_one_axis(t), 0) if axis is None else (t, axis)


def _check_kth(name: str, kth: Any, n: int) -> None:
    for k in kth if isinstance(kth, list | tuple) else (kth,):
        if not -n <= integer(name, "kth", k) < n:
            raise ShapeError(f"{name}: kth {k} is out of bounds for an extent of {n}")


def _by_numpy(t: Tensor) -> bool:
    """Whether NumPy partitions it: complex numbers and empty arrays are refused, or not, by `sort`, and a gradient
    passes through that alone.
    """
    grad = recording.is_grad_enabled() and inplace.requires_grad(t)
    return dtypes.kind(t.dtype) != "c" and t.size > 0 and t.ndim > 0 and not grad


def partition(a: ArrayLike, kth: int | Sequence[int], axis: int | None = -1) -> Tensor:
    """The elements with the k-th smallest at place k, smaller ones before it, greater ones after it.

    As `numpy.partition`. Raises ShapeError for a kth out of bounds.

    >>> import lazyt as lt
    >>> lt.partition(lt.asarray([3, 1, 2]), 1)[1].item()
    2
    """
    t, at = _flat(a, axis)
    _check_kth("partition", kth, t.shape[one_axis("partition", at, t.ndim)])
    if not _by_numpy(t):
        return sort(t, axis=at)
    found: Tensor = record_numpy("numpy.partition", np.partition, (t, kth), {"axis": at}, [(t.shape, t.dtype)])
    return found


def argpartition(a: ArrayLike, kth: int | Sequence[int], axis: int | None = -1) -> Tensor:
    """The positions of the elements in the order of `partition`. As `numpy.argpartition`.

    >>> import lazyt as lt
    >>> lt.argpartition(lt.asarray([3, 1, 2]), 1)[1].item()
    2
    """
    t, at = _flat(a, axis)
    _check_kth("argpartition", kth, t.shape[one_axis("argpartition", at, t.ndim)])
    if not _by_numpy(t):
        return argsort(t, axis=at)
    shape = [(t.shape, dtypes.int64)]
    found: Tensor = record_numpy("numpy.argpartition", np.argpartition, (t, kth), {"axis": at}, shape)
    return found


def lexsort(keys: Any, axis: int = -1) -> Tensor:
    """The positions in the order of several keys, the last one first. As `numpy.lexsort`.

    Raises ShapeError for no keys or keys of different shapes.

    >>> import lazyt as lt
    >>> lt.lexsort((lt.asarray([2, 1, 0]), lt.asarray([1, 0, 1]))).tolist()
    [1, 2, 0]
    """
    every = tensors(tuple(keys))
    if not every or any(k.shape != every[0].shape for k in every):
        raise ShapeError(f"lexsort: keys of one shape are required, got {[k.shape for k in every]}")
    if not every[0].ndim:
        return tensor(0)
    order = argsort(every[0], axis=axis)
    for k in every[1:]:
        order = take_along_axis(order, argsort(take_along_axis(k, order, axis=axis), axis=axis), axis=axis)
    return order


def sort_complex(a: ArrayLike) -> Tensor:
    """The complex elements along the last axis by real, then by imaginary part. As `numpy.sort_complex`.

    >>> import lazyt as lt
    >>> lt.sort_complex(lt.asarray([2 + 1j, 1 + 2j])).tolist()
    [(1+2j), (2+1j)]
    """
    t = tensor(a, result=dtypes.float64)
    if dtypes.kind(t.dtype) != "c":
        small = dtypes.kind(t.dtype) in "iu" and t.dtype.itemsize < 4
        return astype(sort(t), dtypes.complex64 if small else dtypes.complex128)
    return record_numpy("numpy.sort_complex", np.sort_complex, (t,), {}, [(t.shape, t.dtype)])  # type: ignore[no-any-return]
