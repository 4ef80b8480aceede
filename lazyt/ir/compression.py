"""What a program may keep less exactly for its backward: the settings that it is recorded under."""

from __future__ import annotations

from lazyt.ir.records import dataclass

# Bits that a value of a saved array may have, and elements that share one minimum and one step.
BITS = (1, 2, 4, 8)
GROUP = 256
# Averages of mixed bits are whole numbers of these parts.
PARTS_OF_A_BIT = 64


@dataclass(frozen=True, slots=True)
class Compression:
    """A mode (`lazyt.memory.compress`): saved arrays have `bits` bits a value; 0: only masks and indices are packed.

    norm_bits: those of the arrays that normalizations save.
    """

    bits: int
    norm_bits: int
    table: tuple[int, ...] = ()  # bits of each rounded array of a program, in their order, where there are as many
    mixed: int = 0  # the average of bits that differ among samples, in parts; 0: all elements of an array have as many
    by_sample: bool = False  # whether the columns of `Draw.told` are the samples of this program
    moves: bool = False  # where a backend can, large packed arrays lie in the host's memory
    probes: bool = False  # every rounded array has the largest code that an input says, in words of 8 bits
