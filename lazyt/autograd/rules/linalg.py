"""Derivatives of the linear algebra calls, over the last two axes.

Sources: Giles, An extended collection of matrix derivative results for forward and reverse mode AD (2008);
Murray, Differentiation of the Cholesky decomposition (2016); Townsend, Differentiating the SVD (2016);
Golub and Pereyra, The differentiation of pseudo-inverses (1973); Seeger et al., Auto-differentiating linear
algebra (2017). Cotangents of Hermitian arguments are Hermitian. Where eigenvalues or singular values meet,
those of the vectors are infinite, as they are in mathematics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.autograd.rules.formula import Value, call, is_complex, outputs_of, statics_of, zeros
from lazyt.autograd.rules.registry import library_vjp, nondifferentiable
from lazyt.errors import NotSupportedError
from lazyt.ir import dtypes
from lazyt.ir.symbolic import hint
from lazyt.ops.linalg import QR, SVD

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy as np

    from lazyt.ir import graph as g
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Dim
    from lazyt.ops.definition import OpDef

    Cotangents = tuple[Node | None, ...]


def _check_refused(op: OpDef, n: Node, asked: Collection[int]) -> None:
    """Raise NotSupportedError where a backward is not refused when it is recorded (a derivative of a derivative)."""
    assert op.refuses is not None, "it may be refused"
    why = op.refuses(statics_of(n), tuple(map(hint, n.operands[0].shape)), asked)
    if why:
        raise NotSupportedError(why)


# Matrices


def _same_kind(b: Builder, fn: str, *operands: Value) -> Value:
    """A call whose result has the shape and dtype of its last operand."""
    last = operands[-1].node
    return Value(b, call(b, fn, [v.node for v in operands], (), [(last.shape, last.dtype)])[0])


def _inverse(v: Value) -> Value:
    return _same_kind(v.b, "linalg_inv", v)


def _solve(a: Value, v: Value) -> Value:
    return _same_kind(a.b, "linalg_solve", a, v)


def _compare(b: Builder, shape: g.Shape, how: str) -> Node:
    """A mask of the last two axes: row `how` column."""
    rows, columns = b.iota(shape, len(shape) - 2), b.iota(shape, len(shape) - 1)
    return b.elementwise(how, rows, columns)


def _keep(v: Value, how: str) -> Value:
    """The triangle or diagonal where row `how` column; zeros elsewhere."""
    return v.where(_compare(v.b, v.node.shape, how), 0)


def _as_rows(v: Value, rows: int | Dim) -> Value:
    """(..., k) -> (..., rows, k), every row the same."""
    b, shape = v.b, v.node.shape
    tall = b.reshape(v.node, (*shape[:-1], 1, shape[-1]))
    return Value(b, b.expand(tall, (*shape[:-1], rows, shape[-1])))


def _as_columns(v: Value, columns: int | Dim) -> Value:
    """(..., k) -> (..., k, columns), every column the same."""
    b, shape = v.b, v.node.shape
    return Value(b, b.expand(b.reshape(v.node, (*shape, 1)), (*shape, columns)))


def _diagonal_matrix(v: Value) -> Value:
    return _keep(_as_rows(v, v.node.shape[-1]), "eq")


def _spread(v: Value, shape: g.Shape) -> Value:
    """(...) -> (..., m, n)."""
    flat = v.b.reshape(v.node, (*v.node.shape, 1, 1))
    return Value(v.b, v.b.expand(flat, shape))


def _eye_like(b: Builder, shape: g.Shape, dtype: np.dtype[Any]) -> Value:
    return Value(b, b.cast(_compare(b, shape, "eq"), dtype))


def _hermitian(v: Value) -> Value:
    return 0.5 * (v + v.H)


def _skew(v: Value) -> Value:
    return v - v.H


def _gaps(values: Value, dtype: np.dtype[Any]) -> Value:
    """E_ij = x_j - x_i off the diagonal and 1 on it: what the cotangents of eigenvectors are divided by."""
    k = values.node.shape[-1]
    differences = _as_rows(values, k) - _as_columns(values, k)
    diagonal = _compare(values.b, differences.node.shape, "eq")
    return differences.full(1).where(diagonal, differences).cast(dtype)


# Solving


@library_vjp("linalg_inv")
def _inv(b: Builder, n: Node, cts: tuple[Node | None, ...]) -> Cotangents:
    assert cts[0] is not None
    y = Value(b, outputs_of(b, n)[0])
    return ((-(y.H @ Value(b, cts[0]) @ y.H)).node,)


@library_vjp("linalg_solve")
def _solve_rule(b: Builder, n: Node, cts: tuple[Node | None, ...]) -> Cotangents:
    """x = a^-1 v: the cotangent of v is w = a^-H g, and that of a is -w x^H. A vector v is one column."""
    assert cts[0] is not None
    a, x, ct = Value(b, n.operands[0]), outputs_of(b, n)[0], cts[0]
    v = n.operands[1].shape
    if len(v) == 1:
        x, ct = (b.reshape(c, (*c.shape, 1)) for c in (x, ct))
    by_v = _solve(a.H, Value(b, ct))
    by_a = -(by_v @ Value(b, x).H)
    return (by_a.node, b.reshape(by_v.node, v))


@library_vjp("linalg_det")
def _det(b: Builder, n: Node, cts: tuple[Node | None, ...]) -> Cotangents:
    """Jacobi's formula: the cofactors. Where the matrix is singular they are not differentiated again."""
    assert cts[0] is not None
    a, det = Value(b, n.operands[0]), Value(b, outputs_of(b, n)[0])
    shape, dtype = a.node.shape, a.node.dtype
    singular, one = _spread(det, shape).eq(0), _eye_like(b, shape, dtype)
    regular = _spread(det, shape) * _inverse(one.where(singular, a))
    found = _adjugate(a.where(singular, one)).where(singular, regular)
    # NOTE: its derivative is that of the inverse, which says at the sync that a matrix is singular.
    adjugate = b.known((_spread(det, shape) * _inverse(a)).node, b.stop(found.node))
    return ((_spread(Value(b, cts[0]), shape) * Value(b, adjugate).H).node,)


