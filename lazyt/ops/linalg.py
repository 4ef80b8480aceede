"""Linear algebra over the last two axes: library calls on whole matrices, and norms made of reductions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, ShapeError
from lazyt.ir import dtypes, library_calls
from lazyt.ir.builder import broadcast_shapes
from lazyt.ir.extents import minimum
from lazyt.ir.symbolic import hint
from lazyt.ops import samples
from lazyt.ops.axes import Axis, many_axes
from lazyt.ops.definition import OpDef, Operand, define, fitted, node_of, require_kind, result_type
from lazyt.ops.elementwise import float_of
from lazyt.ops.linear import matmul_nodes, sizes_text
from lazyt.ops.reductions import reduce, root

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node, Shape
    from lazyt.ir.symbolic import Dim

SUPPORTED = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)


def number(b: Builder, name: str, x: Operand) -> Node:
    """x in a dtype that the library takes: integers become floats, the halves are refused."""
    d = float_of(result_type(x))
    if d not in SUPPORTED:
        raise DTypeError(f"{name}: float32, float64, complex64 or complex128 is required, got {d}; cast it first")
    return node_of(b, x, d)


def wider(b: Builder, x: Operand) -> tuple[Operand, np.dtype | None]:
    """Halves as float32, and the dtype that the result is then rounded to; others as they are."""
    d = float_of(result_type(x))
    return (node_of(b, x, dtypes.float32), d) if dtypes.of(d).narrow else (x, None)


def matrix(b: Builder, name: str, x: Operand, square: bool = False) -> Node:
    """A stack of matrices."""
    v = number(b, name, x)
    if v.ndim < 2:
        raise ShapeError(f"{name}: at least 2 dimensions are required, got shape {sizes_text(v.shape)}")
    if square:
        if hint(v.shape[-1]) != hint(v.shape[-2]):
            raise ShapeError(f"{name}: square matrices are required, got shape {sizes_text(v.shape)}")
        b.same(v.shape[-2], v.shape[-1])
    return v


def smaller(v: Node) -> int | Dim:
    """min(m, n)."""
    return minimum(*v.shape[-2:])


_A = samples.array((3, 3), "f8", -2, 2)
_STACK = samples.array((2, 3, 3), "f4", -2, 2)
_WIDE, _TALL = samples.array((2, 3), "f8", -2, 2), samples.array((2, 4, 3), "f4", -2, 2)
_COMPLEX = (_A + 1j * _A.T).astype("c8")
# The squares of its elements are out of float16's range, their norms are not.
_LONG = samples.array((3, 40), "f2", -400, 400)
_HALF: Any = (
    (np.eye(2, dtype="f2"),),
    {},
    DTypeError,
    "float32, float64, complex64 or complex128 is required, got float16",
)
_VECTOR: Any = ((np.zeros(3),), {}, ShapeError, "at least 2 dimensions are required")
_OBLONG: Any = ((_WIDE,), {}, ShapeError, r"square matrices are required, got shape \(2, 3\)")


def _call(
    name: str,
    outputs: Callable[[Node], Sequence[tuple[Shape, np.dtype]]],
    ref: Any,
    *,
    square: bool = True,
    calls: Sequence[Any] | None = None,
    **more: Any,
) -> OpDef:
    """`opaque linalg_<name>` of one stack of matrices; the statics go with it."""
    full = f"linalg.{name}"

    def lower(b: Builder, x: Operand, *statics: Any) -> Node | tuple[Node, ...]:
        v = matrix(b, full, x, square)
        out = b.opaque(f"linalg_{name}", (v,), statics, outputs(v))
        return out if len(out) > 1 else out[0]

    usual = ((_A,), (_STACK,), (_COMPLEX,), (np.array([[2, 1], [1, 3]]),))
    errors = [_HALF, _VECTOR, *([_OBLONG] if square else [])]
    sample = samples.calls(*(usual if calls is None else calls))
    return define(full, lower, numpy=ref, samples=sample, errors=errors, **more)


def _like(v: Node) -> list[tuple[Shape, np.dtype]]:
    return [(v.shape, v.dtype)]


def _batch(v: Node) -> list[tuple[Shape, np.dtype]]:
    return [(v.shape[:-2], v.dtype)]


def _values(v: Node) -> list[tuple[Shape, np.dtype]]:
    return [(v.shape[:-1], dtypes.real_of(v.dtype))]


INV = _call("inv", _like, np.linalg.inv, saves=(-1,), fallible=True)
# NOTE: they fail at no matrix; their derivatives do.
DET = _call("det", _batch, np.linalg.det, saves=(0, -1), fallible=True)
SLOGDET = _call(
    "slogdet",
    lambda v: [*_batch(v), (v.shape[:-2], dtypes.real_of(v.dtype))],
    np.linalg.slogdet,
    saves=(0, -1),
    fallible=True,
)

_SYMMETRIC = (_A @ _A.T + np.eye(3), (_STACK @ np.swapaxes(_STACK, 1, 2) + np.eye(3, dtype="f4")))
_HERMITIAN = (_COMPLEX @ _COMPLEX.conj().T + np.eye(3, dtype="c8"),)
EIGH = _call(
    "eigh",
    lambda v: [*_values(v), (v.shape, v.dtype)],
    lambda x: tuple(np.linalg.eigh(x)),
    saves=(-1,),
    fallible=True,
    calls=((_SYMMETRIC[0],), (_SYMMETRIC[1],)),
)
EIGVALSH = _call(
    "eigvalsh",
    _values,
    np.linalg.eigvalsh,
    saves=(0,),
    fallible=True,
    calls=tuple((x,) for x in (*_SYMMETRIC, *_HERMITIAN)),
)


def _complex_values(v: Node) -> list[tuple[Shape, np.dtype]]:
    return [(v.shape[:-1], dtypes.complex_of(v.dtype))]


def _eig_numpy(x: np.ndarray) -> Any:
    values, vectors = np.linalg.eig(x)
    d = np.result_type(x.dtype, np.complex64)
    return values.astype(d), vectors.astype(d)


EIG = _call(
    "eig",
    lambda v: [*_complex_values(v), (v.shape, dtypes.complex_of(v.dtype))],
    _eig_numpy,
    fallible=True,
    differentiable=False,
    calls=((_A,), (_STACK,)),
)
EIGVALS = _call(
    "eigvals",
    _complex_values,
    lambda x: _eig_numpy(x)[0],
    fallible=True,
    differentiable=False,
    calls=((_A,), (_STACK,)),
)
SVDVALS = _call(
    "svdvals",
    lambda v: [((*v.shape[:-2], smaller(v)), dtypes.real_of(v.dtype))],
    lambda x: np.linalg.svd(x, compute_uv=False),
    square=False,
    saves=(0,),
    fallible=True,
    calls=((_A,), (_WIDE,), (_TALL,), (_COMPLEX,)),
)


def cholesky(b: Builder, x: Operand, upper: bool) -> Node:
    v = matrix(b, "linalg.cholesky", x, square=True)
    (y,) = b.opaque("linalg_cholesky", (v,), (), _like(v))
    return adjoint(b, y) if upper else y


def adjoint(b: Builder, v: Node) -> Node:
    """The transpose, conjugated."""
    t = b.permute(v, (*range(v.ndim - 2), v.ndim - 1, v.ndim - 2))
    return b.conj(t) if dtypes.kind(v.dtype) == "c" else t


def _cholesky_numpy(x: np.ndarray, upper: bool = False) -> np.ndarray:
    y = np.linalg.cholesky(x)
    return np.swapaxes(y, -1, -2).conj() if upper else y


CHOLESKY = define(
    "linalg.cholesky",
    cholesky,
    saves=(-1,),
    fallible=True,
    numpy=_cholesky_numpy,
    samples=samples.calls(*((x,) for x in (*_SYMMETRIC, *_HERMITIAN)), (_HERMITIAN[0], {"upper": True})),
    errors=[_HALF, _VECTOR, _OBLONG],
)


def qr(b: Builder, x: Operand, mode: str) -> tuple[Node, ...]:
    if mode not in ("reduced", "complete"):
        raise ShapeError(f"linalg.qr: mode is 'reduced' or 'complete', got {mode!r}")
    v = matrix(b, "linalg.qr", x)
    *batch, m, n = v.shape
    k = smaller(v) if mode == "reduced" else m
    return b.opaque("linalg_qr", (v,), (mode,), [((*batch, m, k), v.dtype), ((*batch, k, n), v.dtype)])


def _refuses_qr(statics: tuple[Any, ...], shape: tuple[int, ...], asked: Collection[int]) -> str:
    (mode,) = statics
    if mode == "reduced" or (mode == "complete" and shape[-2] <= shape[-1]):
        return ""
    why = "Q, which it needs, is not computed" if mode == "r" else "not all of Q is determined: use mode='reduced'"
    return f"not supported: the gradient of qr(mode={mode!r}) of a matrix of shape {shape}, because {why}"


QR = define(
    "linalg.qr",
    qr,
    saves=(-1,),
    refuses=_refuses_qr,
    numpy=lambda x, mode="reduced": tuple(np.linalg.qr(x, mode)),
    samples=samples.calls((_A,), (_WIDE,), (_TALL,), (_TALL, {"mode": "complete"}), (_COMPLEX,)),
    errors=[_HALF, _VECTOR, ((_A,), {"mode": "full"}, ShapeError, "linalg.qr: mode is")],
)


def svd(b: Builder, x: Operand, full_matrices: bool) -> tuple[Node, ...]:
    v = matrix(b, "linalg.svd", x)
    *batch, m, n = v.shape
    k = smaller(v)
    rows, cols = (m, n) if full_matrices else (k, k)
    outputs = [((*batch, m, rows), v.dtype), ((*batch, k), dtypes.real_of(v.dtype)), ((*batch, cols, n), v.dtype)]
    return b.opaque("linalg_svd", (v,), (full_matrices,), outputs)


def _refuses_svd(statics: tuple[Any, ...], shape: tuple[int, ...], asked: Collection[int]) -> str:
    if not statics[0] or shape[-2] == shape[-1] or not {0, 2} & {*asked}:
        return ""
    return (
        f"not supported: the gradient of U and Vh of svd(full_matrices=True) of a matrix of shape {shape}, because "
        "some of them are not determined: use full_matrices=False"
    )


SVD = define(
    "linalg.svd",
    svd,
    saves=(-1,),
    refuses=_refuses_svd,
    fallible=True,
    numpy=lambda x, full_matrices=True: library_calls.svd(x, full_matrices),
    samples=samples.calls((_A,), (_WIDE,), (_TALL, {"full_matrices": False}), (_COMPLEX,)),
    errors=[_HALF, _VECTOR],
)


def solve(b: Builder, x1: Operand, x2: Operand) -> Node:
    name = "linalg.solve"
    d = float_of(result_type(x1, x2))
    a, y = matrix(b, name, x1, square=True), number(b, name, x2)
    a, y = b.cast(a, d), b.cast(y, d)
    vector = y.ndim == 1
    if not y.ndim or hint(y.shape[0 if vector else -2]) != hint(a.shape[-1]):
        raise ShapeError(f"{name}: shapes {sizes_text(a.shape, y.shape)} do not match")
    if vector:
        y = b.reshape(y, (*y.shape, 1))
    b.same(y.shape[-2], a.shape[-1])
    batch = broadcast_shapes(b, name, a.shape[:-2], y.shape[:-2])
    a, y = b.expand_to(a, (*batch, *a.shape[-2:])), b.expand_to(y, (*batch, *y.shape[-2:]))
    (z,) = b.opaque("linalg_solve", (a, y), (), _like(y))
    return b.reshape(z, z.shape[:-1]) if vector else z


SOLVE = define(
    "linalg.solve",
    solve,
    saves=(0, -1),
    fallible=True,
    numpy=np.linalg.solve,
    samples=samples.calls((_A, _A[0]), (_A, _WIDE.T), (_STACK, _STACK[0, :, :2]), (_A, _TALL[:, :3]), (_COMPLEX, _A)),
    errors=[((_A, _WIDE), {}, ShapeError, "linalg.solve: shapes .* do not match"), ((_WIDE, _A), {}, *_OBLONG[2:])],
)


def _tolerance(b: Builder, name: str, v: Node, rtol: tuple[Operand, ...]) -> tuple[Node, ...]:
    """The operand `rtol`, if there is one: a number or one for each matrix, which no gradient goes through."""
    if not rtol:
        return ()
    require_kind(name, result_type(*rtol), "iuf", "a real number dtype for rtol")
    r = node_of(b, rtol[0], dtypes.float64)
    return (b.stop(fitted(b, name, "rtol", r, v.shape[:-2])),)


def pinv(b: Builder, x: Operand, *rtol: Operand) -> Node:
    v = matrix(b, "linalg.pinv", x)
    *batch, m, n = v.shape
    return b.opaque("linalg_pinv", (v, *_tolerance(b, "linalg.pinv", v, rtol)), (), [((*batch, n, m), v.dtype)])[0]


def matrix_rank(b: Builder, x: Operand, *rtol: Operand) -> Node:
    v = matrix(b, "linalg.matrix_rank", x)
    operands = (v, *_tolerance(b, "linalg.matrix_rank", v, rtol))
    return b.opaque("linalg_matrix_rank", operands, (), [(v.shape[:-2], dtypes.int64)])[0]


PINV = define(
    "linalg.pinv",
    pinv,
    saves=(0, -1),
    fallible=True,
    numpy=library_calls.pinv,
    samples=samples.calls((_A,), (_WIDE,), (_TALL,), (_TALL, {"rtol": 0.4}), (_STACK, {"rtol": np.array([0.1, 0.5])})),
    errors=[_HALF, _VECTOR],
)
MATRIX_RANK = define(
    "linalg.matrix_rank",
    matrix_rank,
    numpy=lambda x, rtol=None: np.asarray(np.linalg.matrix_rank(x, rtol=rtol)),
    differentiable=False,
    fallible=True,
    samples=samples.calls((_A,), (_WIDE,), (_TALL,), (np.ones((3, 3)),), (np.diag([1.0, 0.1]), {"rtol": 0.5}),
                          (_STACK, {"rtol": np.array([0.1, 0.5])})),
    errors=[_HALF, ((_A,), {"rtol": np.ones(2)}, ShapeError, "rtol of shape")],
)  # fmt: skip


def matrix_power(b: Builder, x: Operand, n: int) -> Node:
    v = matrix(b, "linalg.matrix_power", x, square=True)
    if n == 0:
        at = v.shape[-2:]
        eye = b.cast(b.eq(b.iota(at, 0), b.iota(at, 1)), v.dtype)
        return b.expand_to(eye, v.shape)
    if n < 0:
        (v,) = b.opaque("linalg_inv", (v,), (), _like(v))
    out: Node | None = None
    for bit in bin(abs(n))[:1:-1]:
        if bit == "1":
            out = v if out is None else matmul_nodes(b, "linalg.matrix_power", out, v)
        v = matmul_nodes(b, "linalg.matrix_power", v, v)
    assert out is not None, "a positive number has a bit that is set"
    return out


MATRIX_POWER = define(
    "linalg.matrix_power",
    matrix_power,
    saves=(0,),
    fallible=True,
    numpy=lambda x, n: np.linalg.matrix_power(x.astype(float_of(x.dtype)), n),
    samples=samples.calls((_A, 0), (_A, 1), (_A, 5), (_STACK, -2), (_COMPLEX, 2)),
    errors=[((_WIDE, 2), {}, *_OBLONG[2:])],
)

# Norms


def magnitude(b: Builder, v: Node, power: float) -> Node:
    """|v| ** power, whose derivative at 0 is 0."""
    if power == 2:
        return b.real(b.mul(v, b.conj(v))) if dtypes.kind(v.dtype) == "c" else b.mul(v, v)
    size = b.abs(v)
    return size if power == 1 else _power_apart(b, size, power, 0, 0 if power > 0 else math.inf)


def _power_apart(b: Builder, x: Node, power: float, at: float, value: float) -> Node:
    """x ** power, but a constant where x == `at`: the derivative there is 0 rather than infinite, as in PyTorch."""
    there = b.eq(x, b.expand_to(b.constant(at, x.dtype), x.shape))
    base = b.select(there, b.constant(1, x.dtype), x)
    return b.select(there, b.constant(value, x.dtype), b.pow(base, b.constant(power, x.dtype)))


def norm_over(b: Builder, v: Node, axes: tuple[int, ...], order: float, keepdims: bool) -> Node:
    """The vector norm over `axes`."""
    if math.isinf(order):
        if order > 0 and not all(b.at_least(v.shape[a], 1) for a in axes):
            # As in NumPy the largest of no magnitudes is 0.
            return reduce(b, "sum", b.abs(v), axes, keepdims)
        return reduce(b, "max" if order > 0 else "min", b.abs(v), axes, keepdims)
    if order == 0:
        there = b.ne(v, b.expand_to(b.constant(0, v.dtype), v.shape))
        return reduce(b, "sum", b.cast(there, dtypes.real_of(v.dtype)), axes, keepdims)
    total = reduce(b, "sum", magnitude(b, v, order), axes, keepdims)
    if order == 1:
        return total
    if order == 2:
        return root(b, total)
    return _power_apart(b, total, 1 / order, 0 if order > 0 else math.inf, 0)


def vector_norm(b: Builder, x: Operand, axis: Axis, keepdims: bool, order: float) -> Node:
    x, half = wider(b, x)
    v = number(b, "linalg.vector_norm", x)
    axes = many_axes("linalg.vector_norm", axis, v.ndim)
    y = norm_over(b, v, axes, order, keepdims)
    return y if half is None else b.cast(y, half)


def _vector_norm_numpy(x: Any, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Any:
    d = float_of(x.dtype)
    half = d if dtypes.of(d).narrow else None
    wide = d if half is None else np.dtype(np.float32)
    return np.asarray(np.linalg.vector_norm(x.astype(wide), axis=axis, keepdims=keepdims, ord=ord), half)


def _matrix_norm_numpy(x: Any, keepdims: bool = False, ord: Any = "fro") -> Any:
    half = x.dtype if dtypes.of(x.dtype).narrow else None
    y = np.linalg.matrix_norm(x if half is None else x.astype(np.float32), keepdims=keepdims, ord=ord)
    return np.asarray(y, half)


VECTOR_NORM = define(
    "linalg.vector_norm",
    vector_norm,
    saves=(0, -1),
    numpy=_vector_norm_numpy,
    samples=samples.calls(
        *((_TALL, {"axis": 1, "ord": o}) for o in (2, 1, 0, 3, 0.5, math.inf, -math.inf)),
        (_TALL,), (_TALL, {"axis": (0, 2), "keepdims": True}), (_COMPLEX, {"axis": 0}), (np.arange(4),),
        (_LONG, {"axis": 1}), (_LONG, {"ord": 3}),
    ),
)  # fmt: skip


def matrix_norm(b: Builder, x: Operand, keepdims: bool, order: float | str) -> Node:
    half = None
    if order not in (2, -2, "nuc"):
        x, half = wider(b, x)
    v = matrix(b, "linalg.matrix_norm", x)
    rows, cols = v.ndim - 2, v.ndim - 1
    if order == "fro":
        y = norm_over(b, v, (rows, cols), 2, False)
    elif order in (2, -2, "nuc"):
        outputs = [((*v.shape[:-2], smaller(v)), dtypes.real_of(v.dtype))]
        (s,) = b.opaque("linalg_svdvals", (v,), (), outputs)
        largest = "max" if b.at_least(s.shape[-1], 1) else "sum"
        y = reduce(b, {2: largest, -2: "min", "nuc": "sum"}[order], s, (s.ndim - 1,))
    elif order in (1, -1, math.inf, -math.inf):
        summed, rest = (rows, rows) if order in (1, -1) else (cols, rows)
        sums = reduce(b, "sum", b.abs(v), (summed,))
        none = float(order) > 0 and not b.at_least(sums.shape[rest], 1)
        y = reduce(b, "sum" if none else "max" if float(order) > 0 else "min", sums, (rest,))
    else:
        raise ShapeError(f"linalg.matrix_norm: ord is 'fro', 'nuc', 1, 2 or inf, or its negative, got {order!r}")
    y = b.reshape(y, (*y.shape, 1, 1)) if keepdims else y
    return y if half is None else b.cast(y, half)


MATRIX_NORM = define(
    "linalg.matrix_norm",
    matrix_norm,
    saves=(0, -1),
    fallible=True,
    numpy=_matrix_norm_numpy,
    samples=samples.calls(
        *((_TALL, {"ord": o}) for o in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)),
        (_WIDE, {"keepdims": True}), (_COMPLEX, {"ord": 1}), (_LONG,), (_LONG, {"ord": 1, "keepdims": True}),
    ),
    errors=[
        ((np.eye(2, dtype="f2"),), {"ord": 2}, *_HALF[2:]), _VECTOR,
        ((_A,), {"ord": 3}, ShapeError, "linalg.matrix_norm: ord is"),
    ],
)  # fmt: skip
