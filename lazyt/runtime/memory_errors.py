"""Errors of a plan for which there is no memory: they name the operation of its largest array."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from lazyt.backends.common.data_errors import line_of
from lazyt.errors import found_at
from lazyt.ir.graph import Origin
from lazyt.ir.graph_interpreter import Environment
from lazyt.ir.passes.call_operands import nbytes

if TYPE_CHECKING:
    from lazyt.ir.passes.schedule import Schedule

    class Planned(Protocol):
        """The parts of a plan that are read here."""

        schedule: Schedule


def name_largest(
    error: MemoryError, plan: Planned, extents: Sequence[int], scalars: Sequence[Any], steps: Container[int] = ()
) -> MemoryError:
    """Have a want of memory say which operation gives the largest array that a plan stores, the last one of several.

    Returns the error. steps: those that are asked first, by their positions.
    """
    size = Environment((), (), (extents, scalars)).size
    stored = [(n, n.site) for n in plan.schedule.stored if isinstance(n.site, Origin)]
    _, _, n, origin = max(
        ((origin.step in steps, size(nbytes(n)), n, origin) for n, origin in stored),
        key=lambda found: (found[0], found[1], found[2].serial),
        default=(False, 0, None, None),
    )
    if n is not None and origin is not None:
        name = f"its largest array, of {size(nbytes(n))} bytes, is of {origin.name}"
        found_at(error, name, *line_of(n))
    return error
