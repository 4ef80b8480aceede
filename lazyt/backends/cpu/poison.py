"""Memory that begins as NaN, for `LAZYT_DEBUG=poison`: a read of what a run did not write shows in its results."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


class Block(Protocol):
    """Memory at an address."""

    address: int


B = TypeVar("B", bound=Block)


def poisoned(allocate: Callable[[int], B]) -> Callable[[int], B]:
    """An allocator whose buffers have all bits set, which is NaN in each floating dtype."""

    def filled(nbytes: int) -> B:
        buffer = allocate(nbytes)
        ctypes.memset(buffer.address, 0xFF, nbytes)
        return buffer

    return filled
