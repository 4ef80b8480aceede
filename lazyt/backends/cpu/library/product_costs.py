"""How many cycles a product takes, by generated code and by BLAS: of its sizes, how it is read, and what follows it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lazyt.backends.cpu.library.gemm_tile import DEEP, DEPTH, KC, NEAR

if TYPE_CHECKING:
    from lazyt.backends.cpu.library.gemm_tile import Tile
    from lazyt.ir.passes.schedule import MatmulCall

PACK_CYCLES = {"": 0.0, "panel": 0.5, "across": 0.6}
MICRO_CYCLES = 120  # a call of a micro-kernel, and storing its tile
REGION_CYCLES = 2500  # one more region of the program: threads meet
BLAS_CALL = 1500
BLAS_RUN = 8000  # for a run with BLAS: its threads are set and set back, and a replay is no single native call
BLAS_TILE = 32
BLAS_ELEMENT = 0.15  # of C
BLAS_PACK = 1.2  # of A and B, of products from here on
BLAS_SMALL = 1e6
BLAS_EFFICIENCY = 0.83  # of the peak
BLAS_TRANSPOSED = 0.45  # of small products with a transposed right operand
GENERATED_EFFICIENCY = 0.95
BLOCKS_EFFICIENCY = 0.88  # where C is gone through several times
# What a pass over memory costs that an epilogue saves: cycles for each byte, beyond the caches.
MEMORY_CYCLES = 0.25


def generated_cycles(tile: Tile, m: int, n: int, kk: int, count: int, pack_a: str, pack_b: str, c: MatmulCall) -> int:
    """Cycles of one core: two multiply-adds a cycle, but four cycles until a sum can be added to again."""
    blocks = max(-(-kk // KC), 1)
    efficiency = GENERATED_EFFICIENCY if kk <= DEPTH else BLOCKS_EFFICIENCY
    cycles = 0.0
    full, rest = divmod(n, tile.columns)
    for vectors, times in ((tile.vectors, full), (-(-rest // tile.lanes), 1 if rest else 0)):
        left = m
        for height in tile.heights(vectors) if times else ():
            work = max(height * vectors / 2 / efficiency, 4.0)
            cycles += times * (left // height) * (kk * work + blocks * MICRO_CYCLES)
            left %= height
    # Units that share a part of B pack it again.
    cycles += max(m // DEEP, 1) * kk * n * PACK_CYCLES[pack_b] + m * kk * PACK_CYCLES[pack_a]
    return math.trunc(count * cycles) + bool(pack_a) * REGION_CYCLES


def blas_cycles(tile: Tile, m: int, n: int, kk: int, count: int, c: MatmulCall, transposed: bool) -> int:
    # Its tiles are large, and computed whole.
    work = max(m, BLAS_TILE) * max(n, BLAS_TILE) * kk / tile.lanes / 2
    small = m * n * kk <= BLAS_SMALL
    packed = 0 if small else (m + n) * kk * BLAS_PACK
    efficiency = BLAS_TRANSPOSED if small and transposed else BLAS_EFFICIENCY
    cycles = count * (work / efficiency + BLAS_CALL + m * n * BLAS_ELEMENT + packed)
    if c.epilogue is not None if c.charged is None else c.charged:
        # The product is written, and read again.
        moved = count * m * n * c.node.dtype.itemsize
        cycles += REGION_CYCLES + 2 * moved * MEMORY_CYCLES * (moved > NEAR)
    return math.trunc(cycles) + BLAS_RUN
