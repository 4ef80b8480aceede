"""OpenCL devices as a backend of lazyt. pyopencl is imported, and a driver looked for, when a device is first named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.interface import Allocator, Backend, Capabilities, Properties, Statistics
from lazyt.errors import DeviceError
from lazyt.ops.kernel_calls import ON_DEVICE
from lazyt_opencl.arrays import LANGUAGE
from lazyt_opencl.codegen.emit import program
from lazyt_opencl.device import NAME, device, devices, number_of, synchronize_all
from lazyt_opencl.library.registry import FUNCTIONS
from lazyt_opencl.queues import DeviceBuffer
from lazyt_opencl.streams import QueueEvent, QueueStream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyt.backends.interface import Span, Stream
    from lazyt.ir.kernel import Kernel
    from lazyt.ir.passes.kernelize import KernelCall
    from lazyt.ir.passes.schedule import Schedule
    from lazyt_opencl.executor import Executable

    Array = np.ndarray[Any, Any]

# Buffers of a kernel, at most: drivers give a kernel 1024 bytes of parameters, a pointer each.
BUFFERS = 100


class DeviceAllocator(Allocator):
    """The pool of each device."""

    def allocate(self, nbytes: int, device_name: str) -> DeviceBuffer:
        return device(device_name).allocate(nbytes)

    def from_host(self, array: Array, device_name: str) -> DeviceBuffer:
        where = device(device_name)
        buffer = where.allocate(array.nbytes)
        # NOTE: the caller's array may change while the copy waits for its turn.
        where.write(buffer, np.array(array, order="C"))
        return buffer

    def to_host(self, buffer: DeviceBuffer, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        buffer.settle()
        found = device(buffer.device).read(buffer, dtype, shape)
        found.flags.writeable = False
        return found

    def block(self, nbytes: int) -> int:
        return max(nbytes, 1)

    def statistics(self, device_name: str) -> Statistics:
        where = device(device_name)
        return Statistics(*where.memory(), where.peak)

    def restart_peak(self, device_name: str) -> None:
        where = device(device_name)
        where.peak = where.memory()[0]

    def release_cached(self, device_name: str) -> None:
        device(device_name).free_cached()


def _share(call: KernelCall) -> float:
    return len(call.kernel.accesses) / BUFFERS


_CAPABILITIES = Capabilities(vector_products=True, share=_share, asynchronous=True, donation=True)


class OpenCLBackend(Backend):
    """The devices of all OpenCL platforms, in their order."""

    name = NAME
    allocator = DeviceAllocator()
    interface_version = 1
    languages = (LANGUAGE,)

    def device(self, name: str) -> str:
        return device(name).name

    def device_count(self) -> int:
        try:
            return len(devices())
        except DeviceError:
            return 0

    def close(self) -> None:
        synchronize_all()

    def properties(self, name: str) -> Properties:
        where = device(name)
        found = where.found
        details = {
            "platform": found.platform.name, "driver": found.driver_version, "compute_units": where.processors,
            "is_cpu": where.is_cpu,
        }  # fmt: skip
        return Properties(found.name, int(found.global_mem_size), details)

    def fallbacks_of(self, name: str) -> Mapping[str, int]:
        return device(name).fallbacks

    def index(self, name: str) -> int:
        return number_of(name)

    def synchronize(self, name: str) -> None:
        device(name).synchronize()

    def stream(self, name: str, priority: int = 0) -> QueueStream:
        where = device(name)
        return QueueStream(self, where.name, where.new_queue())

    def current_stream(self, name: str) -> QueueStream:
        where = device(name)
        return QueueStream(self, where.name, where.current())

    def use_stream(self, stream: Stream) -> None:
        assert isinstance(stream, QueueStream), "one of `stream`"
        device(stream.device).choose(stream.queue)

    def event(self, name: str) -> QueueEvent:
        return QueueEvent()

    def start_spans(self, name: str) -> None:
        device(name).start_spans()

    def take_spans(self, name: str) -> list[Span]:
        return device(name).take_spans()

    def capabilities(self, name: str) -> Capabilities:
        return _CAPABILITIES

    def compile(self, schedule: Schedule, name: str) -> Executable:
        from lazyt_opencl.executor import Executable

        return Executable(schedule, name)

    def kernel_text(self, kernel: Kernel, assembly: bool = False) -> str:
        return super().kernel_text(kernel, assembly) if assembly else program([kernel])

    def fallback(self, fn: str) -> str:
        return "" if fn in FUNCTIONS or fn == ON_DEVICE else f"there is no OpenCL kernel for {fn}"


BACKEND = OpenCLBackend()
