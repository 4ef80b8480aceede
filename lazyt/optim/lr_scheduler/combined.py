"""Schedulers made of others: one after the other, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from lazyt.errors import ArgumentError, DTypeError
from lazyt.optim.lr_scheduler.base import LRScheduler, set_rate
from lazyt.optim.lr_scheduler.plateau import ReduceLROnPlateau

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.optim.optimizer import Optimizer


class _Combined(LRScheduler):
    _apart = frozenset({"optimizer", "_schedulers"})
    _schedulers: list[Any]

    def _take(self, schedulers: Sequence[Any], optimizer: Optimizer | None) -> None:
        owner = type(self).__name__
        if not schedulers:
            raise ArgumentError(f"{owner}: no schedulers were given")
        for i, s in enumerate(schedulers):
            if not isinstance(s, LRScheduler):
                raise DTypeError(f"{owner}: a scheduler is required at position {i}, got {type(s).__name__!r}")
            if isinstance(s, ReduceLROnPlateau):
                raise ArgumentError(f"{owner}: ReduceLROnPlateau at position {i} needs a metric; step it apart")
            if s.optimizer is not (optimizer or schedulers[0].optimizer):
                raise ArgumentError(f"{owner}: {type(s).__name__} at position {i} is of another optimizer")
        self._schedulers = list(schedulers)
        self.optimizer = optimizer or schedulers[0].optimizer

    def state_dict(self) -> dict[str, Any]:
        """As for all, and the states of the schedulers."""
        return {**super().state_dict(), "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state that `state_dict` gave."""
        super().load_state_dict(state_dict)
        for s, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            s.load_state_dict(state)


class SequentialLR(_Combined):
    """One scheduler after the other, the next from each milestone on. As `torch.optim.lr_scheduler.SequentialLR`.

    >>> import lazyt as lt
    >>> from lazyt.optim.lr_scheduler import ConstantLR, ExponentialLR, SequentialLR
    >>> optimizer = lt.optim.SGD([lt.ones(1)], lr=1.0)
    >>> parts = [ConstantLR(optimizer, 0.25, total_iters=2), ExponentialLR(optimizer, 0.5)]
    >>> scheduler, rates = SequentialLR(optimizer, parts, milestones=[2]), []
    >>> for _ in range(5):
    ...     rates += scheduler.get_last_lr()
    ...     scheduler.step()
    >>> rates
    [0.25, 0.25, 1.0, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: list[int], last_epoch: int = -1
    ) -> None:
        self._take(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentError(
                f"SequentialLR: {len(schedulers)} schedulers have {len(schedulers) - 1} milestones between them, "
                f"got {len(milestones)}"
            )
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        # Each scheduler has made its first step already; only that of the first one in the row counts.
        for group in optimizer.param_groups:
            set_rate(group, group["initial_lr"])
        _undo(self)
        current = self._schedulers[bisect_right(milestones, 0)]
        current._initial_step()
        self._last_lr = current.get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Count an epoch and let the scheduler whose turn it is set the learning rates."""
        if epoch is not None:
            raise DTypeError(f"SequentialLR: step counts epochs by itself, got epoch {epoch}")
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        current = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            current._update_lr(0)
        else:
            current.step()
        self._last_lr = current.get_last_lr()


def _undo(scheduler: Any) -> None:
    if isinstance(scheduler, _Combined):
        for s in scheduler._schedulers:
            _undo(s)
    else:
        scheduler.last_epoch -= 1


class ChainedScheduler(_Combined):
    """All schedulers at every step, each on what the one before it has set.

    As `torch.optim.lr_scheduler.ChainedScheduler`.
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        self._take(schedulers, optimizer)
        self._last_lr = self._rates()

    def step(self, epoch: int | None = None) -> None:
        """Step all schedulers."""
        if epoch is not None:
            raise DTypeError(f"ChainedScheduler: step counts epochs by itself, got epoch {epoch}")
        for s in self._schedulers:
            s.step()
        self._last_lr = self._rates()
