"""A training step with all that recipes put into it is one plan and one sync."""

from __future__ import annotations

from typing import Any

import numpy as np

import lazyt as lt
from lazyt.optim import swa_utils
from lazyt.utils.checkpoint import checkpoint


class Deep(lt.nn.Module):
    """Two layers whose inner values are computed again in the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = lt.nn.ModuleList([lt.nn.Sequential(lt.nn.Linear(4, 4), lt.nn.Tanh()) for _ in range(2)])
        self.head = lt.nn.Linear(4, 1)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = checkpoint(block, x)
        return self.head(x)


def test_checkpoints_hooks_clipping_average_and_schedule_are_one_plan() -> None:
    lt.random.seed(0)
    model = Deep()
    average = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = lt.optim.AdamW(model.parameters(), lr=0.05)
    schedule = lt.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            lt.optim.lr_scheduler.LinearLR(optimizer, 0.5, total_iters=2),
            lt.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10),
        ],
        [2],
    )
    sizes: list[Any] = []
    model.head.weight.register_hook(lambda g: g - g.mean())
    model.head.bias.register_post_accumulate_grad_hook(lambda p: sizes.append(lt.abs(p.grad).sum()))
    model.blocks[0].register_forward_hook(lambda module, given, found: found * 1.5)
    x = lt.asarray(np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32))
    reasons, losses = [], []
    for _ in range(8):
        with lt.expect(syncs=1):
            with lt.no_sync():
                optimizer.zero_grad()
                loss = (model(x) ** 2).mean()
                loss.backward()
                norm = lt.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                schedule.step()
                average.update_parameters(model)
            losses.append(loss.item())
        report = lt.last_sync()
        assert report.plans <= 1
        reasons.append(report.reason)
    assert reasons[4:] == [""] * 4, "the steps are one plan"
    assert losses[-1] < losses[0] and len(sizes) == 8 and sizes[-1].item() > 0 and norm.item() > 0
