"""Conversions between dtypes: one rounding each, defined for every input.

Float to integer truncates, saturates and takes NaN to 0; integer to narrower integer wraps; to bool
is `x != 0`. A double reaches 16 bits through a float32 rounded to odd, which keeps the second
rounding innocent (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.math.elements import bits_of, reg_type
from lazyt.backends.math.vector import Vec, constant, fabs, where
from lazyt.ir import dtypes

if TYPE_CHECKING:
    import numpy as np


def half_to_float(x: Vec) -> Vec:
    if x.body.native_half:
        return x.convert("fpext", "float")
    wide = x.as_int().convert("zext", "i32")
    magnitude = (wide & 0x7FFF) << 13
    # 2**112 moves the exponent from one bias to the other, subnormals included.
    finite = (magnitude.as_float() * 2.0**112).as_int()
    special = where((wide & 0x3FF).ne(0), magnitude | 0x7FC00000, magnitude | 0x7F800000)
    r = where(magnitude.compare("uge", 0x7C00 << 13), special, finite)
    return (r | ((wide & 0x8000) << 16)).as_float()


def float_to_half(x: Vec) -> Vec:
    if x.body.native_half:
        return x.convert("fptrunc", "half")
    bits = x.as_int()
    magnitude = bits & 0x7FFFFFFF
    normal = (magnitude + (0xFFF - (112 << 23)) + ((magnitude >> 13) & 1)) >> 13
    # Beside 0.5 the last place is 2**-24, which is the subnormals' step.
    subnormal = (magnitude.as_float() + 0.5).as_int() - 0x3F000000
    r = where(magnitude < 0x38800000, subnormal, normal)
    r = where(magnitude > 0x477FEFFF, constant(r, 0x7C00), r)
    r = where(magnitude > 0x7F800000, ((magnitude >> 13) & 0x3FF) | 0x7E00, r)
    return (r | ((bits >> 16) & 0x8000)).convert("trunc", "i16").as_float()


def bfloat_to_float(x: Vec) -> Vec:
    return (x.convert("zext", "i32") << 16).as_float()


def float_to_bfloat(x: Vec) -> Vec:
    if x.body.native_bfloat:
        return Vec(x.body, x.body.round_bfloat(x), "i16", x.lanes)
    bits = x.as_int()
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    r = where(x.isnan(), bits | 0x400000, rounded)
    return (r >> 16).convert("trunc", "i16")


class _Small:
    """A float of 8 bits by the bits of its mantissa, its bias, and its codes: the largest, what is past it, and NaN."""

    def __init__(self, mantissa: int, bias: int, largest: int, past: int, nan: int) -> None:
        self.shift, self.bias = 23 - mantissa, bias
        self.largest, self.past, self.nan = largest, past, nan

    def widen(self, x: Vec) -> Vec:
        wide = x.convert("zext", "i32")
        code = wide & 0x7F
        # As for float16: the product moves the exponent from one bias to the other, subnormals included.
        finite = ((code << self.shift).as_float() * 2.0 ** (127 - self.bias)).as_int()
        r = where(code.compare("ugt", self.largest), constant(finite, 0x7FC00000), finite)
        if self.past != self.nan:
            r = where(code.compare("eq", self.past), constant(r, 0x7F800000), r)
        return (r | ((wide & 0x80) << 24)).as_float()

    def narrow(self, x: Vec) -> Vec:
        bits, shift = x.as_int(), self.shift
        magnitude = bits & 0x7FFFFFFF
        half = (1 << (shift - 1)) - 1 - ((127 - self.bias) << 23)
        normal = (magnitude + half + ((magnitude >> shift) & 1)) >> shift
        # Beside this power of 2 the last place is the subnormals' step.
        step = 1 - self.bias + shift
        subnormal = (magnitude.as_float() + 2.0**step).as_int() - ((127 + step) << 23)
        r = where(magnitude < ((128 - self.bias) << 23), subnormal, normal)
        r = where(r > self.largest, constant(r, self.past), r)
        r = where(magnitude > 0x7F800000, constant(r, self.nan), r)
        return (r | ((bits >> 24) & 0x80)).convert("trunc", "i8")


_E4M3 = _Small(3, 7, 0x7E, 0x7F, 0x7F)
_E5M2 = _Small(2, 15, 0x7B, 0x7C, 0x7E)


def double_to_float_odd(x: Vec) -> Vec:
    """float32 of a double, rounded to odd: toward zero, the last bit set when inexact."""
    near = x.convert("fptrunc", "float")
    back = near.convert("fpext", "double")
    bits = near.as_int()
    past = where(fabs(back) > fabs(x), bits - 1, bits)
    return where(back.compare("one", x), past | 1, bits).as_float()


# Of each dtype that is computed in float32: from it, exactly, and to it with one rounding.
_FROM_AND_TO = {
    dtypes.float16: (half_to_float, float_to_half),
    dtypes.bfloat16: (bfloat_to_float, float_to_bfloat),
    dtypes.float8_e4m3fn: (_E4M3.widen, _E4M3.narrow),
    dtypes.float8_e5m2: (_E5M2.widen, _E5M2.narrow),
}


def widen(x: Vec, dtype: np.dtype) -> Vec:
    """A narrower float as float32, exactly; float32 and float64 as they are."""
    return _FROM_AND_TO[dtype][0](x) if dtype in _FROM_AND_TO else x


def narrow(x: Vec, dtype: np.dtype) -> Vec:
    """A float32 or float64 rounded once to `dtype`, no wider than it."""
    target = reg_type(dtype)
    if x.element == target:
        return x
    if x.element == "double":
        if target == "float":
            return x.convert("fptrunc", "float")
        x = double_to_float_odd(x)
    return _FROM_AND_TO[dtype][1](x)


def rounded(x: Vec, dtype: np.dtype) -> Vec:
    """A float32 rounded to the nearest value of a narrower float, as a float32."""
    if dtype != dtypes.bfloat16:
        return widen(narrow(x, dtype), dtype)
    bits = x.as_int()
    near = bits + 0x7FFF + ((bits >> 16) & 1)
    return (where(x.isnan(), bits | 0x400000, near) & -0x10000).as_float()


def _to_bool(x: Vec, source: np.dtype) -> Vec:
    if dtypes.of(source).narrow:
        x = (x if dtypes.of(source).raw else x.as_int()) & (dtypes.of(source).sign - 1)
    return x.ne(0)


def _from_bool(x: Vec, target: np.dtype) -> Vec:
    if dtypes.kind(target) in "iu":
        return x.convert("zext", reg_type(target))
    one: float = bits_of(1, target) if dtypes.of(target).raw else 1
    like = Vec(x.body, "", reg_type(target), x.lanes)
    return where(x, constant(like, one), 0)


def _int_to_float(x: Vec, source: np.dtype, target: np.dtype) -> Vec:
    signed = dtypes.kind(source) == "i"
    opcode = "sitofp" if signed else "uitofp"
    if not dtypes.of(target).narrow:
        return x.convert(opcode, reg_type(target))
    if x.bits <= 16:
        return narrow(x.convert(opcode, "float"), target)
    if dtypes.of(target).largest < 2**17:
        # What is past that overflows, and what is left is exact in float32.
        x = x.intrinsic("smax", -(2**17)) if signed else x
        x = x.intrinsic("smin" if signed else "umin", 2**17)
        return narrow(x.convert(opcode, "float"), target)
    if x.bits == 64:
        # What does not fit 53 bits is rounded to odd at bit 11, then it does.
        odd = where((x & 2047).ne(0), (x & ~2047) | 2048, x)
        fits = (x + 2**53).compare("ult", 2**54) if signed else x.compare("ult", 2**53)
        x = where(fits, x, odd)
    return narrow(x.convert(opcode, "double"), target)


def _float_to_int(x: Vec, target: np.dtype) -> Vec:
    return x.saturate(reg_type(target), signed=dtypes.kind(target) == "i")


def convert(x: Vec, source: np.dtype, target: np.dtype) -> Vec:
    """`x` of dtype `source` as `target`."""
    if source == target:
        return x
    kinds = dtypes.kind(source), dtypes.kind(target)
    if kinds[1] == "b":
        return _to_bool(x, source)
    if kinds[0] == "b":
        return _from_bool(x, target)
    integers = kinds[0] in "iu", kinds[1] in "iu"
    if integers == (True, True):
        if x.bits == 8 * target.itemsize:
            return x
        if x.bits > 8 * target.itemsize:
            return x.convert("trunc", reg_type(target))
        return x.convert("sext" if kinds[0] == "i" else "zext", reg_type(target))
    if integers[0]:
        return _int_to_float(x, source, target)
    x = widen(x, source)
    if integers[1]:
        return _float_to_int(x, target)
    if target.itemsize == 8:
        return x.convert("fpext", "double") if x.element == "float" else x
    return narrow(x, target)
