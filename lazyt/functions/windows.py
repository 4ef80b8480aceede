"""Arguments that are one integer for all axes, or one an axis."""

from __future__ import annotations

from typing import Any

from lazyt.errors import OutOfMemory, ShapeError
from lazyt.ops.axes import integer

Size = int | tuple[int, ...]


def each(name: str, what: str, value: Any, rank: int, least: int) -> tuple[int, ...]:
    """One integer an axis, from one for all or a tuple; ShapeError if it is below `least`."""
    values = tuple(value) if isinstance(value, tuple | list) else (value,) * rank
    sizes = tuple(integer(name, what, v) for v in values)
    if len(sizes) == 1:
        sizes *= rank
    if len(sizes) != rank or any(v < least for v in sizes):
        raise ShapeError(f"{name}: {what} is one or {rank} integers, at least {least}, got {value!r}")
    return sizes


# The tables of a resampling have tens of bytes for each element along an axis: no memory holds those of so many.
_MOST = 1 << 36


def check_extents(name: str, extents: Any) -> None:
    """OutOfMemory for a result with an extent beyond what its tables can have."""
    if any(isinstance(n, int) and n >= _MOST for n in extents):
        raise OutOfMemory(f"{name}: a result of extents {tuple(extents)}, where an axis has less than {_MOST} elements")
