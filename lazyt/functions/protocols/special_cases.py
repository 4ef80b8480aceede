"""NumPy functions whose call on tensors is more than lazyt's function of that name: reductions with `where=`, writes
in place, metadata, creation `like=` a tensor. NotImplemented from one of them: NumPy computes it on values.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.config import HOST
from lazyt.errors import ShapeError
from lazyt.functions import (
    arithmetic,
    creation,
    joining,
    linalg,
    logic,
    manipulation,
    padding,
    products,
    quantiles,
    reductions,
    searching,
    sorting,
    special,
)
from lazyt.functions.arguments import dtype_or_none, tensor, tensors
from lazyt.functions.conversion import asarray
from lazyt.functions.numpy_calls import record_numpy
from lazyt.functions.protocols import reducing
from lazyt.functions.protocols.through import check_cast, through_numpy, write_out
from lazyt.ir import dtypes
from lazyt.runtime.tensor import Tensor
from lazyt.tracing.inplace import assign, rewrite

if TYPE_CHECKING:
    from collections.abc import Callable

_NONE = np._NoValue

# Reductions


def _given(x: Any, otherwise: Any) -> Any:
    return otherwise if x is _NONE else x


def _reduction(name: str) -> Callable[..., Any]:
    def f(a: Any, axis: Any = None, *rest: Any, **named: Any) -> Any:
        # The rest by position: sum and prod take dtype and out, the others out.
        order = ("out", "keepdims") if name in ("all", "any") else ("out", "keepdims", "initial", "where")
        order = ("dtype", *order) if name in ("sum", "prod") else order
        named = {**dict(zip(order, rest, strict=False)), **named}
        out = named.pop("out", None)
        got = reducing.reduce(
            name,
            a,
            axis,
            named.get("dtype"),
            bool(_given(named.get("keepdims", _NONE), False)),
            _given(named.get("initial", _NONE), None),
            _given(named.get("where", _NONE), True),
        )
        return got if out is None else write_out(f"numpy.{name}", out, got)

    return f


def _mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _NONE, *, where: Any = _NONE
) -> Any:
    keep = bool(_given(keepdims, False))
    if where is _NONE or where is True:
        got = reductions.mean(a, axis=axis, dtype=dtype, keepdims=keep)
    else:
        t = tensor(a, result=dtype_or_none(dtype))
        mask = manipulation.broadcast_to(manipulation.astype(where, dtypes.bool_, copy=False), t.shape)
        total = reducing.reduce(
            "sum",
            t if dtypes.kind(t.dtype) in "fc" else manipulation.astype(t, dtypes.float64),
            axis,
            dtype,
            keep,
            where=mask,
        )
        got = total / reductions.sum(mask, axis=axis, keepdims=keep)
        got = manipulation.astype(got, total.dtype, copy=False)
    return got if out is None else write_out("numpy.mean", out, got)


def _spread(name: str) -> Callable[..., Any]:
    """std and var: computed in the wider of x's dtype and a floating one that is asked for, then cast to that."""
    f, theirs = getattr(reductions, name), getattr(np, name)

    def g(
        a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = _NONE, *,
        where: Any = _NONE, mean: Any = _NONE, correction: Any = _NONE,
    ) -> Any:  # fmt: skip
        if ddof and correction is not _NONE:
            raise ShapeError(f"{name}: correction and ddof are two names for one argument")
        more = {"axis": axis, "ddof": _given(correction, ddof), "keepdims": bool(_given(keepdims, False))}
        d = dtype_or_none(dtype)
        x = tensor(a, result=getattr(mean, "dtype", d))
        unusual = {
            "where": where is not _NONE and where is not True,
            "mean": mean is not _NONE,
            "dtype": d is not None and (dtypes.kind(d) != "f" or dtypes.kind(x.dtype) == "c"),
        }
        if any(unusual.values()):
            every = {"dtype": dtype, "where": where, "mean": mean}
            more |= {k: v for k, v in every.items() if v is not _NONE and v is not None}
            got = through_numpy(theirs, (x,), more, f"numpy.{name}({next(k for k, v in unusual.items() if v)}=)")
        elif d is None:
            got = f(x, **more)
        else:
            got = f(manipulation.astype(x, dtypes.promote(x.dtype, d), copy=False), **more)
            got = manipulation.astype(got, d, copy=False)
        return got if out is None else write_out(f"numpy.{name}", out, got)

    return g


