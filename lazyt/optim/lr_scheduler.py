"""Learning rates that change with the number of `step()` calls. Names as in `torch.optim.lr_scheduler`."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from lazyt.errors import LazytError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.optim.optimizer import Optimizer

__all__ = [
    "CosineAnnealingLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "StepLR",
]


class LRScheduler:
    """Base of the schedulers: `rate(base, epoch)` is a group's learning rate after so many steps."""

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def rate(self, base: float, epoch: int, index: int) -> float:
        """The learning rate of group number `index`, whose first one was `base`."""
        raise NotImplementedError

    def next_rate(self, lr: float, base: float, epoch: int, index: int) -> float:
        """The rate after one more step, from that of now: one that was set by hand goes on from there, as in PyTorch.

        Where a rule has no such form (`LambdaLR`), it is `rate`.
        """
        return self.rate(base, epoch, index)

    def step(self) -> None:
        """Count an epoch and set the learning rates."""
        self.last_epoch += 1
        for i, group in enumerate(self.optimizer.param_groups):
            if i == len(self.base_lrs):
                group.setdefault("initial_lr", group["lr"])
                self.base_lrs.append(group["initial_lr"])
            base, epoch = self.base_lrs[i], self.last_epoch
            # NOTE: what nobody set since goes by the closed form, whose rounding errors do not add up.
            by_hand = epoch > 0 and group["lr"] != self.rate(base, epoch - 1, i)
            group["lr"] = self.next_rate(group["lr"], base, epoch, i) if by_hand else self.rate(base, epoch, i)

    def get_last_lr(self) -> list[float]:
        """The learning rates now, one a group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """The epoch and the base rates."""
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state that `state_dict` gave."""
        self.last_epoch, self.base_lrs = state_dict["last_epoch"], list(state_dict["base_lrs"])
        for i, group in enumerate(self.optimizer.param_groups):
            group["lr"] = self.rate(self.base_lrs[i], self.last_epoch, i)


class LambdaLR(LRScheduler):
    """The base rate times `lr_lambda(epoch)`, one function for all groups or one each."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        groups = len(optimizer.param_groups)
        self.lr_lambdas: Sequence[Callable[[int], float]] = (
            list(lr_lambda) if isinstance(lr_lambda, list | tuple) else [lr_lambda] * groups
        )
        if len(self.lr_lambdas) != groups:
            raise LazytError(f"LambdaLR: {groups} functions are required, got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, index: int) -> float:
        return base * self.lr_lambdas[index](epoch)


class StepLR(LRScheduler):
    """The base rate times gamma every step_size epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, index: int) -> float:
        return base * self.gamma ** (epoch // self.step_size)

    def next_rate(self, lr: float, base: float, epoch: int, index: int) -> float:
        return lr if epoch % self.step_size else lr * self.gamma


class MultiStepLR(LRScheduler):
    """The base rate times gamma at every milestone."""

    def __init__(
        self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, index: int) -> float:
        return base * self.gamma ** bisect_right(self.milestones, epoch)

    def next_rate(self, lr: float, base: float, epoch: int, index: int) -> float:
        return lr * self.gamma ** self.milestones.count(epoch)


class ExponentialLR(LRScheduler):
    """The base rate times gamma every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, index: int) -> float:
        return base * self.gamma**epoch

    def next_rate(self, lr: float, base: float, epoch: int, index: int) -> float:
        return lr * self.gamma


class LinearLR(LRScheduler):
    """The base rate times a factor that goes from start_factor to end_factor in total_iters epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, index: int) -> float:
        done = min(epoch, self.total_iters) / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * done)

    def next_rate(self, lr: float, base: float, epoch: int, index: int) -> float:
        if epoch > self.total_iters:
            return lr
        before = self.rate(1.0, epoch - 1, index)
        return lr * self.rate(1.0, epoch, index) / before if before else self.rate(base, epoch, index)


class CosineAnnealingLR(LRScheduler):
    """From the base rate to eta_min along half a cosine of T_max epochs, and back. Loshchilov, Hutter (2016)."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:  # noqa: N803
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, index: int) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * epoch / self.T_max)) / 2

    def next_rate(self, lr: float, base: float, epoch: int, index: int) -> float:
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # at the bottom
            return lr + (base - self.eta_min) * (1 - math.cos(math.pi / self.T_max)) / 2
        now, then = (1 + math.cos(math.pi * e / self.T_max) for e in (epoch - 1, epoch))
        return self.eta_min + (lr - self.eta_min) * then / now


def __dir__() -> list[str]:
    return sorted(__all__)
