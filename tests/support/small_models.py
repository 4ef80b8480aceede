"""Small models of three kinds, for tests of what training keeps in memory."""

from __future__ import annotations

import lazyt as lt
from lazyt import nn


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, d: int, heads: int = 2, dropout: float = 0.1) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: lt.Tensor) -> lt.Tensor:
        b, t, d = x.shape
        h = self.qkv(self.norm1(x)).reshape(b, t, 3, self.heads, d // self.heads)
        q, k, v = (h[:, :, i].permute(0, 2, 1, 3) for i in range(3))
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(a.permute(0, 2, 1, 3).reshape(b, t, d)))
        return x + self.dropout(self.down(nn.functional.gelu(self.up(self.norm2(x)))))


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
    return nn.Sequential(*(Block(d) for _ in range(layers))), lt.random.normal(size=(batch, length, d))