def _flattening(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function over one axis that takes None for the flattened array."""

    def g(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
        if order is not None:
            return NotImplemented
        if not (kind is None or (isinstance(kind, str) and kind[:1].lower() in "qhms")):
            more = "; descending= is given by its name" if isinstance(kind, bool) else ""
            raise ShapeError(f"{f.__name__}: kind is one of quicksort, heapsort and stable, got {kind!r}{more}")
        return f(manipulation.ravel(a), axis=0) if axis is None else f(a, axis=axis)

    return g


# Metadata: what NumPy gives as Python objects


def _common_type(*arrays: Any) -> Any:
    return np.common_type(*(np.empty(0, tensor(a).dtype) for a in arrays))


def _result_type(*xs: Any) -> np.dtype:
    return np.result_type(*(x.dtype if isinstance(x, Tensor) else x for x in xs))


def _can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    return bool(np.can_cast(from_.dtype if isinstance(from_, Tensor) else from_, to, casting))  # type: ignore[arg-type]


def _shares(a: Any, b: Any, max_work: Any = None) -> bool:
    """Whether writing one could be seen in the other: views of one storage, or an array over a tensor's memory."""
    if a is b:
        return True
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a._storage is not None and a._storage is b._storage
    array, x = (b, a) if isinstance(a, Tensor) else (a, b)
    # NOTE: no array is over the memory of a value that is pending, or on another device.
    if x.is_pending or x.device != HOST or not isinstance(array, np.ndarray):
        return False
    return bool(np.may_share_memory(array, x.detach().numpy()))


# Creation, `like=` a tensor


def _shaped(f: Callable[..., Any]) -> Callable[..., Any]:
    """zeros, ones, empty."""

    def g(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
        return f(shape, dtype=dtype, device=device)

    return g


def _full(
    shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None
) -> Any:
    return creation.full(shape, fill_value, dtype=dtype, device=device)


def _arange(*args: Any, like: Any = None, **kwargs: Any) -> Any:
    return creation.arange(*args, **kwargs)


def _eye(
    N: Any,  # noqa: N803
    M: Any = None,  # noqa: N803
    k: Any = 0,
    dtype: Any = None,
    order: str = "C",
    *,
    device: Any = None,
    like: Any = None,
) -> Any:
    return creation.eye(N, M, k=k, dtype=dtype, device=device)


def _identity(n: Any, dtype: Any = None, *, like: Any = None) -> Any:
    return creation.identity(n, dtype=dtype)


def _tri(N: Any, M: Any = None, k: Any = 0, dtype: Any = None, *, like: Any = None) -> Any:  # noqa: N803
    return creation.tri(N, M, k, dtype)


def _shaped_like(f: Callable[..., Any], bare: Callable[..., Any]) -> Callable[..., Any]:
    """zeros_like and its kin, with NumPy's `shape=`."""

    def g(
        a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
    ) -> Any:
        if shape is None:
            return f(a, dtype=dtype, device=device)
        t = tensor(a)
        return bare(shape, dtype=t.dtype if dtype is None else dtype, device=t.device if device is None else device)

    return g


def _full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
    device: Any = None,
) -> Any:  # fmt: skip
    if shape is None:
        return creation.full_like(a, fill_value, dtype=dtype, device=device)
    t = tensor(a)
    place = t.device if device is None else device
    return creation.full(shape, fill_value, dtype=t.dtype if dtype is None else dtype, device=place)


def _asarray(
    a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, device: Any = None, **kwargs: Any
) -> Any:
    return asarray(a, dtype=dtype, copy=copy)


def _array(a: Any, dtype: Any = None, *, copy: Any = True, ndmin: int = 0, **kwargs: Any) -> Any:
    t = asarray(a, dtype=dtype, copy=copy if copy is not False else None)
    return manipulation.reshape(t, (*(1,) * (ndmin - t.ndim), *t.shape)) if t.ndim < ndmin else t


def _fromfunction(function: Any, shape: Any, *, dtype: Any = float, like: Any = None, **kwargs: Any) -> Any:
    return function(*creation.indices(shape, dtype=dtypes.as_dtype(dtype)), **kwargs)


# Writes in place: NumPy's function on a copy of the values, put back as a deferred write


def _copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> Any:
    if not isinstance(dst, Tensor):
        return NotImplemented
    value = tensor(src, dst) if not isinstance(src, bool | int | float | complex) else src
    if isinstance(value, complex):
        dtypes.check_imaginary("numpy.copyto", dtypes.complex64, dst.dtype)
    if isinstance(value, Tensor):
        check_cast("numpy.copyto", "the source", value.dtype, dst.dtype, casting)
    if where is True:
        assign(dst, value, "copyto")
        return None

    def chosen() -> Tensor:
        found: Tensor = manipulation.astype(tensor(logic.where(where, value, dst)), dst.dtype, copy=False)
        if found.shape != dst.shape:
            raise ShapeError(f"numpy.copyto: shapes {found.shape} and {dst.shape} do not match")
        return found

    rewrite(dst, chosen, "copyto")
    return None


def _in_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on a copy of its first argument, which is returned."""

    def f(x: np.ndarray[Any, Any], *args: Any, **kwargs: Any) -> np.ndarray[Any, Any]:
        x = x.copy()
        function(x, *args, **kwargs)
        return x

    return f


def _writing(function: Callable[..., Any], first: str) -> Callable[..., Any]:
    copying = _in_copy(function)

    def f(*args: Any, **kwargs: Any) -> Any:
        x, rest = (args[0], args[1:]) if args else (kwargs.pop(first), ())
        if not isinstance(x, Tensor):
            return NotImplemented
        rest = tuple(np.asarray(a) if isinstance(a, list | tuple) else a for a in rest)
        for a in (*rest, *kwargs.values()):
            given = dtypes.complex64 if isinstance(a, complex) else getattr(a, "dtype", dtypes.bool_)
            dtypes.check_imaginary(function.__name__, given, x.dtype)
        name, like = f"numpy.{function.__name__}", [(x.shape, x.dtype)]
        rewrite(x, lambda: record_numpy(name, copying, (x, *rest), kwargs, like), function.__name__)
        return None

    return f


# Functions whose result NumPy gives in another form, or with more choices


def _nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    t = tensor(x)
    got = special.nan_to_num(t, nan=nan, posinf=posinf, neginf=neginf)
    if not copy and isinstance(x, Tensor):
        assign(x, got, "nan_to_num")
        return x
    return got


def _clip(
    a: Any,
    a_min: Any = _NONE,
    a_max: Any = _NONE,
    out: Any = None,
    *,
    min: Any = _NONE,
    max: Any = _NONE,
    **kwargs: Any,
) -> Any:
    from_, to = _given(min, _given(a_min, None)), _given(max, _given(a_max, None))
    if kwargs:
        return NotImplemented
    got = arithmetic.clip(a, from_, to)
    return got if out is None else write_out("numpy.clip", out, got)


def _where(condition: Any, x: Any = _NONE, y: Any = _NONE, /) -> Any:
    return searching.nonzero(condition) if x is _NONE else logic.where(condition, x, y)


def _einsum(*operands: Any, optimize: Any = False, **kwargs: Any) -> Any:
    if kwargs:
        return NotImplemented
    return products.einsum(*operands, optimize=optimize)


def _concatenate(
    arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    return joining.concat(_cast_all("numpy.concatenate", arrays, dtype, casting), axis=axis)


def _cast_all(name: str, arrays: Any, dtype: Any, casting: str) -> list[Tensor]:
    """Arrays that are joined, in the dtype that is asked for, or theirs if `casting` allows all to become it."""
    d = None if dtype is None else dtypes.as_dtype(dtype)
    several = tensors(tuple(arrays), d)
    if several and (d is not None or casting != "same_kind"):
        to = d or functools.reduce(dtypes.promote, (t.dtype for t in several))
        for t in several:
            check_cast(name, "an array", t.dtype, to, casting)
        several = [manipulation.astype(t, to, copy=False) for t in several]
    return several


def _stacking(f: Callable[..., Any]) -> Callable[..., Any]:
    def g(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
        return f(_cast_all(f"numpy.{f.__name__}", tup, dtype, casting))

    return g


def _stack(arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    return joining.stack(_cast_all("numpy.stack", arrays, dtype, casting), axis=axis)


def _quantile(f: Callable[..., Any]) -> Callable[..., Any]:
    def g(
        a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: str = "linear",
        keepdims: Any = False, *, weights: Any = None,
    ) -> Any:  # fmt: skip
        if weights is not None:
            return NotImplemented
        got = f(a, q, axis=axis, method=method, keepdims=bool(_given(keepdims, False)))
        return got if out is None else write_out(f"numpy.{f.__name__}", out, got)

    return g


def _median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
    got = quantiles.median(a, axis=axis, keepdims=bool(_given(keepdims, False)))
    return got if out is None else write_out("numpy.median", out, got)


def _require(a: Any, dtype: Any = None, requirements: Any = None, *, like: Any = None) -> Any:
    return asarray(a, dtype=dtype)


def _broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Any, ...]:
    """What lazyt has no dtype for (None, text) is broadcast by NumPy beside the tensors, as plotting libraries do."""
    shape = np.broadcast_shapes(*(a.shape if isinstance(a, Tensor) else np.shape(a) for a in args))
    return tuple(
        manipulation.broadcast_to(a, shape) if isinstance(a, Tensor) else np.broadcast_to(np.asarray(a), shape)
        for a in args
    )


def _pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    if not isinstance(mode, str) or kwargs.keys() - {"constant_values", "end_values", "stat_length"}:
        return NotImplemented  # a function, which writes NumPy's vectors; reflections of another sign
    if mode in ("maximum", "median", "minimum") and dtypes.kind(tensor(array).dtype) == "c":
        return NotImplemented  # NumPy's order of complex numbers
    return padding.pad(array, pad_width, mode, **kwargs)


def _meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    return NotImplemented if sparse else creation.meshgrid(*xi, indexing=indexing, copy=copy)


def _reshape(a: Any, /, shape: Any, order: str = "C", *, copy: Any = None) -> Any:
    if order != "F":
        return manipulation.reshape(a, shape, copy=copy)
    # In Fortran's order the first axis runs fastest: the transpose's rows, read in C order.
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    return manipulation.transpose(manipulation.reshape(manipulation.transpose(a), extents[::-1]))


def _svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    return linalg.svd(a, full_matrices=full_matrices) if compute_uv else linalg.svdvals(a)


def _qr(a: Any, mode: str = "reduced") -> Any:
    if mode == "r":
        return linalg.qr(a).R
    return linalg.qr(a, mode) if mode in ("reduced", "complete") else NotImplemented


def _computed(*args: Any, **kwargs: Any) -> Any:
    return NotImplemented


def _real_if_close(a: Any, tol: float = 100) -> Any:
    t = tensor(a)
    return t if dtypes.kind(t.dtype) != "c" else NotImplemented


# Functions that say something about the array as text, or keep it: NumPy computes it.

SPECIAL: dict[Any, Callable[..., Any]] = {
    **{getattr(np, n): _reduction(n) for n in ("sum", "prod", "max", "min", "all", "any")},
    np.mean: _mean,
    np.std: _spread("std"),
    np.var: _spread("var"),
    np.sort: _flattening(sorting.sort),
    np.argsort: _flattening(sorting.argsort),
    np.median: _median,
    np.percentile: _quantile(quantiles.percentile),
    np.quantile: _quantile(quantiles.quantile),
    np.nanpercentile: _quantile(quantiles.nanpercentile),
    np.nanquantile: _quantile(quantiles.nanquantile),
    np.common_type: _common_type,
    np.result_type: _result_type,
    np.can_cast: _can_cast,
    np.shares_memory: _shares,
    np.may_share_memory: _shares,
    np.zeros_like: _shaped_like(creation.zeros_like, creation.zeros),
    np.ones_like: _shaped_like(creation.ones_like, creation.ones),
    np.empty_like: _shaped_like(creation.empty_like, creation.empty),
    np.full_like: _full_like,
    **{getattr(np, n): _shaped(getattr(creation, n)) for n in ("zeros", "ones", "empty")},
    np.full: _full,
    np.arange: _arange,
    np.eye: _eye,
    np.identity: _identity,
    np.tri: _tri,
    np.asarray: _asarray,
    np.asanyarray: _asarray,
    np.ascontiguousarray: _asarray,
    np.asfortranarray: _asarray,
    np.array: _array,
    np.copy: lambda a, order="K", subok=False: tensor(a).clone(),
    np.require: _require,
    np.fromfunction: _fromfunction,
    np.copyto: _copyto,
    np.put: _writing(np.put, "a"),
    np.place: _writing(np.place, "arr"),
    np.putmask: _writing(np.putmask, "a"),
    np.fill_diagonal: _writing(np.fill_diagonal, "a"),
    np.put_along_axis: _writing(np.put_along_axis, "arr"),
    np.nan_to_num: _nan_to_num,
    np.clip: _clip,
    np.where: _where,
    np.einsum: _einsum,
    np.concatenate: _concatenate,
    np.vstack: _stacking(joining.vstack),
    np.hstack: _stacking(joining.hstack),
    np.stack: _stack,
    np.broadcast_arrays: _broadcast_arrays,
    np.pad: _pad,
    np.reshape: _reshape,
    np.meshgrid: _meshgrid,
    np.geomspace: _computed,
    np.linalg.svd: _svd,
    np.linalg.qr: _qr,
    np.real_if_close: _real_if_close,
}

_SCALARS_ONLY = "it is about dates, which lazyt has no dtype for"
# NumPy functions that have no meaning on tensors, and why.
REFUSED: dict[Any, str] = {
    np.is_busday: _SCALARS_ONLY,
    np.busday_offset: _SCALARS_ONLY,
    np.busday_count: _SCALARS_ONLY,
    np.datetime_as_string: _SCALARS_ONLY,
}
