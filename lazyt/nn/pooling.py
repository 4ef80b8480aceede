"""Pooling layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.functions import nn as functional
from lazyt.functions.adaptive_pooling import Counts
from lazyt.functions.windows import Size, each
from lazyt.nn.module import Module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.runtime.tensor import Tensor

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]


class _Pool(Module):
    """What has a window; options that do not fit are named when the layer is made."""

    rank: int

    def __init__(self, kernel_size: Size, stride: Size | None, padding: Size = 0, dilation: Size = 1) -> None:
        super().__init__()
        name = type(self).__name__
        each(name, "kernel_size", kernel_size, self.rank, 1)
        each(name, "stride", kernel_size if stride is None else stride, self.rank, 1)
        each(name, "padding", padding, self.rank, 0)
        each(name, "dilation", dilation, self.rank, 1)
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding = padding


class _MaxPool(_Pool):
    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(kernel_size, stride, padding, dilation)
        self.dilation, self.return_indices, self.ceil_mode = dilation, return_indices, ceil_mode

    def forward(self, input: Any) -> Any:
        pool = getattr(functional, f"max_pool{self.rank}d")
        return pool(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The greatest element of every window of the last axis of (N, C, W), or without N. As `torch.nn.MaxPool1d`.

    With `return_indices` a pair: the elements, and their flat indices in that axis (for `MaxUnpool1d`).

    >>> import lazyt as lt
    >>> lt.nn.MaxPool1d(3, stride=2, padding=1)(lt.ones((1, 1, 6))).shape
    (1, 1, 3)
    """

    rank = 1


class MaxPool2d(_MaxPool):
    """The greatest element of every window of the last two axes of (N, C, H, W), or without N. As `torch.nn.MaxPool2d`.

    With `return_indices` a pair: the elements, and their flat indices in the two axes (for `MaxUnpool2d`).

    >>> import lazyt as lt
    >>> lt.nn.MaxPool2d(3, stride=2, padding=1)(lt.ones((1, 1, 6, 6))).shape
    (1, 1, 3, 3)
    """

    rank = 2


class MaxPool3d(_MaxPool):
    """The greatest element of every window of the last three axes of (N, C, D, H, W), or without N.

    As `torch.nn.MaxPool3d`. With `return_indices` a pair: the elements, and their flat indices in the three axes
    (for `MaxUnpool3d`).

    >>> import lazyt as lt
    >>> lt.nn.MaxPool3d(3, stride=2, padding=1)(lt.ones((1, 1, 6, 6, 6))).shape
    (1, 1, 3, 3, 3)
    """

    rank = 3


