"""Sizes of attention's kernels: the elements of a block and of a thread, chosen by the dtype and the widest row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

# Bytes that a thread reads of shared memory at once.
PACK = 16
# Pairs of a product that lie in shared memory at a time.
SLAB = 16


@dataclass(frozen=True, slots=True)
class Tile:
    """A block's threads, `across` and `down`, each with `rows` by `columns` scores, in chunks of `chunk` neighbours."""

    chunk: int
    across: int
    down: int
    rows: int
    columns: int

    @property
    def threads(self) -> int:
        return self.across * self.down

    @property
    def height(self) -> int:
        """Rows of a block."""
        return self.down * self.rows

    @property
    def width(self) -> int:
        """Columns of a block."""
        return self.across * self.columns

    def padded(self, features: int) -> int:
        """Features of a row of a result that the threads across have together."""
        step = self.chunk * self.across
        return -(-features // step) * step


# By the widest row: threads across and down, rows and columns of a thread. Results stay in registers beside the scores,
# and two blocks find room on a multiprocessor, so that one computes while the other waits for memory.
Sizes = tuple[tuple[int, tuple[int, int, int, int]], ...]
_FORWARD: dict[int, Sizes] = {
    4: ((128, (8, 16, 4, 8)), (256, (16, 8, 4, 4))),
    8: ((64, (16, 8, 4, 2)), (128, (8, 16, 2, 4))),
}
_GRADIENT: dict[int, Sizes] = {
    4: ((64, (8, 16, 4, 8)), (256, (16, 8, 4, 4))),
    8: ((64, (8, 16, 2, 4)), (128, (16, 8, 2, 2))),
}
# The same where tensor cores multiply, by the bytes of an element in memory: four warps with 16 rows each.
_TENSOR_FORWARD: dict[int, Sizes] = {2: ((64, (4, 32, 2, 16)), (128, (4, 32, 2, 8))), 4: ((64, (4, 32, 2, 16)),)}
_TENSOR_GRADIENT: dict[int, Sizes] = {2: ((64, (4, 32, 2, 8)), (128, (4, 32, 2, 4))), 4: ((64, (4, 32, 2, 4)),)}


def by_tensor_cores(dtype: np.dtype, features: Sequence[int]) -> bool:
    """Whether there are kernels that multiply rows of so many features by tensor cores."""
    return max(features) <= max((most for most, _ in _TENSOR_FORWARD.get(dtype.itemsize, ())), default=0)


def widest(dtype: np.dtype) -> int:
    """The features that a row may have."""
    return _FORWARD[max(dtype.itemsize, 4)][-1][0]


def tile_for(work: np.dtype, features: Sequence[int], back: bool) -> Tile:
    """The tile for rows of so many features, computed in float32 or float64."""
    size = work.itemsize
    sizes = next(s for most, s in (_GRADIENT if back else _FORWARD)[size] if max(features) <= most)
    return Tile(PACK // size, *sizes)


def tensor_tile(dtype: np.dtype, features: Sequence[int], back: bool) -> Tile:
    """The tile where tensor cores multiply rows of so many features, float32 as tf32."""
    sizes = (_TENSOR_GRADIENT if back else _TENSOR_FORWARD)[dtype.itemsize]
    return Tile(4, *next(s for most, s in sizes if max(features) <= most))


@dataclass(frozen=True, slots=True)
class Variant:
    """What is compiled into the kernels of attention; all else is an argument."""

    dtype: np.dtype  # in memory: float16, bfloat16, float32 or float64
    d: int
    e: int
    mask: str  # '' | 'bool' | 'add'
    causal: bool
    back: bool
    wide: bool  # rows of q, k, v, ct and the results are aligned, and read by neighbours
    wide_mask: bool
    native: bool = True  # exp by the machine's 2**x: what the switch says, so that its text is another
    mma: bool = False  # products by tensor cores: of halves, or of float32 as tf32

    @property
    def work(self) -> np.dtype:
        """What it is computed in, and a mask that is added stored in."""
        return self.dtype if self.dtype.itemsize >= 4 else np.dtype(np.float32)

    @property
    def tile(self) -> Tile:
        if self.mma:
            return tensor_tile(self.dtype, (self.d, self.e), self.back)
        return tile_for(self.work, (self.d, self.e), self.back)
