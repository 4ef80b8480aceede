"""The base of schedulers."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from lazyt.errors import ArgumentError, DTypeError, InvalidKey
from lazyt.optim.optimizer import Optimizer
from lazyt.runtime.context import no_grad
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Sequence


class LRScheduler:
    """Base of the schedulers. As `torch.optim.lr_scheduler.LRScheduler`: a subclass writes `get_lr`.

    `last_epoch` counts the steps, from 0 once the scheduler is made; a scheduler that is made with another `last_epoch`
    goes on from groups that have an 'initial_lr'. A step changes numbers alone: nothing is recorded or planned.

    >>> import lazyt as lt
    >>> class Halved(lt.optim.lr_scheduler.LRScheduler):
    ...     def get_lr(self):
    ...         return [group["lr"] / 2 if self.last_epoch else group["lr"] for group in self.optimizer.param_groups]
    >>> optimizer = lt.optim.SGD([lt.ones(1)], lr=1.0)
    >>> scheduler = Halved(optimizer)
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.5]
    """

    _is_initial = False
    # What `state_dict` leaves out.
    _apart: frozenset[str] = frozenset({"optimizer"})

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = checked(type(self).__name__, optimizer)
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copy_of(group["lr"]))
            elif "initial_lr" not in group:
                raise InvalidKey(
                    f"{type(self).__name__}: last_epoch is {last_epoch}, but group {i} has no 'initial_lr'; "
                    "load the optimizer's state first, or leave last_epoch out"
                )
        self.base_lrs: list[Any] = [copy_of(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_lr(self) -> list[Any]:
        """The learning rates of this epoch, one a group, from those of the epoch before."""
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        """Count an epoch and set the learning rates; `epoch` goes to that one instead."""
        self._step_count += 1
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        if epoch is None:
            self.last_epoch += 1
            values = self.get_lr()
        else:
            self.last_epoch = epoch
            values = self._get_closed_form_lr() if hasattr(self, "_get_closed_form_lr") else self.get_lr()
        self._set(values)

    def _set(self, values: Sequence[Any]) -> None:
        groups = self.optimizer.param_groups
        if len(values) != len(groups):
            raise ArgumentError(
                f"{type(self).__name__}: {len(values)} learning rates for {len(groups)} groups; "
                "add groups before the scheduler is made"
            )
        for group, lr in zip(groups, values, strict=True):
            set_rate(group, lr)
        self._last_lr = self._rates()

    def _rates(self) -> list[Any]:
        return [copy_of(group["lr"]) for group in self.optimizer.param_groups]

    def get_last_lr(self) -> list[Any]:
        """The learning rates that the last step set, one a group."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """All that changes, and the options; not the optimizer, whose state is saved apart."""
        return {k: v for k, v in self.__dict__.items() if k not in self._apart}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state that `state_dict` gave, lazyt's or PyTorch's; load the optimizer's state too."""
        self.__dict__.update({k: v for k, v in state_dict.items() if k not in self._apart})


def checked(owner: str, optimizer: Any) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        raise DTypeError(f"{owner}: an optimizer is required, got {type(optimizer).__name__!r}")
    return optimizer


def copy_of(value: Any) -> Any:
    """A tensor's value by itself, as the tensor is written later; a number as it is."""
    return value.detach().clone() if isinstance(value, Handle) else value


def set_rate(group: dict[str, Any], lr: Any) -> None:
    """Sets a group's learning rate: a tensor stays the same tensor, and is written. As PyTorch's schedulers do."""
    if isinstance(group["lr"], Handle):
        with no_grad():
            group["lr"][...] = lr.reshape(group["lr"].shape) if isinstance(lr, Handle) else lr
    else:
        group["lr"] = lr


def one_each(owner: str, name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """A value for each group: a list as it is, if its length fits, or one value for all."""
    groups = len(optimizer.param_groups)
    if not isinstance(value, list | tuple):
        return [value] * groups
    if len(value) != groups:
        raise ArgumentError(f"{owner}: {name} has {len(value)} values for {groups} groups")
    return list(value)


def saved_functions(functions: Sequence[Any]) -> list[dict[str, Any] | None]:
    """What PyTorch saves of functions: the attributes of an object that can be called, and nothing of a function."""
    return [None if isinstance(f, types.FunctionType) else dict(f.__dict__) for f in functions]


def restore_functions(functions: Sequence[Any], saved: Sequence[dict[str, Any] | None]) -> None:
    for f, attributes in zip(functions, saved, strict=True):
        if attributes is not None:
            f.__dict__.update(attributes)
