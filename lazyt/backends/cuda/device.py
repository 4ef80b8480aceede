"""A GPU: found and checked at its first use, with the order of its work and its memory.

All work of lazyt on a device has one order: a stream that continues it first waits for the work enqueued before on
others. The host waits only for values that it reads.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lazyt.backends.cuda import cupy_driver
from lazyt.backends.cuda.free_blocks import LARGEST, FreeBlocks, FreeList
from lazyt.backends.cuda.library.cudnn import Cudnn
from lazyt.backends.cuda.pinned_copies import Staging
from lazyt.errors import DeviceError, OutOfMemory
from lazyt.interrupts import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    Array = np.ndarray[Any, Any]


class Device:
    """One GPU. `fallbacks` counts the calls that were done on the host for want of a GPU form."""

    def __init__(self, number: int, found: cupy_driver.Driver) -> None:
        self.number = number
        self.name = f"cuda:{number}"
        self.driver = found
        self.properties = found.properties(number)
        self.fallbacks = 0
        self.cudnn = Cudnn(self)
        self.staging = Staging(found)
        self._last: Any = None
        self._aside: Any = None  # of copies beside kernels
        self._apart = False  # whether work on the caller's stream may not be ordered after all of them
        self._retired: list[tuple[Any, object]] = []
        self._free: dict[int, FreeBlocks] = {}  # by stream

    def work(self) -> Work:
        """The caller's stream on this device, ordered after all work of lazyt on others. DeviceError if it fails."""
        return Work(self)

    def follow(self, stream: Any) -> None:
        """Order what comes on a stream after all work on others."""
        if self._apart:  # a run was interrupted
            self.join(stream)
        if self._last is None:
            self._last = stream
        elif stream != self._last:
            self.driver.after(stream, self.driver.record(self._last))
            self._last = stream

    def aside(self, stream: Any) -> Any:
        """The stream of copies beside kernels, ordered after what was enqueued on the caller's."""
        if self._aside is None:
            self._aside = self.driver.new_stream(self.number)
        self._apart = True
        self.driver.after(self._aside, self.driver.record(stream))
        return self._aside

    def join(self, stream: Any) -> None:
        """Order what comes on a stream after all copies beside kernels."""
        if self._aside is not None:
            self.driver.after(stream, self.driver.record(self._aside))
        self._apart = False

    def failure(self, error: Exception) -> DeviceError:
        """What an error of the driver is raised as."""
        return DeviceError(
            f"{self.name}: {error} (of this sync, or of work enqueued before; what was pending still is)"
        )

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """Fresh memory; when there is none, what CuPy caches is given back and it is tried once more."""
        with self.work():
            return self.take(nbytes)

    def take(self, nbytes: int) -> DeviceBuffer:
        """As `allocate`, inside `work()`."""
        try:
            address, owner = self.driver.allocate(self.number, max(nbytes, 1))
        except MemoryError:
            self.free_cached()
            try:
                address, owner = self.driver.allocate(self.number, max(nbytes, 1))
            except MemoryError as error:
                raise OutOfMemory(f"{self.name}: no memory for {nbytes:,} bytes ({error})") from None
        return DeviceBuffer(address, nbytes, self.name, owner)

    def take_all(self, stream: Any, sizes: Sequence[int], among: Collection[int]) -> list[DeviceBuffer]:
        """Memory for a run, inside `work()`; `among`: the sizes that there are."""
        driver = self.driver
        if not driver.keeps_freed:
            return [self.take(n) for n in sizes]
        key = driver.name_of(stream)
        free = self._free.get(key)
        if free is None:
            free = self._free.setdefault(key, FreeBlocks())
        lists = {n: free.of_size(n) for n in among if n <= LARGEST}
        found: list[DeviceBuffer] = []
        name, asked = self.name, False
        for n in sizes:
            blocks = lists.get(n)
            if blocks is None:
                found.append(self.take(n))
                continue
            try:
                found.append(DeviceBuffer(-1, n, name, None, blocks))
            except IndexError:
                asked = True
                found.append(self.take(n).kept_by(blocks))
        free.ran(lists.values(), asked)
        return found

    def free_cached(self) -> None:
        """Give the memory that nobody uses back to the device."""
        for free in [*self._free.values()]:
            free.clear()
        self.driver.free_cached(self.number)

    def usage(self) -> tuple[int, int]:
        """Bytes in use, in whole blocks, and bytes that the device gave."""
        used, given = self.driver.usage(self.number)
        # NOTE: the driver does not count the memory of an allocator that the user gave CuPy.
        return max(used - sum(free.nbytes(BLOCK) for free in [*self._free.values()]), 0), given

    def write(self, address: int, array: Array) -> None:
        """Copy a NumPy array to the device; it may change when this returns."""
        if array.nbytes:
            with self.work() as stream:
                self.staging.write(stream, address, np.ascontiguousarray(array))

    def read(self, address: int, dtype: np.dtype, shape: Sequence[int]) -> Array:
        """A NumPy array of what stands on the device; waits for what is under way there."""
        out = np.empty(shape, dtype)
        if out.nbytes:
            with self.work() as stream:
                self.staging.read(stream, address, out)
        return out

    def retire(self, event: Any, memory: object) -> None:
        """Keep pinned memory until a copy to it is done; release it for copies that are done."""
        self._retired = [r for r in self._retired if not self.driver.is_done(r[0])]
        self._retired.append((event, memory))

    def synchronize(self) -> None:
        """Wait for all that was enqueued."""
        with self.work() as stream:
            self.driver.wait(stream)


