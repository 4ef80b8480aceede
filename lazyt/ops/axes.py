"""Axis arguments: normalised and checked where an operation is lowered, so that errors end at the user's
line.
"""

from __future__ import annotations

import operator

from lazyt.errors import AxisError, DTypeError, ShapeError

Axis = int | tuple[int, ...] | None


def integer(name: str, what: str, value: object) -> int:
    """`value` as a Python int; DTypeError `name: what must be an integer`."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise DTypeError(f"{name}: {what} must be an integer, got {value!r}") from None


def one_axis(name: str, axis: object, ndim: int) -> int:
    """A non-negative axis below `ndim`; AxisError otherwise."""
    a = integer(name, "axis", axis)
    if not -ndim <= a < ndim:
        error = AxisError(f"{name}: axis {a} is out of bounds for an array of {ndim} dimensions")
        error.axis, error.ndim = a, ndim
        raise error
    return a % ndim


def many_axes(name: str, axis: object, ndim: int) -> tuple[int, ...]:
    """Non-negative axes in the order given (None: all of them); ShapeError for repeated ones."""
    if axis is None:
        return tuple(range(ndim))
    axes = tuple(one_axis(name, a, ndim) for a in (axis if isinstance(axis, tuple | list) else (axis,)))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name}: axis {axis} names an axis twice")
    return axes
