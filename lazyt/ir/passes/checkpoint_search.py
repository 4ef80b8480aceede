"""The choice of what to keep and what to compute again: of least cost, with a peak of at most a limit.

On a chain it is the best one (`checkpoint_chains.py`). On other graphs several starts are improved one change at a
time: a value is given up for what it saves, or kept again where there is room, the dearest first. The number of choices
that are measured grows with the number of values, not with its square.
"""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np

from lazyt.ir.passes.checkpoint_chains import best_on_chain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lazyt.ir.passes.checkpointing import Kept, Problem, Value

# So many values are kept at even distances, to begin with: each number is a start for the search.
STARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
# A narrow place is the narrowest among so many values at each side; of these places every so manieth is kept.
REACH = 8
EACH = (1, 2, 4)
# Up to so many free values are exchanged for one another.
FEW = 20
# Above so many values there are fewer starts.
MANY = 100
# Of the starts for many values, so many are improved.
BEST = 2
# Values are given up for these parts of the limit: what is too little, or too much, is put right one by one.
PARTS = (1.0, 1.05, 1.2)
# The least limit that can be met is looked for in so many steps.
HALVINGS = 4
# After so many rounds in turn that lower nothing, giving up values ends.
FAILURES = 50
# So often all values are looked through for one that lowers the peak.
PASSES = 3


def solve(p: Problem, limit: int) -> Kept:
    """The values to keep so that the peak is at most `limit`; where none is so low, those of the lowest peak found."""
    if not p.free or p.peak(p.all_kept) <= limit:
        return p.all_kept
    if not p.packs and p.is_chain and len(p.free) == len(p.values) and (best := best_on_chain(p, limit)) is not None:
        return best

    def merit(kept: Kept) -> tuple[int, float, int]:
        peak, cost = p.measure(kept)
        return max(peak - limit, 0), cost, peak

    some = len(p.values) <= MANY
    starts = [start if some else _lowered(p, start, limit) for start in _starts(p, limit)]
    if p.packs:
        # What computing again alone can do: where that suffices it is mostly the better choice.
        starts.append(_lowered(p, solve(p.without_packing, limit), limit))
    starts = starts if some else sorted(starts, key=merit)[:BEST]
    found = min((_improved(p, start, limit) for start in starts), key=merit)
    if p.peak(found) > limit:
        starts = [*_lower(p, limit)] if some else [min(_lower(p, limit), key=merit)]
        found = min((found, *(_improved(p, start, limit) for start in starts)), key=merit)
    return _exchanged(p, found, limit, 2) if len(p.free) <= FEW else found


