"""Convolutions with parameters."""

from __future__ import annotations

from typing import Any

from lazyt.errors import ShapeError
from lazyt.functions import nn as functional
from lazyt.nn.module import Module
from lazyt.nn.parameters import draw_affine, new_parameter

__all__ = ["Conv1d", "Conv2d"]


class _Convolution(Module):
    rank: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if in_channels % groups or out_channels % groups:
            raise ShapeError(
                f"{type(self).__name__}: {groups} groups do not divide {in_channels} and {out_channels} channels"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = kernel_size if isinstance(kernel_size, tuple) else (kernel_size,) * self.rank
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.weight = new_parameter(out_channels, in_channels // groups, *self.kernel_size, dtype=dtype)
        self.register_parameter("bias", new_parameter(out_channels, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        draw_affine(self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"padding={self.padding!r}, dilation={self.dilation}, groups={self.groups}, bias={self.bias is not None}"
        )


class Conv1d(_Convolution):
    """`functional.conv1d` with parameters: (N, C, W) to (N, O, W'). As `torch.nn.Conv1d`.

    >>> import lazyt as lt
    >>> lt.nn.Conv1d(2, 4, 3, padding=1)(lt.ones((1, 2, 8))).shape
    (1, 4, 8)
    """

    rank = 1

    def forward(self, x: Any) -> Any:
        return functional.conv1d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Conv2d(_Convolution):
    """`functional.conv2d` with parameters: (N, C, H, W) to (N, O, H', W'). As `torch.nn.Conv2d`.

    >>> import lazyt as lt
    >>> lt.nn.Conv2d(3, 8, 3, stride=2, padding=1)(lt.ones((1, 3, 8, 8))).shape
    (1, 8, 4, 4)
    """

    rank = 2

    def forward(self, x: Any) -> Any:
        return functional.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
