"""ResNet-18: of small images (a first convolution of 3 x 3, no pool) and of 224 x 224 (7 x 7 of stride 2, pooled)."""

from __future__ import annotations

from typing import Any

from benchmarks.workloads import networks

# Channels of the stages, blocks of each; whether images are large.
Sizes = tuple[tuple[int, ...], int, bool]


def _module(m: Any, sizes: Sizes) -> Any:
    nn = m.nn
    channels, blocks, large = sizes

    class Block(nn.Module):
        def __init__(self, n: int, out: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(n, out, 3, stride=stride, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(out)
            self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(out)
            self.relu = nn.ReLU()
            self.downsample = None
            if stride > 1 or n != out:
                self.downsample = nn.Sequential(nn.Conv2d(n, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out))

        def forward(self, x: Any) -> Any:
            same = x if self.downsample is None else self.downsample(x)
            y = self.relu(self.bn1(self.conv1(x)))
            return self.relu(self.bn2(self.conv2(y)) + same)

    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            n = channels[0]
            if large:
                self.conv1, self.pool = nn.Conv2d(3, n, 7, stride=2, padding=3, bias=False), nn.MaxPool2d(3, 2, 1)
            else:
                self.conv1, self.pool = nn.Conv2d(3, n, 3, padding=1, bias=False), nn.Identity()
            self.bn1, self.relu = nn.BatchNorm2d(n), nn.ReLU()
            stages = []
            for i, out in enumerate(channels):
                stages.append(
                    nn.Sequential(*(Block(out if j else n, out, 2 if i and not j else 1) for j in range(blocks)))
                )
                n = out
            self.stages, self.fc = nn.Sequential(*stages), nn.Linear(n, 10)

        def forward(self, x: Any) -> Any:
            x = self.pool(self.relu(self.bn1(self.conv1(x))))
            return self.fc(self.stages(x).mean((2, 3)))

    return ResNet()


def _forward(f: Any, x: Any, sizes: Sizes) -> Any:
    channels, blocks, large = sizes
    n = channels[0]
    x = f.conv(x, "conv1", n, 7, 2, 3) if large else f.conv(x, "conv1", n, 3, 1, 1)
    x = f.relu(f.norm(x, "bn1"))
    if large:
        x = f.max_pool(x, 3, 2, 1)
    for i, out in enumerate(channels):
        for j in range(blocks):
            name, stride = f"stages.{i}.{j}.", 2 if i and not j else 1
            y = f.relu(f.norm(f.conv(x, name + "conv1", out, 3, stride, 1), name + "bn1"))
            y = f.norm(f.conv(y, name + "conv2", out, 3, 1, 1), name + "bn2")
            if stride > 1 or n != out:
                x = f.norm(f.conv(x, name + "downsample.0", out, 1, stride), name + "downsample.1")
            x, n = f.relu(f.add(y, x)), out
    return f.linear(f.mean(x), "fc", 10)


CHANNELS = (64, 128, 256, 512)
SMALL = networks.Network(_module, _forward, ((32, 3, 32, 32), (4, 3, 8, 8)), ((CHANNELS, 2, False), ((4, 6), 1, False)))
LARGE = networks.Network(
    _module, _forward, ((8, 3, 224, 224), (4, 3, 32, 32)), ((CHANNELS, 2, True), ((4, 6), 1, True))
)
# NOTE: where an activation is 0 but for rounding, its gradient is there or not: filters behind it differ by a share.
networks.train(
    "resnet_train_step", "a training step of ResNet-18 on 32 images of 32 x 32, SGD with momentum", SMALL, outside=0.01
)
networks.evaluate("resnet_eval", "the classes of 32 images of 32 x 32 by ResNet-18, in evaluation", SMALL)
networks.train(
    "resnet_224_train_step", "a training step of ResNet-18 on 8 images of 224 x 224, SGD with momentum", LARGE,
    outside=0.01,
)  # fmt: skip
