"""Training in mixed precision reaches the loss of float32 within a percent."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt

F = lt.nn.functional
STEPS = 80


def _loss(dtype: str | None, level: str | None = None) -> float:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(128, 8)).astype(np.float32)
    y = (x @ rng.normal(size=(8, 4)) + rng.normal(size=(128, 4))).argmax(1)
    inputs, labels = lt.asarray(x), lt.asarray(y)
    lt.random.seed(1)
    model = lt.nn.Sequential(lt.nn.Linear(8, 16), lt.nn.GELU(), lt.nn.LayerNorm(16), lt.nn.Linear(16, 4))
    opt = lt.optim.AdamW(model.parameters(), lr=0.01)
    scaler = lt.amp.GradScaler("cpu", init_scale=2.0**12, enabled=dtype == "float16" and level is None)
    if level is not None:
        model, opt = lt.amp.initialize(model, opt, opt_level=level, loss_scale=2.0**8)
    for _ in range(STEPS):
        opt.zero_grad()
        with lt.autocast("cpu", dtype=dtype or "bfloat16", enabled=dtype is not None):
            loss = F.cross_entropy(model(inputs), labels)
        with lt.amp.scale_loss(loss, opt) as scaled:
            scaler.scale(scaled).backward()
        scaler.step(opt)
        scaler.update()
        lt.sync()
    return loss.item()


@pytest.fixture(scope="module")
def full() -> float:
    return _loss(None)


@pytest.mark.parametrize(("dtype", "level"), [("bfloat16", None), ("float16", None), (None, "O2")])
def test_losses_are_within_a_percent_of_float32(dtype: str | None, level: str | None, full: float) -> None:
    assert full < 0.2  # of 1.39 at the start
    assert abs(_loss(dtype, level) - full) < 0.01 * full


def test_steps_in_a_region_are_one_program() -> None:
    """Layers whose input needs no cast meet weight and bias before the casts, the first time as later."""
    lt.random.seed(0)
    layers = [lt.nn.Linear(4, 4) for _ in range(3)]
    opt = lt.optim.SGD([p for layer in layers for p in layer.parameters()], lr=0.1)
    x = lt.ones((2, 4))
    plans = []
    for _ in range(4):
        with lt.autocast("cpu"):
            y = x
            for layer in layers:
                y = layer(y)
        y.astype("float32").sum().backward()
        opt.step()
        opt.zero_grad()
        lt.sync()
        report = lt.last_sync()
        assert report is not None
        plans.append(report.plans)
    assert plans[2:] == [0, 0]  # the first time it ran step by step, being small
