"""Functions that are called around a step, and around saving and loading an optimizer's state."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from lazyt.errors import DTypeError, LazytError

Hook = Callable[..., Any]
Hooks = Mapping[int, Hook]
NONE: Hooks = MappingProxyType({})

# What is called around the steps of every optimizer.
BEFORE_ANY: dict[int, Hook] = {}
AFTER_ANY: dict[int, Hook] = {}


class HookHandle:
    """A hook that was registered; `remove()` takes it away."""

    _ids = itertools.count()

    def __init__(self, hooks: dict[int, Hook], hook: Hook, first: bool = False) -> None:
        if not callable(hook):
            raise DTypeError(f"a hook is a function, got {type(hook).__name__!r}")
        self.id = next(self._ids)
        self._hooks = hooks
        others = dict(hooks) if first else {}
        if first:
            hooks.clear()
        hooks[self.id] = hook
        hooks.update(others)

    def remove(self) -> None:
        """Call the hook no more."""
        self._hooks.pop(self.id, None)


def hooks_of(optimizer: Any, kind: str) -> dict[int, Hook]:
    """The hooks of one kind of an optimizer, to add to."""
    found: dict[int, Hook] = vars(optimizer).setdefault(kind, {})
    return found


def register_optimizer_step_pre_hook(hook: Hook) -> HookHandle:
    """Call `hook(optimizer, args, kwargs)` before each step of every optimizer.

    As `torch.optim.optimizer.register_optimizer_step_pre_hook`.

    >>> import lazyt as lt
    >>> handle = lt.optim.register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: print("before"))
    >>> w = lt.tensor([1.0], requires_grad=True)
    >>> lt.optim.SGD([w]).step()
    before
    >>> handle.remove()
    """
    return HookHandle(BEFORE_ANY, hook)


def register_optimizer_step_post_hook(hook: Hook) -> HookHandle:
    """Call `hook(optimizer, args, kwargs)` after each step of every optimizer.

    As `torch.optim.optimizer.register_optimizer_step_post_hook`.

    >>> import lazyt as lt
    >>> handle = lt.optim.register_optimizer_step_post_hook(lambda optimizer, args, kwargs: print("after"))
    >>> w = lt.tensor([1.0], requires_grad=True)
    >>> lt.optim.SGD([w]).step()
    after
    >>> handle.remove()
    """
    return HookHandle(AFTER_ANY, hook)


def called_around(step: Callable[..., Any]) -> Callable[..., Any]:
    """A method `step` that calls the hooks: those of every optimizer before this one's, as PyTorch."""

    @functools.wraps(step)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not (BEFORE_ANY or AFTER_ANY or self._before_step or self._after_step):
            return step(self, *args, **kwargs)
        args = (self, *args)  # as PyTorch: the hooks get all that the method gets
        for hook in (*BEFORE_ANY.values(), *self._before_step.values()):
            changed = hook(self, args, kwargs)
            if changed is None:
                continue
            if not (isinstance(changed, tuple) and len(changed) == 2):
                raise LazytError(
                    f"{type(self).__name__}: a hook before a step returns None or (args, kwargs), got {changed!r}"
                )
            args, kwargs = changed
            if not (isinstance(args, tuple) and args and args[0] is self):
                raise LazytError(
                    f"{type(self).__name__}: the args that a hook before a step returns begin with the optimizer, "
                    f"got {args!r}"
                )
        out = step(*args, **kwargs)
        for hook in (*self._after_step.values(), *AFTER_ANY.values()):
            hook(self, args, kwargs)
        return out

    return call
