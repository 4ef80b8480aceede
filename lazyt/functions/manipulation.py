"""Other shapes of the same elements. All but `broadcast_to`'s kin, `flatten` and `astype` are views one
can write to.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import NoView, ShapeError
from lazyt.functions.arguments import axes as axes_, record, record_view, shape_of, tensor
from lazyt.functions.subscript import getitem
from lazyt.ir import dtypes
from lazyt.ir.graph import shape_text
from lazyt.ops import indexing, manipulation as ops
from lazyt.ops.axes import integer, many_axes, one_axis
from lazyt.runtime.device import Device
from lazyt.tracing.strides import reshapes_in_place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.functions.arguments import ArrayLike, AxisLike, ShapeLike
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "array_split",
    "astype",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "expand_dims",
    "flatten",
    "flip",
    "fliplr",
    "flipud",
    "moveaxis",
    "permute_dims",
    "ravel",
    "reshape",
    "rot90",
    "split",
    "squeeze",
    "swapaxes",
    "transpose",
    "unstack",
]


def _solved(x: Tensor, shape: ShapeLike) -> tuple[int, ...]:
    """The shape with its -1, if any, worked out."""
    if type(shape) is tuple and {*map(type, shape)} == {int}:
        least = min(shape)
        if least >= 0:
            return shape
        known = -math.prod(shape)
        if least == -1 and known > 0 and shape.count(-1) == 1 and x.size % known == 0:
            i = shape.index(-1)
            return (*shape[:i], x.size // known, *shape[i + 1 :])
    given = (shape,) if isinstance(shape, int | np.integer) else shape
    extents = tuple(integer("reshape", "shape", n) for n in given)
    if any(n < -1 for n in extents) or extents.count(-1) > 1:
        raise ShapeError(f"reshape: at most one extent may be -1 and none below, got {extents}")
    if -1 not in extents:
        return extents
    known = 1
    for n in extents:
        known *= n if n != -1 else 1
    if known == 0 or x.size % known:
        raise ShapeError(f"reshape: shape {shape_text(x.shape)} cannot become {shape_text(extents)}")
    return tuple(x.size // known if n == -1 else n for n in extents)


def reshape(x: ArrayLike, /, shape: ShapeLike, *, copy: bool | None = None) -> Tensor:
    """The same elements in row-major order under another shape; one extent may be -1, which is worked out.

    A view where NumPy gives one, unless `copy=True`: always but for some views whose elements lie out of order.
    Raises ShapeError if the number of elements differs, or with `copy=False` where a copy is needed. As
    `numpy.reshape`.

    >>> import lazyt as lt
    >>> lt.reshape(lt.arange(6), (2, -1)).tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    t = tensor(x)
    return _reshaped(t, _solved(t, shape), copy)


def _reshaped(t: Tensor, ints: tuple[int, ...], copy: bool | None = None) -> Tensor:
    if copy or not reshapes_in_place(t, ints):
        if copy is False:
            raise NoView(
                f"reshape: a view of shape {shape_text(ints)} needs a copy here, as the elements lie in another order; "
                "x.reshape(...) makes one"
            )
        return record(ops.FLATTEN, (t,), (), ints)
    return record_view(ops.RESHAPE, t, (), ints)


def ravel(x: ArrayLike, /, order: str | None = "C") -> Tensor:
    """All elements in one axis, as a view where `reshape` gives one. As `numpy.ravel`.

    The last axis runs fastest, with `order="F"` the first ("A" and "K" mean "C": values lie in that order). Raises
    ShapeError for another order.

    >>> import lazyt as lt
    >>> lt.ravel(lt.asarray([[1, 2], [3, 4]])).tolist()
    [1, 2, 3, 4]
    """
    t = _in_order("ravel", tensor(x), order)
    return _reshaped(t, (t.size,))


def in_one_axis(x: ArrayLike) -> Tensor:
    """The elements in one axis, for an operation along it: x itself if it has one, else a view or a copy of it."""
    t = tensor(x)
    return t if t.ndim == 1 else ravel(t)


def flatten(
    x: ArrayLike, /, order: str | int | None = "C", end_dim: int = -1, *, start_dim: int | None = None
) -> Tensor:
    """All elements in one axis, as a copy; `order` as in `ravel`. As `numpy.ndarray.flatten`.

    With a number instead, or `start_dim` and `end_dim`, the axes from one to the other become one, and the rest stay:
    as `torch.flatten`, a view where `reshape` gives one. Raises AxisError or ShapeError for axes that are not there.

    >>> import lazyt as lt
    >>> lt.flatten(lt.asarray([[1, 2], [3, 4]])).tolist()
    [1, 2, 3, 4]
    >>> lt.flatten(lt.ones((2, 3, 4)), 1).shape
    (2, 12)
    """
    t = tensor(x)
    if start_dim is None and type(order) is int:
        start_dim = order
    if start_dim is not None or end_dim != -1:
        return _reshaped(t, _merged(t.shape, 0 if start_dim is None else start_dim, end_dim))
    t = _in_order("flatten", t, order)
    return record(ops.FLATTEN, (t,), (), (t.size,))


