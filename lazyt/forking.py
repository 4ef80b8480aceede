"""Locks of the process: free in a forked child, and never waited for where the wait could not end.

A child has one thread, the one that forked. What another thread held when the process was copied nobody releases there.
`functools.cached_property` has such a lock in Python 3.11, one for all objects of a class: the one here has none.

Locks have an order: `NAMES` of backends, `SYNC`, `PLANS`, `RUN`, `POOL`, `CODE`, `LOADER`, the others, llvmlite's own.
A thread takes them in this order (tests/support/lock_order.py watches it). But a signal handler, a finalizer or a
callback of a weak reference runs wherever the thread is, and may ask for one that comes before what the thread holds.
If it waited for another thread then, that thread might wait for the first: it is refused (`OrderedLock`). So are the
threads that compile (`Helper`), for which the thread that started them waits.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lazyt.errors import SyncError
from lazyt.interrupts import uninterrupted

__all__ = ["Helper", "OrderedLock", "cached_property", "inner_lock", "is_held", "process_lock"]

NAMES, SYNC, PLANS, RUN, POOL, CODE, LOADER, INNER, FOREIGN = range(9)

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


_inner: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # the place of each lock in the order


class Helper(threading.Thread):
    """A thread that does a part of what another one waits for: nothing that it runs may wait for that one."""


class OrderedLock:
    """A reentrant lock that refuses to wait where its thread holds a lock that comes later in the order."""

    __slots__ = ("__weakref__", "_depth", "_lock", "_place")

    def __init__(self, place: int) -> None:
        self._lock, self._place = threading.RLock(), place
        self._depth = 0  # blocks of the owner that are entered and not left
        _inner[self] = place

    def __enter__(self) -> None:
        try:
            if not self._lock.acquire(blocking=False):
                self._wait()
        except BaseException:
            self._give_back()
            raise
        self._depth += 1

    @uninterrupted
    def __exit__(self, *_: object) -> None:
        # NOTE: one call, the last: an interrupt comes when the lock is released.
        self._depth -= 1
        self._lock.release()

    def _give_back(self) -> None:
        """Release the lock if it was taken just when an interrupt came: that block is not entered."""
        if self._lock._is_owned():  # type: ignore[attr-defined] # as `threading.Condition` asks
            _, owner = self._lock._release_save()  # type: ignore[attr-defined]
            if self._depth:
                self._lock._acquire_restore((self._depth, owner))  # type: ignore[attr-defined]

    def acquire(self) -> None:
        """Wait in any case: for a fork."""
        self._lock.acquire()
        self._depth += 1

    def release(self) -> None:
        self.__exit__()

    def _is_owned(self) -> bool:
        return self._lock._is_owned()  # type: ignore[attr-defined, no-any-return] # as `threading.Condition` asks

    def _wait(self) -> None:
        """Raises SyncError where the wait might not end."""
        inside = is_held(self._place + 1)
        if inside or isinstance(threading.current_thread(), Helper):
            raise SyncError(
                "sync: another thread computes, and may wait for what this one holds: a signal handler, a finalizer or "
                "a callback of a weak reference interrupted it there; have that set a flag, and compute later"
            )
        self._lock.acquire()


def inner_lock(lock: Any, place: int = INNER) -> Any:
    """The lock, as one that comes at this place in the order."""
    _inner[lock] = place
    return lock


def is_held(place: int) -> bool:
    """Whether this thread holds a lock of this place in the order, or a later one."""
    # NOTE: to copy a dictionary is one step; another thread may add locks, and the collector may take some away.
    for reference, at in _inner.data.copy().items():  # type: ignore[attr-defined] # by weak references
        lock = reference() if at >= place else None
        if lock is not None and lock._is_owned():
            return True
    return False


def process_lock(place: int = INNER) -> threading.RLock:
    """A reentrant lock for as long as the process lives: a signal handler may come back to its holder."""
    lock: threading.RLock = inner_lock(threading.RLock(), place)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined] # as in the stdlib
    return lock
