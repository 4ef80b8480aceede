"""The meaning of casts and elementwise primitives on NumPy arrays, shared by the interpreters of both IRs.

float16 and bfloat16 are computed in float32; elementary functions are evaluated in float64 and rounded. What
C leaves undefined has one result here: x // 0 = x % 0 = 0, INT_MIN // -1 = INT_MIN, a shift by a negative
count or past the width gives 0 (or -1, for shr of a negative), an integer to a negative power is 0 unless its
base is 1 or -1, and a float cast to an integer saturates, NaN becoming 0. Callers silence NumPy's warnings.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.ir import dtypes, special_semantics
from lazyt.ir.prims import ELEMENTWISE as PRIMITIVES

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]


def wide(x: Array) -> Array:
    """Converts the halves to float32, in which they are computed."""
    return np.asarray(x, dtypes.computed_in(x.dtype))


def precise(x: Array) -> Array:
    """Floats as float64, complex as complex128; the rest as it is."""
    match dtypes.kind(x.dtype):
        case "f":
            return x.astype(np.float64)
        case "c":
            return x.astype(np.complex128)
    return x


def cast(x: Array, dtype: np.dtype[Any]) -> Array:
    """To bool: x != 0; complex to real: the real part; float to int: truncated, saturated, NaN to 0."""
    k = dtypes.kind(dtype)
    if k == "b":
        return np.asarray(wide(x) != 0)
    if dtypes.kind(x.dtype) == "c" and k != "c":
        x = x.real
    if dtypes.kind(x.dtype) != "f" or k not in "iu":
        if dtypes.of(dtype).foreign and x.dtype.itemsize >= 4:
            return round_once((_sticky(x) if x.dtype.itemsize == 8 and _is_int(x) else x).astype(np.float64), dtype)
        return x.astype(dtype)
    info = np.iinfo(dtype)
    whole = np.trunc(x.astype(np.float64))
    # float(max) may round up to the first float that is too large: >= catches it either way.
    high, low = whole >= float(info.max), whole <= float(info.min)
    inside = np.where(high | low | np.isnan(whole), 0.0, whole).astype(dtype)
    return np.asarray(np.where(high, dtype.type(info.max), np.where(low, dtype.type(info.min), inside)))


def round_once(x: Array, dtype: np.dtype[Any]) -> Array:
    """float64 -> `dtype` with one rounding; ml_dtypes takes its dtypes through float32: two."""
    if not dtypes.of(dtype).foreign:
        return x.astype(dtype)
    near = x.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.uint32) - (np.abs(back) > np.abs(x))
    odd = np.where((back != x) & np.isfinite(x), bits | 1, near.view(np.uint32)).astype(np.uint32)
    return odd.view(np.float32).astype(dtype)


def _sticky(x: Array) -> Array:
    """64-bit integers with at most 53 significant bits, the last of them set where others were: they round alike."""
    one = x.dtype.type(1)
    low = x & x.dtype.type(0xFFF)
    large = np.abs(x.astype(np.float64)) >= 2.0**53
    return np.where(large, x - low + np.where(low != 0, one << x.dtype.type(11), x.dtype.type(0)), x)


# Elementwise


def _half_wise(f: Callable[..., Array]) -> Callable[..., Array]:
    return lambda *xs: np.asarray(f(*map(wide, xs)))


def _rounded(f: Callable[..., Array]) -> Callable[..., Array]:
    """Evaluate in float64 or complex128; round to the working dtype first (float32 for the halves)."""

    def apply(*xs: Array) -> Array:
        return np.asarray(f(*map(precise, xs))).astype(wide(xs[0]).dtype)

    return apply


def _over(f: Callable[[float], float]) -> Callable[[Array], Array]:
    return lambda x: np.asarray(np.frompyfunc(f, 1, 1)(x)).astype(np.float64)


def _is_int(x: Array) -> bool:
    return dtypes.kind(x.dtype) in "iu"


def _divided(f: Callable[..., Array]) -> Callable[..., Array]:
    def apply(x: Array, y: Array) -> Array:
        if not _is_int(x):
            return f(x, y)
        # NumPy gives the same for both, with warnings; this code does not rely on that.
        zero, minus = y == 0, (y == -1) if dtypes.kind(x.dtype) == "i" else np.zeros(y.shape, bool)
        safe = f(x, np.where(zero | minus, x.dtype.type(1), y))
        by_minus_one = np.negative(x) if f is np.floor_divide else np.zeros_like(x)
        return np.where(zero, x.dtype.type(0), np.where(minus, by_minus_one, safe))

    return apply


def _pow(x: Array, y: Array) -> Array:
    if not _is_int(x):
        return precise(np.asarray(np.power(precise(x), precise(y)))).astype(x.dtype)
    positive = np.power(x, np.maximum(y, x.dtype.type(0)))
    odd = (y & x.dtype.type(1)) != 0
    inverse = np.where(x == 1, 1, np.where((x == -1) & odd, -1, np.where(x == -1, 1, 0)))
    return np.where(y < 0, inverse.astype(x.dtype), positive)


def _shift(f: Callable[..., Array]) -> Callable[..., Array]:
    def apply(x: Array, y: Array) -> Array:
        bad = (y < 0) | (y >= x.dtype.itemsize * 8)
        over = np.where(x < 0, -1, 0).astype(x.dtype) if f is np.right_shift else np.zeros_like(x)
        return np.where(bad, over, f(x, np.where(bad, x.dtype.type(0), y)))

    return apply


def _maximum(x: Array, y: Array) -> Array:
    """-0.0 lies below 0.0; NumPy gives either."""
    # NOTE: the sum of two zeros is -0.0 only where both are.
    return np.where((x == 0) & (y == 0), x + y, np.maximum(x, y)) if dtypes.kind(x.dtype) == "f" else np.maximum(x, y)


def _minimum(x: Array, y: Array) -> Array:
    return -_maximum(-x, -y) if dtypes.kind(x.dtype) == "f" else np.minimum(x, y)


def _complex(re: Array, im: Array) -> Array:
    out = np.empty(re.shape, dtypes.complex_of(re.dtype))
    out.real, out.imag = re, im
    return out


def philox(counter: tuple[Array, ...], key: tuple[Array, ...]) -> tuple[Array, ...]:
    """Philox4x32-10: four 32-bit words (in uint64 arrays) of a counter of four and a key of two words.

    Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
    """
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p, q = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (q >> shift) ^ c1 ^ k0, q & low, (p >> shift) ^ c3 ^ k1, p & low
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return c0, c1, c2, c3


def _random_bits(seed: Array, counter: Array, index: Array) -> Array:
    def words(x: Array) -> tuple[Array, Array]:
        u = x.astype(np.uint64)
        return u & np.uint64(0xFFFFFFFF), u >> np.uint64(32)

    low, high, _, _ = philox((*words(index), *words(counter)), words(seed))
    return np.asarray(low | (high << np.uint64(32)))


_NUMPY_NAMES = {
    "sub": "subtract", "mul": "multiply", "div": "divide", "neg": "negative", "round": "rint", "eq": "equal",
    "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "not": "invert", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2",
    "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
}  # fmt: skip

_EXACT = (
    "add sub mul div copysign eq ne lt le gt ge and or xor neg abs sign not "
    "floor ceil trunc round sqrt isnan isinf isfinite signbit real imag conj"
)
# Elementary functions are those of NumPy, where it has the function.
_ELEMENTARY = [name for name, p in PRIMITIVES.items() if p.costly and hasattr(np, _NUMPY_NAMES.get(name, name))]

# Each takes arrays of one shape; its result is then rounded to the node's dtype.
ELEMENTWISE: dict[str, Callable[..., Array]] = {
    **{name: _half_wise(getattr(np, _NUMPY_NAMES.get(name, name))) for name in _EXACT.split()},
    **{name: _rounded(getattr(np, _NUMPY_NAMES.get(name, name))) for name in _ELEMENTARY},
    "erf": _rounded(_over(math.erf)),
    "erfc": _rounded(_over(math.erfc)),
    "erfinv": _rounded(_over(special_semantics.erfinv)),
    "lgamma": _rounded(_over(special_semantics.lgamma)),
    "digamma": _rounded(_over(special_semantics.digamma)),
    "rsqrt": _rounded(lambda x: 1.0 / np.sqrt(x)),
    "floordiv": _half_wise(_divided(np.floor_divide)),
    "rem": _half_wise(_divided(np.remainder)),
    "fmod": _half_wise(_divided(np.fmod)),
    "pow": _half_wise(_pow),
    "shl": _shift(np.left_shift),
    "shr": _shift(np.right_shift),
    "maximum": _half_wise(_maximum),
    "minimum": _half_wise(_minimum),
    "nextafter": np.nextafter,
    "complex": _half_wise(_complex),
    "select": np.where,
    "random_bits": _random_bits,
}
