"""Optimizers, averages of models and learning-rate schedulers. Names as in `torch.optim`."""

from importlib import import_module as _import_module
from typing import Any as _Any

from lazyt.optim import lr_scheduler
from lazyt.optim.adaptive import Adadelta, Adamax, Lion, NAdam, RAdam
from lazyt.optim.algorithms import SGD, Adagrad, Adam, AdamW, RMSprop
from lazyt.optim.hooks import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from lazyt.optim.lbfgs import LBFGS
from lazyt.optim.matrix import Adafactor, Muon
from lazyt.optim.optimizer import Optimizer
from lazyt.optim.stepwise import ASGD, Rprop
from lazyt.tracing import tracebacks as _tracebacks

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "lr_scheduler",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
    "swa_utils",
]

_tracebacks.guard_classes(globals(), [_n for _n in __all__ if _n != "swa_utils"])
_tracebacks.guard_classes(vars(lr_scheduler), lr_scheduler.__all__)


@_tracebacks.api_boundary
def __getattr__(name: str) -> _Any:
    if name == "swa_utils":  # it stands on nn, which stands on this package
        return _import_module("lazyt.optim.swa_utils")
    if name == "SparseAdam":
        raise AttributeError(
            "lazyt.optim has no 'SparseAdam': gradients are dense here, so there is nothing sparse to update; use Adam"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
