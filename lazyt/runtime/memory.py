"""Memory of tensors: `lazyt.memory.allocated()`, `reserved()`, `peak()`, `set_limit()`; and values from and to NumPy.

All figures are bytes of the host's pool. A limit makes a sync that would pass it raise OutOfMemory, with everything
that was pending still pending.
"""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.registry import backends, by_dlpack, host
from lazyt.config import HOST
from lazyt.errors import DeviceError
from lazyt.tracing.tensor_state import Data

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["allocated", "empty_cache", "packed", "peak", "reserved", "reset_peak", "set_limit", "set_packed_share"]

_host = host().allocator

UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TB": 10**12,
    "TIB": 2**40,
}


def allocated() -> int:
    """Bytes in buffers that somebody holds.

    >>> import lazyt as lt
    >>> x = lt.tensor([1.0, 2.0])
    >>> lt.memory.allocated() >= 8
    True
    """
    return _host.statistics(HOST).allocated


def reserved() -> int:
    """Bytes taken from the system, cached blocks included.

    >>> import lazyt as lt
    >>> lt.memory.reserved() >= lt.memory.allocated()
    True
    """
    return _host.statistics(HOST).reserved


def peak() -> int:
    """The largest `allocated()` since the last `reset_peak()`.

    >>> import lazyt as lt
    >>> lt.memory.peak() >= lt.memory.allocated()
    True
    """
    return _host.peak()


def reset_peak() -> None:
    """Start a new peak at what is allocated now.

    >>> import lazyt as lt
    >>> before = lt.memory.peak()
    >>> lt.memory.reset_peak()
    >>> lt.memory.peak() <= before
    True
    """
    _host.reset_peak()


def size_of(name: str, nbytes: Any, least: int = 1) -> int:
    """Bytes from a whole number, or a text such as '1.5 GiB'. name: of the function that was given it."""
    if isinstance(nbytes, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?i?B?)\s*", nbytes, re.IGNORECASE)
        unit = UNITS.get(found[2].upper()) if found else None
        if found is None or unit is None:
            raise ValueError(f"{name}: {nbytes!r} is no size; write bytes, or such as '512 MiB' or '2 GiB'")
        size = int(float(found[1]) * unit)
    elif isinstance(nbytes, int | np.integer) and not isinstance(nbytes, bool):
        size = int(nbytes)
    else:
        raise TypeError(f"{name}: bytes or a text such as '2 GiB' are required, not {type(nbytes).__name__!r}")
    if size < least:
        raise ValueError(f"{name}: a size {'above 0' if least else 'of at least 0'} is required, not {nbytes!r}")
    return size


def set_limit(nbytes: int | str | None) -> None:
    """Refuse to have more than this allocated: bytes, or a text such as "2 GiB"; None takes the limit off.

    Raises TypeError or ValueError for what is no size.

    >>> import lazyt as lt
    >>> lt.memory.set_limit(lt.memory.allocated() + 2**20)
    >>> x = lt.zeros(2**24) + 1
    >>> try:
    ...     lt.sync()
    ... except lt.OutOfMemory:
    ...     print("still pending:", x.is_pending)
    still pending: True
    >>> lt.memory.set_limit(None)
    """
    _host.set_limit(None if nbytes is None else size_of("memory.set_limit", nbytes, 0))


def packed() -> int:
    """Bytes of weights that stay packed for products; `allocated()` counts them too.

    >>> import lazyt as lt
    >>> lt.memory.packed() <= lt.memory.allocated()
    True
    """
    return _host.packed()


def set_packed_share(share: float) -> None:
    """Let weights that stay packed take at most this share of the limit, or of the machine's memory where none is set.

    What is packed now is given up. Raises ValueError for a share that is not from 0 (nothing stays packed) to 1, and
    TypeError for what is no number.

    >>> import lazyt as lt
    >>> lt.memory.set_packed_share(0)
    >>> lt.memory.packed()
    0
    >>> lt.memory.set_packed_share(0.1)  # as in the beginning
    """
    if isinstance(share, bool) or not isinstance(share, int | float | np.integer | np.floating):
        raise TypeError(f"memory.set_packed_share: a number from 0 to 1 is required, not {type(share).__name__!r}")
    _host.set_packed_share(share)


def empty_cache() -> None:
    """Give cached blocks back to the system, and weights that stay packed.

    >>> import lazyt as lt
    >>> lt.memory.empty_cache()
    """
    _host.empty_cache()


def as_array(data: Data) -> np.ndarray[Any, Any]:
    """A read-only NumPy array over a computed value; a copy of one that is not in the host's memory."""
    return backends[data.device].allocator.to_host(data.buffer, data.dtype, data.shape)


# How an element in the host's memory is read where a Python scalar is asked for.
_ELEMENTS: dict[Any, Any] = {
    np.dtype(t): t
    for t in (
        ctypes.c_bool, ctypes.c_int8, ctypes.c_int16, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint8, ctypes.c_uint16,
        ctypes.c_uint32, ctypes.c_uint64, ctypes.c_float, ctypes.c_double,
    )
}  # fmt: skip


def element(data: Data) -> Any:
    """The element of a computed value that has one, as a Python scalar: as NumPy's `item`, without an array."""
    kind = _ELEMENTS.get(data.dtype)
    if kind is None or data.device != HOST:
        return as_array(data).reshape(()).item()
    return kind.from_address(data.address).value


def from_array(a: np.ndarray[Any, Any], device: str = HOST) -> Data:
    """A copy of `a` in a buffer of lazyt's own, on `device`."""
    return Data(backends[device].allocator.from_host(a, device), a.shape, a.dtype)


def shared_array(data: Data) -> Any:
    """Another library's array over a value that is not in the host's memory."""
    return backends[data.device].share(data.buffer, data.dtype, data.shape)


def described(data: Data) -> dict[str, Any]:
    """A value that is on a GPU as `__cuda_array_interface__`."""
    return backends[data.device].array_interface(data.buffer, data.dtype, data.shape)


def adopted(x: Any, kind: int, copy: bool) -> Data:
    """A value over the memory that another library has on a device of this DLPack type, or over a copy of it."""
    backend = by_dlpack(kind)
    if backend is None:
        raise DeviceError(f"memory of DLPack device type {kind} cannot be taken over: no backend has such devices")
    buffer, dtype, shape = backend.adopt(x, copy)
    return Data(buffer, shape, dtype)


def found(fn: str, values: Sequence[Data], statics: Sequence[Any]) -> list[Data] | None:
    """What a function whose results' shapes are data finds in values, on their device; None: the host is to look."""
    there = [(v.buffer, v.dtype, v.shape) for v in values]
    got = backends[values[0].device].find(fn, there, statics)
    return None if got is None else [Data(buffer, shape, dtype) for buffer, dtype, shape in got]


def wrap_array(a: np.ndarray[Any, Any]) -> Data:
    """A value over NumPy's own memory; copied if it is not C-contiguous."""
    a = np.ascontiguousarray(a) if a.ndim else a
    return Data(_host.wrap(a), a.shape, a.dtype)
