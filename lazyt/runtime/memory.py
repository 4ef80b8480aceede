"""Memory of tensors: `lazyt.memory.allocated()`, `reserved()`, `peak()`, `set_limit()`; and values from and to NumPy.

All figures are bytes of the CPU pool. A limit makes a sync that would pass it raise OutOfMemory, with everything
that was pending still pending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends import cuda
from lazyt.backends.cpu import memory as pool
from lazyt.backends.cpu.parallel_copy import copied
from lazyt.tracing.tensor_state import Data

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["allocated", "empty_cache", "peak", "reserved", "reset_peak", "set_limit"]


def allocated() -> int:
    """Bytes in buffers that somebody holds.

    >>> import lazyt as lt
    >>> x = lt.tensor([1.0, 2.0])
    >>> lt.memory.allocated() >= 8
    True
    """
    return pool.allocated()


def reserved() -> int:
    """Bytes taken from the system, cached blocks included.

    >>> import lazyt as lt
    >>> lt.memory.reserved() >= lt.memory.allocated()
    True
    """
    return pool.reserved()


def peak() -> int:
    """The largest `allocated()` since the last `reset_peak()`.

    >>> import lazyt as lt
    >>> lt.memory.peak() >= lt.memory.allocated()
    True
    """
    return pool.peak()


def reset_peak() -> None:
    """Start a new peak at what is allocated now.

    >>> import lazyt as lt
    >>> before = lt.memory.peak()
    >>> lt.memory.reset_peak()
    >>> lt.memory.peak() <= before
    True
    """
    pool.reset_peak()


def set_limit(nbytes: int | None) -> None:
    """Refuse to have more than this allocated; None takes the limit off.

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
    pool.set_limit(nbytes)


def empty_cache() -> None:
    """Give cached blocks back to the system.

    >>> import lazyt as lt
    >>> lt.memory.empty_cache()
    """
    pool.empty_cache()


def as_array(data: Data) -> np.ndarray[Any, Any]:
    """A read-only NumPy array over a computed value; a copy of one that is on another device than the CPU."""
    if data.device != "cpu":
        return cuda.device.to_host(data.buffer, data.dtype, data.shape)
    return pool.as_ndarray(data.buffer, data.dtype, data.shape)


def from_array(a: np.ndarray[Any, Any], device: str = "cpu") -> Data:
    """A copy of `a` in a buffer of lazyt's own, on `device`."""
    if device != "cpu":
        return Data(cuda.device.from_host(a, device), a.shape, a.dtype)
    return Data(copied(a), a.shape, a.dtype)


def shared_array(data: Data) -> Any:
    """Another library's array over a value that is on a GPU."""
    return cuda.device.shared(data.buffer, data.dtype, data.shape)


def described(data: Data) -> dict[str, Any]:
    """A value that is on a GPU as `__cuda_array_interface__`."""
    return cuda.device.described(data.buffer, data.dtype, data.shape)


def adopted(x: Any, copy: bool) -> Data:
    """A value over the memory that another library has on a GPU, or over a copy of it."""
    buffer, dtype, shape = cuda.device.adopted(x, copy)
    return Data(buffer, shape, dtype)


def found(fn: str, values: Sequence[Data], statics: Sequence[Any]) -> list[Data]:
    """What a function whose results' shapes are data finds in values that are on a GPU, there."""
    got = cuda.finding.find(fn, [(v.buffer, v.dtype, v.shape) for v in values], statics)
    return [Data(buffer, shape, dtype) for buffer, dtype, shape in got]


def wrap_array(a: np.ndarray[Any, Any]) -> Data:
    """A value over NumPy's own memory; copied if it is not C-contiguous."""
    a = np.ascontiguousarray(a) if a.ndim else a
    address = a.__array_interface__["data"][0]
    return Data(pool.wrap_external(address, a.nbytes, a), a.shape, a.dtype)
