"""What each result of a resampling reads, and with which weight, along one axis of known extents.

The positions are PyTorch's: the nearest ones are computed in float32 as there, the others in float64.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

# The parameter of cubic convolution, and of its filter for antialiasing.
CUBIC, CUBIC_FILTER = -0.75, -0.5


class Tables(NamedTuple):
    """(results, width) indices and weights, and (elements, shared) of the transposed map; 0 is no entry."""

    reads: np.ndarray
    weights: np.ndarray
    fed: np.ndarray
    shares: np.ndarray


@lru_cache(256)
def tables(mode: str, extent: int, count: int, align: bool, scale: float | None, antialias: bool) -> Tables:
    """For `count` results of an axis; `scale` is that of the results, where it was given."""
    if mode.startswith("nearest"):
        reads = nearest(mode, extent, count, scale)[:, None]
        weights = np.ones((count, 1))
    elif antialias:
        reads, weights = _filtered(mode, extent, count, _step(extent, count, align, scale))
    else:
        reads, weights = _interpolated(mode, extent, count, align, _step(extent, count, align, scale))
    return Tables(reads, weights, *_transposed(reads, weights, extent))


def nearest(mode: str, extent: int, count: int, scale: float | None) -> np.ndarray:
    """The element that each result is a copy of."""
    step = np.float32(1 / scale) if scale else np.float32(extent) / np.float32(count)
    at = np.arange(count)
    if mode == "nearest":
        if extent == count:
            return at
        found = np.floor(at.astype(np.float32) * step)
    else:
        found = np.floor(((at + 0.5) * np.float64(step)).astype(np.float32))
    return np.asarray(np.minimum(found.astype(np.int64), extent - 1))


def _step(extent: int, count: int, align: bool, scale: float | None) -> float:
    """From the position of one result to that of the next."""
    if align:
        return (extent - 1) / (count - 1) if count > 1 else 0.0
    return 1 / scale if scale else extent / count


def _interpolated(mode: str, extent: int, count: int, align: bool, step: float) -> tuple[np.ndarray, np.ndarray]:
    at = np.arange(count)
    cubic = mode == "bicubic"
    where = at * step if align else (at + 0.5) * step - 0.5
    if not cubic:
        where = np.maximum(where, 0)
    first = np.minimum(np.floor(where).astype(np.int64), extent - 1)
    t = np.clip(where - first, 0, 1)
    if not cubic:
        return np.stack([first, np.minimum(first + 1, extent - 1)], 1), np.stack([1 - t, t], 1)
    reads = np.clip(first[:, None] + np.arange(-1, 3), 0, extent - 1)
    return reads, np.stack([_cubic(t + 1, CUBIC), _cubic(t, CUBIC), _cubic(1 - t, CUBIC), _cubic(2 - t, CUBIC)], 1)


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    """Keys' kernel: piecewise cubic, 0 from a distance of 2 on."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _filtered(mode: str, extent: int, count: int, step: float) -> tuple[np.ndarray, np.ndarray]:
    """A filter that is as wide as a step, so that no element is passed over."""
    half = {"bilinear": 1.0, "bicubic": 2.0, "lanczos": 3.0}[mode] * max(step, 1.0)
    centre = (np.arange(count) + 0.5) * step
    first = np.maximum((centre - half + 0.5).astype(np.int64), 0)
    size = np.minimum((centre + half + 0.5).astype(np.int64), extent) - first
    offsets = np.arange(max(int(size.max(initial=1)), 1))
    x = (offsets + first[:, None] - centre[:, None] + 0.5) / max(step, 1.0)
    if mode == "lanczos":
        weights = np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)
    else:
        weights = _cubic(x, CUBIC_FILTER) if mode == "bicubic" else np.maximum(1 - np.abs(x), 0)
    weights = np.where(offsets < size[:, None], weights, 0)
    total = weights.sum(1, keepdims=True)
    return np.minimum(first[:, None] + offsets, extent - 1), weights / np.where(total == 0, 1, total)


def _transposed(reads: np.ndarray, weights: np.ndarray, extent: int) -> tuple[np.ndarray, np.ndarray]:
    """For each element the results that read it."""
    result = np.broadcast_to(np.arange(len(reads))[:, None], reads.shape)
    there = weights != 0
    element, result, weight = reads[there], result[there], weights[there]
    order = np.argsort(element, kind="stable")
    element, result, weight = element[order], result[order], weight[order]
    number = np.arange(len(element)) - np.searchsorted(element, element)
    width = int(number.max(initial=0)) + 1
    fed, shares = np.zeros((extent, width), np.int64), np.zeros((extent, width))
    fed[element, number], shares[element, number] = result, weight
    return fed, shares
