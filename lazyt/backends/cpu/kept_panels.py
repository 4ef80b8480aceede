"""Panels of a product's right operand, or a convolution's filters, that stay packed as long as these are as they were.

A plan that is no part of a training step names the operands that it packs (`Kept`). A run finds the panels of each by
the buffer that it lies in. The second run that reads a buffer as it was packs into memory that stays, and later ones,
of any plan that asks for the same panels, read them there. The micro-kernels and their order are the same, so bits are.

What is known of a buffer is its attribute `packed`, so panels die with their buffer, and no list keeps either alive.
What a computed buffer holds never changes but where a run puts a result into it, and `overwritten` forgets its panels.
Memory of others (`ExternalBuffer`: of NumPy, shared with another process) may change at any time, and is packed by each
run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lazyt.backends.cpu import memory
from lazyt.backends.cpu.library.gemm_tile import FILL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.tracing.tensor_state import Data

# Panels of smaller operands are packed in less time than it takes to find out that they are there.
LEAST = 1 << 16
# A buffer that so many runs have read as it was before is packed to stay.
READ = 1


class Kept(NamedTuple):
    """What a plan packs of an input: which one, what makes panels of it the same, and how many bytes they have."""

    source: int
    sizes: tuple[int, ...]
    form: tuple[Any, ...]
    nbytes: int


# What is known of a buffer, the panels, and where they are.
Filled = list[tuple[dict[Any, Any], Any, memory.Packed]]

# Not empty once something is known of a buffer.
met: set[bool] = set()


def find(wanted: Sequence[Kept], inputs: Sequence[Data], held: list[memory.Packed], filled: Filled) -> list[int]:
    """The panels of each as the products' argument `kept`.

    Appended to `held` are those that are there, which the caller holds until the run is over, because they may be given
    up meanwhile; to `filled` those that the run packs.
    """
    found: list[int] = []
    for kept in wanted:
        buffer = inputs[kept.source].buffer
        word = 0
        if type(buffer) is memory.Buffer:
            try:
                known = buffer.packed
            except AttributeError:
                known = buffer.packed = {}
                met.add(True)
            panels = kept.sizes, kept.form
            there = known.get(panels, 0)
            if type(there) is memory.Packed:
                held.append(there)
                word = there.address
            elif there < READ:
                known[panels] = there + 1
            elif (room := _room(kept.nbytes, buffer)) is not None:
                filled.append((known, panels, room))
                word = room.address + FILL
        found.append(word)
    return found


def to_stay(wanted: Sequence[Kept], inputs: Sequence[Data]) -> int:
    """Bytes, in whole blocks, of the panels that the next run packs to stay."""
    total = 0
    for kept in wanted:
        buffer = inputs[kept.source].buffer
        known = getattr(buffer, "packed", {}) if type(buffer) is memory.Buffer else {}
        there = known.get((kept.sizes, kept.form), 0)
        size = memory.class_size(kept.nbytes)
        if type(there) is int and there >= READ and memory.may_pack(total + size):
            total += size
    return total


def _room(nbytes: int, owner: memory.Buffer) -> memory.Packed | None:
    try:
        return memory.pack(nbytes, owner)
    except MemoryError:  # the run itself needs no more
        return None


def stay(filled: Filled) -> None:
    """The run has packed these."""
    for known, panels, room in filled:
        known[panels] = room


def overwritten(results: Sequence[Any]) -> None:
    """A run has put results into the buffers of those of them that are inputs."""
    # NOTE: a process that only trains has nothing to forget, and steps with a thousand results.
    for x in results if met else ():
        if not isinstance(x, memory.Buffer) and hasattr(x.buffer, "packed"):
            x.buffer.packed = {}