class Work:
    """The context of `Device.work`."""

    __slots__ = ("_current", "_device")

    _current: AbstractContextManager[Any]

    def __init__(self, where: Device) -> None:
        self._device = where

    def __enter__(self) -> Any:
        where = self._device
        try:
            # NOTE: what an interrupt leaves here is entered no longer, as nothing refers to it.
            self._current = where.driver.on(where.number)
            stream = self._current.__enter__()
        except where.driver.errors as error:
            raise where.failure(error) from error
        try:
            where.follow(stream)
        except BaseException as error:
            self._current.__exit__(type(error), error, error.__traceback__)
            if isinstance(error, where.driver.errors):
                raise where.failure(error) from error
            raise
        return stream

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        where = self._device
        self._current.__exit__(kind, error, traceback)
        if error is not None and isinstance(error, where.driver.errors):
            raise where.failure(error) from error


class Outcome(Protocol):
    """What the value of a buffer depends on: the `Check` of a run (deferred_checks.py)."""

    sites: Sequence[Any] | None  # the lines that were recorded

    def settle(self) -> None:
        """Wait for it, and raise what it found."""


class DeviceBuffer:
    """Memory on a device, which goes back to its pool, or to a free list, with the last reference.

    NumPy never accesses it. With a free list it is taken from there: IndexError if that is empty. `checks`: the index
    checks that its value depends on and that are not known to have passed.
    """

    __slots__ = ("__weakref__", "_list", "_owner", "address", "checks", "device", "nbytes")

    readonly = False

    @uninterrupted
    def __init__(self, address: int, nbytes: int, device: str, owner: object, blocks: FreeList | None = None) -> None:
        self._list: FreeList | None = None
        if blocks is not None:
            address = blocks[-1]
            del blocks[-1]
            self._list = blocks
        self.address = address
        self.nbytes = nbytes
        self.device = device
        self.checks: tuple[Outcome, ...] = ()
        self._owner = owner

    @uninterrupted
    def __del__(self) -> None:
        # NOTE: no call in here: CPython would look at signals behind it, and drop what a handler raises in a `__del__`.
        blocks = self._list
        if blocks is not None:
            blocks += (self.address,)

    @uninterrupted
    def kept_by(self, blocks: FreeList) -> DeviceBuffer:
        """This one, which goes to a free list from now on."""
        blocks.owners[self.address] = self._owner
        self._list, self._owner = blocks, None
        return self

    def __repr__(self) -> str:
        return f"<DeviceBuffer of {self.nbytes} bytes on {self.device}>"

    def located(self, sites: Callable[[], Sequence[Any]]) -> None:
        """The lines that were recorded of what has filled it."""
        for c in self.checks:
            if c.sites is None:
                c.sites = sites()

    def settle(self) -> None:
        """Wait for the checks of what it holds; IndexOutOfRange where an index was outside."""
        for c in self.checks:
            c.settle()
        self.checks = ()


