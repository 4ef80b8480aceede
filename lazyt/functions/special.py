"""NumPy's further functions of single elements, and bits packed into bytes.

What has a formula is recorded as one and is differentiable; the rest runs in NumPy as one deferred step, which
`explain()` names.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, ShapeError
from lazyt.functions.arguments import broadcasts_to, record, record_many, record_one, tensor, tensors
from lazyt.functions.arithmetic import copysign, multiply, pow, subtract
from lazyt.functions.elementwise import abs, imag, imag_part, isinf, isnan, real_part, round, signbit, sin, trunc
from lazyt.functions.logic import equal, logical_and, logical_not, not_equal, where
from lazyt.functions.manipulation import astype, atleast_1d, broadcast_to
from lazyt.functions.numpy_calls import record_numpy, record_ufunc, refuse_gradient, resolved
from lazyt.functions.padding import pad
from lazyt.functions.subscript import getitem
from lazyt.ir import dtypes
from lazyt.ops import bits, elementwise, special as ops
from lazyt.ops.axes import integer, one_axis
from lazyt.ops.elementwise import float_of
from lazyt.tracing.inplace import assign

if TYPE_CHECKING:
    from lazyt.functions.arguments import ArrayLike
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "around",
    "bitwise_count",
    "cbrt",
    "digamma",
    "erfinv",
    "fabs",
    "float_power",
    "frexp",
    "gcd",
    "i0",
    "iscomplex",
    "isneginf",
    "isposinf",
    "isreal",
    "lcm",
    "ldexp",
    "lgamma",
    "logaddexp2",
    "modf",
    "mvlgamma",
    "nan_to_num",
    "packbits",
    "polygamma",
    "rint",
    "sinc",
    "spacing",
    "unpackbits",
]

around = round


def nan_to_num(
    x: ArrayLike, /, nan: ArrayLike = 0.0, posinf: ArrayLike | None = None, neginf: ArrayLike | None = None
) -> Tensor:
    """NaN and infinities replaced: by numbers, or by the elements of arrays that broadcast against x; of x's dtype.

    Infinities become the largest finite values by default. Raises ShapeError for arrays that do not broadcast to x. As
    `numpy.nan_to_num`.

    >>> import lazyt as lt
    >>> lt.nan_to_num(lt.asarray([1.0, float('nan'), float('inf')]), posinf=9.0).tolist()
    [1.0, 0.0, 9.0]
    """
    given: Any = tuple(v.item() if isinstance(v, np.generic) else v for v in (nan, posinf, neginf))
    if all(v is None or isinstance(v, bool | int | float) for v in given):
        # NOTE: what is part of a program is compared, and -0.0 == 0.0.
        texts = ("-0.0" if isinstance(v, float) and repr(float(v)) == "-0.0" else v for v in given)
        return record(elementwise.NAN_TO_NUM, (x,), tuple(texts))
    t = tensor(x)
    kind = dtypes.kind(t.dtype)
    out = nan_to_num(t)
    if kind == "c":
        for part in (real_part, imag_part):
            assign(part(out), nan_to_num(part(t), *given), "nan_to_num")
        return out
    if kind != "f":
        return out
    wrong = (isnan(t), isposinf(t), isneginf(t))
    for at, v in zip(wrong, given, strict=True):
        if v is None:
            continue
        value = tensor(v, t)
        if dtypes.kind(value.dtype) == "c":
            raise DTypeError("nan_to_num: what is put in place of a real number is real, got complex values")
        if not broadcasts_to(value.shape, t.shape):
            raise ShapeError(f"nan_to_num: values of shape {value.shape} do not broadcast to {t.shape}")
        out = astype(where(at, value, out), t.dtype, copy=False)
    return out


def rint(x: ArrayLike, /) -> Tensor:
    """Each element rounded to a whole number, halves to even: a float of an integer too. As `numpy.rint`.

    >>> import lazyt as lt
    >>> lt.rint(lt.asarray([0.5, 1.5])).tolist()
    [0.0, 2.0]
    """
    return round(_floating(x))


def fabs(x: ArrayLike, /) -> Tensor:
    """The absolute value of each real element, as a float. Raises DTypeError for complex values. As `numpy.fabs`.

    >>> import lazyt as lt
    >>> lt.fabs(lt.asarray([-1.5])).tolist()
    [1.5]
    """
    if dtypes.kind(tensor(x).dtype) == "c":
        raise DTypeError(f"fabs: a real dtype is required, got {tensor(x).dtype}")
    return abs(_floating(x))


def _floating(x: ArrayLike) -> Tensor:
    t = tensor(x)
    return astype(t, float_of(t.dtype), copy=False)


def sinc(x: ArrayLike) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0. As `numpy.sinc`.

    >>> import lazyt as lt
    >>> lt.sinc(lt.asarray([0.0, 0.5])).tolist()
    [1.0, 0.6366197466850281]
    """
    t = tensor(x)
    if dtypes.kind(t.dtype) not in "fc":
        t = astype(t, dtypes.float64)
    zero = equal(t, 0)
    # 1 stands in for 0, so that neither the quotient nor its derivative divides by 0.
    y = multiply(where(zero, 1, t), np.pi)
    return where(zero, 1, sin(y) / y)


