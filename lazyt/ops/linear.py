"""Products of vectors, matrices and stacks of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.ir import dtypes
from lazyt.ir.builder import broadcast_shapes
from lazyt.ir.graph import Node, shape_text
from lazyt.ir.symbolic import hint, product
from lazyt.ops.axes import one_axis
from lazyt.ops.contraction import contract, diagonal_of, einsum_nodes, places_on_diagonal, summed
from lazyt.ops.definition import PRODUCT, Operand, define, node_of, require_kind, result_type
from lazyt.ops.reductions import total_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Shape

    Calls = list[tuple[tuple[Any, ...], dict[str, Any]]]


def sizes_text(*shapes: Shape) -> str:
    """`(2, 3) and (4,)`, for messages."""
    return " and ".join(shape_text(tuple(hint(d) for d in s)) for s in shapes)


def working(b: Builder, *xs: Operand) -> tuple[tuple[Node, ...], np.dtype]:
    """The operands in the dtype to compute in (float32 for the halves), and the dtype of the result."""
    dtype = result_type(*xs)
    work = dtypes.computed_in(dtype)
    # Rounded to the common dtype first: a float64 scalar does not sneak its digits in.
    return tuple(b.cast(node_of(b, x, dtype), work) for x in xs), dtype


def require_ndim(name: str, x: Node, least: int) -> None:
    if x.ndim < least:
        raise ShapeError(
            f"{name}: at least {least} dimension{'s' * (least != 1)} required, got shape {sizes_text(x.shape)}"
        )


# matmul


def matmul(b: Builder, x1: Operand, x2: Operand) -> Node:
    (x, y), dtype = working(b, x1, x2)
    return b.cast(matmul_nodes(b, "matmul", x, y), dtype)


def matmul_nodes(b: Builder, name: str, x: Node, y: Node) -> Node:
    """NumPy's rules for nodes of one dtype: a vector is a row on the left, a column on the right."""
    if not x.ndim or not y.ndim:
        raise ShapeError(f"{name}: operands have at least one dimension, got shapes {sizes_text(x.shape, y.shape)}")
    if hint(x.shape[-1]) != hint(y.shape[-2 if y.ndim > 1 else 0]):
        raise ShapeError(f"{name}: shapes {sizes_text(x.shape, y.shape)} do not match")
    if x.ndim == 1 and y.ndim == 1:
        return contract(b, x, ("k",), y, ("k",), ())
    if y.ndim == 1:
        z = matmul_nodes(b, name, x, b.reshape(y, (*y.shape, 1)))
        return b.reshape(z, z.shape[:-1])
    if x.ndim == 1:
        z = matmul_nodes(b, name, b.reshape(x, (1, *x.shape)), y)
        return b.reshape(z, (*z.shape[:-2], z.shape[-1]))
    if y.ndim == 2:
        # One product over all rows rather than one a batch.
        k = b.same(x.shape[-1], y.shape[0])
        z = b.matmul(b.reshape(x, (product(x.shape[:-1]), k)), y)
        return b.reshape(z, (*x.shape[:-1], y.shape[1]))
    batch = broadcast_shapes(b, name, x.shape[:-2], y.shape[:-2])
    return b.matmul(b.expand_to(x, (*batch, *x.shape[-2:])), b.expand_to(y, (*batch, *y.shape[-2:])))


def _pairs(*shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: str = "float32") -> Callable[[], Calls]:
    """Calls with two arrays of these shapes."""

    def calls() -> Calls:
        rng = np.random.default_rng(1)
        return [((rng.standard_normal(p).astype(dtype), rng.standard_normal(q).astype(dtype)), {}) for p, q in shapes]

    return calls


def _matmul_calls() -> Calls:
    floats = _pairs(
        ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4)),
        ((2, 1, 2, 3), (5, 3, 4)), ((3,), (5, 3, 4)), ((5, 2, 3), (3,)), ((2, 0), (0, 4)), ((0, 3), (3, 4)),
    )()  # fmt: skip
    a = np.arange(6).reshape(2, 3)
    return [*floats, ((a, a.T), {}), ((a > 2, a.T > 2), {}), ((a.astype("complex64") * 1j, a.T), {})]


