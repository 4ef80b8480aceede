"""Index checks of a run, whose outcome is read when the run's results are first waited for.

A run with checks ends with a copy of the device's status word to the host. Its results carry the `Check`, and so do
all values computed from them, until it is known to have passed.
"""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from lazyt.errors import relocated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.backends.cuda.cuda_graph import Launched
    from lazyt.backends.cuda.device import Device, DeviceBuffer

# The word that kernels set: the number of the check that failed, from 1, and the index.
WORD = 16


_alive: WeakSet[Check] = WeakSet()


class Check:
    """The outcome of one run's checks. `error` makes the error for a check's number and the index.

    It is made before the run, so that what the run fills carries it whatever interrupts that, and begins behind it.
    """

    __slots__ = (
        "__weakref__", "_begun", "_error", "_event", "_launched", "_owner", "_status", "_word", "device", "sites",
    )  # fmt: skip

    def __init__(
        self, device: Device, status: DeviceBuffer, error: Callable[[int, int], Exception],
        launched: Launched | None = None,
    ) -> None:  # fmt: skip
        """status: what kernels write; launched: whether the run was enqueued, where an interrupt may say no."""
        self.device = device
        self._error = error
        self.sites: Sequence[Any] | None = None  # the lines that were recorded, which need not be the plan's
        self._status, self._launched = status, launched
        self._word, self._owner = device.driver.pinned(WORD)
        self._event: Any = None
        self._begun = False
        _alive.add(self)

    def begin(self, stream: Any) -> None:
        """Enqueue what tells the outcome, behind the run; unless it is there."""
        if self._begun:
            return
        if self._launched is None or self._launched[0]:
            self.device.driver.to_host(stream, self._word, self._status.address, WORD)
            self._event = self.device.driver.record(stream)
        else:
            ctypes.memset(self._word, 0, WORD)
        self._begun = True

    def __del__(self) -> None:
        # NOTE: the copy may still be under way when nobody wants its outcome any more.
        if getattr(self, "_event", None) is not None and not sys.is_finalizing():
            self.device.retire(self._event, self._owner)

    @property
    def passed(self) -> bool:
        """Whether the check is known to have passed, without waiting."""
        self._resume()
        if self._event is not None and not self.device.driver.is_done(self._event):
            return False
        return self._failure() is None

    def settle(self) -> None:
        """Wait for the run; raises IndexOutOfRange, every time, if an index was outside."""
        self._resume()
        if self._event is not None:
            self.device.driver.wait_event(self._event)
        failure = self._failure()
        if failure is not None:
            raise relocated(self._error(*failure), self.sites)

    def _resume(self) -> None:
        """Begin if an interrupt kept it from that."""
        if not self._begun:
            with self.device.work() as stream:
                self.begin(stream)

    def _failure(self) -> tuple[int, int] | None:
        self._event = None
        code, index = (ctypes.c_int64 * 2).from_address(self._word)
        return (code, index) if code else None


def unsettled(values: Sequence[Any], read: Sequence[int]) -> tuple[Check, ...]:
    """The checks that some of these values depend on, by their numbers, except those known to have passed."""
    if not _alive:
        return ()
    # A trace may have inputs on the CPU too.
    found = dict.fromkeys(c for i in read for c in getattr(values[i].buffer, "checks", ()))
    return tuple(c for c in found if not c.passed)
