"""Stages of a `vector='row'` or `'rows'` kernel: the lanes run along the innermost row axis.

In the latter the last two row axes have the order of one. What a sum adds up is first written to the stack, row by row,
where its elements are neighbours, and read from there in whole vectors.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.emit_levels import UNIT
from lazyt.backends.cpu.codegen.emit_reduce import WIDE, NoNumbers, folds_along
from lazyt.backends.cpu.codegen.emit_scope import I64, IOTA64, MASK
from lazyt.backends.cpu.codegen.emit_stores import store, store_all
from lazyt.backends.cpu.codegen.emit_values import open_level
from lazyt.backends.cpu.codegen.peel import peeled
from lazyt.backends.cpu.codegen.text import reg_type
from lazyt.backends.cpu.flags import switches
from lazyt.ir.kernel import CHUNK, FLUSH, LANES, used_accesses

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.backends.cpu.codegen.emit_reduce import Fold
    from lazyt.backends.cpu.codegen.emit_scope import Scope
    from lazyt.ir.kernel import Stage

    # The registers of each fold.
    State = list[list[str]]

# A stage that only asks whether any or all are true looks after so many elements whether that is decided.
LOOK = 256
# ... and goes past what is left by so many. NOTE: not at once: where an index depends on what was read, the next
# elements are read only when that is here.
FAR = 64 * LOOK


# So many elements of two axes lie in the stack at a time.
PART = 1024


class RowStage:
    """One stage for the current unit."""

    def __init__(self, scope: Scope, stage: Stage) -> None:
        self.scope = scope
        self.stage = stage
        self.folds = folds_along(scope.kernel, stage.reduces)
        self.needed = scope.levels.needed(scope.levels.roots(stage), scope.names)
        self.accesses = used_accesses(scope.kernel, self.needed, stage.stores)
        self.early = switches["early"] and scope.kernel.asks(stage)
        if self.early:
            scope.body.module.strategies["any and all end where they are decided"] = None

    def emit(self) -> None:
        scope = self.scope
        open_level(scope, UNIT, self.needed, self.accesses)
        if not self.stage.loops:
            for t in self.stage.stores:
                store(scope, t, UNIT)
            return
        start = [[f.wide_one] if f.blocked else f.start for f in self.folds]
        state = self._rows(0, start)
        for r, fold, own in zip(self.stage.reduces, self.folds, state, strict=True):
            if fold.blocked:
                scope.names[r] = fold.narrow_one(scope, own[0])
            else:
                lanes = state[self.folds.index(fold.numbers)] if isinstance(fold, NoNumbers) else own
                scope.names[r] = fold.result_across(scope, lanes)

    def _loop(
        self,
        span: tuple[str, str, int],
        blocked: str,
        state: State,
        inside: Callable[[str, State], State],
    ) -> State:
        """A loop that carries the state; blocked folds have one register of type `blocked` in it.

        `inside(index, state)` writes the loop's body and gives the next state.
        """
        kinds = [[blocked] if f.blocked and blocked else f.types for f in self.folds]
        flat = [pair for ks, own in zip(kinds, state, strict=True) for pair in zip(ks, own, strict=True)]

        def by_fold(registers: list[str]) -> State:
            left = iter(registers)
            return [[next(left) for _ in ks] for ks in kinds]

        with self.scope.loop(*span, flat) as loop:
            after = inside(loop.index, by_fold(loop.carried))
            loop.next = [x for own in after for x in own]
        return by_fold(loop.results)

    def _rows(self, k: int, state: State) -> State:
        """Row axis k and all inside it."""
        scope = self.scope
        axis = scope.kernel.outer + k
        extent = scope.extent[axis]

        def row(index: str, state: State) -> State:
            scope.index[axis] = index
            open_level(scope, scope.levels.of_axis[axis], self.needed, self.accesses)
            return self._rows(k + 1, state)

        if scope.kernel.vector == "rows" and k == scope.kernel.rows - 2 and any(f.blocked for f in self.folds):
            both = scope.body.let(f"mul i64 {extent}, {scope.extent[axis + 1]}")
            return self._chunks(both, partial(self._through_stack, axis), state)
        if k < scope.kernel.rows - 1:
            return self._loop(("0", extent, 1), "double", state, row)
        if any(f.blocked for f in self.folds):
            return self._blocks(axis, state)
        if self.early:
            return self._while_open(axis, extent, state)
        return self._walk(axis, "0", extent, state)

    def _while_open(self, axis: int, extent: str, state: State) -> State:
        """The innermost axis by FAR and by LOOK elements, of which those behind a decision have none left to do."""

        def some(index: str, state: State) -> State:
            stop = self._stop(index, LOOK, extent)
            return self._walk(axis, index, self._unless_decided(state, index, stop), state)

        def many(index: str, state: State) -> State:
            end = self._unless_decided(state, index, self._stop(index, FAR, extent))
            return self._loop((index, end, LOOK), "", state, some)

        end = self._unless_decided(state, "0", extent)
        return self._loop(("0", end, FAR), "", state, many)

    def _unless_decided(self, state: State, start: str, stop: str) -> str:
        """`stop`; `start` where no element can change any fold."""
        body, bits = self.scope.body, f"i{LANES}"
        decided = "true"
        for fold, own in zip(self.folds, state, strict=True):
            lanes = body.let(f"bitcast {MASK} {own[0]} to {bits}")
            one = body.let(f"icmp ne {bits} {lanes}, {0 if fold.name == 'any' else -1}")
            decided = body.let(f"and i1 {decided}, {one}")
        return body.let(f"select i1 {decided}, i64 {start}, i64 {stop}")

    def _blocks(self, axis: int, state: State) -> State:
        """The innermost axis, whose sums have float64 partials; short rows without the loops of long ones."""
        extent = self.scope.extent[axis]
        chunks = partial(self._chunks, extent, partial(self._walk, axis))
        if not peeled(self.scope.kernel, self.scope.levels, self.needed):
            return chunks(state)
        body = self.scope.body
        few = body.let(f"icmp sle i64 {extent}, {FLUSH * LANES}")
        short, long, join = (body.fresh(name) for name in ("short", "long", "join"))
        body.line(f"br i1 {few}, label %{short}, label %{long}")
        found, ends = [], []
        for label, how in ((short, partial(self._at_once, axis)), (long, chunks)):
            body.label(label)
            with self.scope.inside():
                found.append(how(state))
            ends.append(body.block)
            body.line(f"br label %{join}")
        body.label(join)

        def either(kind: str, registers: list[str]) -> str:
            ways = (f"[ {x}, %{block} ]" for x, block in zip(registers, ends, strict=True))
            return body.let(f"phi {kind} {', '.join(ways)}")

        kinds = [["double"] if f.blocked else f.types for f in self.folds]
        each = zip(kinds, *found, strict=True)
        return [[either(kind, own) for kind, *own in zip(ks, *both, strict=True)] for ks, *both in each]

    def _afresh(self, starts: list[list[str]], state: State) -> State:
        """Other registers of the blocked folds."""
        return [s if f.blocked else own for f, s, own in zip(self.folds, starts, state, strict=True)]

    def _at_once(self, axis: int, state: State) -> State:
        """A row that is one chunk, and flushed once."""
        scope = self.scope
        parts = self._walk(axis, "0", scope.extent[axis], self._afresh([f.start for f in self.folds], state))
        return [
            [f.add_to_total(scope, f.widen(scope, part[0], f.wide_start), own[0])] if f.blocked else part
            for f, part, own in zip(self.folds, parts, state, strict=True)
        ]

    def _chunks(self, extent: str, walk: Callable[[str, str, State], State], state: State) -> State:
        """Chunks with float64 partials, of FLUSH steps with fresh lanes; `walk(start, stop, state)` makes the steps."""
        scope, folds, afresh = self.scope, self.folds, self._afresh

        def chunk(index: str, state: State) -> State:
            stop = self._stop(index, CHUNK, extent)

            def flush(index: str, state: State) -> State:
                end = self._stop(index, FLUSH * LANES, stop)
                parts = walk(index, end, afresh([f.start for f in folds], state))
                return [
                    [f.widen(scope, part[0], own[0])] if f.blocked else part
                    for f, part, own in zip(folds, parts, state, strict=True)
                ]

            wide = afresh([[f.wide_start] for f in folds], state)
            wide = self._loop((index, stop, FLUSH * LANES), WIDE, wide, flush)
            return [
                [f.add_to_total(scope, w[0], own[0])] if f.blocked else w
                for f, w, own in zip(folds, wide, state, strict=True)
            ]

        return self._loop(("0", extent, CHUNK), "double", state, chunk)

    def _stop(self, index: str, step: int, stop: str) -> str:
        after = self.scope.body.let(f"add i64 {index}, {step}")
        return self.scope.body.call("i64", "llvm.smin.i64", ("i64", after), ("i64", stop))

    def _walk(self, axis: int, start: str, stop: str, state: State) -> State:
        """The lanes' loop over [start, stop); `start` is a multiple of LANES, and so is `stop` before the axis ends."""
        scope = self.scope

        def step(at: str, state: State, masked: bool) -> State:
            scope.index[axis] = at
            open_level(scope, scope.levels.lanes, self.needed, ())
            index = ""
            if any(f.is_arg for f in self.folds):
                index = scope.body.let(f"add {I64} {scope.splat('i64', at)}, {IOTA64}")
            after = [f.step(scope, own, index, masked) for f, own in zip(self.folds, state, strict=True)]
            store_all(scope, self.stage.stores)
            return after

        def some(at: str, state: State) -> State:
            scope.set_mask(at, scope.extent[axis])
            return step(at, state, True)

        def whole(at: str, state: State) -> State:
            scope.set_whole()
            return step(at, state, False)

        def last(at: str, state: State) -> State:
            scope.set_rest(scope.extent[axis])
            return step(at, state, True)

        if not peeled(scope.kernel, scope.levels, self.needed):
            return self._loop((start, stop, LANES), "", state, some)
        scope.body.module.strategies["rows by whole vectors, the last one masked"] = None
        end = scope.body.let(f"and i64 {stop}, {-LANES}")
        state = self._loop((start, end, LANES), "", state, whole)
        return self._loop((end, stop, LANES), "", state, last)

    # Two axes in the order of one

    def _through_stack(self, axis: int, start: str, stop: str, state: State) -> State:
        """The elements [start, stop) of `axis` and the one inside it, some at a time; as `_walk`."""

        def some(index: str, state: State) -> State:
            end = self._stop(index, PART, stop)
            return self._add_up(index, end, self._write(axis, index, end, state))

        self.scope.body.module.strategies["two axes in the order of one, through the stack"] = None
        return self._loop((start, stop, PART), "", state, some)

    def _write(self, axis: int, start: str, stop: str, state: State) -> State:
        """Write what sums add up to the stack, one behind the other, and do everything else.

        NOTE: lanes behind the last one of a row are written too, before those of the next row.
        """
        scope, body = self.scope, self.scope.body
        size, inside = scope.extent[axis + 1], scope.levels.of_axis[axis]
        before = body.let(f"add i64 {stop}, {body.let(f'sub i64 {size}, 1')}")
        first, last = (body.let(f"udiv i64 {x}, {size}") for x in (start, before))

        def row(index: str, state: State) -> State:
            scope.index[axis] = index
            open_level(scope, inside, self.needed, self.accesses)
            begin = body.let(f"mul i64 {index}, {size}")
            own = body.let(f"sub i64 {start}, {begin}")
            left = body.let(f"sub i64 {stop}, {begin}")
            low = body.call("i64", "llvm.smax.i64", ("i64", own), ("i64", "0"))
            high = body.call("i64", "llvm.smin.i64", ("i64", left), ("i64", size))

            def lanes(at: str, state: State) -> State:
                scope.index[axis + 1] = at
                scope.set_mask(at, high)
                open_level(scope, scope.levels.lanes, self.needed, ())
                place = body.let(f"sub i64 {at}, {own}")
                after = []
                for i, (fold, lanes) in enumerate(zip(self.folds, state, strict=True)):
                    if fold.blocked:
                        x, to = fold.operand_lanes(scope), self._in_stack(i, place)
                        body.line(f"store {fold.types[0]} {x}, ptr {to}, align {fold.lane_dtype.itemsize}")
                    after.append(lanes if fold.blocked else fold.step(scope, lanes, "", True))
                store_all(scope, self.stage.stores)
                return after

            return self._loop((low, high, LANES), "", state, lanes)

        return self._loop((first, last, 1), "", state, row)

    def _add_up(self, start: str, stop: str, state: State) -> State:
        """Add up what was written to the stack."""
        scope, body = self.scope, self.scope.body
        count = body.let(f"sub i64 {stop}, {start}")

        def step(at: str, state: State, mask: str) -> State:
            after = []
            for i, (fold, lanes) in enumerate(zip(self.folds, state, strict=True)):
                if not fold.blocked:
                    after.append(lanes)
                    continue
                (kind,) = fold.types
                x = body.let(f"load {kind}, ptr {self._in_stack(i, at)}, align 64")
                new = fold.combine(scope, lanes[0], x, LANES)
                after.append([body.let(f"select {MASK} {mask}, {kind} {new}, {kind} {lanes[0]}") if mask else new])
            return after

        def some(at: str, state: State) -> State:
            scope.set_mask(at, count)
            return step(at, state, scope.mask)

        whole = body.let(f"and i64 {count}, {-LANES}")
        state = self._loop(("0", whole, LANES), "", state, lambda at, state: step(at, state, ""))
        return self._loop((whole, count, LANES), "", state, some)

    def _in_stack(self, number: int, place: str) -> str:
        """The address of what a fold adds up at a place of the part that is done."""
        fold = self.folds[number]
        at = self.scope.in_stack(number, part_bytes(fold))
        return self.scope.body.let(f"getelementptr {reg_type(fold.lane_dtype)}, ptr {at}, i64 {place}")


def part_bytes(fold: Fold) -> int:
    """What a fold over two axes in the order of one has on the stack; the last row's lanes may go beyond a part."""
    return (PART + LANES) * fold.lane_dtype.itemsize
