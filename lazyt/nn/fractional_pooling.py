"""Layers of fractional maximum pooling."""

from __future__ import annotations

from typing import Any

from lazyt.functions import nn as functional
from lazyt.functions.fractional_pooling import Ratio, counts_of
from lazyt.functions.windows import Size, each
from lazyt.nn.module import Module

__all__ = ["FractionalMaxPool2d", "FractionalMaxPool3d"]


class _FractionalMaxPool(Module):
    rank: int

    def __init__(
        self,
        kernel_size: Size,
        output_size: Size | None = None,
        output_ratio: Ratio | None = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.kernel_size = each(name, "kernel_size", kernel_size, self.rank, 1)
        counts_of(name, self.rank, output_size, output_ratio, (1,) * self.rank)
        self.output_size, self.output_ratio, self.return_indices = output_size, output_ratio, return_indices
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input: Any) -> Any:
        pool = getattr(functional, f"fractional_max_pool{self.rank}d")
        return pool(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """`functional.fractional_max_pool2d` of (N, C, H, W), or without N. As `torch.nn.FractionalMaxPool2d`.

    >>> import lazyt as lt
    >>> lt.nn.FractionalMaxPool2d(2, output_size=3)(lt.ones((1, 1, 5, 5))).shape
    (1, 1, 3, 3)
    """

    rank = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """`functional.fractional_max_pool3d` of (N, C, D, H, W), or without N. As `torch.nn.FractionalMaxPool3d`.

    >>> import lazyt as lt
    >>> lt.nn.FractionalMaxPool3d(2, output_size=3)(lt.ones((1, 1, 5, 5, 5))).shape
    (1, 1, 3, 3, 3)
    """

    rank = 3