def _zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, "float32")


MATMUL = define(
    "matmul",
    matmul,
    saves=PRODUCT,
    numpy=np.matmul,
    samples=_matmul_calls,
    errors=[
        ((_zeros(2, 3), _zeros(2, 3)), {}, ShapeError, r"matmul: shapes \(2, 3\) and \(2, 3\) do not match"),
        ((_zeros(), _zeros(3)), {}, ShapeError, "matmul: operands have at least one dimension"),
        ((_zeros(2, 2, 3), _zeros(3, 3, 4)), {}, ShapeError, "do not broadcast"),
    ],
)


# Vectors


def vecdot(b: Builder, x1: Operand, x2: Operand, axis: int) -> Node:
    (x, y), dtype = working(b, x1, x2)
    require_ndim("vecdot", x, 1)
    require_ndim("vecdot", y, 1)
    rank = max(x.ndim, y.ndim)
    at = one_axis("vecdot", axis, min(x.ndim, y.ndim)) - min(x.ndim, y.ndim)
    if hint(x.shape[at]) != hint(y.shape[at]):
        raise ShapeError(f"vecdot: shapes {sizes_text(x.shape, y.shape)} differ along axis {axis}")
    shape = broadcast_shapes(b, "vecdot", x.shape, y.shape)
    left = b.conj(x) if dtypes.kind(x.dtype) == "c" else x
    return b.cast(summed(b, b.mul(b.expand_to(left, shape), b.expand_to(y, shape)), (rank + at,)), dtype)