class AdoptedBuffer(DeviceBuffer):
    """Memory that another library may see too: nothing is written there."""

    __slots__ = ()


NAME = re.compile(r"cuda(?::(\d+))?")
# Bytes that CuPy's pool rounds up to.
BLOCK = 512
_devices: dict[tuple[int, int], Device] = {}


def block_of(nbytes: int) -> int:
    """What memory of so many bytes takes of CuPy's pool."""
    return -(-nbytes // BLOCK) * BLOCK


def number_of(name: str) -> int:
    """The number in 'cuda' (0) or 'cuda:1'."""
    match = NAME.fullmatch(name)
    assert match, f"not a CUDA device: {name}"
    return int(match[1] or 0)


def count() -> int:
    """How many GPUs there are: none too where CuPy or a driver is missing."""
    try:
        return cupy_driver.get().count()
    except DeviceError:
        return 0


def device(name: str) -> Device:
    """The device called `name`; DeviceError for what is missing: CuPy, a driver, a GPU, this GPU."""
    found, number = cupy_driver.get(), number_of(name)
    known = _devices.get((id(found), number))
    if known is None:
        count = found.count()
        if number >= count:
            have = "there is none" if not count else f"there are {count}: cuda:0 to cuda:{count - 1}"
            raise DeviceError(f"device {name!r}: no such GPU; {have}")
        known = Device(number, found)
        oldest, own = cupy_driver.OLDEST, known.properties.capability
        if own < oldest:
            raise DeviceError(
                f"device {name!r}: {known.properties.name} has compute capability {own // 10}.{own % 10}; "
                f"lazyt needs {oldest // 10}.{oldest % 10} or higher"
            )
        _devices[id(found), number] = known
    return known


def to_host(buffer: DeviceBuffer, dtype: np.dtype, shape: Sequence[int]) -> Array:
    """A NumPy copy of a buffer."""
    buffer.settle()
    return device(buffer.device).read(buffer.address, dtype, shape)


def from_host(array: Array, name: str) -> DeviceBuffer:
    """A NumPy array's elements in memory of device `name`."""
    where = device(name)
    buffer = where.allocate(array.nbytes)
    where.write(buffer.address, array)
    return buffer


# Other libraries


def shared(buffer: DeviceBuffer, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
    """A CuPy array over a buffer, which must not be written; waits for nothing but checks of indices."""
    buffer.settle()
    where = device(buffer.device)
    with where.work():
        return where.driver.array(where.number, buffer, shape, dtype)


def described(buffer: DeviceBuffer, dtype: np.dtype, shape: tuple[int, ...]) -> dict[str, Any]:
    """A buffer as `__cuda_array_interface__` (version 3), with the stream that its reader has to wait for."""
    buffer.settle()
    where = device(buffer.device)
    with where.work() as stream:
        name = where.driver.name_of(stream)
    # NOTE: torch refuses memory that is flagged read-only.
    data = (buffer.address, False)
    return {"version": 3, "shape": shape, "typestr": dtype.str, "data": data, "strides": None, "stream": name}


def adopted(x: Any, copy: bool) -> tuple[DeviceBuffer, np.dtype, tuple[int, ...]]:
    """Memory that another library has on a GPU, kept as long as the buffer, or a copy; DeviceError if it fails."""
    found = cupy_driver.get()
    found.count()  # CuPy's own errors for a machine without a driver do not say what to do
    try:
        a = found.adopt(x, copy)
    except found.errors as error:
        raise DeviceError(f"cuda: memory of a {type(x).__name__} cannot be taken over ({error})") from error
    where = device(f"cuda:{a.device}")
    return AdoptedBuffer(a.address, a.nbytes, where.name, a.owner), a.dtype, a.shape
