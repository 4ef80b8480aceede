"""What a driver is asked to run, in a graph or by itself: launches of kernels, and products by cuBLAS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Product:
    """C = A @ B over a batch: row-major matrices, each transposed or not, by address, leading dimension and stride.

    C is of `dtype`, A and B of `read`: the same, or a half where C is float32.
    """

    dtype: np.dtype
    read: np.dtype
    m: int
    n: int
    k: int
    a: int
    b: int
    c: int
    a_leading: int
    b_leading: int
    a_transposed: bool
    b_transposed: bool
    batch: int
    a_stride: int
    b_stride: int
    c_stride: int
    tf32: bool


@dataclass(frozen=True, slots=True)
class KernelNode:
    """A kernel's launch; `parameters` is the address of an array of one pointer, to the `entries` of its arguments."""

    function: Any
    blocks: int
    threads: int
    shared: int
    parameters: int
    entries: int


# What a graph's nodes are, each with the numbers of those that it comes after.
Work = KernelNode | Product
Ordered = tuple[Work, "tuple[int, ...]"]
