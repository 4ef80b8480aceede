"""The order of the process's locks, watched: a thread that takes one too late for those that it holds is found."""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Iterator

import pytest

from lazyt.forking import Helper, OrderedLock, is_held


@contextlib.contextmanager
def watched_locks() -> Iterator[list[str]]:
    """Give where a lock was taken out of order, whether the thread had to wait for it or not.

    `OrderedLock` looks only where it has to wait, which takes a second thread and luck.
    """
    found: list[str] = []
    enter = OrderedLock.__enter__

    def checked(lock: OrderedLock) -> None:
        if not lock._is_owned() and (is_held(lock._place + 1) or isinstance(threading.current_thread(), Helper)):
            found.append("".join(traceback.format_stack(limit=12)))
        enter(lock)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OrderedLock, "__enter__", checked)
        yield found
