"""Where in a thread's loops a value is computed: as far out as the axes that it moves along allow.

Levels, from the outside in: KERNEL (once a thread), UNIT (once a row, a column or a group of neighbours), then one
for each row axis; in a map `point`: each of the neighbours. In whole tiles a row axis comes before those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.forking import cached_property
from lazyt.ir.kernel import Kernel, Reduce, moving_axes, operands_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from lazyt.ir.kernel import Stage

KERNEL = 0
UNIT = 1


class Levels:
    """The level of every axis and value of one kernel."""

    def __init__(self, kernel: Kernel, neighbours: bool = False) -> None:
        self.kernel = kernel
        self.of_axis = [UNIT] * kernel.outer + [UNIT + 1 + k for k in range(kernel.rows)]
        if neighbours or not kernel.rows:
            self.of_axis[kernel.vector_axis] = UNIT + 1 + kernel.rows
        self.point = max(self.of_axis, default=UNIT)
        self.moves = moving_axes(kernel)

    @cached_property
    def of_value(self) -> list[int]:
        """NOTE: what uses a Reduce is never at KERNEL: a stage computes it."""
        use: list[bool] = []
        for value in self.kernel.values:
            use.append(isinstance(value, Reduce) or any(use[o] for o in operands_of(value)))
        inner = [max((self.of_axis[a] for a in moves), default=KERNEL) for moves in self.moves]
        return [max(level, UNIT) if late else level for level, late in zip(inner, use, strict=True)]

    def roots(self, stage: Stage) -> list[int]:
        """The values that a stage's reduces and stores read."""
        values = self.kernel.values
        operands = [values[r].operand for r in stage.reduces]  # type: ignore[union-attr]
        return operands + [t.value for t in stage.stores]

    def needed(self, roots: Iterable[int], known: Container[int], kept: Container[int] = ()) -> list[int]:
        """The values to compute for `roots`, in order; not those `known` nor below the `kept`."""
        found: set[int] = set()
        todo = list(roots)
        while todo:
            v = todo.pop()
            if v not in found and v not in known:
                found.add(v)
                if v not in kept:
                    todo.extend(operands_of(self.kernel.values[v]))
        return sorted(found)
