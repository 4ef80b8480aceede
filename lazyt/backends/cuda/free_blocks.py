"""Memory that results gave back, by size: a run takes it without asking CuPy's pool, which costs a microsecond each.

What lies unused for some runs goes back to CuPy, and all of it where memory is short.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# Only memory of at most so many bytes is kept: to write more takes a GPU longer than the host to ask for it.
LARGEST = 16 << 20
# So many runs are between two looks at what was not used. One that had to ask for memory counts as so many.
RUNS = 64
ASKED = 16
# With more sizes than this, those of which there is no memory are forgotten.
MOST_SIZES = 1024


class FreeList(list[int]):
    """The addresses of free memory of one size. `lowest`: how many there were at the least.

    `owners`: what keeps the memory, by address, also of what is in use. NOTE: not with who uses it: in a cycle of
    garbage the owner would be told that it ends before its memory comes here.
    """

    __slots__ = ("lowest", "owners")

    def __init__(self) -> None:
        super().__init__()
        self.lowest = 0
        self.owners: dict[int, Any] = {}

    def give_back(self, most: int) -> None:
        """Give so much of what is free back to CuPy."""
        owners = self.owners
        while most > 0 and self:
            # NOTE: no call in here, so an interrupt, or another thread, comes between two of them.
            address = self[0]
            del self[0]
            del owners[address]
            most -= 1


class FreeBlocks:
    """The free memory of a device for work on one stream, as CuPy's pool has it."""

    def __init__(self) -> None:
        self.lists: dict[int, FreeList] = {}
        self._age = 0

    def of_size(self, nbytes: int) -> FreeList:
        """Where memory of this size lies."""
        found = self.lists.get(nbytes)
        return self.lists.setdefault(nbytes, FreeList()) if found is None else found

    def ran(self, lists: Iterable[FreeList], asked: bool) -> None:
        """A run took memory from these; `asked` CuPy for some of it."""
        for blocks in lists:
            if len(blocks) < blocks.lowest:
                blocks.lowest = len(blocks)
        self._age += ASKED if asked else 1
        if self._age >= RUNS:
            self._trim()

    def _trim(self) -> None:
        """Give back what was not used since the last time."""
        self._age = 0
        for n, blocks in [*self.lists.items()]:
            blocks.give_back(blocks.lowest)
            blocks.lowest = len(blocks)
            if len(self.lists) > MOST_SIZES and not blocks.owners:
                self.lists.pop(n, None)

    def clear(self) -> None:
        """Give all of it back."""
        for blocks in [*self.lists.values()]:
            blocks.give_back(len(blocks))
            blocks.lowest = 0

    def nbytes(self, block: int) -> int:
        """How much there is, in blocks of CuPy's pool."""
        return sum(-(-n // block) * block * len(blocks) for n, blocks in [*self.lists.items()])