def _adjugate(a: Value) -> Value:
    """det(a) a^-1 of any matrix: of its singular values, the products of all but one."""
    b, (*batch, k, _), dtype = a.b, a.node.shape, a.node.dtype
    real = dtypes.real_of(dtype)
    like = [(a.node.shape, dtype), ((*batch, k), real), (a.node.shape, dtype)]
    u, s, vh = (Value(b, y) for y in call(b, "linalg_svd", (a.node,), (False,), like))
    rows = _as_rows(s, k)
    others = rows.full(1).where(_compare(b, rows.node.shape, "eq"), rows)
    products = Value(b, b.reduce("prod", others.node, (len(batch) + 1,))).cast(dtype)
    turn = [Value(b, call(b, "linalg_det", (x.node,), (), [(tuple(batch), dtype)])[0]) for x in (u, vh)]
    return _spread(turn[0] * turn[1], a.node.shape) * (vh.H @ _diagonal_matrix(products) @ u.H)


@library_vjp("linalg_slogdet")
def _slogdet(b: Builder, n: Node, cts: tuple[Node | None, ...]) -> Cotangents:
    """With t = Im(sign * conj(g_sign)): (g_log - i t) A^-H. The sign of a real matrix does not vary."""
    a, sign = Value(b, n.operands[0]), Value(b, outputs_of(b, n)[0])
    dtype = a.node.dtype
    total = Value(b, zeros(b, sign.node.shape, dtype)) if cts[1] is None else Value(b, cts[1]).cast(dtype)
    if cts[0] is not None and is_complex(a.node):
        turn = (sign * Value(b, cts[0]).conj()).imag()
        total = total - Value(b, b.complex(turn.full(0).node, turn.node))
    return ((_spread(total, a.node.shape) * _inverse(a).H).node,)


