"""The OpenCL devices of this machine: context, queues, memory and programs of each."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.interface import Span
from lazyt.errors import DeviceError, LazytInternalError, NotSupportedError, OutOfMemory
from lazyt_opencl.queues import DeviceBuffer, Queue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Array = np.ndarray[Any, Any]

NAME = "opencl"
INSTALL = "`pip install pyopencl`, and a driver (`pip install pocl-binary-distribution` has one for CPUs)"


@cache
def _pyopencl() -> Any:
    try:
        import pyopencl
        import pyopencl.tools
    except ImportError as e:
        raise DeviceError(f"device {NAME!r}: pyopencl is missing: {INSTALL}") from e
    return pyopencl


class Device:
    """One device. `fallbacks` counts, by function, the calls that the host did for want of a kernel."""

    def __init__(self, number: int, found: Any) -> None:
        cl = self.cl = _pyopencl()
        self.number, self.name, self.found = number, f"{NAME}:{number}", found
        if not found.double_fp_config:
            raise NotSupportedError(
                f"device {self.name!r} ({found.name}): not supported, because it has no float64 (cl_khr_fp64), in "
                "which lazyt adds sums"
            )
        self.context = cl.Context([found])
        self._queues: weakref.WeakSet[Queue] = weakref.WeakSet()
        self._chosen = threading.local()
        self.first = self.new_queue()
        # The host's reads have a queue of their own, so that they wait for what they read alone.
        self._reads = cl.CommandQueue(self.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        self.fallbacks: Counter[str] = Counter()
        self.errors = cl.MemoryError, cl.RuntimeError, cl.LogicError
        self.peak = 0  # of the bytes in use
        # Names of what was enqueued with their events, and the device's clock beside the host's, while it is timed.
        self._noted: list[tuple[str, Any] | Span] | None = None
        self._clocks = 0, 0.0
        self.programs: dict[str, Any] = {}  # of users' sources
        self.options = ["-cl-std=CL1.2", "-w"]
        if found.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
            self.options += ["-cl-fp32-correctly-rounded-divide-sqrt", "-DLT_ROUNDED"]
        self.group = min(int(found.max_work_group_size), 256)
        self.is_cpu = bool(found.type & cl.device_type.CPU)
        self.processors = int(found.max_compute_units)

    # Queues

    def new_queue(self) -> Queue:
        """Another order of work."""
        found = Queue(self)
        self._queues.add(found)
        return found

    def current(self) -> Queue:
        """The queue that this thread's work goes to."""
        found: Queue = getattr(self._chosen, "queue", self.first)
        return found

    def choose(self, queue: Queue) -> None:
        """This thread's work goes to that queue from now on."""
        self._chosen.queue = queue

    def synchronize(self) -> None:
        """Wait for all that was enqueued."""
        with self.working():
            for queue in list(self._queues):
                queue.synchronize()

    @contextmanager
    def working(self) -> Iterator[None]:
        """DeviceError for what the driver reports here, which may be of work that was enqueued before."""
        try:
            yield
        except self.errors as e:
            raise DeviceError(
                f"{self.name} ({self.found.name}): {e} (of this sync, or of work enqueued before; what was pending "
                "still is)"
            ) from e

    # Memory

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """Memory of the current queue with undefined content; OutOfMemory if there is none."""
        queue, size = self.current(), max(nbytes, 1)
        try:
            found = queue.pool.allocate(size)
        except self.errors:
            # What other queues have in their pools may be what is missing.
            self.free_cached()
            try:
                found = queue.pool.allocate(size)
            except self.errors as e:
                raise OutOfMemory(f"{self.name} ({self.found.name}): no memory for {nbytes:,} bytes: {e}") from e
        self.peak = max(self.peak, self.memory()[0])
        return DeviceBuffer(found, nbytes, queue)

    def free_cached(self) -> None:
        """Give what the pools hold and nothing uses back to the driver."""
        for queue in list(self._queues):
            queue.pool.free_held()

    def memory(self) -> tuple[int, int]:
        """Bytes in use, and bytes taken from the driver."""
        pools = [queue.pool for queue in list(self._queues)]
        return sum(p.active_bytes for p in pools), sum(p.managed_bytes for p in pools)

    def write(self, buffer: DeviceBuffer, array: Array, offset: int = 0) -> None:
        """Enqueue a copy of an array, which must not change any more, into a buffer."""
        if array.nbytes:
            raw, queue = np.ascontiguousarray(array).reshape(-1).view(np.uint8), self.current()
            copy = self.cl.enqueue_copy(queue.found, buffer.memory, raw, dst_offset=offset, is_blocking=False)
            queue.keep(copy)
            self.note("copy from the host", copy)
            buffer.filled(queue, copy)

    def read(self, buffer: DeviceBuffer, dtype: np.dtype[Any], shape: Sequence[int], offset: int = 0) -> Array:
        """A copy of a part of a buffer: waits for what fills it, and for nothing behind that."""
        array: Array = np.empty(tuple(shape), dtype)
        if array.nbytes:
            raw = array.reshape(-1).view(np.uint8)
            with self.working():
                if buffer.ready is not None:
                    buffer.ready.wait()
                copy = self.cl.enqueue_copy(self._reads, raw, buffer.memory, src_offset=offset, is_blocking=True)
            self.note("copy to the host", copy)
        return array

    # Times

    def start_spans(self) -> None:
        """Note when what is enqueued from now on begins and ends."""
        queue = self.current()
        now = queue.mark()
        now.wait()
        self._clocks = int(now.profile.end), time.perf_counter()
        self._noted = []

    def note(self, name: str, event: Any) -> None:
        """Something was enqueued."""
        if self._noted is not None:
            self._noted.append((name, event))

    def note_host(self, name: str, begin: float) -> None:
        """The host has done something that it began then."""
        if self._noted is not None:
            self._noted.append(Span(name, self.name, begin, time.perf_counter(), on_host=True))

    def take_spans(self) -> list[Span]:
        """What was noted, in order of beginning; nothing is noted any more."""
        self.synchronize()
        noted, self._noted = self._noted or [], None
        device, host = self._clocks

        def span(name: str, event: Any) -> Span:
            begin, end = (host + (int(t) - device) * 1e-9 for t in (event.profile.start, event.profile.end))
            return Span(name, self.name, begin, end)

        return sorted((x if isinstance(x, Span) else span(*x) for x in noted), key=lambda s: s.begin)

    def build(self, source: str) -> tuple[Any, float]:
        """A program, and the seconds that the driver took."""
        start = time.perf_counter()
        try:
            program = self.cl.Program(self.context, source).build(self.options, cache_dir=False)
        except self.cl.RuntimeError as e:
            raise LazytInternalError(f"{self.name} ({self.found.name}) does not compile a kernel: {e}\n{source}") from e
        return program, time.perf_counter() - start


