"""Data of the host (NumPy arrays, lists, numbers) as arrays of dtypes that lazyt has."""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyt.errors import DTypeError, ShapeError
from lazyt.ir import dtypes


def host_array(obj: Any, dtype: np.dtype | None) -> np.ndarray[Any, Any]:
    """A NumPy array of a supported dtype; Python floats become float32 and ints int64, as lazyt's defaults."""
    if isinstance(obj, np.ndarray | np.generic):
        a = np.asarray(obj)
    else:
        try:
            a = np.asarray(obj)
        except ValueError as e:
            raise ShapeError(f"asarray: {e}") from None
        if dtype is None and not hasattr(obj, "__array__") and not hasattr(obj, "__array_interface__"):
            dtype = _default_of(obj, a)
    if a.dtype.kind in "OUSMmV" and a.dtype != dtypes.bfloat16:
        raise DTypeError(f"asarray: cannot make a tensor of {type(obj).__name__!r} with NumPy dtype {a.dtype}")
    return a.astype(dtypes.as_dtype(dtype if dtype is not None else a.dtype), copy=False)


def _default_of(obj: Any, a: np.ndarray[Any, Any]) -> np.dtype | None:
    if a.size == 0 or (a.dtype == np.float64 and _only_python(obj)):
        return dtypes.float32
    return dtypes.complex64 if a.dtype == np.complex128 and _only_python(obj) else None


def _only_python(obj: Any) -> bool:
    if isinstance(obj, list | tuple):
        return all(_only_python(o) for o in obj)
    return not isinstance(obj, np.ndarray | np.generic)
