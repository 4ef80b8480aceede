"""Layout of an arena: blocks of memory whose lifetimes overlap do not overlap in memory.

A block is its size, the first region of a plan that it lives in, and the last.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Block = tuple[int, int, int]

# Up to so many blocks are compared pairwise: it packs best, and costs their number squared.
MANY_BLOCKS = 1024


def by_size(blocks: Iterable[Block]) -> tuple[list[int], int]:
    """The offset of each block, placed the largest first at the lowest address free while it lives; and the end."""
    offsets: list[int] = []
    placed: list[tuple[int, int, int, int]] = []  # start, end, first, last; ascending
    top = 0
    for size, first, last in blocks:
        at = 0
        for start, end, f, t in placed:
            if f <= last and t >= first:
                if start - at >= size:
                    break
                if end > at:
                    at = end
        offsets.append(at)
        insort(placed, (at, at + size, first, last))
        top = max(top, at + size)
    return offsets, top


def by_time(blocks: Sequence[Block]) -> tuple[list[int], int]:
    """The same, placed in order of time in n log n: each block takes the smallest gap that fits; and the end."""
    begins: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    for i, (_, first, last) in enumerate(blocks):
        begins.setdefault(first, []).append(i)
        ends.setdefault(last, []).append(i)
    offsets = [0] * len(blocks)
    gaps = _Gaps()
    for time in sorted({*begins, *ends}):
        for i in begins.get(time, ()):
            offsets[i] = gaps.take(blocks[i][0])
        for i in ends.get(time, ()):
            gaps.give(offsets[i], blocks[i][0])
    return offsets, gaps.top


class _Gaps:
    """The free memory below the top of an arena; no two gaps touch."""

    def __init__(self) -> None:
        self.top = 0
        self.by_size: list[tuple[int, int]] = []  # size and start, ascending
        self.sizes: dict[int, int] = {}  # by start
        self.starts: dict[int, int] = {}  # by end

    def take(self, size: int) -> int:
        """The start of the smallest gap of at least this size; the top moves up if there is none."""
        i = bisect_left(self.by_size, (size, 0))
        if i < len(self.by_size):
            free, start = self.by_size[i]
            self._remove(start)
            if free > size:
                self._insert(start + size, free - size)
            return start
        start = self.starts.get(self.top, self.top)
        if start < self.top:
            self._remove(start)
        self.top = start + size
        return start

    def give(self, start: int, size: int) -> None:
        """Free a block, merged with the gaps at both sides."""
        end = start + size
        if start in self.starts:
            start = self.starts[start]
            self._remove(start)
        if end in self.sizes:
            end += self._remove(end)
        if start < end:
            self._insert(start, end - start)

    def _insert(self, start: int, size: int) -> None:
        insort(self.by_size, (size, start))
        self.sizes[start], self.starts[start + size] = size, start

    def _remove(self, start: int) -> int:
        size = self.sizes.pop(start)
        del self.starts[start + size]
        del self.by_size[bisect_left(self.by_size, (size, start))]
        return size
