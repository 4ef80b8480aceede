"""Products of vectors, matrices and stacks of them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from lazyt.errors import DTypeError, ShapeError
from lazyt.functions.arguments import record, record_two, record_view, tensor
from lazyt.functions.contraction_paths import along_path
from lazyt.ir.dtypes import as_dtype
from lazyt.ops import linear as ops
from lazyt.ops.axes import integer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.runtime.tensor import Tensor

__all__ = [
    "cross",
    "diagonal",
    "dot",
    "einsum",
    "inner",
    "kron",
    "matmul",
    "matrix_transpose",
    "outer",
    "tensordot",
    "trace",
    "vecdot",
]


def matmul(x1: Any, x2: Any, /) -> Tensor:
    """The matrix product of the last two axes; the axes before them broadcast.

    Shapes (..., m, k) and (..., k, n) give (..., m, n); a vector is a row on the left, a column on the right.
    Raises ShapeError if the extents do not match. As `numpy.matmul`.

    >>> import lazyt as lt
    >>> lt.matmul(lt.asarray([[1, 2], [3, 4]]), lt.asarray([1, 1])).tolist()
    [3, 7]
    """
    return record_two(ops.MATMUL, x1, x2)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """The dot product along one axis, with the conjugate of `x1`; the other axes broadcast.

    Raises ShapeError if the extents along `axis` differ. As `numpy.vecdot`.

    >>> import lazyt as lt
    >>> lt.vecdot(lt.asarray([[1, 2], [3, 4]]), lt.asarray([1, 1])).tolist()
    [3, 7]
    """
    return record(ops.VECDOT, (x1, x2), (axis,))


def dot(x1: Any, x2: Any, /) -> Tensor:
    """The sum product over the last axis of `x1` and the last but one of `x2`; with a scalar, the product.

    Raises ShapeError if these extents differ. As `numpy.dot`.

    >>> import lazyt as lt
    >>> lt.dot(lt.asarray([1, 2]), lt.asarray([3, 4])).item()
    11
    """
    return record_two(ops.DOT, x1, x2)


def inner(x1: Any, x2: Any, /) -> Tensor:
    """The sum product over the last axes of both; with a scalar, the product.

    Raises ShapeError if these extents differ. As `numpy.inner`.

    >>> import lazyt as lt
    >>> lt.inner(lt.asarray([[1, 2], [3, 4]]), lt.asarray([3, 4])).tolist()
    [11, 25]
    """
    return record_two(ops.INNER, x1, x2)


def outer(x1: Any, x2: Any, /) -> Tensor:
    """Every product of an element of `x1` and one of `x2`, both flattened: shape (x1.size, x2.size).

    As `numpy.outer`.

    >>> import lazyt as lt
    >>> lt.outer(lt.asarray([1, 2]), lt.asarray([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    return record_two(ops.OUTER, x1, x2)


def tensordot(x1: Any, x2: Any, /, axes: int | Sequence[Any] = 2) -> Tensor:
    """The sum product over the last `axes` axes of `x1` and the first of `x2`, or over the two lists given.

    Raises ShapeError if the extents differ. As `numpy.tensordot`.

    >>> import lazyt as lt
    >>> lt.tensordot(lt.asarray([[1, 2], [3, 4]]), lt.asarray([[1, 0], [0, 1]])).item()
    5
    """
    return record(ops.TENSORDOT, (x1, x2), (_contracted(axes),))


def _contracted(axes: Any) -> int | tuple[tuple[int, ...], ...]:
    if isinstance(axes, int):
        return axes
    try:
        first, second = axes
        return tuple(
            tuple(map(operator.index, a)) if hasattr(a, "__iter__") else (operator.index(a),) for a in (first, second)
        )
    except (TypeError, ValueError):
        raise DTypeError(f"tensordot: axes must be an integer or two sequences of integers, got {axes!r}") from None


def einsum(subscripts: Any, /, *operands: Any, optimize: Any = False) -> Tensor:
    """The sum of products that the subscripts spell, contracted pair by pair: from the left, or along a path.

    `optimize` is True, 'greedy', 'optimal', or a path (NumPy's or opt_einsum's: positions, two at a time).

    Letters name axes; those missing after `->` are summed over, repeated ones take the diagonal, `...` broadcasts.
    Raises ShapeError for subscripts that do not fit the operands. As `numpy.einsum`.

    >>> import lazyt as lt
    >>> lt.einsum("ij,j->i", lt.asarray([[1, 2], [3, 4]]), lt.asarray([1, 1])).tolist()
    [3, 7]
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _spelled((subscripts, *operands))
    if not operands:
        raise ShapeError("einsum: subscripts and at least one operand are required")
    spelled = subscripts.replace(" ", "")
    if len(operands) > 2 and optimize is not False and "." not in spelled:
        return along_path(spelled, operands, optimize)
    return record(ops.EINSUM, operands, (spelled,))


def _spelled(args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """einsum(x, [0, 1], y, [1, 2], [0, 2]) -> "ab,bc->ac", (x, y)"""

    def text(labels: Any) -> str:
        return "".join("..." if k is Ellipsis else chr((65 if k < 26 else 71) + k) for k in labels)

    if len(args) < 2:
        return "", ()
    operands = args[0 : len(args) // 2 * 2 : 2]
    spelled = ",".join(text(labels) for labels in args[1::2])
    return (f"{spelled}->{text(args[-1])}" if len(args) % 2 else spelled), operands


def kron(x1: Any, x2: Any, /) -> Tensor:
    """The Kronecker product: every element of `x1` times the whole of `x2`, as blocks.

    Each extent of the result is the product of the operands' extents. As `numpy.kron`.

    >>> import lazyt as lt
    >>> lt.kron(lt.asarray([1, 10]), lt.asarray([1, 2, 3])).tolist()
    [1, 2, 3, 10, 20, 30]
    """
    return record_two(ops.KRON, x1, x2)


def cross(x1: Any, x2: Any, /, *, axis: int | None = -1) -> Tensor:
    """The cross product of 3-vectors along one axis (None: the last); the other axes broadcast.

    Raises ShapeError unless the extent along `axis` is 3. As `numpy.cross`.

    >>> import lazyt as lt
    >>> lt.cross(lt.asarray([1, 0, 0]), lt.asarray([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    return record(ops.CROSS, (x1, x2), (-1 if axis is None else axis,))


def matrix_transpose(x: Any, /) -> Tensor:
    """A view of x with its last two axes swapped: (..., m, n) gives (..., n, m).

    Raises ShapeError for fewer than two axes. As `numpy.matrix_transpose`.

    >>> import lazyt as lt
    >>> lt.matrix_transpose(lt.asarray([[1, 2], [3, 4]])).tolist()
    [[1, 3], [2, 4]]
    """
    return record_view(ops.MATRIX_TRANSPOSE, tensor(x))


def diagonal(x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The elements whose index along `axis2` is that along `axis1` plus `offset`, as a new last axis; a view.

    Writes go through, where NumPy's is read-only. Raises ShapeError for fewer than two axes, or equal ones. As
    `numpy.diagonal`.

    >>> import lazyt as lt
    >>> lt.diagonal(lt.asarray([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """
    return record_view(ops.DIAGONAL, tensor(x), (integer("diagonal", "offset", offset), axis1, axis2))


def trace(x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Tensor:
    """The sum of a diagonal (see `diagonal`); integers are summed in 64 bits unless `dtype` is given.

    Raises ShapeError for fewer than two axes, or equal ones. As `numpy.trace`.

    >>> import lazyt as lt
    >>> lt.trace(lt.asarray([[1, 2], [3, 4]])).item()
    5
    """
    d = None if dtype is None else as_dtype(dtype)
    return record(ops.TRACE, (tensor(x, result=d),), (integer("trace", "offset", offset), axis1, axis2, d))
