"""Functions of one operand, element by element.

Floating functions of integers. `divide` and `mean` give float64 for every integer dtype, as NumPy does. The
functions here give float64 for 32- and 64-bit integers, as NumPy does, and float32 for bool and the 8- and
16-bit ones (NumPy gives float16 for the narrowest, which overflows at exp(12)).
A function made of several primitives works in float32 on the half dtypes and rounds once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError
from lazyt.ir import dtypes
from lazyt.ops import samples
from lazyt.ops.definition import OpDef, Operand, define, node_of, require_kind, result_type

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

Body = Callable[["Builder", "Node"], "Node"]

COMPLEX_WITHOUT_OPAQUE = frozenset({"abs", "neg", "conj", "real", "imag"})


def float_of(dtype: np.dtype) -> np.dtype:
    """The dtype in which a floating function takes `dtype`: itself, or the float for an integer."""
    if dtypes.kind(dtype) in "fc":
        return dtype
    return dtypes.float64 if dtype.itemsize >= 4 else dtypes.float32


def complex_call(b: Builder, fn: str, *xs: Node) -> Node:
    """An elementary function of complex values, a library call on all backends."""
    return b.opaque(f"complex_{fn}", xs, (), [(xs[0].shape, xs[0].dtype)])[0]


def constant(b: Builder, value: float, like: Node) -> Node:
    """A 0-d constant of the other operand's dtype."""
    return b.constant(value, like.dtype)


def unary(name: str, lower: Callable[..., Node], ref: Any, *, sample: Any = None, **more: Any) -> OpDef:
    return define(name, lower, numpy=ref, samples=sample or samples.unary("f"), **more)


def floating(
    name: str,
    ref: Any,
    saves: tuple[int, ...] = (0,),
    domain: tuple[float, float] = (-4, 4),
    complex_: bool = True,
) -> OpDef:
    """A function of floats (and complex values) that is a primitive of the same name."""

    def lower(b: Builder, x: Operand) -> Node:
        d = float_of(result_type(x))
        v = node_of(b, x, d)
        if dtypes.kind(d) != "c":
            return b.elementwise(name, v)
        if not complex_:
            raise DTypeError(f"{name}: a real dtype is required, got {d}")
        return complex_call(b, name, v)

    kinds = "fc" if complex_ else "f"
    sample = samples.unary(kinds, *domain, also=(np.int64, dtypes.bfloat16))
    more: dict[str, Any] = {} if complex_ else {"errors": [((np.zeros(2, "c8"),), {}, DTypeError, "real dtype")]}
    return unary(name, lower, ref, sample=sample, saves=saves, **more)


def composite(name: str, body: Body, ref: Any, *, kinds: str = "f", sample: Any = None, **more: Any) -> OpDef:
    """A function of floats made of primitives; the half dtypes are rounded once, at the end."""

    def lower(b: Builder, x: Operand) -> Node:
        d = float_of(result_type(x))
        require_kind(name, d, kinds, "a real dtype" if kinds == "f" else "a floating dtype")
        return b.cast(body(b, node_of(b, x, dtypes.computed_in(d))), d)

    return unary(name, lower, ref, sample=sample or samples.unary(kinds, also=(np.int64,)), **more)


# Elementary functions

EXP = floating("exp", np.exp, saves=(-1,))
EXPM1 = floating("expm1", np.expm1, saves=(-1,))
EXP2 = floating("exp2", np.exp2, saves=(-1,), complex_=False)
LOG = floating("log", np.log, domain=(0.01, 9))
LOG10 = floating("log10", np.log10, domain=(0.01, 9))
LOG1P = floating("log1p", np.log1p, domain=(-0.9, 9))
SQRT = floating("sqrt", np.sqrt, saves=(-1,), domain=(0, 9))
RSQRT = floating(
    "rsqrt", lambda x: (1 / np.sqrt(x)).astype(np.sqrt(x).dtype), saves=(-1,), domain=(0.1, 9), complex_=False
)
SIN = floating("sin", np.sin)
COS = floating("cos", np.cos)
TAN = floating("tan", np.tan, saves=(-1,))
ASIN = floating("asin", np.arcsin, domain=(-1, 1))
ACOS = floating("acos", np.arccos, domain=(-1, 1))
ATAN = floating("atan", np.arctan)
SINH = floating("sinh", np.sinh)
COSH = floating("cosh", np.cosh)
TANH = floating("tanh", np.tanh, saves=(-1,))
ASINH = floating("asinh", np.arcsinh)
ACOSH = floating("acosh", np.arccosh, domain=(1, 9))
ATANH = floating("atanh", np.arctanh, domain=(-0.99, 0.99))


