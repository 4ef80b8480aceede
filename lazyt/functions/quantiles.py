"""Order statistics and weighted means: composed of a sort, a lookup and an interpolation, so deferred."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, NotSupportedError, ShapeError
from lazyt.functions import reductions
from lazyt.functions.arguments import record, tensor, tensors
from lazyt.functions.arithmetic import clip, divide, multiply
from lazyt.functions.elementwise import ceil, floor, isnan, round
from lazyt.functions.indexing import take, take_along_axis
from lazyt.functions.logic import equal, where
from lazyt.functions.manipulation import astype, broadcast_to, moveaxis, reshape
from lazyt.functions.sorting import sort
from lazyt.functions.subscript import getitem
from lazyt.ir import dtypes
from lazyt.ops.axes import many_axes
from lazyt.ops.checks import checked
from lazyt.tracing.autocast import autocasts
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.functions.arguments import ArrayLike, AxisLike
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "average",
    "median",
    "nanmedian",
    "nanpercentile",
    "nanquantile",
    "percentile",
    "quantile",
]

# The continuous methods of Hyndman and Fan, "Sample Quantiles in Statistical Packages" (1996): alpha and beta of the
# position n q + alpha + q (1 - alpha - beta), counted from 1.
_CONTINUOUS = {
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "linear": (1.0, 1.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
_DISCRETE = ("inverted_cdf", "closest_observation", "lower", "higher", "nearest")
METHODS = (*_CONTINUOUS, *_DISCRETE, "averaged_inverted_cdf", "midpoint")


def _positions(method: str, n: Any, q: Any) -> tuple[Any, Any]:
    """Where the quantile stands among n sorted elements: the lower neighbour's index, and the weight of the upper.

    On arrays of NumPy's (n is known) or on tensors; the weight is None for a method that chooses one element.
    """
    deferred = isinstance(n, Handle)
    low, high, near, pick = (floor, ceil, round, where) if deferred else (np.floor, np.ceil, np.round, np.where)
    at = (n - 1) * q
    match method:
        case "lower":
            return low(at), None
        case "higher":
            return high(at), None
        case "nearest":
            return near(at), None
        case "inverted_cdf" | "closest_observation":
            at = n * q - (1.5 if method == "closest_observation" else 1.0)
            before = low(at)
            stays = at == before if method == "inverted_cdf" else (at == before) & (before % 2 == 1)
            return pick(stays, before, before + 1), None
        case "midpoint":
            return low(at), pick(at == low(at), 0.0, 0.5)
        case "averaged_inverted_cdf":
            at = n * q - 1.0
            return low(at), pick(at < 0, 0.0, pick(at == low(at), 0.5, 1.0))
    alpha, beta = _CONTINUOUS[method]
    if method != "linear":
        at = n * q + (alpha + q * (1 - alpha - beta)) - 1
    # Beyond the first and the last element there is nothing to interpolate with.
    at = clip(at, 0.0, None) if deferred else np.maximum(at, 0.0)
    return low(at), at - low(at)


def _lanes(name: str, a: Any, axis: AxisLike) -> tuple[Tensor, tuple[int, ...], tuple[int, ...]]:
    """x with what is reduced as its one last axis; the shape that is left, and that with keepdims."""
    t = tensor(a)
    at = many_axes(name, axis, t.ndim)
    left = tuple(n for i, n in enumerate(t.shape) if i not in at)
    kept = tuple(1 if i in at else n for i, n in enumerate(t.shape))
    n = int(np.prod([t.shape[i] for i in at], dtype=np.int64))
    if at != (t.ndim - 1,):
        t = reshape(moveaxis(t, at, tuple(range(t.ndim - len(at), t.ndim))), (*left, n))
    return t, left, kept


def _interpolate(low: Tensor, high: Tensor, weight: Any) -> Tensor:
    """low + (high - low) weight, computed from the nearer end so that equal ends give themselves."""
    d = high - low
    return where(weight >= 0.5, high - d * (1 - weight), low + d * weight)


def _halfway(low: Tensor, high: Tensor, weight: Any) -> Tensor:
    """low, or the mean of both where the weight is 1/2: an infinity beside the middle element has no part in it."""
    d = low.dtype
    wide = dtypes.computed_in(d)
    both = divide(astype(low, wide, copy=False) + astype(high, wide, copy=False), 2)
    return where(weight > 0, astype(both, d, copy=False), low)


def _quantile(
    name: str, a: Any, q: Any, axis: AxisLike, method: str, keepdims: bool, scale: float = 1.0, skip: bool = False,
    join: Callable[[Tensor, Tensor, Any], Tensor] = _interpolate,
) -> Tensor:  # fmt: skip
    weak = type(q) in (int, float)
    narrow = weak or (isinstance(q, Handle) and q.dtype == dtypes.float32)
    t, left, kept = _lanes(name, tensor(a, result=None if narrow else dtypes.float64), axis)
    if method not in METHODS:
        raise NotSupportedError(
            f"{name}: not supported: method {method!r}, because there are only {', '.join(METHODS)}"
        )
    if dtypes.kind(t.dtype) in "bc":
        raise DTypeError(f"{name}: an array of real numbers is required, got {t.dtype}")
    n = t.shape[-1]
    if not n:
        raise ShapeError(f"{name}: a quantile of no elements")
    deferred = isinstance(q, Handle)
    if not deferred:
        q = np.asarray(q, np.float64) / scale
        if not ((q >= 0) & (q <= 1)).all():
            raise ShapeError(f"{name}: quantiles lie between 0 and {scale:g}")
        shape: tuple[int, ...] = q.shape
    else:
        weak, q = q.dtype == t.dtype, divide(astype(q, dtypes.float64), scale)
        shape = q.shape
    d = t.dtype
    if method not in _DISCRETE:
        d = dtypes.float64 if dtypes.kind(d) != "f" else d if weak else dtypes.promote(d, dtypes.float64)
    missing = isnan(t) if dtypes.kind(t.dtype) == "f" else None
    s = sort(t)
    if not skip and not deferred:
        before, weight = _positions(method, n, q)
        index = np.clip(before, 0, n - 1).astype(np.int64)
        out = _at(s, index)
        if weight is not None:
            above = _at(s, np.minimum(index + 1, n - 1))
            weight = tensor(np.reshape(weight, (*shape, *(1,) * len(left))).astype(d), out)
            out = join(astype(out, d, copy=False), astype(above, d, copy=False), weight)
    else:
        out = _by_count(s, missing if skip else None, q, method, n, d, join)
    if missing is not None and not skip:
        # A NaN among the elements is the result.
        out = where(reductions.any(missing, axis=-1), float("nan"), out)
    elif missing is not None:
        out = where(reductions.all(missing, axis=-1), float("nan"), out)
    return reshape(out, (*shape, *kept)) if keepdims else reshape(out, (*shape, *left))


def _at(s: Tensor, index: np.ndarray[Any, Any]) -> Tensor:
    """The elements at these positions of the last axis, the axes of `index` first."""
    if not index.ndim:
        return getitem(s, (..., int(index)))
    out = take(s, index.reshape(-1), axis=-1)
    return reshape(moveaxis(out, -1, 0), (*index.shape, *s.shape[:-1]))


def _by_count(
    s: Tensor, missing: Tensor | None, q: Any, method: str, n: int, d: np.dtype,
    join: Callable[[Tensor, Tensor, Any], Tensor],
) -> Tensor:  # fmt: skip
    """Quantiles among as many elements of each lane as are not missing, which sort last; the axes of q first."""
    lanes = s.shape[:-1]
    count = tensor(np.full((), n, np.int64), s) if missing is None else reductions.sum(~missing, axis=-1)
    q = tensor(q, s)
    spread = reshape(q, (*q.shape, *(1,) * len(lanes)))
    before, weight = _positions(method, astype(count, dtypes.float64), spread)
    full = (*q.shape, *lanes)
    last = count - 1

    def pick(index: Tensor) -> Tensor:
        # An empty lane has no element: its first stands in, and is replaced.
        at = clip(clip(index, None, last), 0, None)
        at = reshape(broadcast_to(at, full), (q.size, *lanes))
        return reshape(moveaxis(take_along_axis(s, moveaxis(at, 0, -1), axis=-1), -1, 0), full)

    index = clip(astype(before, dtypes.int64), 0, None)
    out = pick(index)
    if weight is None:
        return out
    return join(astype(out, d, copy=False), astype(pick(index + 1), d, copy=False), astype(weight, d, copy=False))


@autocasts("quantile")
def quantile(
    a: ArrayLike, q: ArrayLike, axis: AxisLike = None, *, method: str = "linear", keepdims: bool = False
) -> Tensor:
    """The q-quantiles (0 to 1) of the elements along `axis`, the axes of q first; NaN where one is among them.

    `method` is one of NumPy's. Raises ShapeError for a q out of range or nothing to choose from, DTypeError for bool
    and complex arrays. As `numpy.quantile`.

    >>> import lazyt as lt
    >>> lt.quantile(lt.asarray([1.0, 2.0, 3.0, 4.0]), 0.5).item()
    2.5
    """
    return _quantile("quantile", a, q, axis, method, keepdims)


def percentile(
    a: ArrayLike, q: ArrayLike, axis: AxisLike = None, *, method: str = "linear", keepdims: bool = False
) -> Tensor:
    """`quantile` with q from 0 to 100. As `numpy.percentile`.

    >>> import lazyt as lt
    >>> lt.percentile(lt.asarray([1.0, 2.0, 3.0, 4.0]), [0, 50]).tolist()
    [1.0, 2.5]
    """
    return _quantile("percentile", a, q, axis, method, keepdims, scale=100.0)


def median(a: ArrayLike, axis: AxisLike = None, *, keepdims: bool = False) -> Tensor:
    """The element in the middle, or the mean of the two; NaN where one is among the elements. As `numpy.median`.

    >>> import lazyt as lt
    >>> lt.median(lt.asarray([[3, 1, 2], [4, 6, 5]]), axis=1).tolist()
    [2.0, 5.0]
    """
    return _middle("median", a, axis, keepdims, False)


@autocasts("nanquantile")
def nanquantile(
    a: ArrayLike, q: ArrayLike, axis: AxisLike = None, *, method: str = "linear", keepdims: bool = False
) -> Tensor:
    """`quantile` of what is not NaN, NaN where nothing else is. As `numpy.nanquantile`.

    >>> import lazyt as lt
    >>> lt.nanquantile(lt.asarray([1.0, float("nan"), 3.0]), 0.5).item()
    2.0
    """
    return _quantile("nanquantile", a, q, axis, method, keepdims, skip=True)


def nanpercentile(
    a: ArrayLike, q: ArrayLike, axis: AxisLike = None, *, method: str = "linear", keepdims: bool = False
) -> Tensor:
    """`percentile` of what is not NaN, NaN where nothing else is. As `numpy.nanpercentile`.

    >>> import lazyt as lt
    >>> lt.nanpercentile(lt.asarray([1.0, float("nan"), 3.0]), 50).item()
    2.0
    """
    return _quantile("nanpercentile", a, q, axis, method, keepdims, scale=100.0, skip=True)


def nanmedian(a: ArrayLike, axis: AxisLike = None, *, keepdims: bool = False) -> Tensor:
    """`median` of what is not NaN, NaN where nothing else is. As `numpy.nanmedian`.

    >>> import lazyt as lt
    >>> lt.nanmedian(lt.asarray([1.0, float("nan"), 3.0])).item()
    2.0
    """
    return _middle("nanmedian", a, axis, keepdims, True)


def _middle(name: str, a: Any, axis: AxisLike, keepdims: bool, skip: bool) -> Tensor:
    t = tensor(a)
    if dtypes.kind(t.dtype) == "b":
        t = astype(t, dtypes.float64)
    if not t.size and dtypes.kind(t.dtype) != "c":
        # NumPy's mean of no elements.
        f: Callable[..., Tensor] = reductions.mean
        return f(t, axis=axis, keepdims=keepdims)
    return _quantile(name, t, 0.5, axis, "linear", keepdims, skip=skip, join=_halfway)


def average(
    a: ArrayLike,
    axis: AxisLike = None,
    weights: ArrayLike | None = None,
    returned: bool = False,
    *,
    keepdims: bool = False,
) -> Any:
    """The mean along `axis` by weights (of a's shape, or of that of `axis`); with `returned` a pair with their sum.

    Raises ShapeError for weights of another shape; ZeroWeights, a ZeroDivisionError, at the sync for weights that add
    up to 0. As `numpy.average`.

    >>> import lazyt as lt
    >>> lt.average(lt.asarray([1.0, 2.0]), weights=lt.asarray([3.0, 1.0])).item()
    1.25
    """
    t, w = (tensor(a), None) if weights is None else tensors((a, weights))
    if w is None:
        out = reductions.mean(t, axis=axis, keepdims=keepdims)
        n = t.size // max(out.size, 1)
        total = broadcast_to(tensor(np.asarray(n, out.dtype), out), out.shape)
        return (out, total) if returned else out
    d = dtypes.promote(dtypes.promote(t.dtype, w.dtype), dtypes.float64 if dtypes.kind(t.dtype) in "biu" else t.dtype)
    if w.shape != t.shape:
        if axis is None:
            raise ShapeError(f"average: an axis is required for weights of shape {w.shape} beside {t.shape}")
        at = many_axes("average", axis, t.ndim)
        if w.shape != tuple(t.shape[i] for i in at):
            raise ShapeError(f"average: weights of shape {w.shape} do not match the axes {at} of {t.shape}")
        if list(at) != sorted(at):
            w = moveaxis(w, tuple(range(w.ndim)), tuple(sorted(at).index(i) for i in at))
        w = reshape(w, tuple(n if i in at else 1 for i, n in enumerate(t.shape)))
    w = broadcast_to(astype(w, d, copy=False), t.shape)
    total = reductions.sum(w, axis=axis, keepdims=keepdims)
    total = record(checked("average"), (total, equal(total, 0)))
    out = divide(reductions.sum(multiply(astype(t, d, copy=False), w), axis=axis, keepdims=keepdims), total)
    return (out, total) if returned else out
