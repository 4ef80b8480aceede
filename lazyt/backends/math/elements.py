"""Element types by LLVM's names, in which every backend's rules are written."""

from __future__ import annotations

import numpy as np

from lazyt.ir import dtypes

Number = bool | int | float

FLOAT_BITS = {"half": 16, "float": 32, "double": 64}


def reg_type(dtype: np.dtype) -> str:
    """The element type of `dtype` in registers; bfloat16 travels as its raw bits in i16."""
    return dtypes.of(dtype).register


def mem_type(dtype: np.dtype) -> str:
    """The element type of `dtype` in memory; a bool is one byte."""
    return dtypes.of(dtype).memory


def bits_of(value: float, dtype: np.dtype) -> int:
    """The raw bits of a number, as a signed integer: for a float that travels as them."""
    return int(np.asarray(value, dtype).view(f"i{dtype.itemsize}"))
