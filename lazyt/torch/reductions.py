"""PyTorch's reductions, orders and extremes: along `dim`, with (values, indices) where PyTorch has both.

Sources: the pages of torch 2.13, by name.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import lazyt as lt
from lazyt.errors import ShapeError
from lazyt.functions import softmaxes
from lazyt.ir import dtypes
from lazyt.torch.scalars import axes_of, extent_of, of_scalars, tuple_of
from lazyt.torch.shapes import narrow

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.runtime.tensor import Tensor

__all__ = [
    "all",
    "amax",
    "amin",
    "aminmax",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "bincount",
    "corrcoef",
    "count_nonzero",
    "cov",
    "cumprod",
    "cumsum",
    "dist",
    "equal",
    "gradient",
    "histc",
    "kthvalue",
    "log_softmax",
    "logsumexp",
    "max",
    "mean",
    "median",
    "min",
    "nanmean",
    "nanquantile",
    "nansum",
    "norm",
    "prod",
    "quantile",
    "softmax",
    "sort",
    "std",
    "std_mean",
    "sum",
    "topk",
    "trace",
    "unique",
    "var",
    "var_mean",
]


class Extremes(NamedTuple):
    """Values along an axis, and where they stand."""

    values: Tensor
    indices: Tensor


class MinMax(NamedTuple):
    """The least and the greatest values."""

    min: Tensor
    max: Tensor


def _extreme(name: str, of_two: Callable[..., Any]) -> Callable[..., Any]:
    values, places = getattr(lt, name), getattr(lt, f"arg{name}")

    @of_scalars
    def along(input: Any, dim: int, keepdim: bool) -> Extremes:
        # NOTE: the places take their values, so the two agree where there are NaNs and equals.
        where = places(input, axis=dim, keepdims=True)
        found = lt.take_along_axis(input, where, axis=dim)
        return Extremes(*((found, where) if keepdim else (lt.squeeze(found, dim), lt.squeeze(where, dim))))

    def f(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return values(input)
        return along(input, dim, keepdim) if isinstance(dim, int) else of_two(input, dim)

    f.__doc__ = f"The {name}imum of all; (values, indices) along an axis; element by element of two tensors."
    f.__name__ = f.__qualname__ = name
    return f


max = _extreme("max", lt.maximum)
min = _extreme("min", lt.minimum)


def aminmax(input: Any, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """The least and the greatest values, along an axis or of all."""
    along = axes_of("aminmax", input, dim)
    return MinMax(lt.min(input, axis=along, keepdims=keepdim), lt.max(input, axis=along, keepdims=keepdim))


@of_scalars
def sort(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Extremes:
    """The values in order along an axis, and where they stood; equal ones stay in their order."""
    where = lt.argsort(input, axis=dim, descending=descending)
    return Extremes(lt.take_along_axis(input, where, axis=dim), where)


@of_scalars
def argsort(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Where the values in order stand."""
    return lt.argsort(input, axis=dim, descending=descending)


