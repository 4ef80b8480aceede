"""Data of the host (NumPy arrays, lists, numbers) as arrays of dtypes that lazyt has."""

from __future__ import annotations

import functools
import sys
from array import array
from collections.abc import Iterator, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from lazyt.errors import DTypeError, NotSupportedError, ScalarRangeError, ShapeError
from lazyt.ir import dtypes
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.trace import local, whole_array

# What is an array as it stands; those of Python's.
PYTHONS = (range, memoryview, bytearray, array)
ARRAYS = (np.ndarray, np.generic, *PYTHONS)


def is_foreign(x: Any) -> bool:
    """Whether an array is of a subclass of NumPy's, which may add a meaning to its elements: a mask, a unit."""
    return isinstance(x, np.ndarray) and type(x) is not np.ndarray and type(x) is not np.memmap


def refuse_foreign(x: Any) -> None:
    """NotSupportedError for an operand of such a subclass, whose meaning would be lost."""
    if is_foreign(x):
        refuse_class(type(x))


def refuse_class(of: type) -> None:
    """NotSupportedError for arrays of a subclass of NumPy's."""
    masked = issubclass(of, np.ma.MaskedArray)
    what, write = ("the data", "x.filled(...) or x.data") if masked else ("the elements", "numpy.asarray(x)")
    raise NotSupportedError(
        f"not supported: an array of class {of.__module__}.{of.__name__}, because a tensor would hold {what} alone; "
        f"write {write}"
    )


def _count(a: np.ndarray[Any, Any]) -> int:
    return getrefcount(a)


# What a function counts of its argument, an array that only the call refers to; without a GIL that says nothing.
ALONE = _count(np.empty(1)) if getattr(sys, "_is_gil_enabled", lambda: True)() else -1


def is_constant(a: Any) -> bool:
    """Whether an array is read-only, and all that it is a view of."""
    while isinstance(a, np.ndarray):
        if a.flags.writeable:
            return False
        if a.base is None:
            return True
        a = a.base
    try:
        with memoryview(a) as view:
            return view.readonly
    except (TypeError, BufferError):
        return False


def host_array(obj: Any, dtype: np.dtype | None) -> np.ndarray[Any, Any]:
    """A NumPy array of a supported dtype; Python floats become float32 and ints int64, as lazyt's defaults."""
    if local.trace.impure is not None and isinstance(obj, np.ndarray):
        local.trace.hosts.append(whole_array(obj))
    if type(obj) is np.ndarray and dtype is None and dtypes.is_known(obj.dtype):
        return obj
    if isinstance(obj, np.ndarray | np.generic):
        if isinstance(obj, np.ma.MaskedArray):
            refuse_foreign(obj)
        a = np.asarray(obj)
    else:
        if isinstance(obj, list | tuple) and obj and isinstance(obj[0], np.ndarray):
            for o in obj:
                if isinstance(o, np.ma.MaskedArray):
                    refuse_foreign(o)
        try:
            a = np.asarray(obj)
        except ValueError as e:
            raise ShapeError(f"asarray: {e}") from None
        if dtype is None and not hasattr(obj, "__array__") and not hasattr(obj, "__array_interface__"):
            dtype = _default_of(obj, a)
    if dtypes.host_kind(a.dtype) in "OUSMmV":
        if a.dtype == object and a.size and all(type(x) is int for x in a.flat) and not _fit(a):
            raise ScalarRangeError(f"asarray: Python integers beyond 64 bits: {min(a.flat)} to {max(a.flat)}")
        raise DTypeError(f"asarray: cannot make a tensor of {type(obj).__name__!r} with NumPy dtype {a.dtype}")
    if dtype is not None and dtypes.host_kind(a.dtype) in "iu" and a.size and a is not obj and _only_python(obj):
        _check_range(a, dtypes.as_dtype(dtype))
    return a.astype(dtypes.as_dtype(dtype if dtype is not None else a.dtype), copy=False)


def list_dtype(dtype: np.dtype, beside: Sequence[Any]) -> np.dtype:
    """The dtype that Python's numbers have beside operands or dtypes: as wide as what they give with them.

    >>> list_dtype(dtypes.float32, [np.zeros(2)]), list_dtype(dtypes.float32, [np.zeros(2, np.float32), 1.0])
    (dtype('float64'), dtype('float32'))
    """
    wide = {dtypes.float32: dtypes.float64, dtypes.complex64: dtypes.complex128}.get(dtype)
    if wide is None:
        return dtype
    # NOTE: `None in dtypes.ALL`, because NumPy's float64 equals None.
    found = [x if isinstance(x, np.dtype) else getattr(x, "dtype", None) for x in beside]
    given = [d for d in found if isinstance(d, np.dtype) and d in dtypes.ALL]
    both = functools.reduce(dtypes.promote, given, dtype)
    return wide if both in (dtypes.float64, dtypes.complex128) else dtype


def tensors_in(obj: Any) -> Iterator[Handle]:
    """Every tensor in nested lists."""
    for o in obj:
        if isinstance(o, Handle):
            yield o
        elif isinstance(o, list | tuple):
            yield from tensors_in(o)


def holds_tensor(obj: Any) -> bool:
    """Whether nested lists have a tensor in them."""
    return next(tensors_in(obj), None) is not None


def _fit(a: np.ndarray[Any, Any]) -> bool:
    """Whether Python's integers fit a dtype of 64 bits."""
    low, high = min(a.flat), max(a.flat)
    return bool(low >= -(1 << 63) and high < (1 << 63 if low < 0 else 1 << 64))


def holds_array(obj: Any) -> bool:
    """Whether nested lists have a tensor or an array of NumPy's in them."""
    return any(holds_array(o) if isinstance(o, list | tuple) else isinstance(o, (Handle, *ARRAYS)) for o in obj)


def _default_of(obj: Any, a: np.ndarray[Any, Any]) -> np.dtype | None:
    if a.size == 0 or (a.dtype == np.float64 and _only_python(obj)):
        return dtypes.float32
    return dtypes.complex64 if a.dtype == np.complex128 and _only_python(obj) else None


def _check_range(a: np.ndarray[Any, Any], dtype: np.dtype) -> None:
    """ScalarRangeError for Python integers that an integer dtype does not hold, as NumPy raises OverflowError."""
    if dtypes.kind(dtype) in "iu":
        bounds = np.iinfo(dtype)
        for n in (a.min(), a.max()):
            if not bounds.min <= int(n) <= bounds.max:
                raise ScalarRangeError(
                    f"asarray: Python integer {n} is out of range: {dtype} holds {bounds.min}..{bounds.max}"
                )


def _only_python(obj: Any) -> bool:
    if isinstance(obj, list | tuple):
        return all(_only_python(o) for o in obj)
    return not isinstance(obj, np.ndarray | np.generic)
