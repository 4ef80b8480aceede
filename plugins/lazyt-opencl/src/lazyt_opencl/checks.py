"""Index checks of a run, whose outcome is read when the run's results are first waited for.

A run with checks ends with a copy of its status word to the host. Its results carry the `Check`, and so does all that
is computed from them, until it is known to have passed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lazyt.errors import relocated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lazyt.errors import LazytError
    from lazyt_opencl.queues import DeviceBuffer, Queue

# The word that kernels set: the number of the check that failed, from 1, and the index.
WORD = 16


class Outcome(Protocol):
    """What becomes known of a run when its results are first waited for."""

    @property
    def passed(self) -> bool:
        """Whether it is known to have gone well, without waiting."""

    def settle(self) -> None:
        """Wait for it; raises what the run failed with, every time."""


class Check(Outcome):
    """The outcome of one run's checks. `error` makes the error for a check's number and the index."""

    __slots__ = ("_done", "_error", "_word", "sites")

    def __init__(self, queue: Queue, status: DeviceBuffer, error: Callable[[int, int], LazytError]) -> None:
        cl = queue.where.cl
        self._error = error
        self.sites: Sequence[Any] | None = None  # the lines that were recorded, which need not be the plan's
        self._word = np.zeros(2, np.int64)
        copy = cl.enqueue_copy(queue.found, self._word, status.memory, is_blocking=False)
        queue.keep(copy)
        self._done: Any = copy

    @property
    def passed(self) -> bool:
        """Whether it is known to have passed, without waiting."""
        if self._done is not None and self._done.command_execution_status > 0:
            return False
        self._done = None
        return not self._word[0]

    def settle(self) -> None:
        """Wait for the run; raises IndexOutOfRange, every time, if an index was outside."""
        if self._done is not None:
            self._done.wait()
            self._done = None
        code, index = map(int, self._word)
        if code:
            raise relocated(self._error(code, index), self.sites)


def unsettled(buffers: Iterable[Any]) -> tuple[Outcome, ...]:
    """The checks that the values of these buffers depend on, except those known to have passed."""
    found = dict.fromkeys(c for b in buffers for c in b.checks)
    return tuple(c for c in found if not c.passed)
