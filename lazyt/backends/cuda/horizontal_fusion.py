"""One launch for a region's launches of one kernel under one mapping: an optimizer's updates of a hundred tensors.

    k(arguments 1), ..., k(arguments n)  -->  k_m(where all arguments are, which block does what)

The kernel is the same text but for its head: a block finds its share, which is where its arguments begin, which of
how many blocks it is. Arguments stand in the plan's table, which a run copies to the device before its first launch.
"""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.cuda.flags import switches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lazyt.backends.cuda.codegen.mapping import Mapping
    from lazyt.backends.cuda.device import Device
    from lazyt.ir.kernel import Kernel

    Array = np.ndarray[Any, Any]
    # The kernel, where its arguments begin in the table, its mapping, and how many blocks.
    Planned = tuple[Kernel, int, Mapping, int]

# Where a block's arguments begin, which block of its array it is, of how many; the last is padding.
Share = tuple[int, int, int, int]
SHARE = 4
# Fewer are nodes of a graph that run side by side, and need no copy of the table.
FEWEST = 8
# Blocks for each multiprocessor that all members have together; each goes on by as many as its member has.
RESIDENT = 32
# Runs that may be under way before one waits for the copy of an older one.
RUNS = 8


def groups(launches: Iterable[tuple[Kernel, Mapping]]) -> set[tuple[str, Mapping]]:
    """The kernels, with their mappings, that are launched together if these launches are independent."""
    if not switches["many"]:
        return set()
    found = Counter((kernel.key, mapping) for kernel, mapping in launches)
    return {key for key, n in found.items() if n >= FEWEST}


def taken_together(
    calls: Sequence[list[Planned]], processors: int, place: Callable[[list[Share]], int]
) -> list[list[Planned]]:
    """The launches of a region's calls, with those of a group merged at the place of the first.

    `place` is given the shares of a launch and says where its arguments begin.
    """
    alone = [c[0] for c in calls if len(c) == 1]
    wanted = groups((kernel, mapping) for kernel, _, mapping, _ in alone)
    members: dict[tuple[str, Mapping], list[Planned]] = {key: [] for key in wanted}
    for launch in alone:
        if (some := members.get((launch[0].key, launch[2]))) is not None:
            some.append(launch)
    found: list[list[Planned]] = []
    for c in calls:
        key = (c[0][0].key, c[0][2]) if len(c) == 1 else None
        if key not in wanted:
            found.append(c)
        elif some := members.pop(key, []):
            shares = _shares(some, processors)
            kernel, _, mapping, _ = some[0]
            found.append([(kernel, place(shares), replace(mapping, many=True), len(shares))])
    return found


def _shares(some: Sequence[Planned], processors: int) -> list[Share]:
    """The work of each block of a launch: blocks are divided among the members by work, at most as many as a member
    has.
    """
    total = sum(blocks for *_, blocks in some)
    scale = min(1.0, RESIDENT * processors / total)
    found = []
    for _, at, _, blocks in some:
        n = max(1, int(blocks * scale))
        found += [(at, i, n, 0) for i in range(n)]
    return found


class Shares:
    """Device data that merged launches of a plan read: the table of arguments, copied every run, and all shares."""

    def __init__(self, where: Device, table: Array, shares: Sequence[Share]) -> None:
        self.where = where
        self.table = where.allocate(table.nbytes)
        rows = np.array(shares, np.uint32)
        self.rows = where.allocate(rows.nbytes)
        where.write(self.rows.address, rows)
        self._copies: list[tuple[Any, int, object]] = []  # under way, the oldest first, each with its pinned memory

    def __del__(self) -> None:
        # NOTE: a copy may still be under way.
        if not sys.is_finalizing():
            for event, _, owner in getattr(self, "_copies", ()):
                self.where.retire(event, owner)

    def send(self, stream: Any, table: Array) -> None:
        """Enqueue the copy of this run's arguments; they may change when this returns."""
        driver = self.where.driver
        if self._copies and (len(self._copies) == RUNS or driver.is_done(self._copies[0][0])):
            event, address, owner = self._copies.pop(0)
            driver.wait_event(event)
        else:
            address, owner = driver.pinned(table.nbytes)
        ctypes.memmove(address, table.ctypes.data, table.nbytes)
        driver.to_device(stream, self.table.address, address, table.nbytes)
        self._copies.append((driver.record(stream), address, owner))