def _merged(shape: tuple[int, ...], first: int, last: int) -> tuple[int, ...]:
    """The shape whose axes from `first` to `last` are one."""
    shape = shape or (1,)
    i, j = one_axis("flatten", first, len(shape)), one_axis("flatten", last, len(shape))
    if i > j:
        raise ShapeError(f"flatten: start_dim {first} comes after end_dim {last} in shape {shape_text(shape)}")
    return (*shape[:i], math.prod(shape[i : j + 1]), *shape[j + 1 :])


_ORDERS = (None, *"CFAKcfak")


def _in_order(name: str, t: Tensor, order: Any) -> Tensor:
    """What has its elements, read in C order, in this order of x's."""
    if order not in _ORDERS:
        raise ShapeError(f"{name}: order is one of C, F, A and K, got {order!r}")
    return transpose(t) if order in ("F", "f") and t.ndim > 1 else t


def expand_dims(x: ArrayLike, /, axis: AxisLike = 0) -> Tensor:
    """New axes of extent 1 that stand at `axis` in the result, as a view. As `numpy.expand_dims`.

    Raises ShapeError for a bad or repeated axis.

    >>> import lazyt as lt
    >>> lt.expand_dims(lt.asarray([1, 2]), axis=1).shape
    (2, 1)
    """
    return record_view(ops.EXPAND_DIMS, tensor(x), (axes_(axis),))


def squeeze(x: ArrayLike, /, axis: AxisLike = None) -> Tensor:
    """x without `axis` (by default, without any axis of extent 1), as a view. As `numpy.squeeze`.

    Raises ShapeError for an axis whose extent is not 1.

    >>> import lazyt as lt
    >>> lt.squeeze(lt.zeros((1, 3, 1)), axis=0).shape
    (3, 1)
    """
    t = tensor(x)
    found = tuple(i for i, n in enumerate(t.shape) if n == 1) if axis is None else axes_(axis)
    return record_view(ops.SQUEEZE, t, (found,))


def permute_dims(x: ArrayLike, /, axes: Sequence[int] | None = None) -> Tensor:
    """The axes of x in another order (reversed by default), as a view. As `numpy.permute_dims`.

    Raises ShapeError unless `axes` names each once.

    >>> import lazyt as lt
    >>> lt.permute_dims(lt.zeros((1, 2, 3)), (2, 0, 1)).shape
    (3, 1, 2)
    """
    return record_view(ops.PERMUTE_DIMS, tensor(x), (None if axes is None else tuple(axes),))


def transpose(x: ArrayLike, /, axes: Sequence[int] | None = None) -> Tensor:
    """`permute_dims`, in reversed order by default. As `numpy.transpose`.

    >>> import lazyt as lt
    >>> lt.transpose(lt.asarray([[1, 2], [3, 4]])).tolist()
    [[1, 3], [2, 4]]
    """
    return record_view(ops.PERMUTE_DIMS, tensor(x), (None if axes is None else tuple(axes),))


def moveaxis(x: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int], /) -> Tensor:
    """Some axes moved to other places, the rest in order, as a view. As `numpy.moveaxis`.

    Raises ShapeError for a bad or repeated axis, or as many sources as there are destinations not.

    >>> import lazyt as lt
    >>> lt.moveaxis(lt.zeros((1, 2, 3)), 0, -1).shape
    (2, 3, 1)
    """
    t = tensor(x)
    old = many_axes("moveaxis", axes_(source), t.ndim)
    new = many_axes("moveaxis", axes_(destination), t.ndim)
    if len(old) != len(new):
        raise ShapeError(f"moveaxis: {len(old)} source axes but {len(new)} destinations")
    order = [i for i in range(t.ndim) if i not in old]
    for to, i in sorted(zip(new, old, strict=True)):
        order.insert(to, i)
    return record_view(ops.PERMUTE_DIMS, t, (tuple(order),))


def swapaxes(x: ArrayLike, axis1: int, axis2: int, /) -> Tensor:
    """Two axes exchanged, as a view. Raises ShapeError for a bad axis. As `numpy.swapaxes`.

    >>> import lazyt as lt
    >>> lt.swapaxes(lt.zeros((1, 2, 3)), 0, 2).shape
    (3, 2, 1)
    """
    t = tensor(x)
    i, j = one_axis("swapaxes", axis1, t.ndim), one_axis("swapaxes", axis2, t.ndim)
    order = list(range(t.ndim))
    order[i], order[j] = j, i
    return record_view(ops.PERMUTE_DIMS, t, (tuple(order),))


