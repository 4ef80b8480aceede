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


# Tables of what each element along an axis is made of have tens of bytes for it: no memory holds so many.
_MOST = 1 << 36


def check_extents(name: str, extents: Any) -> None:
    """OutOfMemory for extents or widths beyond what a table has entries for."""
    if any(isinstance(n, int) and n >= _MOST for n in extents):
        raise OutOfMemory(f"{name}: extents or widths {tuple(extents)} for axes of less than {_MOST} elements")
