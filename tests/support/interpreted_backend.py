"""A backend that runs the kernel interpreter over NumPy's memory: the least that a device of lazyt's needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyt.backends.small.backend import SmallBackend
from lazyt.backends.small.memory import Memory

NAME = "interpreted"
Array = np.ndarray[Any, Any]

__all__ = ["NAME", "InterpretedBackend", "Memory"]


class InterpretedBackend(SmallBackend):
    """One device, `interpreted`."""

    name = NAME

    def allocate(self, nbytes: int, device: str) -> Array:
        return np.full(nbytes, 0xA5, np.uint8)  # what nobody has written is not zero

    def write(self, block: Array, content: Array, device: str) -> None:
        block[: content.size] = content

    def read(self, block: Array, into: Array, device: str) -> None:
        into[:] = block[: into.size]

    def view(self, block: Array) -> Array:
        return block

    def fallback(self, fn: str) -> str:
        return ""  # the host is the device
