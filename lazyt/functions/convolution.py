"""Convolutions and pooling over one or two axes, channels first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions.arguments import record
from lazyt.ops import convolution as ops, pooling
from lazyt.ops.axes import integer

if TYPE_CHECKING:
    from lazyt.ops.definition import OpDef
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "adaptive_avg_pool2d",
    "avg_pool1d",
    "avg_pool2d",
    "conv1d",
    "conv2d",
    "max_pool1d",
    "max_pool2d",
]

Size = int | tuple[int, ...]


def _each(name: str, what: str, value: Any, rank: int, least: int) -> tuple[int, ...]:
    """One integer an axis, from one for all or a tuple; ShapeError if it is below `least`."""
    values = tuple(value) if isinstance(value, tuple | list) else (value,) * rank
    sizes = tuple(integer(name, what, v) for v in values)
    if len(sizes) == 1:
        sizes *= rank
    if len(sizes) != rank or any(v < least for v in sizes):
        raise ShapeError(f"{name}: {what} is one or {rank} integers, at least {least}, got {value!r}")
    return sizes


def _convolution(
    op: OpDef, rank: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    name = op.name
    sizes = tuple(weight.shape[2:])
    strides = _each(name, "stride", stride, rank, 1)
    dilations = _each(name, "dilation", dilation, rank, 1)
    if padding == "same":
        if any(s != 1 for s in strides):
            raise ShapeError(f"{name}: padding='same' is for a stride of 1, got {stride}")
        around = ops.same_padding(sizes, dilations) if len(sizes) == rank else ()
    elif padding == "valid":
        around = ((0, 0),) * rank
    elif isinstance(padding, str):
        raise ShapeError(f"{name}: padding is integers, 'same' or 'valid', got {padding!r}")
    else:
        around = tuple((p, p) for p in _each(name, "padding", padding, rank, 0))
    (groups,) = _each(name, "groups", groups, 1, 1)
    operands = (x, weight) if bias is None else (x, weight, bias)
    return record(op, operands, (sizes, strides, around, dilations, groups))


def conv1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of (N, C, W) or (C, W) with filters (O, C / groups, k): (N, O, W').

    Raises ShapeError if the shapes do not fit. As `torch.nn.functional.conv1d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.conv1d(lt.asarray([[1.0, 2.0, 3.0]]), lt.asarray([[[1.0, 1.0]]])).tolist()
    [[3.0, 5.0]]
    """
    return _convolution(ops.CONV1D, 1, x, weight, bias, stride, padding, dilation, groups)


def conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of (N, C, H, W) or (C, H, W) with filters (O, C / groups, kh, kw): (N, O, H', W').

    `padding` is integers, 'valid' (none) or 'same' (stride 1 only). Raises ShapeError if the shapes do not fit. As
    `torch.nn.functional.conv2d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.conv2d(lt.ones((1, 1, 4, 4)), lt.ones((1, 1, 3, 3))).tolist()
    [[[[9.0, 9.0], [9.0, 9.0]]]]
    """
    return _convolution(ops.CONV2D, 2, x, weight, bias, stride, padding, dilation, groups)


def _max_pool(
    op: OpDef, rank: int, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> Tensor:
    sizes = _each(op.name, "kernel_size", kernel, rank, 1)
    strides = sizes if stride is None else _each(op.name, "stride", stride, rank, 1)
    pads = _each(op.name, "padding", padding, rank, 0)
    dilations = _each(op.name, "dilation", dilation, rank, 1)
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
    sizes = _each(op.name, "kernel_size", kernel, rank, 1)
    strides = sizes if stride is None else _each(op.name, "stride", stride, rank, 1)
    pads = _each(op.name, "padding", padding, rank, 0)
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
    return record(pooling.ADAPTIVE_AVG_POOL2D, (x,), _each("adaptive_avg_pool2d", "output_size", output_size, 2, 1))
