"""Optimizers and learning-rate schedulers. Names as in `torch.optim`."""

from lazyt.optim import lr_scheduler
from lazyt.optim.algorithms import SGD, Adagrad, Adam, AdamW, RMSprop
from lazyt.optim.optimizer import Optimizer

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "RMSprop", "lr_scheduler"]


def __dir__() -> list[str]:
    return sorted(__all__)
