"""Random numbers of data: drawn on the host, seeded from `lazyt.random`, the same for any number of workers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from lazyt.errors import DTypeError
from lazyt.functions.random import Generator, default_generator, get_state, set_state

_MASK = (1 << 64) - 1


def check_generator(generator: Any, name: str) -> None:
    """DTypeError unless it is None or a `lazyt.random.Generator`."""
    if generator is not None and not isinstance(generator, Generator):
        raise DTypeError(f"{name}: generator is a lazyt.random.Generator, not {type(generator).__name__!r}")


def host_generator(generator: Generator | None) -> np.random.Generator:
    """NumPy's generator, seeded by one draw of lazyt's: indices are needed at once, so nothing is recorded."""
    seed, counter = (default_generator() if generator is None else generator).step()
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, counter))))


def drawn_seed(generator: Generator | None) -> int:
    """A seed of 63 bits, by one draw."""
    return int(host_generator(generator).integers(1 << 63))


def mixed(seed: int, n: int) -> int:
    """A seed of seed and number: SplitMix64."""
    z = (seed + (n + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def seed_all(seed: int) -> None:
    """Seed lazyt's generator of this thread, Python's, and NumPy's global one."""
    set_state((seed, 0))
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)


class seeded:  # noqa: N801 - a context manager reads as a verb
    """A block with generators seeded for a batch; afterwards they are as they were."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __enter__(self) -> None:
        self.before = get_state(), random.getstate(), np.random.get_state()
        seed_all(self.seed)

    def __exit__(self, *exc: object) -> None:
        ours, pythons, numpys = self.before
        set_state(ours)
        random.setstate(pythons)
        np.random.set_state(numpys)
