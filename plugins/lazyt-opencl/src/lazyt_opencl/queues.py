"""Queues of a device: the order of its work, the memory that comes from each, and what still waits there.

The work of one queue is done in order; queues run beside each other. Memory is of the queue that it was taken from: it
may be taken again while work that reads it is still enqueued there. Other queues that read it are waited for first.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any

from lazyt_opencl.checks import Check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lazyt_opencl.checks import Outcome
    from lazyt_opencl.device import Device

# So many copies from the host's memory may be under way; the next one waits for the first.
MOST_COPIES = 512


class Queue:
    """One order of work, with a pool of memory."""

    def __init__(self, where: Device) -> None:
        cl = where.cl
        self.where = where
        self.found = cl.CommandQueue(where.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        self.pool = cl.tools.MemoryPool(cl.tools.ImmediateAllocator(self.found))
        # NOTE: events of copies hold the host's memory, and wait when they are dropped: those that are done are.
        self._copies: deque[Any] = deque()
        self._last: Any = None  # the event of what was enqueued last

    def keep(self, copy: Any) -> None:
        """Hold the host's memory of a copy until it is done."""
        copies, done = self._copies, self.where.cl.command_execution_status.COMPLETE
        while copies and copies[0].command_execution_status <= done:
            copies.popleft()
        if len(copies) >= MOST_COPIES:
            copies.popleft().wait()
        copies.append(copy)
        self._last = copy

    def mark(self) -> Any:
        """The event of all that was enqueued by now, which other queues may wait for."""
        event = self._last = self.where.cl.enqueue_marker(self.found)
        self.found.flush()
        return event

    def after(self, events: Iterable[Any]) -> None:
        """What is enqueued from now on waits for these events."""
        if some := list(events):
            self._last = self.where.cl.enqueue_barrier(self.found, wait_for=some)

    def is_done(self) -> bool:
        """Whether all that was enqueued is done."""
        return self._last is None or int(self._last.command_execution_status) <= 0

    def synchronize(self) -> None:
        """Wait for all that was enqueued."""
        self.found.finish()


class DeviceBuffer:
    """Memory of a device; it goes back to the pool of its queue with the last reference.

    `ready` is the event that fills it, on the queue `writer`; `users` has the last event of each queue that reads or
    fills it. `checks`: the index checks that its value depends on and that are not known to have passed.
    """

    __slots__ = ("__weakref__", "address", "checks", "device", "home", "memory", "nbytes", "ready", "users", "writer")

    def __init__(self, memory: Any, nbytes: int, home: Queue) -> None:
        self.memory, self.nbytes, self.home = memory, nbytes, home
        self.device = home.where.name
        self.address: int = memory.int_ptr  # a handle: OpenCL gives no addresses
        self.writer, self.ready = home, None
        self.users: dict[Queue, Any] = {}
        self.checks: tuple[Outcome, ...] = ()

    def __repr__(self) -> str:
        return f"<DeviceBuffer of {self.nbytes} bytes on {self.device}>"

    def filled(self, by: Queue, event: Any) -> None:
        """What was enqueued there fills it, and is done with this event."""
        self.writer, self.ready = by, event
        self.users[by] = event

    def read_by(self, queue: Queue, event: Any) -> None:
        """A queue reads it until this event."""
        self.users[queue] = event

    def uses_outside(self, queue: Queue) -> list[Any]:
        """The events of all other queues that use it."""
        return [event for q, event in self.users.items() if q is not queue]

    def located(self, sites: Callable[[], Sequence[Any]]) -> None:
        """The lines that were recorded of what has filled it."""
        for c in self.checks:
            if isinstance(c, Check) and c.sites is None:
                c.sites = sites()

    def settle(self) -> None:
        """Wait for the checks of what it holds; IndexOutOfRange where an index was outside."""
        for c in self.checks:
            c.settle()
        self.checks = ()

    def wait(self) -> None:
        """Wait until it is filled, and for its checks."""
        if self.ready is not None:
            self.ready.wait()
        self.settle()

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.home.after(self.uses_outside(self.home))
