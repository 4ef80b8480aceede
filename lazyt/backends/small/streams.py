"""Streams for small backends: orders of work, of which a thread does one thing after another unless they are others."""

from __future__ import annotations

import queue
import threading
from time import perf_counter
from typing import TYPE_CHECKING

from lazyt.backends.interface import Event, Stream
from lazyt.backends.small.backend import SmallBackend
from lazyt.backends.small.memory import Pending
from lazyt.errors import DeviceError
from lazyt.ir.target import Target

if TYPE_CHECKING:
    from collections.abc import Callable


class ThreadStream(Stream):
    """An order of work, which a thread does. A device's own queue takes its place by another `submit` and `stop`."""

    def __init__(self, backend: SmallBackend, device: str) -> None:
        super().__init__(backend, device)
        self._todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._last = Pending()
        self._last.finish()
        self._stopped = False
        threading.Thread(target=self._work, name=f"stream of {device}", daemon=True).start()

    def _work(self) -> None:
        while (work := self._todo.get()) is not None:
            work()

    def submit(self, work: Callable[[], object]) -> Pending:
        """Do this behind what was submitted before; what it raises is raised by who waits for it.

        DeviceError for a stream of a backend that was removed.
        """
        if self._stopped:
            raise DeviceError(f"{self.device}: the backend that this stream is of was removed")
        done = self._last = Pending()
        self._todo.put(lambda: done.run(work))
        return done

    def stop(self) -> None:
        """No more work is taken; what was submitted is done."""
        self._stopped = True
        self._todo.put(None)

    def synchronize(self) -> None:
        self.submit(lambda: None).wait()

    def query(self) -> bool:
        return self._last.is_done()


class ThreadEvent(Event):
    """A moment in a stream: a piece of its work, which notes the time."""

    _done: Pending | None = None

    def _note(self) -> None:
        self._at = perf_counter()

    def record(self, stream: Stream) -> None:
        assert isinstance(stream, ThreadStream), "a backend has one kind of streams"
        self._at, self._done = None, stream.submit(self._note)

    def wait(self, stream: Stream) -> None:
        assert isinstance(stream, ThreadStream), "a backend has one kind of streams"
        if self._done is not None:
            stream.submit(self._done.wait)

    def query(self) -> bool:
        return self._done is None or self._done.is_done()

    def synchronize(self) -> None:
        if self._done is not None:
            self._done.wait()


class StreamedBackend(SmallBackend):
    """A small backend whose work is done by streams: a sync returns before it is done.

    Each device has a first stream, and users make more. The current one is of a thread and a device. `new_stream` gives
    threads; a backend with queues of its own gives subclasses of `ThreadStream`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._streams: dict[str, list[ThreadStream]] = {}
        self._chosen = threading.local()
        self._making = threading.Lock()

    def new_stream(self, device: str, priority: int) -> ThreadStream:
        """An order of work on a device."""
        return ThreadStream(self, device)

    def capabilities(self, device: str) -> Target:
        return Target(asynchronous=True)

    def submit(self, device: str, work: Callable[[], None]) -> None:
        self.current_stream(device).submit(work)

    def _of(self, device: str) -> list[ThreadStream]:
        with self._making:
            if device not in self._streams:
                self._streams[device] = [self.new_stream(device, 0)]
            return self._streams[device]

    def synchronize(self, device: str) -> None:
        for s in list(self._of(device)):
            s.synchronize()

    def stream(self, device: str, priority: int = 0) -> ThreadStream:
        found = self.new_stream(device, priority)
        self._of(device).append(found)
        return found

    def current_stream(self, device: str) -> ThreadStream:
        found: ThreadStream = self._chosen.__dict__.get(device) or self._of(device)[0]
        return found

    def use_stream(self, stream: Stream) -> None:
        self._chosen.__dict__[stream.device] = stream

    def event(self, device: str) -> ThreadEvent:
        return ThreadEvent()

    def close(self) -> None:
        for several in self._streams.values():
            for s in several:
                s.stop()
