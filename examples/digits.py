"""Learn scikit-learn's handwritten digits with a small convolutional network: at least 98 % right on unseen ones.

    python examples/digits.py              # under a minute on two cores
    python examples/digits.py --quick      # a short form, for checking that all is well
    python examples/digits.py --amp bfloat16   # in mixed precision; float16 is with scaled losses
    python examples/digits.py --device cuda    # on another device

Every operation is recorded, not run, until `lt.sync()`: a whole training step (forward, backward, optimizer) is then
one plan of fused kernels. It is planned once, for every batch size, and afterwards only run again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import lazyt as lt
from lazyt import nn, optim

Batch = tuple[np.ndarray, np.ndarray]


def load() -> tuple[Batch, Batch]:
    """1437 images (N, 1, 8, 8) in [0, 1] to learn from, and 360 to be tested on."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    x, x_test, y, y_test = train_test_split(images, labels, test_size=360, random_state=0, stratify=labels)
    return (x, y), (x_test, y_test)


def batches(data: Batch, size: int, rng: np.random.Generator) -> Iterator[Batch]:
    """The data in shuffled order, each image moved by up to a pixel; the last batch is smaller."""
    x, y = data
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    for part in np.array_split(rng.permutation(len(x)), range(size, len(x), size)):
        down, right = rng.integers(0, 3, 2)
        yield padded[part][:, :, down : down + 8, right : right + 8], y[part]


def make_model() -> nn.Module:
    """Two convolutions and two dense layers: 151,306 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def accuracy(model: nn.Module, data: Batch, device: lt.Device) -> float:
    """The share of images whose digit is named right."""
    model.eval()
    x, y = data
    with lt.no_grad():
        right = model(lt.asarray(x, device=device)).argmax(1) == lt.asarray(y, device=device)
        return right.mean().item()


def main() -> float:
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--epochs", type=int, default=20)
    args.add_argument("--batch", type=int, default=64)
    args.add_argument("--quick", action="store_true", help="three epochs")
    args.add_argument("--device", default="cpu", help="cuda, or that of an installed plugin, such as opencl")
    args.add_argument("--amp", choices=("bfloat16", "float16"), help="the lower precision of products")
    options = args.parse_args()
    epochs = 3 if options.quick else options.epochs

    rng = np.random.default_rng(0)
    lt.random.seed(0)
    train, test = load()
    device = lt.Device.check(options.device)
    model = make_model().to(device)
    optimizer = optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    criterion = nn.CrossEntropyLoss()
    mixed = lt.autocast(device.type, dtype=options.amp or "bfloat16", enabled=options.amp is not None)
    scaler = lt.amp.GradScaler(device.type, enabled=options.amp == "float16")

    start = time.perf_counter()
    steps = plans = compiles = syncs = 0
    for epoch in range(1, epochs + 1):
        model.train()
        losses = []
        for x, y in batches(train, options.batch, rng):
            with mixed:
                loss = criterion(model(lt.asarray(x, device=device)), lt.asarray(y, device=device))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            lt.sync()
            losses.append(loss.item())  # computed already: reading it is no second sync

            report = lt.last_sync()
            steps, syncs = steps + 1, syncs + 1
            plans, compiles = plans + report.plans, compiles + report.compiles
        schedule.step()
        right = accuracy(model, test, device)
        seconds = time.perf_counter() - start
        print(f"epoch {epoch:2}  loss {np.mean(losses):.4f}  test accuracy {right:.2%}  {seconds:5.1f} s", flush=True)

    print(f"\n{steps} training steps, {syncs} syncs, {plans} plans, {compiles} compiles. The last step:")
    print(report)
    return right


if __name__ == "__main__":
    main()
