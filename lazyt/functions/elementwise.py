"""Functions of one operand, element by element; results have the operand's shape.

The floating functions give float64 for 32- and 64-bit integers, float32 for narrower ones and bool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.errors import DTypeError
from lazyt.functions.arguments import record, record_one, record_view
from lazyt.ir import dtypes
from lazyt.ops import elementwise as ops
from lazyt.ops.axes import integer
from lazyt.tracing.inplace import assign, puts_back

if TYPE_CHECKING:
    from lazyt.functions.arguments import ArrayLike
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "abs",
    "absolute",
    "acos",
    "acosh",
    "angle",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctanh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "conj",
    "conjugate",
    "cos",
    "cosh",
    "deg2rad",
    "degrees",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "fix",
    "floor",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "log2",
    "log10",
    "negative",
    "positive",
    "rad2deg",
    "radians",
    "real",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]


def exp(x: ArrayLike, /) -> Tensor:
    """e to the power of each element. As `numpy.exp`.

    >>> import lazyt as lt
    >>> lt.exp(lt.asarray([0.0, -200.0])).tolist()
    [1.0, 0.0]
    """
    return record_one(ops.EXP, x)


def exp2(x: ArrayLike, /) -> Tensor:
    """2 to the power of each element. Raises DTypeError for complex values. As `numpy.exp2`.

    >>> import lazyt as lt
    >>> lt.exp2(lt.asarray([0.0, 3.0])).tolist()
    [1.0, 8.0]
    """
    return record_one(ops.EXP2, x)


def expm1(x: ArrayLike, /) -> Tensor:
    """exp(x) - 1 of each element, exact near 0. As `numpy.expm1`.

    >>> import lazyt as lt
    >>> lt.expm1(lt.asarray([0.0, 1e-10])).tolist()
    [0.0, 1.000000013351432e-10]
    """
    return record_one(ops.EXPM1, x)


def log(x: ArrayLike, /) -> Tensor:
    """The natural logarithm of each element. As `numpy.log`.

    >>> import lazyt as lt
    >>> lt.log(lt.asarray([1.0, 0.0])).tolist()
    [0.0, -inf]
    """
    return record_one(ops.LOG, x)


def log2(x: ArrayLike, /) -> Tensor:
    """The logarithm to base 2 of each element. As `numpy.log2`.

    >>> import lazyt as lt
    >>> lt.log2(lt.asarray([1.0, 8.0])).tolist()
    [0.0, 3.0]
    """
    return record_one(ops.LOG2, x)


def log10(x: ArrayLike, /) -> Tensor:
    """The logarithm to base 10 of each element. As `numpy.log10`.

    >>> import lazyt as lt
    >>> lt.log10(lt.asarray([1.0, 100.0])).tolist()
    [0.0, 2.0]
    """
    return record_one(ops.LOG10, x)


def log1p(x: ArrayLike, /) -> Tensor:
    """log(1 + x) of each element, exact near 0. As `numpy.log1p`.

    >>> import lazyt as lt
    >>> lt.log1p(lt.asarray([0.0, -1.0])).tolist()
    [0.0, -inf]
    """
    return record_one(ops.LOG1P, x)


def sqrt(x: ArrayLike, /) -> Tensor:
    """The square root of each element. As `numpy.sqrt`.

    >>> import lazyt as lt
    >>> lt.sqrt(lt.asarray([4.0, 9.0])).tolist()
    [2.0, 3.0]
    """
    return record_one(ops.SQRT, x)


def rsqrt(x: ArrayLike, /) -> Tensor:
    """1 / sqrt(x) of each element. Raises DTypeError for complex values. As `1 / numpy.sqrt(x)`.

    >>> import lazyt as lt
    >>> lt.rsqrt(lt.asarray([4.0, 0.25])).tolist()
    [0.5, 2.0]
    """
    return record_one(ops.RSQRT, x)


def sin(x: ArrayLike, /) -> Tensor:
    """The sine of each element, in radians. As `numpy.sin`.

    >>> import lazyt as lt
    >>> lt.sin(lt.asarray([0.0])).tolist()
    [0.0]
    """
    return record_one(ops.SIN, x)


def cos(x: ArrayLike, /) -> Tensor:
    """The cosine of each element, in radians. As `numpy.cos`.

    >>> import lazyt as lt
    >>> lt.cos(lt.asarray([0.0])).tolist()
    [1.0]
    """
    return record_one(ops.COS, x)


def tan(x: ArrayLike, /) -> Tensor:
    """The tangent of each element, in radians. As `numpy.tan`.

    >>> import lazyt as lt
    >>> lt.tan(lt.asarray([0.0])).tolist()
    [0.0]
    """
    return record_one(ops.TAN, x)


def asin(x: ArrayLike, /) -> Tensor:
    """The inverse sine of each element, in radians. As `numpy.arcsin`.

    >>> import lazyt as lt
    >>> lt.asin(lt.asarray([0.0])).tolist()
    [0.0]
    """
    return record_one(ops.ASIN, x)


def acos(x: ArrayLike, /) -> Tensor:
    """The inverse cosine of each element, in radians. As `numpy.arccos`.

    >>> import lazyt as lt
    >>> lt.acos(lt.asarray([1.0])).tolist()
    [0.0]
    """
    return record_one(ops.ACOS, x)


def atan(x: ArrayLike, /) -> Tensor:
    """The inverse tangent of each element, in radians. As `numpy.arctan`.

    >>> import lazyt as lt
    >>> lt.atan(lt.asarray([0.0])).tolist()
    [0.0]
    """
    return record_one(ops.ATAN, x)


def sinh(x: ArrayLike, /) -> Tensor:
    """The hyperbolic sine of each element. As `numpy.sinh`.

    >>> import lazyt as lt
    >>> lt.sinh(lt.asarray([0.0])).tolist()
    [0.0]
    """
    return record_one(ops.SINH, x)


def cosh(x: ArrayLike, /) -> Tensor:
    """The hyperbolic cosine of each element. As `numpy.cosh`.

    >>> import lazyt as lt
    >>> lt.cosh(lt.asarray([0.0])).tolist()
    [1.0]
    """
    return record_one(ops.COSH, x)


def tanh(x: ArrayLike, /) -> Tensor:
    """The hyperbolic tangent of each element. As `numpy.tanh`.

    >>> import lazyt as lt
    >>> lt.tanh(lt.asarray([0.0, 50.0])).tolist()
    [0.0, 1.0]
    """
    return record_one(ops.TANH, x)


def asinh(x: ArrayLike, /) -> Tensor:
    """The inverse hyperbolic sine of each element. As `numpy.arcsinh`.

    >>> import lazyt as lt
    >>> lt.asinh(lt.asarray([0.0])).tolist()
    [0.0]
    """
    return record_one(ops.ASINH, x)


def acosh(x: ArrayLike, /) -> Tensor:
    """The inverse hyperbolic cosine of each element. As `numpy.arccosh`.

    >>> import lazyt as lt
    >>> lt.acosh(lt.asarray([1.0])).tolist()
    [0.0]
    """
    return record_one(ops.ACOSH, x)


def atanh(x: ArrayLike, /) -> Tensor:
    """The inverse hyperbolic tangent of each element. As `numpy.arctanh`.

    >>> import lazyt as lt
    >>> lt.atanh(lt.asarray([0.0, 1.0])).tolist()
    [0.0, inf]
    """
    return record_one(ops.ATANH, x)


def erf(x: ArrayLike, /) -> Tensor:
    """The error function of each element. Raises DTypeError for complex values. As `scipy.special.erf`.

    >>> import lazyt as lt
    >>> lt.erf(lt.asarray([0.0, 9.0])).tolist()
    [0.0, 1.0]
    """
    return record_one(ops.ERF, x)


def erfc(x: ArrayLike, /) -> Tensor:
    """1 - erf(x) of each element, exact in the tail.

    Raises DTypeError for complex values. As `scipy.special.erfc`.

    >>> import lazyt as lt
    >>> lt.erfc(lt.asarray([0.0])).tolist()
    [1.0]
    """
    return record_one(ops.ERFC, x)


def sigmoid(x: ArrayLike, /) -> Tensor:
    """1 / (1 + exp(-x)) of each element. Raises DTypeError for complex values. As `scipy.special.expit`.

    >>> import lazyt as lt
    >>> lt.sigmoid(lt.asarray([0.0, 200.0])).tolist()
    [0.5, 1.0]
    """
    return record_one(ops.SIGMOID, x)


def relu(x: ArrayLike, /) -> Tensor:
    """Each element, or 0 where it is negative.

    Raises DTypeError for complex values. As `numpy.maximum(x, 0)`.

    >>> import lazyt as lt
    >>> lt.relu(lt.asarray([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return record_one(ops.RELU, x)


def degrees(x: ArrayLike, /) -> Tensor:
    """Radians to degrees. Raises DTypeError for complex values. As `numpy.degrees`.

    >>> import lazyt as lt
    >>> lt.degrees(lt.asarray([0.0])).tolist()
    [0.0]
    """
    return record_one(ops.DEGREES, x)


def radians(x: ArrayLike, /) -> Tensor:
    """Degrees to radians. Raises DTypeError for complex values. As `numpy.radians`.

    >>> import lazyt as lt
    >>> lt.radians(lt.asarray([0.0])).tolist()
    [0.0]
    """
    return record_one(ops.RADIANS, x)


def reciprocal(x: ArrayLike, /) -> Tensor:
    """1 / x of each element. Raises DTypeError for integers. As `numpy.reciprocal`.

    >>> import lazyt as lt
    >>> lt.reciprocal(lt.asarray([4.0])).tolist()
    [0.25]
    """
    return record_one(ops.RECIPROCAL, x)


def square(x: ArrayLike, /) -> Tensor:
    """Each element times itself. As `numpy.square`.

    >>> import lazyt as lt
    >>> lt.square(lt.asarray([3, -2])).tolist()
    [9, 4]
    """
    return record_one(ops.SQUARE, x)


def negative(x: ArrayLike, /) -> Tensor:
    """Each element with its sign changed (modulo 2^n for unsigned integers).

    Raises DTypeError for bool. As `numpy.negative`.

    >>> import lazyt as lt
    >>> lt.negative(lt.asarray([1, -2])).tolist()
    [-1, 2]
    """
    return record_one(ops.NEGATIVE, x)


def positive(x: ArrayLike, /) -> Tensor:
    """Each element as it is. Raises DTypeError for bool. As `numpy.positive`.

    >>> import lazyt as lt
    >>> lt.positive(lt.asarray([1, -2])).tolist()
    [1, -2]
    """
    return record_one(ops.POSITIVE, x)


def abs(x: ArrayLike, /) -> Tensor:
    """The absolute value of each element; real for complex values. As `numpy.abs`.

    >>> import lazyt as lt
    >>> lt.abs(lt.asarray([1, -2])).tolist()
    [1, 2]
    """
    return record_one(ops.ABS, x)


def sign(x: ArrayLike, /) -> Tensor:
    """-1, 0 or 1 as each element is negative, zero or positive; x / abs(x) for complex values.

    Raises DTypeError for bool. As `numpy.sign`.

    >>> import lazyt as lt
    >>> lt.sign(lt.asarray([7, 0, -2])).tolist()
    [1, 0, -1]
    """
    return record_one(ops.SIGN, x)


def floor(x: ArrayLike, /) -> Tensor:
    """The greatest whole number not above each element; integers stay as they are.

    Raises DTypeError for complex values. As `numpy.floor`.

    >>> import lazyt as lt
    >>> lt.floor(lt.asarray([1.5, -1.5])).tolist()
    [1.0, -2.0]
    """
    return record_one(ops.FLOOR, x)


def ceil(x: ArrayLike, /) -> Tensor:
    """The least whole number not below each element; integers stay as they are.

    Raises DTypeError for complex values. As `numpy.ceil`.

    >>> import lazyt as lt
    >>> lt.ceil(lt.asarray([1.5, -1.5])).tolist()
    [2.0, -1.0]
    """
    return record_one(ops.CEIL, x)


def trunc(x: ArrayLike, /) -> Tensor:
    """Each element without its fraction; integers stay as they are.

    Raises DTypeError for complex values. As `numpy.trunc`.

    >>> import lazyt as lt
    >>> lt.trunc(lt.asarray([1.5, -1.5])).tolist()
    [1.0, -1.0]
    """
    return record_one(ops.TRUNC, x)


def signbit(x: ArrayLike, /) -> Tensor:
    """Whether the sign bit of each element is set (it is for -0.0).

    Raises DTypeError for complex values. As `numpy.signbit`.

    >>> import lazyt as lt
    >>> lt.signbit(lt.asarray([1.0, -0.0])).tolist()
    [False, True]
    """
    return record_one(ops.SIGNBIT, x)


def real(x: ArrayLike, /) -> Tensor:
    """The real part of each element. As `numpy.real`.

    >>> import lazyt as lt
    >>> lt.real(lt.asarray([1 + 2j])).tolist()
    [1.0]
    """
    return record_one(ops.REAL, x)


def imag(x: ArrayLike, /) -> Tensor:
    """The imaginary part of each element. As `numpy.imag`.

    >>> import lazyt as lt
    >>> lt.imag(lt.asarray([1 + 2j])).tolist()
    [2.0]
    """
    return record_one(ops.IMAG, x)


def real_part(x: Tensor) -> Tensor:
    """`x.real`: the real part as a view; a real tensor is its own."""
    return record_view(ops.REAL_PART, x) if dtypes.kind(x.dtype) == "c" else x


def imag_part(x: Tensor) -> Tensor:
    """`x.imag`: the imaginary part as a view; zeros of a real tensor, which are none."""
    return record_view(ops.IMAG_PART, x) if dtypes.kind(x.dtype) == "c" else imag(x)


def set_real_part(x: Tensor, value: ArrayLike) -> None:
    """`x.real = value`, a deferred write."""
    if not puts_back(x, value, (ops.REAL_PART, (), None, None)):
        assign(real_part(x), value, "real")


def set_imag_part(x: Tensor, value: ArrayLike) -> None:
    """`x.imag = value`, a deferred write; DTypeError for a real tensor."""
    if dtypes.kind(x.dtype) != "c":
        raise DTypeError(f"imag: a tensor of dtype {x.dtype} has no imaginary part to set")
    if not puts_back(x, value, (ops.IMAG_PART, (), None, None)):
        assign(imag_part(x), value, "imag")


def conj(x: ArrayLike, /) -> Tensor:
    """The complex conjugate of each element. As `numpy.conj`.

    >>> import lazyt as lt
    >>> lt.conj(lt.asarray([1 + 2j])).tolist()
    [(1-2j)]
    """
    return record_one(ops.CONJ, x)


def angle(x: ArrayLike, /) -> Tensor:
    """The angle of each element in the complex plane, in radians. As `numpy.angle`.

    >>> import lazyt as lt
    >>> lt.angle(lt.asarray([1 + 0j])).tolist()
    [0.0]
    """
    return record_one(ops.ANGLE, x)


def isnan(x: ArrayLike, /) -> Tensor:
    """Whether each element is NaN. As `numpy.isnan`.

    >>> import lazyt as lt
    >>> lt.isnan(lt.asarray([1.0, float('nan')])).tolist()
    [False, True]
    """
    return record_one(ops.ISNAN, x)


def isinf(x: ArrayLike, /) -> Tensor:
    """Whether each element is infinite. As `numpy.isinf`.

    >>> import lazyt as lt
    >>> lt.isinf(lt.asarray([1.0, float('-inf')])).tolist()
    [False, True]
    """
    return record_one(ops.ISINF, x)


def isfinite(x: ArrayLike, /) -> Tensor:
    """Whether each element is neither infinite nor NaN. As `numpy.isfinite`.

    >>> import lazyt as lt
    >>> lt.isfinite(lt.asarray([1.0, float('inf')])).tolist()
    [True, False]
    """
    return record_one(ops.ISFINITE, x)


def round(x: ArrayLike, /, decimals: int = 0) -> Tensor:
    """Each element rounded to `decimals` places, halves to even. As `numpy.round`.

    >>> import lazyt as lt
    >>> lt.round(lt.asarray([1.5, 2.5, -0.7])).tolist()
    [2.0, 2.0, -1.0]
    """
    return record(ops.ROUND, (x,), (integer("round", "decimals", decimals),))


# NumPy's other names

absolute = abs
arccos = acos
arccosh = acosh
arcsin = asin
arcsinh = asinh
arctan = atan
arctanh = atanh
conjugate = conj
deg2rad = radians
fix = trunc
rad2deg = degrees
