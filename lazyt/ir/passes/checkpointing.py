"""Which saved values to keep and which to compute again in the backward: a choice over plain numbers.

The problem is a list of values in the order in which the forward makes them. Each has bytes, what it costs to compute
it from its operands, and the times of the backward that read it. What is kept takes memory until its last reader. What
is not is computed again when it is first read, from what is kept, with everything in between that is not kept; it then
takes memory until its last reader. Nothing is computed again twice.

`solve` finds a choice of least cost whose peak is at most a limit. On a chain (each value is made of the one before,
the backward reads them last to first) it is the best one: a table over the last value kept has all pairs of kept bytes
and cost of which neither is beaten. On other graphs several starts are improved one change at a time.
"""

from __future__ import annotations

import heapq
from functools import cached_property
from itertools import pairwise, product
from typing import TYPE_CHECKING

from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Kept = frozenset[int]

# So many values are kept at even distances, to begin with: each number is a start for the search.
STARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
# Up to so many free values are exchanged one for another.
FEW = 20
# Above so many values there are fewer starts, and so many of them, the best, are improved.
MANY, BEST = 100, 2
# A table of a chain's choices is thinned out above so many entries a value, or pairs of values by entries.
FRONT, FRONTS, LEAST = 512, 4_000_000, 8


@dataclass(frozen=True)
class Value:
    """A value of the forward. `operands` are earlier values; inputs of the program are always there."""

    nbytes: int
    cost: float
    operands: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()  # times of the backward, ascending
    fixed: bool = False  # it is kept whatever that costs: it cannot be computed again, or somebody holds it


@dataclass(frozen=True)
class Problem:
    """The values, and the bytes that the backward itself has at each of its times."""

    values: tuple[Value, ...]
    base: tuple[int, ...]

    @cached_property
    def free(self) -> tuple[int, ...]:
        """The values that there is a choice for."""
        return tuple(i for i, v in enumerate(self.values) if not v.fixed)

    @cached_property
    def all_kept(self) -> Kept:
        """The choice to keep everything."""
        return frozenset(range(len(self.values)))

    def cost(self, kept: Kept) -> float:
        """What is spent in the backward on computing values again."""
        return self.measure(kept)[1]

    def peak(self, kept: Kept) -> int:
        """The most bytes at any time of the backward."""
        return self.measure(kept)[0]

    def _made(self, kept: Kept) -> list[tuple[int, int]]:
        """(time, value) of what is computed again."""
        values, done = self.values, set(kept)
        out: list[tuple[int, int]] = []
        for t, i in self._readings:
            if i in done:
                continue
            todo = [i]
            while todo:
                j = todo[-1]
                missing = [x for x in values[j].operands if x not in done] if j not in done else []
                if missing:
                    todo.extend(missing)
                    continue
                todo.pop()
                if j not in done:
                    done.add(j)
                    out.append((t, j))
        return out

    @cached_property
    def _readings(self) -> list[tuple[int, int]]:
        """(time, value) of all that the backward reads, in order; of one time the latest value first."""
        return sorted(((t, i) for i, v in enumerate(self.values) for t in v.reads), key=lambda x: (x[0], -x[1]))

    def measure(self, kept: Kept) -> tuple[int, float]:
        """The most bytes at any time of the backward, and what is spent on computing values again."""
        values, n = self.values, len(self.base)
        made = self._made(kept)
        begin = {i: t for t, i in made}
        end = {i: v.reads[-1] for i, v in enumerate(values) if v.reads}
        for t, j in made:
            for x in values[j].operands:
                end[x] = max(end.get(x, -1), t)
        change = [0] * (n + 1)
        for i, last in end.items():
            if i in kept:
                change[0] += values[i].nbytes
            elif i in begin:
                change[begin[i]] += values[i].nbytes
            else:
                continue
            change[last + 1] -= values[i].nbytes
        # What is computed again only for others is there while they are made.
        for t, i in made:
            if i not in end:
                change[t] += values[i].nbytes
                change[t + 1] -= values[i].nbytes
        most = level = 0
        for b, c in zip(self.base, change, strict=False):
            level += c
            most = max(most, level + b)
        return most, sum(values[i].cost for _, i in made)

    @cached_property
    def is_chain(self) -> bool:
        """Whether each value is made of the one before alone, and the backward reads the last ones first."""
        firsts = [v.reads[0] if v.reads else -1 for v in self.values]
        return (
            all(v.operands == ((i - 1,) if i else ()) and v.reads for i, v in enumerate(self.values))
            and all(later <= earlier for earlier, later in pairwise(firsts))
            and all(v.reads[-1] <= w.reads[0] + 1 for w, v in pairwise(self.values))
        )


