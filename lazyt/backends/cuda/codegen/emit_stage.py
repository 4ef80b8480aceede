"""One stage of a kernel over rows, for a team of threads on a row or one thread on a column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from lazyt.backends.cuda.codegen.emit_reduce import folds_of
from lazyt.backends.cuda.codegen.emit_values import open_level
from lazyt.backends.cuda.codegen.text import type_of
from lazyt.backends.math.elements import reg_type
from lazyt.ir.kernel import used_accesses

if TYPE_CHECKING:
    from lazyt.backends.cuda.codegen.emit_reduce import Fold
    from lazyt.backends.cuda.codegen.emit_scope import Scope
    from lazyt.ir.kernel import Stage


class StageOverRows(ABC):
    """One stage for the current outer index: what it folds and needs, and the loops over all row axes but the last."""

    def __init__(self, scope: Scope, stage: Stage, last: bool) -> None:
        self.scope = scope
        self.stage = stage
        self.last = last
        self.folds = folds_of(scope.kernel, stage.reduces)
        self.blocked = [f for f in self.folds if f.blocked]
        self.needed = scope.levels.needed(scope.levels.roots(stage), scope.names, scope.kept)
        self.accesses = used_accesses(scope.kernel, self.needed, stage.stores)
        self.axis = scope.kernel.axes - 1

    @abstractmethod
    def walk(self) -> None:
        """The last row axis."""

    def unroll(self, axis: int) -> int:
        """How often the loop over a row axis that is not the last is unrolled; 0 leaves that to the compiler."""
        return 0

    def walk_rows(self, axis: int) -> None:
        """Row axis `axis` and all inside it."""
        scope = self.scope
        if axis == self.axis:
            self.walk()
            return
        if times := self.unroll(axis):
            scope.body.line(f"#pragma unroll {times}")
        with scope.loop(f"for (index i{axis} = 0; i{axis} < {scope.extent(axis)}; i{axis}++)"):
            scope.index[axis] = f"i{axis}"
            open_level(scope, scope.levels.of_axis[axis], self.needed, self.accesses)
            self.walk_rows(axis + 1)

    def name_result(self, fold: Fold) -> None:
        """From here on a finished fold has a name."""
        scope = self.scope
        scope.names[fold.number] = scope.body.let(type_of(reg_type(fold.dtype)), fold.result(scope), f"v{fold.number}")
