"""Dtypes are `numpy.dtype` objects (bfloat16 comes from ml_dtypes); promotion as in the Array API and NEP 50."""

from __future__ import annotations

from functools import lru_cache

import ml_dtypes
import numpy as np

from lazyt.errors import DTypeError

bool_ = np.dtype(np.bool_)
int8, int16, int32, int64 = (np.dtype(f"int{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{n}") for n in (8, 16, 32, 64))
float16, float32, float64 = (np.dtype(f"float{n}") for n in (16, 32, 64))
bfloat16 = np.dtype(ml_dtypes.bfloat16)
complex64, complex128 = np.dtype("complex64"), np.dtype("complex128")

ALL = (
    bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
    float16, bfloat16, float32, float64, complex64, complex128,
)  # fmt: skip
HALVES = (float16, bfloat16)
_KIND = {d: ("f" if d == bfloat16 else d.kind) for d in ALL}
_NAMES = {d.name: d for d in ALL}


def is_known(dtype: np.dtype) -> bool:
    """Whether tensors have this dtype, as it is."""
    return dtype in _KIND


def is_name(text: str) -> bool:
    """Whether a dtype is called so."""
    return text in _NAMES


def named(text: str) -> np.dtype:
    """The dtype that is called so."""
    return _NAMES[text]


def kind(dtype: np.dtype) -> str:
    """'b', 'i', 'u', 'f' or 'c' (bfloat16 is 'f')."""
    return _KIND[dtype]


@lru_cache(maxsize=256)
def _as_dtype(spec: object) -> np.dtype:
    if spec is float:
        return float32
    if spec is int:
        return int64
    if spec is bool:
        return bool_
    if spec is complex:
        return complex64
    if isinstance(spec, str) and spec in _NAMES:
        return _NAMES[spec]
    try:
        found = np.dtype(spec)  # type: ignore[call-overload]
    except TypeError:
        raise DTypeError(f"not a dtype: {spec!r}") from None
    native: np.dtype = found.newbyteorder("=")
    if native not in _KIND:
        raise DTypeError(f"dtype {found} is not supported: lazyt has {', '.join(map(str, ALL))}")
    return native


def as_dtype(spec: object) -> np.dtype:
    """The dtype that `spec` (a dtype, its name, a NumPy scalar type, a Python type) names; DTypeError otherwise."""
    if isinstance(spec, np.dtype) and spec in _KIND:
        return spec
    try:
        hash(spec)
    except TypeError:  # a list of fields, say
        raise DTypeError(f"not a dtype: {spec!r}") from None
    return _as_dtype(spec)


@lru_cache(maxsize=1024)
def promote(a: np.dtype, b: np.dtype) -> np.dtype:
    """The common dtype of two dtypes.

    Array API table, with NumPy's choices where the standard leaves it open (int64 + float32 -> float64);
    bfloat16 acts as float16 does, and float16 with bfloat16 gives float32.
    """
    if a == b:
        return a
    if bfloat16 in (a, b):
        other = b if a == bfloat16 else a
        if kind(other) in "biu":
            return bfloat16 if other.itemsize == 1 else (float32 if other.itemsize == 2 else float64)
        return float32 if other == float16 else other
    return np.promote_types(a, b)


def promote_weak(dtype: np.dtype, scalar: type) -> np.dtype:
    """The dtype that a Python scalar of this type takes beside an array of `dtype` (NEP 50)."""
    k = kind(dtype)
    if scalar is bool:
        return dtype
    if scalar is int:
        return int64 if k == "b" else dtype
    if scalar is float:
        return dtype if k in "fc" else float64
    if k == "c":
        return dtype
    return complex64 if dtype in (float16, bfloat16, float32) else complex128


def check_imaginary(name: str, value: np.dtype, target: np.dtype) -> None:
    """DTypeError where complex values would be written into an array of real ones."""
    if kind(value) == "c" and kind(target) != "c":
        raise DTypeError(f"{name}: a complex value cannot be written into an array of dtype {target}")


def plain_number(x: object) -> float | complex | None:
    """The number that an instance of a subclass of Python's types is (an IntEnum); None for all else.

    NumPy's scalars, some of which are such instances, are arrays.
    """
    if hasattr(x, "__array__"):
        return None
    if isinstance(x, float):
        return float(x)
    if isinstance(x, int):
        return int(x)
    return complex(x) if isinstance(x, complex) else None


def default_dtype(scalar: type) -> np.dtype:
    """What a Python scalar becomes on its own: bool, int64, float32, complex64."""
    return {bool: bool_, int: int64, float: float32, complex: complex64}[scalar]


def real_of(dtype: np.dtype) -> np.dtype:
    """The dtype of a complex dtype's parts; a real dtype itself."""
    return {complex64: float32, complex128: float64}.get(dtype, dtype)


def complex_of(dtype: np.dtype) -> np.dtype:
    """The complex dtype whose parts have this real dtype (float32 for the halves)."""
    return complex128 if dtype in (float64, complex128) else complex64


# The greatest integer that a float64 is the nearest to.
LARGEST = (1 << 1024) - (1 << 970) - 1


def dtype_range(dtype: np.dtype) -> tuple[int, int]:
    """The integers that an integer dtype holds; for the others, those that are converted to float64 on the way."""
    if dtype.kind not in "iu":
        return -LARGEST, LARGEST
    bits = dtype.itemsize * 8
    return (0, (1 << bits) - 1) if dtype.kind == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
