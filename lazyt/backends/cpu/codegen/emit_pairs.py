"""Row kernels over pairs: short rows of one array against those of another (distances of points to centres).

    y[i, j] = sum over k of (a[i, k] - b[j, k])**2

A row of few elements leaves lanes along k with more folding than work. Here the lanes are 16 outputs next to each
other instead, and k is iterated one by one. The order of a sum is that of any row: each output keeps its LANES partial
sums apart, on the stack, and folds them by the same tree, so the bits are the same. What b gives to 16 outputs is
gathered once, for all i.
"""

from __future__ import annotations

from dataclasses import replace

from lazyt.backends.cpu.codegen.column_slots import lanes_bytes
from lazyt.backends.cpu.codegen.emit_levels import KERNEL, UNIT, Levels
from lazyt.backends.cpu.codegen.emit_memory import gather_lanes, pointer
from lazyt.backends.cpu.codegen.emit_reduce import WIDE, Fold, folds_of
from lazyt.backends.cpu.codegen.emit_scope import Scope
from lazyt.backends.cpu.codegen.emit_stores import store_all
from lazyt.backends.cpu.codegen.emit_values import open_level
from lazyt.backends.cpu.codegen.lines import Module
from lazyt.backends.cpu.codegen.peel import has_costly
from lazyt.backends.cpu.codegen.text import Body, mem_type
from lazyt.backends.cpu.flags import switches
from lazyt.ir.kernel import FLUSH, LANES, Cast, Check, Gather, Kernel, Load, Reduce, used_accesses

# Rows of at most so many elements: what is gathered of them stays in the first cache, and no lane is flushed before
# the end.
SHORT_ROW = 256
assert SHORT_ROW <= FLUSH * LANES
# Fewer outputs next to each other leave lanes empty.
FEW = 8
# Values that are computed LANES times in the text of a loop.
SHORT_BODY = 12
FLOATS = f"<{LANES} x float>"
# Bytes of what is gathered and of partial sums.
SLOT_BYTES = 40 << 10
# So many rows of pairs make gathering worth it.
PAIR_ROWS = 256


def over_pairs(kernel: Kernel) -> bool:
    """Whether a kernel reduces rows to which each operand gives either what moves with i or what moves with j."""
    if not switches["pairs"] or (kernel.vector, kernel.outer, kernel.rows) != ("row", 2, 1):
        return False
    loops = [s for s in kernel.stages if s.loops]
    if len(loops) != 1 or loops[0].stores or kernel.stages[0] is not loops[0]:
        return False
    for v in kernel.values:
        if isinstance(v, Gather | Check) or (isinstance(v, Load) and v.where is not None):
            return False
        if isinstance(v, Reduce) and v.name in ("argmax", "argmin"):
            return False
    reduced = [v for v in Levels(kernel).needed(Levels(kernel).roots(loops[0])) if isinstance(kernel.values[v], Load)]
    classes = [kernel.accesses[v.access].classes for v in map(kernel.values.__getitem__, reduced)]  # type: ignore[union-attr]
    moves = [(c[0] != "0", c[1] != "0") for c in classes]
    apart = (True, True) not in moves and (True, False) in moves and (False, True) in moves
    return apart and pair_slots(kernel) <= SLOT_BYTES


def pair_slots(kernel: Kernel) -> int:
    """Bytes of the slots of the function over pairs: its folds, and what it gathers."""
    loop = next(s for s in kernel.stages if s.loops)
    folds = sum(lanes_bytes(f.types[0]) * (LANES if f.blocked else 1) for f in folds_of(kernel, loop.reduces))
    gathered = {v.access for v in kernel.values if isinstance(v, Load) and _Pairs.gathers(kernel, v.access)}
    tiles = sum(lanes_bytes(mem_type(kernel.accesses[a].dtype)) * SHORT_ROW for a in gathered)
    return folds + tiles


