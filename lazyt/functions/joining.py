"""Arrays put together, repeated, rolled, and their differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lazyt.errors import ShapeError
from lazyt.functions.arguments import record, tensor, tensors
from lazyt.functions.arithmetic import subtract
from lazyt.functions.indexing import take
from lazyt.functions.logic import not_equal
from lazyt.functions.manipulation import atleast_1d, atleast_2d, atleast_3d, broadcast_to, in_one_axis, ravel, reshape
from lazyt.functions.subscript import getitem
from lazyt.ir import dtypes
from lazyt.ops import joining as ops
from lazyt.ops.axes import integer, one_axis
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyt.functions.arguments import ArrayLike
    from lazyt.runtime.tensor import Tensor

    Arrays = Iterable[ArrayLike]

__all__ = [
    "column_stack",
    "concat",
    "concatenate",
    "diff",
    "dstack",
    "hstack",
    "repeat",
    "roll",
    "stack",
    "tile",
    "vstack",
]


def concat(arrays: Arrays, /, axis: int | None = 0) -> Tensor:
    """The arrays end to end along an axis (None: flattened first), promoted to one dtype. As `numpy.concat`.

    Raises ShapeError for no arrays, a bad axis, or shapes that differ beyond it.

    >>> import lazyt as lt
    >>> lt.concat([lt.asarray([1, 2]), lt.asarray([3])]).tolist()
    [1, 2, 3]
    """
    several = tensors(tuple(arrays))
    if axis is None:
        several, axis = [in_one_axis(t) for t in several], 0
    return record(ops.CONCAT, tuple(several), (axis,))


def concatenate(arrays: Arrays, /, axis: int | None = 0) -> Tensor:
    """`concat` under NumPy's name.

    >>> import lazyt as lt
    >>> lt.concatenate([lt.asarray([1, 2]), lt.asarray([3])]).tolist()
    [1, 2, 3]
    """
    return concat(arrays, axis)


def stack(arrays: Arrays, /, axis: int = 0) -> Tensor:
    """Arrays of one shape side by side along a new axis, promoted to one dtype. As `numpy.stack`.

    Raises ShapeError for no arrays, a bad axis, or shapes that differ.

    >>> import lazyt as lt
    >>> lt.stack([lt.asarray([1, 2]), lt.asarray([3, 4])], axis=1).tolist()
    [[1, 3], [2, 4]]
    """
    return record(ops.STACK, tuple(tensors(tuple(arrays))), (axis,))


def vstack(arrays: Arrays, /) -> Tensor:
    """The arrays, made at least 2-d, end to end along axis 0. As `numpy.vstack`.

    >>> import lazyt as lt
    >>> lt.vstack([lt.asarray([1, 2]), lt.asarray([3, 4])]).tolist()
    [[1, 2], [3, 4]]
    """
    return concat([atleast_2d(a) for a in tensors(tuple(arrays))])


def hstack(arrays: Arrays, /) -> Tensor:
    """The arrays end to end along axis 1, or axis 0 if they are vectors. As `numpy.hstack`.

    >>> import lazyt as lt
    >>> lt.hstack([lt.asarray([1, 2]), lt.asarray([3])]).tolist()
    [1, 2, 3]
    """
    several = [atleast_1d(a) for a in tensors(tuple(arrays))]
    return concat(several, axis=0 if several and several[0].ndim == 1 else 1)


def dstack(arrays: Arrays, /) -> Tensor:
    """The arrays, made at least 3-d, end to end along axis 2. As `numpy.dstack`.

    >>> import lazyt as lt
    >>> lt.dstack([lt.asarray([1, 2]), lt.asarray([3, 4])]).tolist()
    [[[1, 3], [2, 4]]]
    """
    return concat([atleast_3d(a) for a in tensors(tuple(arrays))], axis=2)


def column_stack(arrays: Arrays, /) -> Tensor:
    """Vectors as the columns of a matrix; matrices end to end along axis 1. As `numpy.column_stack`.

    >>> import lazyt as lt
    >>> lt.column_stack([lt.asarray([1, 2]), lt.asarray([3, 4])]).tolist()
    [[1, 3], [2, 4]]
    """
    several = [atleast_1d(a) for a in tensors(tuple(arrays))]
    return concat([reshape(t, (-1, 1)) if t.ndim == 1 else t for t in several], axis=1)


def tile(x: ArrayLike, repetitions: int | Iterable[int], /) -> Tensor:
    """x repeated as a whole along each axis, new axes leading. As `numpy.tile`.

    Raises ShapeError for negative repetitions.

    >>> import lazyt as lt
    >>> lt.tile(lt.asarray([1, 2]), (2, 2)).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    t = tensor(x)
    many = (repetitions,) if isinstance(repetitions, int) else repetitions
    reps = tuple(integer("tile", "a repetition", r) for r in many)
    if any(r < 0 for r in reps):
        raise ShapeError(f"tile: negative repetitions in {reps}")
    rank = max(len(reps), t.ndim)
    if t.ndim < rank:
        t = reshape(t, (1,) * (rank - t.ndim) + t.shape)
    return record(ops.TILE, (t,), (), (1,) * (rank - len(reps)) + reps)


