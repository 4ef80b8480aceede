"""The inverse of maximum pooling with indices: values put where they were, zeros elsewhere."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions.arguments import tensor
from lazyt.functions.creation import zeros
from lazyt.functions.indexing import put_along_axis
from lazyt.functions.manipulation import reshape
from lazyt.functions.windows import Size, each
from lazyt.tracing.autocast import autocasts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.runtime.tensor import Tensor

__all__ = ["max_unpool1d", "max_unpool2d", "max_unpool3d"]


def _sizes(
    name: str, shape: tuple[int, ...], rank: int, kernel: Any, stride: Any, padding: Any, output_size: Any
) -> tuple[int, ...]:
    sizes = each(name, "kernel_size", kernel, rank, 1)
    strides = sizes if stride is None else each(name, "stride", stride, rank, 1)
    pads = each(name, "padding", padding, rank, 0)
    usual = tuple((d - 1) * s + k - 2 * p for d, s, k, p in zip(shape[-rank:], strides, sizes, pads, strict=True))
    if output_size is None:
        return usual
    if len(output_size) not in (rank, len(shape)):
        raise ShapeError(
            f"{name}: output_size has {rank} extents, or those of the whole result, got {tuple(output_size)}"
        )
    wanted = tuple(output_size)[-rank:]
    if any(not n - s < w < n + s for n, s, w in zip(usual, strides, wanted, strict=True)):
        raise ShapeError(f"{name}: output_size is less than a stride from {usual}, got {wanted}")
    return wanted


def _max_unpool(rank: int, x: Any, indices: Any, kernel: Any, stride: Any, padding: Any, output_size: Any) -> Tensor:
    name, t, at = f"max_unpool{rank}d", tensor(x), tensor(indices)
    if t.ndim not in (rank + 1, rank + 2) or at.shape != t.shape:
        raise ShapeError(
            f"{name}: an input of {rank + 1} or {rank + 2} dimensions and indices of its shape are required, got "
            f"shapes {t.shape} and {at.shape}"
        )
    sizes, lead = _sizes(name, t.shape, rank, kernel, stride, padding, output_size), t.shape[:-rank]
    flat = math.prod(t.shape[-rank:])
    nothing = zeros((*lead, math.prod(sizes)), dtype=t.dtype, device=t.device)
    y = put_along_axis(nothing, reshape(at, (*lead, flat)), reshape(t, (*lead, flat)), axis=-1)
    return reshape(y, (*lead, *sizes))


@autocasts("max_unpool2d")
def max_unpool1d(
    x: Any,
    indices: Any,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """The elements of x where `max_pool1d` found them, and zeros: (N, C, W) or (C, W).

    `output_size` is that of the array that was pooled, where windows did not cover it. Raises ShapeError for shapes
    that do not fit, IndexOutOfRange at the sync. As `torch.nn.functional.max_unpool1d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.max_unpool1d(lt.asarray([[3.0, 2.0]]), lt.asarray([[1, 2]]), 2).tolist()
    [[0.0, 3.0, 2.0, 0.0]]
    """
    return _max_unpool(1, x, indices, kernel_size, stride, padding, output_size)


@autocasts("max_unpool2d")
def max_unpool2d(
    x: Any,
    indices: Any,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """The elements of x where `max_pool2d` found them, and zeros: (N, C, H, W) or (C, H, W).

    `output_size` is that of the array that was pooled, where windows did not cover it. Raises ShapeError for shapes
    that do not fit, IndexOutOfRange at the sync. As `torch.nn.functional.max_unpool2d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.max_unpool2d(lt.asarray([[[3.0]]]), lt.asarray([[[1]]]), 2).tolist()
    [[[0.0, 3.0], [0.0, 0.0]]]
    """
    return _max_unpool(2, x, indices, kernel_size, stride, padding, output_size)


@autocasts("max_unpool3d")
def max_unpool3d(
    x: Any,
    indices: Any,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """The elements of x where `max_pool3d` found them, and zeros: (N, C, D, H, W) or (C, D, H, W).

    `output_size` is that of the array that was pooled, where windows did not cover it. Raises ShapeError for shapes
    that do not fit, IndexOutOfRange at the sync. As `torch.nn.functional.max_unpool3d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.max_unpool3d(lt.asarray([[[[3.0]]]]), lt.asarray([[[[1]]]]), 2).tolist()
    [[[[0.0, 3.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]]
    """
    return _max_unpool(3, x, indices, kernel_size, stride, padding, output_size)
