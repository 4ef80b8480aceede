"""Buffers of a small backend: a block of the device's memory, counted, and perhaps filled later."""

from __future__ import annotations

import threading
import traceback
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lazyt.backends.interface import Allocator, Statistics
from lazyt.errors import DeviceError, OutOfMemory, relocated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Array = np.ndarray[Any, Any]


class Pending:
    """Work on a device that may not be done yet. NOTE: its error is that of all that is computed from its results."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._error: BaseException | None = None
        self.sites: Sequence[Any] | None = None  # the lines that were recorded, which need not be the plan's

    def finish(self, error: BaseException | None = None) -> None:
        """It is done, or has failed."""
        self._error = error
        self._done.set()

    def run(self, work: Callable[[], object]) -> None:
        """Do the work, and finish with what it raises: that is for who waits."""
        try:
            work()
        except BaseException as e:  # noqa: BLE001 - it is raised by `wait`
            # NOTE: its frames, which the error keeps, must not keep memory of the device.
            traceback.clear_frames(e.__traceback__)
            self.finish(e)
        else:
            self.finish()

    def is_done(self) -> bool:
        """Whether it is, or has failed."""
        return self._done.is_set()

    def wait(self) -> None:
        """Wait until it is done; raises what it failed with."""
        self._done.wait()
        if self._error is not None:
            raise relocated(self._error, self.sites) if isinstance(self._error, Exception) else self._error


class Blocks(Protocol):
    """The methods of a backend (see interface.py) that its buffers call."""

    @property
    def allocator(self) -> SmallAllocator: ...

    def allocate(self, nbytes: int, device: str) -> Any: ...

    def free(self, block: Any, nbytes: int, device: str) -> None: ...

    def write(self, block: Any, content: Array, device: str) -> Pending | None: ...

    def read(self, block: Any, into: Array, device: str) -> None: ...

    def view(self, block: Any) -> Array | None: ...

    def address(self, block: Any) -> int: ...

    def reserved(self, device: str) -> int: ...


class Memory:
    """A buffer: `block` is what the backend's `allocate` gave. It is freed with the last reference."""

    __slots__ = ("__weakref__", "address", "backend", "block", "device", "nbytes", "pending")

    def __init__(self, backend: Blocks, block: Any, nbytes: int, device: str) -> None:
        self.backend, self.block, self.nbytes, self.device = backend, block, nbytes, device
        self.address = backend.address(block)
        self.pending: Pending | None = None

    def __repr__(self) -> str:
        return f"<Memory of {self.nbytes} bytes on {self.device}>"

    def located(self, sites: Callable[[], Sequence[Any]]) -> None:
        """The lines that were recorded of what fills it."""
        if self.pending is not None and self.pending.sites is None:
            self.pending.sites = sites()

    def settle(self) -> None:
        """Wait until what it holds is computed; raises what the computation failed with."""
        if self.pending is not None:
            self.pending.wait()
            self.pending = None

    def __del__(self) -> None:
        self.backend.allocator.release(self)


class SmallAllocator(Allocator):
    """Blocks of a small backend as buffers, with a count of what is in use on each device."""

    def __init__(self, backend: Blocks) -> None:
        self.backend = backend
        self._lock = threading.RLock()
        self._used: dict[str, list[int]] = {}  # allocated now, and the most since the last `restart_peak`

    def _counts(self, device: str) -> list[int]:
        return self._used.setdefault(device, [0, 0])

    def allocate(self, nbytes: int, device: str) -> Memory:
        try:
            block = self.backend.allocate(nbytes, device)
        except MemoryError as e:
            raise OutOfMemory(f"{device}: no memory for {nbytes:,} bytes ({e})") from None
        with self._lock:
            counts = self._counts(device)
            counts[0] += nbytes
            counts[1] = max(counts)
        return Memory(self.backend, block, nbytes, str(device))

    def release(self, memory: Memory) -> None:
        """A buffer is no longer used."""
        with self._lock:
            self._counts(memory.device)[0] -= memory.nbytes
        self.backend.free(memory.block, memory.nbytes, memory.device)

    def from_host(self, array: Array, device: str) -> Memory:
        found = self.allocate(array.nbytes, device)
        if array.nbytes:
            content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            found.pending = self.backend.write(found.block, content, device)
        return found

    def check(self, buffer: Memory) -> None:
        """DeviceError for memory of a backend of this name that was removed, and is not this one."""
        if buffer.backend is not self.backend:
            raise DeviceError(f"{buffer.device}: the backend that this tensor's memory is of was removed")

    def to_host(self, buffer: Memory, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        self.check(buffer)
        buffer.settle()
        found = np.empty(shape, dtype)
        if found.nbytes:
            self.backend.read(buffer.block, found.reshape(-1).view(np.uint8), buffer.device)
        found.flags.writeable = False
        return found

    def block(self, nbytes: int) -> int:
        return nbytes

    def statistics(self, device: str) -> Statistics:
        with self._lock:
            allocated, peak = self._counts(device)
        return Statistics(allocated, max(allocated, self.backend.reserved(device)), peak)

    def restart_peak(self, device: str) -> None:
        with self._lock:
            counts = self._counts(device)
            counts[1] = counts[0]
