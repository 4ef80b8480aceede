"""Averages of a model's parameters over training. Names as in `torch.optim.swa_utils`.

Izmailov et al.: Averaging weights leads to wider optima and better generalization (2018).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from lazyt import nn
from lazyt.errors import ArgumentError, ShapeError
from lazyt.functions.creation import zeros
from lazyt.ir import dtypes
from lazyt.ops.optim import AVERAGE
from lazyt.optim.lr_scheduler.base import LRScheduler, one_each
from lazyt.optim.parameters import write_all
from lazyt.tracing import tracebacks as _tracebacks
from lazyt.tracing.batched_writes import record_update
from lazyt.tracing.current import restore_grad_mode, set_grad_mode

if TYPE_CHECKING:
    from lazyt.optim.optimizer import Optimizer

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]

Averages = Callable[[Sequence[Any], Sequence[Any], Any], None]


def _without_gradients(f: Callable[..., Any], *args: Any) -> Any:
    before = set_grad_mode(False)
    try:
        return f(*args)
    finally:
        restore_grad_mode(before)


def _move(averages: Sequence[Any], current: Sequence[Any], rate: Any) -> None:
    """averages += (current - averages) * rate: one launch, all or nothing."""
    for device in dict.fromkeys(x.device for x in averages):
        own = [i for i, x in enumerate(averages) if x.device == device]
        olds, news = [averages[i] for i in own], [current[i] for i in own]
        _without_gradients(record_update, AVERAGE, (*olds, *news, rate), (), olds)


def _decay(name: str, decay: float) -> float:
    if not 0 <= decay <= 1:
        raise ArgumentError(f"{name}: decay is between 0 and 1, got {decay}")
    return decay


def get_ema_multi_avg_fn(decay: float = 0.999) -> Averages:
    """The exponential average of all parameters, in place, as one fused step; another decay is no new plan.

    As `torch.optim.swa_utils.get_ema_multi_avg_fn`.

    >>> import lazyt as lt
    >>> average, w = lt.zeros(2), lt.ones(2)
    >>> lt.optim.swa_utils.get_ema_multi_avg_fn(0.75)([average], [w], 1)
    >>> average.tolist()
    [0.25, 0.25]
    """
    rate = 1 - _decay("get_ema_multi_avg_fn", decay)
    return lambda averages, current, count: _move(averages, current, rate)


def get_swa_multi_avg_fn() -> Averages:
    """The mean of all parameters that were given so far, in place, as one fused step.

    As `torch.optim.swa_utils.get_swa_multi_avg_fn`.

    >>> import lazyt as lt
    >>> average, w = lt.zeros(2), lt.ones(2)
    >>> lt.optim.swa_utils.get_swa_multi_avg_fn()([average], [w], 3)
    >>> average.tolist()
    [0.25, 0.25]
    """
    return lambda averages, current, count: _move(averages, current, 1 / (count + 1))


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Any, Any, Any], Any]:
    """The exponential average of one parameter. As `torch.optim.swa_utils.get_ema_avg_fn`.

    >>> import lazyt as lt
    >>> lt.optim.swa_utils.get_ema_avg_fn(0.75)(lt.zeros(2), lt.ones(2), 1).tolist()
    [0.25, 0.25]
    """
    _decay("get_ema_avg_fn", decay)
    return lambda average, current, count: decay * average + (1 - decay) * current


def get_swa_avg_fn() -> Callable[[Any, Any, Any], Any]:
    """The mean of what was given so far, of one parameter. As `torch.optim.swa_utils.get_swa_avg_fn`.

    >>> import lazyt as lt
    >>> lt.optim.swa_utils.get_swa_avg_fn()(lt.zeros(2), lt.ones(2), 3).tolist()
    [0.25, 0.25]
    """
    return lambda average, current, count: average + (current - average) / (count + 1)


class AveragedModel(nn.Module):
    """A copy of a model whose parameters are averages. As `torch.optim.swa_utils.AveragedModel`.

    The default is the mean; `multi_avg_fn` averages all parameters at once, `avg_fn` each by itself, given the number
    of models so far as an int. Buffers are copied, or averaged with `use_buffers`. An update stays lazy: it is part of
    the training step's plan.

    >>> import lazyt as lt
    >>> model = lt.nn.Linear(2, 1)
    >>> averaged = lt.optim.swa_utils.AveragedModel(model, multi_avg_fn=lt.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    >>> averaged.update_parameters(model)
    >>> averaged.n_averaged.item(), sorted(averaged.state_dict())
    (1, ['module.bias', 'module.weight', 'n_averaged'])
    """

    def __init__(
        self,
        model: nn.Module,
        device: Any = None,
        avg_fn: Callable[[Any, Any, Any], Any] | None = None,
        multi_avg_fn: Averages | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ArgumentError("AveragedModel: avg_fn or multi_avg_fn, got both")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", zeros((), dtype=dtypes.int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers
        self._counted = (self.n_averaged, self.n_averaged._version, 0)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _count(self) -> int:
        """`n_averaged` as a number: it is read only if something else has written it."""
        n = self.n_averaged
        if self._counted[0] is not n or self._counted[1] != n._version:
            self._counted = (n, n._version, int(n.item()))
        return self._counted[2]

    def update_parameters(self, model: nn.Module) -> None:
        """Take another state of the model into the average."""
        count = self._count()
        averages, current = list(self.module.parameters()), list(model.parameters())
        buffers, others = list(self.module.buffers()), list(model.buffers())
        if [p.shape for p in chain(averages, buffers)] != [p.shape for p in chain(current, others)]:
            raise ShapeError("AveragedModel: the model is not like the one that is averaged")
        if self.use_buffers:
            averages, current, buffers, others = averages + buffers, current + others, [], []
        current = [y.detach().to(x.device) for x, y in zip(averages, current, strict=True)]
        copies = [(x, y.detach().to(x.device)) for x, y in zip(buffers, others, strict=True)]
        if count == 0:
            copies += zip(averages, current, strict=True)
        elif self.avg_fn is not None:
            avg_fn = self.avg_fn
            pairs = list(zip(averages, current, strict=True))
            copies += _without_gradients(lambda: [(x, avg_fn(x.detach(), y, count)) for x, y in pairs])
        else:
            (self.multi_avg_fn or get_swa_multi_avg_fn())([x.detach() for x in averages], current, count)
        n = self.n_averaged
        write_all([*copies, (n, n + 1)])
        self._counted = (n, n._version, count + 1)


def update_bn(loader: Iterable[Any], model: nn.Module, device: Any = None) -> None:
    """Compute the running statistics of a model's batch norms anew, over all batches of a loader.

    Of a batch that is a list or tuple the first part is the input. As `torch.optim.swa_utils.update_bn`.

    >>> import lazyt as lt
    >>> model = lt.nn.Sequential(lt.nn.BatchNorm1d(1))
    >>> lt.optim.swa_utils.update_bn([lt.asarray([[1.0], [3.0]]), lt.asarray([[5.0], [7.0]])], model)
    >>> model[0].running_mean.tolist()
    [4.0]
    """
    kinds = tuple(c for n, c in vars(nn).items() if n.startswith("BatchNorm"))
    norms = [m for m in model.modules() if isinstance(m, kinds) and m.running_mean is not None]
    if not norms:
        return
    write_all([(b, 1 if name == "running_var" else 0) for m in norms for name, b in m.named_buffers()])
    before = [(m, m.momentum) for m in norms]
    training = [(m, m.training) for m in model.modules()]
    model.train()
    try:
        for m in norms:
            m.momentum = None
        for batch in loader:
            x = batch[0] if isinstance(batch, list | tuple) else batch
            _without_gradients(model, x if device is None else x.to(device))
    finally:
        for m, momentum in before:
            m.momentum = momentum
        for m, was in training:
            m.training = was


class SWALR(LRScheduler):
    """To a constant rate in anneal_epochs, as averaging wants. As `torch.optim.swa_utils.SWALR`.

    >>> import lazyt as lt
    >>> optimizer = lt.optim.SGD([lt.ones(1)], lr=1.0)
    >>> scheduler = lt.optim.swa_utils.SWALR(optimizer, swa_lr=0.5, anneal_epochs=2, anneal_strategy="linear")
    >>> for _ in range(2):
    ...     scheduler.step()
    >>> scheduler.get_last_lr()
    [0.5]
    """

    _apart = frozenset({"optimizer", "anneal_func"})

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: Any,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(f"SWALR: anneal_strategy is 'cos' or 'linear', got {anneal_strategy!r}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ArgumentError(f"SWALR: anneal_epochs is an integer of at least 0, got {anneal_epochs!r}")
        for lr, group in zip(one_each("SWALR", "swa_lr", optimizer, swa_lr), optimizer.param_groups, strict=True):
            group["swa_lr"] = lr
        self.anneal_epochs, self._anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """How much of the way is made after so many steps."""
        done = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return done if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * done)) / 2

    def get_lr(self) -> list[Any]:
        """The rates after this step, from those before it."""
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        found = []
        for group in self.optimizer.param_groups:
            lr, target = group["lr"], group["swa_lr"]
            start = target if before == 1 else (lr - before * target) / (1 - before)
            found.append(target * now + start * (1 - now))
        return found


_tracebacks.guard_functions(globals(), __all__)
_tracebacks.guard_classes(globals(), __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
