"""Memory that results gave back, by size: a run takes it without asking CuPy's pool, which costs a microsecond each.

What lies unused for some runs goes back to CuPy, and all of it where memory is short.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# So many runs are between two looks at what was not used. One that had to ask for memory counts as so many.
RUNS = 64
ASKED = 16
# With more sizes than this, those of which nothing is free are forgotten.
SHELVES = 1024


class Shelf(list[tuple[int, Any]]):
    """Free memory of one size: addresses, each with what keeps it. `lowest`: how many there were at the least."""

    __slots__ = ("lowest",)

    def __init__(self) -> None:
        super().__init__()
        self.lowest = 0


class FreeBlocks:
    """The free memory of a device for work on one stream, as CuPy's pool has it."""

    def __init__(self) -> None:
        self.shelves: dict[int, Shelf] = {}
        self._age = 0

    def shelf(self, nbytes: int) -> Shelf:
        """Where memory of this size lies."""
        found = self.shelves.get(nbytes)
        return self.shelves.setdefault(nbytes, Shelf()) if found is None else found

    def ran(self, shelves: Iterable[Shelf], asked: bool) -> None:
        """A run took memory from these; `asked` CuPy for some of it."""
        for shelf in shelves:
            if len(shelf) < shelf.lowest:
                shelf.lowest = len(shelf)
        self._age += ASKED if asked else 1
        if self._age >= RUNS:
            self._trim()

    def _trim(self) -> None:
        """Give back what was not used since the last time."""
        self._age = 0
        for n, shelf in [*self.shelves.items()]:
            del shelf[: shelf.lowest]
            shelf.lowest = len(shelf)
            # NOTE: what comes back to a shelf that is left out here goes to CuPy, as nothing else refers to it then.
            if not shelf and len(self.shelves) > SHELVES:
                self.shelves.pop(n, None)

    def clear(self) -> None:
        """Give all of it back."""
        for shelf in [*self.shelves.values()]:
            shelf.lowest = 0
            shelf.clear()

    def nbytes(self, block: int) -> int:
        """How much there is, in blocks of CuPy's pool."""
        return sum(-(-n // block) * block * len(shelf) for n, shelf in [*self.shelves.items()])
