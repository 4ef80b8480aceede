"""Memory for the CPU backend: a caching pool of 64-byte-aligned blocks, each behind a `Buffer`.

Writing to fresh pages costs more than most kernels do, so blocks that die are kept and the most
recently used one is handed out first: a steady loop touches no new page and makes no system call.
Sizes fall into classes, eight an octave (at most 12.5 % waste). Classes up to `SLAB_BLOCK` are cut
from shared slabs; a larger block has its own mapping, on huge pages where the system has them.

NOTE: `Buffer.__del__` may run anywhere, inside `allocate` too, when the collector runs. It takes no
lock: it appends to a list and changes one attribute by an int, which the interpreter lock makes
atomic. Nor does it look at signals, so no Ctrl-C is lost in it.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
import operator
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt import on_demand
from lazyt.backends.common.donating import COUNTED
from lazyt.config import cpu as switches
from lazyt.forking import cached_property, process_lock
from lazyt.interrupts import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lazyt.backends.cpu import packed_memory, poison
else:
    poison = on_demand.module("lazyt.backends.cpu.poison")
    packed_memory = on_demand.module("lazyt.backends.cpu.packed_memory")

ALIGNMENT = 64
HUGE_PAGE = 2 << 20
SLAB_BLOCK = 256 << 10
SLAB_LIMIT = 1 << 20
CACHE_FLOOR = 64 << 20
LARGEST = 1 << 47
KNOWN_SIZES_LIMIT = 4096
# Large blocks begin at so many places of a page in turn, so far apart. A load that has the same last 12 bits of its
# address as a store still under way waits for it, and were all blocks to begin at pages, a kernel that writes `out[i]`
# and then reads `x[i]` would wait all the time.
COLOURS, COLOUR = 8, 512


def class_size(nbytes: int) -> int:
    """The size of the block that serves `nbytes`: rounded up to one of eight steps an octave."""
    step = max(ALIGNMENT, 1 << max((nbytes - 1).bit_length() - 4, 0))
    return max(-(-nbytes // step) * step, ALIGNMENT)


def lent_size(nbytes: int) -> int:
    """What the temporaries of a run count: in whole pages if they are large, for no more is touched."""
    return class_size(nbytes) if nbytes <= SLAB_BLOCK else -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE


class Buffer:
    """A block of memory, which goes back to its pool with the last reference to the buffer.

    `address` is aligned to 64 bytes (but see `ExternalBuffer`); `nbytes` is what was asked for.
    """

    __slots__ = ("__weakref__", "_bin", "address", "nbytes", "packed")

    address: int
    nbytes: int
    packed: dict[Any, Any]  # what stays of it in the layout of products, if any was asked for: see kept_panels.py
    _bin: _Bin
    device = "cpu"
    readonly: bool = False
    owner: object = None

    @uninterrupted
    def __del__(self) -> None:
        try:
            origin = self._bin
        except AttributeError:  # it has no block: `allocate` failed, or was interrupted
            return
        # NOTE: no call in here: CPython would look at signals behind it, and drop what a handler raises in a `__del__`.
        origin += (self.address,)
        origin.pool._used -= origin.size

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.nbytes} bytes at {self.address:#x}>"


class Lent(Buffer):
    """The memory of a run's temporaries: a block that may be much larger, of which only they count."""

    __slots__ = ("_charged",)

    _charged: int

    @uninterrupted
    def __del__(self) -> None:
        try:
            origin = self._bin
        except AttributeError:
            return
        # NOTE: no call, as in `Buffer`.
        origin += (self.address,)
        origin.pool._used -= self._charged


class Packed(Buffer):
    """What stays packed of another buffer: it is given up where memory is short."""

    __slots__ = ()

    @uninterrupted
    def __del__(self) -> None:
        try:
            origin = self._bin
        except AttributeError:
            return
        # NOTE: no call, as in `Buffer`.
        origin += (self.address,)
        origin.pool._used -= origin.size
        origin.pool._packed -= origin.size


