"""Dtypes, constants and the functions that ask about dtypes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from lazyt.errors import DTypeError
from lazyt.ir import dtypes
from lazyt.ir.dtypes import (
    bfloat16,
    complex64,
    complex128,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from lazyt.ops.definition import result_type as _promoted
from lazyt.tracing.tensor_state import Handle

bool = dtypes.bool_
e, inf, nan, pi = math.e, math.inf, math.nan, math.pi
newaxis = None

_KINDS = {
    "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
    "complex floating": "c", "numeric": "iufc",
}  # fmt: skip


def _dtype_of(x: Any) -> np.dtype:
    return x.dtype if isinstance(x, Handle) else dtypes.as_dtype(x)


@dataclass(frozen=True, slots=True)
class FloatInfo:
    """Limits of a floating dtype, as Python numbers."""

    dtype: np.dtype
    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    smallest_subnormal: float
    resolution: float

    @property
    def tiny(self) -> float:
        """`smallest_normal`, under NumPy's older name."""
        return self.smallest_normal


def finfo(type: Any, /) -> FloatInfo:
    """Limits of a floating dtype (a complex one's parts): bits, eps, max, min, smallest_normal. As `numpy.finfo`.

    >>> import lazyt as lt
    >>> lt.finfo(lt.float32).bits
    32
    """
    dtype = dtypes.real_of(_dtype_of(type))
    if dtypes.kind(dtype) != "f":
        raise DTypeError(f"finfo: a floating dtype is required, got {dtype}")
    found = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    limits = (found.eps, found.max, found.min, found.smallest_normal, found.smallest_subnormal, found.resolution)
    return FloatInfo(dtype, int(found.bits), *map(float, limits))


def iinfo(type: Any, /) -> np.iinfo[Any]:
    """Limits of an integer dtype: bits, max, min. As `numpy.iinfo`.

    >>> import lazyt as lt
    >>> lt.iinfo(lt.int8).max
    127
    """
    dtype = _dtype_of(type)
    if dtypes.kind(dtype) not in "iu":
        raise DTypeError(f"iinfo: an integer dtype is required, got {dtype}")
    return np.iinfo(dtype)


def isdtype(dtype: Any, kind: Any) -> Any:
    """Whether a dtype is of a kind: a dtype, 'bool', 'integral', 'real floating', ... or a tuple of them.

    >>> import lazyt as lt
    >>> lt.isdtype(lt.int8, "integral")
    True
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return dtypes.kind(dtypes.as_dtype(dtype)) in _KINDS[kind]
    if isinstance(kind, str):
        raise DTypeError(f"isdtype: unknown kind {kind!r}; one of {', '.join(_KINDS)} is required")
    return dtypes.as_dtype(dtype) == dtypes.as_dtype(kind)


def can_cast(from_: Any, to: Any, /) -> Any:
    """Whether a dtype (or a tensor's) converts to `to` by promotion alone.

    >>> import lazyt as lt
    >>> lt.can_cast(lt.int8, lt.int16), lt.can_cast(lt.float64, lt.float32)
    (True, False)
    """
    a, b = _dtype_of(from_), dtypes.as_dtype(to)
    return dtypes.promote(a, b) == b


def result_type(*arrays_and_dtypes: Any) -> np.dtype:
    """The dtype that these tensors, dtypes and Python scalars promote to (NEP 50). As `numpy.result_type`.

    >>> import lazyt as lt
    >>> lt.result_type(lt.int32, lt.float32, 1.0)
    dtype('float64')
    """
    if not arrays_and_dtypes:
        raise DTypeError("result_type: at least one array, dtype or scalar is required")
    return _promoted(*(x if type(x) in (float, int, complex, np.bool_) or x is True or x is False else _dtype_of(x)
                       for x in arrays_and_dtypes))  # fmt: skip


__all__ = [
    "bfloat16", "bool", "can_cast", "complex64", "complex128", "e", "finfo", "float8_e4m3fn", "float8_e5m2",
    "float16", "float32", "float64", "iinfo",
    "inf", "int8", "int16", "int32", "int64", "isdtype", "nan", "newaxis", "pi", "result_type", "uint8", "uint16",
    "uint32", "uint64",
]  # fmt: skip