def _vecdot_numpy(x1: np.ndarray, x2: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.asarray(np.vecdot(x1, x2, axis=axis))  # type: ignore[call-overload]


VECDOT = define(
    "vecdot",
    vecdot,
    saves=PRODUCT,
    numpy=_vecdot_numpy,
    samples=lambda: [
        *_pairs(((3,), (3,)), ((2, 3), (3,)), ((2, 1, 3), (4, 3)))(),
        ((np.arange(6).reshape(3, 2), np.arange(6).reshape(3, 2)), {"axis": 0}),
        ((np.array([1 + 2j, 3j]), np.array([1j, 2 - 1j])), {}),
    ],
    errors=[((_zeros(3), _zeros(4)), {}, ShapeError, "vecdot: shapes .* differ along axis -1")],
)


def _range_labels(start: int, count: int) -> tuple[int, ...]:
    return tuple(range(start, start + count))


def dot(b: Builder, x1: Operand, x2: Operand) -> Node:
    (x, y), dtype = working(b, x1, x2)
    if not x.ndim or not y.ndim:
        return b.cast(b.mul(x, y), dtype)
    last = max(y.ndim - 2, 0)
    _require_equal("dot", x, x.ndim - 1, y, last)
    xl, yl = _range_labels(0, x.ndim), list(_range_labels(x.ndim, y.ndim))
    yl[last] = xl[-1]
    out = (*xl[:-1], *yl[:last], *yl[last + 1 :])
    return b.cast(contract(b, x, xl, y, tuple(yl), out), dtype)


def _require_equal(name: str, x: Node, i: int, y: Node, j: int) -> None:
    if hint(x.shape[i]) != hint(y.shape[j]):
        raise ShapeError(
            f"{name}: axis {i} of shape {sizes_text(x.shape)} and axis {j} of {sizes_text(y.shape)} differ"
        )


DOT = define(
    "dot",
    dot,
    saves=PRODUCT,
    numpy=np.dot,
    samples=lambda: [
        *_pairs(((3,), (3,)), ((2, 3), (3, 4)), ((2, 3), (3,)), ((2, 3), (4, 3, 5)), ((2, 2, 3), (3,)), ((), (3,)))()
    ],
    errors=[((_zeros(2, 3), _zeros(2, 3)), {}, ShapeError, "dot: axis 1 of shape .* differ")],
)


def inner(b: Builder, x1: Operand, x2: Operand) -> Node:
    (x, y), dtype = working(b, x1, x2)
    if not x.ndim or not y.ndim:
        return b.cast(b.mul(x, y), dtype)
    _require_equal("inner", x, x.ndim - 1, y, y.ndim - 1)
    xl = _range_labels(0, x.ndim)
    yl = (*_range_labels(x.ndim, y.ndim - 1), xl[-1])
    return b.cast(contract(b, x, xl, y, yl, (*xl[:-1], *yl[:-1])), dtype)


INNER = define(
    "inner",
    inner,
    saves=PRODUCT,
    numpy=np.inner,
    samples=_pairs(((3,), (3,)), ((2, 3), (4, 3)), ((2, 3), (3,)), ((), (2, 3))),
    errors=[((_zeros(2), _zeros(3)), {}, ShapeError, "inner: axis 0 of shape .* differ")],
)


def outer(b: Builder, x1: Operand, x2: Operand) -> Node:
    (x, y), dtype = working(b, x1, x2)
    m, n = product(x.shape), product(y.shape)
    return b.cast(b.mul(*(b.expand(b.reshape(v, s), (m, n)) for v, s in ((x, (m, 1)), (y, (1, n))))), dtype)


OUTER = define("outer", outer, saves=PRODUCT, numpy=np.outer, samples=_pairs(((3,), (4,)), ((2, 2), (3,)), ((), (3,))))


def tensordot(b: Builder, x1: Operand, x2: Operand, axes: int | tuple[tuple[int, ...], tuple[int, ...]]) -> Node:
    (x, y), dtype = working(b, x1, x2)
    xa, ya = _tensordot_axes(x, y, axes)
    for i, j in zip(xa, ya, strict=True):
        _require_equal("tensordot", x, i, y, j)
    xl, yl = _range_labels(0, x.ndim), list(_range_labels(x.ndim, y.ndim))
    for i, j in zip(xa, ya, strict=True):
        yl[j] = xl[i]
    out = (*(k for k in xl if k not in yl), *(k for k in yl if k not in xl))
    return b.cast(contract(b, x, xl, y, tuple(yl), out), dtype)


def _tensordot_axes(
    x: Node, y: Node, axes: int | tuple[tuple[int, ...], tuple[int, ...]]
) -> tuple[list[int], list[int]]:
    if isinstance(axes, int):
        if not 0 <= axes <= min(x.ndim, y.ndim):
            raise ShapeError(f"tensordot: {axes} axes of shapes {sizes_text(x.shape, y.shape)}")
        return list(range(x.ndim - axes, x.ndim)), list(range(axes))
    if len(axes[0]) != len(axes[1]):
        raise ShapeError(f"tensordot: as many axes of one as of the other are required, got {axes}")
    xa = [one_axis("tensordot", a, x.ndim) for a in axes[0]]
    ya = [one_axis("tensordot", a, y.ndim) for a in axes[1]]
    if len(set(xa)) != len(xa) or len(set(ya)) != len(ya):
        raise ShapeError(f"tensordot: an axis occurs twice in {axes}")
    return xa, ya


def _tensordot_calls() -> Calls:
    a, c = np.arange(24.0, dtype="float32").reshape(2, 3, 4), np.arange(12.0, dtype="float32").reshape(4, 3)
    return [
        ((a, c), {"axes": 1}),
        ((a, c), {"axes": 0}),
        ((a, c), {"axes": ((1, 2), (1, 0))}),
        ((a, c), {"axes": ((-2,), (1,))}),
        ((a, a), {"axes": 3}),
    ]


TENSORDOT = define(
    "tensordot",
    tensordot,
    saves=PRODUCT,
    numpy=np.tensordot,
    samples=_tensordot_calls,
    errors=[((_zeros(2, 3), _zeros(2, 3)), {"axes": 1}, ShapeError, "tensordot: axis 1 of shape .* differ")],
)


def einsum(b: Builder, *operands: Any) -> Node:
    *xs, subscripts = operands
    nodes, dtype = working(b, *xs)
    return b.cast(einsum_nodes(b, subscripts, list(nodes)), dtype)


def _einsum_calls() -> Calls:
    rng = np.random.default_rng(2)
    a, c, d, s = (rng.standard_normal(n).astype("float32") for n in ((2, 3), (3, 4), (4, 5), (3, 3)))
    t = rng.standard_normal((2, 3, 3)).astype("float32")
    return [
        (("ij,jk", a, c), {}), (("ij,jk->ki", a, c), {}), (("ij,jk,kl->il", a, c, d), {}), (("ii", s), {}),
        (("ii->i", s), {}), (("...ii->...i", t), {}), (("ij->", a), {}), (("ji", a), {}), (("ij,ij->i", a, a), {}),
        (("i,j->ij", a[0], c[0]), {}), (("...ij,...jk->...ik", t, s), {}), (("bij,bkj->bik", t, t), {}),
        (("ij,j->i", a, a[0]), {}), (("ij,kj->", a, s), {}), (("bii,i->b", t, s[0]), {}),
        (("ij,jk->ik", a[:, :1], c), {}),
    ]  # fmt: skip


EINSUM = define(
    "einsum",
    einsum,
    numpy=np.einsum,
    samples=_einsum_calls,
    errors=[
        (("ij,jk", _zeros(2, 3)), {}, ShapeError, "einsum: 'ij,jk' is for 2 operands, got 1"),
        (("ij", _zeros(3)), {}, ShapeError, "einsum: operand 0 has 1 axes"),
        (("ij,jk", _zeros(2, 3), _zeros(4, 2)), {}, ShapeError, "einsum: index 'j' has extents 3 and 4"),
        (("ij->ik", _zeros(2, 3)), {}, ShapeError, "einsum: index 'k' of the result is in no operand"),
        (("i;j", _zeros(2, 3)), {}, ShapeError, "einsum: subscripts are letters"),
    ],
)


def kron(b: Builder, x1: Operand, x2: Operand) -> Node:
    (x, y), dtype = working(b, x1, x2)
    rank = max(x.ndim, y.ndim)
    p, q = ((1,) * (rank - v.ndim) + v.shape for v in (x, y))
    pairs = tuple(d for pair in zip(p, q, strict=True) for d in pair)
    z = b.mul(
        b.expand(b.reshape(x, tuple(d for m in p for d in (m, 1))), pairs),
        b.expand(b.reshape(y, tuple(d for n in q for d in (1, n))), pairs),
    )
    return b.cast(b.reshape(z, tuple(m * n for m, n in zip(p, q, strict=True))), dtype)


KRON = define("kron", kron, saves=PRODUCT, numpy=np.kron, samples=_pairs(((2, 3), (4, 5)), ((3,), (2, 2)), ((), (2,))))


def cross(b: Builder, x1: Operand, x2: Operand, axis: int) -> Node:
    (x, y), dtype = working(b, x1, x2)
    require_kind("cross", dtype, "iufc", "a number dtype")
    at = one_axis("cross", axis, min(x.ndim, y.ndim)) - min(x.ndim, y.ndim)
    for v in (x, y):
        if hint(v.shape[at]) != 3:
            raise ShapeError(f"cross: an extent of 3 is required along axis {axis}, got shape {sizes_text(v.shape)}")
        b.same(v.shape[at], 3)
    shape = list(broadcast_shapes(b, "cross", x.shape, y.shape))
    shape[at] = 3
    x, y = b.expand_to(x, tuple(shape)), b.expand_to(y, tuple(shape))
    shape[at] = 1

    def part(v: Node, i: int) -> Node:
        starts = [0] * len(shape)
        starts[at] = i
        return b.slice(v, tuple(starts), tuple(shape), (1,) * len(shape))

    parts = [b.sub(b.mul(part(x, i), part(y, j)), b.mul(part(x, j), part(y, i))) for i, j in ((1, 2), (2, 0), (0, 1))]
    return b.cast(b.concat(parts, at + len(shape)), dtype)


CROSS = define(
    "cross",
    cross,
    saves=PRODUCT,
    numpy=lambda x1, x2, axis=-1: np.cross(x1, x2, axis=axis),
    samples=lambda: [
        *_pairs(((3,), (3,)), ((2, 3), (3,)), ((2, 3), (4, 1, 3)))(),
        ((np.arange(6).reshape(3, 2), np.arange(6).reshape(3, 2)[::-1]), {"axis": 0}),
    ],
    errors=[((_zeros(2), _zeros(2)), {}, ShapeError, "cross: an extent of 3 is required")],
)


# Matrices


def matrix_transpose(b: Builder, x: Node) -> Node:
    require_ndim("matrix_transpose", x, 2)
    return b.permute(x, _swapped(x.ndim))


def _swapped(ndim: int) -> Sequence[int]:
    return (*range(ndim - 2), ndim - 1, ndim - 2)


def _write_transpose(b: Builder, base: Node, value: Node) -> Node:
    return b.permute(value, _swapped(base.ndim))


MATRIX_TRANSPOSE = define(
    "matrix_transpose",
    matrix_transpose,
    write=_write_transpose,
    numpy=np.matrix_transpose,
    samples=lambda: [((np.arange(6).reshape(2, 3),), {}), ((np.arange(24).reshape(2, 3, 4),), {})],
    errors=[((_zeros(3),), {}, ShapeError, "matrix_transpose: at least 2 dimensions required")],
)


def _two_axes(name: str, x: Node, axis1: int, axis2: int) -> tuple[int, int]:
    require_ndim(name, x, 2)
    i, j = one_axis(name, axis1, x.ndim), one_axis(name, axis2, x.ndim)
    if i == j:
        raise ShapeError(f"{name}: two different axes are required, got {axis1} and {axis2}")
    return i, j


def diagonal(b: Builder, x: Node, offset: int, axis1: int, axis2: int) -> Node:
    return diagonal_of(b, x, *_two_axes("diagonal", x, axis1, axis2), offset)


def _write_diagonal(b: Builder, base: Node, value: Node, offset: int, axis1: int, axis2: int) -> Node:
    at, axes = places_on_diagonal(b, base, *_two_axes("diagonal", base, axis1, axis2), offset)
    return b.scatter(base, b.permute(value, (value.ndim - 1, *range(value.ndim - 1))), at, axes, "set")


def _diagonal_calls() -> Calls:
    a = np.arange(12).reshape(3, 4)
    t = np.arange(24).reshape(2, 3, 4)
    return [
        *(((a,), {"offset": k}) for k in (0, 1, 3, 4, -1, -2, -3)),
        ((a.T,), {"offset": 1}),
        ((t,), {"axis1": 0, "axis2": 2}),
        ((t,), {"axis1": -1, "axis2": 1}),
    ]


DIAGONAL = define(
    "diagonal",
    diagonal,
    write=_write_diagonal,
    numpy=np.diagonal,
    samples=_diagonal_calls,
    errors=[
        ((_zeros(3),), {}, ShapeError, "diagonal: at least 2 dimensions required"),
        ((_zeros(3, 3),), {"axis1": 1, "axis2": -1}, ShapeError, "diagonal: two different axes are required"),
    ],
)


def trace(b: Builder, x: Node, offset: int, axis1: int, axis2: int, dtype: np.dtype | None) -> Node:
    i, j = _two_axes("trace", x, axis1, axis2)
    dtype = dtype or total_dtype(x.dtype)
    line = b.cast(diagonal_of(b, x, i, j, offset), dtypes.computed_in(dtype))
    return b.cast(summed(b, line, (line.ndim - 1,)), dtype)


TRACE = define(
    "trace",
    trace,
    numpy=np.trace,
    samples=lambda: [*_diagonal_calls(), ((np.eye(3, dtype="float32"),), {}), ((np.eye(3, dtype="int8"),), {})],
    errors=[((_zeros(3),), {}, ShapeError, "trace: at least 2 dimensions required")],
)