@of_scalars
def topk(input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The k greatest, or least, values along an axis, and where they stand."""
    return lt.topk(input, k, axis=dim, largest=largest, sorted=sorted)


@of_scalars
def kthvalue(input: Any, k: int, dim: int = -1, keepdim: bool = False) -> Extremes:
    """The k-th least value along an axis, counted from 1, and where it stands."""
    n = extent_of("kthvalue", input, dim)
    if not 1 <= k <= n:
        raise ShapeError(f"kthvalue: k is between 1 and {n}, got {k}")
    found = [narrow(x, dim, k - 1, 1) for x in sort(input, dim)]
    return Extremes(*((x if keepdim else lt.squeeze(x, axis=dim)).clone() for x in found))


def median(input: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower of the two values in the middle: of all, or (values, indices) along an axis. NaN where there is one.

    Of no elements NaN, or the least integer.
    """
    if dim is None:
        if not input.size:
            none = math.nan if is_floats(input) else lt.iinfo(input.dtype).min
            return lt.full((), none, dtype=input.dtype, device=input.device)
        return median(lt.reshape(input, (-1,)), 0).values
    if is_floats(input):
        return _median(input, dim, keepdim)
    return kthvalue(input, (extent_of("median", input, dim) + 1) // 2, dim, keepdim)


def is_floats(x: Any) -> bool:
    return dtypes.kind(x.dtype) == "f"


@of_scalars
def _median(x: Any, dim: int, keepdim: bool) -> Extremes:
    found = kthvalue(x, (extent_of("median", x, dim) + 1) // 2, dim, True)
    missing = lt.isnan(x)
    where = lt.where(
        lt.any(missing, axis=dim, keepdims=True), lt.argmax(missing, axis=dim, keepdims=True), found.indices
    )
    values = lt.take_along_axis(x, where, axis=dim)
    return Extremes(*((values, where) if keepdim else (lt.squeeze(values, dim), lt.squeeze(where, dim))))


# What adds up or multiplies: of unsigned integers too, in int64, which NumPy has uint64 for.
_TOTALS = frozenset(("sum", "prod", "nansum"))


def _total(x: Any, dtype: Any) -> Any:
    """The dtype of a sum or product."""
    return dtypes.int64 if dtype is None and dtypes.kind(x.dtype) == "u" else dtype


def _reduced(name: str) -> Callable[..., Any]:
    of_lazyt, totals = getattr(lt, name), name in _TOTALS

    def f(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        if totals:
            dtype = _total(input, dtype)
        options = {} if dtype is None else {"dtype": dtype}
        return of_lazyt(input, axis=axes_of(name, input, dim), keepdims=keepdim, **options)

    f.__doc__ = f"As `lazyt.{name}`, along `dim`."
    f.__name__ = f.__qualname__ = name
    return f


sum, mean, prod, nansum, nanmean = map(_reduced, ("sum", "mean", "prod", "nansum", "nanmean"))
amax, amin, argmax, argmin = map(_reduced, ("amax", "amin", "argmax", "argmin"))


def _truth(name: str) -> Callable[..., Any]:
    of_elements = _reduced(name)

    def f(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
        found = of_elements(input, dim, keepdim)
        return lt.astype(found, dtypes.uint8) if input.dtype == dtypes.uint8 else found

    f.__doc__ = f"As `lazyt.{name}`, along `dim`; of bytes a byte, else a bool."
    f.__name__ = f.__qualname__ = name
    return f


all, any = map(_truth, ("all", "any"))
count_nonzero, logsumexp = map(_reduced, ("count_nonzero", "logsumexp"))


@of_scalars
def cumsum(input: Any, dim: int, *, dtype: Any = None) -> Tensor:
    """Running sums along an axis; of integers in int64."""
    return lt.cumsum(input, dim, dtype=_total(input, dtype))


@of_scalars
def cumprod(input: Any, dim: int, *, dtype: Any = None) -> Tensor:
    """Running products along an axis; of integers in int64."""
    return lt.cumprod(input, dim, dtype=_total(input, dtype))


@of_scalars
def softmax(input: Any, dim: int, dtype: Any = None) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis, of x cast to `dtype` before."""
    return softmaxes.softmax(input, dim, dtype=dtype)


@of_scalars
def log_softmax(input: Any, dim: int, dtype: Any = None) -> Tensor:
    """log(softmax(x)) along an axis, of x cast to `dtype` before."""
    return softmaxes.log_softmax(input, dim, dtype=dtype)


def trace(input: Any) -> Tensor:
    """The sum of a matrix's diagonal; of integers in int64."""
    if input.ndim != 2:
        raise ShapeError(f"trace: 2 dimensions are required, got {input.ndim}")
    return lt.trace(input, dtype=_total(input, None))


def _spread(name: str) -> Callable[..., Any]:
    of_lazyt = getattr(lt, name)

    def f(
        input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: float | None = None
    ) -> Any:  # fmt: skip
        if isinstance(dim, bool):  # x.std(False)
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None else int(unbiased)
        return of_lazyt(input, axis=axes_of(name, input, dim), correction=correction, keepdims=keepdim)

    f.__doc__ = f"As `lazyt.{name}`, divided by n - 1 unless `unbiased` is False or `correction` is given."
    f.__name__ = f.__qualname__ = name
    return f


std, var = map(_spread, ("std", "var"))


def std_mean(
    input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: float | None = None
) -> tuple[Tensor, Tensor]:
    """The standard deviation, as `std` computes it, and the mean."""
    axes = None if isinstance(dim, bool) else dim
    return std(input, dim, unbiased, keepdim, correction=correction), mean(input, axes, keepdim)


def var_mean(
    input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: float | None = None
) -> tuple[Tensor, Tensor]:
    """The variance, as `var` computes it, and the mean."""
    axes = None if isinstance(dim, bool) else dim
    return var(input, dim, unbiased, keepdim, correction=correction), mean(input, axes, keepdim)


def norm(input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The p-norm of all elements, or along axes, of the input cast to `dtype` before; 'nuc' is that of matrices."""
    if dtype is not None:
        input = lt.astype(input, dtype, copy=False)
    order = 2 if p == "fro" else p
    if order == "nuc":
        return lt.linalg.norm(input, "nuc", (0, 1) if dim is None else tuple_of(dim), keepdim)
    return lt.linalg.vector_norm(input, axis=axes_of("norm", input, dim), keepdims=keepdim, ord=order)


def dist(input: Any, other: Any, p: float = 2) -> Tensor:
    """The p-norm of a difference."""
    return norm(input - other, p)


def _of_input(found: Tensor, input: Any) -> Tensor:
    """What is computed in float64 in the input's dtype; of integers in float32."""
    return lt.astype(found, input.dtype if dtypes.kind(input.dtype) in "fc" else dtypes.float32)


def cov(input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Tensor:
    """The covariance of rows, divided by n - correction, in the input's dtype."""
    return _of_input(lt.cov(input, ddof=correction, fweights=fweights, aweights=aweights), input)


def corrcoef(input: Any) -> Tensor:
    """The correlation coefficients of rows, in the input's dtype."""
    return _of_input(lt.corrcoef(input), input)


def quantile(
    input: Any, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:  # fmt: skip
    """Quantiles of all elements, or along an axis."""
    return lt.quantile(input, q, axes_of("quantile", input, dim), method=interpolation, keepdims=keepdim)


def nanquantile(
    input: Any, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:  # fmt: skip
    """Quantiles of what is not NaN, of all elements or along an axis."""
    return lt.nanquantile(input, q, axes_of("nanquantile", input, dim), method=interpolation, keepdims=keepdim)


def gradient(input: Any, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """Differences of neighbours by their distance: one tensor an axis."""
    steps = spacing if isinstance(spacing, list | tuple) else (spacing,)
    found = lt.gradient(input, *steps, axis=tuple_of(dim), edge_order=edge_order)
    return tuple(found) if isinstance(found, list | tuple) else (found,)


def bincount(input: Any, weights: Any = None, minlength: int = 0) -> Tensor:
    """How often each integer occurs, or the sum of its weights."""
    found = lt.bincount(input, weights, minlength)
    if weights is None:
        return found
    # NOTE: as PyTorch: sums are float64 but for those of float32.
    return lt.astype(found, dtypes.float32 if weights.dtype == dtypes.float32 else dtypes.float64, copy=False)


def histc(input: Any, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many values each of equal bins between two bounds has; those of the input by default."""
    # NOTE: equal bounds mean the least and the greatest value, as in PyTorch.
    counts, _ = lt.histogram(input, bins, None if min == max else (min, max))
    return lt.astype(counts, input.dtype)


def unique(
    input: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:  # fmt: skip
    """The values that occur, in order; with where each element's is, and how often: a sync, for their number."""
    return lt.unique(input, return_inverse=return_inverse, return_counts=return_counts, axis=dim)


def equal(input: Any, other: Any) -> bool:
    """Whether two tensors have one shape and equal elements: a sync."""
    return bool(lt.array_equal(input, other))
