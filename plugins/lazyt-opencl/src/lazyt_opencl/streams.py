"""Streams and events, as all backends of lazyt have them, over queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.backends.interface import Event, Stream

if TYPE_CHECKING:
    from lazyt.backends.interface import Backend
    from lazyt_opencl.queues import Queue


class QueueStream(Stream):
    """A queue of a device."""

    def __init__(self, backend: Backend, device: str, queue: Queue) -> None:
        super().__init__(backend, device)
        self.queue = queue

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QueueStream) and other.queue is self.queue

    def __hash__(self) -> int:
        return hash(self.queue)

    def synchronize(self) -> None:
        self.queue.synchronize()

    def query(self) -> bool:
        return self.queue.is_done()


def is_done(event: Any) -> bool:
    """Whether what an event of OpenCL stands for is done."""
    return int(event.command_execution_status) <= 0


class QueueEvent(Event):
    """A moment in a queue; its time is the device's."""

    _found: Any = None

    def record(self, stream: Stream) -> None:
        assert isinstance(stream, QueueStream)
        self._found = stream.queue.mark()

    def wait(self, stream: Stream) -> None:
        assert isinstance(stream, QueueStream)
        if self._found is not None:
            stream.queue.after([self._found])

    def query(self) -> bool:
        return self._found is None or is_done(self._found)

    def synchronize(self) -> None:
        if self._found is not None:
            self._found.wait()

    def elapsed_time(self, end: Event) -> float:
        if self._found is None or not isinstance(end, QueueEvent) or end._found is None:
            raise ValueError("elapsed_time: both events have to be recorded before")
        self.synchronize()
        end.synchronize()
        return float(end._found.profile.end - self._found.profile.end) * 1e-6
