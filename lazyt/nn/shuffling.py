"""Layers that move channels, and windows as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.functions import nn as functional
from lazyt.functions.windows import Size, each
from lazyt.nn.module import Module

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = ["ChannelShuffle", "Fold", "PixelShuffle", "PixelUnshuffle", "Unfold"]


class PixelShuffle(Module):
    """`functional.pixel_shuffle`: (..., C * r * r, H, W) to (..., C, H * r, W * r). As `torch.nn.PixelShuffle`.

    >>> import lazyt as lt
    >>> lt.nn.PixelShuffle(2)(lt.ones((1, 8, 3, 3))).shape
    (1, 2, 6, 6)
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        (self.upscale_factor,) = each("PixelShuffle", "upscale_factor", upscale_factor, 1, 1)

    def forward(self, input: Any) -> Tensor:
        return functional.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """`functional.pixel_unshuffle`: (..., C, H * r, W * r) to (..., C * r * r, H, W). As `torch.nn.PixelUnshuffle`.

    >>> import lazyt as lt
    >>> lt.nn.PixelUnshuffle(2)(lt.ones((1, 2, 6, 6))).shape
    (1, 8, 3, 3)
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        (self.downscale_factor,) = each("PixelUnshuffle", "downscale_factor", downscale_factor, 1, 1)

    def forward(self, input: Any) -> Tensor:
        return functional.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """`functional.channel_shuffle` of (N, C, ...). As `torch.nn.ChannelShuffle`.

    >>> import lazyt as lt
    >>> lt.nn.ChannelShuffle(2)(lt.arange(4.0).reshape(1, 4, 1)).tolist()
    [[[0.0], [2.0], [1.0], [3.0]]]
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        (self.groups,) = each("ChannelShuffle", "groups", groups, 1, 1)

    def forward(self, input: Any) -> Tensor:
        return functional.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class _Windows(Module):
    def __init__(self, kernel_size: Size, dilation: Size, padding: Size, stride: Size) -> None:
        super().__init__()
        name = type(self).__name__
        for what, value, least in (
            ("kernel_size", kernel_size, 1), ("dilation", dilation, 1), ("padding", padding, 0), ("stride", stride, 1),
        ):  # fmt: skip
            each(name, what, value, 2, least)
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Unfold(_Windows):
    """`functional.unfold`: (N, C, H, W) to (N, C * kernel, L), or without N. As `torch.nn.Unfold`.

    >>> import lazyt as lt
    >>> lt.nn.Unfold(2)(lt.ones((1, 3, 4, 4))).shape
    (1, 12, 9)
    """

    def __init__(self, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1) -> None:
        super().__init__(kernel_size, dilation, padding, stride)

    def forward(self, input: Any) -> Tensor:
        return functional.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(_Windows):
    """`functional.fold`: (N, C * kernel, L) to (N, C, H, W), or without N. As `torch.nn.Fold`.

    >>> import lazyt as lt
    >>> lt.nn.Fold((4, 4), 2)(lt.ones((1, 12, 9))).shape
    (1, 3, 4, 4)
    """

    def __init__(
        self, output_size: Size, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
    ) -> None:
        super().__init__(kernel_size, dilation, padding, stride)
        each("Fold", "output_size", output_size, 2, 1)
        self.output_size = output_size

    def forward(self, input: Any) -> Tensor:
        return functional.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}, {super().extra_repr()}"
