"""Arrays of a device for users' kernels in OpenCL C, and the programs of those (`lazyt.backends.interface`)."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import KernelError
from lazyt.library.guards import LEAST, MOST, Zoned
from lazyt_opencl.queues import DeviceBuffer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt_opencl.device import Device
    from lazyt_opencl.queues import Queue

LANGUAGE = "OpenCL C"


class DeviceArray:
    """C-contiguous elements of a buffer, from a byte on; what is done with it is enqueued."""

    __slots__ = ("buffer", "dtype", "offset", "queue", "shape")

    def __init__(
        self, queue: Queue, buffer: DeviceBuffer, offset: int, shape: Sequence[int], dtype: np.dtype[Any]
    ) -> None:
        self.queue, self.buffer, self.offset = queue, buffer, offset
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)

    @property
    def size(self) -> int:
        """How many elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    def copy(self) -> DeviceArray:
        """Another array with these values."""
        found = Arrays(self.queue.where, self.queue).empty(self.shape, self.dtype)
        found[...] = self
        return found

    def item(self) -> Any:
        """The only element, which is waited for."""
        self.queue.synchronize()
        return self.queue.where.read(self.buffer, self.dtype, self.shape, self.offset).item()

    def __getitem__(self, lane: int) -> DeviceArray:
        rest = self.shape[1:]
        offset = self.offset + lane * math.prod(rest) * self.dtype.itemsize
        return DeviceArray(self.queue, self.buffer, offset, rest, self.dtype)

    def __setitem__(self, lane: Any, value: DeviceArray) -> None:
        to = self if lane is Ellipsis else self[lane]
        if to.nbytes:
            cl = self.queue.where.cl
            cl.enqueue_copy(
                self.queue.found, to.buffer.memory, value.buffer.memory, byte_count=to.nbytes,
                src_offset=value.offset, dst_offset=to.offset,
            )  # fmt: skip


