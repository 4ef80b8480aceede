"""Maps: a thread takes `wide` neighbours along the vector axis, then goes on by the size of the grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cuda.codegen.emit_levels import UNIT
from lazyt.backends.cuda.codegen.emit_memory import store
from lazyt.backends.cuda.codegen.emit_neighbours import neighbours
from lazyt.backends.cuda.codegen.emit_values import open_level
from lazyt.ir.kernel import used_accesses

if TYPE_CHECKING:
    from lazyt.backends.cuda.codegen.emit_scope import Scope


def emit_map(scope: Scope) -> None:
    kernel, mapping, body = scope.kernel, scope.mapping, scope.body
    (stage,) = kernel.stages
    axis, wide = kernel.vector_axis, mapping.wide
    sizes = [scope.extent(a) for a in range(kernel.outer)]
    if wide > 1:
        sizes[-1] = body.let("index", f"({sizes[-1]} + {wide - 1}) / {wide}", "groups")
    total = body.let("index", " * ".join(sizes), "total")
    threads = mapping.threads
    head = f"for (index g = (index)block * {threads} + threadIdx.x; g < {total}; g += (index)blocks * {threads})"
    with scope.loop(head):
        digits(scope, "g", sizes)
        if wide > 1:
            first = scope.index[axis]
            scope.index[axis] = body.let("index", f"{first} * {wide}", f"j{axis}")
        needed = scope.levels.needed(scope.levels.roots(stage), scope.names)
        open_level(scope, UNIT, needed, used_accesses(kernel, needed, stage.stores))
        if wide > 1:
            extent = scope.extent(axis)
            start = scope.index[axis]
            live = body.let("int", f"(int)lt_min_index({extent} - {start}, (index){wide})", "live")
            neighbours(scope, needed, stage.stores, start, live)
        else:
            open_level(scope, scope.levels.point, needed, ())
            for t in stage.stores:
                store(scope, t, scope.levels.point)


def digits(scope: Scope, number: str, sizes: list[str]) -> None:
    """The indices of the outer axes, from a number that counts them in row-major order."""
    body, mapping = scope.body, scope.mapping
    first = max(scope.kernel.layout.size, 1) + 2 * (mapping.phase > 0)
    for axis in range(len(sizes) - 1, 0, -1):
        by = sizes[axis]
        if mapping.index == "s32":
            quotient = f"lt_divided({number}, {scope.argument('u64', f'd{axis}', first + axis - 1)})"
        else:
            quotient = f"{number} / {by}"
        rest, number = number, body.let("index", quotient, f"q{axis}")
        scope.index[axis] = body.let("index", f"{rest} - {number} * {by}", f"i{axis}")
    if sizes:
        scope.index[0] = number
