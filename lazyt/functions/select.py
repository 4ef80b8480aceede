"""Values chosen by conditions or indices, and functions applied along axes."""

from __future__ import annotations

import builtins
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, NotSupportedError, ShapeError
from lazyt.functions.arguments import adopted, at_hand, tensor, tensors
from lazyt.functions.arithmetic import clip, remainder
from lazyt.functions.creation import full
from lazyt.functions.data_types import result_type
from lazyt.functions.indexing import take, take_along_axis
from lazyt.functions.joining import stack
from lazyt.functions.logic import logical_not, logical_or, where
from lazyt.functions.manipulation import astype, broadcast_to, expand_dims, moveaxis, reshape
from lazyt.functions.numpy_calls import common_shape
from lazyt.functions.searching import host
from lazyt.functions.subscript import getitem
from lazyt.ir import dtypes
from lazyt.ops.axes import one_axis
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.functions.arguments import ArrayLike
    from lazyt.runtime.tensor import Tensor

__all__ = ["apply_along_axis", "apply_over_axes", "choose", "compress", "extract", "piecewise", "select"]


def select(condlist: Sequence[ArrayLike], choicelist: Sequence[ArrayLike], default: ArrayLike = 0) -> Tensor:
    """The choice of the first condition that holds, `default` where none does. As `numpy.select`.

    Raises ShapeError unless there are as many conditions (bool) as choices, and at least one.

    >>> import lazyt as lt
    >>> x = lt.asarray([1, 5, 9])
    >>> lt.select([x < 3, x < 7], [x, x * 10], -1).tolist()
    [1, 50, -1]
    """
    if len(condlist) != len(choicelist) or not len(condlist):
        raise ShapeError(
            f"select: {len(condlist)} conditions for {len(choicelist)} choices; as many, and one, are required"
        )
    given = (*choicelist, default)
    beside: Any = next((x for x in (*condlist, *given) if isinstance(x, Handle)), None)
    conditions = [tensor(c, beside) for c in condlist]
    for c in conditions:
        if c.dtype != dtypes.bool_:
            raise NotSupportedError(f"select: not supported: a condition of dtype {c.dtype}, because bool is required")
    every = [x if isinstance(x, int | float | complex) else t for x, t in zip(given, tensors(given), strict=True)]
    *choices, out = every
    if not isinstance(out, Handle):
        # The dtype of all of them: numbers that are chosen between before an array comes are as wide as with it.
        d = result_type(*(x.dtype if isinstance(x, Handle) else x for x in every))
        out = full((), out, d, device=None if beside is None else beside.device)
    for c, choice in zip(reversed(conditions), reversed(choices), strict=True):
        out = where(c, choice, out)
    return out


def choose(a: ArrayLike, choices: Any, *, mode: str = "raise") -> Tensor:
    """choices[a[i]][i] for every i; all broadcast. An index out of bounds raises at the sync, wraps or is clipped.

    Raises DTypeError for an `a` of floats, ShapeError if the shapes do not broadcast, IndexOutOfRange at the sync. As
    `numpy.choose`.

    >>> import lazyt as lt
    >>> lt.choose(lt.asarray([1, 0, 1]), [[1, 2, 3], [10, 20, 30]]).tolist()
    [10, 2, 30]
    """
    t = tensor(a)
    if dtypes.kind(t.dtype) not in "biu":
        raise DTypeError(f"choose: integers are required to choose by, got {t.dtype}")
    # Beside each other, not beside the indices, whose dtype says nothing of them.
    every = [
        c if isinstance(g, Handle) else c.to(device=t.device) for g, c in zip(choices, tensors(choices), strict=True)
    ]
    shape = common_shape("choose", t.shape, *(c.shape for c in every))
    table = stack([broadcast_to(c, shape) for c in every])
    index = astype(broadcast_to(t, shape), dtypes.int64)
    if mode == "wrap":
        index = remainder(index, len(every))
    elif mode == "clip":
        index = clip(index, 0, len(every) - 1)
    elif mode != "raise":
        raise NotSupportedError(f"choose: not supported: mode {mode!r}, because it is 'raise', 'wrap' or 'clip'")
    return getitem(take_along_axis(table, expand_dims(index, axis=0), axis=0), 0)


