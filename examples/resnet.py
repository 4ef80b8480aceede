"""Learn to name shapes: a residual network as for CIFAR, on coloured images of 32 x 32 that this file draws.

    python examples/resnet.py           # a minute on two cores
    python examples/resnet.py --quick   # a short form, for checking that all is well
    python examples/resnet.py --amp bfloat16   # in mixed precision; float16 is with scaled losses

The network of He et al., "Deep Residual Learning for Image Recognition" (2016), section 4.2: a convolution, three
stages of blocks that halve the image and double the channels, the mean of each channel, and a dense layer. It is
trained by SGD with momentum and a cosine schedule. A training step, with its update of the running means, is one plan.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import lazyt as lt
from lazyt import nn, optim
from lazyt.nn import functional as F

SIZE = 32
NAMES = ("disk", "ring", "square", "frame", "diamond", "triangle", "plus", "cross", "stripes", "checks")
SHADES = " .:-=+*#%@"


def outline(kind: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Where a shape of radius 1 around the origin is."""
    square, round_, diamond = np.maximum(abs(x), abs(y)), np.hypot(x, y), abs(x) + abs(y)
    shapes = (
        round_ < 1,
        (round_ < 1) & (round_ > 0.6),
        square < 0.85,
        (square < 0.9) & (square > 0.55),
        diamond < 1.1,
        (y < 0.7) & (y > 2 * abs(x) - 1),
        (np.minimum(abs(x), abs(y)) < 0.25) & (square < 1),
        (abs(abs(x) - abs(y)) < 0.35) & (square < 0.9),
        (np.sin(8 * y) > 0) & (square < 0.9),
        (np.sin(7 * x) * np.sin(7 * y) > 0) & (square < 0.9),
    )
    return shapes[kind]


def drawn(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Float32 images (n, 3, 32, 32), each of a shape in two colours, moved, turned, under noise; and their labels."""
    labels = rng.integers(0, len(NAMES), n)
    y, x = np.mgrid[:SIZE, :SIZE] - (SIZE - 1) / 2
    images = np.empty((n, 3, SIZE, SIZE), np.float32)
    for image, label in zip(images, labels, strict=True):
        radius, turn = rng.uniform(7, 12), rng.uniform(-0.3, 0.3)
        dx, dy = rng.uniform(radius - 15, 15 - radius, 2)
        u, v = (x - dx) / radius, (y - dy) / radius
        u, v = u * np.cos(turn) - v * np.sin(turn), u * np.sin(turn) + v * np.cos(turn)
        ground = rng.uniform(-1, 1, 3)
        colour = ground + rng.choice([-1, 1]) * rng.uniform(0.7, 1.5, 3)
        image[:] = np.where(outline(label, u, v), colour[:, None, None], ground[:, None, None])
    return images + rng.normal(0, 0.15, images.shape).astype(np.float32), labels


class Block(nn.Module):
    """Images (N, channels, H, W) -> (N, width, H / stride, W / stride): two convolutions, and a way around them."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.around = nn.Identity()
        if stride != 1 or channels != width:
            self.around = nn.Sequential(nn.Conv2d(channels, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: lt.Tensor) -> lt.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.around(x))


class ResNet(nn.Module):
    """Images (N, 3, H, W) -> logits (N, 10); 6 * blocks + 2 layers."""

    def __init__(self, blocks: int = 1, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        widths = [width, width, 2 * width, 4 * width]
        self.stages = nn.Sequential(
            *(
                Block(widths[i] if j == 0 else widths[i + 1], widths[i + 1], 2 if j == 0 and i > 0 else 1)
                for i in range(3)
                for j in range(blocks)
            )
        )
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, len(NAMES)))

    def forward(self, x: lt.Tensor) -> lt.Tensor:
        return self.head(self.stages(self.stem(x)))


def picture(images: np.ndarray, captions: list[str]) -> str:
    """A row of images as text, half as large, each under what it is taken for."""
    grey = images.mean(1).reshape(-1, SIZE // 2, 2, SIZE // 2, 2).mean((2, 4))
    low, high = grey.min((1, 2), keepdims=True), grey.max((1, 2), keepdims=True)
    shades = np.array(list(SHADES))[((grey - low) / (high - low) * (len(SHADES) - 1)).astype(int)]
    rows = ["  ".join(f"{c:{SIZE}}" for c in captions)]
    rows += ["  ".join("".join(c * 2 for c in line) for line in row) for row in shades.transpose(1, 0, 2)]
    return "\n".join(row.rstrip() for row in rows)


def predicted(model: ResNet, images: np.ndarray, batch: int) -> np.ndarray:
    """The class of each image."""
    model.eval()
    with lt.no_grad():
        found = [
            lt.argmax(model(lt.asarray(images[i : i + batch])), axis=-1).numpy() for i in range(0, len(images), batch)
        ]
    model.train()
    return np.concatenate(found)


def main() -> float:
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--epochs", type=int, default=5)
    args.add_argument("--blocks", type=int, default=1, help="blocks a stage: 3 is the paper's ResNet-20")
    args.add_argument("--batch", type=int, default=32)
    args.add_argument("--quick", action="store_true", help="fewer images, a narrower network, three epochs")
    args.add_argument("--amp", choices=("bfloat16", "float16"), help="the lower precision of convolutions")
    options = args.parse_args()
    n, width, epochs = (1024, 8, 3) if options.quick else (4096, 16, options.epochs)

    lt.random.seed(0)
    rng = np.random.default_rng(0)
    images, labels = drawn(n, rng)
    test_images, test_labels = drawn(512, rng)
    model = ResNet(options.blocks, width)
    batches = lt.data.DataLoader(
        lt.data.TensorDataset(lt.asarray(images), lt.asarray(labels)), options.batch, shuffle=True, drop_last=True
    )
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs * len(batches))
    mixed = lt.autocast("cpu", dtype=options.amp or "bfloat16", enabled=options.amp is not None)
    scaler = lt.amp.GradScaler("cpu", enabled=options.amp == "float16")

    print(
        f"{sum(p.size for p in model.parameters()):,} parameters, {n:,} images, {len(batches)} steps an epoch",
        flush=True,
    )
    start = time.perf_counter()
    steps = plans = 0
    for epoch in range(1, epochs + 1):
        losses = []
        for x, y in batches:
            with mixed:
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            optimizer.zero_grad()
            lt.sync()
            losses.append(loss.item())  # computed already
            report = lt.last_sync()
            steps, plans = steps + 1, plans + report.plans
        right = (predicted(model, test_images, 128) == test_labels).mean()
        seconds = time.perf_counter() - start
        print(f"epoch {epoch:2}  loss {np.mean(losses):.3f}  unseen right {right:6.1%}  {seconds:5.1f} s", flush=True)

    print(f"\n{steps} training steps, {plans} plans. The last step:\n{report}\n")
    found = predicted(model, test_images[:128], 128)
    wrong = np.flatnonzero(found != test_labels[:128])
    shown = [*np.flatnonzero(found == test_labels[:128])[:4], *wrong[:1]]
    print("Unseen shapes, and what they are taken for:\n")
    captions = [NAMES[found[i]] + ("" if found[i] == test_labels[i] else f" ({NAMES[test_labels[i]]})") for i in shown]
    print(picture(test_images[shown], captions))
    return float(right)


if __name__ == "__main__":
    main()
