"""Reductions with NumPy's `initial=` and `where=`, made of lazyt's reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions import arithmetic, logic, manipulation, reductions
from lazyt.functions.arguments import dtype_or_none, tensor
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.runtime.tensor import Tensor

# What joins `initial` to a result, and what a masked element counts as (None: it must be given).
_JOIN: dict[str, tuple[Callable[..., Any], Any]] = {
    "sum": (arithmetic.add, 0),
    "prod": (arithmetic.multiply, 1),
    "max": (arithmetic.maximum, None),
    "min": (arithmetic.minimum, None),
    "all": (logic.logical_and, True),
    "any": (logic.logical_or, False),
}


def reduce(
    name: str,
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Tensor:
    """`name` of x over `axis`, of the elements where `where` holds, and of `initial`. Raises as the reduction does.

    ShapeError for a masked `max` or `min` without `initial`, which need not have an element.
    """
    join, neutral = _JOIN[name]
    t = tensor(x, result=dtype_or_none(dtype))
    if neutral is None and t.dtype == dtypes.bool_ and isinstance(initial, int):
        initial = bool(initial)  # it is one of the elements
    if where is not True:
        if neutral is None and initial is None:
            raise ShapeError(f"{name}: where= needs initial=, because nothing may be left to reduce")
        t = logic.where(where, t, initial if neutral is None else neutral)
    elif initial is not None and neutral is None and not t.size:
        axes = range(t.ndim) if axis is None else [a % t.ndim for a in ((axis,) if isinstance(axis, int) else axis)]
        shape = tuple(1 if i in axes else n for i, n in enumerate(t.shape))
        if all(n for i, n in enumerate(t.shape) if i not in axes):
            kept = shape if keepdims else tuple(n for i, n in enumerate(t.shape) if i not in axes)
            return manipulation.broadcast_to(manipulation.astype(tensor(initial), t.dtype), kept)
    f = getattr(reductions, name)
    out: Tensor
    if name in ("sum", "prod"):
        out = f(t, axis=axis, dtype=dtype, keepdims=keepdims)
    else:
        out = f(t, axis=axis, keepdims=keepdims)
        if dtype is not None:
            out = manipulation.astype(out, dtypes.as_dtype(dtype), copy=False)
    return out if initial is None else join(out, initial)
