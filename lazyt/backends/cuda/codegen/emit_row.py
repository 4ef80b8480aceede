"""Row kernels: a team of warps takes a row (one outer index) and walks it in every stage.

The last row axis is walked by rounds: each warp of the team takes one segment (SEGMENT elements), a lane every 32nd
of its elements; or, in stages without a sum, whose order does not matter, `wide` neighbours at a time. With `steps`
what several stages need of the row stays in shared memory, where each warp reads only what it wrote itself; a row that
is one round is walked by steps whose number is known.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from lazyt.backends.cuda.codegen.emit_levels import UNIT
from lazyt.backends.cuda.codegen.emit_map import digits
from lazyt.backends.cuda.codegen.emit_memory import offset, pointer, store
from lazyt.backends.cuda.codegen.emit_neighbours import is_packed, is_plain, kept_type, neighbours
from lazyt.backends.cuda.codegen.emit_reduce import folds_of
from lazyt.backends.cuda.codegen.emit_scope import memory_type
from lazyt.backends.cuda.codegen.emit_stage import StageOverRows
from lazyt.backends.cuda.codegen.emit_values import open_level
from lazyt.backends.cuda.codegen.mapping import SEGMENT, WARP, is_of_loads, kept_slots, scratch_words, words_of
from lazyt.ir.kernel import CHUNK, LANES, Load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lazyt.backends.cuda.codegen.emit_reduce import Fold
    from lazyt.backends.cuda.codegen.emit_scope import Scope
    from lazyt.ir.kernel import Stage

# Groups of neighbours of loads that are made before the stores of other points; the registers of a block for those, so
# that another block has room beside it.
AHEAD, AHEAD_REGISTERS = 4, 4096
# Bytes that a lane has under way of one array that a row keeps, and of several.
UNDER_WAY = 128, 256


def emit_rows(scope: Scope) -> None:
    """The loop over rows, and in it all stages."""
    kernel, body, mapping = scope.kernel, scope.body, scope.mapping
    teams = mapping.threads // (WARP * mapping.warps)
    sizes = [scope.extent(a) for a in range(kernel.outer)]
    total = body.let("index", " * ".join(sizes) or "1", "total")
    body.let("int", f"threadIdx.x % {WARP}", "lane")
    if mapping.warps > 1:
        body.let("int", f"threadIdx.x / {WARP}", "warp")
        for stage in kernel.stages:
            for fold in folds_of(kernel, stage.reduces):
                fold.declare_shared(scope, f"[{mapping.warps}][{LANES}]" if fold.blocked else f"[{mapping.warps}]")
    if mapping.steps:
        _declare_kept(scope)
    if mapping.phase:
        _emit_phase(scope, sizes, total)
        return
    team = f"(index)block * {teams} + threadIdx.x / {WARP}" if mapping.warps == 1 else "(index)block"
    step = f"(index)blocks * {teams}" if teams > 1 else "(index)blocks"
    with scope.loop(f"for (index u = {team}; u < {total}; u += {step})"):
        digits(scope, "u", sizes)
        for i, stage in enumerate(kernel.stages):
            body.line("")
            body.line(f"// stage {i + 1}")
            RowStage(scope, stage, last=i + 1 == len(kernel.stages)).emit()


def _emit_phase(scope: Scope, sizes: list[str], total: str) -> None:
    """Phase 1 folds each portion of a row into scratch memory; phase 2 folds those, and does the other stages."""
    kernel, body, mapping = scope.kernel, scope.body, scope.mapping
    size = max(kernel.layout.size, 1)
    scope.argument("u64 *", "scratch", size)
    scope.argument("index", "portions", size + 1)
    body.let("index", str(scratch_words(kernel, mapping)), "words")
    stage = RowStage(scope, kernel.stages[0], last=False)
    if mapping.phase == 2:
        with scope.loop(f"for (index row = (index)block; row < {total}; row += (index)blocks)"):
            digits(scope, "row", sizes)
            stage.finish_portions()
            for other in kernel.stages[1:]:
                RowStage(scope, other, last=True).emit()
        return
    teams = mapping.threads // (WARP * mapping.warps)
    first = f"(index)block * {teams} + threadIdx.x / {WARP}" if mapping.segments else "(index)block"
    step = f"(index)blocks * {teams}" if teams > 1 else "(index)blocks"
    with scope.loop(f"for (index u = {first}; u < {total} * portions; u += {step})"):
        body.let("index", "u / portions", "row")
        body.let("index", "u % portions", "portion")
        digits(scope, "row", sizes)
        stage.fold_segment() if mapping.segments else stage.fold_chunk()


def _declare_kept(scope: Scope) -> None:
    """`row5[i1]`, the elements of the team's row, for each value that is kept."""
    kernel, body, mapping = scope.kernel, scope.body, scope.mapping
    body.line("extern __shared__ __align__(16) u8 kept[];")
    own = f" + threadIdx.x / {WARP} * {WARP * mapping.steps}" if mapping.warps == 1 else ""
    at = 0
    for itemsize, values in kept_slots(kernel, mapping.plain):
        for v in values:
            kind = kept_type(kernel.values[v])
            body.line(f"{kind} *const row{v} = ({kind} *)(kept + {at}){own};")
        at += itemsize * mapping.steps * mapping.threads


