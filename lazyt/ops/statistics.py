"""Reductions that skip NaN, the soft maximum and related functions, and cumulative sums and products."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.ir import dtypes
from lazyt.ir.symbolic import hint
from lazyt.ops import samples
from lazyt.ops.axes import Axis, many_axes, one_axis
from lazyt.ops.definition import OpDef, Operand, define, node_of, require_kind, result_type
from lazyt.ops.elementwise import float_of
from lazyt.ops.reductions import AXIS_CALLS, BAD_AXIS, reduce, total_dtype, total_prim

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

    DType = np.dtype | None

_X = samples.array((2, 3, 4))

# Softmax


def _float_node(b: Builder, name: str, x: Operand) -> tuple[Node, np.dtype]:
    """The operand in its working dtype, and the dtype of the result."""
    d = float_of(result_type(x))
    require_kind(name, d, "f", "a real dtype")
    return node_of(b, x, dtypes.computed_in(d)), d


def _softmax(b: Builder, x: Operand, axis: Axis) -> Node:
    v, d = _float_node(b, "softmax", x)
    axes = many_axes("softmax", axis, v.ndim)
    top = b.stop(reduce(b, "max", v, axes, keepdims=True))
    e = b.exp(b.sub(v, b.expand(top, v.shape)))
    total = reduce(b, "sum", e, axes, keepdims=True)
    return b.cast(b.div(e, b.expand(total, e.shape)), d)


def _log_softmax(b: Builder, x: Operand, axis: Axis) -> Node:
    v, d = _float_node(b, "log_softmax", x)
    axes = many_axes("log_softmax", axis, v.ndim)
    top = b.stop(reduce(b, "max", v, axes, keepdims=True))
    shifted = b.sub(v, b.expand(top, v.shape))
    total = b.log(reduce(b, "sum", b.exp(shifted), axes, keepdims=True))
    return b.cast(b.sub(shifted, b.expand(total, v.shape)), d)


def _logsumexp(b: Builder, x: Operand, axis: Axis, keepdims: bool) -> Node:
    v, d = _float_node(b, "logsumexp", x)
    axes = many_axes("logsumexp", axis, v.ndim)
    top = b.stop(reduce(b, "max", v, axes, keepdims=True))
    # An infinite maximum (or none at all) is not subtracted: inf - inf is NaN, log(exp(inf)) is right.
    top = b.select(b.isfinite(top), top, b.constant(0, v.dtype))
    e = b.exp(b.sub(v, b.expand(top, v.shape)))
    y = b.add(b.log(reduce(b, "sum", e, axes, keepdims=True)), top)
    if not keepdims:
        y = b.reshape(y, tuple(n for i, n in enumerate(v.shape) if i not in axes))
    return b.cast(y, d)


def _numpy_softmax(x: Any, axis: Any = -1) -> Any:
    y = x.astype("f8")
    e = np.exp(y - y.max(axis=axis, keepdims=True, initial=-np.inf))
    return (e / e.sum(axis=axis, keepdims=True)).astype(float_of(x.dtype))


def _numpy_log_softmax(x: Any, axis: Any = -1) -> Any:
    x, d = x.astype("f8"), float_of(x.dtype)
    below = x - x.max(axis=axis, keepdims=True, initial=-np.inf)
    return (below - np.log(np.exp(below).sum(axis=axis, keepdims=True))).astype(d)


def _numpy_logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    x, d = x.astype("f8"), float_of(x.dtype)
    top = x.max(axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        out = np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top
    return (out if keepdims else out.squeeze(axis=axis)).astype(d)


_SOFT: Any = (
    (_X,), (_X, {"axis": 1}), (_X, {"axis": (0, 2)}), (_X.astype("f2"),), (_X.astype(dtypes.bfloat16),),
    (_X.astype("i8"),), (_X[:0],), (_X[0, 0, 0], {"axis": None}),
)  # fmt: skip
SOFTMAX = define(
    "softmax", _softmax, numpy=_numpy_softmax, samples=samples.calls(*_SOFT), saves=(-1,), errors=[BAD_AXIS]
)
LOG_SOFTMAX = define(
    "log_softmax", _log_softmax, numpy=_numpy_log_softmax, samples=samples.calls(*_SOFT), saves=(-1,),
    errors=[BAD_AXIS],
)  # fmt: skip
LOGSUMEXP = define(
    "logsumexp",
    _logsumexp,
    numpy=_numpy_logsumexp,
    saves=(0, -1),
    errors=[BAD_AXIS],
    samples=samples.calls(*AXIS_CALLS, (_X[:0],), (np.array([-np.inf, -np.inf]),), (np.array([np.inf, 1.0]),)),
)

# NaN skipped


def _nan(b: Builder, v: Node) -> Node:
    if dtypes.kind(v.dtype) == "c":
        return b.or_(b.isnan(b.real(v)), b.isnan(b.imag(v)))
    return b.isnan(v)


def _without_nan(b: Builder, v: Node, value: float) -> Node:
    if dtypes.kind(v.dtype) not in "fc":
        return v
    return b.select(_nan(b, v), b.constant(value, v.dtype), v)


def _nansum(b: Builder, x: Operand, axis: Axis, dtype: DType, keepdims: bool) -> Node:
    v = _without_nan(b, node_of(b, x, result_type(x)), 0)
    v = b.cast(v, dtype or total_dtype(v.dtype))
    return reduce(b, total_prim("sum", v.dtype), v, many_axes("nansum", axis, v.ndim), keepdims)


def _nanmean(b: Builder, x: Operand, axis: Axis, keepdims: bool) -> Node:
    d = result_type(x)
    d = d if dtypes.kind(d) in "fc" else dtypes.float64
    v = node_of(b, x, dtypes.computed_in(d))
    axes = many_axes("nanmean", axis, v.ndim)
    present = b.cast(b.not_(_nan(b, v)), v.dtype)
    total = reduce(b, "sum", _without_nan(b, v, 0), axes, keepdims)
    return b.cast(b.div(total, reduce(b, "sum", present, axes, keepdims)), d)


def _nan_extreme(name: str, prim: str, worst: float) -> Callable[..., Node]:
    def lower(b: Builder, x: Operand, axis: Axis, keepdims: bool) -> Node:
        v = node_of(b, x, result_type(x))
        require_kind(name, v.dtype, "biuf", "a real dtype")
        axes = many_axes(name, axis, v.ndim)
        if any(hint(v.shape[i]) == 0 for i in axes):
            raise ShapeError(f"{name}: zero-size axes have no {prim}; the shape is {tuple(map(hint, v.shape))}")
        y = reduce(b, prim, _without_nan(b, v, worst), axes, keepdims)
        if dtypes.kind(v.dtype) != "f":
            return y
        none = reduce(b, "all", b.isnan(v), axes, keepdims)
        return b.select(none, b.constant(math.nan, v.dtype), y)

    return lower


_N = _X.copy()
_N[0, :, 1] = np.nan
_N[1, 2] = np.nan
_NAN: Any = (
    (_N,),
    (_N, {"axis": 0}),
    (_N, {"axis": (1, 2), "keepdims": True}),
    (_X.astype("i4"),),
    (_N.astype("f8"),),
)
NANSUM = define("nansum", _nansum, numpy=np.nansum, samples=samples.calls(*_NAN), saves=(0,), errors=[BAD_AXIS])
NANMEAN = define("nanmean", _nanmean, numpy=np.nanmean, samples=samples.calls(*_NAN), saves=(0,), errors=[BAD_AXIS])
NANMAX = define(
    "nanmax",
    _nan_extreme("nanmax", "max", -math.inf),
    numpy=np.nanmax,
    samples=samples.calls(*_NAN),
    saves=(0, -1),
    errors=[BAD_AXIS, ((_X[:0],), {}, ShapeError, "nanmax: zero-size")],
)
NANMIN = define(
    "nanmin",
    _nan_extreme("nanmin", "min", math.inf),
    numpy=np.nanmin,
    samples=samples.calls(*_NAN),
    saves=(0, -1),
    errors=[BAD_AXIS, ((_X[:0],), {}, ShapeError, "nanmin: zero-size")],
)

# Cumulative


def _cumulative(name: str, fn: str, first: int, saves: tuple[int, ...], ref: Any) -> OpDef:
    def lower(b: Builder, x: Operand, axis: int, dtype: DType, include_initial: bool) -> Node:
        v = node_of(b, x, result_type(x))
        v = b.cast(v, dtype or total_dtype(v.dtype))
        at = one_axis(name, axis, v.ndim)
        (y,) = b.opaque(fn, (v,), (at,), [(v.shape, v.dtype)])
        if include_initial:
            start = tuple(1 if i == at else d for i, d in enumerate(v.shape))
            y = b.concat((b.expand_to(b.constant(first, v.dtype), start), y), at)
        return y

    sample = samples.calls(
        (_X, {"axis": 1}), (_X[0, 0],), (_X, {"axis": -1, "include_initial": True}), (_X[0, 0].astype("i4"),),
        (_X.astype("f2"), {"axis": 0}), (_X, {"axis": 0, "dtype": np.float64}), (_X[:0], {"axis": 0}),
        (_X.astype("c8"), {"axis": 2}),
    )  # fmt: skip
    errors = [BAD_AXIS, ((_X,), {}, ShapeError, f"{name}: an axis is required for an array of 3 dimensions")]
    return define(name, lower, numpy=ref, samples=sample, saves=saves, errors=errors)


def _numpy_cumulative(f: Callable[..., Any]) -> Callable[..., Any]:
    def apply(x: Any, **more: Any) -> Any:
        if x.dtype == np.float16:
            return f(x.astype("f8"), **more).astype("f2")
        return f(x, **more)

    return apply


CUMULATIVE_SUM = _cumulative("cumulative_sum", "cumsum", 0, (), _numpy_cumulative(np.cumulative_sum))
CUMULATIVE_PROD = _cumulative("cumulative_prod", "cumprod", 1, (0, -1), _numpy_cumulative(np.cumulative_prod))
