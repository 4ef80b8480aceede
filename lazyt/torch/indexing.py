"""Keys with index arrays as PyTorch reads them, in files that have `lazyt.torch` among their names.

Integers, and tensors of one integer, select before index arrays are placed; tensors of bytes are masks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.functions import key_readings
from lazyt.ir import dtypes
from lazyt.runtime.tensor import Tensor
from lazyt.torch.values import need_kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def _mask(k: Any) -> Any:
    """A part of a key: of bytes the mask of those that are not 0."""
    return k != 0 if isinstance(k, Tensor | np.ndarray) and k.dtype == dtypes.uint8 else k


class _Indexing:
    """PyTorch's reading of keys (`lazyt.functions.key_readings.Reading`)."""

    def __init__(self, is_of_torch: Callable[[FrameType], bool]) -> None:
        self.applies = is_of_torch

    def key(self, key: Any) -> Any:
        return tuple(map(_mask, key)) if type(key) is tuple else _mask(key)

    def place(self, axes: tuple[int, ...], scalars: tuple[bool, ...]) -> int:
        # NOTE: what selects takes its axis away before the others are placed.
        taken = [a for a, is_scalar in zip(axes, scalars, strict=True) if is_scalar]
        left = [a - sum(t < a for t in taken) for a in axes if a not in taken]
        return left[0] if left and left == [*range(left[0], left[0] + len(left))] else 0

    def check(self, x: Any, value: Any) -> None:
        if isinstance(value, Tensor):
            need_kind("index", value.dtype, x.dtype)


def attach(is_of_torch: Callable[[FrameType], bool]) -> None:
    """Read keys of files that are written for PyTorch as it does."""
    key_readings.readings[:] = [_Indexing(is_of_torch)]


def detach() -> None:
    """Read all keys as NumPy does."""
    key_readings.readings.clear()
