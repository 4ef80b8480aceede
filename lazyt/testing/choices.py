"""The choices for programs of neighbouring seeds: a few dtypes, extents and functions out of all.

Each block of seeds draws its own ("swarm testing": a program of few features covers combinations of them that one of
all features rarely does). Programs of one block also share the plans of their steps, so that most cost milliseconds.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")

DTYPES = ("float32", "int32", "float64", "bool", "float16", "int64", "uint8")
OTHERS = ("int8", "int16", "uint16", "uint32", "uint64", "complex64", "complex128", "bfloat16")
EXTENTS = (3, 2, 1, 5, 17, 0, 35)
BLOCK = 4096


@dataclass(frozen=True)
class Choices:
    """What a program may be made of; `seed` says which part of each list of functions."""

    dtypes: tuple[str, ...] = DTYPES
    extents: tuple[int, ...] = EXTENTS
    seed: int | None = None  # None: all of them

    def of(self, names: Sequence[T], most: int) -> Sequence[T]:
        """At most so many of these, the same ones each time."""
        return names if self.seed is None or len(names) <= most else _part(tuple(names), most, self.seed)


EVERYTHING = Choices()


@lru_cache(maxsize=256)
def _part(names: tuple[T, ...], most: int, seed: int) -> tuple[T, ...]:
    return tuple(random.Random(seed).sample(names, most))


@lru_cache(maxsize=8)
def choices_of(seed: int) -> Choices:
    """What the programs of the block of a seed are made of.

    >>> choices_of(0) == choices_of(BLOCK - 1) != choices_of(BLOCK)
    True
    """
    block = seed // BLOCK
    rng = random.Random(block)
    first = ("float32", "float64", "float16", "float32")[block % 4]
    rest = rng.sample([d for d in (*DTYPES, *DTYPES, *OTHERS) if d != first], 2)
    extents = rng.sample([d for d in EXTENTS if d], 3)
    return Choices((first, *rest), (*extents, *([0] if rng.random() < 0.3 else [])), block)