class ExternalBuffer(Buffer):
    """Memory of another object, `owner`, that this buffer keeps alive; any alignment."""

    __slots__ = ("_owner", "_readonly")

    def __init__(self, address: int, nbytes: int, owner: object, readonly: bool) -> None:
        self.address = address
        self.nbytes = nbytes
        self._owner = owner
        self._readonly = readonly

    @property
    def readonly(self) -> bool:  # type: ignore[override]
        return self._readonly

    @property
    def owner(self) -> object:  # type: ignore[override]
        return self._owner

    def __del__(self) -> None:
        """Returns nothing to the pool."""


class _Region:
    """An anonymous private mapping and the aligned part of it that is used."""

    __slots__ = ("_map", "base", "size")

    def __init__(self, size: int) -> None:
        huge = size >= HUGE_PAGE
        # Huge pages need an aligned start; what is mapped around it is never touched: no memory.
        length = size + HUGE_PAGE if huge else size
        if hasattr(mmap, "MAP_PRIVATE"):
            # Python's default is a shared mapping, which a forked child would write to as well.
            self._map = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            self._map = mmap.mmap(-1, length)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.size = size
        self.base = start
        if huge:
            self.base = -(-start // HUGE_PAGE) * HUGE_PAGE
            if hasattr(mmap, "MADV_HUGEPAGE"):
                self._advise_huge(self.base - start)

    def _advise_huge(self, offset: int) -> None:
        try:
            self._map.madvise(mmap.MADV_HUGEPAGE, offset, self.size)
        except OSError:
            # A hint only: a kernel without huge pages refuses it, and ordinary pages will do.
            return

    def unmap(self) -> None:
        self._map.close()


class _Bin(list[int]):
    """One size class: the list of the addresses of its free blocks, and its mappings.

    It subclasses list: one attribute access less is a tenth of the time of `allocate`.
    """

    __slots__ = ("bases", "pool", "regions", "size")

    def __init__(self, pool: Pool, size: int) -> None:
        super().__init__()
        self.pool = pool
        self.size = size
        self.bases: list[int] = []
        self.regions: dict[int, _Region] = {}

    def grow(self, size: int, colour: int) -> int:
        """Map `size` more bytes; the address of one new block, the others are free. The first begins at `colour`."""
        region = _Region(size)
        bisect.insort(self.bases, region.base)
        self.regions[region.base] = region
        first = region.base + colour
        last = first + (size // self.size - 1) * self.size
        # In this order the lowest address is handed out first.
        self.extend(range(last, first, -self.size))
        return first

    def release(self) -> int:
        """Unmap the regions whose blocks are all free; gives the number of bytes."""
        taken: dict[int, list[int]] = {}
        while self:
            try:
                address = self.pop()
            except IndexError:  # another thread took the last one
                break
            base = self.bases[bisect.bisect_right(self.bases, address) - 1]
            taken.setdefault(base, []).append(address)
        released = 0
        for base, addresses in taken.items():
            region = self.regions[base]
            if len(addresses) < region.size // self.size:
                self.extend(addresses)
                continue
            del self.regions[base]
            self.bases.remove(base)
            region.unmap()
            released += region.size
        return released


class Pool:
    """A caching allocator; every thread of the process may use it."""

    def __init__(self) -> None:
        # Reentrant: the collector may run while it is held, and what it frees may allocate.
        self._lock = process_lock()
        self._bins: dict[int, _Bin] = {}
        self._known: dict[int, _Bin] = {}
        self._lending: dict[int, tuple[_Bin, int]] = {}  # as `_known`, for `lend`: who served it last, what it counts
        self._used = 0
        self._reserved = 0
        self._peak = 0
        self._high_water = 0
        self._limit: int | None = None
        self._packed = 0  # of `_used`, what is `Packed`
        self._mapped = 0  # large blocks
        # NOTE: min(limit, peak): one comparison in `allocate` serves both.
        self._ceiling = 0

    def allocate(self, nbytes: int) -> Buffer:
        """A buffer of at least `nbytes` bytes of undefined content.

        Raises `MemoryError` when that would pass the limit, or when the system has no more.
        """
        buffer = Buffer()
        try:
            origin = self._known[nbytes]
            # NOTE: no call from here on: an interrupt comes before the block is taken, or when the buffer has it.
            address = origin[-1]
            del origin[-1]
        except (KeyError, IndexError):
            origin, address = self._find(nbytes)
        self._used = used = self._used + origin.size
        buffer.address = address
        buffer.nbytes = nbytes
        buffer._bin = origin
        if used > self._ceiling:
            self._pass_ceiling(nbytes, buffer, origin.size)
        return buffer

    def lend(self, nbytes: int) -> Buffer:
        """A buffer for the temporaries of a run, which dies with the run: raises as `allocate` does.

        Any free block that is large enough serves. Where there is none, smaller free ones go back to the system first:
        so plans that take turns share the memory of the largest of them.
        """
        if nbytes <= SLAB_BLOCK:
            return self.allocate(nbytes)
        buffer = Lent()
        try:
            origin, charged = self._lending[nbytes]
            # NOTE: no call from here on, as in `allocate`.
            address = origin[-1]
            del origin[-1]
        except (KeyError, IndexError):
            origin, charged, address = self._find_lent(nbytes)
        self._used = used = self._used + charged
        buffer.address = address
        buffer.nbytes = nbytes
        buffer._charged = charged
        buffer._bin = origin
        if used > self._ceiling:
            self._pass_ceiling(nbytes, buffer, charged)
        return buffer

    @cached_property
    def _keeps(self) -> packed_memory.PackedMemory:
        """Of whom something stays packed."""
        return packed_memory.PackedMemory()

    def _give_up(self) -> None:
        """Let all that stays packed go but what a run reads just now."""
        if self._packed:
            self._keeps.give_up()

    def pack(self, nbytes: int, owner: Buffer) -> Packed | None:
        """Memory for what stays packed of a buffer, in its attribute `packed`, which is emptied where memory is short.

        None where that would be more than the share of it, or the limit. Raises as `allocate` does.
        """
        with self._lock:
            size = class_size(nbytes)
            if not self.may_pack(size):
                return None
            buffer = Packed()
            origin, address = self._find(nbytes)
            # NOTE: no call until the buffer has the block, as in `allocate`.
            self._used += size
            self._packed += size
            buffer.address = address
            buffer.nbytes = nbytes
            buffer._bin = origin
            if self._used > self._ceiling:
                self._pass_ceiling(nbytes, buffer, size)
            self._keeps.add(owner)
            return buffer

    def may_pack(self, size: int) -> bool:
        """Whether so many bytes more, in whole blocks, may stay packed."""
        short = self._limit is not None and self._used + size > self._limit
        return not short and self._keeps.allows(self._packed + size, self._limit)

    def set_packed_share(self, share: float) -> None:
        """Let what stays packed be at most this share of the limit, or of the machine's memory where there is none."""
        with self._lock:
            self._keeps.set_share(share)

    def packed(self) -> int:
        """Bytes of what stays packed, in whole blocks; they are part of `allocated`."""
        return self._packed

    def allocated(self) -> int:
        """Bytes in live buffers, in whole blocks."""
        return self._used

    def reserved(self) -> int:
        """Bytes obtained from the system: live, cached and not yet handed out."""
        return self._reserved

    def peak(self) -> int:
        """The most that `allocated` has been since the last `reset_peak`."""
        return self._peak

    def reset_peak(self) -> None:
        """Let `peak` start again from what is allocated now."""
        with self._lock:
            self._peak = self._used
            self._set_ceiling()

    def set_limit(self, nbytes: int | None) -> None:
        """Let `allocate` fail rather than have more than `nbytes` allocated; None: no limit.

        Cached blocks are given back before the system is asked for more than the limit.
        """
        if nbytes is not None and nbytes < 0:
            raise ValueError(f"set_limit: a limit in bytes or None is required, not {nbytes}")
        with self._lock:
            self._limit = nbytes
            self._set_ceiling()
            if nbytes is not None and (self._used > nbytes or not self._keeps.allows(self._packed, nbytes)):
                self._give_up()
            if nbytes is not None and self._reserved > nbytes:
                self._release()

    def empty_cache(self) -> None:
        """Give back to the system what no live buffer uses (slabs in part use stay)."""
        with self._lock:
            self._give_up()
            self._release()

    def _release(self) -> None:
        for origin in list(self._bins.values()):
            released = origin.release()
            self._reserved -= released

    def _set_ceiling(self) -> None:
        self._ceiling = self._peak if self._limit is None else min(self._peak, self._limit)

    def _pass_ceiling(self, nbytes: int, buffer: Buffer, charged: int) -> None:
        """A block passed the peak, or the limit: then it is taken back, and this raises MemoryError."""
        with self._lock:
            if self._limit is not None and self._used > self._limit:
                self._give_up()
            if self._limit is not None and self._used > self._limit:
                # NOTE: no call before the block is back.
                origin = buffer._bin
                del buffer._bin
                origin += (buffer.address,)
                self._used -= charged
                raise self._out_of_memory(nbytes)
            self._peak = max(self._peak, self._used)
            self._high_water = max(self._high_water, self._peak)
            self._set_ceiling()

    def _find(self, nbytes: int) -> tuple[_Bin, int]:
        """The slow path of `allocate`: the size class of `nbytes`, and a free block of it."""
        wanted = operator.index(nbytes)
        if wanted < 0:
            raise ValueError(f"allocate: a size in bytes is required, not {wanted}")
        if wanted > LARGEST:
            raise self._out_of_memory(wanted)
        with self._lock:
            origin = self._bin_of(class_size(wanted))
            if len(self._known) >= KNOWN_SIZES_LIMIT:
                self._known.clear()
            self._known[wanted] = origin
            if origin:
                try:
                    return origin, origin.pop()
                except IndexError:  # another thread took the last one
                    pass
            return origin, self._map(wanted, origin, origin.size)

    def _bin_of(self, size: int) -> _Bin:
        """The size class of this size."""
        found = self._bins.get(size)
        if found is None:
            found = self._bins[size] = _Bin(self, size)
        return found

    def _find_lent(self, nbytes: int) -> tuple[_Bin, int, int]:
        """The slow path of `lend`: a size class, what a buffer of `nbytes` counts, and a free block of the class."""
        if nbytes > LARGEST:
            raise self._out_of_memory(nbytes)
        with self._lock:
            size, charged = class_size(nbytes), lent_size(nbytes)
            if len(self._lending) >= KNOWN_SIZES_LIMIT:
                self._lending.clear()
            smaller: list[_Bin] = []
            for other in sorted(self._bins):
                origin = self._bins[other]
                if other < size:
                    if other > SLAB_BLOCK:
                        smaller.append(origin)
                    continue
                try:
                    address = origin.pop()
                except IndexError:
                    continue
                self._lending[nbytes] = origin, charged
                return origin, charged, address
            origin = self._bin_of(size)
            self._lending[nbytes] = origin, charged
            freed = 0
            while smaller and freed < size:
                released = smaller.pop().release()
                self._reserved -= released
                freed += released
            return origin, charged, self._map(nbytes, origin, charged)

    def _map(self, nbytes: int, origin: _Bin, charged: int) -> int:
        """The address of a block in memory fresh from the system."""
        if self._limit is not None and self._used + charged > self._limit:
            self._give_up()
            if self._used + charged > self._limit:
                raise self._out_of_memory(nbytes)
        one = -(-origin.size // mmap.PAGESIZE) * mmap.PAGESIZE
        if origin.size > SLAB_BLOCK:
            self._mapped += 1
            colour = self._mapped % COLOURS * COLOUR
            one += mmap.PAGESIZE
            size = one
        else:
            colour = 0
            # As much again as the class has: few mappings, and no more than half of a slab idle.
            have = sum(region.size for region in origin.regions.values())
            size = max(one, min(have, SLAB_LIMIT) // one * one)
        # Sizes that change all the time would fill the cache with blocks of no further use.
        most = 2 * max(self._high_water, CACHE_FLOOR)
        if self._limit is not None and self._limit < most:
            most = self._limit
        if self._reserved + size > most:
            self._release()
            size = one
        try:
            address = origin.grow(size, colour)
        except (OSError, OverflowError, ValueError):
            self.empty_cache()
            size = one
            try:
                address = origin.grow(size, colour)
            except (OSError, OverflowError, ValueError) as error:
                raise self._out_of_memory(nbytes) from error
        self._reserved += size
        return address

    def _out_of_memory(self, nbytes: int) -> MemoryError:
        limit = "none" if self._limit is None else self._limit
        return MemoryError(
            f"lazyt: out of memory: asked for {nbytes} bytes; "
            f"allocated {self._used}, reserved {self._reserved}, limit {limit}"
        )


_pool = Pool()

allocate = _pool.allocate if not switches["poison"] else poison.poisoned(_pool.allocate)
lend = _pool.lend if not switches["poison"] else poison.poisoned(_pool.lend)
pack = _pool.pack
may_pack = _pool.may_pack
packed = _pool.packed
set_packed_share = _pool.set_packed_share
allocated = _pool.allocated
reserved = _pool.reserved
peak = _pool.peak
reset_peak = _pool.reset_peak
set_limit = _pool.set_limit
empty_cache = _pool.empty_cache


def wrap_external(address: int, nbytes: int, owner: object, *, readonly: bool = True) -> ExternalBuffer:
    """A buffer over memory that `owner` keeps valid; it is not counted as allocated."""
    return ExternalBuffer(address, nbytes, owner, readonly)


def _held(values: list[Any]) -> int:
    """The reference count of an array that was the last of a list, once it is popped."""
    value = values.pop()
    return sys.getrefcount(value)


_FRESH = _held([np.empty(1)])


def adopt(values: list[Any], dtype: np.dtype[Any], shape: Sequence[int]) -> ExternalBuffer | None:
    """The memory of the last of `values` as a buffer, if it is an array of this dtype and shape, in C order, that
    owns its memory and that nobody but the list holds; None otherwise. It is not counted as allocated.
    """
    if not COUNTED or _held(values[-1:]) != _FRESH + 1:
        return None
    a = values[-1]
    if type(a) is not np.ndarray or a.dtype != dtype or a.shape != tuple(shape):
        return None
    if not (a.flags.owndata and a.flags.c_contiguous and a.nbytes):
        return None
    return ExternalBuffer(a.__array_interface__["data"][0], a.nbytes, a, readonly=False)


class _Export:
    """The last base of NumPy arrays over a buffer; it keeps the buffer alive."""

    __slots__ = ("__array_interface__", "buffer")

    __array_interface__: dict[str, Any]
    buffer: Buffer


# How a description of memory names a dtype; it has no name for those that are not NumPy's own.
_TYPES: dict[Any, str] = {np.dtype(c): np.dtype(c).str for c in "?bhilqBHILQefdgFDG"}


def _exported(buffer: Buffer, shape: tuple[int, ...], name: str, writable: bool) -> npt.NDArray[Any]:
    export = _Export()
    export.buffer = buffer
    export.__array_interface__ = {
        "version": 3, "shape": shape, "typestr": name, "data": (buffer.address, not writable)
    }  # fmt: skip
    return np.asarray(export)


def as_ndarray(
    buffer: Buffer, dtype: npt.DTypeLike, shape: Sequence[int], strides: Sequence[int] | None = None, offset: int = 0,
    writable: bool = False,
) -> npt.NDArray[Any]:  # fmt: skip
    """A NumPy array over the buffer's memory, without a copy; it keeps the buffer alive.

    `strides` (default C-contiguous) and `offset` are in bytes. Raises `ValueError` for a writable
    array of a read-only buffer; NumPy raises if the array would leave the buffer.
    """
    if writable and buffer.readonly:
        raise ValueError("as_ndarray: the buffer is read-only")
    whole = _exported(buffer, (buffer.nbytes,), "|u1", writable)
    return np.ndarray(tuple(shape), dtype, whole, offset, strides)


def value_array(buffer: Buffer, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """`as_ndarray` of a whole value, which the buffer is known to have room for: read-only, in C order."""
    name = _TYPES.get(dtype)
    if name is None:
        return as_ndarray(buffer, dtype, shape)
    return _exported(buffer, shape, name, False)