@library_vjp("linalg_pinv")
def _pinv(b: Builder, n: Node, cts: tuple[Node | None, ...]) -> Cotangents:
    """Golub and Pereyra, at constant rank: dP = -P dA P + P P^H dA^H (I - A P) + (I - P A) dA^H P^H P."""
    assert cts[0] is not None
    a, p, ct = Value(b, n.operands[0]), Value(b, outputs_of(b, n)[0]), Value(b, cts[0])
    right = ct.H @ p @ p.H
    left = p.H @ p @ ct.H
    found = (right - a @ (p @ right) + left - (left @ p) @ a - p.H @ ct @ p.H).node
    return (found, *(None for _ in n.operands[1:]))


# Decompositions


@library_vjp("linalg_cholesky")
def _cholesky(b: Builder, n: Node, cts: tuple[Node | None, ...]) -> Cotangents:
    """L^-H Phi(L^H g) L^-1 made Hermitian; Phi keeps the lower triangle and half of the diagonal."""
    assert cts[0] is not None
    low, ct = Value(b, outputs_of(b, n)[0]), Value(b, cts[0])
    inner = low.H @ _keep(ct, "ge")
    phi = _keep(inner, "gt") + 0.5 * _keep(inner, "eq")
    half = _solve(low.H, phi)
    return (_hermitian(_solve(low.H, half.H).H).node,)


@library_vjp("linalg_eigh")
def _eigh(b: Builder, n: Node, cts: tuple[Node | None, ...]) -> Cotangents:
    """V (diag(g_w) + (V^H g_V) / E) V^H, with E_ij = w_j - w_i off the diagonal."""
    values, vectors = (Value(b, y) for y in outputs_of(b, n))
    return (_from_eigenvectors(values, vectors, cts[0], cts[1]).node,)


@library_vjp("linalg_eigvalsh")
def _eigvalsh(b: Builder, n: Node, cts: tuple[Node | None, ...]) -> Cotangents:
    x = n.operands[0]
    outputs = [(x.shape[:-1], dtypes.real_of(x.dtype)), (x.shape, x.dtype)]
    values, vectors = (Value(b, y) for y in call(b, "linalg_eigh", (x,), (), outputs))
    return (_from_eigenvectors(values, vectors, cts[0], None).node,)


def _from_eigenvectors(values: Value, vectors: Value, by_values: Node | None, by_vectors: Node | None) -> Value:
    b, dtype = values.b, vectors.node.dtype
    inner = Value(b, zeros(b, vectors.node.shape, dtype))
    if by_values is not None:
        inner = _diagonal_matrix(Value(b, by_values).cast(dtype))
    if by_vectors is not None:
        turned = _keep(vectors.H @ Value(b, by_vectors), "ne")
        inner = inner + turned / _gaps(values, dtype)
    return _hermitian(vectors @ inner @ vectors.H)


@library_vjp("linalg_svd")
def _svd(b: Builder, n: Node, cts: tuple[Node | None, ...]) -> Cotangents:
    u, s, vh = (Value(b, y) for y in outputs_of(b, n))
    if statics_of(n)[0]:
        if cts[0] is None and cts[2] is None:
            return _svdvals(b, n, (cts[1],))
        _check_refused(SVD, n, [i for i, ct in enumerate(cts) if ct is not None])
        rows, columns = n.operands[0].shape[-2:]
        square = b.at_least(rows - columns, 0) and b.at_least(columns - rows, 0)
        assert square, "others are refused"
    return (_from_singular_vectors(u, s, vh, cts).node,)


@library_vjp("linalg_svdvals")
def _svdvals(b: Builder, n: Node, cts: tuple[Node | None, ...]) -> Cotangents:
    assert cts[0] is not None
    x = n.operands[0]
    k, real = cts[0].shape[-1], dtypes.real_of(x.dtype)
    rows, columns = (*x.shape[:-1], k), (*x.shape[:-2], k, x.shape[-1])
    outputs = [(rows, x.dtype), (cts[0].shape, real), (columns, x.dtype)]
    u, s, vh = (Value(b, y) for y in call(b, "linalg_svd", (x,), (False,), outputs))
    return (_from_singular_vectors(u, s, vh, (None, cts[0], None)).node,)