def _starts(p: Problem, limit: int) -> list[Kept]:
    """Choices that the search begins with."""
    must = frozenset(~i if v.once else i for i, v in enumerate(p.values) if v.fixed or v.once)
    few = frozenset(~i if v.packed else i for i, v in enumerate(p.values))
    widths = _widths(p)
    out = {_relieved(p, int(limit * part)): None for part in PARTS}
    places = _narrow(p, widths)
    for each in EACH:
        out[must.union(places[each - 1 :: each])] = None
    if p.packs:
        out |= {few: None, must | {~i for i, v in enumerate(p.values) if v.packed}: None}
    if len(p.values) <= MANY:
        out[must] = None
        narrow = _narrowest(p, widths)
        for count in STARTS:
            step = max(len(narrow) // (count + 1), 1)
            out[must | frozenset(narrow[step::step][:count])] = None
    return [*out]


def _widths(p: Problem) -> list[int]:
    """The bytes of the forward's values that are read behind each value, with itself; 0 where nothing reads it."""
    last = {x: i for i, v in enumerate(p.values) for x in v.operands}
    ends: dict[int, int] = {}
    alive, widths = 0, []
    for i, v in enumerate(p.values):
        alive -= ends.pop(i, 0)
        if i in last:
            alive += v.nbytes
            ends[last[i]] = ends.get(last[i], 0) + v.nbytes
        widths.append(alive if i in last else 0)
    return widths


def _narrow(p: Problem, widths: list[int]) -> list[int]:
    """Values at the narrowest places of the forward: to keep these parts the backward into segments."""
    out: list[int] = []
    for i, width in enumerate(widths):
        near = [w for w in widths[max(i - REACH, 0) : i + REACH + 1] if w]
        if width and width == min(near) and not p.values[i].fixed and (not out or i - out[-1] > REACH):
            out.append(i)
    return out


def _narrowest(p: Problem, widths: list[int]) -> list[int]:
    """The quarter of all values behind which the fewest bytes are read: what to keep if little is to be kept."""
    some = sorted(w for w in widths if w)
    if not some:
        return []
    bound = some[len(some) // 4]
    return [i for i, w in enumerate(widths) if w and w <= bound and not p.values[i].fixed]


def _relieved(p: Problem, limit: int) -> Kept:
    """From all kept, what saves most for its cost is given up first, until the limit is met.

    What counts is the area above the limit. Each round gives up enough for about half of what is left of it, so there
    are few rounds, however many values there are.
    """
    kept, free = p.all_kept, set(p.free)
    levels = p.levels(kept, ())
    excess, share, failures = _above(levels, limit), 1.0, 0
    while excess and failures < FAILURES:
        needed, overs = _needed(p, kept), np.maximum(np.array(levels, np.int64) - limit, 0)
        areas: dict[int, list[int]] = {}  # of a size: what a value of that size is of the area up to each time
        gains = {}
        prices: dict[int, float] = {}
        packed: set[int] = set()
        for i in free & needed.keys():
            v = p.values[i]
            ways = [] if v.once else [(v.nbytes, v.cost)]
            if v.packed:
                ways.append((v.nbytes - v.packed, v.rounding))
            for size, price in ways:
                if size not in areas:
                    areas[size] = [0, *np.minimum(overs, size).cumsum().tolist()]
                gain = areas[size][needed[i]]
                if gain and (i not in prices or price / gain < prices[i]):
                    gains[i], prices[i] = gain, price / gain
                    (packed.discard if size == v.nbytes else packed.add)(i)
        order = sorted(gains, key=lambda i: (prices[i], -i))
        if not order:
            break
        chosen, relief = [], 0
        for i in order:
            chosen.append(i)
            relief += gains[i]
            if 4 * relief >= share * excess:
                break
        less = kept.difference(chosen).union(~i for i in chosen if i in packed)
        levels_then = p.levels(less, p.made(less))
        above = _above(levels_then, limit)
        if above < excess:
            kept, levels, excess, share = less, levels_then, above, 1.0
            free.difference_update(chosen)
        elif len(chosen) == 1:
            free.remove(chosen[0])
        else:
            share /= 4
        failures = 0 if above < excess else failures + 1
    return kept


def _lower(p: Problem, limit: int) -> Iterator[Kept]:
    """Choices for limits between one that is not met and the peak when everything is kept, ever nearer to the least."""
    low, high = max(limit, p.floor), p.peak(p.all_kept)
    for _ in range(HALVINGS):
        middle = (low + high) // 2
        kept = _relieved(p, middle)
        yield kept
        if p.peak(kept) <= middle:
            high = middle
        else:
            low = middle


def _above(levels: Iterable[int], limit: int) -> int:
    return sum([level - limit for level in levels if level > limit])


def _needed(p: Problem, kept: Kept) -> dict[int, int]:
    """When the backward needs each of the kept values first: to read it, or to compute another from it."""
    needed = {i: p.values[i].reads[0] for i in kept if p.values[i].reads}
    for t, j in p.made(kept):
        for x in p.values[j].operands:
            if x in kept:
                needed[x] = min(needed.get(x, t), t)
    return needed


def _improved(p: Problem, kept: Kept, limit: int) -> Kept:
    """Keep again what there is room for, the dearest first; below the limit first give up what is needed for that."""
    kept = _lowered(p, kept, limit)
    kept = min(
        (_refilled(p, kept, limit, by) for by in (_dear, _dense)),
        key=lambda k: (max(p.peak(k) - limit, 0), p.cost(k)),
    )
    return _exchanged(p, kept, limit) if len(p.free) <= FEW else kept


def _lowered(p: Problem, kept: Kept, limit: int) -> Kept:
    """Give up what lowers the peak, or what is above the limit at one of several peaks, the largest first."""

    def height(some: Kept) -> tuple[int, int]:
        levels = p.levels(some, p.made(some))
        return max(levels, default=0), _above(levels, limit)

    peak = height(kept)
    for _ in range(PASSES):
        before = peak
        given = {i if i >= 0 else ~i for i in kept}.intersection(p.free)
        given.update(i for i in p.free if p.values[i].packed)
        for i in sorted(given, key=lambda i: -p.values[i].nbytes):
            if peak[0] <= limit:
                break
            for other in _less(p, kept, i):
                low = height(other)
                if low < peak:
                    kept, peak = other, low
        if peak == before:
            break
    return kept


def _dear(v: Value) -> float:
    return v.cost


def _dense(v: Value) -> float:
    return v.cost / max(v.nbytes, 1)


def _refilled(p: Problem, kept: Kept, limit: int, by: Callable[[Value], float]) -> Kept:
    """Keep again what there is room for, one value after another, the highest by a measure first."""
    peak, cost = p.measure(kept)
    room = max(limit, peak)
    for i in sorted(set(p.free) - kept, key=lambda i: -by(p.values[i])):
        for more in ((kept | {i}) - {~i}, kept | {~i})[: 2 if p.values[i].packed and ~i not in kept else 1]:
            high, dear = p.measure(more)
            if dear <= cost and high <= room:
                kept, cost, room = more, dear, max(limit, high)
                break
    return kept


def _less(p: Problem, kept: Kept, i: int) -> list[Kept]:
    """Choices that take less for a value."""
    v = p.values[i]
    if i not in kept and ~i not in kept:  # computed again, with what that takes
        return [kept | {~i}]
    packed = [(kept - {i}) | {~i}] if i in kept and v.packed else []
    return packed if v.once else [*packed, kept - {i, ~i}]


def _exchanged(p: Problem, kept: Kept, limit: int, most: int = 1) -> Kept:
    """Up to `most` values more and as many less, as long as that is nearer to the limit, or costs less below it."""

    def merit(some: Kept) -> tuple[int, float]:
        peak, cost = p.measure(some)
        return max(peak - limit, 0), cost

    best = merit(kept)
    found = True
    while found:
        found = False
        items = [*p.free, *(~i for i in p.free if p.values[i].packed)]
        items = [i for i in items if i < 0 or not p.values[i].once or ~i not in kept]
        ins, outs = (_few([i for i in items if (i in kept) is there], most) for there in (False, True))
        for new, old in product(ins, outs):
            other = ((kept | new) - old).difference(~i for i in new)
            if any(p.values[i].once and not {i, ~i} & other for i in p.free):
                continue
            if (now := merit(other)) < best:
                kept, best, found = other, now, True
                break
    return kept


def _few(values: Sequence[int], most: int) -> list[Kept]:
    """Choices of up to `most` of the values, smaller ones first."""
    return [frozenset(some) for n in range(most + 1) for some in combinations(values, n)]
