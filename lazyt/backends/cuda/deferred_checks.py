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

    from lazyt.backends.cuda.device import Device

# The word that kernels set: the number of the check that failed, from 1, and the index.
WORD = 16


_alive: WeakSet[Check] = WeakSet()


class Check:
    """The outcome of one run's checks. `error` makes the error for a check's number and the index."""

    __slots__ = ("__weakref__", "_error", "_event", "_owner", "_word", "device", "sites")

    def __init__(self, device: Device, stream: Any, word: int, error: Callable[[int, int], Exception]) -> None:
        self.device = device
        self._error = error
        self.sites: Sequence[Any] | None = None  # the lines that were recorded, which need not be the plan's
        address, self._owner = device.driver.pinned(WORD)
        self._word = address
        device.driver.to_host(stream, address, word, WORD)
        self._event: Any = device.driver.record(stream)
        _alive.add(self)

    def __del__(self) -> None:
        # NOTE: the copy may still be under way when nobody wants its outcome any more.
        if getattr(self, "_event", None) is not None and not sys.is_finalizing():
            self.device.retire(self._event, self._owner)

    @property
    def passed(self) -> bool:
        """Whether the check is known to have passed, without waiting."""
        if self._event is not None and not self.device.driver.is_done(self._event):
            return False
        return self._failure() is None

    def settle(self) -> None:
        """Wait for the run; raises IndexOutOfRange, every time, if an index was outside."""
        if self._event is not None:
            self.device.driver.wait_event(self._event)
        failure = self._failure()
        if failure is not None:
            raise relocated(self._error(*failure), self.sites)

    def _failure(self) -> tuple[int, int] | None:
        self._event = None
        code, index = (ctypes.c_int64 * 2).from_address(self._word)
        return (code, index) if code else None


def unsettled(values: Sequence[Any]) -> tuple[Check, ...]:
    """The checks that these values depend on, except those known to have passed."""
    if not _alive:
        return ()
    # A trace may have inputs on the CPU too.
    found = dict.fromkeys(c for d in values for c in getattr(d.buffer, "checks", ()))
    return tuple(c for c in found if not c.passed)