def flip(x: ArrayLike, /, axis: AxisLike = None) -> Tensor:
    """The elements in reversed order along `axis` (None: all axes), as a view. As `numpy.flip`.

    Raises ShapeError for a bad axis.

    >>> import lazyt as lt
    >>> lt.flip(lt.asarray([1, 2, 3])).tolist()
    [3, 2, 1]
    """
    return record_view(ops.FLIP, tensor(x), (axes_(axis),))


def flipud(x: ArrayLike, /) -> Tensor:
    """`flip` along axis 0. As `numpy.flipud`.

    >>> import lazyt as lt
    >>> lt.flipud(lt.asarray([[1, 2], [3, 4]])).tolist()
    [[3, 4], [1, 2]]
    """
    return flip(x, axis=0)


def fliplr(x: ArrayLike, /) -> Tensor:
    """`flip` along axis 1. As `numpy.fliplr`.

    >>> import lazyt as lt
    >>> lt.fliplr(lt.asarray([[1, 2], [3, 4]])).tolist()
    [[2, 1], [4, 3]]
    """
    return flip(x, axis=1)


def rot90(x: ArrayLike, /, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    """x turned k times by 90 degrees, from the first of `axes` towards the second, as a view. As
    `numpy.rot90`.

    Raises ShapeError unless `axes` are two axes of x.

    >>> import lazyt as lt
    >>> lt.rot90(lt.asarray([[1, 2], [3, 4]])).tolist()
    [[2, 4], [1, 3]]
    """
    t = tensor(x)
    found = many_axes("rot90", tuple(axes), t.ndim)
    if len(found) != 2:
        raise ShapeError(f"rot90: two axes are required, got {axes}")
    i, j = found
    match integer("rot90", "k", k) % 4:
        case 0:
            return getitem(t, ...)
        case 1:
            return swapaxes(flip(t, axis=j), i, j)
        case 2:
            return flip(t, axis=(i, j))
        case _:
            return flip(swapaxes(t, i, j), axis=j)


def atleast_1d(*arys: ArrayLike) -> Any:
    """Arrays with at least one axis, new ones leading, as views: a tuple, of one array itself. As `numpy.atleast_1d`.

    >>> import lazyt as lt
    >>> lt.atleast_1d(lt.asarray(5)).shape
    (1,)
    """
    return _each(arys, lambda shape: (1,) * (1 - len(shape)) + shape)


def atleast_2d(*arys: ArrayLike) -> Any:
    """Arrays with at least two axes, new ones leading, as views: a tuple, of one array itself. As `numpy.atleast_2d`.

    >>> import lazyt as lt
    >>> lt.atleast_2d(lt.asarray([1, 2])).shape
    (1, 2)
    """
    return _each(arys, lambda shape: (1,) * (2 - len(shape)) + shape)


def atleast_3d(*arys: ArrayLike) -> Any:
    """Arrays with at least three axes, as views: a vector becomes (1, n, 1), a matrix (m, n, 1). As `numpy.atleast_3d`.

    A tuple, of one array itself.

    >>> import lazyt as lt
    >>> lt.atleast_3d(lt.asarray([1, 2])).shape
    (1, 2, 1)
    """
    return _each(arys, lambda shape: {0: (1, 1, 1), 1: (1, *shape, 1), 2: (*shape, 1)}.get(len(shape), shape))


def _each(arys: Sequence[ArrayLike], shape_of_one: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Any:
    """Arrays under the shapes that theirs become: themselves where it is the same; of one array not in a tuple."""
    found = [tensor(x) for x in arys]
    found = [t if (shape := shape_of_one(t.shape)) == t.shape else reshape(t, shape) for t in found]
    return found[0] if len(found) == 1 else tuple(found)


def broadcast_to(x: ArrayLike, /, shape: ShapeLike) -> Tensor:
    """x repeated along new leading axes and axes of extent 1, as a read-only view. As `numpy.broadcast_to`.

    Raises ShapeError if x does not broadcast to the shape.

    >>> import lazyt as lt
    >>> lt.broadcast_to(lt.asarray([1, 2]), (2, 2)).tolist()
    [[1, 2], [1, 2]]
    """
    return record_view(ops.BROADCAST_TO, tensor(x), (), shape_of("broadcast_to", shape))


def broadcast_shapes(*shapes: ShapeLike) -> tuple[int, ...]:
    """The shape that arrays of these shapes have together. Raises ShapeError if there is none. As
    `numpy.broadcast_shapes`.

    >>> import lazyt as lt
    >>> lt.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    found = [shape_of("broadcast_shapes", s) for s in shapes]
    rank = max(map(len, found), default=0)
    out = [1] * rank
    for s in found:
        for i, n in enumerate(s, rank - len(s)):
            if n != 1 and out[i] not in (1, n):
                texts = " and ".join(map(shape_text, found))
                raise ShapeError(f"broadcast_shapes: shapes {texts} do not broadcast")
            out[i] = n if n != 1 else out[i]
    return tuple(out)


def broadcast_arrays(*arrays: ArrayLike) -> tuple[Tensor, ...]:
    """The arrays under their common shape, as read-only views. Raises ShapeError if there is none.

    As `numpy.broadcast_arrays`.

    >>> import lazyt as lt
    >>> [a.shape for a in lt.broadcast_arrays(lt.zeros((2, 1)), lt.zeros(3))]
    [(2, 3), (2, 3)]
    """
    tensors = [tensor(a) for a in arrays]
    shape = broadcast_shapes(*(t.shape for t in tensors))
    return tuple(broadcast_to(t, shape) for t in tensors)


def astype(x: ArrayLike, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """x cast to `dtype`; x itself if it has that dtype and `copy` is False. As `numpy.astype`.

    Floats become integers towards zero (saturating, NaN to 0), complex values lose their imaginary part.

    >>> import lazyt as lt
    >>> lt.astype(lt.asarray([1.7, -1.7]), "int32").tolist()
    [1, -1]
    """
    Device.check(device)
    d = dtypes.as_dtype(dtype)
    t = tensor(x, result=dtypes.float64)  # Python's numbers are rounded once, to `dtype`
    return t if not copy and t.dtype == d else record(ops.ASTYPE, (t,), (d,))


# Several views


def _piece(op: Any, t: Tensor, axis: int, item: Any, start: int, ints: tuple[int, ...]) -> Tensor:
    spec = tuple(item if i == axis else "all" for i in range(t.ndim))
    return record_view(op, t, (spec,), ints, (start,))


def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Every index along an axis, as views without it. Raises ShapeError for a bad axis. As `numpy.unstack`.

    >>> import lazyt as lt
    >>> [a.tolist() for a in lt.unstack(lt.asarray([[1, 2], [3, 4]]))]
    [[1, 2], [3, 4]]
    """
    t = tensor(x)
    a = one_axis("unstack", axis, t.ndim)
    statics = (tuple("int" if i == a else "all" for i in range(t.ndim)),)
    return tuple(record_view(indexing.UNSTACK, t, statics, (), (i,)) for i in range(t.shape[a]))


# Sections beyond an axis's extent are tensors without an element: more of them are taken for a mistake.
_EMPTY_PARTS = 1 << 20


def _split(name: str, x: ArrayLike, sections: int | Sequence[int], axis: int, even: bool) -> tuple[Tensor, ...]:
    t = tensor(x)
    a = one_axis(name, axis, t.ndim)
    n = t.shape[a]
    if isinstance(sections, int):
        if sections <= 0:
            raise ShapeError(f"{name}: at least one section is required, got {sections}")
        size, more = divmod(n, sections)
        if sections > n + _EMPTY_PARTS:
            raise ShapeError(f"{name}: {sections} sections of axis {a} of extent {n}: nearly all would be empty")
        if even and more:
            raise ShapeError(f"{name}: axis {a} of extent {n} does not divide into {sections} equal sections")
        bounds = [i * size + min(i, more) for i in range(sections + 1)]
    else:
        cuts = [slice(integer(name, "a place to split at", c)).indices(n)[1] for c in sections]
        bounds = [0, *cuts, n]
    pieces = []
    for start, stop in itertools.pairwise(bounds):
        length = max(stop - start, 0)
        pieces.append(_piece(indexing.SPLIT, t, a, ("slice", 1), start if length else 0, (length,)))
    return tuple(pieces)


def split(x: ArrayLike, sections: int | Sequence[int], /, axis: int = 0) -> tuple[Tensor, ...]:
    """x cut along an axis into equal sections, or before the given indices; views. As `numpy.split`.

    Raises ShapeError if the axis does not divide.

    >>> import lazyt as lt
    >>> [a.tolist() for a in lt.split(lt.arange(4), 2)]
    [[0, 1], [2, 3]]
    """
    return _split("split", x, sections, axis, True)


def array_split(x: ArrayLike, sections: int | Sequence[int], /, axis: int = 0) -> tuple[Tensor, ...]:
    """`split` into sections that may differ by one, the longer ones first. As `numpy.array_split`.

    >>> import lazyt as lt
    >>> [a.tolist() for a in lt.array_split(lt.arange(3), 2)]
    [[0, 1], [2]]
    """
    return _split("array_split", x, sections, axis, False)