class _MaxUnpool(_Pool):
    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> None:
        super().__init__(kernel_size, stride, padding)
        name = type(self).__name__
        self.kernel_size = each(name, "kernel_size", self.kernel_size, self.rank, 1)
        self.stride = each(name, "stride", self.stride, self.rank, 1)
        self.padding = each(name, "padding", self.padding, self.rank, 0)

    def forward(self, input: Any, indices: Any, output_size: Sequence[int] | None = None) -> Tensor:
        """The larger array; `output_size` is its shape, or that of its last axes."""
        unpool = getattr(functional, f"max_unpool{self.rank}d")
        found: Tensor = unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)
        return found

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Puts the elements that `MaxPool1d` found where they were, and zeros elsewhere. As `torch.nn.MaxUnpool1d`.

    >>> import lazyt as lt
    >>> y, indices = lt.nn.MaxPool1d(2, return_indices=True)(lt.ones((1, 1, 4)))
    >>> lt.nn.MaxUnpool1d(2)(y, indices).shape
    (1, 1, 4)
    """

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """Puts the elements that `MaxPool2d` found where they were, and zeros elsewhere. As `torch.nn.MaxUnpool2d`.

    >>> import lazyt as lt
    >>> y, indices = lt.nn.MaxPool2d(2, return_indices=True)(lt.ones((1, 1, 4, 4)))
    >>> lt.nn.MaxUnpool2d(2)(y, indices).shape
    (1, 1, 4, 4)
    """

    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """Puts the elements that `MaxPool3d` found where they were, and zeros elsewhere. As `torch.nn.MaxUnpool3d`.

    >>> import lazyt as lt
    >>> y, indices = lt.nn.MaxPool3d(2, return_indices=True)(lt.ones((1, 1, 4, 4, 4)))
    >>> lt.nn.MaxUnpool3d(2)(y, indices).shape
    (1, 1, 4, 4, 4)
    """

    rank = 3


class _AvgPool(_Pool):
    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding)
        self.ceil_mode, self.count_include_pad, self.divisor_override = ceil_mode, count_include_pad, divisor_override

    def forward(self, input: Any) -> Any:
        pool = getattr(functional, f"avg_pool{self.rank}d")
        return pool(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
            self.divisor_override,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """The mean of every window of the last axis of (N, C, W), or without N. As `torch.nn.AvgPool1d`.

    >>> import lazyt as lt
    >>> lt.nn.AvgPool1d(2)(lt.asarray([[1.0, 3.0, 2.0, 0.0]])).tolist()
    [[2.0, 1.0]]
    """

    rank = 1

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        name = type(self).__name__
        self.kernel_size = each(name, "kernel_size", self.kernel_size, 1, 1)
        self.stride = each(name, "stride", self.stride, 1, 1)
        self.padding = each(name, "padding", self.padding, 1, 0)

    def forward(self, input: Any) -> Any:
        return functional.avg_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )


class AvgPool2d(_AvgPool):
    """The mean of every window of the last two axes of (N, C, H, W), or without N. As `torch.nn.AvgPool2d`.

    >>> import lazyt as lt
    >>> lt.nn.AvgPool2d(2)(lt.ones((1, 1, 4, 4))).shape
    (1, 1, 2, 2)
    """

    rank = 2


class AvgPool3d(_AvgPool):
    """The mean of every window of the last three axes of (N, C, D, H, W), or without N. As `torch.nn.AvgPool3d`.

    >>> import lazyt as lt
    >>> lt.nn.AvgPool3d(2)(lt.ones((1, 1, 4, 4, 4))).shape
    (1, 1, 2, 2, 2)
    """

    rank = 3


class _AdaptivePool(Module):
    rank: int

    def __init__(self, output_size: Counts) -> None:
        super().__init__()
        given = output_size if isinstance(output_size, tuple | list) else (output_size,)
        known = tuple(1 if n is None else n for n in given)
        each(type(self).__name__, "output_size", known, self.rank, 1)
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveAvgPool(_AdaptivePool):
    def forward(self, input: Any) -> Any:
        return getattr(functional, f"adaptive_avg_pool{self.rank}d")(input, self.output_size)


class _AdaptiveMaxPool(_AdaptivePool):
    def __init__(self, output_size: Counts, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Any) -> Any:
        return getattr(functional, f"adaptive_max_pool{self.rank}d")(input, self.output_size, self.return_indices)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The means of `output_size` windows of the last axis of (N, C, W). As `torch.nn.AdaptiveAvgPool1d`.

    None leaves an axis as it is.

    >>> import lazyt as lt
    >>> lt.nn.AdaptiveAvgPool1d(3)(lt.ones((1, 1, 5))).shape
    (1, 1, 3)
    """

    rank = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The means of `output_size` windows of the last two axes of (N, C, H, W). As `torch.nn.AdaptiveAvgPool2d`.

    None leaves an axis as it is.

    >>> import lazyt as lt
    >>> lt.nn.AdaptiveAvgPool2d((2, None))(lt.ones((1, 1, 5, 5))).shape
    (1, 1, 2, 5)
    """

    rank = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The means of `output_size` windows of the last three axes of (N, C, D, H, W). As `torch.nn.AdaptiveAvgPool3d`.

    None leaves an axis as it is.

    >>> import lazyt as lt
    >>> lt.nn.AdaptiveAvgPool3d((1, None, 2))(lt.ones((1, 1, 5, 5, 5))).shape
    (1, 1, 1, 5, 2)
    """

    rank = 3


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The greatest elements of `output_size` windows of the last axis of (N, C, W). As `torch.nn.AdaptiveMaxPool1d`.

    None leaves an axis as it is. With `return_indices` a pair, as `MaxPool1d`.

    >>> import lazyt as lt
    >>> lt.nn.AdaptiveMaxPool1d(3)(lt.ones((1, 1, 5))).shape
    (1, 1, 3)
    """

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The greatest elements of `output_size` windows of the last two axes of (N, C, H, W).

    As `torch.nn.AdaptiveMaxPool2d`. None leaves an axis as it is. With `return_indices` a pair, as `MaxPool2d`.

    >>> import lazyt as lt
    >>> lt.nn.AdaptiveMaxPool2d((2, None))(lt.ones((1, 1, 5, 5))).shape
    (1, 1, 2, 5)
    """

    rank = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The greatest elements of `output_size` windows of the last three axes of (N, C, D, H, W).

    As `torch.nn.AdaptiveMaxPool3d`. None leaves an axis as it is. With `return_indices` a pair, as `MaxPool3d`.

    >>> import lazyt as lt
    >>> lt.nn.AdaptiveMaxPool3d((1, None, 2))(lt.ones((1, 1, 5, 5, 5))).shape
    (1, 1, 1, 5, 2)
    """

    rank = 3


class _LPPool(_Pool):
    def __init__(
        self, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__(kernel_size, stride)
        self.norm_type, self.ceil_mode = norm_type, ceil_mode
        self.stride = stride  # type: ignore[assignment]  # None is shown as such

    def forward(self, input: Any) -> Any:
        pool = getattr(functional, f"lp_pool{self.rank}d")
        return pool(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """(sum of x ** norm_type) ** (1 / norm_type) of every window of the last axis of (N, C, W). As `torch.nn.LPPool1d`.

    >>> import lazyt as lt
    >>> lt.nn.LPPool1d(2, 2)(lt.ones((1, 1, 4))).shape
    (1, 1, 2)
    """

    rank = 1


class LPPool2d(_LPPool):
    """(sum of x ** norm_type) ** (1 / norm_type) of every window of the last two axes of (N, C, H, W).

    As `torch.nn.LPPool2d`.

    >>> import lazyt as lt
    >>> lt.nn.LPPool2d(2, 2)(lt.ones((1, 1, 4, 4))).shape
    (1, 1, 2, 2)
    """

    rank = 2


class LPPool3d(_LPPool):
    """(sum of x ** norm_type) ** (1 / norm_type) of every window of the last three axes of (N, C, D, H, W).

    As `torch.nn.LPPool3d`.

    >>> import lazyt as lt
    >>> lt.nn.LPPool3d(2, 2)(lt.ones((1, 1, 4, 4, 4))).shape
    (1, 1, 2, 2, 2)
    """

    rank = 3
