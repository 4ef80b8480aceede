"""Arrays made without operands, or from the shape of another array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.ir import dtypes
from lazyt.ir.extents import maximum
from lazyt.ir.symbolic import hint
from lazyt.ops import samples
from lazyt.ops.definition import OpDef, Operand, define, node_of, require_kind, result_type, written

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node, Shape
    from lazyt.ir.symbolic import Dim


def _full(b: Builder, value: Operand, dtype: np.dtype, ints: Shape) -> Node:
    v = written(b, "full", value, dtype)
    if v.shape != ():
        raise ShapeError(f"full: a 0-d fill value is required, got shape {tuple(map(hint, v.shape))}")
    return b.expand_to(v, ints)


COPY = OpDef("copy", lambda b, x: x)
FULL = define("full", _full, numpy=np.full, samples=samples.calls(
    ((2, 3), 1.5, {"dtype": np.float32}), ((), 3), ((0, 2), True), ((2,), 7, {"dtype": np.uint8}), (3, 2),
))  # fmt: skip
ZEROS = define(
    "zeros",
    lambda b, dtype, ints: _full(b, 0, dtype, ints),
    numpy=np.zeros,
    differentiable=False,
    samples=samples.calls(((2, 3), {"dtype": np.float32}), (4, {"dtype": np.int8}), ((), {"dtype": np.complex64})),
)
ONES = define(
    "ones",
    lambda b, dtype, ints: _full(b, 1, dtype, ints),
    numpy=np.ones,
    differentiable=False,
    samples=samples.calls(((2, 3), {"dtype": np.float32}), (4, {"dtype": np.bool_}), ((0, 2), {"dtype": np.float64})),
)


def _arange(b: Builder, start: Operand, step: Operand, dtype: np.dtype, ints: Shape) -> Node:
    """start + index * step, in int64 (uint64) or float64, rounded once."""
    k = dtypes.kind(dtype)
    work = dtypes.float64 if k == "f" else dtype if dtype == dtypes.uint64 else dtypes.int64
    if "float" in (_type(start), _type(step)):
        work = dtypes.float64
    index = b.cast(b.iota(ints, 0), work)
    y = b.add(b.mul(index, node_of(b, step, work)), node_of(b, start, work))
    return b.cast(y, dtype)


def _type(x: Operand) -> str:
    t = getattr(x, "type", None)
    return t.__name__ if isinstance(t, type) else type(x).__name__


ARANGE = define("arange", _arange, numpy=np.arange, differentiable=False, samples=samples.calls(
    (5,), (2, 9, 3), (9, 2, -2), (3, 3), (0.0, 1.0, 0.25, {"dtype": np.float64}), (5, {"dtype": np.float32}),
    (250, 253, {"dtype": np.uint8}), (1.5, -1.5, -0.5, {"dtype": np.float32}),
))  # fmt: skip


def _linspace(b: Builder, start: Operand, stop: Operand, dtype: np.dtype, endpoint: bool, ints: Shape) -> Node:
    """start + index * (stop - start) / gaps in double precision; the last is exactly `stop`."""
    (n,) = ints
    k = dtypes.kind(dtype)
    work = dtypes.complex128 if k == "c" else dtypes.float64
    first, last = node_of(b, start, work), node_of(b, stop, work)
    gaps = maximum(n - 1, 1) if endpoint else maximum(n, 1)
    index = b.iota(ints, 0)
    step = b.div(b.sub(last, first), b.cast(b.extent(gaps, dtypes.float64), work))
    y = b.add(b.mul(b.cast(index, work), step), first)
    if endpoint:
        y = b.select(b.eq(index, b.extent(gaps)), last, y)
    return b.cast(b.floor(y) if k in "iu" else y, dtype)


LINSPACE = define("linspace", _linspace, numpy=np.linspace, samples=samples.calls(
    (0.0, 1.0, 5, {"dtype": np.float64}), (2, -1, 7, {"dtype": np.float32}), (0, 1, 1, {"dtype": np.float64}),
    (0, 1, 0, {"dtype": np.float64}), (0.0, 1.0, 4, {"endpoint": False, "dtype": np.float64}),
    (1 + 1j, 2 - 1j, 3, {"dtype": np.complex128}), (0, 10, 4, {"dtype": np.int64}),
))  # fmt: skip


def _eye(b: Builder, k: Operand, dtype: np.dtype, ints: Shape) -> Node:
    shifted = b.add(b.iota(ints, 0), node_of(b, k, dtypes.int64))
    return b.cast(b.eq(shifted, b.iota(ints, 1)), dtype)


EYE = define("eye", _eye, numpy=np.eye, differentiable=False, samples=samples.calls(
    (3, {"dtype": np.float32}), (2, 4, {"k": 1, "dtype": np.int64}), (4, 2, {"k": -1, "dtype": np.bool_}),
    (0, {"dtype": np.float64}),
))  # fmt: skip


def _below(b: Builder, shape: Shape, k: Operand) -> Node:
    """column - row <= k, over the last two axes of `shape`."""
    row, column = b.iota(shape, len(shape) - 2), b.iota(shape, len(shape) - 1)
    return b.le(b.sub(column, row), node_of(b, k, dtypes.int64))


def _tri(b: Builder, k: Operand, dtype: np.dtype, ints: Shape) -> Node:
    return b.cast(_below(b, ints, k), dtype)


TRI = define("tri", _tri, numpy=np.tri, differentiable=False, samples=samples.calls(
    (3, {"dtype": np.float32}), (2, 4, 1, {"dtype": np.int64})
))  # fmt: skip


def _matrix(b: Builder, name: str, x: Operand) -> Node:
    v = node_of(b, x, result_type(x))
    if v.ndim < 2:
        raise ShapeError(f"{name}: an array of at least 2 dimensions is required, got {v.ndim}")
    return v


def _tril(b: Builder, x: Operand, k: Operand) -> Node:
    v = _matrix(b, "tril", x)
    return b.select(_below(b, v.shape, k), v, b.constant(0, v.dtype))


def _triu(b: Builder, x: Operand, k: Operand) -> Node:
    """Above is what is not below diagonal k - 1."""
    v = _matrix(b, "triu", x)
    row, column = b.iota(v.shape, v.ndim - 2), b.iota(v.shape, v.ndim - 1)
    above = b.ge(b.sub(column, row), node_of(b, k, dtypes.int64))
    return b.select(above, v, b.constant(0, v.dtype))


_TRIANGLES = samples.calls(*((samples.array((2, 3, 4), t), {"k": k}) for t, k in (
    (np.float32, 0), (np.int32, 1), (np.complex64, -1), (np.bool_, 9)
)), (samples.array((0, 3)),))  # fmt: skip
_FLAT: Any = ((np.zeros(3),), {}, ShapeError, "at least 2 dimensions")
TRIL = define("tril", _tril, numpy=np.tril, samples=_TRIANGLES, errors=[_FLAT])
TRIU = define("triu", _triu, numpy=np.triu, samples=_TRIANGLES, errors=[_FLAT])


def _one_hot(b: Builder, x: Operand, dtype: np.dtype, ints: Shape) -> Node:
    v = node_of(b, x, result_type(x))
    require_kind("one_hot", v.dtype, "iu", "an integer dtype")
    shape = (*v.shape, *ints)
    wide = b.expand(b.reshape(b.cast(v, dtypes.int64), (*v.shape, 1)), shape)
    return b.cast(b.eq(wide, b.iota(shape, len(shape) - 1)), dtype)


def _one_hot_numpy(x: Any, num_classes: int, dtype: Any = np.float32) -> Any:
    return (np.asarray(x)[..., None] == np.arange(num_classes)).astype(dtype)


ONE_HOT = define("one_hot", _one_hot, numpy=_one_hot_numpy, differentiable=False, samples=samples.calls(
    (np.array([0, 2, 1]), 3), (np.array([[1], [5]], "u1"), 4, {"dtype": np.int64}), (np.array(1), 2),
))  # fmt: skip


def _diag(b: Builder, x: Operand, k: int, ints: Shape) -> Node:
    """The square matrix with x on diagonal k; `ints` is its extent, n + |k|."""
    v = node_of(b, x, result_type(x))
    (n,) = ints
    zero = b.constant(0, v.dtype)
    wide: tuple[int | Dim, ...] = (b.same(v.shape[0] + abs(k), n),)
    column = b.pad(v, (max(-k, 0),), wide, zero)
    square = (*wide, *wide)
    rows = b.expand(b.reshape(column, (*wide, 1)), square)
    on = b.eq(b.sub(b.iota(square, 1), b.iota(square, 0)), b.constant(k, dtypes.int64))
    return b.select(on, rows, zero)


DIAG = define("diag", _diag, numpy=np.diag, samples=samples.calls(
    (np.arange(1.0, 4.0),), (np.arange(1, 4), 1), (np.arange(1, 4), -2), (np.ones(0),),
))  # fmt: skip


def _indices(b: Builder, dtype: np.dtype, ints: Shape) -> Node:
    if not ints:
        return b.expand_to(b.constant(0, dtype), (0,))
    return b.concat([b.reshape(b.cast(b.iota(ints, a), dtype), (1, *ints)) for a in range(len(ints))], 0)


INDICES = define("indices", _indices, numpy=np.indices, differentiable=False, samples=samples.calls(
    ((2, 3),), ((4,), {"dtype": np.float32}), ((2, 0, 3),),
))  # fmt: skip