def _deferred(ufunc: np.ufunc, *operands: Any) -> Any:
    return record_ufunc(ufunc, operands)


def cbrt(x: ArrayLike) -> Tensor:
    """The cube root. Runs in NumPy when computed. As `numpy.cbrt`.

    >>> import lazyt as lt
    >>> lt.cbrt(lt.asarray([8.0])).tolist()
    [2.0]
    """
    return _deferred(np.cbrt, x)  # type: ignore[no-any-return]


def gcd(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """The greatest common divisor of integers. Runs in NumPy when computed. As `numpy.gcd`.

    >>> import lazyt as lt
    >>> lt.gcd(lt.asarray([12, 18]), 8).tolist()
    [4, 2]
    """
    return _deferred(np.gcd, x1, x2)  # type: ignore[no-any-return]


def lcm(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """The least common multiple of integers. Runs in NumPy when computed. As `numpy.lcm`.

    >>> import lazyt as lt
    >>> lt.lcm(lt.asarray([4, 6]), 6).tolist()
    [12, 6]
    """
    return _deferred(np.lcm, x1, x2)  # type: ignore[no-any-return]


def ldexp(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 * 2**x2, x2 integers. Runs in NumPy when computed. As `numpy.ldexp`.

    >>> import lazyt as lt
    >>> lt.ldexp(lt.asarray([1.5]), lt.asarray([3])).tolist()
    [12.0]
    """
    return _deferred(np.ldexp, x1, x2)  # type: ignore[no-any-return]


def frexp(x: ArrayLike) -> tuple[Tensor, Tensor]:
    """The mantissa, of magnitude in [0.5, 1), and the exponent of 2. As `numpy.frexp`.

    Raises DTypeError for complex values, AutogradError if a gradient would have to pass through it.

    >>> import lazyt as lt
    >>> m, e = lt.frexp(lt.asarray([12.0]))
    >>> m.tolist(), e.tolist()
    ([0.75], [4])
    """
    t = tensor(np.asarray(x) if type(x) in (bool, int, float, complex) else x)
    known = dtypes.of(t.dtype)
    found = resolved(np.frexp, (known.numpy, None, None), "numpy.frexp")
    refuse_gradient("numpy.frexp", (t,), "it has no derivative")
    return record_many(bits.FREXP, (t,), (found[0], t.dtype if known.foreign else found[1]))  # type: ignore[return-value]


def spacing(x: ArrayLike) -> Tensor:
    """The distance to the next float away from 0. Runs in NumPy when computed. As `numpy.spacing`.

    >>> import lazyt as lt
    >>> lt.spacing(lt.asarray([1.0])).tolist()
    [1.1920928955078125e-07]
    """
    return _deferred(np.spacing, x)  # type: ignore[no-any-return]


def bitwise_count(x: ArrayLike) -> Tensor:
    """The number of bits that are 1 in the magnitude of integers; uint8. Runs in NumPy when computed.

    As `numpy.bitwise_count`.

    >>> import lazyt as lt
    >>> lt.bitwise_count(lt.asarray([7, 8])).tolist()
    [3, 1]
    """
    return _deferred(np.bitwise_count, x)  # type: ignore[no-any-return]


def logaddexp2(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """log2(2**x1 + 2**x2) without overflow. Runs in NumPy when computed. As `numpy.logaddexp2`.

    >>> import lazyt as lt
    >>> lt.logaddexp2(lt.asarray([1.0]), 1.0).tolist()
    [2.0]
    """
    return _deferred(np.logaddexp2, x1, x2)  # type: ignore[no-any-return]


def float_power(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """x1 to the power of x2 in float64 (complex128), so that integers have negative powers. As `numpy.float_power`.

    >>> import lazyt as lt
    >>> lt.float_power(lt.asarray([2, 4]), -1).tolist()
    [0.5, 0.25]
    """
    x, y = tensors((x1, x2), dtypes.float64)
    d = dtypes.complex128 if "c" in dtypes.kind(x.dtype) + dtypes.kind(y.dtype) else dtypes.float64
    return pow(astype(x, d, copy=False), astype(y, d, copy=False))


def modf(x: ArrayLike) -> tuple[Tensor, Tensor]:
    """The fractional and the whole part, both with the sign of x. As `numpy.modf`.

    >>> import lazyt as lt
    >>> [p.tolist() for p in lt.modf(lt.asarray([-1.5]))]
    [[-0.5], [-1.0]]
    """
    t = tensor(x)
    if dtypes.kind(t.dtype) != "f":
        t = astype(t, dtypes.float64)
    whole = trunc(t)
    return copysign(where(isinf(t), 0, subtract(t, whole)), t), whole


def i0(x: ArrayLike) -> Tensor:
    """The modified Bessel function of the first kind and order 0. Runs in NumPy when computed. As `numpy.i0`.

    Raises DTypeError for complex values.

    >>> import lazyt as lt
    >>> lt.i0(lt.asarray([0.0], dtype=lt.float64)).tolist()
    [1.0]
    """
    t = tensor(x)
    if dtypes.kind(t.dtype) == "c":
        raise DTypeError("i0: real numbers are required, got complex ones")
    d = t.dtype if dtypes.kind(t.dtype) == "f" else dtypes.float64
    return record_numpy("numpy.i0", np.i0, (t,), {}, [(t.shape, d)])  # type: ignore[no-any-return]


def lgamma(x: ArrayLike, /) -> Tensor:
    """log(abs(gamma(x))) of each element, infinite at 0, -1, -2 ...; its derivative is digamma.

    For positive elements within 6 ULP in float64, nearly correctly rounded in float32. For negative ones, near a zero,
    the error is that of the terms that cancel there. Raises DTypeError for complex values. As
    `scipy.special.gammaln`, and `torch.lgamma`.

    >>> import lazyt as lt
    >>> lt.lgamma(lt.asarray([1.0, 5.0, -1.0])).tolist()
    [0.0, 3.178053855895996, inf]
    """
    return record_one(ops.LGAMMA, x)


def digamma(x: ArrayLike, /) -> Tensor:
    """The derivative of lgamma at each element: -inf at 0 (inf at -0.0), NaN at -1, -2 ...

    For positive elements within 4.5 ULP in float64, nearly correctly rounded in float32; for negative ones as lgamma.
    Raises DTypeError for complex values. As `scipy.special.digamma`, and `torch.digamma`.

    >>> import lazyt as lt
    >>> lt.digamma(lt.asarray([1.0, 0.0, -1.0])).tolist()
    [-0.5772156715393066, -inf, nan]
    """
    return record_one(ops.DIGAMMA, x)


def polygamma(n: int, x: ArrayLike, /) -> Tensor:
    """The n-th derivative of digamma at each element, n a Python integer; digamma itself for 0.

    For n up to 4 and positive elements within 8 ULP. Raises DTypeError for complex values, ShapeError for a negative n.
    As `scipy.special.polygamma`, and `torch.polygamma`.

    >>> import lazyt as lt
    >>> lt.polygamma(1, lt.asarray([1.0], dtype=lt.float64)).tolist()
    [1.6449340668482264]
    """
    order = integer("polygamma", "n", n)
    if order < 0:
        raise ShapeError(f"polygamma: n is at least 0, got {n}")
    return record(ops.POLYGAMMA, (x,), (order,)) if order else digamma(x)


def mvlgamma(x: ArrayLike, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of p dimensions at each element, which is above (p - 1) / 2.

    Raises DTypeError for complex values, ShapeError for a p below 1. As `scipy.special.multigammaln`, and
    `torch.mvlgamma`.

    >>> import lazyt as lt
    >>> lt.mvlgamma(lt.asarray([1.5]), 2).tolist()
    [0.451582670211792]
    """
    d = integer("mvlgamma", "p", p)
    if d < 1:
        raise ShapeError(f"mvlgamma: p is at least 1, got {p}")
    total: Any = d * (d - 1) / 4 * math.log(math.pi)
    for k in range(d):
        total = total + lgamma(subtract(x, k / 2) if k else x)
    return total  # type: ignore[no-any-return]


def erfinv(x: ArrayLike, /) -> Tensor:
    """The y with erf(y) = x, for each element: -inf and inf at -1 and 1, NaN outside.

    Within 5 ULP in float64, nearly correctly rounded in float32. Raises DTypeError for complex values. As
    `scipy.special.erfinv`, and `torch.erfinv`.

    >>> import lazyt as lt
    >>> lt.erfinv(lt.asarray([0.0, 0.5, 1.0, 2.0])).tolist()
    [0.0, 0.4769362807273865, inf, nan]
    """
    return record_one(ops.ERFINV, x)


def isneginf(x: ArrayLike) -> Tensor:
    """Whether elements are negative infinity. As `numpy.isneginf`.

    >>> import lazyt as lt
    >>> lt.isneginf(lt.asarray([1.0, float("-inf")])).tolist()
    [False, True]
    """
    return logical_and(isinf(x), signbit(x))


def isposinf(x: ArrayLike) -> Tensor:
    """Whether elements are positive infinity. As `numpy.isposinf`.

    >>> import lazyt as lt
    >>> lt.isposinf(lt.asarray([1.0, float("inf")])).tolist()
    [False, True]
    """
    return logical_and(isinf(x), logical_not(signbit(x)))


def iscomplex(x: ArrayLike) -> Tensor:
    """Whether elements have an imaginary part that is not 0. As `numpy.iscomplex`.

    >>> import lazyt as lt
    >>> lt.iscomplex(lt.asarray([1 + 1j, 2 + 0j])).tolist()
    [True, False]
    """
    t = tensor(x)
    return not_equal(imag(t), 0) if dtypes.kind(t.dtype) == "c" else broadcast_to(tensor(np.asarray(False), t), t.shape)


def isreal(x: ArrayLike) -> Tensor:
    """Whether elements have no imaginary part. As `numpy.isreal`.

    >>> import lazyt as lt
    >>> lt.isreal(lt.asarray([1 + 1j, 2 + 0j])).tolist()
    [False, True]
    """
    return logical_not(iscomplex(x))


def packbits(a: ArrayLike, axis: int | None = None, bitorder: str = "big") -> Tensor:
    """Whether elements are not 0, eight to a byte along an axis (of the flattened array, without one); uint8.

    Raises DTypeError unless they are integers or bool, ShapeError for a bad axis. As `numpy.packbits`.

    >>> import lazyt as lt
    >>> lt.packbits(lt.asarray([1, 0, 0, 0, 0, 0, 0, 1, 1])).tolist()
    [129, 128]
    """
    t = atleast_1d(a)
    n = t.size if axis is None else t.shape[one_axis("packbits", axis, t.ndim)]
    return record(bits.PACKBITS, (t,), (axis, bitorder, n % 8 == 0), (-(-n // 8),))


def unpackbits(a: ArrayLike, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Tensor:
    """The bits of bytes as uint8 0 or 1, eight a byte along an axis; `count` of them (negative: without the last).

    Raises DTypeError unless they are uint8, ShapeError for a bad axis. As `numpy.unpackbits`.

    >>> import lazyt as lt
    >>> lt.unpackbits(lt.asarray([5], dtype=lt.uint8)).tolist()
    [0, 0, 0, 0, 0, 1, 0, 1]
    """
    t = atleast_1d(a)
    found = record(bits.UNPACKBITS, (t,), (axis, bitorder))
    if count is None:
        return found
    at = 0 if axis is None else one_axis("unpackbits", axis, t.ndim)
    n = found.shape[at]
    if count > n:
        return pad(found, [(0, count - n if i == at else 0) for i in range(found.ndim)])
    if count < -n:
        raise ShapeError(f"unpackbits: count {count} leaves nothing of {n} bits")
    return getitem(found, (*(slice(None),) * at, slice(0, count)))
