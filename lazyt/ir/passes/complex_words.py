"""Whole elements of complex arrays, as kernels move them: words of 8 bytes, one of a complex64, two of a complex128.

What computes reads parts. What only moves (`canonicalize.py` leaves that whole) is loaded and stored as int64, so a
kernel knows no complex dtype; where an element is two words, the kernel's last outer axis is their number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import dtypes

if TYPE_CHECKING:
    import numpy as np

    from lazyt.ir.graph import Node


def word(dtype: np.dtype) -> np.dtype:
    """What a kernel loads and stores in place of an element of this dtype, or of half of it."""
    return dtypes.int64 if dtypes.kind(dtype) == "c" else dtype


def are_halves(n: Node) -> bool:
    """Whether a kernel that stores n moves it by words that are half an element."""
    return n.dtype == dtypes.complex128 and n.op != "complex"
