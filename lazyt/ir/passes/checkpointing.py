"""Which saved values to keep, to compute again in the backward, or to keep in few bits: a problem of plain numbers.

The problem is a list of values in the order in which the forward makes them. Each has bytes, what it costs to compute
it from its operands, and the times of the backward that read it. What is kept takes memory until its last reader. What
is not is computed again when it is first read, from what is kept, with everything in between that is not kept; it then
takes memory until its last reader. Nothing is computed again twice. What is packed takes fewer bytes until then, and
its own while it is read; it is an estimate, of which nothing is computed again, unless it is exact (it lay elsewhere).

A choice is a set: i where value i is kept, ~i where it is packed.

`checkpoint_search.solve` finds a choice of least cost whose peak is at most a limit.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from operator import add
from typing import TYPE_CHECKING

from lazyt.forking import cached_property
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    Kept = frozenset[int]


@dataclass(frozen=True)
class Value:
    """A value of the forward. `operands` are earlier values; inputs of the program are always there."""

    nbytes: int
    cost: float
    operands: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()  # times of the backward, ascending
    fixed: bool = False  # it is kept whatever that costs: it cannot be computed again, or somebody holds it
    once: bool = False  # it cannot be computed again, but it may be packed
    packed: int = 0  # bytes of it in few bits; 0: it may not be
    unpacked: int = 0  # bytes that are there in its place while it is read
    rounding: float = 0.0  # what it costs to pack and unpack it
    exact: bool = False  # unpacked it is what it was, so others are computed again from it


@dataclass(frozen=True)
class Problem:
    """The values, and the bytes that the backward itself has at each of its times."""

    values: tuple[Value, ...]
    base: tuple[int, ...]

    @cached_property
    def without_packing(self) -> Problem:
        """The same problem, nothing of which may be packed."""
        values = [
            Value(v.nbytes, v.cost, v.operands, v.reads, v.fixed or v.once) if v.packed or v.once else v
            for v in self.values
        ]
        return Problem(tuple(values), self.base)

    @cached_property
    def free(self) -> tuple[int, ...]:
        """The values that there is a choice for."""
        return tuple(i for i, v in enumerate(self.values) if not v.fixed)

    @cached_property
    def all_kept(self) -> Kept:
        """The choice to keep everything."""
        return frozenset(range(len(self.values)))

    def cost(self, kept: Kept) -> float:
        """What is spent on computing values again, and on packing."""
        return self.measure(kept)[1]

    def peak(self, kept: Kept) -> int:
        """The most bytes at any time of the backward."""
        return self.measure(kept)[0]

    def made(self, kept: Kept) -> list[tuple[int, int]]:
        """(time, value) of what is computed again, in that order."""
        operands, done = self._operands, set(kept)
        done.update(~i for i in kept if i < 0 and self.values[~i].exact)
        out: list[tuple[int, int]] = []
        for t, i in self._firsts:
            if i in done or ~i in done:
                continue
            todo = [i]
            while todo:
                j = todo[-1]
                missing = [x for x in operands[j] if x not in done] if j not in done else ()
                if missing:
                    todo.extend(missing)
                    continue
                todo.pop()
                if j not in done:
                    done.add(j)
                    out.append((t, j))
        return out

    @cached_property
    def _operands(self) -> list[tuple[int, ...]]:
        return [v.operands for v in self.values]

    @cached_property
    def _sizes(self) -> list[int]:
        return [v.nbytes for v in self.values]

    @cached_property
    def _firsts(self) -> list[tuple[int, int]]:
        """(time, value) of what the backward reads first, in order; of one time the latest value first."""
        return sorted(((v.reads[0], i) for i, v in enumerate(self.values) if v.reads), key=lambda x: (x[0], -x[1]))

    @cached_property
    def _lasts(self) -> list[int]:
        """When the backward reads each value last; -1 for never."""
        return [v.reads[-1] if v.reads else -1 for v in self.values]

    def levels(self, kept: Kept, made: Sequence[tuple[int, int]]) -> list[int]:
        """The bytes at each time of the backward, if this is kept and that computed again."""
        operands, sizes = self._operands, self._sizes
        end = [*self._lasts]
        change = [0] * (len(self.base) + 1)
        packed = self.packed(kept)
        begin = {i: self.values[i].reads[0] for i in packed}
        exact = {i for i in packed if self.values[i].exact}
        for t, j in made if exact else ():
            for x in exact.intersection(operands[j]):
                begin[x], end[x] = min(begin[x], t), max(end[x], t)
        for i in packed:
            v, last = self.values[i], end[i]
            change[0] += v.packed
            change[begin[i]] += v.unpacked
            change[last + 1] -= v.packed + v.unpacked
            end[i] = -1
        for t, j in made:
            for x in operands[j]:
                if end[x] < t and x not in exact:
                    end[x] = t
        for t, j in made:
            size = sizes[j]
            change[t] += size
            # What is computed again only for others is there while they are made.
            change[max(end[j], t) + 1] -= size
        for i in kept:
            if i >= 0 and end[i] >= 0:
                size = sizes[i]
                change[0] += size
                change[end[i] + 1] -= size
        return [*map(add, self.base, accumulate(change))]

    def packed(self, kept: Kept) -> list[int]:
        """The values that are in few bits."""
        return [~i for i in kept if i < 0 and ~i not in kept and self.values[~i].reads] if self.packs else []

    @cached_property
    def packs(self) -> bool:
        """Whether any value may be in few bits."""
        return any(v.packed for v in self.values)

    def measure(self, kept: Kept) -> tuple[int, float]:
        """The most bytes at any time of the backward, and what is spent on computing values again and on packing."""
        made = self.made(kept)
        cost = sum(self.values[i].cost for _, i in made) + sum(self.values[i].rounding for i in self.packed(kept))
        return max(self.levels(kept, made), default=0), cost

    @cached_property
    def floor(self) -> int:
        """A bound from below on the peak of any choice: at each time, what is read then or cannot be computed again."""
        change = [*self.base, 0]
        for v in self.values:
            for t in range(v.reads[-1] + 1) if v.fixed and v.reads else v.reads:
                change[t] += v.nbytes
        return max(change)

    @cached_property
    def is_chain(self) -> bool:
        """Whether each value is made of the one before alone, and the backward reads the last ones first."""
        firsts = [v.reads[0] if v.reads else -1 for v in self.values]
        return (
            all(v.operands == ((i - 1,) if i else ()) and v.reads for i, v in enumerate(self.values))
            and all(later <= earlier for earlier, later in pairwise(firsts))
            and all(v.reads[-1] <= w.reads[0] + 1 for w, v in pairwise(self.values))
        )
