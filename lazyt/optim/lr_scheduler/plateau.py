"""The scheduler that watches a metric."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.errors import ArgumentError
from lazyt.optim.lr_scheduler.base import LRScheduler, checked, set_rate

if TYPE_CHECKING:
    from lazyt.optim.optimizer import Optimizer


class ReduceLROnPlateau(LRScheduler):
    """Times a factor when a metric has not become better for more than `patience` epochs.

    `step(metric)` reads the metric: a pending one is synced. As `torch.optim.lr_scheduler.ReduceLROnPlateau`.

    >>> import lazyt as lt
    >>> optimizer = lt.optim.SGD([lt.ones(1)], lr=1.0)
    >>> scheduler = lt.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     scheduler.step(loss)
    >>> scheduler.get_last_lr()
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: Any = 0.0,
        eps: float = 1e-8,
    ) -> None:
        self.optimizer = checked("ReduceLROnPlateau", optimizer)
        if factor >= 1:
            raise ArgumentError(f"ReduceLROnPlateau: factor is below 1, got {factor}")
        if mode not in ("min", "max"):
            raise ArgumentError(f"ReduceLROnPlateau: mode is 'min' or 'max', got {mode!r}")
        if threshold_mode not in ("rel", "abs"):
            raise ArgumentError(f"ReduceLROnPlateau: threshold_mode is 'rel' or 'abs', got {threshold_mode!r}")
        several = isinstance(min_lr, list | tuple)
        self.default_min_lr = None if several else min_lr
        self.min_lrs = list(min_lr) if several else [min_lr] * len(optimizer.param_groups)
        self._check_groups()
        self.factor, self.patience, self.cooldown, self.eps = factor, patience, cooldown, eps
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self.last_epoch = 0
        self._last_lr = self._rates()
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.best = self.mode_worse
        self.cooldown_counter = self.num_bad_epochs = 0

    def _check_groups(self) -> None:
        groups = len(self.optimizer.param_groups)
        if len(self.min_lrs) != groups:
            if self.default_min_lr is None:
                raise ArgumentError(f"ReduceLROnPlateau: min_lr has {len(self.min_lrs)} values for {groups} groups")
            self.min_lrs = [self.default_min_lr] * groups

    @property
    def in_cooldown(self) -> bool:
        """Whether epochs are not counted yet, after the last reduction."""
        return self.cooldown_counter > 0

    def _is_better(self, value: float) -> bool:
        way = 1 if self.mode == "max" else -1
        bound = self.best * (1 + way * self.threshold) if self.threshold_mode == "rel" else self.best
        if self.threshold_mode == "abs":
            bound += way * self.threshold
        return value > bound if self.mode == "max" else value < bound

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Count an epoch whose metric is a number or a tensor of one, which is read."""
        value = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._check_groups()
            for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                lr = max(float(group["lr"]) * self.factor, least)
                if float(group["lr"]) - lr > self.eps:
                    set_rate(group, lr)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._rates()
