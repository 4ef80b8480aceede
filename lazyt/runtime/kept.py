"""How much is kept of what can be made again, plans and the steps of tries, before all of it is dropped."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from time import perf_counter, process_time

# Plans and steps are dropped once they have about so many bytes; a node of a graph has about so many, with what is made
# of it, and a step of a trie so many, with what a sync remembers there.
MAX_PLAN_BYTES = 128 << 20
NODE_BYTES, STEP_BYTES = 4096, 3072
# So many plans of the size of the largest are kept, and half as many traces of the length of the longest.
LARGE = 6
# So many drops are remembered: who works in turn with as many bounds of plans meets none that the last drop took.
DROPS = 8
# The bound is doubled where more than this share of the time goes by with making again what was dropped.
SHARE = 0.1


class Budget:
    """Bytes of the plans and steps that are kept, and the bound on them.

    A process that goes on working with more than the bound would make all of it again after each drop: where that takes
    much of its time, the bound is doubled. How much was made again says nothing: a process that goes on meeting new
    programs, and old ones among them, has a set of them that grows for ever, and what is made again may still be rare.
    """

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.drops = 0
        self.made = 0
        self.again = 0.0  # seconds, for what had been dropped
        self._kept: set[int] = set()
        self._dropped: deque[set[int]] = deque(maxlen=DROPS)
        self._since = self._now()

    @staticmethod
    def _now() -> tuple[float, float]:
        return perf_counter(), process_time()

    def elapsed(self) -> float:
        """Seconds since the last drop in which the process worked, however many threads it has."""
        return min(now - then for now, then in zip(self._now(), self._since, strict=True))

    def add_plan(self, key: Hashable, nodes: int, seconds: float) -> None:
        """A plan was made; `key` says of what."""
        size, name = nodes * NODE_BYTES, hash(key)
        self.made += size
        # NOTE: a forward and a backward, each as it is at first and from then on, are no reason to make them again.
        self.bound = max(self.bound, LARGE * size)
        if any(name in some for some in self._dropped):
            self.again += seconds
        self._kept.add(name)

    def add_steps(self, new: int, length: int) -> None:
        """A trace of this length was computed; so many steps were new in its trie."""
        self.made += new * STEP_BYTES
        self.bound = max(self.bound, LARGE // 2 * length * STEP_BYTES)

    def is_spent(self) -> bool:
        """Whether plans have to be dropped."""
        return self.made > self.bound

    def drop(self) -> None:
        """All is dropped."""
        if self.is_spent() and self.again > SHARE * self.elapsed():
            self.bound *= 2
        self.drops += 1
        self.made, self.again = 0, 0.0
        self._dropped.append(self._kept)
        self._kept = set()
        self._since = self._now()