def solve(p: Problem, limit: int) -> Kept:
    """The values to keep so that the peak is at most `limit`; where none is so low, those of the lowest peak found."""
    if p.peak(p.all_kept) <= limit:
        return p.all_kept
    if p.is_chain and len(p.free) == len(p.values) and (best := _chain(p, limit)) is not None:
        return best

    def merit(kept: Kept) -> tuple[int, float, int]:
        peak, cost = p.measure(kept)
        return max(peak - limit, 0), cost, peak

    starts = sorted(_starts(p, limit), key=merit)
    return min((_improved(p, start, limit) for start in starts[: BEST if len(p.values) > MANY else None]), key=merit)


def _starts(p: Problem, limit: int) -> list[Kept]:
    """Choices that the search begins with."""
    must = frozenset(i for i, v in enumerate(p.values) if v.fixed)
    narrow = _narrow(p)
    out = {_cheapest(p, limit): None, must: None, must | frozenset(narrow): None}
    for count in STARTS if len(p.values) <= MANY else STARTS[::3]:
        step = max(len(narrow) // (count + 1), 1)
        out[must | frozenset(narrow[step::step][:count])] = None
    return [*out]


def _narrow(p: Problem) -> list[int]:
    """Values behind which the fewest bytes of others are read: what to keep if little is to be kept."""
    last = {}
    for i, v in enumerate(p.values):
        for x in v.operands:
            last[x] = i
    ends: dict[int, list[int]] = {}
    alive, best = 0, []
    for i, v in enumerate(p.values):
        for x in ends.pop(i, ()):
            alive -= p.values[x].nbytes
        if i in last:
            alive += v.nbytes
            ends.setdefault(last[i], []).append(i)
            best.append((alive, i))
    if not best:
        return []
    bound = sorted(b for b, _ in best)[len(best) // 4]
    return [i for b, i in best if b <= bound and not p.values[i].fixed]


def _cheapest(p: Problem, limit: int) -> Kept:
    """From all kept, what saves most for its cost is given up first, until the limit is met."""
    kept, cost, peak = p.all_kept, 0.0, p.peak(p.all_kept)
    heap = [(0.0, i) for i in p.free]
    stuck: list[int] = []
    while heap and peak > limit:
        _, i = heapq.heappop(heap)
        less = kept - {i}
        low, dear = p.measure(less)
        if low >= peak:
            stuck.append(i)
            continue
        score = (dear - cost) / (peak - low)
        # NOTE: a score only gets worse, mostly, so the first that is still the best is taken.
        if heap and score > heap[0][0]:
            heapq.heappush(heap, (max(score, 1e-30), i))
            continue
        kept, cost, peak = less, dear, low
        for j in stuck:
            heapq.heappush(heap, (1e-30, j))
        stuck.clear()
    return kept


def _improved(p: Problem, kept: Kept, limit: int) -> Kept:
    """Keep again what there is room for, the dearest first; below the limit first give up what is needed for that."""
    peak = p.peak(kept)
    if peak > limit:
        for i in sorted(kept & set(p.free), key=lambda i: -p.values[i].nbytes):
            low = p.peak(kept - {i})
            if low < peak:
                kept, peak = kept - {i}, low
            if peak <= limit:
                break
    cost = p.cost(kept)
    for i in sorted(set(p.free) - kept, key=lambda i: -p.values[i].cost):
        high, dear = p.measure(kept | {i})
        if dear <= cost and high <= max(limit, peak):
            kept, cost = kept | {i}, dear
    return _exchanged(p, kept, limit) if len(p.free) <= FEW else kept


def _exchanged(p: Problem, kept: Kept, limit: int) -> Kept:
    """One value more, one less, or one for another, as long as that is nearer to the limit, or costs less below it."""

    def merit(some: Kept) -> tuple[int, float]:
        peak, cost = p.measure(some)
        return max(peak - limit, 0), cost

    best = merit(kept)
    found = True
    while found:
        found = False
        ins: Sequence[int | None] = (None, *(i for i in p.free if i not in kept))
        outs: Sequence[int | None] = (None, *(i for i in p.free if i in kept))
        for i, j in product(ins, outs):
            other = (kept | ({i} if i is not None else set())) - ({j} if j is not None else set())
            if (now := merit(other)) < best:
                kept, best, found = other, now, True
                break
    return kept


def _chain(p: Problem, limit: int) -> Kept | None:
    """The best choice for a chain; None where there is none within the limit.

    Between two neighbours that are kept, i and j, everything is computed again when the backward comes to the value
    before j. What is kept up to i is there then; what is kept behind j is not any more.
    """
    n = len(p.values)
    room = max(min(FRONT, FRONTS // n**2), LEAST)
    # Entries: (bytes kept, cost, the entry before), for the last value kept; -1 is the input.
    fronts: dict[int, list[tuple[int, float, tuple[int, int]]]] = {-1: [(0, 0.0, (-2, 0))]}
    for j in range(n + 1):
        found: list[tuple[int, float, tuple[int, int]]] = []
        own = p.values[j].nbytes if j < n else 0
        for i, need, cost in _between(p, j):
            for number, (held, spent, _) in enumerate(fronts[i]):
                if held + need <= limit:
                    found.append((held + own, spent + cost, (i, number)))
        fronts[j] = _best(found, room)
    if not fronts[n]:
        return None
    _, _, (at, number) = min(fronts[n], key=lambda e: (e[1], e[0]))
    kept = set()
    while at >= 0:
        kept.add(at)
        at, number = fronts[at][number][2]
    return frozenset(kept)


def _best(entries: Iterable[tuple[int, float, tuple[int, int]]], room: int) -> list[tuple[int, float, tuple[int, int]]]:
    """Those that no other beats in bytes and cost; evenly thinned out to about so many."""
    out: list[tuple[int, float, tuple[int, int]]] = []
    for e in sorted(entries, key=lambda e: (e[0], e[1])):
        if not out or e[1] < out[-1][1]:
            out.append(e)
    return out if len(out) <= room else [*out[:: -(-len(out) // room)], out[-1]]


def _between(p: Problem, j: int) -> Iterator[tuple[int, int, float]]:
    """For each i before j, downwards: the peak of the backward over the values between, without what is kept up to i,
    and what it costs to compute these again. j is kept, or is the end of the chain.

    The times are those from when the backward is done with what is behind j, to when it is done with what is behind i.
    All in between is computed when the value before j is read.
    """
    values, n = p.values, len(p.values)
    first = values[j].reads[0] if j < n else 0
    last_of_j, own = (values[j].reads[-1], values[j].nbytes) if j < n else (-1, 0)

    def there(begin: int, end: int, inner: int) -> int:
        """The most bytes from `begin` up to before `end`; `inner`: the first value of those in between."""
        most = 0
        for t in range(begin, end):
            level = p.base[t] + (own if t <= last_of_j else 0)
            x = inner
            # NOTE: the first reader of a later value is not behind that of an earlier one, its last at most one behind.
            while x < j and values[x].reads[0] >= t - 1:
                level += values[x].nbytes if values[x].reads[-1] >= t else 0
                x += 1
            most = max(most, level)
        return most

    start = values[j - 1].reads[0] if j else 0
    before = there(first, start, j)  # nothing in between is there yet
    most, done, cost = 0, start, 0.0
    for i in range(j - 1, -2, -1):
        end = (values[i].reads[0] if i >= 0 else len(p.base) - 1) + 1
        if i < j - 1:
            most += values[i + 1].nbytes
            cost += values[i + 1].cost
        most = max(most, there(max(done, start), end, i + 1))
        done = max(done, end)
        yield i, max(before, most), cost
