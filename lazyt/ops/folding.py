"""Windows of images as columns, and columns added up to images."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import ShapeError
from lazyt.ir import dtypes
from lazyt.ir.adjoints import fold as add_windows
from lazyt.ir.graph import Window
from lazyt.ir.symbolic import hint, product
from lazyt.ops import samples
from lazyt.ops.convolution import padded, require_windows
from lazyt.ops.definition import define, require_kind

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

Sizes = tuple[int, int]


def places(extents: Sizes, sizes: Sizes, dilations: Sizes, padding: Sizes, strides: Sizes) -> tuple[int, ...]:
    """How many windows there are along each axis of an image."""
    each = zip(extents, sizes, dilations, padding, strides, strict=True)
    return tuple((d + 2 * p - (k - 1) * e - 1) // s + 1 for d, k, e, p, s in each)


def unfold(b: Builder, x: Node, sizes: Sizes, dilations: Sizes, padding: Sizes, strides: Sizes) -> Node:
    if x.ndim not in (3, 4):
        raise ShapeError(f"unfold: an input (N, C, H, W) or (C, H, W) is required, got shape {_hints(x)}")
    v = x if x.ndim == 4 else b.reshape(x, (1, *x.shape))
    v = padded(b, v, tuple((p, p) for p in padding), 0)
    require_windows("unfold", v, sizes, dilations)
    windows = b.permute(b.window(v, (2, 3), sizes, strides, dilations), (0, 1, 4, 5, 2, 3))
    n, channels, *_, rows, cols = windows.shape
    y = b.reshape(windows, (n, product((channels, *sizes)), product((rows, cols))))
    return y if x.ndim == 4 else b.reshape(y, y.shape[1:])


def fold(b: Builder, x: Node, extents: Sizes, sizes: Sizes, dilations: Sizes, padding: Sizes, strides: Sizes) -> Node:
    require_kind("fold", x.dtype, "iufc", "a number dtype")
    if x.ndim not in (2, 3):
        raise ShapeError(f"fold: an input (N, C * kernel, L) or (C * kernel, L) is required, got shape {_hints(x)}")
    v = x if x.ndim == 3 else b.reshape(x, (1, *x.shape))
    counts, each = places(extents, sizes, dilations, padding, strides), math.prod(sizes)
    if hint(v.shape[1]) % each or min(counts) < 1 or hint(v.shape[2]) != math.prod(counts):
        raise ShapeError(
            f"fold: windows of {sizes} on an image of {extents} are (C * {each}, {' * '.join(map(str, counts))}), got "
            f"shape {_hints(x)}"
        )
    v = b.cast(v, dtypes.computed_in(v.dtype))
    b.same(v.shape[2], math.prod(counts))
    channels = v.shape[1] // each
    b.same(v.shape[1], channels * each)
    windows = b.permute(b.reshape(v, (v.shape[0], channels, *sizes, *counts)), (0, 1, 4, 5, 2, 3))
    larger = tuple(d + 2 * p for d, p in zip(extents, padding, strict=True))
    y = add_windows(b, windows, (v.shape[0], channels, *larger), Window((2, 3), sizes, strides, dilations))
    y = b.cast(b.slice(y, (0, 0, *padding), (*y.shape[:2], *extents), (1,) * 4), x.dtype)
    return y if x.ndim == 3 else b.reshape(y, y.shape[1:])


def _hints(x: Node) -> tuple[int, ...]:
    return tuple(map(hint, x.shape))


def _pair(v: Any) -> Sizes:
    return v if isinstance(v, tuple) else (v, v)


def _parts(sizes: Sizes, dilations: Sizes, strides: Sizes, counts: tuple[int, ...]) -> list[tuple[Any, ...]]:
    """The element at each position of a window, of all windows, in an image with its padding."""
    return [
        (
            ...,
            *(
                slice(i * e, i * e + (n - 1) * s + 1, s)
                for i, e, s, n in zip(at, dilations, strides, counts, strict=True)
            ),
        )
        for at in np.ndindex(*sizes)
    ]


def _unfold_numpy(x: np.ndarray, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> np.ndarray:
    k, e, p, s = map(_pair, (kernel_size, dilation, padding, stride))
    counts = places(x.shape[-2:], k, e, p, s)
    v = np.pad(x, ((0, 0),) * (x.ndim - 2) + tuple((q, q) for q in p))
    parts = np.stack([v[at] for at in _parts(k, e, s, counts)], -3)
    return parts.reshape(*x.shape[:-3], -1, math.prod(counts))


def _fold_numpy(
    x: np.ndarray, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> np.ndarray:
    d, k, e, p, s = map(_pair, (output_size, kernel_size, dilation, padding, stride))
    counts = places(d, k, e, p, s)
    v = x.reshape(*x.shape[:-2], -1, math.prod(k), *counts)
    y = np.zeros((*v.shape[:-3], d[0] + 2 * p[0], d[1] + 2 * p[1]), x.dtype)
    for i, at in enumerate(_parts(k, e, s, counts)):
        y[at] += v[..., i, :, :]
    return y[..., p[0] : p[0] + d[0], p[1] : p[1] + d[1]]


_X, _Y = samples.array((2, 3, 5, 4)), samples.array((2, 8, 6))
UNFOLD = define(
    "unfold",
    unfold,
    numpy=_unfold_numpy,
    samples=samples.calls((_X, 2), (_X[0], (3, 2), 1, (1, 0), 2), (_X, 2, {"dilation": 2, "padding": 1})),
    errors=[
        ((_X[0, 0], 2), {}, ShapeError, "unfold: an input"),
        ((_X, 6), {}, ShapeError, "unfold: a window of 6 does not fit"),
    ],
)
FOLD = define(
    "fold",
    fold,
    numpy=_fold_numpy,
    samples=samples.calls(
        (_Y, (4, 3), 2),
        (_Y[0], (3, 5), 2, {"stride": (1, 2), "padding": (0, 1), "dilation": (1, 2)}),
        (samples.array((1, 4, 9)), 5, 2, 2),
    ),
    errors=[
        ((_Y[0, 0], (4, 3), 2), {}, ShapeError, "fold: an input"),
        ((_Y, (4, 4), 2), {}, ShapeError, r"fold: windows of \(2, 2\) on an image of \(4, 4\) are"),
    ],
)
