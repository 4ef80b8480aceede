"""Pooling over windows of the last one to three axes, channels first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions.arguments import record, record_many, tensor
from lazyt.functions.arithmetic import multiply, pow
from lazyt.functions.elementwise import abs, negative, relu, sign
from lazyt.functions.windows import Size, each
from lazyt.ops import pooling, pooling_indices
from lazyt.ops.axes import integer

if TYPE_CHECKING:
    from lazyt.ops.definition import OpDef
    from lazyt.runtime.tensor import Tensor

__all__ = [
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_pool3d",
    "max_pool3d_with_indices",
]

_MAX = (pooling.MAX_POOL1D, pooling.MAX_POOL2D, pooling.MAX_POOL3D)
_WITH_INDICES = (pooling_indices.MAX_POOL1D, pooling_indices.MAX_POOL2D, pooling_indices.MAX_POOL3D)


def _windows(
    name: str, rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> tuple[Any, ...]:
    sizes = each(name, "kernel_size", kernel, rank, 1)
    strides = sizes if stride is None else each(name, "stride", stride, rank, 1)
    pads = each(name, "padding", padding, rank, 0)
    return sizes, strides, pads, each(name, "dilation", dilation, rank, 1), bool(ceil)


def _max_pool(rank: int, x: Any, *windows: Any) -> Tensor:
    return record(_MAX[rank - 1], (x,), _windows(f"max_pool{rank}d", rank, *windows))


def _with_indices(rank: int, x: Any, *windows: Any) -> tuple[Tensor, Tensor]:
    values, at = record_many(_WITH_INDICES[rank - 1], (x,), _windows(f"max_pool{rank}d", rank, *windows))
    return values, at


def max_pool1d(
    x: Any,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest element of every window of the last axis of (N, C, W) or (C, W).

    With `return_indices` also where it is, in the flat order of that axis (int64). Raises ShapeError if no window fits.
    As `torch.nn.functional.max_pool1d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.max_pool1d(lt.asarray([[1.0, 3.0, 2.0, 0.0]]), 2).tolist()
    [[3.0, 2.0]]
    """
    pool = _with_indices if return_indices else _max_pool
    return pool(1, x, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool1d_with_indices(
    x: Any,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """`max_pool1d` with `return_indices`. As `torch.nn.functional.max_pool1d_with_indices`.

    >>> import lazyt as lt
    >>> lt.nn.functional.max_pool1d_with_indices(lt.asarray([[1.0, 3.0, 2.0, 0.0]]), 2)[1].tolist()
    [[1, 2]]
    """
    return _with_indices(1, x, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d(
    x: Any,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest element of every window of the last two axes of (N, C, H, W) or (C, H, W).

    With `return_indices` also where it is, in the flat order of these two axes (int64). Raises ShapeError if no
    window fits. As `torch.nn.functional.max_pool2d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.max_pool2d(lt.asarray([[[1.0, 3.0], [2.0, 0.0]]]), 2).tolist()
    [[[3.0]]]
    """
    pool = _with_indices if return_indices else _max_pool
    return pool(2, x, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d_with_indices(
    x: Any,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """`max_pool2d` with `return_indices`. As `torch.nn.functional.max_pool2d_with_indices`.

    >>> import lazyt as lt
    >>> lt.nn.functional.max_pool2d_with_indices(lt.asarray([[[1.0, 3.0], [2.0, 0.0]]]), 2)[1].tolist()
    [[[1]]]
    """
    return _with_indices(2, x, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool3d(
    x: Any,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest element of every window of the last three axes of (N, C, D, H, W) or (C, D, H, W).

    With `return_indices` also where it is, in the flat order of these three axes (int64). Raises ShapeError if no
    window fits. As `torch.nn.functional.max_pool3d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.max_pool3d(lt.arange(8.0).reshape(1, 2, 2, 2), 2).tolist()
    [[[[7.0]]]]
    """
    pool = _with_indices if return_indices else _max_pool
    return pool(3, x, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool3d_with_indices(
    x: Any,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """`max_pool3d` with `return_indices`. As `torch.nn.functional.max_pool3d_with_indices`.

    >>> import lazyt as lt
    >>> lt.nn.functional.max_pool3d_with_indices(lt.arange(8.0).reshape(1, 2, 2, 2), 2)[1].tolist()
    [[[[7]]]]
    """
    return _with_indices(3, x, kernel_size, stride, padding, dilation, ceil_mode)


def _avg_pool(
    op: OpDef, rank: int, x: Any, kernel: Any, stride: Any, padding: Any, ceil: bool, counted: bool, divisor: Any = None
) -> Tensor:
    sizes, strides, pads, _, ceil = _windows(op.name, rank, kernel, stride, padding, 1, ceil)
    if divisor is not None and not (divisor := integer(op.name, "divisor_override", divisor)):
        raise ShapeError(f"{op.name}: divisor_override is not 0")
    return record(op, (x,), (sizes, strides, pads, ceil, bool(counted), divisor))


def avg_pool1d(
    x: Any,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of every window of the last axis of (N, C, W) or (C, W).

    `count_include_pad` says whether padding counts as elements. Raises ShapeError if no window fits. As
    `torch.nn.functional.avg_pool1d`.

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
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of every window of the last two axes of (N, C, H, W) or (C, H, W).

    `count_include_pad` says whether padding counts as elements. `divisor_override` takes the place of
    the number of elements. Raises ShapeError if no window fits. As `torch.nn.functional.avg_pool2d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.avg_pool2d(lt.asarray([[[1.0, 3.0], [2.0, 0.0]]]), 2).tolist()
    [[[1.5]]]
    """
    return _avg_pool(
        pooling.AVG_POOL2D, 2, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def avg_pool3d(
    x: Any,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of every window of the last three axes of (N, C, D, H, W) or (C, D, H, W).

    `count_include_pad` says whether padding counts as elements. `divisor_override` takes the place of
    the number of elements. Raises ShapeError if no window fits. As `torch.nn.functional.avg_pool3d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.avg_pool3d(lt.arange(8.0).reshape(1, 2, 2, 2), 2).tolist()
    [[[[3.5]]]]
    """
    return _avg_pool(
        pooling.AVG_POOL3D, 3, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def _lp_pool(rank: int, x: Any, norm_type: float, kernel: Any, stride: Any, ceil: bool) -> Tensor:
    name = f"lp_pool{rank}d"
    sizes = each(name, "kernel_size", kernel, rank, 1)
    if not isinstance(norm_type, int | float) or not norm_type:
        raise ShapeError(f"{name}: norm_type is a number other than 0, got {norm_type!r}")
    p, t = float(norm_type), tensor(x)
    if math.isinf(p):
        y = _max_pool(rank, abs(t) if p > 0 else negative(abs(t)), sizes, stride, 0, 1, ceil)
        return y if p > 0 else negative(y)
    powers = multiply(t, t) if p == 2 else pow(t, p)
    mean = (avg_pool1d, avg_pool2d, avg_pool3d)[rank - 1](powers, sizes, stride, 0, ceil)
    total = multiply(multiply(sign(mean), relu(abs(mean))), math.prod(sizes))
    return pow(total, 1 / p)


def lp_pool1d(
    x: Any, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
) -> Tensor:
    """(sum of x ** norm_type) ** (1 / norm_type) of every window of the last axis of (N, C, W) or (C, W).

    Raises ShapeError if no window fits. As `torch.nn.functional.lp_pool1d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.lp_pool1d(lt.asarray([[3.0, 4.0]]), 2, 2).tolist()
    [[5.0]]
    """
    return _lp_pool(1, x, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    x: Any, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
) -> Tensor:
    """(sum of x ** norm_type) ** (1 / norm_type) of every window of the last two axes of (N, C, H, W) or (C, H, W).

    Raises ShapeError if no window fits. As `torch.nn.functional.lp_pool2d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.lp_pool2d(lt.asarray([[[3.0, 4.0], [0.0, 0.0]]]), 2, 2).tolist()
    [[[5.0]]]
    """
    return _lp_pool(2, x, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    x: Any, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
) -> Tensor:
    """(sum of x ** norm_type) ** (1 / norm_type) of every window of the last three axes of (N, C, D, H, W).

    Raises ShapeError if no window fits. As `torch.nn.functional.lp_pool3d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.lp_pool3d(lt.asarray([[[[3.0, 4.0]]]]), 2, (1, 1, 2)).tolist()
    [[[[5.0]]]]
    """
    return _lp_pool(3, x, norm_type, kernel_size, stride, ceil_mode)
