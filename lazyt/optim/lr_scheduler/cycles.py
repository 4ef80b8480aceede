"""Schedulers that go up and down, with a momentum that goes the other way."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.errors import ArgumentError
from lazyt.optim.lr_scheduler.base import (
    LRScheduler,
    checked,
    one_each,
    restore_functions,
    saved_functions,
    set_rate,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.optim.optimizer import Optimizer

    Group = dict[str, Any]


def _set_momentum(group: Group, value: float, use_beta1: bool) -> None:
    if use_beta1:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class _Momentum(LRScheduler):
    """What CyclicLR and OneCycleLR share: the groups' momentum, or first beta."""

    use_beta1: bool

    def _start_momentum(self, optimizer: Optimizer, base: Any, most: Any, last_epoch: int) -> tuple[list[Any], ...]:
        owner = type(self).__name__
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ArgumentError(f"{owner}: cycle_momentum requires an optimizer with momentum or betas")
        self.use_beta1 = "betas" in optimizer.defaults
        bases = one_each(owner, "base_momentum", optimizer, base)
        highest = one_each(owner, "max_momentum", optimizer, most)
        if last_epoch == -1:
            for group, low, high in zip(optimizer.param_groups, bases, highest, strict=True):
                _set_momentum(group, high, self.use_beta1)
                group["max_momentum"], group["base_momentum"] = high, low
        return bases, highest


