"""The order of launches under a memory budget: one with a low peak, in place of the one with the fewest regions.

Two orders are compared by what is live at each launch: that of the levels, and the recorded one. In both a launch comes
as late as something asks for it, and one that frees at least what it takes comes as soon as it can: the update of a
weight right behind its gradient. Checks of indices come first where that takes little: an update overwrites its weight
only behind all that may fail. A copy that is made for the backward stands next to its first reader in the recorded
order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir.passes.call_operands import bytes_hint

# Of all bytes, the share that what checks indices may write to come first.
FIRST = 16

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence, Set as AbstractSet
    from typing import Protocol

    from lazyt.ir.graph import Node

    class Launch(Protocol):
        """What is asked of a launch here: the stored nodes that it reads and writes; `checks`, where it may fail."""

        @property
        def reads(self) -> AbstractSet[Node]: ...

        @property
        def writes(self) -> AbstractSet[Node]: ...


def order_for_memory(
    launches: Sequence[Launch], by_levels: Sequence[int], outputs: Collection[Node]
) -> tuple[list[int], int]:  # fmt: skip
    """The numbers of the launches in an order of low peak, and that peak: bytes of temporaries, by the hints."""
    memory = _Memory(launches, outputs)
    recorded = sorted(range(len(launches)), key=lambda i: (max(n.serial for n in launches[i].writes), i))
    orders = [memory.placed(by_levels), memory.placed(recorded)]
    peaks = [memory.peak(order) for order in orders]
    best = min(range(len(orders)), key=peaks.__getitem__)
    return orders[best], peaks[best]


def may_fail(c: Launch) -> bool:
    """Whether a launch checks indices, itself or in its epilogue."""
    return bool(getattr(c, "checks", None) or getattr(getattr(c, "epilogue", None), "checks", None))


class _Memory:
    """What the launches read and write, and how long that lives."""

    def __init__(self, launches: Sequence[Launch], outputs: Collection[Node]) -> None:
        self.launches = launches
        self.touched = [[n for n in c.reads | c.writes if n.op != "input" and n not in outputs] for c in launches]
        self.sizes = {n: bytes_hint(n) for touched in self.touched for n in touched}
        self.uses: dict[Node, int] = {}
        for touched in self.touched:
            for n in touched:
                self.uses[n] = self.uses.get(n, 0) + 1
        # What must have run before: all that writes what a launch reads, or writes too.
        writers: dict[Node, list[int]] = {}
        self.before: list[list[int]] = []
        self.behind: list[list[int]] = [[] for _ in launches]
        for i, c in enumerate(launches):
            found = dict.fromkeys(j for n in (*c.reads, *c.writes) for j in writers.get(n, ()))
            self.before.append([*found])
            for j in found:
                self.behind[j].append(i)
            for n in c.writes:
                writers.setdefault(n, []).append(i)

    def _checks(self) -> list[int]:
        """The launches that check indices and are made of little."""
        most = sum(self.sizes.values()) // FIRST
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

    def placed(self, wanted: Sequence[int]) -> list[int]:
        """The launches in the order that is wanted, each behind what it needs, what frees memory as soon as it can."""
        order: list[int] = []
        done = [False] * len(self.before)
        left = [len(xs) for xs in self.before]
        uses = dict(self.uses)
        live: set[Node] = set()
        ready = {i for i, n in enumerate(left) if not n}

        def place(i: int) -> None:
            done[i] = True
            ready.discard(i)
            order.append(i)
            for n in self.touched[i]:
                uses[n] -= 1
                live.add(n)
                if not uses[n]:
                    live.discard(n)
            for j in self.behind[i]:
                left[j] -= 1
                if not left[j]:
                    ready.add(j)

        def grows(i: int) -> bool:
            """Whether memory is larger behind a launch than before it, or no smaller and it frees nothing."""
            taken = sum(self.sizes[n] for n in self.touched[i] if n not in live and uses[n] > 1)
            freed = sum(self.sizes[n] for n in self.touched[i] if n in live and uses[n] == 1)
            return taken > freed or not freed

        for i in [*self._checks(), *wanted]:
            todo = [] if done[i] else [i]
            while todo:
                missing = [j for j in self.before[todo[-1]] if not done[j]]
                if missing:
                    todo.extend(reversed(missing))
                    continue
                last = todo.pop()
                if done[last]:
                    continue
                place(last)
                while some := [j for j in sorted(ready) if not grows(j)]:
                    for j in some:
                        if not grows(j):
                            place(j)
        return order

    def peak(self, order: Sequence[int]) -> int:
        """The most bytes of temporaries that are live at a launch."""
        uses = dict(self.uses)
        live: set[Node] = set()
        level = most = 0
        for i in order:
            for n in self.touched[i]:
                if n not in live:
                    live.add(n)
                    level += self.sizes[n]
            most = max(most, level)
            for n in self.touched[i]:
                uses[n] -= 1
                if not uses[n]:
                    level -= self.sizes[n]
        return most
