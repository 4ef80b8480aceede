"""Whole elements of complex arrays, as kernels move them: words of 8 bytes, one for complex64, two for complex128.

Arithmetic reads parts. Pure movement (`canonicalize.py` keeps it whole) is loaded and stored as int64, so a kernel
knows no complex dtype; where an element is two words, the kernel's last outer axis counts them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import dtypes

if TYPE_CHECKING:
    import numpy as np

    from lazyt.ir.graph import Node


def word(dtype: np.dtype) -> np.dtype:
    """The dtype that a kernel loads and stores in place of an element of this dtype, or of half of it."""
    return dtypes.int64 if dtypes.kind(dtype) == "c" else dtype


def are_halves(n: Node) -> bool:
    """Whether a kernel that stores n moves it in words of half an element."""
    return n.dtype == dtypes.complex128 and n.op != "complex"
