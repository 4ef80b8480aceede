"""Chains of launches over the same rows, run in tiles of rows and launches: time skewing, at binding.

    launch 1 over all rows; launch 2 over all rows; ...    -->    for each tile: launch 1, 2, ... of its rows, less with
                                                                  each; then for each gap between tiles the same, more
                                                                  with each

Twenty steps of a stencil over an array larger than the caches are twenty passes over memory. A chain reads and writes
it about twice: what a launch reads is in the cache, because the one before has just written it there. The kernels are
as they were, and compute the same rows, so the bits are the same.

Launch t of a tile leaves out `left` and `right` rows at its sides. They are the least such that launches that touch the
same memory, one of them writing, keep their order. If the addresses of launch t at row i and of launch s before it at
rows j meet only for i - below <= j <= i + above, then left_t >= left_s + below and right_t >= right_s + above, and no
two gaps meet where a tile is as wide as both sides together. Addresses are intervals of bytes a row, where the arena
puts them, and results where they may take an input's place: so reuse of memory is found whatever it comes from. What
is not of that form ends a chain.

Tiles are made for the addresses at binding. Where slices begin may differ in each run, so a check, once a run, compares
the addresses that move; if they are others, the launches run as they are.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from lazyt.backends.cpu.caches import cache_sizes
from lazyt.backends.cpu.codegen.emit_stores import STREAMED
from lazyt.backends.cpu.engine import compile_module
from lazyt.backends.cpu.time_tiles_ir import FIELDS, text
from lazyt.ir import graph as g, kernel as k
from lazyt.ir.passes.kernelize import KernelCall
from lazyt.ir.passes.split_reduction import whole
from lazyt.ir.records import dataclass
from lazyt.ir.symbolic import uses_offset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.backends.cpu.engine import Module
    from lazyt.backends.cpu.kernel_rows import KernelRows
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import Launch

# A chain is this long at most: comparing launches takes their number squared.
LONGEST = 32
# So many launches, one after the other, may share no memory with those before (steps of several fields).
APART = 4
# Passes over memory that a chain must save, of those that its launches take: a part.
SAVES = 0.35
# Of chains that save about as much as the best, the longest: fewer barriers.
ABOUT = 1.1
# A pass over the last cache, which cores share, beside one over the second.
FAR = 2
# Of a cache, what a tile may take.
SHARE = 0.75
# The end of an input, whose size is not asked for.
ANYWHERE = 1 << 62


class Span(NamedTuple):
    """The bytes that an access touches: of row i, [low + i * step, high + i * step) of a space."""

    space: int  # the arena, or a base
    buffer: tuple[int, int]  # where the buffer lies there
    low: int
    high: int
    step: int  # 0: the whole buffer, at every row
    writes: bool


@dataclass(frozen=True)
class Rows:
    """A launch as rows: how many, units of parallel work in each, and what they touch."""

    call: KernelCall
    count: int
    units: int
    spans: tuple[Span, ...]
    memory: dict[tuple[int, int], tuple[int, bool]]  # bytes of the buffers that it touches, and whether it writes them

    @property
    def passes(self) -> int:
        """Bytes that it moves where none is in a cache: what it writes is read first, or written past them."""
        stored = sum(size for size, writes in self.memory.values() if writes)
        return sum(size for size, _ in self.memory.values()) + (0 if stored >= STREAMED else stored)


@dataclass(frozen=True)
class Chain:
    """Launches that run in tiles: the rows of a tile, and what each launch leaves out at both sides."""

    rows: tuple[Rows, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    width: int

    @property
    def tiles(self) -> int:
        return -(-max(r.count for r in self.rows) // self.width)


def eligible(c: Launch) -> bool:
    """Whether a launch is a map that checks nothing: its units may run in any order."""
    return isinstance(c, KernelCall) and not c.kernel.rows and len(c.kernel.stages) == 1 and not c.checks


class Chains:
    """Finds the chains of a binding."""

    def __init__(self, binding: KernelRows) -> None:
        self.b = binding
        # Results that may take the memory of inputs lie, for all that is known, where those do.
        self.donors: dict[Node, list[int]] = {}
        for d in binding.exe.donations:
            self.donors.setdefault(d.output, []).append(d.donor)

    def find(self, calls: Sequence[KernelCall], threads: int) -> list[Chain]:
        """The chains among launches in order, each of neighbours; all else runs as it is."""
        rows = [self._rows(c) for c in calls]
        found: list[Chain] = []
        at = length = 0
        while at < len(rows):
            chain = self._of(rows[at : at + length], threads)
            if chain is None:
                best = self._best(rows, at, threads)
                if best is None:
                    at += 1
                    continue
                # Chains of about the same length, rather than long ones and a rest.
                rest = len(rows) - at
                length = -(-rest // -(-rest // len(best.rows)))
                chain = self._of(rows[at : at + length], threads) or best
            found.append(chain)
            at += len(chain.rows)
        return found

    def _best(self, rows: Sequence[Rows | None], at: int, threads: int) -> Chain | None:
        """The chain from a launch on that saves most, of about equal ones the longest."""
        lefts: list[int] = []
        rights: list[int] = []
        tiled: list[tuple[Chain, float]] = []
        touched: set[tuple[int, int]] = set()
        apart = 0
        for n in range(1, min(LONGEST, len(rows) - at) + 1):
            own = rows[at : at + n]
            last = own[-1]
            if last is None:
                break
            apart = 0 if touched & last.memory.keys() else apart + 1
            touched |= last.memory.keys()
            if apart > APART or not self._extend(own, lefts, rights):
                break
            if (found := self._tiled(own, lefts, rights, threads)) is not None:
                tiled.append(found)
        least = min((cost for _, cost in tiled), default=1 - SAVES)
        return None if least >= 1 - SAVES else [chain for chain, cost in tiled if cost <= ABOUT * least][-1]

    def _of(self, rows: Sequence[Rows | None], threads: int) -> Chain | None:
        """All these launches as one chain."""
        lefts: list[int] = []
        rights: list[int] = []
        fits = all(self._extend(rows[: n + 1], lefts, rights) for n in range(len(rows)))
        found = self._tiled(rows, lefts, rights, threads) if len(rows) > 1 and fits else None
        return None if found is None or found[1] >= 1 - SAVES else found[0]

    def _extend(self, rows: Sequence[Rows | None], lefts: list[int], rights: list[int]) -> bool:
        """Add what the last of the launches leaves out at both sides; False if it cannot be in a chain."""
        last = rows[-1]
        if last is None:
            return False
        left = right = 0
        for s, before in enumerate(rows[:-1]):
            assert before is not None, "it was added before"
            for x in before.spans:
                for y in last.spans:
                    if x.space == y.space and (x.writes or y.writes):
                        reach = _reach(x, y, last.count)
                        if reach is None:
                            return False
                        if reach:
                            left, right = max(left, lefts[s] + reach[0]), max(right, rights[s] + reach[1])
        lefts.append(left)
        rights.append(right)
        return True

    def _tiled(
        self, rows: Sequence[Rows | None], lefts: list[int], rights: list[int], threads: int
    ) -> tuple[Chain, float] | None:
        """The launches as a chain, and the part of its passes over memory that are left."""
        chosen = tuple(r for r in rows if r is not None)
        count = max(r.count for r in chosen)
        gap = max(x + y for x, y in zip(lefts, rights, strict=True))
        memory: dict[tuple[int, int], tuple[int, bool]] = {}
        for r in chosen:
            for at, (size, writes) in r.memory.items():
                old = memory.get(at, (0, False))
                memory[at] = max(size, old[0]), writes or old[1]
        total = sum(size for size, _ in memory.values())
        # What a tile has at hand: the memory of a launch and of the next one.
        pairs = [{**r.memory, **after.memory} for r, after in pairwise(chosen)]
        near = sum(size for pair in pairs for size, _ in pair.values()) // max(len(pairs), 1)
        moved = sum(size * (2 if writes else 1) for size, writes in memory.values())
        usual = sum(r.passes for r in chosen)
        second, last = cache_sizes()
        best: tuple[Chain, float] | None = None
        for cache, beyond, far in ((second, second * threads, 1), (last // threads // 2, last, FAR)):
            widest = int(cache * SHARE * count) // max(near, 1)
            if total <= 2 * beyond or widest < max(gap, 1) or not pairs:
                continue
            width = min(widest, max(-(-count // (2 * threads)), gap, 1))
            # A tile moves its rows once, and so does a gap.
            cost = far * moved * (1 + gap / width) / usual
            if -(-count // width) >= threads and (best is None or cost < best[1]):
                best = Chain(chosen, tuple(lefts), tuple(rights), width), cost
        return best

    def _rows(self, c: KernelCall) -> Rows | None:
        b, kernel = self.b, c.kernel
        extents = tuple(map(b.value, c.extents))
        if math.prod(extents) * sum(a.itemsize for a in c.accesses) < cache_sizes()[0]:
            return None
        _, strides, _ = b._shape(c)
        last = extents[-1]
        blocks = -(-last // k.BLOCK)
        if len(extents) == 1:
            stored = sum(a.itemsize for a, own in zip(c.accesses, kernel.accesses, strict=True) if own.writes)
            # NOTE: what decides whether results are written past the caches is the extent, which ends the rows here.
            if last * stored >= STREAMED:
                return None
            count, units = blocks, 1
        else:
            together = all(_collapses(s, extents) for s in strides)
            count = math.prod(extents[:-1]) if together else extents[0]
            units = math.prod(extents[:-1]) * blocks // count
        gathered = {v.access for v in kernel.values if isinstance(v, k.Gather)}
        spans: list[Span] = []
        memory: dict[tuple[int, int], tuple[int, bool]] = {}
        for i, (a, own, steps) in enumerate(zip(c.accesses, kernel.accesses, strides, strict=True)):
            at, size = a.itemsize * b.value(a.offset), a.itemsize
            if len(extents) == 1:
                step, inner = steps[0] * k.BLOCK, [(k.BLOCK - 1, steps[0])]
            elif count == extents[0]:
                step, inner = steps[0], [(e - 1, s) for e, s in zip(extents[1:], steps[1:], strict=True)]
            else:
                step, inner = steps[-2], [(last - 1, steps[-1])]
            low = at + size * sum(min(n * s, 0) for n, s in inner)
            high = at + size * (1 + sum(max(n * s, 0) for n, s in inner))
            everywhere = i in gathered or own.period or own.spread or step <= 0
            spans += self._placed(a.buffer, low, high, 0 if everywhere else step * size, own.writes)
            where, bytes_of = b._base(a.buffer), abs(step) * size * (count - 1) + high - low
            old = memory.get(where, (0, False))
            memory[where] = max(old[0], bytes_of), old[1] or own.writes
        small = sum(n for n, _ in memory.values()) < cache_sizes()[0]
        return None if small else Rows(c, count, units, _merged(spans), memory)

    def _placed(self, buffer: Node, low: int, high: int, step: int, writes: bool) -> list[Span]:
        """What an access touches, in each place where its buffer may lie."""
        b = self.b
        base, byte = b._base(buffer)
        size = ANYWHERE if isinstance(buffer.attrs, g.Input) else max(b.value(b.exe.nbytes[buffer]), 1)
        spaces = [base, *(self.donors.get(buffer, ()))]
        return [Span(s, (byte, byte + size), byte + low, byte + high, step, writes) for s in spaces]


def _collapses(strides: Sequence[int], extents: Sequence[int]) -> bool:
    """Whether all axes but the last are one axis of an access."""
    return all(strides[a] == strides[a + 1] * extents[a + 1] for a in range(len(extents) - 2))


def _merged(spans: Sequence[Span]) -> tuple[Span, ...]:
    """One span for all reads, and one for all writes, that move alike over a buffer."""
    found: dict[tuple[int, tuple[int, int], int, bool], Span] = {}
    for s in spans:
        key = s.space, s.buffer, s.step, s.writes
        old = found.get(key, s)
        found[key] = s._replace(low=min(s.low, old.low), high=max(s.high, old.high))
    return tuple(found.values())


def _reach(x: Span, y: Span, count: int) -> tuple[int, int] | tuple[()] | None:
    """How far below and above row i of y the rows of x lie that touch its bytes; () for none, None if unknown."""
    if x.space != y.space or x.buffer[0] >= y.buffer[1] or y.buffer[0] >= x.buffer[1]:
        return ()
    if not x.step or not y.step:
        return None
    below = above = 0
    # The rows j with x.low + j * x.step < y.high + i * y.step, and the other way round: linear in i, so at its ends.
    for i in (0, count - 1):
        first = -((x.high - 1 - y.low - i * y.step) // x.step)
        end = (y.high - 1 + i * y.step - x.low) // x.step
        below, above = max(below, i - first), max(above, end - i)
    return below, above


def runs(regions: Sequence[Sequence[Launch]], border: int | None) -> list[list[KernelCall]]:
    """Launches in order, of neighbouring regions of maps alone; none crosses into the region `border`."""
    found: list[list[KernelCall]] = [[]]
    for number, region in enumerate(regions):
        maps = [c for c in region if isinstance(c, KernelCall) and eligible(c)]
        if number == border or len(maps) < len(region):
            found.append([])
        if len(maps) == len(region):
            found[-1] += maps
    return [r for r in found if len(r) > 1]


def write(
    b: KernelRows, chain: Chain, plain: Callable[[KernelCall], tuple[int, int]], rows: list[list[int]],
    table: list[int], patches: list[tuple[int, int, int]],
) -> list[Module]:  # fmt: skip
    """Append the rows of a chain; the code that they call. plain: units and grain of a launch as it is."""
    source, names = text()
    module = compile_module(source, list(names.values()))
    code = {name: module.address(symbol) for name, symbol in names.items()}
    moves = any(uses_offset(a.offset) for r in chain.rows for a in r.call.accesses)
    entries: list[int] = []
    checks: list[tuple[int, int, int]] = []  # the place of an address, its base, and the bytes behind that
    kernels: list[tuple[int, int]] = []
    for r, left, right in zip(chain.rows, chain.left, chain.right, strict=True):
        c = r.call
        extents, strides, coefs = b._shape(c)
        # NOTE: no kernel asks for the extent of the first of several axes, but to write large results past the caches.
        own = (1, *extents[1:]) if len(extents) > 1 else extents
        at = b._arguments(c, whole(c.kernel, own, strides, coefs), table, patches)
        kernels.append((b._code(c.kernel), at))
        entries += [kernels[-1][0], at, r.count, left, right, r.units]
        for a, where in zip(c.accesses, c.kernel.layout.accesses, strict=True):
            if uses_offset(a.offset):
                base, byte = b._base(a.buffer)
                checks.append((at + where, base, byte + b.value(a.offset) * a.itemsize))
    start = len(table)
    entries[1::FIELDS] = [at - start for at in entries[1::FIELDS]]
    table += [1, len(chain.rows), chain.width, chain.tiles, *entries]
    if moves:
        asked = len(table)
        table += [start - asked, len(checks)]
        for place, base, byte in checks:
            patches.append((len(table) + 1, base, byte))
            table += [place - asked, 0]
        rows.append([code["check"], asked, 1, 0, 0])
    rows.append([code["upright"], start, chain.tiles, 1, 0])
    if chain.tiles > 1:
        rows.append([code["inverted"], start, chain.tiles - 1, 1, 0])
    for r, (address, _) in zip(chain.rows, kernels, strict=True) if moves else ():
        at = b._arguments(r.call, whole(r.call.kernel, *b._shape(r.call)), table, patches)
        own_at = len(table)
        table += [start - own_at, address, at - own_at]
        rows.append([code["plain"], own_at, *plain(r.call), 0])
    return [module]
