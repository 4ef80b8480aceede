"""Arrays made from nothing, or from the shape of another one. Sizes and scalars are program arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lazyt.errors import DTypeError, ShapeError
from lazyt.functions.arguments import broadcasts_to, dtype_or_none, record, shape_of, tensor
from lazyt.functions.arithmetic import add, divide, multiply, pow, subtract
from lazyt.functions.elementwise import floor
from lazyt.functions.logic import equal, where
from lazyt.functions.manipulation import astype, broadcast_arrays, broadcast_to, moveaxis, reshape
from lazyt.functions.products import diagonal
from lazyt.ir import dtypes
from lazyt.ops import creation as ops
from lazyt.ops.axes import integer
from lazyt.runtime.device import Device
from lazyt.tracing.current import restore_device, set_device
from lazyt.tracing.record import current_device
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from lazyt.functions.arguments import ArrayLike, ShapeLike
    from lazyt.runtime.tensor import Tensor

    Number = bool | int | float | complex

Make = TypeVar("Make", bound=Callable[..., Any])

__all__ = [
    "arange",
    "diag",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "identity",
    "indices",
    "linspace",
    "logspace",
    "meshgrid",
    "one_hot",
    "ones",
    "ones_like",
    "tri",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]


def on_device(make: Make) -> Make:
    """`make` on the device that its argument `device` names; None is that of `lazyt.device(...)`, or the CPU."""

    @wraps(make)
    def placed(*args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None:
            return make(*args, **kwargs)
        before = set_device(Device.check(device))
        try:
            return make(*args, **kwargs)
        finally:
            restore_device(before)

    return placed  # type: ignore[return-value]


def _beside(t: Tensor, device: Any) -> Any:
    """Where what is made like `t` goes: the device asked for, or else its own; None where nothing need be switched."""
    return t.device if device is None and t.device != current_device() else device


def _default(dtype: Any, like: np.dtype = dtypes.float32) -> np.dtype:
    return like if dtype is None else dtypes.as_dtype(dtype)


@on_device
def zeros(shape: ShapeLike, dtype: Any = None, *, device: Any = None) -> Tensor:
    """Zeros; float32 by default. Raises ShapeError for a negative extent. As `numpy.zeros`.

    >>> import lazyt as lt
    >>> lt.zeros((1, 2)).tolist()
    [[0.0, 0.0]]
    """
    return record(ops.ZEROS, (), (_default(dtype),), shape_of("zeros", shape))


@on_device
def ones(shape: ShapeLike, dtype: Any = None, *, device: Any = None) -> Tensor:
    """Ones; float32 by default. Raises ShapeError for a negative extent. As `numpy.ones`.

    >>> import lazyt as lt
    >>> lt.ones(2).tolist()
    [1.0, 1.0]
    """
    return record(ops.ONES, (), (_default(dtype),), shape_of("ones", shape))


def empty(shape: ShapeLike, dtype: Any = None, *, device: Any = None) -> Tensor:
    """`zeros`: lazyt has no values that are not defined. As `numpy.empty`.

    >>> import lazyt as lt
    >>> lt.empty((2, 3)).shape
    (2, 3)
    """
    return zeros(shape, dtype=dtype, device=device)


@on_device
def full(shape: ShapeLike, fill_value: ArrayLike, dtype: Any = None, *, device: Any = None) -> Tensor:
    """One value everywhere, or an array broadcast to the shape; by default of the value's dtype (bool, int64, float32,
    complex64 for Python scalars).

    Raises ShapeError for a negative extent or a value that does not broadcast. As `numpy.full`.

    >>> import lazyt as lt
    >>> lt.full((2,), 7).tolist()
    [7, 7]
    """
    if type(fill_value) in (bool, int, float, complex):
        value: Any = fill_value
        d = _default(dtype, dtypes.default_dtype(type(fill_value)))
        if type(value) is complex and dtypes.kind(d) != "c":
            raise DTypeError(f"full: a complex value for dtype {d}")
    else:
        value = tensor(fill_value, result=dtype_or_none(dtype))
        value = value if isinstance(fill_value, Handle) else value.to(device=current_device())
        d = _default(dtype, value.dtype)
        if value.ndim:
            return _filled(value, shape_of("full", shape), d)
    return record(ops.FULL, (value,), (d,), shape_of("full", shape))


def _filled(value: Tensor, shape: tuple[int, ...], d: np.dtype) -> Tensor:
    """A copy of an array broadcast to a shape."""
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = reshape(value, value.shape[1:])
    if not broadcasts_to(value.shape, shape):
        raise ShapeError(f"full: a fill value of shape {value.shape} does not broadcast to {shape}")
    return astype(broadcast_to(value, shape), d)


def zeros_like(x: ArrayLike, /, dtype: Any = None, *, device: Any = None) -> Tensor:
    """Zeros of x's shape and, by default, dtype. As `numpy.zeros_like`.

    >>> import lazyt as lt
    >>> lt.zeros_like(lt.asarray([1, 2])).tolist()
    [0, 0]
    """
    t = tensor(x)
    return zeros(t.shape, dtype=_default(dtype, t.dtype), device=_beside(t, device))


def ones_like(x: ArrayLike, /, dtype: Any = None, *, device: Any = None) -> Tensor:
    """Ones of x's shape and, by default, dtype. As `numpy.ones_like`.

    >>> import lazyt as lt
    >>> lt.ones_like(lt.asarray([1, 2])).tolist()
    [1, 1]
    """
    t = tensor(x)
    return ones(t.shape, dtype=_default(dtype, t.dtype), device=_beside(t, device))


def empty_like(x: ArrayLike, /, dtype: Any = None, *, device: Any = None) -> Tensor:
    """`zeros_like`: lazyt has no values that are not defined. As `numpy.empty_like`.

    >>> import lazyt as lt
    >>> lt.empty_like(lt.asarray([1, 2])).shape
    (2,)
    """
    return zeros_like(x, dtype=dtype, device=device)


def full_like(x: ArrayLike, /, fill_value: ArrayLike, dtype: Any = None, *, device: Any = None) -> Tensor:
    """One value everywhere, or an array broadcast to x's shape; by default of x's dtype. As `numpy.full_like`.

    >>> import lazyt as lt
    >>> lt.full_like(lt.asarray([1, 2]), 9).tolist()
    [9, 9]
    """
    t = tensor(x, result=getattr(fill_value, "dtype", None))
    return full(t.shape, fill_value, dtype=_default(dtype, t.dtype), device=_beside(t, device))


def _number(name: str, x: Any) -> Any:
    """A Python int or float (a 0-d tensor is read: a sync)."""
    if type(x) in (int, float):
        return x
    if isinstance(x, bool):
        return int(x)
    if isinstance(x, Handle):
        return x.item()
    try:
        return integer(name, "a bound", x)
    except DTypeError:
        pass
    try:
        return float(x)
    except (TypeError, ValueError):
        raise DTypeError(f"{name}: a bound is a number, got {x!r}") from None


@on_device
def arange(
    start: Number | None = None,
    stop: Number | None = None,
    step: Number = 1,
    dtype: Any = None,
    *,
    device: Any = None,
) -> Tensor:
    """start, start + step, ... up to but without stop (from 0, if only one bound is given).

    int64 for integers, float32 if a bound is a float. Computed as start + i * step, in int64 or float64.
    Raises ShapeError for step 0, TypeError without a bound. As `numpy.arange`.

    >>> import lazyt as lt
    >>> lt.arange(2, 8, 2).tolist()
    [2, 4, 6]
    """
    if start is None or stop is None:
        start, stop = 0, start if stop is None else stop
        if stop is None:
            raise TypeError("arange: start or stop is required")
    first, last, by = start, stop, 1 if step is None else step
    if not type(first) is type(last) is type(by) is int:
        first, last, by = _number("arange", first), _number("arange", last), _number("arange", by)
    if by == 0:
        raise ShapeError("arange: step must not be 0")
    whole = type(first) is type(last) is type(by) is int
    n = -((first - last) // by) if whole else math.ceil((last - first) / by)
    d = _default(dtype, dtypes.int64 if whole else dtypes.float32)
    return record(ops.ARANGE, (first, by), (d,), (max(n, 0),))


@on_device
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    /,
    num: int = 50,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
    axis: int = 0,
) -> Tensor:
    """`num` values evenly from start to stop, which is the last one unless `endpoint` is False.

    float32 by default (complex64 for complex bounds), computed in float64. Bounds that are arrays broadcast, and the
    values lie along a new `axis`. Raises ShapeError for a negative `num` or a bad axis. As `numpy.linspace`.

    >>> import lazyt as lt
    >>> lt.linspace(0.0, 1.0, 5).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    beside: Any = next((v for v in (start, stop) if isinstance(v, Handle)), None)
    d = dtype_or_none(dtype)
    bounds = [v if type(v) in (int, float, complex) else tensor(v, beside, d) for v in (start, stop)]
    d = d or _default(None, _bound_dtype(bounds))
    shape = shape_of("linspace", integer("linspace", "num", num))
    if any(isinstance(v, Handle) and v.ndim for v in bounds):
        first, last = (v if isinstance(v, Handle) else tensor(np.asarray(v), beside) for v in bounds)
        return moveaxis(_between(first, last, shape[0], d, endpoint), 0, axis)
    return record(ops.LINSPACE, tuple(bounds), (d, bool(endpoint)), shape)


