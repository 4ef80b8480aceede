"""A U-Net: down to small images and up again by transposed convolutions, the channels of both sides joined."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from benchmarks.workloads import networks

CLASSES = 4
Sizes = tuple[int, ...]  # channels of the levels


def _module(m: Any, channels: Sizes) -> Any:
    nn = m.nn

    def double(n: int, out: int) -> Any:
        layers = []
        for i in (n, out):
            layers += [nn.Conv2d(i, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
        return nn.Sequential(*layers)

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            pairs = list(pairwise(channels))
            self.down = nn.ModuleList([double(n, out) for n, out in [(3, channels[0]), *pairs]])
            self.pool = nn.MaxPool2d(2)
            self.up = nn.ModuleList([nn.ConvTranspose2d(out, n, 2, stride=2) for n, out in pairs])
            self.join = nn.ModuleList([double(2 * n, n) for n, _ in pairs])
            self.head = nn.Conv2d(channels[0], CLASSES, 1)

        def forward(self, x: Any) -> Any:
            kept = []
            for i, down in enumerate(self.down):
                x = down(self.pool(x) if i else x)
                kept.append(x)
            for up, join, y in zip(reversed(self.up), reversed(self.join), reversed(kept[:-1]), strict=True):
                x = join(m.concatenate([y, up(x)], 1))
            return self.head(x)

    return UNet()


def _forward(f: Any, x: Any, channels: Sizes) -> Any:
    def double(x: Any, name: str, out: int) -> Any:
        for i in (0, 3):
            x = f.relu(f.norm(f.conv(x, f"{name}.{i}", out, 3, 1, 1), f"{name}.{i + 1}"))
        return x

    kept = []
    for i, n in enumerate(channels):
        x = double(f.max_pool(x, 2, 2) if i else x, f"down.{i}", n)
        kept.append(x)
    for i in reversed(range(len(channels) - 1)):
        x = f.conv_transposed(x, f"up.{i}", channels[i], 2, 2, bias=True)
        x = double(f.join(kept[i], x), f"join.{i}", channels[i])
    return f.conv(x, "head", CLASSES, 1, bias=True)


NETWORK = networks.Network(
    _module, _forward, ((8, 3, 64, 64), (2, 3, 8, 8)), ((32, 64, 128), (4, 6)), (CLASSES, CLASSES), pixels=True
)
networks.train(
    "unet_train_step", "a training step of a U-Net (32, 64, 128 channels) on 8 images of 64 x 64, each pixel's class",
    NETWORK, outside=0.01,
)  # fmt: skip
networks.evaluate("unet_eval", "the classes of the pixels of 8 images of 64 x 64 by the same network", NETWORK)
