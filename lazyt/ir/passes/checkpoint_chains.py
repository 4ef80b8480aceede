"""The best choice of what to keep on a chain: each value is made of the one before, the backward reads the last first.

A table over the last value kept has all pairs of kept bytes and cost of which neither is beaten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lazyt.ir.passes.checkpointing import Kept, Problem

# A table of a chain's choices is thinned out above so many entries a value, or pairs of values by entries.
FRONT, FRONTS, LEAST = 512, 4_000_000, 8


def best_on_chain(p: Problem, limit: int) -> Kept | None:
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