def _between(start: Tensor, stop: Tensor, num: int, dtype: np.dtype, endpoint: bool) -> Tensor:
    """`linspace` of arrays, along a new first axis."""
    work = dtypes.complex128 if dtypes.kind(dtype) == "c" else dtypes.float64
    a, b = broadcast_arrays(astype(start, work, copy=False), astype(stop, work, copy=False))
    k = reshape(arange(num, dtype=dtypes.float64, device=a.device), (num, *(1,) * a.ndim))
    gap = subtract(b, a)
    out = add(multiply(k, divide(gap, max(num - 1 if endpoint else num, 1))), a)
    if endpoint and num > 1:
        out = where(equal(k, num - 1), b, out)
    return astype(floor(out) if dtypes.kind(dtype) in "iu" else out, dtype, copy=False)


def _bound_dtype(bounds: list[Any]) -> np.dtype:
    found = dtypes.float32
    for v in bounds:
        if isinstance(v, complex):
            found = dtypes.complex_of(found)
        elif isinstance(v, Handle):
            d = v.dtype
            found = dtypes.promote(found, d if dtypes.kind(d) in "fc" else dtypes.float32)
    return found


def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    /,
    num: int = 50,
    *,
    base: float = 10.0,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    """base ** linspace(start, stop, num), computed in float64; float32 by default. As `numpy.logspace`.

    >>> import lazyt as lt
    >>> lt.logspace(0, 3, 4, base=2.0).tolist()
    [1.0, 2.0, 4.0, 8.0]
    """
    exponents = linspace(start, stop, num, dtype=dtypes.float64, device=device, endpoint=endpoint)
    given = _bound_dtype([v for v in (start, stop, base) if isinstance(v, Handle)])
    return astype(pow(base, exponents), _default(dtype, given))


