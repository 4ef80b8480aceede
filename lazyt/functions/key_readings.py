"""Another meaning of keys with index arrays than NumPy's, in files that have it."""

from __future__ import annotations

from sys import _getframe
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from types import FrameType


class Reading(Protocol):
    """Another meaning of keys that have index arrays, which some files have: PyTorch's (`lazyt.torch.indexing`)."""

    def applies(self, frame: FrameType) -> bool:
        """Whether the file of a frame has it."""

    def key(self, key: Any) -> Any:
        """The key as NumPy would write it, but for the place of the arrays' axes."""

    def place(self, axes: tuple[int, ...], scalars: tuple[bool, ...]) -> int:
        """Where the axes of index arrays for `axes` of a view stand among the others; which of them have no axes."""

    def check(self, x: Any, value: Any) -> None:
        """Raise where a value may not be written at index arrays."""


# What `lazyt.torch` sets.
readings: list[Reading] = []


def reading_of(key: Any) -> Reading | None:
    """The reading of a key at the user's line, three frames out; None for NumPy's."""
    if not readings:
        return None
    parts = key if type(key) is tuple else (key,)
    arrays = (Handle, np.ndarray, list, range, bool, np.bool_)
    if any(isinstance(k, arrays) for k in parts) and readings[0].applies(_getframe(3)):
        return readings[0]
    return None