def over_floats(f: Callable[[float], float]) -> Callable[[Any], Any]:
    """A function of one Python float as one of arrays, computed in float64: a reference."""

    def apply(x: Any) -> Any:
        d = float_of(np.asarray(x).dtype)
        return np.vectorize(f, otypes=[np.float64])(np.asarray(x, np.float64)).astype(d)

    return apply


ERF = floating("erf", over_floats(math.erf), complex_=False)
ERFC = floating("erfc", over_floats(math.erfc), complex_=False)


def _log2(b: Builder, x: Operand) -> Node:
    d = float_of(result_type(x))
    v = node_of(b, x, d)
    if dtypes.kind(d) != "c":
        return b.log2(v)
    w = complex_call(b, "log", v)
    # Each part alone: an infinity times the scale's zero would be NaN.
    return b.complex(*(b.mul(p, constant(b, 1 / math.log(2), p)) for p in (b.real(w), b.imag(w))))


LOG2 = unary("log2", _log2, np.log2, sample=samples.unary("fc", 0.01, 9, also=(np.int64,)), saves=(0,))


def _sigmoid(b: Builder, x: Node) -> Node:
    # Never exp of a positive number: exact in both tails, and no inf * 0 in the derivative.
    positive = b.ge(x, constant(b, 0, x))
    e = b.exp(b.select(positive, b.neg(x), x))
    one = constant(b, 1, x)
    return b.div(b.select(positive, one, e), b.add(e, one))


SIGMOID = composite("sigmoid", _sigmoid, lambda x: (1 / (1 + np.exp(-x))).astype(np.exp(x).dtype), saves=(-1,))


def _relu(b: Builder, x: Operand) -> Node:
    d = result_type(x)
    require_kind("relu", d, "iuf", "a real number dtype")
    v = node_of(b, x, d)
    zero = constant(b, 0, v)
    return b.select(b.le(v, zero), zero, v)  # NaN passes; the derivative at 0 is 0


RELU = unary("relu", _relu, lambda x: np.maximum(x, 0), sample=samples.unary("fi"), saves=(-1,))

DEGREES = composite("degrees", lambda b, x: b.mul(x, constant(b, 180 / math.pi, x)), np.degrees)
RADIANS = composite("radians", lambda b, x: b.mul(x, constant(b, math.pi / 180, x)), np.radians)


def _reciprocal(b: Builder, x: Operand) -> Node:
    d = result_type(x)
    require_kind("reciprocal", d, "fc", "a floating or complex dtype")
    v = node_of(b, x, d)
    return b.div(constant(b, 1, v), v)


RECIPROCAL = unary(
    "reciprocal", _reciprocal, np.reciprocal, sample=samples.unary("fc", 0.1, 4), saves=(-1,),
    errors=[((np.arange(3),), {}, DTypeError, "reciprocal: a floating")],
)  # fmt: skip

# Sign, rounding and the parts of numbers


def _square(b: Builder, x: Operand) -> Node:
    d = result_type(x)
    v = node_of(b, x, dtypes.int8 if d == dtypes.bool_ else d)
    return b.mul(v, v)


def _cube(b: Builder, x: Operand) -> Node:
    v = _square(b, x)
    return b.mul(v, node_of(b, x, v.dtype))


SQUARE = unary("square", _square, np.square, sample=samples.unary("fiucb"), saves=(0,))
# `x ** 3`: two products rather than a power.
CUBE = unary("cube", _cube, lambda x: x * x * x, sample=samples.unary("fiuc"), saves=(0,))


def _negative(b: Builder, x: Operand) -> Node:
    d = result_type(x)
    require_kind("negative", d, "iufc", "a number dtype (for bool: logical_not)")
    return b.neg(node_of(b, x, d))


def _positive(b: Builder, x: Operand) -> Node:
    d = result_type(x)
    require_kind("positive", d, "iufc", "a number dtype")
    return node_of(b, x, d)


