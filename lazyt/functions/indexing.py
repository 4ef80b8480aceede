"""Reading and writing at index arrays; `getitem` and `setitem` are the operators `x[key]` and `x[key] =
value`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import IndexOutOfRange, ShapeError
from lazyt.functions.arguments import record, tensor
from lazyt.functions.manipulation import in_one_axis
from lazyt.functions.subscript import getitem as getitem, parse, setitem as setitem
from lazyt.ir import dtypes
from lazyt.ops import indexing as ops
from lazyt.ops.axes import one_axis
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from lazyt.functions.arguments import ArrayLike
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "add_at",
    "index_add",
    "put_along_axis",
    "scatter_add",
    "take",
    "take_along_axis",
]


def _indices(name: str, indices: ArrayLike, axis: int, t: Tensor) -> Any:
    """Indices from NumPy or Python are checked now; a tensor's at the sync."""
    if isinstance(indices, Handle):
        return indices
    n = t.shape[axis]
    if type(indices) is int:
        host = np.asarray(indices)
    else:
        host = np.asarray(indices)
        if not host.size:
            host = host.astype(np.int64)
    if dtypes.host_kind(host.dtype) in "iu":
        outside = host[(host < -n) | (host >= n)]
        if outside.size:
            raise IndexOutOfRange(f"{name}: index {outside.flat[0]} is out of bounds for axis {axis} with size {n}")
    return indices if type(indices) is int else tensor(host, t)


def take(x: ArrayLike, indices: ArrayLike, /, axis: int | None = None) -> Tensor:
    """The elements at `indices` along an axis, whose place the axes of `indices` take; in the flattened x for
    None.

    Negative indices count from the end. Raises IndexOutOfRange, now or at the sync, ShapeError for a bad
    axis. As `numpy.take`.

    >>> import lazyt as lt
    >>> lt.take(lt.asarray([[1, 2, 3], [4, 5, 6]]), lt.asarray([2, 0]), axis=1).tolist()
    [[3, 1], [6, 4]]
    """
    t = tensor(x)
    if axis is None:
        t, axis = in_one_axis(t), 0
    a = one_axis("take", axis, t.ndim)
    return record(ops.INDEX, (t, _indices("take", indices, a, t)), ((a,), a))


def take_along_axis(x: ArrayLike, indices: ArrayLike, /, axis: int | None = -1) -> Tensor:
    """x[..., indices[..., i, ...], ...]: one index along `axis` for each place; the other axes broadcast.

    Raises IndexOutOfRange at the sync, ShapeError for a bad axis or ranks that differ. As
    `numpy.take_along_axis`.

    >>> import lazyt as lt
    >>> lt.take_along_axis(lt.asarray([[1, 2], [3, 4]]), lt.asarray([[1], [0]]), axis=1).tolist()
    [[2], [3]]
    """
    if axis is None:
        x, axis = in_one_axis(x), 0
    return record(ops.TAKE_ALONG_AXIS, (x, indices), (axis,))


def put_along_axis(x: ArrayLike, indices: ArrayLike, values: ArrayLike, /, axis: int = -1) -> Tensor:
    """A copy of x with `values` (broadcast against indices) where `take_along_axis` reads; the last one
    stays.

    Raises IndexOutOfRange at the sync, ShapeError for a bad axis or shapes that do not broadcast. As
    `numpy.put_along_axis`, which writes x itself.

    >>> import lazyt as lt
    >>> lt.put_along_axis(lt.asarray([[1, 2], [3, 4]]), lt.asarray([[1], [0]]), 9, axis=1).tolist()
    [[1, 9], [9, 4]]
    """
    return record(ops.PUT_ALONG_AXIS, (x, indices, values), (axis,))


def scatter_add(x: ArrayLike, indices: ArrayLike, values: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """A copy of x with `values` added at `indices` along `axis`; what meets at one place adds up.

    `indices` may be smaller than x along the other axes. Raises IndexOutOfRange at the sync, ShapeError for
    ranks or shapes that do not fit. As `torch.scatter_add`.

    >>> import lazyt as lt
    >>> lt.scatter_add(lt.asarray([0, 0, 0]), lt.asarray([2, 0, 2]), lt.asarray([1, 2, 3]), axis=0).tolist()
    [2, 0, 4]
    """
    return record(ops.SCATTER_ADD, (x, indices, values), (axis,))


def index_add(x: ArrayLike, axis: int, indices: ArrayLike, values: ArrayLike, /) -> Tensor:
    """A copy of x with the slices of `values` added to its slices at `indices` along `axis`. As
    `torch.index_add`.

    Raises IndexOutOfRange, now or at the sync, ShapeError for a bad axis or values that do not broadcast.

    >>> import lazyt as lt
    >>> lt.index_add(lt.zeros((2, 2)), 0, lt.asarray([1, 1]), lt.ones((2, 2))).tolist()
    [[0.0, 0.0], [2.0, 2.0]]
    """
    t = tensor(x)
    a = one_axis("index_add", axis, t.ndim)
    return record(ops.ADD_AT, (t, values, _indices("index_add", indices, a, t)), ((a,), a))


def add_at(x: ArrayLike, key: Any, values: ArrayLike, /) -> Tensor:
    """A copy of x with `values` added at x[key]; what meets at one place adds up. As `numpy.add.at`, which
    writes x.

    Raises IndexOutOfRange, ShapeError for values that do not broadcast.

    >>> import lazyt as lt
    >>> lt.add_at(lt.asarray([0, 0, 0]), [1, 1, 2], 5).tolist()
    [0, 10, 5]
    """
    t = tensor(x)
    p = parse(key, t.shape)
    if p.arrays and p.is_whole:
        return record(ops.ADD_AT, (t, values, *p.arrays), (p.axes, p.at))
    if p.arrays:
        raise ShapeError("add_at: not supported: index arrays together with integers, partial slices or new axes")
    return record(ops.ADD_TO_SLICE, (t, values), (p.spec,), p.ints, p.offsets)
