"""Kernels of a bound plan as rows of a native program: a whole kernel, or the pieces of a divided one.

Tables are complete except for addresses and scalars, which a run fills in by patches: (slot, base, byte offset).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.backends.common.binding import ScheduleBinding
from lazyt.backends.cpu.code_cache import Compiled, compiled
from lazyt.backends.cpu.codegen.emit_pairs import PAIR_ROWS, over_pairs
from lazyt.backends.cpu.flags import switches
from lazyt.backends.cpu.thread_pool import get_num_threads
from lazyt.ir.passes.kernelize import KernelCall
from lazyt.ir.passes.split_reduction import Piece, Scratch, split, whole, worth_splitting

if TYPE_CHECKING:
    from lazyt.backends.cpu.engine import Module
    from lazyt.ir.kernel import Kernel
    from lazyt.ir.passes.schedule import MatmulCall

# Elements of work that a chunk of the lightest kernels should have at least, so that dividing it pays (a few
# microseconds; see `Kernel.weight`): so many of 4 bytes and more, and as many bytes of narrower ones. (Measured: of a
# megabyte of bytes threads that take turns with less take each other's lines, and two take longer than one.)
GRAIN, GRAIN_BYTES = 16384, 4
# A column reduction reads this many neighbouring units together (see emit_columns).
COLUMN_RUN = 16


class KernelRows(ScheduleBinding):
    """A binding that launches kernels: alone, or as epilogues of products."""

    keeps: bool  # whether operands of products may stay packed from run to run (kept_panels.py), and their bases
    kept_base: dict[MatmulCall, int]

    def __init__(self, exe: Any, values: list[int]) -> None:
        self.codes: list[Compiled | Module] = []
        super().__init__(exe, values)
        self.shared_at = self.scratch_at  # where what pieces share begins

    def _kernel(
        self, c: KernelCall, rows: list[list[int]], table: list[int], patches: list[tuple[int, int, int]], joins: bool
    ) -> None:
        pieces = self._pieces(c)
        for i, piece in enumerate(pieces):
            self._piece(c, piece, rows, table, patches, piece.joins or (joins and i + 1 == len(pieces)))

    def _pieces(self, c: KernelCall) -> list[Piece]:
        """What a kernel is launched as: itself, or the parts of one with too few units of work for all threads."""
        extents, strides, coefs = self._shape(c)
        if switches["split"] and worth_splitting(c.kernel, extents, get_num_threads(), switches["early"]):
            return self.checked(c, split(c.kernel, extents, strides, coefs))
        return [whole(c.kernel, extents, strides, coefs)]

    def temporaries(self) -> int:
        """Bytes of the arena of a run: with the totals that parts of a kernel share, those of one region at a time."""
        most = 0
        for region in self.exe.schedule.regions:
            pieces = [p for c in region if isinstance(c, KernelCall) for p in self._pieces(c)]
            shared = {x.source for p in pieces for x in p.operands if isinstance(x.source, Scratch)}
            most = max(most, sum(self.aligned(max(s.count * s.dtype.itemsize, 1)) for s in shared))
        return max(self.arena_size, self.shared_at + most)

    def epilogue(self, c: KernelCall, table: list[int], patches: list[tuple[int, int, int]]) -> tuple[int, int]:
        """Append the arguments of a kernel that a product runs: where they begin, and the address of its code."""
        return self._arguments(c, whole(c.kernel, *self._shape(c)), table, patches), self._code(c.kernel)

    def _code(self, kernel: Kernel) -> int:
        code = compiled(kernel)
        self.codes.append(code)
        return code.address

    def _piece(
        self, c: KernelCall, piece: Piece, rows: list[list[int]], table: list[int],
        patches: list[tuple[int, int, int]], joins: bool,
    ) -> None:  # fmt: skip
        """One launch: of a whole kernel, or of a part of it."""
        at = self._arguments(c, piece, table, patches)
        rows.append([self._code(piece.kernel), at, *self._grain(c, piece), int(joins)])

    def whole_grain(self, c: KernelCall) -> tuple[int, int]:
        """The units of a kernel that is not divided, and how many make a chunk."""
        return self._grain(c, whole(c.kernel, *self._shape(c)))

    def _grain(self, c: KernelCall, piece: Piece) -> tuple[int, int]:
        """The units of a launch, and how many make a chunk."""
        kernel, extents = piece.kernel, piece.extents
        units = kernel.units(extents)
        total = math.prod(extents)
        if total == 0 and not (kernel.rows and all(extents[: kernel.outer])):
            units = 0
        work = max(total // max(units, 1), 1)
        narrow = max(GRAIN_BYTES // max((a.itemsize for a in c.accesses), default=GRAIN_BYTES), 1)
        grain = max(GRAIN * narrow // (work * kernel.weight), 1)
        # Chunks of the same size, as many for each thread: two threads with 28 rows and 4 take as long as one.
        chunks, threads = -(-units // grain), get_num_threads()
        grain = -(-units // max(chunks // threads * threads, min(chunks, threads), 1))
        if kernel.rows and kernel.vector == "outer":
            grain = max(grain, min(COLUMN_RUN, -(-units // get_num_threads())))
        elif over_pairs(kernel):
            width = max(extents[1], 1)
            grain = max(grain, width * min(PAIR_ROWS, -(-extents[0] // (2 * get_num_threads()))))
        return units, grain
