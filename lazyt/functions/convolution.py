"""Convolutions and transposed convolutions over one to three axes, channels first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.backends.common import precision
from lazyt.errors import ShapeError
from lazyt.functions.arguments import record, tensor, tensors
from lazyt.functions.manipulation import permute_dims
from lazyt.functions.windows import Size, each
from lazyt.ops import convolution as ops, transposed_convolution as transposed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ops.definition import OpDef
    from lazyt.runtime.tensor import Tensor

__all__ = ["conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]


# No memory holds rows of this padding; and a plan of a transposed convolution has a part for each place in a stride.
MOST_PADDING, MOST_STRIDE = 2**40, 2**20


def _bounded(name: str, what: str, sizes: Sequence[int], most: int) -> None:
    if max(sizes, default=0) > most:
        raise ShapeError(f"{name}: {what} is at most {most}, got {max(sizes)}")


def _convolution(
    op: OpDef, rank: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    name = op.name
    weight = tensor(weight)
    sizes = tuple(weight.shape[2:])
    strides = each(name, "stride", stride, rank, 1)
    dilations = each(name, "dilation", dilation, rank, 1)
    if padding == "same":
        if any(s != 1 for s in strides):
            raise ShapeError(f"{name}: padding='same' is for a stride of 1, got {stride}")
        around = ops.same_padding(sizes, dilations) if len(sizes) == rank else ()
    elif padding == "valid":
        around = ((0, 0),) * rank
    elif isinstance(padding, str):
        raise ShapeError(f"{name}: padding is integers, 'same' or 'valid', got {padding!r}")
    else:
        pads = each(name, "padding", padding, rank, 0)
        _bounded(name, "padding", pads, MOST_PADDING)
        around = tuple((p, p) for p in pads)
    (groups,) = each(name, "groups", groups, 1, 1)
    operands = (x, weight) if bias is None else (x, weight, bias)
    winograd = rank == 2 and sizes == (3, 3) and precision.convolutions() != "highest"
    return record(op, operands, (sizes, strides, around, dilations, groups, winograd))


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


def conv3d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of (N, C, D, H, W) or (C, D, H, W) with filters (O, C / groups, kd, kh, kw).

    Raises ShapeError if the shapes do not fit. As `torch.nn.functional.conv3d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.conv3d(lt.ones((1, 1, 2, 2, 2)), lt.ones((1, 1, 2, 2, 2))).tolist()
    [[[[[8.0]]]]]
    """
    return _convolution(ops.CONV3D, 3, x, weight, bias, stride, padding, dilation, groups)


def _transposed(
    op: OpDef, rank: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, groups: int,
    dilation: Any,
) -> Tensor:  # fmt: skip
    name = op.name
    weight = tensor(weight)
    strides = each(name, "stride", stride, rank, 1)
    _bounded(name, "stride", strides, MOST_STRIDE)
    pads = each(name, "padding", padding, rank, 0)
    more = each(name, "output_padding", output_padding, rank, 0)
    dilations = each(name, "dilation", dilation, rank, 1)
    (groups,) = each(name, "groups", groups, 1, 1)
    for m, s, e in zip(more, strides, dilations, strict=True):
        if m >= max(s, e):
            raise ShapeError(
                f"{name}: output_padding is smaller than the stride or the dilation, got {output_padding} with "
                f"stride {stride} and dilation {dilation}"
            )
    operands = (x, weight) if bias is None else (x, weight, bias)
    return record(op, operands, (tuple(weight.shape[2:]), strides, pads, more, dilations, groups))


def conv_tbc(x: Any, weight: Any, bias: Any, pad: int = 0) -> Tensor:
    """`conv1d` of (time, batch, channels), by a weight (width, in, out). As `torch.nn.functional.conv_tbc`.

    >>> import lazyt as lt
    >>> lt.nn.functional.conv_tbc(lt.ones((5, 2, 3)), lt.ones((3, 3, 4)), lt.zeros(4), pad=1).shape
    (5, 2, 4)
    """
    t, w = tensors((x, weight))
    if t.ndim != 3 or w.ndim != 3:
        raise ShapeError(
            "conv_tbc: an input (time, batch, in) and a weight (width, in, out) are required, got shapes "
            f"{t.shape} and {w.shape}"
        )
    return permute_dims(conv1d(permute_dims(t, (1, 2, 0)), permute_dims(w, (2, 1, 0)), bias, 1, pad), (2, 0, 1))


def conv_transpose1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """The gradient of `conv1d` in its input: (N, C, W) or (C, W) with filters (C, O / groups, k) gives (N, O, W').

    `output_padding` more elements come at the end. Raises ShapeError if the shapes do not fit. As
    `torch.nn.functional.conv_transpose1d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.conv_transpose1d(lt.asarray([[1.0, 2.0]]), lt.asarray([[[1.0, 1.0]]])).tolist()
    [[1.0, 3.0, 2.0]]
    """
    return _transposed(
        transposed.CONV_TRANSPOSE1D, 1, x, weight, bias, stride, padding, output_padding, groups, dilation
    )


def conv_transpose2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """The gradient of `conv2d` in its input: (N, C, H, W) or (C, H, W) with filters (C, O / groups, kh, kw).

    Raises ShapeError if the shapes do not fit. As `torch.nn.functional.conv_transpose2d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.conv_transpose2d(lt.ones((1, 1, 2, 2)), lt.ones((1, 1, 2, 2)), stride=2).shape
    (1, 1, 4, 4)
    """
    return _transposed(
        transposed.CONV_TRANSPOSE2D, 2, x, weight, bias, stride, padding, output_padding, groups, dilation
    )


def conv_transpose3d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """The gradient of `conv3d` in its input: (N, C, D, H, W) or (C, D, H, W) with (C, O / groups, kd, kh, kw).

    Raises ShapeError if the shapes do not fit. As `torch.nn.functional.conv_transpose3d`.

    >>> import lazyt as lt
    >>> lt.nn.functional.conv_transpose3d(lt.ones((1, 2, 2, 2)), lt.ones((1, 1, 2, 2, 2)), stride=2).shape
    (1, 4, 4, 4)
    """
    return _transposed(
        transposed.CONV_TRANSPOSE3D, 3, x, weight, bias, stride, padding, output_padding, groups, dilation
    )
