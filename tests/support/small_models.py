"""Small models of three kinds, for tests of what training keeps in memory."""

from __future__ import annotations

import lazyt as lt
from benchmarks.memory import Block, Residual
from lazyt import nn


def mlp(batch: int = 512, width: int = 32, layers: int = 3) -> tuple[nn.Module, lt.Tensor]:
    """Linear layers with GELU and dropout, and data for them."""
    parts = [m for _ in range(layers) for m in (nn.Linear(width, width), nn.GELU(), nn.Dropout(0.2))]
    return nn.Sequential(*parts), lt.random.normal(size=(batch, width))


def conv_net(batch: int = 8, channels: int = 8) -> tuple[nn.Module, lt.Tensor]:
    """Convolutions with batch norms and a pooling, and images for them."""
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
    ), lt.random.normal(size=(batch, 3, 16, 16))  # fmt: skip


def transformer(batch: int = 8, length: int = 64, d: int = 16, layers: int = 3) -> tuple[nn.Module, lt.Tensor]:
    """Layers of a transformer, and what comes into them."""
    return nn.Sequential(*(Block(d, heads=2) for _ in range(layers))), lt.random.normal(size=(batch, length, d))


def residual_net(batch: int = 16, channels: int = 4, blocks: int = 6) -> tuple[nn.Module, lt.Tensor]:
    """Residual blocks of two convolutions with batch norms, and images for them."""
    return nn.Sequential(*(Residual(channels, channels, 1) for _ in range(blocks))), lt.random.normal(
        size=(batch, channels, 16, 16)
    )
