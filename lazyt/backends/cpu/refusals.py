"""The errors of a run that come from data: what was refused, and the line that recorded it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cpu.callbacks import line_of
from lazyt.errors import REFUSALS, IndexOutOfRange, LazytError, recorded_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.graph import Node


def index_error(n: Node, index: int, sizes: Sequence[int]) -> LazytError:
    """The error of an index that came from data, into axes of these sizes, with the line that recorded it."""
    size = next((s for s in sizes if not 0 <= index < s), sizes[0])
    # A negative index had the size added to it when it was recorded.
    error: LazytError = IndexOutOfRange(
        f"index {index if index >= 0 else index - size} is out of bounds for an axis of size {size} "
        f"(indexing recorded at {n.site}; found at the sync)"
    )
    name = getattr(n.site, "name", "")
    if name in REFUSALS:
        refused, why = REFUSALS[name]
        error = refused(f"{name}: {why} (recorded at {n.site}; found at the sync)")
    recorded_at(error, *line_of(n))
    return error
