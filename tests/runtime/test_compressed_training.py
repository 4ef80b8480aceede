"""A residual network trains with two bits as it does with 32, also where compression begins in the middle."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt.nn import functional as F

STEPS, BATCH, CLASSES = 80, 32, 10


class _Block(lt.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = lt.nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = lt.nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norms = lt.nn.ModuleList([lt.nn.BatchNorm2d(width) for _ in range(2)])

    def forward(self, x: lt.Tensor) -> lt.Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + x)


class _Net(lt.nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = lt.nn.Conv2d(3, width, 3, padding=1, stride=2, bias=False)
        self.norm = lt.nn.BatchNorm2d(width)
        self.blocks = lt.nn.Sequential(_Block(width), _Block(width))
        self.head = lt.nn.Linear(width * 16, CLASSES)

    def forward(self, x: lt.Tensor) -> lt.Tensor:
        x = self.blocks(F.relu(self.norm(self.stem(x))))
        return self.head(F.avg_pool2d(x, 4).reshape(x.shape[0], -1))


def _batches() -> list[tuple[lt.Tensor, lt.Tensor]]:
    """Images of ten classes: a pattern each, under noise that leaves some of them in doubt."""
    rng = np.random.default_rng(0)
    patterns = rng.standard_normal((CLASSES, 3, 4, 4)).repeat(8, 2).repeat(8, 3)
    found = []
    for _ in range(8):
        labels = rng.integers(0, CLASSES, BATCH)
        images = 0.4 * patterns[labels] + rng.standard_normal((BATCH, 3, 32, 32))
        found.append((lt.tensor(images.astype(np.float32)), lt.tensor(labels)))
    return found


def _losses(levels: list[str | None]) -> np.ndarray:
    """The loss of each step; of each part of the training its level."""
    lt.random.seed(0)
    net = _Net()
    optimizer = lt.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    losses, batches = [], _batches()
    compressions = [lt.memory.compress(level=level) for level in levels]
    for i in range(STEPS):
        x, labels = batches[i % len(batches)]
        compression = compressions[i * len(levels) // STEPS]
        if levels == ["L3"]:
            compression.samples(range(i % len(batches) * BATCH, (i % len(batches) + 1) * BATCH))
        with compression:
            y = net(x)
        loss = F.cross_entropy(y, labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


@pytest.mark.slow
def test_two_bits_train_a_residual_network_within_two_percent():
    """As many for all, and two on average that follow samples and layers."""
    exact = _losses(["L0"])
    assert exact[-16:].mean() < 0.5 * exact[0]
    for packed in (_losses([None]), _losses(["L3"])):
        assert packed[0] == exact[0]
        assert packed[-16:].mean() == pytest.approx(exact[-16:].mean(), rel=0.02)


@pytest.mark.slow
def test_compression_begins_and_ends_in_the_middle_of_a_training():
    exact, mixed = _losses(["L0"]), _losses(["L0", None, "L0"])
    np.testing.assert_array_equal(mixed[: STEPS // 3], exact[: STEPS // 3])
    assert mixed[-16:].mean() == pytest.approx(exact[-16:].mean(), rel=0.02)
