"""The OpenCL devices of this machine: context, queue, memory and programs of each.

All work of a device goes through one queue, in order, so memory that is given back may be taken again while work that
reads it is still enqueued.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DeviceError, LazytInternalError, NotSupportedError, OutOfMemory

if TYPE_CHECKING:
    from collections.abc import Sequence

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


class DeviceBuffer:
    """Memory of a device; it goes back to the device's pool with the last reference."""

    __slots__ = ("address", "device", "memory", "nbytes")

    def __init__(self, memory: Any, nbytes: int, device: str) -> None:
        self.memory, self.nbytes, self.device = memory, nbytes, device
        self.address: int = memory.int_ptr  # a handle: OpenCL gives no addresses


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
        self.queue = cl.CommandQueue(self.context)
        self.pool = cl.tools.MemoryPool(cl.tools.ImmediateAllocator(self.queue))
        self.lock = threading.RLock()  # a signal handler may come back here
        self.fallbacks: Counter[str] = Counter()
        self.options = ["-cl-std=CL1.2", "-w"]
        if found.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
            self.options += ["-cl-fp32-correctly-rounded-divide-sqrt", "-DLT_ROUNDED"]
        self.group = min(int(found.max_work_group_size), 256)
        self.is_cpu = bool(found.type & cl.device_type.CPU)
        self.processors = int(found.max_compute_units)

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """Memory with undefined content; OutOfMemory if there is none."""
        size = max(nbytes, 1)
        try:
            return DeviceBuffer(self.pool.allocate(size), nbytes, self.name)
        except (self.cl.MemoryError, self.cl.RuntimeError, self.cl.LogicError) as e:
            raise OutOfMemory(f"{self.name} ({self.found.name}): no memory for {nbytes:,} bytes: {e}") from e

    def write(self, buffer: DeviceBuffer, array: Array, offset: int = 0, wait: bool = True) -> None:
        """Copy an array into a buffer; without waiting, the array must not change."""
        if array.nbytes:
            raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self.cl.enqueue_copy(self.queue, buffer.memory, raw, dst_offset=offset, is_blocking=wait)

    def read(self, buffer: DeviceBuffer, dtype: np.dtype[Any], shape: Sequence[int], offset: int = 0) -> Array:
        """A copy of a part of a buffer, behind all that was enqueued."""
        array: Array = np.empty(tuple(shape), dtype)
        if array.nbytes:
            raw = array.reshape(-1).view(np.uint8)
            self.cl.enqueue_copy(self.queue, raw, buffer.memory, src_offset=offset, is_blocking=True)
        return array

    def build(self, source: str) -> tuple[Any, float]:
        """A program, and the seconds that the driver took."""
        start = time.perf_counter()
        try:
            program = self.cl.Program(self.context, source).build(self.options, cache_dir=False)
        except self.cl.RuntimeError as e:
            raise LazytInternalError(f"{self.name} ({self.found.name}) does not compile a kernel: {e}\n{source}") from e
        return program, time.perf_counter() - start

    def synchronize(self) -> None:
        """Wait for all that was enqueued."""
        self.queue.finish()


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


@cache
def _device(number: int) -> Device:
    found = _found()
    if number >= len(found):
        raise DeviceError(f"device '{NAME}:{number}': no such device; there is {', '.join(devices()) or 'none'}")
    return Device(number, found[number])


def device(name: str) -> Device:
    """The device of a name; DeviceError if there is none."""
    return _device(number_of(name))