def emit_pairs(kernel: Kernel, name: str, rows: str, module: Module) -> str:
    """The text of `name`, which calls the function `rows`, for the same kernel, where rows are long or outputs few."""
    pairs = f"{name}.pairs"
    inner = _Pairs(kernel, module).function(pairs)
    at = kernel.layout.extents
    call = f"call void @{pairs}(ptr %args,"
    return f"""{inner}
define void @{name}(ptr noalias %args, i64 %begin, i64 %end) nounwind {{
entry:
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %choose, label %done
choose:
  %width.p = getelementptr i64, ptr %args, i64 {at + 1}
  %width = load i64, ptr %width.p
  %length.p = getelementptr i64, ptr %args, i64 {at + 2}
  %length = load i64, ptr %length.p
  %long = icmp sgt i64 %length, {SHORT_ROW}
  %few = icmp slt i64 %width, {FEW}
  %usual = or i1 %long, %few
  br i1 %usual, label %rows, label %pairs
rows:
  call void @{rows}(ptr %args, i64 %begin, i64 %end)
  br label %done
pairs:
  %less = sub i64 %width, 1
  %above = add i64 %begin, %less
  %first = sdiv i64 %above, %width
  %last = sdiv i64 %end, %width
  %start = mul i64 %last, %width
  %to = sub i64 %end, %start
  %next = add i64 %last, 1
  %within = icmp sgt i64 %first, %last
  br i1 %within, label %one, label %several
one:
  %from.one = sub i64 %begin, %start
  {call} i64 %last, i64 %next, i64 %from.one, i64 %to)
  br label %done
several:
  %before = sub i64 %first, 1
  %start.before = mul i64 %before, %width
  %from = sub i64 %begin, %start.before
  {call} i64 %before, i64 %first, i64 %from, i64 %width)
  {call} i64 %first, i64 %last, i64 0, i64 %width)
  {call} i64 %last, i64 %next, i64 0, i64 %to)
  br label %done
done:
  ret void
}}
"""


