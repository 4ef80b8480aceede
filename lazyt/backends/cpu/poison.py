"""Memory that begins as NaN, for `LAZYT_DEBUG=poison`: a read of what a run did not write shows in its results."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.backends.cpu.memory import Buffer


def poisoned(allocate: Callable[[int], Buffer]) -> Callable[[int], Buffer]:
    """An allocator whose buffers have all bits set, which is NaN in each floating dtype."""

    def filled(nbytes: int) -> Buffer:
        buffer = allocate(nbytes)
        ctypes.memset(buffer.address, 0xFF, nbytes)
        return buffer

    return filled