_NOT_BOOL: Any = ((np.zeros(2, np.bool_),), {}, DTypeError, "number dtype")
NEGATIVE = unary("negative", _negative, np.negative, sample=samples.unary("fiuc"), errors=[_NOT_BOOL])
POSITIVE = unary("positive", _positive, np.positive, sample=samples.unary("fiuc"), errors=[_NOT_BOOL])


def _abs(b: Builder, x: Operand) -> Node:
    d = result_type(x)
    v = node_of(b, x, d)
    return v if dtypes.kind(d) in "bu" else b.abs(v)


ABS = unary("abs", _abs, np.abs, sample=samples.unary("fiucb"), saves=(0,))


def _sign(b: Builder, x: Operand) -> Node:
    d = result_type(x)
    require_kind("sign", d, "iufc", "a number dtype")
    v = node_of(b, x, d)
    if dtypes.kind(d) != "c":
        return b.sign(v)
    # Beside an infinite part the other is nothing, unless it is infinite too: that has no sign.
    parts = b.real(v), b.imag(v)
    infinite = [b.isinf(p) for p in parts]
    signs = [b.select(i, b.sign(p), constant(b, 0, p)) for i, p in zip(infinite, parts, strict=True)]
    one = b.and_(b.or_(*infinite), b.not_(b.and_(*infinite)))
    v = b.select(one, b.complex(*signs), v)
    size = b.abs(v)
    zero = constant(b, 0, v)
    return b.select(b.eq(v, zero), zero, b.div(v, b.complex(size, b.expand_to(constant(b, 0, size), size.shape))))


SIGN = unary("sign", _sign, np.sign, sample=samples.unary("fiuc"), errors=[_NOT_BOOL])


def _rounding(name: str, prim: str, ref: Any) -> OpDef:
    def lower(b: Builder, x: Operand) -> Node:
        d = result_type(x)
        require_kind(name, d, "biuf", "a real dtype")
        v = node_of(b, x, d)
        return b.elementwise(prim, v) if dtypes.kind(d) == "f" else v

    errors: Any = [((np.zeros(2, "c8"),), {}, DTypeError, "real dtype")]
    return unary(name, lower, ref, sample=samples.unary("fiu"), errors=errors)


FLOOR = _rounding("floor", "floor", np.floor)
CEIL = _rounding("ceil", "ceil", np.ceil)
TRUNC = _rounding("trunc", "trunc", np.trunc)


def _round(b: Builder, x: Operand, decimals: int) -> Node:
    d = result_type(x)
    v = node_of(b, x, d)
    if dtypes.kind(d) in "biu" and decimals >= 0:
        return v
    if dtypes.kind(d) == "c":
        return b.complex(_round_real(b, b.real(v), decimals), _round_real(b, b.imag(v), decimals))
    return _round_real(b, v, decimals)


def _round_real(b: Builder, x: Node, decimals: int) -> Node:
    if not decimals:
        return b.round(x)
    d = x.dtype
    w = b.cast(x, dtypes.computed_in(d) if dtypes.kind(d) == "f" else dtypes.float64)
    scale = constant(b, 10.0 ** abs(decimals), w)
    up, down = (b.mul, b.div) if decimals > 0 else (b.div, b.mul)
    return b.cast(down(b.round(up(w, scale)), scale), d)


ROUND = unary("round", _round, np.round, sample=samples.calls(
    *((samples.array((2, 3), t),) for t in (np.float32, np.float16, np.int32, np.complex64)),
    (samples.array((2, 3), np.float64), 2), (samples.array((2, 3), np.int64, -999, 999), -1),
))  # fmt: skip


def _signbit(b: Builder, x: Operand) -> Node:
    d = result_type(x)
    require_kind("signbit", d, "iuf", "a real number dtype")
    v = node_of(b, x, d)
    return b.signbit(v) if dtypes.kind(d) == "f" else b.lt(v, constant(b, 0, v))


SIGNBIT = unary("signbit", _signbit, np.signbit, sample=samples.unary("fiu"), differentiable=False)


def _real(b: Builder, x: Operand) -> Node:
    v = node_of(b, x, result_type(x))
    return b.real(v) if dtypes.kind(v.dtype) == "c" else v


def _imag(b: Builder, x: Operand) -> Node:
    v = node_of(b, x, result_type(x))
    return b.imag(v) if dtypes.kind(v.dtype) == "c" else b.expand_to(constant(b, 0, v), v.shape)


