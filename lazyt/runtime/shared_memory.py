"""Tensors whose memory other processes map too: `x.share_memory_()`, and what a write of one means.

The memory is an anonymous file (`memfd_create`): it has no name that could be left behind, and the system frees it when
the last process that has it open or mapped lets go, however that process ends.

A storage with such memory is listed in `EXTERNAL` (lazyt/tracing/tensor_state.py). Values are never overwritten
elsewhere in lazyt; here a write is computed at once, its result copied into the mapping, and the mapping stays the
storage's value. So other processes see a write when its statement ends.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import weakref
from typing import Any

import numpy as np

from lazyt.config import HOST
from lazyt.errors import NotSupportedError
from lazyt.runtime import memory
from lazyt.runtime.sync import materialise, sync
from lazyt.tracing.record import share
from lazyt.tracing.steps import hooks
from lazyt.tracing.tensor_state import EXTERNAL, Data, Handle, Storage
from lazyt.tracing.trace import Trace, holding, local

# With these seals a process that has the file cannot make it smaller under those that have mapped it.
_SEALS = getattr(fcntl, "F_SEAL_SHRINK", 0) | getattr(fcntl, "F_SEAL_GROW", 0) | getattr(fcntl, "F_SEAL_SEAL", 0)


class Segment:
    """An anonymous file and its mapping; both end with the last reference."""

    __slots__ = ("__weakref__", "_map", "fd", "file", "nbytes")

    def __init__(self, nbytes: int, fd: int = -1) -> None:
        """A new file of `nbytes` zeros, or the one behind `fd`, which this takes over."""
        self.nbytes = nbytes
        self.fd = _create(max(nbytes, 1)) if fd < 0 else fd
        self._map = mmap.mmap(self.fd, max(nbytes, 1), mmap.MAP_SHARED)
        at = os.fstat(self.fd)
        self.file = at.st_dev, at.st_ino  # which file it is, in any process

    def array(self, dtype: Any, shape: tuple[int, ...], offset: int = 0) -> np.ndarray[Any, Any]:
        """A writable NumPy array over the memory; it keeps the mapping, not the file's descriptor."""
        return np.ndarray(shape, dtype, self._map, offset)

    def __del__(self) -> None:
        fd, self.fd = getattr(self, "fd", -1), -1
        if fd >= 0:
            os.close(fd)


def _create(nbytes: int) -> int:
    if not hasattr(os, "memfd_create"):
        raise NotSupportedError("not supported: shared memory, because this system has no memfd_create")
    fd = os.memfd_create("lazyt", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, nbytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


class Shared:
    """What stands behind a storage in shared memory: the segment, and the value over it."""

    __slots__ = ("array", "data", "segment", "storage")

    def __init__(self, storage: Storage, segment: Segment, dtype: Any, shape: tuple[int, ...]) -> None:
        self.segment = segment
        self.array = segment.array(dtype, shape)
        self.data: Data = memory.wrap_array(self.array)
        key = id(storage)
        self.storage = weakref.ref(storage, lambda _: EXTERNAL.pop(key, None))


def shared_of(x: Handle) -> Shared | None:
    """What x shares with other processes, or None."""
    found: Shared | None = None if x._storage is None else EXTERNAL.get(id(x._storage))
    return found


def handle_on(st: Storage | None) -> Any:
    """A handle on the whole value of a storage."""
    x = object.__new__(hooks.tensor)
    x._slot = x._buffer = x._view = x._meta = None
    x._storage = st
    x._writes = 0
    return x


def share_memory(x: Handle) -> Shared:
    """Move the value of x, and of what it is a view of, to shared memory; syncs."""
    found = shared_of(x)
    if found is not None:
        return found
    if x.device != HOST:
        raise NotSupportedError(
            f"share_memory_: not supported: a tensor on {str(x.device)!r}, because that memory is this process's own; "
            "x.cpu().share_memory_() shares a copy"
        )
    tr = local.trace
    st = share(tr, x)
    base = handle_on(st)
    # All that is pending, so that nothing recorded before reads the old place.
    sync(tr, "share_memory_()")
    while True:
        data = materialise(base, "share_memory_()")
        shared = Shared(st, Segment(data.nbytes), data.dtype, data.shape)
        shared.array[...] = memory.as_array(data)
        with holding:
            if st._buffer is not data:
                continue  # another thread has written it meanwhile
            EXTERNAL[id(st)] = shared
            st._buffer = shared.data
            st._slot = None
        st.invalidate(None)
        return shared


def attach(segment: Segment, dtype: Any, shape: tuple[int, ...]) -> Any:
    """A tensor over a segment that another process has sent: the one that there is, if it comes back."""
    for known in list(EXTERNAL.values()):
        st = known.storage()
        same = known.segment.file == segment.file and known.data.shape == shape and known.data.dtype == dtype
        if same and st is not None and st._meta is None:
            return handle_on(st)
    x = handle_on(None)
    st = object.__new__(Storage)
    st.aliases = [weakref.ref(x)]
    shared = Shared(st, segment, dtype, shape)
    st._slot, st._buffer, st._meta, st._writes, st.shared = None, shared.data, None, 0, 0
    EXTERNAL[id(st)] = shared
    x._storage = st
    return x


def publish(tr: Trace) -> None:
    """After a write: what is pending of storages in shared memory is computed, and copied to where all see it."""
    for shared in list(EXTERNAL.values()):
        st = shared.storage()
        if st is not None and st._buffer is not shared.data:
            _publish(tr, shared, st)


def _publish(tr: Trace, shared: Shared, st: Storage) -> None:
    """Copy the elements that a write has changed.

    NOTE: no others, because another process may write them meanwhile. So what is computed reads a copy of the memory,
    and is compared with that copy.
    """
    before = memory.from_array(shared.array)
    before.form, before.bound_in = shared.data.form, shared.data.bound_in
    with holding:
        for i, data in enumerate(tr.inputs):
            if data is shared.data:
                tr.inputs[i] = before
    base = handle_on(st)
    while True:
        data = materialise(base, "shared memory")
        if data is shared.data:
            return  # another thread has published it
        new, old = _words(memory.as_array(data)), _words(memory.as_array(before))
        with holding:
            if st._buffer is data:
                np.copyto(_words(shared.array), new, where=new != old)
                st._buffer = shared.data
                st._slot = None
                break
    st.invalidate(None)


def _words(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bits of an array's elements, which are compared and copied whole."""
    flat = a.reshape(-1)
    return flat.view(np.uint64) if a.itemsize == 16 else flat.view(f"u{a.itemsize}")


hooks.publish = publish
