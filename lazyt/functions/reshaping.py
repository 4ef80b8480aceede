"""NumPy's further ways to cut, join and index: all made of slices, concatenations and lookups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, IndexOutOfRange, OutOfMemory, ShapeError
from lazyt.functions.arguments import adopted, at_hand, record, shape_of, tensor, tensors
from lazyt.functions.arithmetic import clip, floor_divide, remainder
from lazyt.functions.creation import arange, diag
from lazyt.functions.indexing import take
from lazyt.functions.joining import concat, concatenate, tile
from lazyt.functions.manipulation import astype, broadcast_to, in_one_axis, moveaxis, ravel, reshape, split
from lazyt.functions.searching import host, nonzero
from lazyt.functions.subscript import getitem
from lazyt.ir import dtypes
from lazyt.ops import manipulation
from lazyt.ops.axes import integer, many_axes, one_axis
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.functions.arguments import ArrayLike, AxisLike, ShapeLike
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "append",
    "block",
    "delete",
    "diag_indices_from",
    "diagflat",
    "dsplit",
    "hsplit",
    "insert",
    "ix_",
    "mgrid",
    "ogrid",
    "ravel_multi_index",
    "resize",
    "rollaxis",
    "sliding_window_view",
    "tril_indices",
    "tril_indices_from",
    "trim_zeros",
    "triu_indices",
    "triu_indices_from",
    "unravel_index",
    "vsplit",
]


def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Tensor:
    """A view with an axis moved before the axis `start`. Raises ShapeError for a bad axis. As `numpy.rollaxis`.

    >>> import lazyt as lt
    >>> lt.rollaxis(lt.ones((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    t = tensor(a)
    at = one_axis("rollaxis", axis, t.ndim)
    first = start + t.ndim if start < 0 else start
    if not 0 <= first <= t.ndim:
        raise ShapeError(f"rollaxis: start {start} is out of bounds for {t.ndim} dimensions")
    return moveaxis(t, at, first - 1 if at < first else first)


def vsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`split` along axis 0 of an array of at least two dimensions. As `numpy.vsplit`.

    >>> import lazyt as lt
    >>> [p.shape for p in lt.vsplit(lt.ones((4, 2)), 2)]
    [(2, 2), (2, 2)]
    """
    t = tensor(ary)
    if t.ndim < 2:
        raise ShapeError(f"vsplit: at least 2 dimensions are required, got shape {t.shape}")
    return split(t, indices_or_sections, axis=0)


def hsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`split` along axis 1, or axis 0 of a vector. As `numpy.hsplit`.

    >>> import lazyt as lt
    >>> [p.shape for p in lt.hsplit(lt.ones((2, 4)), [1])]
    [(2, 1), (2, 3)]
    """
    t = tensor(ary)
    if not t.ndim:
        raise ShapeError("hsplit: at least 1 dimension is required, got a 0-d array")
    return split(t, indices_or_sections, axis=1 if t.ndim > 1 else 0)


def dsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`split` along axis 2 of an array of at least three dimensions. As `numpy.dsplit`.

    >>> import lazyt as lt
    >>> [p.shape for p in lt.dsplit(lt.ones((1, 2, 4)), 2)]
    [(1, 2, 2), (1, 2, 2)]
    """
    t = tensor(ary)
    if t.ndim < 3:
        raise ShapeError(f"dsplit: at least 3 dimensions are required, got shape {t.shape}")
    return split(t, indices_or_sections, axis=2)


def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Tensor:
    """The values after the array, along an axis or both flattened. Raises as `concat`. As `numpy.append`.

    >>> import lazyt as lt
    >>> lt.append(lt.asarray([1, 2]), [3]).tolist()
    [1, 2, 3]
    """
    return concatenate([arr, values], axis=axis)


def _depth(a: Any) -> int:
    return 1 + max((_depth(x) for x in a), default=0) if isinstance(a, list) else 0


def block(arrays: Any) -> Tensor:
    """Nested lists of blocks put together: the innermost along the last axis. As `numpy.block`.

    Raises ShapeError for lists nested unevenly or blocks that do not fit.

    >>> import lazyt as lt
    >>> lt.block([[lt.ones((1, 1)), lt.zeros((1, 1))]]).tolist()
    [[1.0, 0.0]]
    """
    depth = _depth(arrays)

    def leaves(a: Any, level: int) -> list[Any]:
        if isinstance(a, list):
            return [t for x in a for t in leaves(x, level + 1)]
        if level != depth:
            raise ShapeError("block: lists are nested to different depths")
        return [a]

    every = tensors(leaves(arrays, 0))
    rank = max([depth, *(t.ndim for t in every)])
    rest = iter(every)

    def build(a: Any, level: int) -> Tensor:
        if not isinstance(a, list):
            t = next(rest)
            return reshape(t, (*(1,) * (rank - t.ndim), *t.shape))
        return concat([build(x, level + 1) for x in a], axis=level - depth)

    return build(arrays, 0)


def resize(a: ArrayLike, new_shape: ShapeLike) -> Tensor:
    """The flattened elements again and again until they fill a new shape. As `numpy.resize`.

    >>> import lazyt as lt
    >>> lt.resize(lt.asarray([1, 2]), (3,)).tolist()
    [1, 2, 1]
    """
    t = ravel(a)
    shape = shape_of("resize", new_shape)
    n = int(np.prod(shape, dtype=np.int64))
    if not t.size or not n:
        return astype(broadcast_to(tensor(np.zeros((), np.int8)), shape), t.dtype)
    return reshape(getitem(tile(t, -(-n // t.size)), slice(0, n)), shape)


def _part(t: Tensor, axis: int, start: int, stop: int) -> Tensor:
    return getitem(t, (*(slice(None),) * axis, slice(start, stop)))


def delete(arr: ArrayLike, obj: Any, axis: int | None = None) -> Tensor:
    """The array without what stands at indices (or a slice, or a mask) of an axis, or of it flattened.

    A tensor of indices is computed: how many are left is data. Raises IndexOutOfRange. As `numpy.delete`.

    >>> import lazyt as lt
    >>> lt.delete(lt.asarray([1, 2, 3]), 1).tolist()
    [1, 3]
    """
    t = tensor(arr)
    if axis is not None:
        axis = one_axis("delete", axis, t.ndim)
    gone = obj if isinstance(obj, slice | int) else host(obj, "delete")
    if isinstance(obj, list | tuple) and not len(obj):
        gone = np.zeros(0, np.intp)
    n = t.size if axis is None else t.shape[axis]
    if type(gone) is int and -n <= gone < n:
        t, a = (in_one_axis(t), 0) if axis is None else (t, axis)
        return concat([_part(t, a, 0, gone % n), _part(t, a, gone % n + 1, n)], axis=a)
    try:
        left = np.delete(np.arange(n), gone)
    except IndexError as e:
        raise IndexOutOfRange(f"delete: {e}") from None
    if at_hand(t):
        return adopted(np.delete(t._array("delete"), gone, axis=axis))
    return take(t, left, axis=axis)


def _fitted(v: Tensor, t: Tensor, axis: int, count: int) -> Tensor:
    """v over the shape of t with `count` elements along an axis."""
    return broadcast_to(v, tuple(count if i == axis else k for i, k in enumerate(t.shape)))


def insert(arr: ArrayLike, obj: Any, values: ArrayLike, axis: int | None = None) -> Tensor:
    """The array with values put before indices of an axis, or of it flattened; values take its dtype.

    A tensor of indices is computed. Raises IndexOutOfRange, ShapeError. As `numpy.insert`.

    >>> import lazyt as lt
    >>> lt.insert(lt.asarray([1, 3]), 1, 2).tolist()
    [1, 2, 3]
    """
    t, v = tensors((arr, values))
    t, a = (in_one_axis(t), 0) if axis is None else (t, one_axis("insert", axis, t.ndim))
    n = t.shape[a]
    where: Any = obj if isinstance(obj, slice | int) else host(obj, "insert")
    where = np.arange(n)[where] if isinstance(where, slice) else np.asarray(where)
    if where.dtype == np.bool_:
        where = np.flatnonzero(where)
    dtypes.check_imaginary("insert", v.dtype, t.dtype)
    v = astype(v, t.dtype, copy=False)
    v = reshape(v, (*(1,) * (t.ndim - v.ndim), *v.shape))
    if not where.ndim:
        v = moveaxis(v, 0, a)
    # One index takes as many values as there are. NumPy itself says where old and new elements stand: the new ones are
    # numbered -1, -2, ...
    count = v.shape[a] if where.size == 1 else where.size
    where = int(where.reshape(())) if where.size == 1 else where
    if isinstance(where, int) and -n <= where <= n:
        start = where + n if where < 0 else where
        parts = [_part(t, a, 0, start), _fitted(v, t, a, count), _part(t, a, start, n)]
        return concat(parts, axis=a)
    try:
        order = np.insert(np.arange(n), where, -1 - np.arange(count))
    except IndexError as e:
        raise IndexOutOfRange(f"insert: {e}") from None
    return take(concat([t, _fitted(v, t, a, count)], axis=a), np.where(order < 0, n - 1 - order, order), axis=a)


def trim_zeros(filt: ArrayLike, trim: str = "fb", axis: AxisLike = None) -> Tensor:
    """A view without what is zero all over at the front ('f') and the back ('b') of axes (all of them, without any).

    A sync: their number is data. Of zeros alone nothing is left. Raises ShapeError for a bad axis or another `trim`.
    As `numpy.trim_zeros`.

    >>> import lazyt as lt
    >>> lt.trim_zeros(lt.asarray([0, 1, 0, 2, 0])).tolist()
    [1, 0, 2]
    """
    t = tensor(filt)
    ends = str(trim).lower()
    if ends not in ("fb", "bf", "f", "b"):
        raise ShapeError(f"trim_zeros: trim is 'fb', 'f' or 'b', got {trim!r}")
    axes = many_axes("trim_zeros", axis, t.ndim)
    key = [slice(None)] * t.ndim
    for a, at in enumerate(np.nonzero(host(t, "trim_zeros")) if axes else ()):
        if a in axes:
            start = int(at.min()) if at.size and "f" in ends else 0
            key[a] = slice(start, int(at.max()) + 1 if at.size and "b" in ends else t.shape[a] if at.size else 0)
    return getitem(t, tuple(key)) if axes else t


def diagflat(v: ArrayLike, k: int = 0) -> Tensor:
    """A matrix with the flattened array on its k-th diagonal. As `numpy.diagflat`.

    >>> import lazyt as lt
    >>> lt.diagflat([[1, 2]]).tolist()
    [[1, 0], [0, 2]]
    """
    return diag(ravel(v), k)


def ix_(*args: ArrayLike) -> tuple[Tensor, ...]:
    """Vectors of indices (a mask gives its positions, which computes it) shaped so that together they index a grid.

    Raises ShapeError unless they are vectors. As `numpy.ix_`.

    >>> import lazyt as lt
    >>> [i.shape for i in lt.ix_([0, 1], [2, 3, 4])]
    [(2, 1), (1, 3)]
    """
    out = []
    for i, a in enumerate(args):
        t = tensor(a)
        if t.ndim != 1:
            raise ShapeError(f"ix_: vectors are required, got shape {t.shape}")
        if t.dtype == dtypes.bool_:
            (t,) = nonzero(t)
        elif not t.size and not isinstance(a, Handle | np.ndarray):
            t = astype(t, dtypes.int64)  # an empty list has no dtype of its own
        out.append(reshape(t, (*(1,) * i, t.size, *(1,) * (len(args) - i - 1))))
    return tuple(out)


def _positions(pair: tuple[np.ndarray[Any, Any], ...], beside: Any = None) -> tuple[Tensor, ...]:
    return tuple(adopted(x, beside) for x in pair)


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, ...]:
    """The positions of the lower triangle of an (n, m) matrix, up to the k-th diagonal. As `numpy.tril_indices`.

    >>> import lazyt as lt
    >>> [i.tolist() for i in lt.tril_indices(2)]
    [[0, 1, 1], [0, 0, 1]]
    """
    return _positions(np.tril_indices(integer("tril_indices", "n", n), k, m))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, ...]:
    """The positions of the upper triangle of an (n, m) matrix, from the k-th diagonal. As `numpy.triu_indices`.

    >>> import lazyt as lt
    >>> [i.tolist() for i in lt.triu_indices(2)]
    [[0, 0, 1], [0, 1, 1]]
    """
    return _positions(np.triu_indices(integer("triu_indices", "n", n), k, m))


def _matrix_shape(name: str, a: Any) -> tuple[int, ...]:
    shape = tensor(a).shape
    if len(shape) != 2:
        raise ShapeError(f"{name}: a matrix is required, got shape {shape}")
    return shape


def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Tensor, ...]:
    """`tril_indices` of a matrix's shape. Raises ShapeError unless it is one. As `numpy.tril_indices_from`.

    >>> import lazyt as lt
    >>> [i.tolist() for i in lt.tril_indices_from(lt.ones((2, 2)))]
    [[0, 1, 1], [0, 0, 1]]
    """
    n, m = _matrix_shape("tril_indices_from", arr)
    return _positions(np.tril_indices(n, k, m), arr)


def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Tensor, ...]:
    """`triu_indices` of a matrix's shape. Raises ShapeError unless it is one. As `numpy.triu_indices_from`.

    >>> import lazyt as lt
    >>> [i.tolist() for i in lt.triu_indices_from(lt.ones((2, 2)))]
    [[0, 0, 1], [0, 1, 1]]
    """
    n, m = _matrix_shape("triu_indices_from", arr)
    return _positions(np.triu_indices(n, k, m), arr)


def diag_indices_from(arr: ArrayLike) -> tuple[Tensor, ...]:
    """The positions of the main diagonal of an array whose extents are equal. As `numpy.diag_indices_from`.

    Raises ShapeError where they are not, or for a vector.

    >>> import lazyt as lt
    >>> [i.tolist() for i in lt.diag_indices_from(lt.ones((2, 2)))]
    [[0, 1], [0, 1]]
    """
    t = tensor(arr)
    shape = t.shape
    if len(shape) < 2 or len(set(shape)) != 1:
        raise ShapeError(f"diag_indices_from: at least 2 equal extents are required, got shape {shape}")
    return tuple(arange(shape[0], device=t.device) for _ in shape)


def unravel_index(indices: ArrayLike, shape: ShapeLike) -> tuple[Tensor, ...]:
    """Flat indices as one index array an axis, in C order. Out of bounds they are not checked when they are data.

    Raises DTypeError unless they are integers, IndexOutOfRange for known ones. As `numpy.unravel_index`.

    >>> import lazyt as lt
    >>> [i.tolist() for i in lt.unravel_index(lt.asarray([5]), (2, 3))]
    [[1], [2]]
    """
    t = tensor(indices)
    if dtypes.kind(t.dtype) not in "iu":
        raise DTypeError(f"unravel_index: integers are required, got {t.dtype}")
    t = astype(t, dtypes.int64, copy=False)
    out: list[Tensor] = []
    for n in reversed(shape_of("unravel_index", shape)):
        out.append(remainder(t, n))
        t = floor_divide(t, n)
    return tuple(reversed(out))


def ravel_multi_index(multi_index: Any, dims: ShapeLike, mode: str | Sequence[str] = "raise") -> Tensor:
    """One index array an axis as flat indices, in C order; 'wrap' and 'clip' bring indices into bounds.

    `mode` is one for all axes or one for each. With 'raise' indices are not checked when they are data. Raises
    ShapeError for a wrong number of arrays or another mode. As `numpy.ravel_multi_index`.

    >>> import lazyt as lt
    >>> lt.ravel_multi_index((lt.asarray([1]), lt.asarray([2])), (2, 3)).tolist()
    [5]
    """
    shape = shape_of("ravel_multi_index", dims)
    if len(multi_index) != len(shape):
        raise ShapeError(f"ravel_multi_index: {len(multi_index)} index arrays for {len(shape)} axes")
    modes = tuple(mode) if isinstance(mode, list | tuple) else (mode,) * len(shape)
    if len(modes) != len(shape) or any(m not in ("raise", "wrap", "clip") for m in modes):
        raise ShapeError(f"ravel_multi_index: mode is 'raise', 'wrap' or 'clip', or one an axis, got {mode!r}")
    out: Any = 0
    beside: Any = next((i for i in multi_index if isinstance(i, Handle)), None)
    for i, n, how in zip(multi_index, shape, modes, strict=True):
        t = astype(tensor(i, beside), dtypes.int64, copy=False)
        if how == "wrap":
            t = remainder(t, n)
        elif how == "clip":
            t = clip(t, 0, n - 1)
        out = out * n + t
    return tensor(out)


def sliding_window_view(x: ArrayLike, window_shape: Any, axis: Any = None) -> Tensor:
    """Every window of a shape over axes (all of them, without any), in new last axes: a copy, not a view.

    Raises ShapeError where a window does not fit. As `numpy.lib.stride_tricks.sliding_window_view`.

    >>> import lazyt as lt
    >>> lt.sliding_window_view(lt.asarray([1, 2, 3]), 2).tolist()
    [[1, 2], [2, 3]]
    """
    t = tensor(x)
    sizes = shape_of("sliding_window_view", window_shape)
    axes = tuple(range(t.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    if len(axes) != len(sizes):
        raise ShapeError(f"sliding_window_view: a window of {len(sizes)} dimensions over {len(axes)} axes")
    # NOTE: axes are counted before windows are behind them.
    places = [one_axis("sliding_window_view", a, t.ndim) for a in axes]
    for a, k in zip(places, sizes, strict=True):
        t = windows("sliding_window_view", t, a, k, 1)
    return t


def windows(name: str, t: Tensor, axis: int, size: int, step: int) -> Tensor:
    """Every step-th window of an axis, in a new last axis."""
    n = t.shape[axis] - size
    if n < 0:
        raise ShapeError(f"{name}: a window of {size} does not fit into an extent of {t.shape[axis]}")
    if size == 0:
        return reshape(ravel(t)[:0], (*t.shape[:axis], n // step + 1, *t.shape[axis + 1 :], 0))
    return record(manipulation.WINDOWS, (t,), ((axis,), (size,), (step,)))


class _Grid:
    """`mgrid[0:3, 0:2]`: the coordinates of a grid, dense or open."""

    def __init__(self, dense: bool) -> None:
        self._dense = dense

    def __getitem__(self, key: Any) -> Any:
        try:
            found = (np.mgrid if self._dense else np.ogrid)[key]
        except (MemoryError, ValueError) as error:
            raise OutOfMemory(f"{'mgrid' if self._dense else 'ogrid'}: {error}") from None
        return tensor(found) if isinstance(found, np.ndarray) else tuple(map(tensor, found))


mgrid, ogrid = _Grid(True), _Grid(False)
