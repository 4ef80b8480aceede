"""Locks that are free in a forked child.

A child has one thread, the one that forked. What another thread held when the process was copied nobody releases there.
`functools.cached_property` has such a lock in Python 3.11, one for all objects of a class: the one here has none.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

__all__ = ["cached_property", "process_lock"]

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:
    T = TypeVar("T")

    class cached_property(Generic[T]):  # noqa: N801 - as in functools
        """As Python 3.12's: threads that ask at the same time may all compute the value."""

        def __init__(self, function: Callable[[Any], T]) -> None:
            self.function = function
            self.__doc__ = function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.name] = self.function(instance)
            return value


def process_lock() -> threading.RLock:
    """A reentrant lock for as long as the process lives: a signal handler may come back to its holder."""
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined] # as in the stdlib
    return lock
