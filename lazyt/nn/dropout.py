"""Layers that set random elements to 0 while training."""

from __future__ import annotations

from typing import Any

from lazyt.errors import ShapeError
from lazyt.functions import nn as functional
from lazyt.nn.module import Module

__all__ = ["Dropout"]


class Dropout(Module):
    """`functional.dropout` while training. As `torch.nn.Dropout`."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ShapeError(f"Dropout: a probability in [0, 1] is required, got {p}")
        self.p = p

    def forward(self, x: Any) -> Any:
        return functional.dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"
