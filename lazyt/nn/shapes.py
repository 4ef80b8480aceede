"""Layers that change the shape alone."""

from __future__ import annotations

import math
from typing import Any

from lazyt.errors import AxisError, ShapeError
from lazyt.functions.manipulation import reshape
from lazyt.nn.module import Module

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """Merges the axes from start_dim to end_dim. As `torch.nn.Flatten`.

    >>> import lazyt as lt
    >>> lt.nn.Flatten()(lt.ones((2, 3, 4))).shape
    (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Any) -> Any:
        rank = max(len(input.shape), 1)
        shape = input.shape or (1,)
        if not (-rank <= self.start_dim < rank and -rank <= self.end_dim < rank):
            raise ShapeError(
                f"Flatten: axes {self.start_dim} to {self.end_dim} are out of range for shape {input.shape}"
            )
        i, j = self.start_dim % rank, self.end_dim % rank
        if i > j:
            raise ShapeError(f"Flatten: start_dim {self.start_dim} comes after end_dim {self.end_dim} in {input.shape}")
        return reshape(input, (*shape[:i], math.prod(shape[i : j + 1]), *shape[j + 1 :]))

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits an axis into several. As `torch.nn.Unflatten`."""

    def __init__(self, dim: int, unflattened_size: tuple[int, ...]) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Any) -> Any:
        shape = input.shape
        if not -len(shape) <= self.dim < len(shape):
            raise AxisError(f"Unflatten: dim {self.dim} is out of range for shape {shape}")
        i = self.dim % len(shape)
        if -1 not in self.unflattened_size and math.prod(self.unflattened_size) != shape[i]:
            raise ShapeError(
                f"Unflatten: {self.unflattened_size} has {math.prod(self.unflattened_size)} elements where axis "
                f"{self.dim} of shape {shape} has {shape[i]}"
            )
        return reshape(input, (*input.shape[:i], *self.unflattened_size, *input.shape[i + 1 :]))

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
