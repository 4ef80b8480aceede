"""Learning rates that change with the number of `step()` calls. Names as in `torch.optim.lr_scheduler`.

A rate goes on from what stands in the optimizer's groups, so one that was set by hand is kept as PyTorch keeps it.
"""

from lazyt.optim.lr_scheduler.base import LRScheduler
from lazyt.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from lazyt.optim.lr_scheduler.cycles import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from lazyt.optim.lr_scheduler.factors import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from lazyt.optim.lr_scheduler.plateau import ReduceLROnPlateau

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]


def __dir__() -> list[str]:
    return sorted(__all__)
