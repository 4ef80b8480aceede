"""Counts of elements in bins over several axes, and the bins' edges."""

from __future__ import annotations

from functools import cache
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.functions.arguments import tensor, tensors
from lazyt.functions.joining import stack
from lazyt.functions.numpy_calls import record_numpy, refuse_gradient
from lazyt.functions.reductions import max, min
from lazyt.functions.searching import host
from lazyt.ir import dtypes
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from lazyt.functions.arguments import ArrayLike
    from lazyt.runtime.tensor import Tensor

# Of so few elements NumPy finds the range as fast.
FEW = 1024

__all__ = ["histogram", "histogram2d", "histogram_bin_edges", "histogramdd"]


def histogram(
    a: ArrayLike, bins: Any = 10, range: Any = None, density: bool = False, weights: Any = None
) -> tuple[Tensor, Tensor]:
    """The numbers of elements in each bin (sums of weights, densities), and the bins' edges.

    Runs in NumPy when computed, where a range that is not finite raises; a rule's name ('auto', ...) for `bins`
    computes now. As `numpy.histogram`.

    >>> import lazyt as lt
    >>> lt.histogram(lt.asarray([0.0, 1.0, 1.0]), bins=2)[0].tolist()
    [1, 2]
    """
    if isinstance(bins, str):
        bins = histogram_bin_edges(a, bins, range, weights)
    t, edges, w = _beside("histogram", a, bins, weights, dtypes.float64 if density else None)
    n = edges.size - 1 if isinstance(edges, Handle) else int(edges)
    d: Any = np.float64 if density else np.int64 if w is None else w.dtype
    edge = edges.dtype if isinstance(edges, Handle) else t.dtype if dtypes.kind(t.dtype) == "f" else dtypes.float64
    options = {"range": _pair(range), "density": bool(density), "weights": w}
    found: tuple[Tensor, Tensor] = record_numpy(
        "numpy.histogram", np.histogram, (t, edges), options, [((n,), d), ((n + 1,), edge)]
    )
    return found


@cache
def _edge_dtype(dtype: np.dtype) -> np.dtype:
    return np.histogram_bin_edges(np.zeros(2, dtype), 1).dtype


def histogram_bin_edges(a: ArrayLike, bins: Any = 10, range: Any = None, weights: Any = None) -> Tensor:
    """The edges of `histogram`'s bins: deferred for a number of bins; a rule's name ('auto', ...) computes.

    As `numpy.histogram_bin_edges`.

    >>> import lazyt as lt
    >>> lt.histogram_bin_edges(lt.asarray([0.0, 1.0]), bins=2).tolist()
    [0.0, 0.5, 1.0]
    """
    if isinstance(bins, str):
        refuse_gradient("numpy.histogram_bin_edges", (a,))
        return tensor(np.histogram_bin_edges(host(a, "histogram_bin_edges"), bins, range, weights))
    t, edges, _ = _beside("histogram_bin_edges", a, bins)
    n = int(edges) + 1 if isinstance(edges, int | np.integer) else edges.size
    d = _edge_dtype(t.dtype) if isinstance(edges, int | np.integer) else edges.dtype
    if isinstance(edges, int) and range is None and t.size > FEW and dtypes.kind(t.dtype) in "fiu":
        t = stack([min(t), max(t)])  # which is all that NumPy asks of the elements
    return record_numpy(  # type: ignore[no-any-return]
        "numpy.histogram_bin_edges", np.histogram_bin_edges, (t, edges), {"range": _pair(range)}, [((n,), d)]
    )


def _pair(range: Any) -> Any:
    return None if range is None else tuple(range)


def _beside(name: str, a: ArrayLike, bins: Any, weights: Any = None, result: Any = None) -> tuple[Tensor, Any, Any]:
    """The data, how many bins or their edges, and the weights: numbers as wide as what they give together."""
    bins = _number(bins)
    count = _count(name, bins) if isinstance(bins, int | np.integer) else None
    given = [x for x in (a, bins if count is None else None, weights) if x is not None]
    t, *more = tensors(given, result)
    return t, more[0] if count is None else count, None if weights is None else more[-1]


