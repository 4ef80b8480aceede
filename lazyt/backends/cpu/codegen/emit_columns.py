"""Stages of a `vector='outer'` kernel: each lane is a point (and a reduction) of its own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.emit_levels import UNIT
from lazyt.backends.cpu.codegen.emit_memory import load_neighbours, load_some, pointer, transposed, turned
from lazyt.backends.cpu.codegen.emit_reduce import WIDE, Fold
from lazyt.backends.cpu.codegen.emit_scope import reg_vector
from lazyt.backends.cpu.codegen.emit_stores import store_all
from lazyt.backends.cpu.codegen.emit_values import open_level, read_slot, write_slot
from lazyt.backends.cpu.codegen.interior import alike, interior_of, opened
from lazyt.backends.cpu.codegen.lane_by_lane import has_masks, has_moves
from lazyt.backends.cpu.codegen.loops import counted
from lazyt.backends.cpu.codegen.peel import peeled
from lazyt.backends.cpu.codegen.text import mem_type
from lazyt.backends.cpu.flags import switches
from lazyt.ir.kernel import FLUSH, LANES, Index, Load, used_accesses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np

    from lazyt.backends.cpu.codegen.column_slots import StageSlots
    from lazyt.backends.cpu.codegen.emit_scope import Scope
    from lazyt.backends.cpu.codegen.interior import Interior
    from lazyt.ir.kernel import Stage

# So many rows go through the registers of one lane group together: what its folds keep is read and written once for
# them. As many as the first cache has ways, for rows that are a power of two apart.
TOGETHER = 8
# ... if what they keep is in at most so many registers of LANES numbers of 8 bytes.
KEPT = 6


class ColumnStage:
    """One stage for elements [start, stop) of the vector axis: a block of a map, or a run of units.

    With row axes the lanes' loop is inside the row loops, so that memory is read in its order; what
    a lane keeps from row to row is on the stack.
    """

    def __init__(self, scope: Scope, stage: Stage, own: StageSlots | None, start: str, stop: str) -> None:
        """own: its slots, of a kernel with row axes."""
        self.scope = scope
        self.stage = stage
        self.start = start
        self.stop = stop
        self.needed: list[int] = []
        self.accesses: set[int] = set()
        self.own = own
        self.folds = own.folds if own is not None else ()
        self.lanes = [[scope.slot(s) for s in slots] for slots in own.lanes] if own is not None else []
        self.wide = [scope.slot(s) if s >= 0 else "" for s in own.wide] if own is not None else []
        self.tiles = {a: scope.slot(s) for a, s in own.tiles.items()} if own is not None else {}

    def emit(self) -> None:
        scope, stage, levels = self.scope, self.stage, self.scope.levels
        roots = levels.roots(stage)
        kept = list(self.own.kept) if self.own is not None else []
        self._plan(kept + roots)
        open_level(scope, UNIT, self.needed, self.accesses)
        if kept or self.folds:
            self._before(kept)
        self._plan(roots)
        if not stage.loops:
            interior = interior_of(scope.kernel, levels)
            if interior is not None:
                self._map_with_interior(interior)
            elif not scope.kernel.rows and peeled(scope.kernel, levels, self.needed):
                self._map_by_whole_vectors()
            else:
                with self._columns():
                    self._points()
            return
        scope.tiles = self.tiles
        self._rows(0)
        scope.tiles = {}
        if self.folds:
            self._after()

    def _map_by_whole_vectors(self) -> None:
        """The lanes' loop without masks, and its last step with one."""
        scope = self.scope
        axis, end = scope.kernel.vector_axis, scope.body.let(f"and i64 {self.stop}, {-scope.lanes}")
        scope.body.module.strategies["whole vectors, and the last one masked"] = None
        with scope.loop(self.start, end, scope.lanes) as loop:
            scope.index[axis] = loop.index
            scope.set_whole()
            self._points()
        with scope.loop(end, self.stop, scope.lanes) as loop:
            scope.index[axis] = loop.index
            scope.set_mask(loop.index, self.stop)
            scope.is_partial = True
            self._points()

    def _map_with_interior(self, interior: Interior) -> None:
        """The lanes' loop with two bodies: one for points that no border of a condition divides."""
        scope, body = self.scope, self.scope.body
        body.module.strategies["places that no condition divides are computed without masks"] = None
        intervals, even = interior.open(scope), opened(scope, interior.even)
        with self._columns():
            join = body.fresh("joined")
            for case, divided in interior.cases(scope, intervals, scope.index[scope.kernel.vector_axis]):
                inside, border = body.fresh("inside"), body.fresh("border")
                body.line(f"br i1 {case}, label %{inside}, label %{border}")
                body.label(inside)
                with scope.inside():
                    scope.holds = divided | even
                    scope.names.update((v, alike(scope, holds)) for v, holds in divided.items())
                    self._computes(interior.needed(divided))
                    self._points()
                body.line(f"br label %{join}")
                body.label(border)
            with scope.inside():
                self._plan(scope.levels.roots(self.stage))
                self._points()
            body.line(f"br label %{join}")
            body.label(join)

    def _computes(self, values: list[int]) -> None:
        """Compute these values, of which some are there."""
        scope = self.scope
        self.needed = [v for v in values if v not in scope.names]
        self.accesses = used_accesses(scope.kernel, self.needed, self.stage.stores)

    def _plan(self, roots: list[int]) -> None:
        scope = self.scope
        self.needed = scope.levels.needed(roots, scope.names, scope.slots)
        computed = [v for v in self.needed if v not in scope.slots]
        self.accesses = used_accesses(scope.kernel, computed, self.stage.stores)

    @contextmanager
    def _columns(self) -> Iterator[None]:
        """The lanes' loop over the unit's elements."""
        scope = self.scope
        with scope.loop(self.start, self.stop, scope.lanes) as loop:
            scope.index[scope.kernel.vector_axis] = loop.index
            scope.set_mask(loop.index, self.stop)
            done = scope.body.let(f"sub i64 {loop.index}, {self.start}")
            scope.slot_at = scope.body.let(f"sdiv exact i64 {done}, {scope.lanes}")
            yield

    def _before(self, kept: list[int]) -> None:
        """Begin the folds, and compute what is kept in slots."""
        scope = self.scope
        slots = {v: scope.slot(self.own.kept[v]) for v in kept} if self.own is not None else {}
        with self._columns():
            if kept:
                open_level(
                    scope,
                    scope.levels.lanes,
                    scope.levels.needed(kept, scope.names, scope.slots),
                    (),
                )
                for v, slot in slots.items():
                    write_slot(scope, slot, reg_vector(scope.kernel.values[v].dtype), scope.names[v])
            for fold, lanes, wide in zip(self.folds, self.lanes, self.wide, strict=True):
                for slot, kind, start in zip(lanes, fold.types, fold.start, strict=True):
                    write_slot(scope, slot, kind, start)
                if fold.blocked:
                    write_slot(scope, wide, WIDE, fold.wide_start)
        scope.slots.update(slots)

    def _rows(self, k: int) -> None:
        """Row axis k and all inside it; the innermost one by FLUSH rows if a fold is blocked."""
        scope = self.scope
        axis = scope.kernel.outer + k
        extent = scope.extent[axis]
        if k < scope.kernel.rows - 1:
            with scope.loop("0", extent, 1) as loop:
                self._open_row(axis, loop.index)
                self._rows(k + 1)
        elif any(f.blocked for f in self.folds):
            with scope.loop("0", extent, FLUSH) as block:
                after = scope.body.let(f"add i64 {block.index}, {FLUSH}")
                stop = scope.body.call("i64", "llvm.smin.i64", ("i64", after), ("i64", extent))
                self._run(axis, block.index, stop)
                self._flush()
        else:
            self._run(axis, "0", extent)

    def _run(self, axis: int, start: str, stop: str) -> None:
        """Rows [start, stop) of the innermost row axis."""
        scope = self.scope
        strategies = scope.body.module.strategies
        if self._together(axis):
            strategies[f"columns, {TOGETHER} rows at a time through registers"] = None
            with scope.loop(start, stop, TOGETHER) as block:
                after = scope.body.let(f"add i64 {block.index}, {TOGETHER}")
                end = scope.body.call("i64", "llvm.smin.i64", ("i64", after), ("i64", stop))
                with self._columns():
                    self._some_rows(axis, block.index, end)
            return
        if not self.tiles:
            with scope.loop(start, stop, 1) as loop:
                self._open_row(axis, loop.index)
                with self._columns():
                    self._points()
            return
        strategies[f"reads across memory in tiles of {LANES} rows"] = None
        with scope.loop(start, stop, LANES) as block:
            after = scope.body.let(f"add i64 {block.index}, {LANES}")
            end = scope.body.call("i64", "llvm.smin.i64", ("i64", after), ("i64", stop))
            self._read_tiles(axis, block.index, end)
            with scope.loop(block.index, end, 1) as loop:
                row = scope.body.let(f"sub i64 {loop.index}, {block.index}")
                scope.tile_at = scope.body.let(f"mul i64 {row}, {scope.groups}")
                self._open_row(axis, loop.index)
                with self._columns():
                    self._points()

    def _together(self, axis: int) -> bool:
        """Whether a lane group goes through some rows at a time: then what belongs to a row is read for each group."""
        if not self.folds or self.tiles or not switches["together"]:
            return False
        values, levels = self.scope.kernel.values, self.scope.levels
        of_row = [values[v] for v in self.needed if levels.of_value[v] == levels.of_axis[axis]]
        cheap = all(isinstance(v, Load | Index) for v in of_row)
        return cheap and sum(len(f.types) for f in self.folds) <= KEPT

    def _some_rows(self, axis: int, start: str, end: str) -> None:
        """Rows [start, end) of one lane group, the folds in registers."""
        scope, levels = self.scope, self.scope.levels
        rows = frozenset(range(scope.kernel.outer, scope.kernel.axes))
        # What no row changes; a load's address is known without the innermost row.
        still = [v for v in self.needed if levels.of_value[v] == levels.lanes and not levels.moves[v] & rows]
        scope.index[axis] = start
        open_level(scope, levels.lanes, still, ())
        flat = [(t, read_slot(scope, s, t)) for f, own in self._kept() for s, t in zip(own, f.types, strict=True)]
        with scope.loop(start, end, 1, flat) as loop:
            self._open_row(axis, loop.index)
            open_level(scope, levels.lanes, self.needed, ())
            left = iter(loop.carried)
            loop.next = [x for f, _ in self._kept() for x in self._step(f, [next(left) for _ in f.types])]
            store_all(scope, self.stage.stores)
        done = iter(loop.results)
        for f, own in self._kept():
            for slot, kind in zip(own, f.types, strict=True):
                write_slot(scope, slot, kind, next(done))

    def _kept(self) -> Iterator[tuple[Fold, list[str]]]:
        yield from zip(self.folds, self.lanes, strict=True)

    def _read_tiles(self, axis: int, row: str, end: str) -> None:
        """Rows [row, end) of the tiled accesses, at most LANES of them: read along the rows, kept along the lanes."""
        scope = self.scope
        above = scope.levels.of_axis[axis] - 1
        starts = {a: pointer(scope, a, above) for a in self.tiles}
        with self._columns():
            column, slot_at = scope.index[scope.kernel.vector_axis], scope.slot_at
            scope.set_mask(row, end)
            rows_mask = scope.mask
            for access, slot in self.tiles.items():
                self._read_tile(access, slot, starts[access], (row, column, slot_at), rows_mask)

    def _read_tile(self, access: int, slot: str, at: str, where: tuple[str, str, str], rows_mask: str) -> None:
        scope, body = self.scope, self.scope.body
        row, column, slot_at = where
        what = scope.kernel.accesses[access]
        element, typ = mem_type(what.dtype), scope.in_memory(what.dtype)
        back = what.classes[-1] == "-"
        stride = scope.stride(access, scope.kernel.vector_axis)
        if back:
            row = body.let(f"sub i64 {1 - LANES}, {row}")
            rows_mask = turned(scope, scope.i1, rows_mask)
        at = body.let(f"getelementptr {element}, ptr {at}, i64 {row}")
        at = body.let(f"getelementptr {element}, ptr {at}, i64 {scope.mul(column, stride)}")

        def place(number: int | str) -> str:
            at = number * scope.groups if isinstance(number, int) else scope.mul(number, str(scope.groups))
            own = body.let(f"getelementptr {typ}, ptr {slot}, i64 {at}")
            return body.let(f"getelementptr {typ}, ptr {own}, i64 {slot_at}")

        if has_masks(what.dtype):
            lanes = self._lines(what.dtype, at, stride, column, rows_mask, load_neighbours)
        else:
            lanes = self._whole_lines(what.dtype, at, stride, column, rows_mask, place)
        rows = transposed(scope, typ, lanes)
        for i, x in enumerate(reversed(rows) if back else rows):
            body.line(f"store {typ} {x}, ptr {place(i)}")

    def _lines(
        self, dtype: np.dtype, at: str, stride: str, column: str, rows_mask: str, read: Callable[..., str]
    ) -> list[str]:  # fmt: skip
        """The lines of a tile, `stride` apart; those past the last column read nothing.

        NOTE: they do so where the first one lies. To leave out all lanes of a page that is not mapped takes 400 cycles.
        """
        body, line, found = self.scope.body, at, []
        for lane in range(LANES):
            there, mask = self._rows_of(column, str(lane), rows_mask)
            own = body.let(f"select i1 {there}, ptr {line}, ptr {at}")
            found.append(read(self.scope, dtype, own, mask))
            line = body.let(f"getelementptr {mem_type(dtype)}, ptr {line}, i64 {stride}")
        return found

    def _whole_lines(
        self, dtype: np.dtype, at: str, stride: str, column: str, rows_mask: str, place: Callable[[int | str], str],
    ) -> list[str]:  # fmt: skip
        """The same where masks are slow: one branch tells a whole tile. What has no masks is read by a loop.

        place: where the tile's row of a number will be; then a line of that number is there first.
        """
        scope, body = self.scope, self.scope.body
        typ, element = scope.in_memory(dtype), mem_type(dtype)
        columns = body.let(f"icmp sle i64 {body.let(f'add i64 {column}, {LANES}')}, {self.stop}")
        rows = body.let(f"icmp eq i64 {scope.active}, {LANES}")
        some, whole, join = (body.fresh(name) for name in ("some", "whole", "join"))
        body.line(f"br i1 {body.let(f'and i1 {columns}, {rows}')}, label %{whole}, label %{some}")
        body.label(whole)
        all_of, line = [], at
        for _ in range(LANES):
            all_of.append(body.let(f"load {typ}, ptr {line}, align {dtype.itemsize}"))
            line = body.let(f"getelementptr {element}, ptr {line}, i64 {stride}")
        body.line(f"br label %{join}")
        body.label(some)
        if has_moves(dtype):
            some_of = self._lines(dtype, at, stride, column, rows_mask, load_some)
        else:
            with counted(body, "0", str(LANES), "1") as loop:
                own = body.let(f"getelementptr {element}, ptr {at}, i64 {scope.mul(loop.index, stride)}")
                x = load_some(scope, dtype, own, self._rows_of(column, loop.index, rows_mask)[1])
                body.line(f"store {typ} {x}, ptr {place(loop.index)}")
            some_of = [body.let(f"load {typ}, ptr {place(lane)}") for lane in range(LANES)]
        last = body.block
        body.line(f"br label %{join}")
        body.label(join)
        both = zip(all_of, some_of, strict=True)
        return [body.let(f"phi {typ} [{x}, %{whole}], [{y}, %{last}]") for x, y in both]

    def _rows_of(self, column: str, lane: str, rows_mask: str) -> tuple[str, str]:
        """Whether there is a line of a lane, and the rows that are read of it."""
        scope, body = self.scope, self.scope.body
        there = body.let(f"icmp slt i64 {body.let(f'add i64 {column}, {lane}')}, {self.stop}")
        return there, body.let(f"select i1 {there}, {scope.i1} {rows_mask}, {scope.i1} zeroinitializer")

    def _open_row(self, axis: int, index: str) -> None:
        self.scope.index[axis] = index
        open_level(self.scope, self.scope.levels.of_axis[axis], self.needed, self.accesses)

    def _points(self) -> None:
        """LANES points: the stage's values, one step of its folds, its stores."""
        scope = self.scope
        open_level(scope, scope.levels.lanes, self.needed, ())
        for fold, slots in self._kept():
            old = [read_slot(scope, s, t) for s, t in zip(slots, fold.types, strict=True)]
            for slot, kind, x in zip(slots, fold.types, self._step(fold, old), strict=True):
                write_slot(scope, slot, kind, x)
        store_all(scope, self.stage.stores)

    def _step(self, fold: Fold, old: list[str]) -> list[str]:
        """The state of a fold after the current values."""
        row = self.scope.splat("i64", self.scope.index[self.scope.kernel.axes - 1]) if fold.is_arg else ""
        return fold.step(self.scope, old, row, masked=False)

    def _blocked(self) -> Iterator[tuple[Fold, str, str]]:
        for fold, lanes, wide in zip(self.folds, self.lanes, self.wide, strict=True):
            if fold.blocked:
                yield fold, lanes[0], wide

    def _flush(self) -> None:
        scope = self.scope
        with self._columns():
            for fold, lanes, wide in self._blocked():
                part = read_slot(scope, lanes, fold.types[0])
                write_slot(scope, wide, WIDE, fold.widen(scope, part, read_slot(scope, wide, WIDE)))
                write_slot(scope, lanes, fold.types[0], fold.start[0])

    def _after(self) -> None:
        """Finish the folds: their results are in slots for later stages."""
        scope = self.scope
        assert self.own is not None, "a fold has slots"
        slots = [scope.slot(s) for s in self.own.results]
        with self._columns():
            for fold, slot, lanes, wide in zip(self.folds, slots, self.lanes, self.wide, strict=True):
                if fold.blocked:
                    x = fold.narrow(scope, read_slot(scope, wide, WIDE))
                else:
                    own = [read_slot(scope, s, t) for s, t in zip(lanes, fold.types, strict=True)]
                    x = fold.result_of_lanes(scope, own)
                write_slot(scope, slot, reg_vector(fold.dtype), x)
        scope.slots.update(zip(self.stage.reduces, slots, strict=True))
