"""Comparisons, logic and bits, element by element, and the choice between two arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from lazyt.errors import ShapeError
from lazyt.functions.arguments import record, record_comparison, record_one, record_two
from lazyt.functions.searching import nonzero
from lazyt.ops import logic as ops

if TYPE_CHECKING:
    from lazyt.functions.arguments import ArrayLike
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "equal",
    "greater",
    "greater_equal",
    "invert",
    "left_shift",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
    "right_shift",
    "where",
]


def equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether elements are equal; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast. As `numpy.equal`.

    >>> import lazyt as lt
    >>> lt.equal(lt.asarray([1, 2]), 2).tolist()
    [False, True]
    """
    return record_comparison(ops.EQUAL, x1, x2)


def not_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether elements differ; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast. As `numpy.not_equal`.

    >>> import lazyt as lt
    >>> lt.not_equal(lt.asarray([1, 2]), 2).tolist()
    [True, False]
    """
    return record_comparison(ops.NOT_EQUAL, x1, x2)


def less(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether x1 < x2; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for complex values. As `numpy.less`.

    >>> import lazyt as lt
    >>> lt.less(lt.asarray([1, 2]), 2).tolist()
    [True, False]
    """
    return record_comparison(ops.LESS, x1, x2)


def less_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether x1 <= x2; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for complex values. As `numpy.less_equal`.

    >>> import lazyt as lt
    >>> lt.less_equal(lt.asarray([1, 2]), 1).tolist()
    [True, False]
    """
    return record_comparison(ops.LESS_EQUAL, x1, x2)


def greater(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether x1 > x2; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for complex values. As `numpy.greater`.

    >>> import lazyt as lt
    >>> lt.greater(lt.asarray([1, 2]), 1).tolist()
    [False, True]
    """
    return record_comparison(ops.GREATER, x1, x2)


def greater_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether x1 >= x2; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for complex values. As `numpy.greater_equal`.

    >>> import lazyt as lt
    >>> lt.greater_equal(lt.asarray([1, 2]), 2).tolist()
    [False, True]
    """
    return record_comparison(ops.GREATER_EQUAL, x1, x2)


def logical_and(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether both elements are true (not 0); the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast. As `numpy.logical_and`.

    >>> import lazyt as lt
    >>> lt.logical_and(lt.asarray([True, False]), True).tolist()
    [True, False]
    """
    return record_two(ops.LOGICAL_AND, x1, x2)


def logical_or(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether an element of either is true (not 0); the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast. As `numpy.logical_or`.

    >>> import lazyt as lt
    >>> lt.logical_or(lt.asarray([True, False]), False).tolist()
    [True, False]
    """
    return record_two(ops.LOGICAL_OR, x1, x2)


def logical_xor(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether exactly one element is true (not 0); the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast. As `numpy.logical_xor`.

    >>> import lazyt as lt
    >>> lt.logical_xor(lt.asarray([True, False]), True).tolist()
    [False, True]
    """
    return record_two(ops.LOGICAL_XOR, x1, x2)


def bitwise_and(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The bits set in both; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for dtypes other than integer and bool. As
    `numpy.bitwise_and`.

    >>> import lazyt as lt
    >>> lt.bitwise_and(lt.asarray([6, 3]), 2).tolist()
    [2, 2]
    """
    return record_two(ops.BITWISE_AND, x1, x2)


def bitwise_or(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The bits set in either; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for dtypes other than integer and bool. As
    `numpy.bitwise_or`.

    >>> import lazyt as lt
    >>> lt.bitwise_or(lt.asarray([4, 3]), 2).tolist()
    [6, 3]
    """
    return record_two(ops.BITWISE_OR, x1, x2)


def bitwise_xor(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The bits set in exactly one; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for dtypes other than integer and bool. As
    `numpy.bitwise_xor`.

    >>> import lazyt as lt
    >>> lt.bitwise_xor(lt.asarray([6, 3]), 2).tolist()
    [4, 1]
    """
    return record_two(ops.BITWISE_XOR, x1, x2)


def bitwise_left_shift(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """x1 shifted left by x2 bits (0 past the width); the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for dtypes other than integer. As
    `numpy.left_shift`.

    >>> import lazyt as lt
    >>> lt.bitwise_left_shift(lt.asarray([1, 3]), 2).tolist()
    [4, 12]
    """
    return record_two(ops.BITWISE_LEFT_SHIFT, x1, x2)


def bitwise_right_shift(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """x1 shifted right by x2 bits, the sign filling; the operands are promoted and broadcast.

    Raises ShapeError if the shapes do not broadcast, DTypeError for dtypes other than integer. As
    `numpy.right_shift`.

    >>> import lazyt as lt
    >>> lt.bitwise_right_shift(lt.asarray([4, -4]), 1).tolist()
    [2, -2]
    """
    return record_two(ops.BITWISE_RIGHT_SHIFT, x1, x2)


def logical_not(x: ArrayLike, /) -> Tensor:
    """Whether each element is false (0). As `numpy.logical_not`.

    >>> import lazyt as lt
    >>> lt.logical_not(lt.asarray([True, False])).tolist()
    [False, True]
    """
    return record_one(ops.LOGICAL_NOT, x)


def bitwise_invert(x: ArrayLike, /) -> Tensor:
    """Every bit of each element inverted; for bool, not. Raises DTypeError for floats. As `numpy.invert`.

    >>> import lazyt as lt
    >>> lt.bitwise_invert(lt.asarray([0, 5])).tolist()
    [-1, -6]
    """
    return record_one(ops.BITWISE_INVERT, x)


@overload
def where(condition: ArrayLike, /) -> tuple[Tensor, ...]: ...
@overload
def where(condition: ArrayLike, x1: ArrayLike, x2: ArrayLike, /) -> Tensor: ...
def where(condition: ArrayLike, x1: ArrayLike | None = None, x2: ArrayLike | None = None, /) -> Any:
    """Elements of x1 where the condition is true (not 0), of x2 elsewhere; all three broadcast, x1 and x2
    promote.

    Raises ShapeError if the shapes do not broadcast, or for one choice alone. With the condition alone it is
    `nonzero`, a sync. As `numpy.where`.

    >>> import lazyt as lt
    >>> lt.where(lt.asarray([True, False]), lt.asarray([1, 2]), 0).tolist()
    [1, 0]
    """
    if x1 is None and x2 is None:
        return nonzero(condition)
    if x1 is None or x2 is None:
        raise ShapeError("where: both choices are required, or none")
    return record(ops.WHERE, (condition, x1, x2))


# NumPy's other names

bitwise_not = bitwise_invert
invert = bitwise_invert
left_shift = bitwise_left_shift
right_shift = bitwise_right_shift
