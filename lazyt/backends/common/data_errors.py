"""Errors of a run, with the line that recorded the operation: values that are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import LOOKED_UP, REFUSALS, IndexOutOfRange, LazytError, recorded_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.graph import Node


def line_of(n: Node) -> tuple[Any, int]:
    """The user's line that a node comes from, and the step of the program."""
    site = getattr(n.site, "site", None)
    return getattr(site, "site", site), getattr(n.site, "step", -1)


def index_error(n: Node, index: int, sizes: Sequence[int]) -> LazytError:
    """The error for an index read from data, into axes of these sizes, with the line that recorded it."""
    name = getattr(n.site, "name", "")
    # Which axis refused it is not known: those that would. A negative index had the size added when it was recorded.
    refusing = sorted({s for s in sizes if not 0 <= index < s} or {sizes[0]})
    each = " or ".join(str(s) for s in refusing)
    given = str(index) if index >= 0 else " or ".join(str(index - s) for s in refusing)
    construct = getattr(n.site, "construct", "")
    found = f"at {n.site}; found at the sync{f', by {construct}' * bool(construct)}"
    error: LazytError = IndexOutOfRange(
        f"index {given} is out of bounds for an axis of size {each} (indexing recorded {found})"
    )
    if name in LOOKED_UP:
        error = IndexOutOfRange(
            f"{name}: {LOOKED_UP[name]} {index} is out of bounds for {each} classes (recorded {found})"
        )
    elif name in REFUSALS:
        refused, why = REFUSALS[name]
        error = refused(f"{name}: {why} (recorded {found})")
    recorded_at(error, *line_of(n))
    return error
