"""What a program may keep less exactly for its backward: the settings that it is recorded under."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    from lazyt.ir.graph import Node

# Bits that a value of a saved array may have, and elements that share one minimum and one step.
BITS = (1, 2, 4, 8)
GROUP = 256


@dataclass(frozen=True, slots=True)
class Compression:
    """A mode (`lazyt.memory.compress`): saved arrays have `bits` bits a value; 0: only masks and indices are packed.

    norm_bits: those of the arrays that normalizations save.
    """

    bits: int
    norm_bits: int
    table: tuple[int, ...] = ()  # bits of each rounded array of a program, in their order, where there are as many
    probes: bool = False  # every rounded array has the largest code that an input says, in words of 8 bits


@dataclass(frozen=True, slots=True)
class Draw:
    """The compression that a step was recorded under, and the scalars of its program that rounding draws from."""

    settings: Compression
    seed: int  # positions among the program's scalars
    counter: int
    tops: Node | None = None  # of a probe: for each rounded array its largest code, and what moves its counter