def piecewise(x: ArrayLike, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Tensor:
    """Of functions (or scalars) the value of the one whose condition holds, the last one that does; else of a further
    function, or 0. In x's dtype.

    Each function is called on all of x, not only on its part, and what is not its part is dropped; so nothing is
    computed now. Raises ShapeError for a wrong number of functions. As `numpy.piecewise`.

    >>> import lazyt as lt
    >>> x = lt.asarray([-2.0, 3.0])
    >>> lt.piecewise(x, [x < 0, x >= 0], [lambda v: -v, 10]).tolist()
    [2.0, 10.0]
    """
    t = tensor(x)
    whole = isinstance(condlist, list | tuple) and len(condlist) and np.ndim(condlist[0]) != 0
    if not isinstance(condlist, list | tuple):
        c = tensor(condlist)
        condlist = [getitem(c, i) for i in range(len(c))] if c.ndim > t.ndim else [c]
    elif not whole and t.ndim:
        condlist = [condlist]
    conditions = [astype(tensor(c), dtypes.bool_, copy=False) for c in condlist]
    n = len(conditions)
    if len(funclist) == n + 1:
        some = conditions[0]
        for c in conditions[1:]:
            some = logical_or(some, c)
        conditions.append(logical_not(some))
    elif len(funclist) != n:
        raise ShapeError(f"piecewise: {n} conditions need {n} or {n + 1} functions, got {len(funclist)}")
    out: Any = 0
    for c, f in zip(conditions, funclist, strict=True):
        value = f(t, *args, **kw) if callable(f) else f
        dtypes.check_imaginary("piecewise", tensor(value, t).dtype, t.dtype)
        out = where(c, value if isinstance(value, int | float | complex) else astype(tensor(value, t), t.dtype), out)
    return astype(broadcast_to(out, t.shape), t.dtype, copy=False)


def compress(condition: ArrayLike, a: ArrayLike, axis: int | None = None) -> Tensor:
    """The slices along an axis (of the flattened array, without one) where a vector of conditions holds. A sync.

    Raises IndexOutOfRange where a condition beyond the extent holds. As `numpy.compress`.

    >>> import lazyt as lt
    >>> lt.compress([True, False, True], lt.asarray([1, 2, 3])).tolist()
    [1, 3]
    """
    t, holds = tensor(a), host(condition, "compress")
    if at_hand(t) and holds.ndim == 1:
        return adopted(np.compress(holds, t._array("compress"), axis))
    return take(t, np.flatnonzero(holds), axis=axis)


def extract(condition: ArrayLike, arr: ArrayLike) -> Tensor:
    """The elements of the flattened array where the flattened condition holds. A sync. As `numpy.extract`.

    >>> import lazyt as lt
    >>> x = lt.asarray([[1, 2], [3, 4]])
    >>> lt.extract(x > 2, x).tolist()
    [3, 4]
    """
    t, holds = tensor(arr), host(condition, "extract")
    if at_hand(t) and holds.size == t.size:
        return adopted(t._array("extract").take(np.flatnonzero(holds)))
    return take(t, np.flatnonzero(holds), axis=None)


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: ArrayLike, *args: Any, **kwargs: Any) -> Tensor:
    """`func1d` of every vector along an axis; what it gives takes the axis's place. As `numpy.apply_along_axis`.

    The function is called on tensors, once a vector, and what it records is deferred. Raises ShapeError for a bad
    axis or no vector at all.

    >>> import lazyt as lt
    >>> lt.apply_along_axis(lambda v: v.max() - v.min(), 1, lt.asarray([[1, 5], [2, 3]])).tolist()
    [4, 1]
    """
    t = tensor(arr)
    a = one_axis("apply_along_axis", axis, t.ndim)
    lead = (*t.shape[:a], *t.shape[a + 1 :])
    if not builtins.all(lead):
        raise ShapeError(f"apply_along_axis: there is no vector along axis {axis} of shape {t.shape}")
    rows = reshape(moveaxis(t, a, -1), (math.prod(lead), t.shape[a]))
    out = stack([tensor(func1d(getitem(rows, i), *args, **kwargs)) for i in range(rows.shape[0])])
    inner = out.shape[1:]
    out = reshape(out, (*lead, *inner))
    return moveaxis(out, tuple(range(len(lead), out.ndim)), tuple(range(a, a + len(inner)))) if inner else out


def apply_over_axes(func: Callable[..., Any], a: ArrayLike, axes: int | Sequence[int]) -> Tensor:
    """`func(x, axis)` over one axis after another, an axis that it removes kept as 1. As `numpy.apply_over_axes`.

    Raises ShapeError where the function gives another number of dimensions.

    >>> import lazyt as lt
    >>> lt.apply_over_axes(lt.sum, lt.ones((2, 3)), [0, 1]).tolist()
    [[6.0]]
    """
    t = tensor(a)
    for axis in (axes,) if isinstance(axes, int) else axes:
        at = one_axis("apply_over_axes", axis, t.ndim)
        out = tensor(func(t, at))
        if out.ndim not in (t.ndim, t.ndim - 1):
            raise ShapeError(f"apply_over_axes: the function gave shape {out.shape}")
        t = out if out.ndim == t.ndim else expand_dims(out, axis=at)
    return t
