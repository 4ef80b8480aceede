"""Twenty epochs of every scheduler, for every option; its state after eight of them, and a rate set by hand."""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

EPOCHS, HALF = 20, 8
METRICS = [3.0, 2.0, 2.5, 2.5, 1.9999, 2.2, 1.0, 1.1, 1.2, 0.9, 0.9, 0.8995, 0.95, 1.0, 1.0, 1.0, 0.5, 0.6, 0.7, 0.8]


class Halving:
    """A function with a state."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, epoch: float) -> float:
        return float(self.rate**epoch)


def _sequential(s: Any, o: Any) -> Any:
    parts = [s.LinearLR(o, 0.1, total_iters=4), s.CosineAnnealingLR(o, 6), s.ExponentialLR(o, 0.9)]
    return s.SequentialLR(o, parts, [4, 11])


def _nested(s: Any, o: Any) -> Any:
    first = s.ChainedScheduler([s.ConstantLR(o, 0.5, 3), s.StepLR(o, 2, 0.7)])
    return s.SequentialLR(o, [first, s.MultiStepLR(o, [2, 5], 0.3)], [6])


MADE: dict[str, Callable[[Any, Any], Any]] = {
    "lambda": lambda s, o: s.LambdaLR(o, lambda epoch: 0.9**epoch),
    "lambda each": lambda s, o: s.LambdaLR(o, [Halving(0.8), lambda epoch: 1 / (1 + epoch)]),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda epoch: 1 - 0.02 * epoch),
    "step": lambda s, o: s.StepLR(o, 3, 0.5),
    "milestones": lambda s, o: s.MultiStepLR(o, [4, 9, 9, 15], 0.4),
    "constant": lambda s, o: s.ConstantLR(o, 0.4, 6),
    "linear": lambda s, o: s.LinearLR(o, 0.2, 0.9, 7),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.9),
    "polynomial": lambda s, o: s.PolynomialLR(o, 12, 1.5),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 7, 0.01),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 5),
    "restarts growing": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.1, 1.0, 4, 3),
    "cyclic halved": lambda s, o: s.CyclicLR(o, 0.1, [1.0, 2.0], 3, mode="triangular2", cycle_momentum=False),
    "cyclic range": lambda s, o: s.CyclicLR(o, 0.1, 1.0, 3, mode="exp_range", gamma=0.9, base_momentum=0.5),
    "cyclic scaled": lambda s, o: s.CyclicLR(o, 0.1, 1.0, 3, scale_fn=Halving(0.7), scale_mode="iterations"),
    "one cycle": lambda s, o: s.OneCycleLR(o, 1.0, total_steps=21),
    "one cycle linear": lambda s, o: s.OneCycleLR(
        o, [1.0, 0.5], epochs=3, steps_per_epoch=7, anneal_strategy="linear", pct_start=0.4, div_factor=5.0
    ),
    "one cycle in three": lambda s, o: s.OneCycleLR(o, 1.0, 21, three_phase=True, final_div_factor=10.0),
    "one cycle alone": lambda s, o: s.OneCycleLR(o, 1.0, 21, cycle_momentum=False),
    "sequential": _sequential,
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9)], optimizer=o),
    "nested": _nested,
    "plateau": lambda s, o: s.ReduceLROnPlateau(o, patience=1, factor=0.5),
    "plateau max": lambda s, o: s.ReduceLROnPlateau(
        o, "max", 0.7, 2, 0.05, "abs", cooldown=2, min_lr=[0.01, 0.06], eps=1e-3
    ),
    "plateau abs": lambda s, o: s.ReduceLROnPlateau(o, "min", 0.7, 1, 0.1, "abs", min_lr=0.1),
    "plateau rel max": lambda s, o: s.ReduceLROnPlateau(o, "max", 0.7, 1, 0.1),
    "averaged": lambda s, o: _of_optim(s).swa_utils.SWALR(o, 0.05, 6),
    "averaged linear": lambda s, o: _of_optim(s).swa_utils.SWALR(o, [0.05, 0.2], 6, "linear"),
    "averaged at once": lambda s, o: _of_optim(s).swa_utils.SWALR(o, 0.05, 0),
}  # fmt: skip


def _of_optim(s: Any) -> Any:
    return importlib.import_module(s.__name__.rpartition(".")[0])


def make(name: str, lib: Any) -> tuple[Any, Any]:
    params = [lib.tensor(np.ones(1), requires_grad=True) for _ in range(2)]
    momentum = name not in ("one cycle linear", "cyclic range")
    groups = [{"params": params[:1]}, {"params": params[1:], "lr": 0.25}]
    optimizer = lib.optim.SGD(groups, lr=0.5, momentum=0.9) if momentum else lib.optim.Adam(groups, lr=0.5)
    return optimizer, MADE[name](lib.optim.lr_scheduler, optimizer)


def go(name: str, optimizer: Any, scheduler: Any, first: int, last: int, by_hand: bool) -> list[list[float]]:
    """The rates and momentums of epochs first to last; by hand they are set at one of them."""
    found = []
    for epoch in range(first, last):
        if by_hand and epoch == 5:
            optimizer.param_groups[0]["lr"] = 0.37
        groups = optimizer.param_groups
        momenta = [g["betas"][0] if "betas" in g else g["momentum"] for g in groups]
        found.append([*(g["lr"] for g in groups), *momenta, *scheduler.get_last_lr()])
        optimizer.step()
        scheduler.step(*([METRICS[epoch]] if name.startswith("plateau") else []))
    return found


def run(name: str, lib: Any, dtype: str) -> dict[str, Any]:
    optimizer, scheduler = make(name, lib)
    found: dict[str, Any] = {"first": np.array(go(name, optimizer, scheduler, 0, HALF, False))}
    if lib.__name__ == "torch":
        state = {k: v for k, v in scheduler.state_dict().items() if k != "_scale_fn_ref"}
        found["state"] = repr([optimizer.state_dict(), state])
    found["last"] = np.array(go(name, optimizer, scheduler, HALF, EPOCHS, False))
    found["by hand"] = np.array(go(name, *make(name, lib), 0, EPOCHS, True))
    return found


def go_on(name: str, lib: Any, kept: dict[str, Any]) -> np.ndarray:
    """The last epochs from PyTorch's state, in a scheduler that was made anew."""
    optimizer, scheduler = make(name, lib)
    saved, state = eval(str(kept["state"]), {"inf": math.inf, "Counter": Counter, "tensor": np.asarray})
    optimizer.load_state_dict(saved)
    scheduler.load_state_dict(state)
    return np.array(go(name, optimizer, scheduler, HALF, EPOCHS, False))


PROGRAMS = {name: partial(run, name) for name in MADE}
