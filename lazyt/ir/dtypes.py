"""Dtypes are `numpy.dtype` objects (bfloat16 comes from ml_dtypes), each with a record of the facts that code asks for.

No code outside of this file asks a dtype for NumPy's `kind`, which is 'V' for some floats: it asks `kind` or `of`.
Promotion is as in the Array API and NEP 50.
"""

from __future__ import annotations

from functools import lru_cache

import ml_dtypes
import numpy as np

from lazyt.errors import DTypeError
from lazyt.ir.records import dataclass

bool_ = np.dtype(np.bool_)
int8, int16, int32, int64 = (np.dtype(f"int{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{n}") for n in (8, 16, 32, 64))
float16, float32, float64 = (np.dtype(f"float{n}") for n in (16, 32, 64))
bfloat16 = np.dtype(ml_dtypes.bfloat16)
float8_e4m3fn, float8_e5m2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
complex64, complex128 = np.dtype("complex64"), np.dtype("complex128")


@dataclass(frozen=True, slots=True)
class DType:
    """The facts about a dtype."""

    dtype: np.dtype
    kind: str  # 'b', 'i', 'u', 'f' or 'c', bfloat16 being 'f'
    bits: int  # of an element; 1 for bool, which is a byte in memory
    code: str  # how names of functions spell it: f32, bf16, i64, u8, b1
    compute: np.dtype  # what arithmetic on it is done in, with one rounding behind it
    register: str  # LLVM's type of an element in registers: the raw bits of a float that LLVM does not convert
    memory: str  # the same in memory; '' for complex dtypes, whose kernels read their parts
    precision: int = 0  # bits of a float's significand, the leading one among them
    largest: float = 0.0  # the largest finite float
    top: int = 0  # the bits of a float's greatest number, which is its infinity if it has one: past them is NaN

    @property
    def numpy(self) -> np.dtype:
        """The dtype that NumPy's functions are called with: float32 for a float that is not NumPy's own."""
        return self.compute if self.foreign else self.dtype

    @property
    def foreign(self) -> bool:
        """Whether NumPy itself does not have it."""
        return self.dtype.isbuiltin != 1

    @property
    def bits_dtype(self) -> np.dtype:
        """The unsigned integers that hold its bits, for what knows only NumPy's own dtypes."""
        return np.dtype(f"uint{8 * self.dtype.itemsize}")

    @property
    def sign(self) -> int:
        """The bit of a float's sign."""
        return 1 << (self.bits - 1)

    @property
    def narrow(self) -> bool:
        """Whether arithmetic is done in a wider dtype: float16, bfloat16 and those of 8 bits."""
        return self.compute != self.dtype

    @property
    def stored(self) -> bool:
        """Whether values are only stored in it: operations read them as `compute` (see `ops/definition.py`)."""
        return self.narrow and self.bits == 8

    @property
    def raw(self) -> bool:
        """Whether it is a float that travels as its bits."""
        return self.kind == "f" and self.register[0] == "i"


def _float(dtype: np.dtype, code: str, register: str, compute: np.dtype | None = None) -> DType:
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    bits, most = 8 * dtype.itemsize, float(info.max)
    with np.errstate(invalid="ignore"):
        ends = np.array([np.inf, most], dtype)
    top = int(ends.view(f"u{dtype.itemsize}")[int(np.isnan(ends[0]))])
    return DType(dtype, "f", bits, code, compute or dtype, register, register, info.nmant + 1, most, top)


def _other(dtype: np.dtype) -> DType:
    kind, bits = dtype.kind, 1 if dtype == bool_ else 8 * dtype.itemsize
    memory = "" if kind == "c" else f"i{8 * dtype.itemsize}"
    return DType(dtype, kind, bits, f"{kind}{bits}", dtype, "i1" if kind == "b" else memory, memory)


_RECORDS = {
    r.dtype: r
    for r in (
        *(_other(d) for d in (bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64)),
        _float(float8_e4m3fn, "e4m3", "i8", float32),
        _float(float8_e5m2, "e5m2", "i8", float32),
        _float(float16, "f16", "half", float32),
        _float(bfloat16, "bf16", "i16", float32),
        _float(float32, "f32", "float"),
        _float(float64, "f64", "double"),
        *(_other(d) for d in (complex64, complex128)),
    )
}
ALL = tuple(_RECORDS)
HALVES = (float16, bfloat16)
_NAMES = {d.name: d for d in ALL}


def of(dtype: np.dtype) -> DType:
    """The record of a dtype."""
    return _RECORDS[dtype]


def is_known(dtype: np.dtype) -> bool:
    """Whether tensors have this dtype, as it is."""
    return dtype in _RECORDS


def is_name(text: str) -> bool:
    """Whether a dtype is called so."""
    return text in _NAMES


def named(text: str) -> np.dtype:
    """The dtype that is called so."""
    return _NAMES[text]


def kind(dtype: np.dtype) -> str:
    """'b', 'i', 'u', 'f' or 'c' (bfloat16 is 'f')."""
    return _RECORDS[dtype].kind


def host_kind(dtype: np.dtype) -> str:
    """`kind` of the dtype of any NumPy array: NumPy's letter for one that no tensor has."""
    return _RECORDS[dtype].kind if dtype in _RECORDS else dtype.kind


def computed_in(dtype: np.dtype) -> np.dtype:
    """The dtype of arithmetic on a dtype: float32 for float16, bfloat16 and floats of 8 bits."""
    return _RECORDS[dtype].compute


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
    if native not in _RECORDS:
        raise DTypeError(f"dtype {found} is not supported: lazyt has {', '.join(map(str, ALL))}")
    return native


def as_dtype(spec: object) -> np.dtype:
    """The dtype that `spec` (a dtype, its name, a NumPy scalar type, a Python type) names; DTypeError otherwise."""
    if isinstance(spec, np.dtype) and spec in _RECORDS:
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
    bfloat16 acts as float16 does, and float16 with bfloat16 gives float32. A float of 8 bits gives way to every other
    float, and integers give way to it, as in JAX. DTypeError for two different ones.
    """
    if a == b:
        return a
    stored = [d for d in (a, b) if _RECORDS[d].stored]
    if len(stored) == 2:
        raise DTypeError(f"{a} and {b} have no common dtype: cast one of them to the other, or both to float32")
    if stored:
        other = b if stored[0] == a else a
        return stored[0] if kind(other) in "biu" else other
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
    return complex64 if k == "f" and dtype != float64 else complex128


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
    k, bits = _RECORDS[dtype].kind, _RECORDS[dtype].bits
    if k not in "iu":
        return -LARGEST, LARGEST
    return (0, (1 << bits) - 1) if k == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
