"""Philox4x32-10, the counter-based generator behind random numbers.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

from lazyt.backends.math.control import outlined, repeat
from lazyt.backends.math.vector import Vec

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)


def _halves(x: Vec) -> tuple[Vec, Vec]:
    """The low and the high 32 bits."""
    return x.convert("trunc", "i32"), (x >> 32).convert("trunc", "i32")


def _rounds(*state: Vec) -> tuple[Vec, ...]:
    def step(k0: Vec, k1: Vec, *c: Vec) -> tuple[tuple[Vec, ...], Vec]:
        low, high = _halves(c[0].convert("zext", "i64") * MULTIPLIERS[0])
        other_low, other_high = _halves(c[2].convert("zext", "i64") * MULTIPLIERS[1])
        words = (other_high ^ c[1] ^ k0, other_low, high ^ c[3] ^ k1, low)
        return (k0 + WEYL[0], k1 + WEYL[1], *words), k0

    return repeat(state, step, times=ROUNDS)[2:]


def philox_4x32_10(key: tuple[Vec, Vec], counter: tuple[Vec, Vec, Vec, Vec]) -> tuple[Vec, ...]:
    """The four words of a counter under a key, all i32, low words first."""
    return outlined("lazyt.philox", ("i32",) * 4, (*key, *counter), _rounds)


def random_bits(seed: Vec, counter: Vec, index: Vec) -> Vec:
    """64 bits of (seed, counter, element index): the first two words, the first one lowest."""
    c0, c1 = _halves(index)
    c2, c3 = _halves(counter)
    low, high, *_ = philox_4x32_10(_halves(seed), (c0, c1, c2, c3))
    return low.convert("zext", "i64") | (high.convert("zext", "i64") << 32)