def _edges(name: str, bins: Any) -> Any:
    """The number of bins, or their edges."""
    bins = _number(bins)
    return _count(name, bins) if isinstance(bins, int | np.integer) else tensor(bins, result=dtypes.float64)


def _number(bins: Any) -> Any:
    """`bins`, but that a 0-d array is the integer in it (a tensor is asked for its value now)."""
    return index(bins) if isinstance(bins, Handle | np.ndarray) and not bins.ndim else bins


def _count(name: str, bins: Any) -> int:
    if bins < 1:
        raise ShapeError(f"{name}: a number of bins is at least 1, got {bins}")
    return int(bins)


def _bins(name: str, bins: Any, rank: int) -> list[Any]:
    """One number of bins or vector of edges an axis."""
    bins = _number(bins)
    if isinstance(bins, int | np.integer):
        return [_count(name, bins)] * rank
    if len(bins) != rank:
        raise ShapeError(f"{name}: {len(bins)} bins for {rank} axes")
    return [_edges(name, b) for b in bins]


def _many(name: str, function: Any, operands: tuple[Any, ...], every: list[Any], options: dict[str, Any]) -> Any:
    counts = [b if isinstance(b, int) else b.size - 1 for b in every]
    edges = [((n + 1,), np.float64) for n in counts]
    return record_numpy(name, function, (*operands, every), options, [(tuple(counts), np.float64), *edges])


def _histogramdd(sample: Any, bins: Any, **options: Any) -> list[Any]:
    found, edges = np.histogramdd(sample, bins, **options)
    return [found, *edges]


def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: bool = False, weights: Any = None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """How many points, rows of (n, d), fall into each bin of a d-dimensional grid; and the edges along each axis.

    Runs in NumPy when computed. Raises ShapeError for bins that do not match. As `numpy.histogramdd`.

    >>> import lazyt as lt
    >>> lt.histogramdd(lt.asarray([[0.0, 0.0], [1.0, 1.0]]), bins=2)[0].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    refuse_gradient("numpy.histogramdd", sample if isinstance(sample, list | tuple) else (sample,))
    points = (
        tensor(sample, result=dtypes.float64)
        if not isinstance(sample, list | tuple)
        else tensor(np.stack([host(tensor(s, result=dtypes.float64), "histogramdd") for s in sample], -1))
    )
    if points.ndim != 2:
        raise ShapeError(f"histogramdd: points of shape (n, d) are required, got {points.shape}")
    options: dict[str, Any] = {"range": range if range is None else tuple(map(_pair, range)), "density": bool(density)}
    if weights is not None:
        options["weights"] = tensor(weights, result=dtypes.float64)
    every = _bins("histogramdd", bins, points.shape[1])
    found, *edges = _many("numpy.histogramdd", _histogramdd, (points,), every, options)
    return found, tuple(edges)


def histogram2d(
    x: ArrayLike, y: ArrayLike, bins: Any = 10, range: Any = None, density: bool = False, weights: Any = None
) -> tuple[Tensor, Tensor, Tensor]:
    """How many points (x, y) fall into each bin of a grid; and the edges along both axes. As `numpy.histogram2d`.

    Runs in NumPy when computed. Raises ShapeError unless x and y are vectors of one length.

    >>> import lazyt as lt
    >>> lt.histogram2d(lt.asarray([0.0, 1.0]), lt.asarray([0.0, 1.0]), bins=2)[0].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    a, b = tensors((x, y), dtypes.float64)
    if a.ndim != 1 or a.shape != b.shape:
        raise ShapeError(f"histogram2d: vectors of one length are required, got shapes {a.shape} and {b.shape}")
    options: dict[str, Any] = {"range": range if range is None else tuple(map(_pair, range)), "density": bool(density)}
    if weights is not None:
        options["weights"] = tensor(weights, result=dtypes.float64)
    bins = _number(bins)
    if not isinstance(bins, int | np.integer) and len(bins) not in (1, 2):
        bins = [tensor(bins, result=dtypes.float64)] * 2  # one vector of edges for both axes
    every = _bins("histogram2d", bins, 2)
    found: tuple[Tensor, Tensor, Tensor] = _many("numpy.histogram2d", np.histogram2d, (a, b), every, options)
    return found
