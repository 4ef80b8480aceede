"""The copies of `after`: what waits for a cotangent is copied by threads, and no call from Python."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.routine import Routines
from lazyt.backends.cpu.parallel_copy import PART, SIZE, SOURCE, TO, write_copy
from lazyt.ir.passes.call_operands import buffer_of, nbytes

if TYPE_CHECKING:
    from lazyt.backends.common.binding import ScheduleBinding
    from lazyt.ir.passes.schedule import LibraryCall

# Bytes of a part, and of a chunk at least.
BYTES, CHUNK = 1 << 12, 1 << 17


def native(c: LibraryCall) -> bool:
    """Whether there is machine code for this call."""
    return True


def suits(b: ScheduleBinding, c: LibraryCall) -> bool:
    """For all extents."""
    return True


def prepare(c: LibraryCall) -> None:
    """Have the machine code that a call needs."""
    _copy()


def launch(
    b: ScheduleBinding, c: LibraryCall, rows: list[list[int]], table: list[int], patches: list[tuple[int, int, int]]
) -> None:
    """Write a row of a program for each array that somebody reads: all operands but the first."""
    for x, y in zip(c.operands[1:], c.results, strict=True):
        # NOTE: by the result: a binding has the bytes of what is stored, and x may be a part of the graph alone.
        size = 0 if y is None else b.value(nbytes(y))
        if y is None or not size:
            continue
        at = len(table)
        for slot, node in ((TO, y), (SOURCE, x)):
            b._address(buffer_of(node), 0, 1, at + slot, patches)
        rows.append([_copy(), at, -(-size // BYTES), CHUNK // BYTES, 0])
        args = [0] * (PART + 1)
        args[SIZE], args[PART] = size, BYTES
        table.extend(args)


@lru_cache(maxsize=1)
def _copy() -> int:
    return Routines({"copy": write_copy}).address["copy"]