class RowStage(StageOverRows):
    """One stage for the current row."""

    def __init__(self, scope: Scope, stage: Stage, last: bool) -> None:
        super().__init__(scope, stage, last)
        self.warps = scope.mapping.warps
        self.steps = scope.mapping.steps
        self.at_once = scope.mapping.at_once
        # Several neighbours at a time, where the order of folding is free.
        self.wide = scope.mapping.wide if not self.blocked else 1

    def emit(self) -> None:
        scope, body = self.scope, self.scope.body
        open_level(scope, UNIT, self.needed, self.accesses)
        if not self.stage.loops:
            first = "lane == 0" if self.warps == 1 else "threadIdx.x == 0"
            for t in self.stage.stores:
                store(scope, t, UNIT, first)
            return
        for fold in self.folds:
            fold.declare(scope)
        self.walk_rows(scope.kernel.outer)
        for fold in self.folds:
            self._finish(fold)
            self.name_result(fold)
        if self.stage.stores and not self.last:
            # Another stage may read what this one has written.
            body.line("__syncwarp();" if self.warps == 1 else "__syncthreads();")
        elif self.steps and scope.mapping.wide > 1:
            body.line("__syncwarp();")  # as its lanes do with what the row keeps

    def fold_chunk(self) -> None:
        """One chunk's folds into scratch memory."""
        scope, body = self.scope, self.scope.body
        open_level(scope, UNIT, self.needed, self.accesses)
        for fold in self.folds:
            fold.declare(scope)
        for fold in self.blocked:
            fold.begin(scope, "wide", "double")
        start = body.let("index", f"portion * {CHUNK}", "start")
        stop = body.let("index", f"lt_min_index({start} + {CHUNK}, {scope.extent(self.axis)})", "stop")
        with scope.loop(f"for (index round = {start}; round < {stop}; round += {SEGMENT * self.warps})"):
            self._round(stop)
        for fold in self.folds:
            self._finish(fold)
        with body.block("if (warp == 0)"):
            self._put()

    def fold_segment(self) -> None:
        """A segment by one warp: its folds, of sums the parts, into scratch memory."""
        scope, body = self.scope, self.scope.body
        open_level(scope, UNIT, self.needed, self.accesses)
        for fold in self.folds:
            if not fold.blocked:
                fold.declare(scope)
        body.let("index", f"portion * {SEGMENT}", "round")
        self._round(scope.extent(self.axis), flush=False)
        for fold in self.folds:
            self._finish(fold)
        self._put()

    def _put(self) -> None:
        slot = 0
        for fold in self.folds:
            fold.put(self.scope, slot)
            slot += words_of(fold, self.scope.mapping)

    def finish_portions(self) -> None:
        """The folds of all portions of a row, from scratch memory."""
        scope = self.scope
        slot = 0
        for fold in self.folds:
            fold.declare(scope)
            fold.get(scope, slot)
            self._finish(fold)
            self.name_result(fold)
            slot += words_of(fold, scope.mapping)

    def walk(self) -> None:
        """The last axis: chunks with float64 partials if a fold is blocked, rounds of the team in them."""
        scope, body = self.scope, self.scope.body
        n = scope.extent(self.axis)
        if self.steps and self._keep_loads(n):
            return
        chunked = bool(self.blocked) and not self.at_once
        with scope.loop(f"for (index chunk = 0; chunk < {n}; chunk += {CHUNK})") if chunked else nullcontext():
            stop = body.let("index", f"lt_min_index(chunk + {CHUNK}, {n})", "stop") if chunked else n
            for fold in self.blocked:
                fold.begin(scope, "wide", "double")
            with self._rounds("chunk" if chunked else "0", stop):
                self._round(stop)
            for fold in self.blocked:
                total = f"total{fold.number}"
                body.line(f"{total} = {fold.op}::of({total}, lt_tree<{fold.op}>(wide{fold.number}));")

    def _rounds(self, start: str, stop: str) -> AbstractContextManager[None]:
        """The loop over the team's rounds, unless there is only one."""
        head = f"for (index round = {start}; round < {stop}; round += {SEGMENT * self.warps})"
        return nullcontext() if self.at_once else self.scope.loop(head)

    @contextmanager
    def _points(self, wide: int, unroll: int, stop: str, ahead: Sequence[int] = (), groups: int = 1) -> Iterator[str]:
        """The loop over a lane's points, or over groups of `wide` neighbours, `unroll` points at a time: its `_live`.

        The loads `ahead` are made for so many `groups` at a time: `w5[t]` of the current one.
        """
        scope, body = self.scope, self.scope.body
        if self.at_once:
            start = "" if self.warps == 1 else f"warp * {SEGMENT} + "
            head, start = f"for (int s = 0; s < {self.steps // wide}; s += {groups})", f"{start}s * {WARP * wide}"
        else:
            own = "round" if self.warps == 1 else f"round + warp * {SEGMENT}"
            first = body.let("index", own, "first")
            end = body.let("index", f"lt_min_index({first} + {SEGMENT}, {stop})", "end")
            head, start = f"for (index base = {first}; base < {end}; base += {WARP * wide * groups})", "base"
        lane = "lane" if wide == 1 else f"lane * {wide}"
        body.line(f"#pragma unroll {max(unroll // wide // groups, 1)}")
        with scope.loop(head):
            for v in ahead:
                size = f"[{groups}]" if wide == 1 else f"[{groups}][{wide}]"
                body.line(f"{kept_type(scope.kernel.values[v])} w{v}{size};")
            for loads in (True, False) if ahead else (False,):
                if ahead:
                    start_of_group = f"{start} + t * {WARP * wide}"
                    body.line("#pragma unroll")
                with scope.loop(f"for (int t = 0; t < {groups}; t++)") if ahead else nullcontext():
                    at = f"{start_of_group if ahead else start} + {lane}"
                    scope.index[self.axis] = body.let("index", at, f"i{self.axis}")
                    live = self._live(wide, groups)
                    if loads:
                        self._load_group(ahead, wide, live)
                    else:
                        yield live

    def _live(self, wide: int, groups: int) -> str:
        """How many of the neighbours are inside, or the condition that the one point is; "" if all always are."""
        scope, n, even = self.scope, self.scope.extent(self.axis), self.scope.mapping.even
        if scope.mapping.exact if self.at_once else even % (WARP * wide * groups) == 0:
            return ""
        if wide == 1:
            return f"{scope.index[self.axis]} < {n}"
        live = f"(int)lt_min_index({n} - {scope.index[self.axis]}, (index){wide})"
        if even % wide == 0:
            live = f"{scope.index[self.axis]} < {n} ? {wide} : 0"
        return scope.body.let("int", live, "live")

    def _ahead(self) -> tuple[list[int], int]:
        """The loads that are made before the stores of other points, and for how many groups of neighbours at a time.

        No load is moved before a store, which might be to the same place: each group would wait for its own.
        """
        scope, values, wide = self.scope, self.scope.kernel.values, self.wide
        if not self.stage.stores:
            return [], 1
        found = [v for v in self.needed if is_plain(scope, v) and v not in scope.kept]
        if wide > 1:
            found = [v for v in found if is_packed(scope, v)]
        registers = sum(-(-values[v].dtype.itemsize * wide // 4) for v in found)
        # A round's groups are divided without a rest, so that a warp does not go on in another's segment.
        count = (self.steps if self.at_once else SEGMENT // WARP) // wide
        fitting = [
            k
            for k in range(2, AHEAD + 1)
            if count % k == 0 and k * registers * scope.mapping.threads <= AHEAD_REGISTERS
        ]
        return (found, fitting[-1]) if found and fitting else ([], 1)

    def _load_group(self, ahead: Sequence[int], wide: int, live: str) -> None:
        """The loads of one group of neighbours, into `w5[t]`."""
        scope, body = self.scope, self.scope.body
        for v in ahead:
            value = scope.kernel.values[v]
            assert isinstance(value, Load)
            at, kind = pointer(scope, value.access, scope.levels.point - 1), memory_type(value.dtype)
            if wide > 1:
                body.line(f"lt_load(w{v}[t], {at} + {scope.index[self.axis]}{f', {live}' if live else ''});")
            else:
                element = f"{at}[{offset(scope, value.access, scope.levels.point) or 0}]"
                body.line(f"w{v}[t] = {f'{live} ? {element} : ({kind})0' if live else element};")

    def _round(self, stop: str, flush: bool = True) -> None:
        scope, body = self.scope, self.scope.body
        for fold in self.blocked:
            fold.begin(scope, "part")
        computed = self._kept(loaded=False) if self.steps else []
        # A segment by itself is a wait for its loads, so more of them are under way.
        unroll = 8 if scope.mapping.segments or self.wide > 1 else 4
        ahead, groups = self._ahead()
        before = dict(scope.kept)
        with self._points(self.wide, unroll, stop, ahead, groups) as live:
            if self.wide > 1:
                known = {v: f"w{v}[t][k]" for v in ahead}
                start = scope.index[self.axis]
                neighbours(scope, self.needed, self.stage.stores, start, live, self.folds, computed, known)
            else:
                scope.live = live
                scope.kept.update({v: f"w{v}[t]" for v in ahead})
                open_level(scope, scope.levels.point, self.needed, ())
                for v in computed:
                    body.line(f"{self._slot(v)} = {scope.names[v]};")
                for fold in self.folds:
                    fold.step(scope, scope.index[self.axis], paired=True)
                for t in self.stage.stores:
                    store(scope, t, scope.levels.point, scope.live)
        scope.kept = before | {v: self._slot(v) for v in computed}
        if flush:
            self._flush()

    def _flush(self) -> None:
        """The parts of a round added to the wide sums, segment after segment."""
        body = self.scope.body
        if self.warps == 1:
            for f in self.blocked:
                body.line(f"wide{f.number} = {f.op}::of(wide{f.number}, (double)part{f.number});")
            return
        if not self.blocked:
            return
        with body.block(f"if (lane < {LANES})"):
            for f in self.blocked:
                body.line(f"shared_part{f.number}[warp][lane] = (double)part{f.number};")
        body.line("__syncthreads();")
        with body.block(f"for (int w = 0; w < {self.warps}; w++)"):
            for f in self.blocked:
                slot = f"shared_part{f.number}[w][lane % {LANES}]"
                body.line(f"wide{f.number} = {f.op}::of(wide{f.number}, {slot});")
        body.line("__syncthreads();")

    def _finish(self, fold: Fold) -> None:
        """Every thread has what the team's lanes folded; a blocked fold is there already."""
        if fold.blocked:
            return
        fold.across_lanes(self.scope)
        if self.warps > 1:
            fold.across_shared(self.scope, "[warp]", "[w]", self.warps, "lane == 0")

    def _kept(self, loaded: bool) -> list[int]:
        """What is kept from this stage on: what is loaded, also for later ones, or what this one computes."""
        kernel = self.scope.kernel
        slots = kept_slots(kernel, self.scope.mapping.plain)
        kept = sorted(v for _, slot in slots for v in slot if is_of_loads(kernel, v) == loaded)
        return [v for v in kept if v not in self.scope.kept and (v in self.needed or (loaded and self._is_there(v)))]

    def _is_there(self, v: int) -> bool:
        """Whether a kept value is of loads of what the kernel does not write itself."""
        accesses = self.scope.kernel.accesses
        return not any(accesses[load.access].writes for load in self._loads_of(v))

    def _keep_loads(self, n: str) -> bool:
        """What several stages read, loaded by the first of them; whether its folds, of any order, were done with it."""
        scope, body = self.scope, self.scope.body
        kept = self._kept(loaded=True)
        if not kept:
            return False
        loads = [x for v in kept for x in self._loads_of(v)]
        packed = all(scope.kernel.accesses[x.access].classes[self.axis] == "1" for x in loads)
        wide = scope.mapping.wide if packed else 1
        folds = wide > 1 and not (self.blocked or self.stage.stores or self._kept(loaded=False))
        at_hand = {v: f"w{v}[k]" if isinstance(scope.kernel.values[v], Load) else f"w{v}_kept[k]" for v in kept}
        size = sum(scope.kernel.accesses[x.access].dtype.itemsize for x in loads) * wide
        under_way = max(min(UNDER_WAY[len(loads) > 1] // size, 16), 1)
        under_way = 1 << under_way.bit_length() - 1
        with self._rounds("0", n), self._points(wide, under_way * wide, n) as live:
            i = scope.index[self.axis]
            for v in kept:
                value = scope.kernel.values[v]
                if not isinstance(value, Load):
                    self._keep_value(v, wide, live)
                    continue
                at, kind = pointer(scope, value.access, scope.levels.point - 1), memory_type(value.dtype)
                if wide == 1:
                    element = f"{at}[{offset(scope, value.access, scope.levels.point)}]"
                    body.line(f"{self._slot(v)} = {f'{live} ? {element} : ({kind})0' if live else element};")
                    continue
                body.line(f"{kind} w{v}[{wide}];")
                body.line(f"lt_load(w{v}, {at} + {i}{f', {live}' if live else ''});")
                body.line(f"lt_store(row{v} + {i}, w{v});")
            if folds:
                needed = scope.levels.needed(scope.levels.roots(self.stage), scope.names, at_hand)
                neighbours(scope, needed, (), i, live, self.folds, known=at_hand)
        if scope.mapping.wide > 1:
            body.line("__syncwarp();")
        scope.kept.update({v: self._slot(v) for v in kept})
        self.needed = scope.levels.needed(scope.levels.roots(self.stage), scope.names, scope.kept)
        return folds

    def _loads_of(self, v: int) -> list[Load]:
        """The loads that a kept value is, or is computed from."""
        values = [self.scope.kernel.values[x] for x in self.scope.levels.needed([v], self.scope.names)]
        return [x for x in values if isinstance(x, Load)]

    def _keep_value(self, v: int, wide: int, live: str) -> None:
        """A value of loads, computed as they come."""
        scope = self.scope
        needed = scope.levels.needed([v], scope.names)
        if wide > 1:
            neighbours(scope, needed, (), scope.index[self.axis], live, keeps=[v])
            return
        with scope.inside():
            scope.live = live
            open_level(scope, scope.levels.point, needed, ())
            scope.body.line(f"{self._slot(v)} = {scope.names[v]};")

    def _slot(self, v: int) -> str:
        return f"row{v}[i{self.axis}]"
