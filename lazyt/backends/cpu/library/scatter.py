"""Rows put or added at positions: native, without atomics, in order of position, so the same bits as one thread's.

A scatter is `out = x; out[at[i]] = v[i]` (or `+=`) over rows of `inner` elements, i ascending. Two strategies:

lists    `build` strings the updates of each destination together, first to last (for 'set' it keeps the last alone);
         `rows` then makes every row of out once, in registers: what x has there, and its updates in their order.
         Destinations are divided among threads. Worth it when most rows have updates. The only way for sums of
         halves, which add up in float32 and are rounded once.
direct   `copy` copies x, `each` goes through the updates. A thread owns a range of destinations and passes over
         the updates of others.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.cpu.codegen.routine import Routine, Routines
from lazyt.backends.cpu.codegen.text import mem_type, type_of
from lazyt.backends.cpu.thread_pool import get_num_threads
from lazyt.backends.math import casts
from lazyt.backends.math.vector import Vec, constant
from lazyt.ir import dtypes, graph as g
from lazyt.ir.kernel import LANES
from lazyt.ir.passes.call_operands import buffer_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.backends.common.binding import ScheduleBinding
    from lazyt.ir.passes.schedule import ScatterCall

# Arguments.
X, V, AT, OUT, HEAD, NEXT, COUNT, DESTINATIONS, INNER, PARTS, FILL, TOTAL = range(12)
SIZE = TOTAL + 1
# Elements that a chunk should have at least.
GRAIN = 16384
COPY = 16384
# Vectors of a row that are summed up together.
STRIP = 8


@lru_cache(maxsize=256)
def routines(dtype: np.dtype, mode: str, filled: bool, single: bool, lists: bool) -> Routines:
    """The machine code for a dtype and a mode; `filled`: x is one constant, `single`: v is one element, `lists`:
    there may be lists.
    """
    w = _Writer(dtype, mode, filled, single)
    functions: dict[str, Callable[[Routine], None]] = {}
    if lists:
        functions |= {"build": w.build, "rows": w.rows}
    if not w.wide:
        functions |= {"copy": w.copy, "direct": w.each if lists else w.elements}
    return Routines(functions)


def of(c: ScatterCall) -> Routines:
    """The routines that a call needs."""
    assert isinstance(c.node.attrs, g.Scatter)
    return routines(c.node.dtype, c.node.attrs.mode, c.x is None, c.single, c.scratch is not None)


def launch(
    b: ScheduleBinding, c: ScatterCall, rows: list[list[int]], table: list[int], patches: list[tuple[int, int, int]]
) -> None:
    """Write the rows of a program for one call."""
    n, at = c.node, len(table)
    count, destinations = b.value(c.at.shape[0]), b.value(n.shape[0])
    inner = 1
    for d in n.shape[1:]:
        inner *= b.value(d)
    total = destinations * inner
    if not total:
        return
    size = n.dtype.itemsize
    args = [0] * SIZE
    threads = get_num_threads()
    parts = min(threads, 16, -(-count * inner // GRAIN)) or 1
    args[COUNT : FILL + 1] = [count, destinations, inner, parts, _bits(c)]
    args[TOTAL] = total
    for slot, node in ((X, c.x), (V, c.v), (AT, c.at), (OUT, n)):
        if node is not None:
            b._address(buffer_of(node), 0, size, at + slot, patches)
    code = of(c).address
    if lists(c, count, destinations):
        assert c.scratch is not None
        b._address(c.scratch, 0, 8, at + HEAD, patches)
        b._address(c.scratch, n.shape[0], 8, at + NEXT, patches)
        rows.append([code["build"], at, parts, 1, 0])
        work = inner * (1 + count // destinations)
        rows.append([code["rows"], at, destinations, max(GRAIN // work, 1), 0])
    else:
        rows.append([code["copy"], at, -(-total // COPY), max(GRAIN // COPY, 1), 0])
        rows.append([code["direct"], at, parts, 1, 0])
    table.extend(args)


def lists(c: ScatterCall, count: int, destinations: int) -> bool:
    """Whether the updates of each destination are strung together first."""
    if c.scratch is None:
        return False
    return _wide(c.node.dtype, c.node.attrs.mode) or 4 * count >= destinations  # type: ignore[union-attr]


def _wide(dtype: np.dtype, mode: str) -> bool:
    return mode == "add" and dtypes.of(dtype).narrow


def _bits(c: ScatterCall) -> int:
    """The constant that x is, as the bits of an element."""
    if c.fill is None:
        return 0
    assert isinstance(c.fill.attrs, g.Constant)
    raw = np.asarray(c.fill.attrs.value).astype(c.fill.dtype).tobytes()
    return int.from_bytes(raw.ljust(8, b"\0"), "little", signed=True)


class _Writer:
    """The text of the routines of one dtype and mode."""

    def __init__(self, dtype: np.dtype, mode: str, filled: bool, single: bool) -> None:
        self.dtype = dtype
        self.mode = mode
        self.filled = filled
        self.single = single
        self.wide = _wide(dtype, mode)
        # What is only moved is moved as bits.
        self.element = mem_type(dtype) if mode == "add" else f"i{8 * dtype.itemsize}"

    # Values

    def fill(self, r: Routine, lanes: int = LANES) -> Vec:
        """The constant that x is."""
        bits = f"i{8 * self.dtype.itemsize}"
        x = r.argument(FILL)
        if bits != "i64":
            x = r.body.let(f"trunc i64 {x} to {bits}")
        if self.element != bits:
            x = r.body.let(f"bitcast {bits} {x} to {self.element}")
        return Vec(r.body, r.splat(self.element, x, lanes) if lanes else x, self.element, lanes)

    def value(self, r: Routine) -> Vec:
        """The one element that v is, in all lanes."""
        v = r.get(self.element, r.argument(V, "ptr"), "0")
        return Vec(r.body, r.splat(self.element, v), self.element, LANES)

    def add(self, x: Vec, v: Vec) -> Vec:
        return x | v if dtypes.kind(self.dtype) == "b" else x + v

    def widened(self, x: Vec) -> Vec:
        return casts.widen(x, self.dtype) if self.wide else x

    def row(self, r: Routine, base: int, number: str) -> str:
        """The address of a row."""
        start = r.body.let(f"mul i64 {number}, {r.argument(INNER)}")
        return r.at(self.element, r.argument(base, "ptr"), start)

    # Routines

    def copy(self, r: Routine) -> None:
        body = r.body
        start = body.let(f"mul i64 %begin, {COPY}")
        stop = body.call("i64", "llvm.smin.i64", ("i64", body.let(f"mul i64 %end, {COPY}")), ("i64", r.argument(TOTAL)))
        x = self.fill(r) if self.filled else None
        out = r.argument(OUT, "ptr")
        length = body.let(f"sub i64 {stop}, {start}")
        whole = body.let(f"add i64 {start}, {body.let(f'and i64 {length}, {-4 * LANES}')}")
        with r.loop(start, whole, 4 * LANES) as i:
            for k in range(4):
                at = body.let(f"add i64 {i.index}, {k * LANES}")
                r.store(x or r.load(self.element, r.at(self.element, r.argument(X, "ptr"), at)),
                        r.at(self.element, out, at))  # fmt: skip
        with r.loop(whole, stop, LANES) as i:
            mask = r.lanes(body.let(f"sub i64 {stop}, {i.index}"))
            y = x or r.load(self.element, r.at(self.element, r.argument(X, "ptr"), i.index), mask)
            r.store(y, r.at(self.element, out, i.index), mask)

    def _own(self, r: Routine, part: str) -> tuple[str, str]:
        """The first destination of a part, and how many it has."""
        body = r.body
        ends = []
        for p in (part, body.let(f"add i64 {part}, 1")):
            whole = body.let(f"mul i64 {p}, {r.argument(DESTINATIONS)}")
            ends.append(body.let(f"sdiv i64 {whole}, {r.argument(PARTS)}"))
        return ends[0], body.let(f"sub i64 {ends[1]}, {ends[0]}")

    def _owned(self, r: Routine, i: str, low: str, count: str) -> tuple[str, str]:
        """The destination of update i, and whether this part owns it."""
        d = r.get("i64", r.argument(AT, "ptr"), i)
        return d, r.body.let(f"icmp ult i64 {r.body.let(f'sub i64 {d}, {low}')}, {count}")

    def elements(self, r: Routine) -> None:
        """Updates of single elements. What others own goes to a place of no interest: cheaper than a branch."""
        body, e = r.body, self.element
        nowhere = r.slot(e)
        body.line(f"store {e} zeroinitializer, ptr {nowhere}, align 8")
        with r.loop("%begin", "%end") as part:
            low, many = self._own(r, part.index)
            with r.loop("0", r.argument(COUNT)) as i:
                d, own = self._owned(r, i.index, low, many)
                to = body.let(f"select i1 {own}, ptr {r.at(e, r.argument(OUT, 'ptr'), d)}, ptr {nowhere}")
                v = Vec(body, r.get(e, r.argument(V, "ptr"), "0" if self.single else i.index), e, 0)
                if self.mode == "add":
                    v = self.add(Vec(body, r.get(e, to, "0"), e, 0), v)
                r.put(e, to, "0", v.name)

    def each(self, r: Routine) -> None:
        """Updates of rows, one after the other."""
        body, e = r.body, self.element
        inner = r.argument(INNER)
        value = self.value(r) if self.single else None
        with r.loop("%begin", "%end") as part:
            low, many = self._own(r, part.index)
            with r.loop("0", r.argument(COUNT)) as i:
                d, own = self._owned(r, i.index, low, many)
                with r.when(own):
                    out = self.row(r, OUT, d)
                    v = "" if self.single else self.row(r, V, i.index)
                    with r.loop("0", inner, LANES) as j:
                        mask = r.lanes(body.let(f"sub i64 {inner}, {j.index}"))
                        to = r.at(e, out, j.index)
                        y = value or r.load(e, r.at(e, v, j.index), mask)
                        if self.mode == "add":
                            y = self.add(r.load(e, to, mask), y)
                        r.store(y, to, mask)

    def build(self, r: Routine) -> None:
        """head[d]: the first update of destination d (of 'set' the last), or -1; next[i]: the one after i."""
        body = r.body
        head, following = r.argument(HEAD, "ptr"), r.argument(NEXT, "ptr")
        count = r.argument(COUNT)
        with r.loop("%begin", "%end") as part:
            low, many = self._own(r, part.index)
            own = r.at("i64", head, low)
            none = constant(Vec(body, "", "i64", LANES), -1)
            with r.loop("0", many, LANES) as j:
                r.store(none, r.at("i64", own, j.index), r.lanes(body.let(f"sub i64 {many}, {j.index}")))
            with r.loop("0", count) as j:
                i = j.index
                if self.mode == "add":  # from the last to the first, each put before what is there
                    i = body.let(f"sub i64 {body.let(f'sub i64 {count}, 1')}, {j.index}")
                d, mine = self._owned(r, i, low, many)
                with r.when(mine):
                    if self.mode == "add":
                        r.put("i64", following, i, r.get("i64", head, d))
                    r.put("i64", head, d, i)

    def rows(self, r: Routine) -> None:
        """Every row of out, once."""
        body = r.body
        inner = r.argument(INNER)
        wide = body.let(f"and i64 {inner}, {-STRIP * LANES}")
        value = self.widened(self.value(r)) if self.single else None
        fill = self.fill(r) if self.filled else None
        strip = self._sum if self.mode == "add" else self._last
        with r.loop("%begin", "%end") as d:
            first = r.get("i64", r.argument(HEAD, "ptr"), d.index)
            with r.loop("0", wide, STRIP * LANES) as j:
                strip(r, d.index, first, j.index, "", STRIP, fill, value)
            with r.loop(wide, inner, LANES) as j:
                mask = r.lanes(body.let(f"sub i64 {inner}, {j.index}"))
                strip(r, d.index, first, j.index, mask, 1, fill, value)

    def _vectors(self, r: Routine, row: str, j: str, mask: str, count: int) -> list[Vec]:
        e = self.element
        places = [r.body.let(f"add i64 {j}, {k * LANES}") for k in range(count)]
        return [r.load(e, r.at(e, row, p), mask) for p in places]

    def _write(self, r: Routine, d: str, j: str, mask: str, xs: list[Vec]) -> None:
        out = self.row(r, OUT, d)
        for k, x in enumerate(xs):
            at = r.at(self.element, out, r.body.let(f"add i64 {j}, {k * LANES}"))
            r.store(casts.narrow(x, self.dtype) if self.wide else x, at, mask)

    def _sum(
        self, r: Routine, d: str, first: str, j: str, mask: str, count: int, fill: Vec | None, value: Vec | None
    ) -> None:
        body = r.body
        xs = [fill] * count if fill else self._vectors(r, self.row(r, X, d), j, mask, count)
        sums = [self.widened(x) for x in xs]
        with r.repeat([("i64", first), *((type_of(s), s.name) for s in sums)]) as loop:
            i = loop.carried[0]
            r.go_on(loop, body.let(f"icmp sge i64 {i}, 0"))
            vs = [value] * count if value else [
                self.widened(v) for v in self._vectors(r, self.row(r, V, i), j, mask, count)
            ]  # fmt: skip
            added = [self.add(s.renamed(c), v) for s, c, v in zip(sums, loop.carried[1:], vs, strict=True)]
            loop.next = [r.get("i64", r.argument(NEXT, "ptr"), i), *(a.name for a in added)]
        self._write(r, d, j, mask, [s.renamed(c) for s, c in zip(sums, loop.results[1:], strict=True)])

    def _last(
        self, r: Routine, d: str, first: str, j: str, mask: str, count: int, fill: Vec | None, value: Vec | None
    ) -> None:
        """The last update, or what x has; a lane that would read neither reads nothing."""
        body = r.body
        some = body.let(f"icmp sge i64 {first}, 0")
        ys: list[Vec] = []
        xs = [fill] * count if fill else [None] * count
        if value is None and fill is None:
            row = body.let(f"select i1 {some}, ptr {self.row(r, V, first)}, ptr {self.row(r, X, d)}")
            ys = self._vectors(r, row, j, mask, count)
        else:
            where = r.splat("i1", some)
            olds = xs if fill else self._vectors(r, self.row(r, X, d), j, mask, count)
            for k, old in enumerate(olds):
                assert old is not None
                if value is not None:
                    name = body.let(f"select i1 {some}, {type_of(old)} {value.name}, {type_of(old)} {old.name}")
                    ys.append(old.renamed(name))
                    continue
                read = body.let(f"and <{LANES} x i1> {where}, {mask}") if mask else where
                at = r.at(self.element, self.row(r, V, first), body.let(f"add i64 {j}, {k * LANES}"))
                ys.append(r.load(self.element, at, read, old.name))
        self._write(r, d, j, mask, ys)