class CyclicLR(_Momentum):
    """Between base_lr and max_lr in cycles, that may flatten. As `torch.optim.lr_scheduler.CyclicLR`. Smith (2015)."""

    _apart = frozenset({"optimizer", "_scale_fn_custom"})

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.8,
        max_momentum: Any = 0.9,
        last_epoch: int = -1,
    ) -> None:
        checked("CyclicLR", optimizer)
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ArgumentError(f"CyclicLR: mode is 'triangular', 'triangular2' or 'exp_range', got {mode!r}")
        bases = one_each("CyclicLR", "base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for lr, group in zip(bases, optimizer.param_groups, strict=True):
                set_rate(group, lr)
        self.max_lrs = one_each("CyclicLR", "max_lr", optimizer, max_lr)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode, self.gamma = mode, gamma
        self._scale_fn_custom = scale_fn
        # The modes have theirs.
        own = "iterations" if mode == "exp_range" else "cycle"
        self.scale_mode = scale_mode if scale_fn is not None else own
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            found = self._start_momentum(optimizer, base_momentum, max_momentum, last_epoch)
            self.base_momentums, self.max_momentums = found
        super().__init__(optimizer, last_epoch)
        self.base_lrs = bases

    def scale_fn(self, x: float) -> float:
        """How high cycle (or iteration) x goes."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        if self.mode == "triangular2":
            return float(1 / 2.0 ** (x - 1))
        return float(self.gamma**x)

    def get_lr(self) -> list[Any]:
        """The rates of this epoch; momentums are set by the way."""
        whole = self.last_epoch / self.total_size
        cycle = math.floor(1 + whole)
        x = 1 + whole - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            pairs = zip(self.base_momentums, self.max_momentums, strict=True)
            for group, (low, high) in zip(self.optimizer.param_groups, pairs, strict=True):
                _set_momentum(group, high - (high - low) * height, self.use_beta1)
        return [low + (high - low) * height for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """As for all; of a function `scale_fn` only the attributes of an object, because functions are not saved."""
        custom = self._scale_fn_custom
        return {**super().state_dict(), "_scale_fn_custom": saved_functions([custom])[0] if custom else None}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state that `state_dict` gave; `scale_fn` is the one that the scheduler was made with."""
        super().load_state_dict(state_dict)
        restore_functions([self._scale_fn_custom], [state_dict["_scale_fn_custom"]])


def _cosine(start: float, end: float, done: float) -> float:
    return end + (start - end) / 2 * (math.cos(math.pi * done) + 1)


def _linear(start: float, end: float, done: float) -> float:
    return (end - start) * done + start


class OneCycleLR(_Momentum):
    """Up to max_lr and down to next to nothing, once. As `torch.optim.lr_scheduler.OneCycleLR`. Smith, Topin (2017)."""

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        checked("OneCycleLR", optimizer)
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        if not 0 <= pct_start <= 1:
            raise ArgumentError(f"OneCycleLR: pct_start is between 0 and 1, got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(f"OneCycleLR: anneal_strategy is 'cos' or 'linear', got {anneal_strategy!r}")
        self._anneal_func_type = anneal_strategy
        up, end = float(pct_start * self.total_steps) - 1, self.total_steps - 1
        rise = _phase(up, "initial_lr", "max_lr", "max_momentum", "base_momentum")
        if three_phase:
            fall = _phase(2 * up, "max_lr", "initial_lr", "base_momentum", "max_momentum")
            rest = _phase(end, "initial_lr", "min_lr", "max_momentum", "max_momentum")
            self._schedule_phases = [rise, fall, rest]
        else:
            self._schedule_phases = [rise, _phase(end, "max_lr", "min_lr", "base_momentum", "max_momentum")]
        highest = one_each("OneCycleLR", "max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, high in zip(optimizer.param_groups, highest, strict=True):
                first = high / div_factor
                group.update({"initial_lr": first, "max_lr": high, "min_lr": first / final_div_factor})
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._start_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates of this epoch; momentums are set by the way."""
        step, phases = self.last_epoch, self._schedule_phases
        if step > self.total_steps:
            raise ArgumentError(f"OneCycleLR: step {step}, but total_steps is {self.total_steps}")
        anneal = _cosine if self._anneal_func_type == "cos" else _linear
        k = next((i for i, phase in enumerate(phases[:-1]) if step <= phase["end_step"]), len(phases) - 1)
        phase, start = phases[k], phases[k - 1]["end_step"] if k else 0.0
        done = (step - start) / (phase["end_step"] - start)
        found = []
        for group in self.optimizer.param_groups:
            found.append(anneal(group[phase["start_lr"]], group[phase["end_lr"]], done))
            if self.cycle_momentum:
                ends = group[phase["start_momentum"]], group[phase["end_momentum"]]
                _set_momentum(group, anneal(*ends, done), self.use_beta1)
        return found


def _phase(end: float, start_lr: str, end_lr: str, start_momentum: str, end_momentum: str) -> dict[str, Any]:
    return {
        "end_step": end, "start_lr": start_lr, "end_lr": end_lr,
        "start_momentum": start_momentum, "end_momentum": end_momentum,
    }  # fmt: skip


def _total_steps(total: Any, epochs: Any, steps_per_epoch: Any) -> int:
    given = {"total_steps": total} if total is not None else {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    if None in given.values():
        raise ArgumentError("OneCycleLR: total_steps is required, or epochs and steps_per_epoch")
    for name, value in given.items():
        if not isinstance(value, int) or value <= 0:
            raise ArgumentError(f"OneCycleLR: {name} is a positive integer, got {value!r}")
    return math.prod(given.values())


class CosineAnnealingWarmRestarts(LRScheduler):
    """Down to eta_min along half a cosine, again and again; T_0 epochs at first, T_mult times as many each time.

    As `torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`. Loshchilov, Hutter (2016).
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,  # noqa: N803
        T_mult: int = 1,  # noqa: N803
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        for name, value in (("T_0", T_0), ("T_mult", T_mult)):
            if not isinstance(value, int) or value < 1:
                raise ArgumentError(f"CosineAnnealingWarmRestarts: {name} is a positive integer, got {value!r}")
        self.T_0 = self.T_i = T_0
        self.T_mult, self.eta_min, self.T_cur = T_mult, eta_min, float(last_epoch)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates of this epoch."""
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Count an epoch, or go to `epoch`, which may be a fraction, and set the learning rates."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur, self.T_i = self.T_cur % self.T_i, self.T_i * self.T_mult
        elif epoch < 0:
            raise ArgumentError(f"CosineAnnealingWarmRestarts: epoch is at least 0, got {epoch}")
        else:
            cycle = 0
            if epoch >= self.T_0 and self.T_mult > 1:
                cycle = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_i = self.T_0 * self.T_mult**cycle
            done = self.T_0 * (self.T_mult**cycle - 1) / (self.T_mult - 1) if cycle else 0
            self.T_cur = epoch % self.T_0 if self.T_mult == 1 else epoch - done
        self.last_epoch = math.floor(epoch)
        self._set(self.get_lr())