@cache
def _found() -> list[Any]:
    """The devices of all platforms, in their order."""
    cl = _pyopencl()
    try:
        platforms = cl.get_platforms()
    except cl.LogicError as e:  # the loader finds no driver
        raise DeviceError(f"device {NAME!r}: there is no OpenCL driver ({e}): {INSTALL}") from e
    return [d for p in platforms for d in p.get_devices()]


def devices() -> list[str]:
    """The names of the devices of this machine, with what the driver calls them: `opencl:0 (...)`."""
    return [f"{NAME}:{i} ({d.name})" for i, d in enumerate(_found())]


def number_of(name: str) -> int:
    """The number of the device `opencl` or `opencl:1`; DeviceError for another name."""
    kind, colon, number = name.partition(":")
    if kind != NAME or (colon and not (number.isascii() and number.isdigit())):
        raise DeviceError(f"device {name!r}: no such device; OpenCL devices are '{NAME}:0', '{NAME}:1', ...")
    return int(number or 0)


_used: set[int] = set()


@cache
def _device(number: int) -> Device:
    found = _found()
    if number >= len(found):
        raise DeviceError(f"device '{NAME}:{number}': no such device; there is {', '.join(devices()) or 'none'}")
    made = Device(number, found[number])
    _used.add(number)
    return made


def synchronize_all() -> None:
    """Wait for all that was enqueued on the devices that were used."""
    for number in list(_used):
        _device(number).synchronize()


def device(name: str) -> Device:
    """The device of a name; DeviceError if there is none."""
    return _device(number_of(name))
