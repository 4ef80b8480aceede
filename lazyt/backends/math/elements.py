"""Element types by LLVM's names, in which every backend's rules are written."""

from __future__ import annotations

import ml_dtypes
import numpy as np

Number = bool | int | float

BFLOAT16: np.dtype = np.dtype(ml_dtypes.bfloat16)
FLOAT_BITS = {"half": 16, "float": 32, "double": 64}
_FLOATS = {
    np.dtype(np.float16): "half",
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
}


def reg_type(dtype: np.dtype) -> str:
    """The element type of `dtype` in registers; bfloat16 travels as its raw bits in i16."""
    if dtype.kind == "b":
        return "i1"
    return mem_type(dtype)


def mem_type(dtype: np.dtype) -> str:
    """The element type of `dtype` in memory; a bool is one byte."""
    if dtype == BFLOAT16:
        return "i16"
    if dtype.kind in "iub":
        return f"i{8 * dtype.itemsize}"
    return _FLOATS[dtype]
