"""The stack slots of a `vector='outer'` kernel with row axes, computed before its code is emitted.

Its lanes' loop is inside its row loops, so the values that a lane keeps from row to row are in *slots*: folds, values
that no row changes, results of reductions, tiles of strided loads. A slot is reused after its last read.
The number of units of a run (`emit_columns.py`) is chosen so that the slots of one run fit into `SLOT_BYTES`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.common.transposed_access import tiled_accesses
from lazyt.backends.cpu.codegen.emit_reduce import WIDE, Fold, folds_of
from lazyt.backends.cpu.codegen.text import mem_type, reg_type
from lazyt.backends.cpu.flags import switches
from lazyt.ir.kernel import COLUMNS, LANES, Load
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    import numpy as np

    from lazyt.backends.cpu.codegen.emit_levels import Levels
    from lazyt.ir.kernel import Kernel, Stage

# Bytes of slots that a run may have: more leave the first-level cache (measured on rows of 5 and 10 elements: runs
# of 2 to 8 units are as fast as runs of 16 or faster where there are tiles).
SLOT_BYTES = 1 << 15
# Units of COLUMNS outputs that are done together: runs of 1024 elements are read at the speed of memory, runs of
# COLUMNS (a size for sharing work between threads) at a quarter of it.
RUNS = (16, 8, 4, 2, 1)
# Accesses of a stage that are read in tiles: each takes LANES rows of a run on the stack.
MAX_TILES = 4
# Registers of LANES lanes in a unit.
GROUPS = COLUMNS // LANES


@dataclass(frozen=True)
class StageSlots:
    """The slots of one stage, by number: of its folds (their lanes, float64 partials, results), values and tiles."""

    folds: tuple[Fold, ...]
    lanes: tuple[tuple[int, ...], ...]
    wide: tuple[int, ...]  # -1 for a fold that is not blocked
    results: tuple[int, ...]
    kept: dict[int, int]
    tiles: dict[int, int]  # by access


@dataclass(frozen=True)
class ColumnSlots:
    """Of all stages; `sizes` has the bytes that each slot takes for LANES outputs."""

    stages: tuple[StageSlots, ...]
    sizes: tuple[int, ...]
    units: int  # of a run

    @property
    def groups(self) -> int:
        """Registers of LANES lanes in a run."""
        return self.units * GROUPS

    @property
    def nbytes(self) -> int:
        return sum(self.sizes) * self.groups


def lanes_bytes(kind: str) -> int:
    """Bytes in memory of LANES lanes of an element type, or of a vector type that has LANES of them."""
    element = kind.partition(" x ")[2].rstrip(">") if kind[0] == "<" else kind
    bits = {"half": 16, "float": 32, "double": 64}.get(element) or int(element[1:])
    return LANES * bits // 8


def value_bytes(dtype: np.dtype) -> int:
    """Bytes of LANES values of `dtype` in registers, as they are kept in a slot."""
    return lanes_bytes(reg_type(dtype))


def column_slots(kernel: Kernel, levels: Levels) -> ColumnSlots:
    """The slots of a kernel with row axes and `vector='outer'`."""
    last = _last_readers(kernel, levels)
    sizes: list[int] = []
    free: dict[int, list[int]] = {}
    held: dict[int, int] = {}  # value -> slot

    def take(size: int) -> int:
        if free.get(size):
            return free[size].pop()
        sizes.append(size)
        return len(sizes) - 1

    def give(slot: int) -> None:
        free.setdefault(sizes[slot], []).append(slot)

    stages = []
    for i, stage in enumerate(kernel.stages):
        tiles = {
            a: take(LANES * lanes_bytes(mem_type(kernel.accesses[a].dtype)))
            for a in _tiles(kernel, levels, stage, held)
        }
        folds = tuple(folds_of(kernel, stage.reduces))
        lanes = tuple(tuple(take(lanes_bytes(t)) for t in f.types) for f in folds)
        wide = tuple(take(lanes_bytes(WIDE)) if f.blocked else -1 for f in folds)
        kept = {v: take(value_bytes(kernel.values[v].dtype)) for v in _kept(levels, stage, held)}
        held |= kept
        results = tuple(take(value_bytes(f.dtype)) for f in folds)
        held |= dict(zip(stage.reduces, results, strict=True))
        stages.append(StageSlots(folds, lanes, wide, results, kept, tiles))
        for slot in (*tiles.values(), *(s for own in lanes for s in own), *(s for s in wide if s >= 0)):
            give(slot)
        for v in [v for v in held if last.get(v, -1) <= i]:
            give(held.pop(v))
    units = next((n for n in RUNS if sum(sizes) * GROUPS * n <= SLOT_BYTES), RUNS[-1])
    return ColumnSlots(tuple(stages), tuple(sizes), units)


def _kept(levels: Levels, stage: Stage, held: dict[int, int]) -> list[int]:
    return [v for v in levels.kept_in_slots(stage) if v not in held] if stage.loops else []


def _tiles(kernel: Kernel, levels: Levels, stage: Stage, held: dict[int, int]) -> list[int]:
    """The accesses that a stage reads in tiles."""
    if not stage.loops or not switches["tile"]:
        return []
    evaluated = levels.needed(levels.roots(stage), (), held)
    read = {v.access for i in evaluated if isinstance(v := kernel.values[i], Load)}
    return [a for a in tiled_accesses(kernel) if a in read][:MAX_TILES]


def _last_readers(kernel: Kernel, levels: Levels) -> dict[int, int]:
    """By value that is kept in a slot the last stage that reads it."""
    held: set[int] = set()
    last: dict[int, int] = {}
    for i, stage in enumerate(kernel.stages):
        new = [v for v in levels.kept_in_slots(stage) if v not in held] if stage.loops else []
        # NOTE: what is new is computed from what older slots hold.
        read = {*levels.needed(new, (), held), *levels.needed(levels.roots(stage), (), held | set(new))}
        held.update(new)
        last |= dict.fromkeys((v for v in read if v in held), i)
        held.update(stage.reduces)
    return last
