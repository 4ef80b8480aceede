"""Arithmetic of two operands, element by element."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, ScalarRangeError
from lazyt.functions.arguments import record, record_two, tensor, tensors
from lazyt.ir import dtypes
from lazyt.ops import arithmetic as ops, elementwise as unary
from lazyt.tracing.autocast import autocasts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.functions.arguments import ArrayLike
    from lazyt.ops.definition import OpDef
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "add",
    "arctan2",
    "atan2",
    "clip",
    "copysign",
    "divide",
    "divmod",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "heaviside",
    "hypot",
    "isclose",
    "logaddexp",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "nextafter",
    "pow",
    "power",
    "remainder",
    "subtract",
    "true_divide",
]


def add(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The sum of two arrays; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast. As `numpy.add`.

    >>> import lazyt as lt
    >>> lt.add(lt.asarray([1, 2]), 10).tolist()
    [11, 12]
    """
    return record_two(ops.ADD, x1, x2)


def subtract(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The difference of two arrays; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for bool. As `numpy.subtract`.

    >>> import lazyt as lt
    >>> lt.subtract(lt.asarray([1, 2]), 10).tolist()
    [-9, -8]
    """
    return record_two(ops.SUBTRACT, x1, x2)


def multiply(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The product of two arrays; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast. As `numpy.multiply`.

    >>> import lazyt as lt
    >>> lt.multiply(lt.asarray([1, 2]), 10).tolist()
    [10, 20]
    """
    return record_two(ops.MULTIPLY, x1, x2)


def divide(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The quotient of two arrays, float64 for integers; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast. As `numpy.divide`.

    >>> import lazyt as lt
    >>> lt.divide(lt.asarray([1, 2]), 4).tolist()
    [0.25, 0.5]
    """
    return record_two(ops.DIVIDE, x1, x2)


def floor_divide(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The quotient rounded down (0 for an integer by 0); the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for complex values. As `numpy.floor_divide`, but of or
    by an infinity it is floor(x1 / x2), as the Array API prefers (NumPy: inf // 2 is NaN, and 1 // -inf is -1).

    >>> import lazyt as lt
    >>> lt.floor_divide(lt.asarray([7, -7]), 2).tolist()
    [3, -4]
    """
    return record_two(ops.FLOOR_DIVIDE, x1, x2)


def remainder(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """What floor_divide leaves, with the sign of the divisor; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for complex values. As `numpy.remainder`.

    >>> import lazyt as lt
    >>> lt.remainder(lt.asarray([7, -7]), 3).tolist()
    [1, 2]
    """
    return record_two(ops.REMAINDER, x1, x2)


def fmod(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """What division towards zero leaves, with the sign of the dividend; the operands are promoted and
    broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for complex values. As `numpy.fmod`.

    >>> import lazyt as lt
    >>> lt.fmod(lt.asarray([7, -7]), 3).tolist()
    [1, -1]
    """
    return record_two(ops.FMOD, x1, x2)


def maximum(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The larger of two elements, NaN if either is; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for complex values. As `numpy.maximum`.

    >>> import lazyt as lt
    >>> lt.maximum(lt.asarray([1, 5]), 3).tolist()
    [3, 5]
    """
    return record_two(ops.MAXIMUM, x1, x2)


def minimum(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The smaller of two elements, NaN if either is; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for complex values. As `numpy.minimum`.

    >>> import lazyt as lt
    >>> lt.minimum(lt.asarray([1, 5]), 3).tolist()
    [1, 3]
    """
    return record_two(ops.MINIMUM, x1, x2)


def fmax(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The larger of two elements, the other one where one is NaN; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for complex values. As `numpy.fmax`.

    >>> import lazyt as lt
    >>> lt.fmax(lt.asarray([1, 5]), 3).tolist()
    [3, 5]
    """
    return record_two(ops.FMAX, x1, x2)


def fmin(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The smaller of two elements, the other one where one is NaN; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for complex values. As `numpy.fmin`.

    >>> import lazyt as lt
    >>> lt.fmin(lt.asarray([1, 5]), 3).tolist()
    [1, 3]
    """
    return record_two(ops.FMIN, x1, x2)


def atan2(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The angle of the point (x2, x1), in radians; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for complex values. As `numpy.arctan2`.

    >>> import lazyt as lt
    >>> lt.atan2(lt.asarray([0.0]), 1.0).tolist()
    [0.0]
    """
    return record_two(ops.ATAN2, x1, x2)


def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """sqrt(x1^2 + x2^2) without overflow; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for complex values. As `numpy.hypot`.

    >>> import lazyt as lt
    >>> lt.hypot(lt.asarray([3.0]), 4.0).tolist()
    [5.0]
    """
    return record_two(ops.HYPOT, x1, x2)


def logaddexp(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """log(exp(x1) + exp(x2)) without overflow; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for complex values. As `numpy.logaddexp`.

    >>> import lazyt as lt
    >>> lt.logaddexp(lt.asarray([1000.0]), 0.0).tolist()
    [1000.0]
    """
    return record_two(ops.LOGADDEXP, x1, x2)


def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The size of x1 with the sign of x2; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for complex values. As `numpy.copysign`.

    >>> import lazyt as lt
    >>> lt.copysign(lt.asarray([1.0, -2.0]), -0.0).tolist()
    [-1.0, -2.0]
    """
    return record_two(ops.COPYSIGN, x1, x2)


def nextafter(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The float that follows x1 towards x2; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for complex values. As `numpy.nextafter`.

    >>> import lazyt as lt
    >>> lt.nextafter(lt.asarray([1.0]), 2.0).tolist()
    [1.0000001192092896]
    """
    return record_two(ops.NEXTAFTER, x1, x2)


def heaviside(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """0 where x1 is negative, 1 where it is positive and x2 where it is 0; the operands are promoted and
    broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for complex values. As `numpy.heaviside`.

    >>> import lazyt as lt
    >>> lt.heaviside(lt.asarray([-1.0, 0.0, 2.0]), 0.5).tolist()
    [0.0, 0.5, 1.0]
    """
    return record_two(ops.HEAVISIDE, x1, x2)


@autocasts("pow")
def pow(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """x1 to the power of x2; the operands are promoted and broadcast.

    The Python exponents -1, 0.5, 1, 2 and 3 are recorded as reciprocal, square root and products. An integer
    to a negative power is 0 unless its base is 1 or -1. Raises ShapeError if the shapes do not broadcast,
    DTypeError for an integer array and a negative Python integer. As `numpy.power`.

    >>> import lazyt as lt
    >>> lt.pow(lt.asarray([1, 2, 3]), 2).tolist()
    [1, 4, 9]
    """
    if type(x2) is int or type(x2) is float:
        op, operands = power_of(x1, x2)
        return record(op, operands)
    return record_two(ops.POW, x1, x2)


def power_of(x: Any, n: Any) -> tuple[OpDef, tuple[Any, ...]]:
    """The operation that a power is, and its operands."""
    if type(n) is int or type(n) is float:
        base = tensor(x) if type(x) not in (bool, int, float, complex) else None
        if base is not None:
            kind = dtypes.kind(base.dtype)
            if kind in "biu" and type(n) is int and n < 0:
                raise DTypeError(f"pow: an integer dtype ({base.dtype}) has no negative power; cast to a float dtype")
            # (-0.0) ** 0.5 and (-inf) ** 0.5 differ from the square root: as NumPy, lazyt takes it.
            special = _FLOAT_POWERS.get(n) if kind in "fc" else None
            if kind in "iu" and type(n) is int:
                special = _INTEGER_POWERS.get(n)
            return (ops.POW, (base, n)) if special is None else (special, (base,))
    return ops.POW, (x, n)


_INTEGER_POWERS: dict[float, OpDef] = {1: unary.POSITIVE, 2: unary.SQUARE, 3: unary.CUBE}
_FLOAT_POWERS: dict[float, OpDef] = {**_INTEGER_POWERS, 0.5: unary.SQRT, -1: unary.RECIPROCAL}


def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple[Tensor, Tensor]:
    """The pair (floor_divide, remainder). Raises as they do. As `numpy.divmod`.

    >>> import lazyt as lt
    >>> q, r = lt.divmod(lt.asarray([7, -7]), 3)
    >>> q.tolist(), r.tolist()
    ([2, -3], [1, 2])
    """
    return record(ops.FLOOR_DIVIDE, (x1, x2)), record(ops.REMAINDER, (x1, x2))


def clip(x: ArrayLike, /, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Tensor:
    """Each element, but not below `min` nor above `max` (arrays or scalars that broadcast; None: no bound).

    Where min > max the result is max. Raises ShapeError if the shapes do not broadcast, DTypeError for
    complex values. As `numpy.clip`.

    >>> import lazyt as lt
    >>> lt.clip(lt.asarray([-5, 0, 5]), -1, 1).tolist()
    [-1, 0, 1]
    """
    bounds = tuple(b for b in (min, max) if b is not None)
    try:
        return record(ops.CLIP, (x, *bounds), (min is not None, max is not None))
    except ScalarRangeError:
        least, most = _held([t for t in (x, min, max) if t is not None and type(t) is not int])
        low, high = type(min) is int and min < least, type(max) is int and max > most
        if not (low or high):
            raise
        # A bound beyond what the integer dtype holds, on its own side, bounds nothing.
        return clip(x, None if low else min, None if high else max)


def _held(xs: Sequence[ArrayLike]) -> tuple[int, int]:
    """The smallest and the largest integer that the common dtype of arrays of integers holds."""
    info = np.iinfo(functools.reduce(dtypes.promote, (t.dtype for t in tensors(xs))))
    return int(info.min), int(info.max)


def isclose(
    x1: ArrayLike, x2: ArrayLike, /, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """Whether |x1 - x2| <= atol + rtol * |x2|, element by element; bool. As `numpy.isclose`.

    Equal infinities are close; NaN is close to NaN only with `equal_nan`. Raises ShapeError if the shapes do
    not broadcast.

    >>> import lazyt as lt
    >>> lt.isclose(lt.asarray([1.0, 2.0]), lt.asarray([1.0, 2.1])).tolist()
    [True, False]
    """
    return record(ops.ISCLOSE, (x1, x2, rtol, atol), (bool(equal_nan),))


# NumPy's other names

arctan2 = atan2
mod = remainder
power = pow
true_divide = divide
