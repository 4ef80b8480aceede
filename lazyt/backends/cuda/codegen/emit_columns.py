"""Column kernels: a thread takes a column (one outer index) and folds it row after row.

With several `groups` a block has 32 columns, and each group takes FLUSH rows in turn: their sums are added to the
column's in the order of the rows, by all groups alike, so that each has the result.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from lazyt.backends.cuda.codegen.emit_levels import UNIT
from lazyt.backends.cuda.codegen.emit_map import digits
from lazyt.backends.cuda.codegen.emit_memory import store
from lazyt.backends.cuda.codegen.emit_reduce import folds_of
from lazyt.backends.cuda.codegen.emit_stage import StageOverRows
from lazyt.backends.cuda.codegen.emit_values import open_level
from lazyt.backends.cuda.codegen.mapping import WARP
from lazyt.ir.kernel import FLUSH

if TYPE_CHECKING:
    from lazyt.backends.cuda.codegen.emit_scope import Scope
    from lazyt.ir.kernel import Stage


def emit_columns(scope: Scope) -> None:
    """The loop over blocks of columns, and in it all stages."""
    kernel, body, groups = scope.kernel, scope.body, scope.mapping.groups
    axis = kernel.vector_axis
    width = WARP if groups > 1 else scope.mapping.threads
    last = scope.extent(axis)
    sizes = [scope.extent(a) for a in range(kernel.outer - 1)]
    sizes.append(body.let("index", f"({last} + {width - 1}) / {width}", "tiles"))
    total = body.let("index", " * ".join(sizes), "total")
    if groups > 1:
        body.let("int", f"threadIdx.x % {WARP}", "lane")
        body.let("int", f"threadIdx.x / {WARP}", "group")
        for stage in kernel.stages:
            for fold in folds_of(kernel, stage.reduces):
                fold.declare_shared(scope, f"[{groups}][{WARP}]")
    with scope.loop(f"for (index u = (index)block; u < {total}; u += (index)blocks)"):
        digits(scope, "u", sizes)
        lane = "lane" if groups > 1 else "threadIdx.x"
        column = body.let("index", f"{scope.index[axis]} * {width} + {lane}", "column")
        inside = body.let("bool", f"{column} < {last}", "inside")
        if groups == 1:
            body.line(f"if (!{inside}) continue;")
            scope.index[axis] = column
        else:
            # A column past the end goes with the last one, as its threads must meet the others; it stores nothing.
            scope.index[axis] = body.let("index", f"lt_min_index({column}, {last} - 1)", "nearest")
        for i, stage in enumerate(kernel.stages):
            body.line("")
            body.line(f"// stage {i + 1}")
            ColumnStage(scope, stage, last=i + 1 == len(kernel.stages)).emit()


class ColumnStage(StageOverRows):
    """One stage for the current column."""

    def __init__(self, scope: Scope, stage: Stage, last: bool) -> None:
        super().__init__(scope, stage, last)
        self.groups = scope.mapping.groups

    def emit(self) -> None:
        scope, body = self.scope, self.scope.body
        open_level(scope, UNIT, self.needed, self.accesses)
        if not self.stage.loops:
            for t in self.stage.stores:
                store(scope, t, UNIT, "inside && group == 0" if self.groups > 1 else "")
            return
        for fold in self.folds:
            fold.declare(scope)
        self.walk_rows(scope.kernel.outer)
        for fold in self.folds:
            if self.groups > 1 and not fold.blocked:
                fold.across_shared(scope, "[group][lane]", "[w][lane]", self.groups)
            self.name_result(fold)
        if self.stage.stores and not self.last and self.groups > 1:
            # Another stage may read what this one has written.
            body.line("__syncthreads();")

    def unroll(self, axis: int) -> int:
        """What is loaded does not wait for what is added up."""
        return 16 if self.scope.mapping.single and axis == self.axis - 1 else 0

    def walk(self) -> None:
        """The last row axis: by FLUSH rows if a fold is blocked or groups share them."""
        scope, body, axis, n = self.scope, self.scope.body, self.axis, self.scope.extent(self.axis)
        if scope.mapping.single:
            for fold in self.blocked:
                fold.begin(scope, "part")
            scope.index[axis] = "0"
            self._point()
            self._flush()
            return
        rounds = bool(self.blocked) or self.groups > 1
        head = f"for (index round = 0; round < {n}; round += {FLUSH * self.groups})"
        with scope.loop(head) if rounds else nullcontext():
            first, stop = "0", n
            if rounds:
                first = "round" if self.groups == 1 else f"round + group * {FLUSH}"
                first = body.let("index", first, "first")
                stop = body.let("index", f"lt_min_index({first} + {FLUSH}, {n})", "stop")
            for fold in self.blocked:
                fold.begin(scope, "part")
            body.line("#pragma unroll 8")
            with scope.loop(f"for (index i{axis} = {first}; i{axis} < {stop}; i{axis}++)"):
                scope.index[axis] = f"i{axis}"
                self._point()
            self._flush()

    def _point(self) -> None:
        """One point of the column."""
        scope = self.scope
        open_level(scope, scope.levels.point, self.needed, ())
        for fold in self.folds:
            fold.step(scope, scope.index[scope.kernel.axes - 1], paired=False)
        for t in self.stage.stores:
            store(scope, t, scope.levels.point, "inside" if self.groups > 1 else "")

    def _flush(self) -> None:
        body = self.scope.body
        for f in self.blocked:
            part, total = f"part{f.number}", f"total{f.number}"
            if self.groups == 1:
                body.line(f"{total} = {f.op}::of({total}, (double){part});")
            else:
                body.line(f"shared_{part}[group][lane] = (double){part};")
        if self.groups == 1 or not self.blocked:
            return
        body.line("__syncthreads();")
        with body.block(f"for (int w = 0; w < {self.groups}; w++)"):
            for f in self.blocked:
                total = f"total{f.number}"
                body.line(f"{total} = {f.op}::of({total}, shared_part{f.number}[w][lane]);")
        body.line("__syncthreads();")
