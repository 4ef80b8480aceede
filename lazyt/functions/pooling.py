"""Pooling over the last one to three axes, channels first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.functions.arguments import record
from lazyt.functions.windows import Size, each
from lazyt.ops import pooling

if TYPE_CHECKING:
    from lazyt.ops.definition import OpDef
    from lazyt.runtime.tensor import Tensor

__all__ = ["adaptive_avg_pool2d", "avg_pool1d", "avg_pool2d", "max_pool1d", "max_pool2d"]


def _max_pool(
    op: OpDef, rank: int, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> Tensor:
    sizes = each(op.name, "kernel_size", kernel, rank, 1)
    strides = sizes if stride is None else each(op.name, "stride", stride, rank, 1)
    pads = each(op.name, "padding", padding, rank, 0)
    dilations = each(op.name, "dilation", dilation, rank, 1)
    return record(op, (x,), (sizes, strides, pads, dilations, bool(ceil)))


def max_pool1d(
    x: Any,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The greatest element of every window of the last axis of (N, C, W) or (C, W).

    Raises ShapeError if no window fits. As `torch.nn.functional.max_pool1d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.max_pool1d(lt.asarray([[1.0, 3.0, 2.0, 0.0]]), 2).tolist()
    [[3.0, 2.0]]
    """
    return _max_pool(pooling.MAX_POOL1D, 1, x, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d(
    x: Any,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The greatest element of every window of the last two axes of (N, C, H, W) or (C, H, W).

    Raises ShapeError if no window fits. As `torch.nn.functional.max_pool2d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.max_pool2d(lt.asarray([[[1.0, 3.0], [2.0, 0.0]]]), 2).tolist()
    [[[3.0]]]
    """
    return _max_pool(pooling.MAX_POOL2D, 2, x, kernel_size, stride, padding, dilation, ceil_mode)


def _avg_pool(
    op: OpDef, rank: int, x: Any, kernel: Any, stride: Any, padding: Any, ceil: bool, counted: bool
) -> Tensor:
    sizes = each(op.name, "kernel_size", kernel, rank, 1)
    strides = sizes if stride is None else each(op.name, "stride", stride, rank, 1)
    pads = each(op.name, "padding", padding, rank, 0)
    return record(op, (x,), (sizes, strides, pads, bool(ceil), bool(counted)))


def avg_pool1d(
    x: Any,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of every window of the last axis of (N, C, W) or (C, W).

    Raises ShapeError if no window fits. As `torch.nn.functional.avg_pool1d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.avg_pool1d(lt.asarray([[1.0, 3.0, 2.0, 0.0]]), 2).tolist()
    [[2.0, 1.0]]
    """
    return _avg_pool(pooling.AVG_POOL1D, 1, x, kernel_size, stride, padding, ceil_mode, count_include_pad)


def avg_pool2d(
    x: Any,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of every window of the last two axes of (N, C, H, W) or (C, H, W).

    Raises ShapeError if no window fits. As `torch.nn.functional.avg_pool2d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.avg_pool2d(lt.asarray([[[1.0, 3.0], [2.0, 0.0]]]), 2).tolist()
    [[[1.5]]]
    """
    return _avg_pool(pooling.AVG_POOL2D, 2, x, kernel_size, stride, padding, ceil_mode, count_include_pad)


def adaptive_avg_pool2d(x: Any, output_size: Size) -> Tensor:
    """The means of output_size equal windows of the last two axes of (N, C, H, W) or (C, H, W).

    Raises NotSupportedError unless output_size divides the extents. As `torch.nn.functional.adaptive_avg_pool2d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.adaptive_avg_pool2d(lt.asarray([[[1.0, 3.0], [2.0, 0.0]]]), 1).tolist()
    [[[1.5]]]
    """
    return record(pooling.ADAPTIVE_AVG_POOL2D, (x,), each("adaptive_avg_pool2d", "output_size", output_size, 2, 1))