class ZonedArray(Zoned):
    """An array between guard zones: a part of a buffer that is a buffer itself, as OpenCL has no other addresses."""

    def __init__(self, xp: Arrays, shape: Sequence[int], dtype: np.dtype[Any], name: str, content: Any = None) -> None:
        where, self.name, self.is_input = xp.where, name, content is not None
        nbytes = max(math.prod(shape) * np.dtype(dtype).itemsize, 1)
        # What a part of a buffer begins at is a multiple of this.
        align = max(int(where.found.mem_base_addr_align) // 8, 1)
        zone = -(-max(LEAST, min(nbytes, MOST)) // align) * align
        pattern = (np.arange(nbytes + 2 * zone) * 151 + 89).astype(np.uint8)
        # NOTE: memory of a pool has no parts.
        whole = where.cl.Buffer(where.context, where.cl.mem_flags.READ_WRITE, pattern.nbytes)
        self.buffer = DeviceBuffer(whole, pattern.nbytes, xp.queue)
        where.write(self.buffer, pattern)
        self.start, self.inside = zone, slice(zone, zone + math.prod(shape) * np.dtype(dtype).itemsize)
        part = DeviceBuffer(whole.get_sub_region(zone, nbytes), nbytes, xp.queue)
        self.array = DeviceArray(xp.queue, part, 0, shape, dtype)
        if self.is_input:
            self.array[...] = content
        self.expected = self._content()

    def _content(self) -> np.ndarray[Any, Any]:
        queue = self.array.queue
        queue.synchronize()
        found: np.ndarray[Any, Any] = queue.where.read(self.buffer, np.dtype(np.uint8), (self.buffer.nbytes,))
        return found

    def fault(self) -> str:
        return self._fault_of(self._content() != self.expected)


class Arrays:
    """What a kernel is given as `xp`: see `KernelArrays`."""

    Zoned = ZonedArray

    def __init__(self, where: Device, queue: Queue) -> None:
        self.where, self.queue = where, queue

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> DeviceArray:
        """A new array of any content."""
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        return DeviceArray(self.queue, self.where.allocate(nbytes), 0, shape, dtype)

    def asarray(self, x: Any, dtype: np.dtype[Any] | None = None) -> DeviceArray:
        """An array as it is, or one with the values of a sequence of numbers."""
        if isinstance(x, DeviceArray):
            return x
        values = np.array(x, dtype)
        found = self.empty(values.shape, values.dtype)
        self.where.write(found.buffer, values)
        return found

    def ascontiguousarray(self, x: DeviceArray) -> DeviceArray:
        """The array, or a copy where it does not begin with its buffer: OpenCL has no addresses to give."""
        if not x.offset:
            return x
        found = self.empty(x.shape, x.dtype)
        found[...] = x
        return found

    def broadcast_to(self, x: DeviceArray, shape: Sequence[int]) -> DeviceArray:
        """A copy for each index along new axes before the array's own."""
        found = self.empty(shape, x.dtype)
        lanes = DeviceArray(self.queue, found.buffer, 0, (-1, *x.shape), x.dtype)
        for i in range(math.prod(shape[: len(shape) - len(x.shape)])):
            lanes[i] = x
        return found

    def load_source(self, source: str, name: str, language: str) -> Callable[..., None]:
        """The function of a source, compiled once for a device."""
        assert language == LANGUAGE, "what the backend says that it compiles"
        programs = self.where.programs
        program = programs.get(source)
        if program is None:
            if len(programs) >= MOST_PROGRAMS:
                programs.clear()
            program = programs[source] = build(self.where, source, name)
        return Function(self, program, name)


# So many sources of users stay compiled.
MOST_PROGRAMS = 256


def build(where: Device, source: str, name: str) -> Any:
    """A program; KernelError with the compiler's message, whose lines are those of the source."""
    cl = where.cl
    try:
        return cl.Program(where.context, f'#line 1 "{name}"\n{source}').build(["-cl-std=CL1.2"], cache_dir=False)
    except cl.RuntimeError as e:
        # Between the name of the device and the options is the compiler's log.
        log = re.search(r"Build on .*?>:\s*(.*?)\s*\(options:", str(e), re.DOTALL)
        message = log.group(1) if log and log.group(1) else str(e)
        raise KernelError(f"{LANGUAGE}: {where.name} refuses the source of {name!r}:\n{message}") from None


class Function:
    """A function of a user's program."""

    def __init__(self, arrays: Arrays, program: Any, name: str) -> None:
        self.arrays, self.name = arrays, name
        names = [k.function_name for k in program.all_kernels()]
        if name not in names:
            raise KernelError(
                f"{LANGUAGE}: the source has no kernel {name!r}; it has {', '.join(sorted(names)) or 'none'}"
            )
        # NOTE: a kernel keeps the arguments that were set, so nobody shares one.
        self.handle = arrays.where.cl.Kernel(program, name)

    def __call__(self, blocks: Sequence[int], block: Sequence[int], arguments: Sequence[Any]) -> None:
        """Enqueue it: so many groups along each axis, work-items of a group (along the first, or each), arguments."""
        cl, queue = self.arrays.where.cl, self.arrays.queue
        if self.handle.num_args != len(arguments):
            raise KernelError(
                f"{LANGUAGE}: kernel {self.name!r} has {self.handle.num_args} parameters, and its signature "
                f"{len(arguments)}"
            )
        own = (*block, *[1] * (len(blocks) - len(block)))
        items = tuple(b * o for b, o in zip(blocks, own, strict=True))
        try:
            self.handle.set_args(*map(_parameter, arguments))
            self.arrays.where.note(self.name, cl.enqueue_nd_range_kernel(queue.found, self.handle, items, own))
        except self.arrays.where.errors as e:
            raise KernelError(f"{LANGUAGE}: kernel {self.name!r} cannot be launched: {e}") from None


def _parameter(x: Any) -> Any:
    if isinstance(x, DeviceArray):
        return x.buffer.memory
    return np.uint8(x) if isinstance(x, np.bool_) else x
