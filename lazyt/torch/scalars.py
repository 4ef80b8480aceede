"""Axes as PyTorch has them: a scalar has one, of one element, which 0 and -1 name."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import lazyt as lt
from lazyt.ops.axes import one_axis

if TYPE_CHECKING:
    from collections.abc import Callable


def axis_of(name: str, x: Any, dim: int) -> int:
    """The number of an axis, counted from the front. AxisError where there is none."""
    return one_axis(name, dim, x.ndim or 1)


def extent_of(name: str, x: Any, dim: int) -> int:
    """How many elements an axis has. AxisError where there is none."""
    at = axis_of(name, x, dim)
    return int(x.shape[at]) if x.ndim else 1


def tuple_of(dim: Any) -> Any:
    """Several axes as a tuple; one, or None, as it is."""
    return dim if dim is None or isinstance(dim, int) else tuple(dim)


def axes_of(name: str, x: Any, dim: Any) -> Any:
    """The axes to reduce along; of a scalar all that there are, which is what 0 and -1 mean."""
    if dim is None:
        return None
    if not x.ndim:
        for d in dim if isinstance(dim, tuple | list) else (dim,):
            one_axis(name, d, 1)
        return None
    return tuple_of(dim)


def as_scalar(found: Any) -> Any:
    """Vectors of one element as scalars."""
    if isinstance(found, tuple):
        made = [as_scalar(x) for x in found]
        return type(found)(*made) if hasattr(found, "_fields") else tuple(made)
    return lt.reshape(found, ())


def of_scalars(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function along an axis that takes a scalar as a vector of one element, and gives scalars of it."""

    @functools.wraps(f)
    def call(input: Any, *args: Any, **options: Any) -> Any:
        if getattr(input, "ndim", 1):
            return f(input, *args, **options)
        return as_scalar(f(lt.reshape(input, (1,)), *args, **options))

    return call
