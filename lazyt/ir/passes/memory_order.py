"""The order of launches: one with a low peak, where the one with the fewest regions keeps much more in memory.

Orders are compared by what is live at each launch: that of the levels as it is, and two in which a launch comes as late
as something asks for it, but one that frees at least what it takes as soon as it can: the update of a weight right
behind its gradient. They begin with the levels, and with the recorded order, in which a copy that is made for the
backward stands next to its first reader. Checks of indices come first where that takes little, and an update waits for
all that may fail and for all that reads its weight: only then it overwrites the weight.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from lazyt.ir.attention import is_attention
from lazyt.ir.passes.call_operands import bytes_hint, is_delayed_copy, is_move, is_on_host

# Of all bytes, the share that what checks indices may write to come first.
FIRST = 16
# Programs with temporaries of fewer bytes run in few regions, whatever they keep.
LEAST = 1 << 20
# The same for a peak that another order would not lower by such a share.
WORTH = 32
# Launches that free little do not hurry: what all of them free is at most such a share of the peak.
LITTLE = 32
# Launches that write more than this part of the peak are regions of their own: values of one region live at one time.
MEANT = 64

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence, Set as AbstractSet
    from typing import Protocol

    from lazyt.ir.graph import Node

    class Launch(Protocol):
        """What is asked of a launch here: the stored nodes that it reads and writes; `checks`, where it may fail."""

        @property
        def reads(self) -> AbstractSet[Node]: ...

        @property
        def writes(self) -> AbstractSet[Node]: ...


def order_for_memory(
    launches: Sequence[Launch], by_levels: Sequence[Sequence[int]], outputs: Collection[Node], asked: bool
) -> tuple[list[int], int] | None:  # fmt: skip
    """The numbers of the launches in an order of low peak, and how much a launch writes that is a region of its own.

    by_levels: the regions by levels. None where they serve: without a budget (`asked`), if no order is much better.
    """
    memory = _Memory(launches, outputs)
    if not asked and memory.total < LEAST:
        return None
    usual = memory.peak(by_levels)
    little = 0 if asked else memory.little(usual // LITTLE)

    def recorded_at(i: int) -> tuple[bool, int, int]:
        # What overwrites an input comes last, behind checks of labels for one, unless much waits for it.
        last = bool(memory.overwrites[i]) and all(memory.sizes[n] <= little for n in memory.touched[i])
        return last, max(n.serial for n in launches[i].writes), i

    recorded = sorted(range(len(launches)), key=recorded_at)
    orders = [memory.placed([i for region in by_levels for i in region], little), memory.placed(recorded, little)]
    peaks = [memory.peak([i] for i in order) for order in orders]
    best = min(range(len(orders)), key=peaks.__getitem__)
    if not asked and peaks[best] > usual - usual // WORTH:
        return None
    return orders[best], peaks[best] // MEANT


def may_fail(c: Launch) -> bool:
    """Whether a launch checks indices, itself or in its epilogue."""
    return bool(getattr(c, "checks", None) or getattr(getattr(c, "epilogue", None), "checks", None))


def _is_call(c: Launch) -> bool:
    """Whether a launch may be a call from Python, which may fail."""
    node = getattr(c, "node", None)
    if node is None or node.op != "opaque":
        return False
    return not (is_attention(node) or is_delayed_copy(node) or is_move(node))


class _Memory:
    """What the launches read and write, and how long that lives."""

    def __init__(self, launches: Sequence[Launch], outputs: Collection[Node]) -> None:
        self.launches = launches
        self.touched = [
            [n for n in c.reads | c.writes if n.op != "input" and n not in outputs and not is_on_host(n)]
            for c in launches
        ]
        self.sizes = {n: bytes_hint(n) for touched in self.touched for n in touched}
        self.total = sum(self.sizes.values())
        self.users: dict[Node, list[int]] = {}
        for i, touched in enumerate(self.touched):
            for n in touched:
                self.users.setdefault(n, []).append(i)
        # What must have run before: all that writes what a launch reads, or writes too. Of those that write one value
        # the last one says it, as each is behind those before it: thousands may write the parts of a concatenation.
        writers: dict[Node, list[int]] = {}
        self.before: list[list[int]] = []
        self.behind: list[list[int]] = [[] for _ in launches]
        self.earlier: list[list[tuple[list[int], int]]] = []  # who writes the same, and how many do before the launch
        for i, c in enumerate(launches):
            known = [writers[n] for n in (*c.reads, *c.writes) if n in writers]
            self.earlier.append([(some, len(some)) for some in known])
            self.before.append([*dict.fromkeys(some[-1] for some in known)])
            for j in self.before[i]:
                self.behind[j].append(i)
            for n in c.writes:
                writers.setdefault(n, []).append(i)
        # The inputs that a launch may overwrite, and who reads them; what must be over by then besides.
        self.overwrites = [_overwritten(c, outputs) for c in launches]
        self.readers: dict[Node, list[int]] = {n: [] for found in self.overwrites for n in found}
        for i, c in enumerate(launches):
            for n in c.reads:
                if n in self.readers:
                    self.readers[n].append(i)
        self.fallible = [i for i, c in enumerate(launches) if may_fail(c) or _is_call(c)]

    def little(self, bytes_: int) -> int:
        """The size of which all values, and of all smaller ones, take at most so many bytes together."""
        level = found = 0
        for size in sorted(self.sizes.values()):
            level += size
            if level > bytes_:
                break
            found = size
        return found

    def _checks(self) -> list[int]:
        """The launches that check indices and are made of little."""
        most = self.total // FIRST
        out: list[int] = []
        for i, c in enumerate(self.launches):
            if not may_fail(c):
                continue
            needed = {i}
            todo = [i]
            while todo:
                new = [j for j in self.before[todo.pop()] if j not in needed]
                needed.update(new)
                todo.extend(new)
            written = {n for j in needed for n in self.launches[j].writes}
            if sum(self.sizes.get(n, 0) for n in written) <= most:
                out.append(i)
        return out

    def placed(self, wanted: Sequence[int], little: int) -> list[int]:
        """The launches in the order that is wanted, each behind what it needs, what frees memory as soon as it can.

        What frees no more than `little` has its place.
        """
        state = _State(self, little)
        for i in [*self._checks(), *wanted]:
            todo = [] if state.done[i] else [i]
            while todo:
                missing = state.missing(todo[-1])
                if missing:
                    todo.extend(reversed(missing))
                    continue
                last = todo.pop()
                if not state.done[last]:
                    state.place(last)
                    state.hurry()
        return state.order

    def peak(self, regions: Iterable[Sequence[int]]) -> int:
        """The most bytes of temporaries that are live in a region."""
        uses = {n: len(users) for n, users in self.users.items()}
        live: set[Node] = set()
        level = most = 0
        for region in regions:
            for i in region:
                for n in self.touched[i]:
                    if n not in live:
                        live.add(n)
                        level += self.sizes[n]
            most = max(most, level)
            for i in region:
                for n in self.touched[i]:
                    uses[n] -= 1
                    if not uses[n]:
                        level -= self.sizes[n]
        return most


class _State:
    """The launches that are placed so far, and what is live behind them."""

    def __init__(self, memory: _Memory, little: int) -> None:
        self.memory, self.little = memory, little
        self.order: list[int] = []
        self.done = [False] * len(memory.before)
        self.begin: dict[int, int] = {}  # how many of the writers of a value are placed: of the list with this id
        self.left = [len(xs) for xs in memory.before]
        self.uses = {n: len(users) for n, users in memory.users.items()}
        self.reads = {n: len(readers) for n, readers in memory.readers.items()}
        self.fallible = set(memory.fallible)
        self.live: set[Node] = set()
        # NOTE: launches that may have come to free more than they take: each is looked at when something has changed.
        self.looked_at = [i for i, n in enumerate(self.left) if not n]

    def missing(self, i: int) -> list[int]:
        """What must have run before a launch and is not placed."""
        done, begin = self.done, self.begin
        found: dict[int, None] = {}
        for writers, count in self.memory.earlier[i]:
            k = begin.get(id(writers), 0)
            while k < count and done[writers[k]]:
                k += 1
            begin[id(writers)] = k
            found |= dict.fromkeys(j for j in writers[k:count] if not done[j])
        return [*found]

    def place(self, i: int) -> None:
        """Append a launch."""
        memory = self.memory
        self.done[i] = True
        self.order.append(i)
        for n in memory.touched[i]:
            self.uses[n] -= 1
            self.live.add(n)
            if self.uses[n] == 1:
                self._look(memory.users[n])
            elif not self.uses[n]:
                self.live.discard(n)
        for j in memory.behind[i]:
            self.left[j] -= 1
            if not self.left[j]:
                heappush(self.looked_at, j)
        for n in self.memory.launches[i].reads:
            if n in self.reads:
                self.reads[n] -= 1
                if self.reads[n] == 1:
                    self._look(memory.readers[n])
        if i in self.fallible:
            self.fallible.discard(i)
            if not self.fallible:
                self._look(j for j, found in enumerate(memory.overwrites) if found)

    def _look(self, numbers: Iterable[int]) -> None:
        for j in numbers:
            if not self.done[j] and not self.left[j]:
                heappush(self.looked_at, j)

    def hurry(self) -> None:
        """Append what frees at least what it takes."""
        while self.looked_at:
            i = heappop(self.looked_at)
            if not self.done[i] and not self._waits(i) and not self._grows(i):
                self.place(i)

    def _waits(self, i: int) -> bool:
        """Whether a launch could not overwrite an input yet that it will later."""
        found = self.memory.overwrites[i]
        return bool(found) and (bool(self.fallible - {i}) or any(self.reads[n] > 1 for n in found))

    def _grows(self, i: int) -> bool:
        """Whether memory is larger behind a launch than before it, or no smaller and it frees nothing."""
        sizes, uses, live = self.memory.sizes, self.uses, self.live
        taken = freed = most = 0
        for n in self.memory.touched[i]:
            if n not in live:
                taken += sizes[n] if uses[n] > 1 else 0
            elif uses[n] == 1:
                freed += sizes[n]
                most = max(most, sizes[n])
        return taken > freed or not freed or most <= self.little


def _overwritten(c: Launch, outputs: Collection[Node]) -> list[Node]:
    """The inputs whose memory the results of a launch may take."""
    made = {(n.dtype, bytes_hint(n)) for n in c.writes if n in outputs}
    return [n for n in c.reads if n.op == "input" and (n.dtype, bytes_hint(n)) in made] if made else []
