"""Schedulers whose next rate is the last one times a factor, or a function of the epoch."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Any

from lazyt.errors import ArgumentError, DTypeError
from lazyt.optim.lr_scheduler.base import LRScheduler, one_each, restore_functions, saved_functions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyt.optim.optimizer import Optimizer


class LambdaLR(LRScheduler):
    """The base rate times `lr_lambda(epoch)`, one function for all groups or one each.

    As `torch.optim.lr_scheduler.LambdaLR`.
    """

    _apart = frozenset({"optimizer", "lr_lambdas"})

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.lr_lambdas = one_each(type(self).__name__, "lr_lambda", optimizer, lr_lambda)
        for f in self.lr_lambdas:
            if not callable(f):
                raise DTypeError(f"{type(self).__name__}: lr_lambda is a function, got {type(f).__name__!r}")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The base rates times the functions of the epoch."""
        return [base * f(self.last_epoch) for base, f in zip(self.base_lrs, self.lr_lambdas, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """As for all; of functions only the attributes of objects, because functions are not saved."""
        return {**super().state_dict(), "lr_lambdas": saved_functions(self.lr_lambdas)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state that `state_dict` gave; the functions are those that the scheduler was made with."""
        super().load_state_dict(state_dict)
        restore_functions(self.lr_lambdas, state_dict["lr_lambdas"])


class MultiplicativeLR(LambdaLR):
    """The last rate times `lr_lambda(epoch)`. As `torch.optim.lr_scheduler.MultiplicativeLR`."""

    def get_lr(self) -> list[Any]:
        """The last rates times the functions of the epoch."""
        if self._is_initial:
            return self._rates()
        return [lr * f(self.last_epoch) for lr, f in zip(self._rates(), self.lr_lambdas, strict=True)]


class StepLR(LRScheduler):
    """Times gamma every step_size epochs. As `torch.optim.lr_scheduler.StepLR`."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The last rates, times gamma every step_size epochs."""
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return self._rates()
        return [lr * self.gamma for lr in self._rates()]

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Times gamma at every milestone. As `torch.optim.lr_scheduler.MultiStepLR`."""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The last rates, times gamma as often as the epoch is a milestone."""
        factor = self.gamma ** self.milestones[self.last_epoch]
        return [lr * factor for lr in self._rates()]

    def _get_closed_form_lr(self) -> list[Any]:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state that `state_dict` gave."""
        super().load_state_dict(state_dict)
        self.milestones = Counter(self.milestones)


class ConstantLR(LRScheduler):
    """Times a factor until epoch total_iters. As `torch.optim.lr_scheduler.ConstantLR`."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0 <= factor <= 1:
            raise ArgumentError(f"ConstantLR: factor is between 0 and 1, got {factor}")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The last rates, times the factor at first and over it at total_iters."""
        if self.last_epoch == 0:
            return [lr * self.factor for lr in self._rates()]
        if self.last_epoch != self.total_iters:
            return self._rates()
        return [lr * (1 / self.factor) for lr in self._rates()]

    def _get_closed_form_lr(self) -> list[Any]:
        factor = 1 if self.last_epoch >= self.total_iters else self.factor
        return [base * factor for base in self.base_lrs]


class LinearLR(LRScheduler):
    """Times a factor that goes from start_factor to end_factor in total_iters epochs.

    As `torch.optim.lr_scheduler.LinearLR`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1:
            raise ArgumentError(f"LinearLR: start_factor is in (0, 1], got {start_factor}")
        if not 0 <= end_factor <= 1:
            raise ArgumentError(f"LinearLR: end_factor is in [0, 1], got {end_factor}")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The last rates times this epoch's factor over the last one's."""
        if self.last_epoch == 0:
            return [lr * self.start_factor for lr in self._rates()]
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._rates()
        span = self.end_factor - self.start_factor
        factor = 1 + span / (self.total_iters * self.start_factor + (self.last_epoch - 1) * span)
        return [lr * factor for lr in self._rates()]

    def _get_closed_form_lr(self) -> list[Any]:
        done = min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * (self.start_factor + (self.end_factor - self.start_factor) * done) for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Times gamma every epoch. As `torch.optim.lr_scheduler.ExponentialLR`."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The last rates times gamma."""
        return self._rates() if self._is_initial else [lr * self.gamma for lr in self._rates()]

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Down to 0 in total_iters epochs, as a power of what is left. As `torch.optim.lr_scheduler.PolynomialLR`."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The last rates times this epoch's factor over the last one's."""
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._rates()
        left, before = (1 - epoch / self.total_iters for epoch in (self.last_epoch, self.last_epoch - 1))
        return [lr * (left / before) ** self.power for lr in self._rates()]

    def _get_closed_form_lr(self) -> list[Any]:
        left = 1 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * left**self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """From the base rate to eta_min along half a cosine of T_max epochs, and back. Loshchilov, Hutter (2016).

    As `torch.optim.lr_scheduler.CosineAnnealingLR`.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:  # noqa: N803
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def _height(self, epoch: int) -> float:
        return 1 + math.cos(math.pi * epoch / self.T_max)

    def get_lr(self) -> list[Any]:
        """The last rates' distance to eta_min times this epoch's height over the last one's."""
        epoch, low = self.last_epoch, self.eta_min
        if self._is_initial:
            return self._rates()
        if self._step_count == 1 and epoch > 0:
            return self._get_closed_form_lr()
        pairs = zip(self._rates(), self.base_lrs, strict=True)
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # it was at the bottom
            return [lr + (base - low) * (1 - math.cos(math.pi / self.T_max)) / 2 for lr, base in pairs]
        factor = self._height(epoch) / self._height(epoch - 1)
        return [low + (lr - low) * factor for lr in self._rates()]

    def _get_closed_form_lr(self) -> list[Any]:
        height = self._height(self.last_epoch) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]
