"""Running sums and products, native, in the order of `ir/scan.py`.

`rows` is for the innermost axis. A unit is one block of a row: its total is made first, then the carry at its start
is taken from the unit before (which has published it as soon as that one's carry came in), then the block is gone
through again, in the cache this time. So memory is read once and written once.
NOTE: a unit waits for the one before it. That cannot lock: chunks are claimed in order, so the earliest one that is
not done never waits for another.

`columns` is for other axes: the lanes are neighbours along the innermost axis, and a unit goes down some of them.
Complex sums are columns of two; complex products are `scan_complex.py`'s.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.cpu.codegen.routine import Routine, Routines
from lazyt.backends.cpu.codegen.text import body_of, literal, mem_type, type_of, vector
from lazyt.backends.cpu.library import scan_complex
from lazyt.backends.cpu.thread_pool import get_num_threads
from lazyt.backends.math import casts
from lazyt.backends.math.elements import bits_of
from lazyt.backends.math.vector import Vec, constant
from lazyt.ir import dtypes, graph as g
from lazyt.ir.passes.call_operands import buffer_of
from lazyt.ir.scan import BLOCK, LANES, SCANS

if TYPE_CHECKING:
    from lazyt.backends.common.binding import ScheduleBinding
    from lazyt.ir.passes.schedule import LibraryCall


# Arguments.
X, Y, STATE, LENGTH, INNER, BLOCKS, UNITS, WIDTH = range(8)
SIZE = WIDTH + 1
# Elements that a chunk should have at least.
GRAIN = 16384
# Neighbours that a unit of `columns` goes down together, at most (a row of them is a page to look up) and at least;
# and lanes of a register of them.
COLUMNS = 256
FEW_COLUMNS = 16
NARROW = 8
# How far apart the lanes are that meet in each step within a group.
STEPS = (1, 2, 4, 8)
# How long a unit looks for its carry before it lets others run.
SPINS = 256


def native(c: LibraryCall) -> bool:
    """Whether there is machine code for this call: for all scans."""
    return isinstance(c.node.attrs, g.Opaque) and c.node.attrs.fn in SCANS and c.results[0] is not None


def _multiplies(c: LibraryCall) -> bool:
    """Whether it makes products of complex numbers."""
    assert isinstance(c.node.attrs, g.Opaque)
    return c.node.attrs.fn == "cumprod" and dtypes.kind(c.operands[0].dtype) == "c"


def suits(b: ScheduleBinding, c: LibraryCall) -> bool:
    """For all extents."""
    return True


def prepare(c: LibraryCall) -> None:
    """Have the machine code that a call most likely needs."""
    assert isinstance(c.node.attrs, g.Opaque)
    x = c.operands[0]
    if x.ndim and _multiplies(c):
        scan_complex.routines(dtypes.real_of(x.dtype), c.node.attrs.statics[0] % x.ndim == x.ndim - 1)
    elif x.ndim:
        last = c.node.attrs.statics[0] % x.ndim == x.ndim - 1 and dtypes.kind(x.dtype) != "c"
        routines(dtypes.real_of(x.dtype), c.node.attrs.fn, last)


@lru_cache(maxsize=64)
def routines(dtype: np.dtype, name: str, innermost: bool) -> Routines:
    """The machine code for a dtype, along the innermost axis or another."""
    w = _Writer(dtype, name)
    return Routines({"clear": w.clear, "rows": w.rows} if innermost else {"columns": w.columns})


def launch(
    b: ScheduleBinding, c: LibraryCall, rows: list[list[int]], table: list[int], patches: list[tuple[int, int, int]]
) -> None:
    """Write the rows of a program for one call."""
    assert isinstance(c.node.attrs, g.Opaque)
    x, y, at = c.operands[0], c.results[0], len(table)
    assert y is not None
    shape = [b.value(d) for d in x.shape]
    axis = c.node.attrs.statics[0] % len(shape)
    size, n = x.dtype.itemsize, shape[axis]
    outer, inner = _product(shape[:axis]), _product(shape[axis + 1 :])
    if _multiplies(c):
        _products(b, c, (outer, n, inner), rows, table, patches)
        return
    if dtypes.kind(x.dtype) == "c":
        inner, size = 2 * inner, size // 2
    if not outer * n * inner:
        return
    blocks = -(-n // BLOCK)
    args = [0] * SIZE
    args[LENGTH : UNITS + 1] = [n, inner, blocks, outer * blocks]
    for slot, node in ((X, x), (Y, y), (STATE, c.scratch)):
        if node is not None:
            b._address(buffer_of(node), 0, size, at + slot, patches)
    code = routines(dtypes.real_of(x.dtype), c.node.attrs.fn, inner == 1).address
    if inner == 1:
        if blocks > 1:
            rows.append([code["clear"], at, 1, 1, 0])
        rows.append([code["rows"], at, outer * blocks, max(GRAIN // min(n, BLOCK), 1), 0])
    else:
        share = -(-outer * inner // (2 * get_num_threads()))
        width = args[WIDTH] = min(max(share // FEW_COLUMNS * FEW_COLUMNS, FEW_COLUMNS), COLUMNS)
        units = outer * -(-inner // width)
        work = n * min(inner, width)
        rows.append([code["columns"], at, units, max(GRAIN // work, 1), 0])
    table.extend(args)


def _products(
    b: ScheduleBinding, c: LibraryCall, extents: tuple[int, int, int], rows: list[list[int]], table: list[int],
    patches: list[tuple[int, int, int]],
) -> None:  # fmt: skip
    """The rows of a program for running products of complex numbers."""
    (outer, n, inner), x, y, at = extents, c.operands[0], c.results[0], len(table)
    assert y is not None
    if not outer * n * inner:
        return
    args = [0] * scan_complex.SIZE
    args[scan_complex.LENGTH : scan_complex.WIDTH] = [n, inner]
    for slot, node in ((scan_complex.X, x), (scan_complex.Y, y)):
        b._address(buffer_of(node), 0, x.dtype.itemsize // 2, at + slot, patches)
    code = scan_complex.routines(dtypes.real_of(x.dtype), inner == 1).address
    if inner == 1:
        rows.append([code["row"], at, outer, max(GRAIN // n, 1), 0])
    else:
        few, most = scan_complex.NARROW, scan_complex.COLUMNS
        share = -(-outer * inner // (2 * get_num_threads()))
        width = args[scan_complex.WIDTH] = min(max(share // few * few, few), most)
        rows.append([code["columns"], at, outer * -(-inner // width), max(GRAIN // (n * min(inner, width)), 1), 0])
    table.extend(args)


def _product(extents: list[int]) -> int:
    n = 1
    for e in extents:
        n *= e
    return n


class _Writer:
    """The text of the routines of one dtype."""

    def __init__(self, dtype: np.dtype, name: str) -> None:
        self.dtype = dtype
        self.name = name
        self.kind = dtypes.kind(dtype)
        self.element = mem_type(dtype)
        self.work = "double" if self.kind == "f" else self.element

    # Values

    @property
    def identity(self) -> float:
        value = SCANS[self.name][1]
        return value if self.kind == "f" else int(value)

    def start(self, r: Routine, lanes: int = LANES) -> Vec:
        """What changes nothing, in every lane."""
        return constant(Vec(r.body, "", self.work, lanes), self.identity)

    @property
    def nothing(self) -> str:
        """The same as an operand for lanes that are not read."""
        one: bool | int | float = self.identity
        if dtypes.of(self.dtype).raw:
            one = bits_of(self.identity, self.dtype)
        return f"splat ({self.element} {literal(self.element, one)})"

    def join(self, a: Vec, b: Vec) -> Vec:
        if self.kind == "b":
            return a | b if self.name == "cumsum" else a & b
        if self.name == "cumsum":
            return a + b
        return a.binary("fmul" if self.kind == "f" else "mul", b)

    def widened(self, x: Vec) -> Vec:
        if self.kind != "f":
            return x
        x = casts.widen(x, self.dtype)
        return x.convert("fpext", "double") if x.element == "float" else x

    def narrowed(self, x: Vec) -> Vec:
        return casts.narrow(x, self.dtype) if self.kind == "f" else x

    def shifted(self, x: Vec, by: int) -> Vec:
        """Every lane `by` lanes up; what changes nothing comes in."""
        lanes = ", ".join(f"i32 {i if i < by else LANES + i - by}" for i in range(LANES))
        text = (
            f"shufflevector {type_of(x)} {x.operand(self.identity)}, {type_of(x)} {x.name}, <{LANES} x i32> <{lanes}>"
        )
        return x.renamed(body_of(x).let(text))

    def prefixes(self, x: Vec) -> Vec:
        """Each lane joined with those below it."""
        for by in STEPS:
            x = self.join(self.shifted(x, by), x)
        return x

    def folded(self, x: Vec) -> Vec:
        """The lanes joined by halves, as a scalar."""
        body, lanes = body_of(x), x.lanes
        while lanes > 1:
            lanes //= 2
            halves = []
            for first in (0, lanes):
                picks = ", ".join(f"i32 {first + i}" for i in range(lanes))
                text = f"shufflevector {type_of(x)} {x.name}, {type_of(x)} poison, <{lanes} x i32> <{picks}>"
                halves.append(Vec(body, body.let(text), x.element, lanes))
            x = self.join(*halves)
        return Vec(body, body.let(f"extractelement {type_of(x)} {x.name}, i32 0"), x.element, 0)

    def repeated(self, x: Vec, lane: int) -> Vec:
        """One lane in all."""
        lanes = ", ".join([f"i32 {lane}"] * LANES)
        return x.renamed(
            body_of(x).let(f"shufflevector {type_of(x)} {x.name}, {type_of(x)} poison, <{LANES} x i32> <{lanes}>")
        )

    # Along the innermost axis

    def clear(self, r: Routine) -> None:
        """No carry is known yet."""
        with r.loop("0", r.argument(UNITS)) as i:
            r.put("i64", r.argument(STATE, "ptr"), i.index, "0")

    def rows(self, r: Routine) -> None:
        body, blocks, n = r.body, r.argument(BLOCKS), r.argument(LENGTH)
        with r.loop("%begin", "%end") as unit:
            row, block = (body.let(f"{op} i64 {unit.index}, {blocks}") for op in ("udiv", "urem"))
            start = body.let(f"mul i64 {block}, {BLOCK}")
            first = body.let(f"add i64 {body.let(f'mul i64 {row}, {n}')}, {start}")
            x, y = (r.at(self.element, r.argument(a, "ptr"), first) for a in (X, Y))
            left = body.let(f"sub i64 {n}, {start}")
            length = body.call("i64", "llvm.smin.i64", ("i64", left), ("i64", str(BLOCK)))
            more = body.let(f"icmp sgt i64 {left}, {BLOCK}")
            total = self._total(r, x, body.let(f"select i1 {more}, i64 {BLOCK}, i64 0"))
            carry = self._carry(r, unit.index, body.let(f"icmp ne i64 {block}, 0"))
            with r.when(more):
                self._publish(r, unit.index, self.join(carry, total))
            self._block(r, x, y, length, Vec(body, r.splat(self.work, carry.name), self.work, LANES))

    def _total(self, r: Routine, x: str, length: str) -> Vec:
        """The total of a whole block; of no use for a length of 0."""
        zero = self.start(r)
        with r.loop("0", length, LANES, [(type_of(zero), zero.name)]) as i:
            v = self.widened(r.load(self.element, r.at(self.element, x, i.index)))
            i.next = [self.join(v.renamed(i.carried[0]), v).name]
        return self.folded(zero.renamed(i.results[0]))

    def _state(self, r: Routine, unit: str) -> tuple[str, str]:
        """Where a unit says that its carry is known, and the carry (for the unit after it)."""
        flag = r.at("i64", r.argument(STATE, "ptr"), unit)
        return flag, r.at("i64", flag, r.argument(UNITS))

    def _publish(self, r: Routine, unit: str, carry: Vec) -> None:
        flag, value = self._state(r, unit)
        r.body.line(f"store {type_of(carry)} {carry.name}, ptr {value}, align 8")
        r.body.line(f"store atomic i64 1, ptr {flag} release, align 8")

    def _carry(self, r: Routine, unit: str, wanted: str) -> Vec:
        """What the unit before has published; what changes nothing unless that is wanted."""
        body = r.body
        kept = r.slot(self.work)
        none = literal(self.work, self.identity)
        body.line(f"store {self.work} {none}, ptr {kept}, align 8")
        body.declare("declare i32 @sched_yield()")
        with r.when(wanted):
            flag, value = self._state(r, body.let(f"sub i64 {unit}, 1"))
            with r.repeat([("i64", "0")]) as spin:
                known = body.let(f"load atomic i64, ptr {flag} acquire, align 8")
                r.go_on(spin, body.let(f"icmp eq i64 {known}, 0"))
                count = body.let(f"add i64 {spin.carried[0]}, 1")
                with r.when(body.let(f"icmp ugt i64 {count}, {SPINS}")):
                    body.let("call i32 @sched_yield()")
                spin.next = [count]
            body.line(f"store {self.work} {body.let(f'load {self.work}, ptr {value}, align 8')}, ptr {kept}, align 8")
        return Vec(body, body.let(f"load {self.work}, ptr {kept}, align 8"), self.work, 0)

    def _block(self, r: Routine, x: str, y: str, length: str, carry: Vec) -> None:
        """Write the running values of a block."""
        body, e = r.body, self.element
        whole = body.let(f"and i64 {length}, {-LANES}")
        with r.loop("0", whole, LANES, [(type_of(carry), carry.name)]) as i:
            before = carry.renamed(i.carried[0])
            p = self.prefixes(self.widened(r.load(e, r.at(e, x, i.index))))
            r.store(self.narrowed(self.join(before, p)), r.at(e, y, i.index))
            i.next = [self.join(before, self.repeated(p, LANES - 1)).name]
        with r.when(body.let(f"icmp ne i64 {whole}, {length}")):
            mask = r.lanes(body.let(f"sub i64 {length}, {whole}"))
            p = self.prefixes(self.widened(r.load(e, r.at(e, x, whole), mask, self.nothing)))
            r.store(self.narrowed(self.join(carry.renamed(i.results[0]), p)), r.at(e, y, whole), mask)

    # Along other axes

    def columns(self, r: Routine) -> None:
        body, inner, n, width = r.body, r.argument(INNER), r.argument(LENGTH), r.argument(WIDTH)
        above = body.let(f"add i64 {inner}, {body.let(f'sub i64 {width}, 1')}")
        parts = body.let(f"udiv i64 {above}, {width}")
        kind = vector(self.work, NARROW)
        # For each strip of NARROW columns: the carry, the carry at the block's start, partial sums by position.
        slots = r.slot(kind, COLUMNS // NARROW * (2 + LANES))
        with r.loop("%begin", "%end") as unit:
            row, part = (body.let(f"{op} i64 {unit.index}, {parts}") for op in ("udiv", "urem"))
            column = body.let(f"mul i64 {part}, {width}")
            start = body.let(f"mul i64 {body.let(f'mul i64 {row}, {n}')}, {inner}")
            first = body.let(f"add i64 {start}, {column}")
            left = body.let(f"sub i64 {inner}, {column}")
            wide = body.call("i64", "llvm.smin.i64", ("i64", left), ("i64", width))
            strips = body.let(f"udiv i64 {body.let(f'add i64 {wide}, {NARROW - 1}')}, {NARROW}")
            with r.loop("0", strips) as s:
                self._set(r, slots, s.index, 0, self.start(r, NARROW))
                self._set(r, slots, s.index, 1, self.start(r, NARROW))
            with r.loop("0", n, BLOCK) as block:
                stop = body.let(f"sub i64 {n}, {block.index}")
                length = body.call("i64", "llvm.smin.i64", ("i64", stop), ("i64", str(BLOCK)))
                end = body.let(f"add i64 {block.index}, {length}")
                whole = body.let(f"add i64 {block.index}, {body.let(f'and i64 {length}, {-LANES}')}")
                more = body.let(f"icmp sgt i64 {stop}, {BLOCK}")
                with r.when(more):
                    with r.loop("0", strips) as s:
                        for lane in range(LANES):
                            self._set(r, slots, s.index, 2 + lane, self.start(r, NARROW))
                    with r.loop(block.index, end, LANES) as i, r.loop("0", strips) as s:
                        self._group(r, slots, s.index, first, i.index, "", wide, sums=True)
                    with r.loop("0", strips) as s:
                        self._next(r, slots, s.index)
                with r.when(body.let(f"xor i1 {more}, true")):
                    with r.loop(block.index, whole, LANES) as i, r.loop("0", strips) as s:
                        self._group(r, slots, s.index, first, i.index, "", wide, sums=False)
                    with r.when(body.let(f"icmp ne i64 {whole}, {end}")), r.loop("0", strips) as s:
                        self._group(r, slots, s.index, first, whole, end, wide, sums=False)

    def _slot(self, r: Routine, slots: str, strip: str, which: int) -> str:
        at = r.body.let(f"add i64 {r.body.let(f'mul i64 {strip}, {2 + LANES}')}, {which}")
        return r.body.let(f"getelementptr {vector(self.work, NARROW)}, ptr {slots}, i64 {at}")

    def _set(self, r: Routine, slots: str, strip: str, which: int, x: Vec) -> None:
        r.body.line(f"store {type_of(x)} {x.name}, ptr {self._slot(r, slots, strip, which)}, align 8")

    def _get(self, r: Routine, slots: str, strip: str, which: int) -> Vec:
        kind = vector(self.work, NARROW)
        x = r.body.let(f"load {kind}, ptr {self._slot(r, slots, strip, which)}, align 8")
        return Vec(r.body, x, self.work, NARROW)

    def _group(self, r: Routine, slots: str, strip: str, first: str, row: str, end: str, wide: str, sums: bool) -> None:
        """LANES rows of a strip of columns; rows from `end` on are not there.

        NOTE: of these no lane is read or written, where the first row lies. On a page that is not mapped each access
        takes 400 cycles.
        """
        body, e = r.body, self.element
        column = body.let(f"mul i64 {strip}, {NARROW}")
        mask = r.lanes(body.let(f"sub i64 {wide}, {column}"), NARROW)
        where, masks, xs = [], [], []
        for k in range(LANES):
            i, masked = body.let(f"add i64 {row}, {k}"), mask
            if end:
                there = body.let(f"icmp slt i64 {i}, {end}")
                masked = body.let(f"and <{NARROW} x i1> {mask}, {r.splat('i1', there, NARROW)}")
                i = body.let(f"select i1 {there}, i64 {i}, i64 {row}")
            masks.append(masked)
            at = body.let(f"add i64 {body.let(f'mul i64 {i}, {r.argument(INNER)}')}, {column}")
            where.append(body.let(f"add i64 {first}, {at}"))
            x = r.load(e, r.at(e, r.argument(X, "ptr"), where[k]), masks[k], self.nothing, NARROW)
            xs.append(self.widened(x))
        if sums:
            for k, x in enumerate(xs):
                self._set(r, slots, strip, 2 + k, self.join(self._get(r, slots, strip, 2 + k), x))
        for by in STEPS:
            xs = xs[:by] + [self.join(xs[k - by], xs[k]) for k in range(by, LANES)]
        carry = self._get(r, slots, strip, 0)
        for k, x in enumerate(xs):
            r.store(self.narrowed(self.join(carry, x)), r.at(e, r.argument(Y, "ptr"), where[k]), masks[k])
        self._set(r, slots, strip, 0, self.join(carry, xs[-1]))

    def _next(self, r: Routine, slots: str, strip: str) -> None:
        """The carries at the start of the next block."""
        sums = [self._get(r, slots, strip, 2 + k) for k in range(LANES)]
        while len(sums) > 1:
            half = len(sums) // 2
            sums = [self.join(sums[k], sums[k + half]) for k in range(half)]
        carry = self.join(self._get(r, slots, strip, 1), sums[0])
        self._set(r, slots, strip, 0, carry)
        self._set(r, slots, strip, 1, carry)
