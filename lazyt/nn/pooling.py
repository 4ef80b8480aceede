"""Pooling layers."""

from __future__ import annotations

from typing import Any

from lazyt.functions import nn as functional
from lazyt.nn.module import Module

__all__ = ["AdaptiveAvgPool2d", "AvgPool1d", "AvgPool2d", "MaxPool1d", "MaxPool2d"]


class _Pool(Module):
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, **more: Any) -> None:
        super().__init__()
        self.options: dict[str, Any] = {
            "kernel_size": kernel_size,
            "stride": kernel_size if stride is None else stride,
            "padding": padding,
            **more,
        }

    def forward(self, x: Any) -> Any:
        name = type(self).__name__.replace("MaxPool", "max_pool").replace("AvgPool", "avg_pool")
        return getattr(functional, name)(x, **self.options)

    def extra_repr(self) -> str:
        return ", ".join(f"{k}={v}" for k, v in self.options.items())


class MaxPool1d(_Pool):
    """`functional.max_pool1d`. As `torch.nn.MaxPool1d`."""


class MaxPool2d(_Pool):
    """`functional.max_pool2d`. As `torch.nn.MaxPool2d`."""


class AvgPool1d(_Pool):
    """`functional.avg_pool1d`. As `torch.nn.AvgPool1d`."""


class AvgPool2d(_Pool):
    """`functional.avg_pool2d`. As `torch.nn.AvgPool2d`."""


class AdaptiveAvgPool2d(Module):
    """`functional.adaptive_avg_pool2d`. As `torch.nn.AdaptiveAvgPool2d`."""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, x: Any) -> Any:
        return functional.adaptive_avg_pool2d(x, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"