def _diagonal(name: str, k: Any) -> int:
    """A diagonal's number within int64: one further out is as far from any matrix."""
    return max(min(integer(name, "k", k), 1 << 62), -(1 << 62))


@on_device
def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """A matrix with ones on its k-th diagonal (above the main one for k > 0); float32 by default. As
    `numpy.eye`.

    >>> import lazyt as lt
    >>> lt.eye(2, 3, k=1).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    shape = shape_of("eye", (n_rows, n_rows if n_cols is None else n_cols))
    return record(ops.EYE, (_diagonal("eye", k),), (_default(dtype),), shape)


def identity(n: int, dtype: Any = None, *, device: Any = None) -> Tensor:
    """The square matrix with ones on its diagonal. As `numpy.identity`.

    >>> import lazyt as lt
    >>> lt.identity(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return eye(n, dtype=dtype, device=device)


@on_device
def tri(n: int, m: int | None = None, k: int = 0, dtype: Any = None, *, device: Any = None) -> Tensor:
    """An (n, m) matrix of ones at and below the k-th diagonal, zeros above it. As `numpy.tri`.

    >>> import lazyt as lt
    >>> lt.tri(2, 3).tolist()
    [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
    """
    return record(ops.TRI, (_diagonal("tri", k),), (_default(dtype),), shape_of("tri", (n, n if m is None else m)))


def tril(x: ArrayLike, /, k: int = 0) -> Tensor:
    """Matrices (the last two axes) with zeros above the k-th diagonal. Raises ShapeError for vectors. As
    `numpy.tril`.

    >>> import lazyt as lt
    >>> lt.tril(lt.ones((2, 2))).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    return record(ops.TRIL, (x, _diagonal("tril", k)))


def triu(x: ArrayLike, /, k: int = 0) -> Tensor:
    """Matrices (the last two axes) with zeros below the k-th diagonal. Raises ShapeError for vectors. As
    `numpy.triu`.

    >>> import lazyt as lt
    >>> lt.triu(lt.ones((2, 2))).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    return record(ops.TRIU, (x, _diagonal("triu", k)))


def diag(x: ArrayLike, /, k: int = 0) -> Tensor:
    """The matrix with vector x on its k-th diagonal, or the k-th diagonal of matrix x as a view. As
    `numpy.diag`.

    Raises ShapeError for other ranks.

    >>> import lazyt as lt
    >>> lt.diag(lt.asarray([1, 2])).tolist(), lt.diag(lt.asarray([[1, 2], [3, 4]])).tolist()
    ([[1, 0], [0, 2]], [1, 4])
    """
    t = tensor(x)
    if t.ndim == 2:
        return diagonal(t, offset=k)
    if t.ndim != 1:
        raise ShapeError(f"diag: a vector or a matrix is required, got {t.ndim} dimensions")
    k = integer("diag", "k", k)
    return record(ops.DIAG, (t,), (k,), (t.shape[0] + abs(k),))


def one_hot(x: ArrayLike, /, num_classes: int = -1, *, dtype: Any = None) -> Tensor:
    """1 at index x along a new last axis of `num_classes`, else 0; float32 by default. As `jax.nn.one_hot`.

    All zeros where x is outside [0, num_classes). Without `num_classes` there are as many as x's greatest value needs,
    for which x is read: a sync. Raises DTypeError unless x has an integer dtype.

    >>> import lazyt as lt
    >>> lt.one_hot(lt.asarray([1, 0]), 3).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    classes = integer("one_hot", "num_classes", num_classes)
    if classes == -1:
        x = tensor(x)
        classes = 1 + int(x.max()) if x.size else 0
    return record(ops.ONE_HOT, (x,), (_default(dtype),), shape_of("one_hot", classes))


def meshgrid(*arrays: ArrayLike, indexing: str = "xy", copy: bool = True) -> tuple[Tensor, ...]:
    """Coordinate arrays of a grid from vectors; 'xy' has the first vector along axis 1.

    Without `copy` they are read-only views. Raises ShapeError for other ranks or another indexing. As `numpy.meshgrid`.

    >>> import lazyt as lt
    >>> [a.tolist() for a in lt.meshgrid(lt.asarray([1, 2]), lt.asarray([3, 4]))]
    [[[1, 2], [1, 2]], [[3, 3], [4, 4]]]
    """
    if indexing not in ("xy", "ij"):
        raise ShapeError(f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}")
    vectors = [tensor(a) for a in arrays]
    if any(v.ndim > 1 for v in vectors):
        raise ShapeError(f"meshgrid: vectors are required, got {max(v.ndim for v in vectors)} dimensions")
    rank = len(vectors)
    axes = list(range(rank))
    if indexing == "xy" and rank > 1:
        axes[:2] = [1, 0]
    extents = [v.size for v in vectors]
    shape = tuple(extents[axes.index(i)] for i in range(rank))
    views = (
        broadcast_to(reshape(v, tuple(v.size if i == a else 1 for i in range(rank))), shape)
        for v, a in zip(vectors, axes, strict=True)
    )
    return tuple(record(ops.COPY, (v,)) for v in views) if copy else tuple(views)


def indices(shape: ShapeLike, /, dtype: Any = None) -> Tensor:
    """Index arrays of a grid, one for each axis, stacked along axis 0; int64 by default. As `numpy.indices`.

    >>> import lazyt as lt
    >>> lt.indices((2, 2)).tolist()
    [[[0, 0], [1, 1]], [[0, 1], [0, 1]]]
    """
    return record(ops.INDICES, (), (_default(dtype, dtypes.int64),), shape_of("indices", shape))