def _conj(b: Builder, x: Operand) -> Node:
    v = node_of(b, x, result_type(x))
    return b.conj(v) if dtypes.kind(v.dtype) == "c" else v


def _angle(b: Builder, x: Operand) -> Node:
    v = node_of(b, x, float_of(result_type(x)))
    if dtypes.kind(v.dtype) == "c":
        return b.atan2(b.imag(v), b.real(v))
    # The sign, not a comparison: -0 is turned too, as atan2(0, -0) is.
    turned = b.select(b.signbit(v), constant(b, math.pi, v), constant(b, 0, v))
    return b.select(b.isnan(v), v, turned)


REAL = unary("real", _real, np.real, sample=samples.unary("cfi"))
IMAG = unary("imag", _imag, np.imag, sample=samples.unary("cfi"))
# As attributes of a complex tensor they are views.
REAL_PART = OpDef("real", _real, write=lambda b, base, value: b.complex(value, b.imag(base)))
IMAG_PART = OpDef("imag", _imag, write=lambda b, base, value: b.complex(b.real(base), value))
CONJ = unary("conj", _conj, np.conj, sample=samples.unary("cfi"))
ANGLE = unary("angle", _angle, np.angle, sample=samples.calls(
    *((samples.array((2, 3), t),) for t in (np.complex64, np.complex128, np.float64))
), saves=(0,))  # fmt: skip

# Tests


def _test(name: str, prim: str, whole: bool, ref: Any) -> OpDef:
    """isnan and related functions; `whole` is the result for integers."""

    def lower(b: Builder, x: Operand) -> Node:
        v = node_of(b, x, result_type(x))
        k = dtypes.kind(v.dtype)
        if k == "c":
            parts = (b.elementwise(prim, b.real(v)), b.elementwise(prim, b.imag(v)))
            return b.and_(*parts) if whole else b.or_(*parts)
        if k == "f":
            return b.elementwise(prim, v)
        return b.expand_to(b.constant(whole, dtypes.bool_), v.shape)

    def sample() -> Any:
        special = np.array([0.0, np.nan, np.inf, -np.inf, 1.5])
        kinds = [special.astype(t) for t in (np.float16, np.float32, np.float64, dtypes.bfloat16)]
        return [((x,), {}) for x in (*kinds, special + 1j, np.arange(3), np.zeros((0, 2)), np.float32(1) * np.ones(()))]

    return unary(name, lower, ref, sample=sample, differentiable=False)


ISNAN = _test("isnan", "isnan", False, np.isnan)
ISINF = _test("isinf", "isinf", False, np.isinf)
ISFINITE = _test("isfinite", "isfinite", True, np.isfinite)


Told = float | str  # a number; -0.0 as text


def _nan_to_num(b: Builder, x: Operand, nan: Told, posinf: Told | None, neginf: Told | None) -> Node:
    v = node_of(b, x, result_type(x))
    k = dtypes.kind(v.dtype)
    if k == "c":
        return b.complex(*(_replaced(b, p, nan, posinf, neginf) for p in (b.real(v), b.imag(v))))
    return _replaced(b, v, nan, posinf, neginf) if k == "f" else v


def _replaced(b: Builder, x: Node, nan: Told, posinf: Told | None, neginf: Told | None) -> Node:
    largest = float(largest_float(x.dtype))
    high = constant(b, largest if posinf is None else float(posinf), x)
    low = constant(b, -largest if neginf is None else float(neginf), x)
    y = b.select(b.isnan(x), constant(b, float(nan), x), x)
    y = b.select(b.eq(x, constant(b, math.inf, x)), high, y)
    return b.select(b.eq(x, constant(b, -math.inf, x)), low, y)


def largest_float(dtype: np.dtype) -> float:
    """The largest finite value of a float dtype."""
    return dtypes.of(dtype).largest


_ODD = np.array([1.5, np.nan, np.inf, -np.inf])
NAN_TO_NUM = unary("nan_to_num", _nan_to_num, np.nan_to_num, saves=(0,), sample=samples.calls(
    (_ODD,), (_ODD.astype("f4"),), (_ODD.astype("f2"),), (_ODD + 1j,), (np.arange(3),),
    (_ODD, {"nan": 1.0, "posinf": 2.0, "neginf": -2.0}),
))  # fmt: skip