def repeat(x: ArrayLike, repeats: ArrayLike, /, axis: int | None = None) -> Tensor:
    """Each element (or slice along `axis`) several times; flattens x for axis None. As `numpy.repeat`.

    `repeats` is one integer or one for each index along the axis; a pending tensor of them syncs, as the
    result's shape depends on it. Raises ShapeError for a bad axis, a negative or a wrong number of repeats.

    >>> import lazyt as lt
    >>> lt.repeat(lt.asarray([1, 2]), 2).tolist(), lt.repeat(lt.asarray([1, 2]), [2, 1]).tolist()
    ([1, 1, 2, 2], [1, 1, 2])
    """
    t = tensor(x)
    if axis is None:
        t, axis = in_one_axis(t), 0
    a = one_axis("repeat", axis, t.ndim)
    counts = np.asarray(tensor(repeats)._array("repeat") if isinstance(repeats, Handle) else repeats)
    if dtypes.host_kind(counts.dtype) not in "iu" and counts.size:
        integer("repeat", "repeats", repeats)
    if (counts < 0).any():
        raise ShapeError("repeat: repeats must not be negative")
    if counts.size == 1:
        return record(ops.REPEAT, (t,), (a,), (int(counts.reshape(())),))
    if counts.shape != (t.shape[a],):
        raise ShapeError(f"repeat: {counts.size} repeats for axis {a} of extent {t.shape[a]}")
    return take(t, np.repeat(np.arange(t.shape[a]), counts.astype(np.int64)), axis=a)


def roll(x: ArrayLike, /, shift: int | tuple[int, ...], axis: int | tuple[int, ...] | None = None) -> Tensor:
    """The elements moved by `shift` along an axis, the last ones coming in first; flattened for None. As
    `numpy.roll`.

    Another shift is not another program. Raises ShapeError for a bad axis, or shifts and axes of unequal
    number.

    >>> import lazyt as lt
    >>> lt.roll(lt.asarray([1, 2, 3]), 1).tolist()
    [3, 1, 2]
    """
    t = tensor(x)
    if axis is None:
        shift, axis = sum(shift) if isinstance(shift, tuple | list) else shift, 0
        if t.ndim != 1:
            return reshape(roll(ravel(t), shift, axis=0), t.shape)
    shifts = tuple(integer("roll", "shift", s) for s in (shift if isinstance(shift, tuple | list) else (shift,)))
    axes = tuple(one_axis("roll", a, t.ndim) for a in (axis if isinstance(axis, tuple | list) else (axis,)))
    if len(shifts) == 1:
        shifts *= len(axes)
    if len(axes) == 1:
        axes *= len(shifts)
    if len(shifts) != len(axes):
        raise ShapeError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    ints = tuple(s % t.shape[a] if t.shape[a] else 0 for s, a in zip(shifts, axes, strict=True))
    return record(ops.ROLL, (t,), (axes,), ints)


def diff(
    x: ArrayLike,
    /,
    n: int = 1,
    axis: int = -1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> Tensor:
    """The n-th differences of neighbours along an axis, after joining `prepend` and `append`. As
    `numpy.diff`.

    For bool, whether neighbours differ. Raises ShapeError for a bad axis, a 0-d array or a negative n.

    >>> import lazyt as lt
    >>> lt.diff(lt.asarray([1, 4, 9])).tolist()
    [3, 5]
    """
    first = prepend is not None
    t, *ends = tensors([x, *(e for e in (prepend, append) if e is not None)])
    a = one_axis("diff", axis, t.ndim)
    if integer("diff", "n", n) < 0:
        raise ShapeError(f"diff: n must not be negative, got {n}")
    if n == 0:
        return t
    if ends:
        shape = (*t.shape[:a], 1, *t.shape[a + 1 :])
        ends = [e if e.ndim else broadcast_to(e, shape) for e in ends]
        t = concat([*ends[:first], t, *ends[first:]], axis=a)
    lead = (slice(None),) * a
    for _ in range(n):
        later, earlier = getitem(t, (*lead, slice(1, None))), getitem(t, (*lead, slice(None, -1)))
        t = not_equal(later, earlier) if t.dtype == dtypes.bool_ else subtract(later, earlier)
    return t