class _Pairs:
    """All outputs [i0, i1) x [j0, j1)."""

    def __init__(self, kernel: Kernel, module: Module) -> None:
        self.kernel = replace(kernel, vector="outer")
        self.levels = levels = Levels(self.kernel)
        self.body = Body(module, block="start")
        self.scope = Scope(self.kernel, levels, self.body)
        self.row_level = levels.of_axis[2]
        loop, *once = self.kernel.stages
        self.loop, self.once = loop, once
        self.folds = folds_of(self.kernel, loop.reduces)
        self.reduced = levels.needed(levels.roots(loop))
        self.roots = [v for s in self.kernel.stages for v in levels.roots(s)]

    def function(self, name: str) -> str:
        scope, body, levels = self.scope, self.body, self.levels
        for axis in range(3):
            scope.extent[axis] = scope.argument(self.kernel.layout.extents + axis)
        body.lines.append("start:")
        open_level(scope, KERNEL, levels.needed(self.roots), ())
        self.slots = [scope.alloca(lanes_bytes(f.types[0]) * (LANES if f.blocked else 1)) for f in self.folds]
        with scope.loop("%j0", "%j1", LANES) as columns:
            scope.index[1] = columns.index
            scope.set_mask(columns.index, "%j1")
            scope.slot_at = "0"
            self._gather()
            still = [v for v in self.reduced if levels.of_value[v] == levels.lanes and levels.moves[v] <= {1}]
            open_level(scope, levels.lanes, still, ())
            with scope.loop("%i0", "%i1", 1) as line:
                scope.index[0] = line.index
                self._outputs()
        body.line("br label %done")
        head = f"define internal void @{name}(ptr noalias %args, i64 %i0, i64 %i1, i64 %j0, i64 %j1) nounwind {{"
        guard = [
            "entry:",
            *scope.entry,
            "  %lines = icmp slt i64 %i0, %i1",
            "  %columns = icmp slt i64 %j0, %j1",
            "  %some = and i1 %lines, %columns",
            "  br i1 %some, label %start, label %done",
        ]
        return "\n".join([head, *guard, body.text(), "done:", "  ret void", "}"])

    @staticmethod
    def gathers(kernel: Kernel, access: int) -> bool:
        classes = kernel.accesses[access].classes
        return classes[1] == "n" and classes[2] != "0"

    def _gather(self) -> None:
        """Whole rows of what moves with j at a stride, for these lanes: k by k on the stack."""
        scope, body = self.scope, self.body
        strided = {
            v.access
            for i in self.reduced
            if isinstance(v := self.kernel.values[i], Load) and self.gathers(self.kernel, v.access)
        }
        for access in sorted(strided):
            what = self.kernel.accesses[access]
            typ = scope.in_memory(what.dtype)
            tile = scope.alloca(lanes_bytes(mem_type(what.dtype)) * SHORT_ROW)
            offsets = scope.lane_offsets(scope.stride(access, 1))
            with scope.loop("0", scope.extent[2], 1) as row:
                scope.index[2] = row.index
                at = pointer(scope, access, self.levels.lanes)
                x = gather_lanes(scope, what.dtype, at, offsets, scope.mask)
                own = body.let(f"getelementptr {typ}, ptr {tile}, i64 {row.index}")
                body.line(f"store {typ} {x}, ptr {own}")
            scope.tiles[access] = tile

    def _outputs(self) -> None:
        """LANES outputs of one i."""
        scope, body, levels = self.scope, self.body, self.levels
        stores = tuple(t for s in self.once for t in s.stores)
        read = used_accesses(self.kernel, levels.needed(self.roots), stores)
        open_level(scope, UNIT, levels.needed(self.roots), read - set(scope.tiles))
        first = self._whole_blocks() if self._fits() else "0"
        if first == "0":
            for fold, slot in zip(self.folds, self.slots, strict=True):
                for lane in range(LANES if fold.blocked else 1):
                    body.line(f"store {fold.types[0]} {fold.start[0]}, ptr {self._at(fold, slot, str(lane))}")
        with scope.loop(first, scope.extent[2], LANES) as block:
            after = body.let(f"add i64 {block.index}, {LANES}")
            stop = body.call("i64", "llvm.smin.i64", ("i64", after), ("i64", scope.extent[2]))
            with scope.loop(block.index, stop, 1) as row:
                self._point(row.index)
                own = body.let(f"sub i64 {row.index}, {block.index}")
                for fold, slot in zip(self.folds, self.slots, strict=True):
                    at = self._at(fold, slot, own if fold.blocked else "0")
                    old = body.let(f"load {fold.types[0]}, ptr {at}")
                    (new,) = fold.step(scope, [old], "", masked=False)
                    body.line(f"store {fold.types[0]} {new}, ptr {at}")
        for r, fold, slot in zip(self.loop.reduces, self.folds, self.slots, strict=True):
            if fold.blocked:
                scope.names[r] = fold.narrow(scope, self._tree(fold, slot, 0, 1))
            else:
                last = body.let(f"load {fold.types[0]}, ptr {self._at(fold, slot, '0')}")
                scope.names[r] = fold.result_of_lanes(scope, [last])
        for stage in self.once:
            open_level(scope, levels.lanes, levels.needed(levels.roots(stage), scope.names), ())
            store_all(scope, stage.stores)

    def _point(self, row: str) -> None:
        """The values at one k."""
        scope = self.scope
        scope.index[2] = scope.tile_at = row
        open_level(scope, self.row_level, self.reduced, used_accesses(self.kernel, self.reduced, ()) - set(scope.tiles))
        open_level(scope, self.levels.lanes, self.reduced, ())

    def _fits(self) -> bool:
        """Whether all partial sums are in registers, and what is done LANES times over for them is short."""
        (fold, *others) = self.folds
        own = [v for v in self.reduced if self.levels.of_value[v] >= self.row_level]
        short = len(own) <= SHORT_BODY and all(
            not isinstance(v, Cast) for v in map(self.kernel.values.__getitem__, own)
        )
        return short and not others and fold.blocked and fold.types[0] == FLOATS and not has_costly(self.kernel, own)

    def _whole_blocks(self) -> str:
        """As many blocks of LANES rows as there are, each partial sum in a register; where the rest begins."""
        scope, body = self.scope, self.body
        ((fold, slot),) = zip(self.folds, self.slots, strict=True)
        stop = body.let(f"and i64 {scope.extent[2]}, {-LANES}")
        with scope.loop("0", stop, LANES, [(FLOATS, fold.start[0])] * LANES) as block:
            for lane, old in enumerate(block.carried):
                with scope.inside():
                    self._point(body.let(f"add i64 {block.index}, {lane}"))
                    block.next += fold.step(scope, [old], "", masked=False)
        for k, x in enumerate(block.results):
            body.line(f"store {FLOATS} {x}, ptr {self._at(fold, slot, str(k))}")
        return stop

    def _at(self, fold: Fold, slot: str, lane: str) -> str:
        return self.body.let(f"getelementptr {fold.types[0]}, ptr {slot}, i64 {lane}")

    def _tree(self, fold: Fold, slot: str, lane: int, width: int) -> str:
        """The float64 total of the partial sums `lane`, `lane` + `width`, ...: halves added to halves, as any row's.

        NOTE: that begins from the identity, which changes no value that began from it.
        """
        if width == LANES:
            part = self.body.let(f"load {fold.types[0]}, ptr {self._at(fold, slot, str(lane))}")
            return part if fold.types[0] == WIDE else self.body.let(f"fpext {fold.types[0]} {part} to {WIDE}")
        low, high = (self._tree(fold, slot, at, 2 * width) for at in (lane, lane + width))
        return self.body.let(f"{fold.wide_op} {WIDE} {low}, {high}")
