"""Maximum pooling over windows at places drawn at random (Graham, "Fractional max-pooling", 2014)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions.arguments import tensor
from lazyt.functions.arithmetic import add, multiply, subtract
from lazyt.functions.creation import arange
from lazyt.functions.elementwise import floor
from lazyt.functions.indexing import take_along_axis
from lazyt.functions.logic import equal, where
from lazyt.functions.manipulation import astype, broadcast_to, expand_dims, reshape, squeeze
from lazyt.functions.random import random
from lazyt.functions.reductions import argmax
from lazyt.functions.subscript import getitem
from lazyt.functions.windows import Size, each
from lazyt.ir import dtypes
from lazyt.tracing.autocast import autocasts

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
]

Ratio = float | tuple[float, ...]


def counts_of(name: str, rank: int, output_size: Any, output_ratio: Any, dims: tuple[int, ...]) -> tuple[int, ...]:
    """How many windows each axis has."""
    if (output_size is None) == (output_ratio is None):
        raise ShapeError(f"{name}: give output_size or output_ratio, got {output_size} and {output_ratio}")
    if output_size is not None:
        return each(name, "output_size", output_size, rank, 1)
    ratios = tuple(output_ratio) if isinstance(output_ratio, tuple | list) else (output_ratio,) * rank
    if len(ratios) != rank or any(not 0 < r < 1 for r in ratios):
        raise ShapeError(f"{name}: output_ratio is one or {rank} numbers between 0 and 1, got {output_ratio}")
    return tuple(int(d * r) for d, r in zip(dims, ratios, strict=True))


def _starts(sample: Tensor, extent: int, count: int, size: int) -> Tensor:
    """(N, C, count): where each window begins; the last one ends with the axis."""
    number = arange(count, dtype=sample.dtype, device=sample.device)
    alpha = (extent - size) / (count - 1) if count > 1 else 0.0
    u = expand_dims(sample, -1)
    begin = subtract(floor(multiply(add(number, u), alpha)), floor(multiply(u, alpha)))
    return astype(where(equal(number, count - 1), extent - size, begin), dtypes.int64)


def _pooled(
    rank: int, x: Any, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Any
) -> tuple[Tensor, Tensor]:
    name, t = f"fractional_max_pool{rank}d", tensor(x)
    if t.ndim not in (rank + 1, rank + 2):
        raise ShapeError(f"{name}: an input of {rank + 1} or {rank + 2} dimensions is required, got shape {t.shape}")
    lone = t.ndim == rank + 1
    v = expand_dims(t, 0) if lone else t
    dims, sizes = v.shape[2:], each(name, "kernel_size", kernel_size, rank, 1)
    counts = counts_of(name, rank, output_size, output_ratio, dims)
    if any(n < 1 or n + k - 1 > d for n, k, d in zip(counts, sizes, dims, strict=True)):
        raise ShapeError(f"{name}: {counts} windows of {sizes} do not fit into shape {t.shape}")
    shape = (*v.shape[:2], rank)
    if samples is None:
        drawn = random(shape, dtype=v.dtype, device=v.device)
    elif (drawn := tensor(samples)).shape != shape:
        raise ShapeError(f"{name}: random samples of shape {shape} are required, got {drawn.shape}")
    flat: Any = None
    for i, (d, n, k) in enumerate(zip(dims, counts, sizes, strict=True)):
        # NOTE: as in PyTorch, over two axes the first sample is the last axis's.
        sample = getitem(drawn, (..., rank - 1 - i if rank == 2 else i))
        ones = (1,) * rank
        begin = reshape(_starts(sample, d, n, k), (*shape[:2], *ones[:i], n, *ones[i + 1 :], *ones))
        within = reshape(arange(k, device=v.device), (*ones, *ones[:i], k, *ones[i + 1 :]))
        at = add(begin, within)
        flat = at if flat is None else add(multiply(flat, d), at)
    window, places = math.prod(sizes), math.prod(counts)
    whole = reshape(broadcast_to(flat, (*shape[:2], *counts, *sizes)), (*shape[:2], places, window))
    parts = take_along_axis(reshape(v, (*shape[:2], math.prod(dims))), reshape(whole, (*shape[:2], -1)), axis=-1)
    parts = reshape(parts, whole.shape)
    best = argmax(parts, axis=-1, keepdims=True)
    found = (reshape(take_along_axis(a, best, axis=-1), (*shape[:2], *counts)) for a in (parts, whole))
    values, indices = (squeeze(a, 0) for a in found) if lone else found
    return values, indices


@autocasts("fractional_max_pool2d")
def fractional_max_pool2d(
    x: Any,
    kernel_size: Size,
    output_size: Size | None = None,
    output_ratio: Ratio | None = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:
    """The greatest elements of `output_size` windows of (N, C, H, W), or without N, at places drawn at random.

    `output_ratio` says how many windows there are for an element. With `return_indices` also where they are, in the
    flat order of the last two axes. `_random_samples` (N, C, 2) in [0, 1) decide instead of the generator. Raises
    ShapeError if the windows do not fit. As `torch.nn.functional.fractional_max_pool2d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.fractional_max_pool2d(lt.ones((1, 1, 5, 5)), 2, 3).shape
    (1, 1, 3, 3)
    """
    values, indices = _pooled(2, x, kernel_size, output_size, output_ratio, _random_samples)
    return (values, indices) if return_indices else values


@autocasts("fractional_max_pool2d")
def fractional_max_pool2d_with_indices(
    x: Any,
    kernel_size: Size,
    output_size: Size | None = None,
    output_ratio: Ratio | None = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> tuple[Tensor, Tensor]:
    """`fractional_max_pool2d` with indices. As `torch.nn.functional.fractional_max_pool2d_with_indices`.

    >>> import lazyt as lt
    >>> lt.nn.functional.fractional_max_pool2d_with_indices(lt.ones((1, 1, 5, 5)), 2, 3)[1].shape
    (1, 1, 3, 3)
    """
    return _pooled(2, x, kernel_size, output_size, output_ratio, _random_samples)


@autocasts("fractional_max_pool3d")
def fractional_max_pool3d(
    x: Any,
    kernel_size: Size,
    output_size: Size | None = None,
    output_ratio: Ratio | None = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:
    """The greatest elements of `output_size` windows of (N, C, D, H, W), or without N, at places drawn at random.

    `output_ratio` says how many windows there are for an element. With `return_indices` also where they are, in the
    flat order of the last three axes. `_random_samples` (N, C, 3) in [0, 1) decide instead of the generator. Raises
    ShapeError if the windows do not fit. As `torch.nn.functional.fractional_max_pool3d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.fractional_max_pool3d(lt.ones((1, 1, 5, 5, 5)), 2, 3).shape
    (1, 1, 3, 3, 3)
    """
    values, indices = _pooled(3, x, kernel_size, output_size, output_ratio, _random_samples)
    return (values, indices) if return_indices else values


@autocasts("fractional_max_pool3d")
def fractional_max_pool3d_with_indices(
    x: Any,
    kernel_size: Size,
    output_size: Size | None = None,
    output_ratio: Ratio | None = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> tuple[Tensor, Tensor]:
    """`fractional_max_pool3d` with indices. As `torch.nn.functional.fractional_max_pool3d_with_indices`.

    >>> import lazyt as lt
    >>> lt.nn.functional.fractional_max_pool3d_with_indices(lt.ones((1, 1, 5, 5, 5)), 2, 3)[1].shape
    (1, 1, 3, 3, 3)
    """
    return _pooled(3, x, kernel_size, output_size, output_ratio, _random_samples)