def _from_singular_vectors(u: Value, s: Value, vh: Value, cts: tuple[Node | None, ...]) -> Value:
    """U [(skew(U^H g_U) S + S skew(V^H g_V)) / E + diag(g_S)] V^H, and what is outside the spaces of U and V.

    E_ij = s_j^2 - s_i^2 off the diagonal. For complex matrices the diagonal of skew(U^H g_U) / 2S is added:
    the phase that U and V share.
    """
    b, dtype, k = u.b, u.node.dtype, s.node.shape[-1]
    scale = s.cast(dtype)
    by_u, by_s, by_vh = (None if c is None else Value(b, c) for c in cts)
    inner = Value(b, zeros(b, (*s.node.shape, k), dtype))
    if by_s is not None:
        inner = _diagonal_matrix(by_s.cast(dtype))
    turned = Value(b, zeros(b, inner.node.shape, dtype))
    if by_u is not None:
        skew = _skew(u.H @ by_u)
        turned = turned + skew * _as_rows(scale, k)
        if is_complex(u.node):
            inner = inner + _keep(skew, "eq") / (2 * _as_columns(scale, k))
    if by_vh is not None:
        turned = turned + _as_columns(scale, k) * _skew(vh @ by_vh.H)
    if by_u is not None or by_vh is not None:
        inner = inner + _keep(turned, "ne") / _gaps(s * s, dtype)
    out = u @ inner @ vh
    if by_u is not None:
        part = by_u / _as_rows(scale, u.node.shape[-2])
        out = out + (part - u @ (u.H @ part)) @ vh
    if by_vh is not None:
        part = by_vh / _as_columns(scale, vh.node.shape[-1])
        out = out + u @ (part - (part @ vh.H) @ vh)
    return out


@library_vjp("linalg_qr")
def _qr(b: Builder, n: Node, cts: tuple[Node | None, ...]) -> Cotangents:
    """A tall or square A = QR: [g_Q + Q copyltu(M)] R^-H, M = R g_R^H - g_Q^H Q (Seeger et al., Walter).

    A wide A = [A1 | A2] is Q [R1 | Q^H A2]: the square rule for A1, and products for A2.
    """
    x = n.operands[0]
    _check_refused(QR, n, ())
    q, r = (Value(b, y) for y in outputs_of(b, n))
    by_q = q.full(0) if cts[0] is None else Value(b, cts[0])
    by_r = r.full(0) if cts[1] is None else Value(b, cts[1])
    rows, columns = x.shape[-2:]
    if b.at_least(rows - columns, 0):
        return (_qr_tall(q, r, by_q, by_r).node,)
    origin, ones = (0,) * x.ndim, (1,) * x.ndim
    start = (*origin[:-1], rows)

    def left(v: Value) -> Value:
        return Value(b, b.slice(v.node, origin, (*x.shape[:-1], rows), ones))

    def right(v: Value) -> Value:
        return Value(b, b.slice(v.node, start, (*x.shape[:-1], columns - rows), ones))

    by_r2 = right(by_r)
    by_first = _qr_tall(q, left(r), by_q + right(Value(b, x)) @ by_r2.H, left(by_r))
    return (b.concat([by_first.node, (q @ by_r2).node], x.ndim - 1),)


def _qr_tall(q: Value, r: Value, by_q: Value, by_r: Value) -> Value:
    m = r @ _keep(by_r, "le").H - by_q.H @ q
    low = _keep(m, "gt")
    diagonal = _keep(_hermitian(m), "eq")
    inner = by_q + q @ (low + low.H + diagonal)
    # inner R^-H, as (R^-1 inner^H)^H
    return _solve(r, inner.H).H


nondifferentiable("a rank is an integer", "linalg_matrix_rank")
