"""Images made larger or smaller."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, ShapeError
from lazyt.functions.adaptive_pooling import adaptive_avg_pool
from lazyt.functions.arguments import record, tensor
from lazyt.functions.joining import repeat
from lazyt.functions.resampling_tables import nearest, tables
from lazyt.functions.subscript import getitem
from lazyt.functions.windows import check_extents
from lazyt.ir import dtypes
from lazyt.ops.axes import integer
from lazyt.ops.resampling import RESAMPLE
from lazyt.tracing.autocast import autocasts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.runtime.tensor import Tensor

__all__ = ["interpolate", "upsample", "upsample_bilinear", "upsample_nearest"]

# For which number of pooled axes each mode is.
MODES = {
    "nearest": (1, 2, 3), "nearest-exact": (1, 2, 3), "area": (1, 2, 3), "linear": (1,), "bilinear": (2,),
    "bicubic": (2,), "lanczos": (2,), "trilinear": (3,),
}  # fmt: skip
ANTIALIASED = ("bilinear", "bicubic", "lanczos")


def interpolate(
    x: Any,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """(N, C, ...) with its last axes made larger or smaller: to `size`, or by `scale_factor`.

    Modes: 'nearest', 'nearest-exact' and 'area' over one to three axes, 'linear' over one, 'bilinear' and 'bicubic'
    over two (with `antialias` for smaller images, where 'lanczos' is too), 'trilinear' over three. `align_corners`
    says that the centres of the first and last elements stay where they are. Raises ShapeError for options that do
    not fit each other or x. As `torch.nn.functional.interpolate`.

    >>> import lazyt as lt
    >>> lt.nn.functional.interpolate(lt.asarray([[[1.0, 3.0]]]), 4, mode="linear").tolist()
    [[[1.0, 1.5, 2.5, 3.0]]]
    """
    return interpolated("interpolate", x, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)


def upsample(
    x: Any,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate` under its older name. As `torch.nn.functional.upsample`.

    >>> import lazyt as lt
    >>> lt.nn.functional.upsample(lt.asarray([[[1.0, 3.0]]]), scale_factor=2).tolist()
    [[[1.0, 1.0, 3.0, 3.0]]]
    """
    return interpolated("upsample", x, size, scale_factor, mode, align_corners, None, False)


