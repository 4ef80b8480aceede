"""What of the pool stays packed of other buffers (see kept_panels.py): how much may be, and of whom there is some."""

from __future__ import annotations

import weakref
from typing import Any

from lazyt.backends.cpu.machine_memory import usable_memory

# The share of the pool's limit, or of the memory that this process may have where there is none.
SHARE = 0.1
MANY = 64  # from here on, buffers that are gone are taken off the list


class PackedMemory:
    """The share, and the owners. Who changes them has the pool's lock."""

    def __init__(self) -> None:
        self.share = SHARE
        self._owners: dict[int, weakref.ref[Any]] = {}  # by id; some are gone

    def set_share(self, share: float) -> None:
        """Another share; what there is goes. Raises ValueError for what is none."""
        if not 0 <= share <= 1:
            raise ValueError(f"set_packed_share: a share from 0 to 1 is required, not {share}")
        self.share = share
        self.give_up()

    def allows(self, nbytes: int, limit: int | None) -> bool:
        """Whether there may be so much."""
        return nbytes <= self.share * (usable_memory() if limit is None else limit)

    def add(self, owner: Any) -> None:
        """Note that there is something of this buffer."""
        found = self._owners
        if len(found) >= MANY and len(found) & (len(found) - 1) == 0:
            found = self._owners = {i: r for i, r in found.items() if r() is not None}
        found[id(owner)] = weakref.ref(owner)

    def give_up(self) -> None:
        """Let all go but what a run reads just now."""
        found, self._owners = self._owners, {}
        for r in found.values():
            owner = r()
            if owner is not None:
                owner.packed = {}
