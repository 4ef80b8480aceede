"""What the code of a kernel is given for one run, where a small backend has code of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from lazyt.backends.small.memory import Memory

    Array = np.ndarray[Any, Any]


def elements(content: Array, dtype: np.dtype[Any]) -> Array:
    """All whole elements of these bytes."""
    return content[: content.size // dtype.itemsize * dtype.itemsize].view(dtype)


@dataclass(frozen=True, slots=True)
class KernelAccess:
    """What an access of a kernel reads or writes: memory, the element at index 0, and a stride in elements an axis."""

    memory: Memory
    dtype: np.dtype[Any]
    offset: int
    strides: tuple[int, ...]

    @property
    def array(self) -> Array:
        """All elements of the memory, where the backend has a `view`."""
        found = self.memory.backend.view(self.memory.block)
        assert found is not None, "only a backend with a view asks"
        return elements(found, self.dtype)


@dataclass(frozen=True, slots=True)
class KernelArguments:
    """The arguments of one run of a kernel, in the order of the kernel IR."""

    extents: tuple[int, ...]
    accesses: tuple[KernelAccess, ...]
    affines: tuple[tuple[tuple[int, ...], int], ...]  # (coefficients, offset)
    scalars: tuple[bool | int | float, ...]
    status: Array  # two int64 for a kernel with a `Check`

    def view(self, access: int) -> Array:
        """What an access of a kernel over `extents` alone reads or writes, where the backend has a `view`."""
        a = self.accesses[access]
        strides = [s * a.dtype.itemsize for s in a.strides]
        return np.lib.stride_tricks.as_strided(a.array[a.offset :], self.extents, strides)
