"""Where in the loop nest a value is computed: as far out as the axes that it moves along allow.

Levels, from the outside in: KERNEL (once a call), UNIT (once a unit of parallel work), one for each
row axis that is not vectorised, and `lanes`: the innermost one, where 16 points stand side by side.
With `vector='outer'` the lanes are inside the row loops, so that memory is read in its order; what
a lane keeps between rows then lives in a slot on the stack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.forking import cached_property
from lazyt.ir.kernel import Cast, Check, Gather, Kernel, Load, Op, Reduce, moving_axes, operands_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from lazyt.ir.kernel import Stage

KERNEL = 0
UNIT = 1


class Levels:
    """The loop level of every axis and value of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        serial = kernel.rows - (kernel.vector != "outer")
        self.lanes = UNIT + serial + 1
        self.of_axis = [UNIT] * kernel.outer + [UNIT + 1 + k for k in range(kernel.rows)]
        self.of_axis[kernel.vector_axis] = self.lanes
        self.moves = moving_axes(kernel)

    @cached_property
    def of_value(self) -> list[int]:
        """NOTE: a Reduce is never at KERNEL, even without outer axes: its stage computes it."""
        levels = []
        for moves, late in zip(self.moves, self._use_reduces, strict=True):
            level = max((self.of_axis[a] for a in moves), default=KERNEL)
            levels.append(max(level, UNIT) if late else level)
        return levels

    @cached_property
    def _use_reduces(self) -> list[bool]:
        """Which values can be computed only after some stage finished a reduction."""
        use: list[bool] = []
        for value in self.kernel.values:
            use.append(isinstance(value, Reduce) or any(use[o] for o in operands_of(value)))
        return use

    def is_vector(self, v: int) -> bool:
        """Whether the lanes of value `v` may differ."""
        return self.kernel.vector_axis in self.moves[v]

    def axes_at(self, level: int) -> list[int]:
        """The axes whose index becomes known at this level (several at UNIT)."""
        return [a for a, at in enumerate(self.of_axis) if at == level]

    def roots(self, stage: Stage) -> list[int]:
        """The values that a stage's reduces and stores read."""
        values = self.kernel.values
        operands = [values[r].operand for r in stage.reduces]  # type: ignore[union-attr]
        return operands + [t.value for t in stage.stores]

    def needed(self, roots: Iterable[int], known: Container[int] = (), kept: Container[int] = ()) -> list[int]:
        """The values to compute for `roots`, in order; not those `known` nor below the `kept`."""
        found: set[int] = set()
        todo = list(roots)
        while todo:
            v = todo.pop()
            if v in found or v in known:
                continue
            found.add(v)
            if v not in kept:
                todo.extend(operands_of(self.kernel.values[v]))
        return sorted(found)

    def kept_in_slots(self, stage: Stage) -> list[int]:
        """Values of a `vector='outer'` stage that move along the lanes but along no row axis.

        The lanes loop is inside the row loops, so such a value would be computed again for every
        row. Those that cost more than a load are computed once instead and kept on the stack: the
        ones that row-dependent values (or the stage itself) read directly.
        """
        values, rows = self.kernel.values, frozenset(range(self.kernel.outer, self.kernel.axes))

        def fixed(v: int) -> bool:
            if self.of_value[v] != self.lanes or self.moves[v] & rows:
                return False
            value = values[v]
            return isinstance(value, Op | Cast | Gather | Check) or (
                isinstance(value, Load) and value.where is not None
            )

        kept: set[int] = set()
        todo, seen = self.roots(stage), set[int]()
        while todo:
            v = todo.pop()
            if v in seen:
                continue
            seen.add(v)
            if fixed(v):
                kept.add(v)
            else:
                todo.extend(operands_of(values[v]))
        return sorted(kept)
