"""Activation functions composed of others, as modules."""

from __future__ import annotations

from typing import Any

from lazyt.errors import ShapeError
from lazyt.functions import shrinking as functional, softmaxes
from lazyt.nn.module import Module

__all__ = ["CELU", "Hardshrink", "RReLU", "Softmax2d", "Softmin", "Softshrink", "Tanhshrink", "Threshold"]


class CELU(Module):
    """`functional.celu`. As `torch.nn.CELU`."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Any) -> Any:
        return functional.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + ", inplace=True" * self.inplace


class _Shrink(Module):
    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Hardshrink(_Shrink):
    """`functional.hardshrink`. As `torch.nn.Hardshrink`."""

    def forward(self, input: Any) -> Any:
        return functional.hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """`functional.softshrink`. As `torch.nn.Softshrink`."""

    def forward(self, input: Any) -> Any:
        return functional.softshrink(input, self.lambd)


class Tanhshrink(Module):
    """`functional.tanhshrink`. As `torch.nn.Tanhshrink`."""

    def forward(self, input: Any) -> Any:
        return functional.tanhshrink(input)


class Threshold(Module):
    """`functional.threshold`. As `torch.nn.Threshold`."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input: Any) -> Any:
        return functional.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}" + ", inplace=True" * self.inplace


class RReLU(Module):
    """`functional.rrelu`: random slopes while training. As `torch.nn.RReLU`."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Any) -> Any:
        return functional.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}" + ", inplace=True" * self.inplace


class Softmin(Module):
    """`functional.softmin` over one axis, by default the last. As `torch.nn.Softmin`."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, input: Any) -> Any:
        return softmaxes.softmin(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax2d(Module):
    """softmax over the channels of (N, C, H, W) or (C, H, W). As `torch.nn.Softmax2d`.

    >>> import lazyt as lt
    >>> lt.nn.Softmax2d()(lt.zeros((2, 1, 1))).tolist()
    [[[0.5]], [[0.5]]]
    """

    def forward(self, input: Any) -> Any:
        if len(input.shape) not in (3, 4):
            raise ShapeError(f"Softmax2d: an input (N, C, H, W) or (C, H, W) is required, got {input.shape}")
        return softmaxes.softmax(input, -3)
