"""A network of depthwise convolutions, each with a 1 x 1 behind it, as MobileNet is made of."""

from __future__ import annotations

from typing import Any

from benchmarks.workloads import networks

# Channels of the first convolution, then (channels, stride) of each pair.
Sizes = tuple[int, tuple[tuple[int, int], ...]]


def _module(m: Any, sizes: Sizes) -> Any:
    nn = m.nn
    first, pairs = sizes

    def dense(n: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> list[Any]:
        convolution = nn.Conv2d(n, out, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)
        return [convolution, nn.BatchNorm2d(out), nn.ReLU()]

    layers, n = dense(3, first, 3), first
    for out, stride in pairs:
        layers += dense(n, n, 3, stride, groups=n) + dense(n, out, 1)
        n = out

    class MobileNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features, self.fc = nn.Sequential(*layers), nn.Linear(n, 10)

        def forward(self, x: Any) -> Any:
            return self.fc(self.features(x).mean((2, 3)))

    return MobileNet()


def _forward(f: Any, x: Any, sizes: Sizes) -> Any:
    n, pairs = sizes
    layers = [(n, 3, 1, 1)]
    for out, stride in pairs:
        layers += [(n, 3, stride, n), (out, 1, 1, 1)]
        n = out
    for i, (out, kernel, stride, groups) in enumerate(layers):
        x = f.conv(x, f"features.{3 * i}", out, kernel, stride, kernel // 2, groups)
        x = f.relu(f.norm(x, f"features.{3 * i + 1}"))
    return f.linear(f.mean(x), "fc", 10)


NETWORK = networks.Network(
    _module,
    _forward,
    ((64, 3, 32, 32), (4, 3, 8, 8)),
    ((32, ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1))), (4, ((6, 2),))),
)
networks.train(
    "mobilenet_train_step", "a training step of a network of five depthwise pairs on 64 images of 32 x 32", NETWORK,
    outside=0.01,
)  # fmt: skip
networks.evaluate("mobilenet_eval", "the classes of 64 images of 32 x 32 by the same network, in evaluation", NETWORK)
