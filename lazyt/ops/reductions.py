"""Reductions over axes.

NOTE: the order of a reduction depends on extents and axes alone. Adjacent reduced axes are merged by reshape,
from the innermost outwards, while what is merged so far is shorter than 64: every reduction is lowered
through `reduce`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, ShapeError
from lazyt.ir import dtypes
from lazyt.ir.symbolic import hint, product
from lazyt.ops import samples
from lazyt.ops.axes import Axis, many_axes, one_axis
from lazyt.ops.definition import OpDef, Operand, define, node_of, require_kind, result_type
from lazyt.ops.logic import truth

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Dim

    DType = np.dtype | None

SHORT = 64


def reduce(b: Builder, prim: str, x: Node, axes: Sequence[int], keepdims: bool = False) -> Node:
    """Reduce over `axes` (non-negative) in the canonical order."""
    shape: list[int | Dim] = []  # innermost first
    reduced: list[int] = []
    open_ = False
    for i in reversed(range(x.ndim)):
        inside = i in axes
        if inside and open_ and not b.at_least(shape[-1], SHORT):
            shape[-1] = x.shape[i] * shape[-1]
            continue
        if inside:
            reduced.append(len(shape))
        shape.append(x.shape[i])
        open_ = inside
    merged = b.reshape(x, tuple(reversed(shape)))
    y = b.reduce(prim, merged, [len(shape) - 1 - i for i in reduced])
    return keep(b, y, x, axes) if keepdims else y


def keep(b: Builder, y: Node, x: Node, axes: Sequence[int]) -> Node:
    """The reduced value with its axes back, of extent 1."""
    return b.reshape(y, tuple(1 if i in axes else d for i, d in enumerate(x.shape)))


def count(x: Node, axes: Sequence[int]) -> int | Dim:
    """How many elements one result stands for."""
    return product(x.shape[i] for i in axes)


def _need_elements(name: str, x: Node, axes: Sequence[int]) -> None:
    # NOTE: also where the result has no elements, as in NumPy.
    if hint(count(x, axes)) == 0:
        raise ShapeError(f"{name}: zero-size axes have no {name}; the operand's shape is {tuple(map(hint, x.shape))}")


def total_dtype(dtype: np.dtype) -> np.dtype:
    """What sums and products of `dtype` give: the 64-bit integer for integers and bool."""
    k = dtypes.kind(dtype)
    return dtypes.int64 if k in "bi" else dtypes.uint64 if k == "u" else dtype


def total_prim(name: str, dtype: np.dtype) -> str:
    """The reduction that a sum or product in `dtype` is: bools are added by "or" and multiplied by "and"."""
    return name if dtype != dtypes.bool_ else "any" if name == "sum" else "all"


def _node(b: Builder, x: Operand, dtype: DType = None) -> Node:
    return node_of(b, x, dtype or result_type(x))


_X = samples.array((2, 3, 4))
_TYPES = (np.float64, np.float16, dtypes.bfloat16, np.int32, np.int8, np.uint8, np.bool_, np.complex64)
_TYPED = [samples.array((3, 4), t) for t in _TYPES]
AXIS_CALLS: tuple[Any, ...] = (
    (_X, {"axis": 0}), (_X, {"axis": -1, "keepdims": True}), (_X, {"axis": (0, 2)}), (_X, {"axis": (2, 1)}),
    (_X, {"keepdims": True}), (_X[:, :0], {"axis": 0}), (_X[0, 0, 0],), (samples.array((3, 5, 70)),),
)  # fmt: skip
BAD_AXIS = ((_X,), {"axis": 3}, ShapeError, "axis 3 is out of bounds for an array of 3 dimensions")
_TWICE = ((_X,), {"axis": (0, -3)}, ShapeError, "names an axis twice")


def _over_types(kinds: str) -> tuple[Any, ...]:
    return tuple((x,) for x in _TYPED if dtypes.kind(x.dtype) in kinds)


def _total(name: str, saves: tuple[int, ...], ref: Any) -> OpDef:
    def lower(b: Builder, x: Operand, axis: Axis, dtype: DType, keepdims: bool) -> Node:
        d = dtype or total_dtype(result_type(x))
        v = b.cast(_node(b, x), d)
        axes = many_axes(name, axis, v.ndim)
        if name == "prod" and dtypes.kind(d) == "c":
            return _complex_prod(b, v, axes, keepdims)
        return reduce(b, total_prim(name, d), v, axes, keepdims)

    sample = samples.calls(
        *AXIS_CALLS,
        *_over_types("fiubc"),
        (_X, {"axis": 0, "dtype": np.float64}),
        (_X, {"axis": 1, "dtype": np.bool_}),
        (_X[:0],),
        (_X.astype("c8"), {"axis": (2, 0), "keepdims": True}),
        (_X[:0].astype("c8"), {"axis": 0}),
    )
    return define(name, lower, numpy=ref, samples=sample, saves=saves, errors=[BAD_AXIS, _TWICE])


def _complex_prod(b: Builder, x: Node, axes: Sequence[int], keepdims: bool) -> Node:
    """The last of the cumulative products (a library call): parts of complex values have no product alone."""
    kept = [i for i in range(x.ndim) if i not in axes]
    shape = tuple(x.shape[i] for i in kept)
    n = count(x, axes)
    rows = b.reshape(b.permute(x, (*kept, *sorted(axes))), (*shape, n))
    (products,) = b.opaque("cumprod", (rows,), (len(kept),), [(rows.shape, x.dtype)])
    one = b.expand_to(b.constant(1, x.dtype), (*shape, 1))
    led = b.concat((one, products), len(kept))
    last = b.slice(led, (*(0 for _ in shape), n), (*shape, 1), (1,) * (len(shape) + 1))
    y = b.reshape(last, shape)
    return keep(b, y, x, axes) if keepdims else y


def _like_total(f: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy keeps bfloat16 only when told so."""

    def apply(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        if dtype is None and dtypes.of(x.dtype).narrow:
            return np.asarray(f(x.astype("f8"), axis=axis, keepdims=keepdims)).astype(x.dtype)
        return f(x, axis=axis, dtype=dtype, keepdims=keepdims)

    return apply


SUM = _total("sum", (), _like_total(np.sum))
PROD = _total("prod", (0, -1), _like_total(np.prod))


def _extreme(name: str, ref: Any) -> OpDef:
    def lower(b: Builder, x: Operand, axis: Axis, keepdims: bool) -> Node:
        v = _node(b, x)
        require_kind(name, v.dtype, "biuf", "a real dtype")
        axes = many_axes(name, axis, v.ndim)
        _need_elements(name, v, axes)
        return reduce(b, name, v, axes, keepdims)

    empty: Any = ((_X[:0],), {}, ShapeError, f"{name}: zero-size")
    complex_: Any = ((_X.astype("c8"),), {}, DTypeError, f"{name}: a real dtype")
    sample = samples.calls(*(a for a in AXIS_CALLS), *_over_types("fiub"), (_X[:0], {"axis": 1}))
    return define(name, lower, numpy=ref, samples=sample, saves=(0, -1), errors=[BAD_AXIS, empty, complex_])


def _numpy_extreme(f: Callable[..., Any]) -> Callable[..., Any]:
    def apply(x: Any, **more: Any) -> Any:
        return np.asarray(f(x.astype("f4"), **more)).astype(x.dtype) if x.dtype == dtypes.bfloat16 else f(x, **more)

    return apply


MAX = _extreme("max", _numpy_extreme(np.max))
MIN = _extreme("min", _numpy_extreme(np.min))


def _logical(name: str, ref: Any) -> OpDef:
    def lower(b: Builder, x: Operand, axis: Axis, keepdims: bool) -> Node:
        v = truth(b, x)
        return reduce(b, name, v, many_axes(name, axis, v.ndim), keepdims)

    sample = samples.calls(*((a[0] > 2, *a[1:]) for a in AXIS_CALLS), *_over_types("fibc"), (_X[:0],))
    return define(name, lower, numpy=ref, samples=sample, errors=[BAD_AXIS], differentiable=False)


ANY = _logical("any", np.any)
ALL = _logical("all", np.all)


def _arg(name: str, ref: Any) -> OpDef:
    def lower(b: Builder, x: Operand, axis: int | None, keepdims: bool) -> Node:
        v = _node(b, x)
        require_kind(name, v.dtype, "biuf", "a real dtype")
        if axis is None:
            axes: tuple[int, ...] = tuple(range(v.ndim))
            flat, at = b.reshape(v, (product(v.shape),)), 0
        else:
            at = one_axis(name, axis, v.ndim)
            axes, flat = (at,), v
        _need_elements(name, v, axes)
        y = b.reduce(name, flat, [at])
        return keep(b, y, v, axes) if keepdims else y

    sample = samples.calls(
        (_X,),
        (_X, {"axis": 1}),
        (_X, {"axis": -1, "keepdims": True}),
        (_X, {"keepdims": True}),
        (_X[0, 0, 0],),
        *_over_types("fiub"),
        (np.array([1.0, np.nan, 3.0]),),
        (np.array([1, 3, 3, 0]),),
        (_X[:, :0], {"axis": 0}),
    )
    empty: Any = ((_X[:0],), {}, ShapeError, f"{name}: zero-size")
    return define(name, lower, numpy=ref, samples=sample, errors=[BAD_AXIS, empty], differentiable=False)


def _numpy_arg(f: Callable[..., Any]) -> Callable[..., Any]:
    def apply(x: Any, **more: Any) -> Any:
        return f(x.astype(dtypes.of(x.dtype).numpy, copy=False), **more)

    return apply


ARGMAX = _arg("argmax", _numpy_arg(np.argmax))
ARGMIN = _arg("argmin", _numpy_arg(np.argmin))


def _count_nonzero(b: Builder, x: Operand, axis: Axis, keepdims: bool) -> Node:
    v = b.cast(truth(b, x), dtypes.int64)
    return reduce(b, "sum", v, many_axes("count_nonzero", axis, v.ndim), keepdims)


COUNT_NONZERO = define(
    "count_nonzero", _count_nonzero, numpy=np.count_nonzero, errors=[BAD_AXIS], differentiable=False,
    samples=samples.calls(*((np.floor(a[0]), *a[1:]) for a in AXIS_CALLS), *_over_types("fibc"), (_X[:0],)),
)  # fmt: skip


def _ptp(b: Builder, x: Operand, axis: Axis, keepdims: bool) -> Node:
    v = _node(b, x)
    require_kind("ptp", v.dtype, "iuf", "a real number dtype")
    axes = many_axes("ptp", axis, v.ndim)
    _need_elements("ptp", v, axes)
    return b.sub(reduce(b, "max", v, axes, keepdims), reduce(b, "min", v, axes, keepdims))


PTP = define("ptp", _ptp, numpy=np.ptp, saves=(0,), samples=samples.calls(*AXIS_CALLS), errors=[BAD_AXIS])


def mean_node(b: Builder, x: Node, axes: Sequence[int], keepdims: bool) -> Node:
    """The mean in x's dtype."""
    n = b.cast(b.extent(count(x, axes), dtypes.real_of(x.dtype)), x.dtype)
    return b.div(reduce(b, "sum", x, axes, keepdims), n)


def _mean(b: Builder, x: Operand, axis: Axis, dtype: DType, keepdims: bool) -> Node:
    if dtype is not None and dtypes.kind(dtype) not in "fc":
        return _whole_mean(b, x, axis, dtype, keepdims)
    d = dtype or result_type(x)
    d = d if dtypes.kind(d) in "fc" else dtypes.float64
    v = _node(b, x, dtypes.computed_in(d))
    return b.cast(mean_node(b, v, many_axes("mean", axis, v.ndim), keepdims), d)


def _whole_mean(b: Builder, x: Operand, axis: Axis, dtype: np.dtype, keepdims: bool) -> Node:
    """The mean of x cast to an integer dtype or bool, as NumPy has it: the quotient's fraction is cut off."""
    v = b.cast(_node(b, x), dtype)
    axes = many_axes("mean", axis, v.ndim)
    total = reduce(b, total_prim("sum", dtype), v, axes, keepdims)
    return b.cast(b.div(b.cast(total, dtypes.float64), b.extent(count(v, axes), dtypes.float64)), dtype)


def _numpy_mean(f: Callable[..., Any]) -> Callable[..., Any]:
    def apply(x: Any, **more: Any) -> Any:
        y = f(x.astype("f8") if dtypes.of(x.dtype).narrow else x, **more)
        return np.asarray(y).astype(x.dtype) if dtypes.of(x.dtype).narrow else y

    return apply


MEAN = define(
    "mean", _mean, numpy=_numpy_mean(np.mean), errors=[BAD_AXIS, _TWICE],
    samples=samples.calls(*AXIS_CALLS, *_over_types("fiubc"), (_X, {"axis": 1, "dtype": np.float64})),
)  # fmt: skip


def _variance(b: Builder, name: str, x: Operand, axis: Axis, correction: float, keepdims: bool) -> Node:
    """In the working dtype: the mean, then the mean of squared deviations.

    float32 that is not reduced along rows is read once: its sum and its sum of squares in float64, where squares
    are exact and the difference keeps more than float32 has, unless the mean is 1e7 deviations away, where float32
    deviations have lost as much.
    """
    d = result_type(x)
    d = d if dtypes.kind(d) in "fc" else dtypes.float64
    v = _node(b, x, dtypes.computed_in(d))
    axes = many_axes(name, axis, v.ndim)
    if v.dtype == dtypes.float32 and (v.ndim - 1 not in axes or len(axes) == v.ndim):
        return b.cast(_variance_at_once(b, b.cast(v, dtypes.float64), axes, correction, keepdims), v.dtype)
    deviation = b.sub(v, b.expand(mean_node(b, v, axes, True), v.shape))
    squares = b.mul(deviation, deviation)
    if dtypes.kind(d) == "c":
        squares = b.real(b.mul(deviation, b.conj(deviation)))
    r = squares.dtype
    return b.div(reduce(b, "sum", squares, axes, keepdims), _freedom(b, v, axes, correction, r))


def _freedom(b: Builder, v: Node, axes: Sequence[int], correction: float, dtype: np.dtype) -> Node:
    """What a sum of squares is divided by."""
    n = b.extent(count(v, axes), dtype)
    if not correction:
        return n
    return b.maximum(b.sub(n, b.constant(correction, dtype)), b.constant(0, dtype))


def _variance_at_once(b: Builder, v: Node, axes: tuple[int, ...], correction: float, keepdims: bool) -> Node:
    total = reduce(b, "sum", v, axes, keepdims)
    squares = reduce(b, "sum", b.mul(v, v), axes, keepdims)
    n = b.extent(count(v, axes), v.dtype)
    centred = b.sub(squares, b.div(b.mul(total, total), n))
    # Rounding must not make it negative.
    return b.div(b.maximum(centred, b.constant(0, v.dtype)), _freedom(b, v, axes, correction, v.dtype))


def _rounded(b: Builder, y: Node, x: Operand) -> Node:
    d = result_type(x)
    return b.cast(y, d) if dtypes.kind(d) == "f" else y


def _var(b: Builder, x: Operand, axis: Axis, correction: float, keepdims: bool) -> Node:
    return _rounded(b, _variance(b, "var", x, axis, correction, keepdims), x)


def root(b: Builder, s: Node) -> Node:
    """sqrt(s), whose derivative at 0 is 0 rather than infinite, as in PyTorch."""
    zero = b.constant(0, s.dtype)
    none = b.eq(s, b.expand_to(zero, s.shape))
    return b.select(none, zero, b.sqrt(b.select(none, b.constant(1, s.dtype), s)))


def _std(b: Builder, x: Operand, axis: Axis, correction: float, keepdims: bool) -> Node:
    return _rounded(b, root(b, _variance(b, "std", x, axis, correction, keepdims)), x)


_VAR = samples.calls(
    *AXIS_CALLS, *_over_types("fic"), (_X, {"axis": 1, "correction": 1}), (_X, {"axis": 0, "correction": 0.5})
)
VAR = define("var", _var, numpy=_numpy_mean(np.var), samples=_VAR, saves=(0,), errors=[BAD_AXIS])
STD = define("std", _std, numpy=_numpy_mean(np.std), samples=_VAR, saves=(0, -1), errors=[BAD_AXIS])
