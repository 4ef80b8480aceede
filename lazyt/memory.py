"""Memory of tensors: `lazyt.memory.allocated()`, `reserved()`, `peak()`, `set_limit()`; and values from and to NumPy.

All figures are bytes of the CPU pool. A limit makes a sync that would pass it raise OutOfMemory, with everything
that was pending still pending.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyt.backends.cpu.memory import Pool, as_ndarray, wrap_external
from lazyt.handle import Data

pool = Pool()


def allocated() -> int:
    """Bytes in buffers that somebody holds."""
    return pool.allocated()


def reserved() -> int:
    """Bytes taken from the system, cached blocks included."""
    return pool.reserved()


def peak() -> int:
    """The largest `allocated()` since the last `reset_peak()`."""
    return pool.peak()


def reset_peak() -> None:
    """Start a new peak at what is allocated now."""
    pool.reset_peak()


def set_limit(nbytes: int | None) -> None:
    """Refuse to reserve more than this; None takes the limit off."""
    pool.set_limit(nbytes)


def empty_cache() -> None:
    """Give cached blocks back to the system."""
    pool.empty_cache()


def as_array(data: Data) -> np.ndarray[Any, Any]:
    """A read-only NumPy array over a computed value."""
    return as_ndarray(data.buffer, data.dtype, data.shape)


def from_array(a: np.ndarray[Any, Any]) -> Data:
    """A copy of `a` in a buffer of lazyt's own."""
    buffer = pool.allocate(max(a.nbytes, 1))
    out = as_ndarray(buffer, a.dtype, a.shape, writable=True)
    out[...] = a
    return Data(buffer, a.shape, a.dtype)


def wrap_array(a: np.ndarray[Any, Any]) -> Data:
    """A value over NumPy's own memory; copied if it is not C-contiguous."""
    a = np.ascontiguousarray(a) if a.ndim else a
    address = a.__array_interface__["data"][0]
    return Data(wrap_external(address, a.nbytes, a), a.shape, a.dtype)