def upsample_nearest(
    x: Any, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """`interpolate` by the nearest elements. As `torch.nn.functional.upsample_nearest`.

    >>> import lazyt as lt
    >>> lt.nn.functional.upsample_nearest(lt.asarray([[[1.0, 3.0]]]), 3).tolist()
    [[[1.0, 1.0, 3.0]]]
    """
    return interpolated("upsample_nearest", x, size, scale_factor, "nearest", None, None, False)


def upsample_bilinear(
    x: Any, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """`interpolate` in mode 'bilinear' with `align_corners`. As `torch.nn.functional.upsample_bilinear`.

    >>> import lazyt as lt
    >>> lt.nn.functional.upsample_bilinear(lt.asarray([[[[1.0, 3.0]]]]), (1, 3)).tolist()
    [[[[1.0, 2.0, 3.0]]]]
    """
    return interpolated("upsample_bilinear", x, size, scale_factor, "bilinear", True, None, False)


@autocasts("interpolate")
def interpolated(
    name: str, x: Any, size: Any, scale_factor: Any, mode: str, align: bool | None, recompute: bool | None,
    antialias: bool,
) -> Tensor:  # fmt: skip
    """`interpolate` for a function or a layer of this name."""
    t = tensor(x)
    rank = t.ndim - 2
    if mode not in MODES:
        raise ShapeError(f"{name}: mode {mode!r} is not one of {', '.join(MODES)}")
    if rank not in MODES[mode]:
        wanted = " or ".join(str(r + 2) for r in MODES[mode])
        raise ShapeError(f"{name}: mode {mode!r} is for {wanted} dimensions, got shape {t.shape}")
    if align is not None and (mode == "area" or mode.startswith("nearest")):
        raise ShapeError(f"{name}: mode {mode!r} takes no align_corners, got {align}")
    if antialias and mode not in ANTIALIASED:
        raise ShapeError(f"{name}: antialias is for {', '.join(ANTIALIASED)}, got mode {mode!r}")
    if mode == "lanczos" and (align or not antialias):
        raise ShapeError(f"{name}: mode 'lanczos' is for antialias=True and align_corners=False")
    if recompute and size is not None:
        raise ShapeError(f"{name}: recompute_scale_factor is for a scale_factor, got size={size}")
    counts, scales = _sizes(name, t, size, scale_factor, bool(recompute) or mode == "area")
    if 0 in t.shape[2:]:
        raise ShapeError(f"{name}: the resized axes are not empty, got shape {t.shape}")
    if mode == "area":
        return adaptive_avg_pool(name, rank, t, counts)
    if dtypes.kind(t.dtype) != "f" and not mode.startswith("nearest"):
        raise DTypeError(f"{name}: mode {mode!r} is for real floating dtypes, got {t.dtype}")
    return _resampled(t, mode, counts, scales, bool(align), antialias)


def _sizes(
    name: str, t: Tensor, size: Any, scale_factor: Any, recompute: bool
) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """The new extents, and the factors where they say more than the extents."""
    rank = t.ndim - 2
    if (size is None) == (scale_factor is None):
        raise ShapeError(f"{name}: give size or scale_factor, got {size} and {scale_factor}")
    given = scale_factor if size is None else size
    each = tuple(given) if isinstance(given, tuple | list) else (given,) * rank
    if len(each) != rank:
        what = "scale_factor" if size is None else "size"
        raise ShapeError(f"{name}: {what} is one number or {rank} for shape {t.shape}, got {given}")
    if size is not None:
        counts = tuple(integer(name, "size", n) for n in each)
        scales: tuple[float | None, ...] = (None,) * rank
    else:
        counts = tuple(math.floor(d * float(s)) for d, s in zip(t.shape[2:], each, strict=True))
        scales = (None,) * rank if recompute else tuple(map(float, each))
    if any(n < 1 for n in counts):
        raise ShapeError(f"{name}: the result has extents of at least 1, got {counts} for shape {t.shape}")
    check_extents(name, counts)
    return counts, scales


def _resampled(
    t: Tensor, mode: str, counts: tuple[int, ...], scales: tuple[float | None, ...], align: bool, antialias: bool
) -> Tensor:
    axes, operands, widths = [], [], []
    for axis, (n, scale) in enumerate(zip(counts, scales, strict=True), 2):
        extent = t.shape[axis]
        if mode.startswith("nearest"):
            found = _copied(t, axis, nearest(mode, extent, n, scale))
            if found is not None:
                t = found
                continue
        elif n == extent and (align or not scale or scale == 1):
            continue
        axes.append(axis)
        own = _on_device(mode, extent, n, align, scale, antialias, str(t.device))
        operands += own
        widths.append((own[0].shape[1], own[2].shape[1]))
    return record(RESAMPLE, (t, *operands), (tuple(axes), tuple(widths))) if axes else t


def _copied(t: Tensor, axis: int, reads: np.ndarray) -> Tensor | None:
    """Copies by movement alone, where each element has as many, or every few elements have one."""
    extent, count = t.shape[axis], len(reads)
    if count % extent == 0 and np.array_equal(reads, np.arange(extent).repeat(count // extent)):
        return repeat(t, count // extent, axis=axis) if count > extent else t
    step, first = extent // count, int(reads[0])
    if np.array_equal(reads, first + step * np.arange(count)):
        return getitem(t, (slice(None),) * axis + (slice(first, first + step * (count - 1) + 1, step),))
    return None


@lru_cache(256)
def _on_device(
    mode: str, extent: int, count: int, align: bool, scale: float | None, antialias: bool, device: str
) -> list[Tensor]:
    """The tables of an axis as tensors; float64, which the program rounds."""
    return [tensor(a).to(device) for a in tables(mode, extent, count, align, scale, antialias)]
