"""Maps: a thread takes `wide` neighbours along the vector axis, then goes on by the size of the grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cuda.emit_levels import UNIT
from lazyt.backends.cuda.emit_memory import pointer, store, used_accesses
from lazyt.backends.cuda.emit_scope import memory_type
from lazyt.backends.cuda.emit_values import open_level
from lazyt.ir.kernel import Load

if TYPE_CHECKING:
    from lazyt.backends.cuda.emit_scope import Scope
    from lazyt.ir.kernel import Store


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
            _neighbours(scope, needed, stage.stores)
        else:
            open_level(scope, scope.levels.point, needed, ())
            for t in stage.stores:
                store(scope, t, scope.levels.point)


def digits(scope: Scope, number: str, sizes: list[str]) -> None:
    """The indices of the outer axes, from a number that counts them in row-major order."""
    body = scope.body
    for axis in range(len(sizes) - 1, 0, -1):
        scope.index[axis] = body.let("index", f"{number} % {sizes[axis]}", f"i{axis}")
        number = body.let("index", f"{number} / {sizes[axis]}", f"q{axis}")
    if sizes:
        scope.index[0] = number


def _neighbours(scope: Scope, needed: list[int], stores: tuple[Store, ...]) -> None:
    kernel, body, wide, axis = scope.kernel, scope.body, scope.mapping.wide, scope.kernel.vector_axis
    start = scope.index[axis]
    live = body.let("int", f"(int)lt_min_index({scope.extent(axis)} - {start}, (index){wide})", "live")
    for v in needed:
        value = kernel.values[v]
        if isinstance(value, Load) and value.where is None and kernel.accesses[value.access].classes[axis] == "1":
            what = kernel.accesses[value.access]
            body.line(f"{memory_type(what.dtype)} w{v}[{wide}];")
            body.line(f"lt_load(w{v}, {pointer(scope, value.access, UNIT)} + {start}, {live});")
            scope.kept[v] = f"w{v}[k]"
    packed = [t for t in stores if kernel.accesses[t.access].classes[axis] == "1"]
    for t in packed:
        body.line(f"{memory_type(kernel.accesses[t.access].dtype)} w{t.access}_out[{wide}];")
    body.line("#pragma unroll")
    with scope.loop(f"for (int k = 0; k < {wide}; k++)"):
        scope.index[axis] = f"({start} + k)"
        scope.live = f"k < {live}"
        open_level(scope, scope.levels.point, needed, ())
        for t in stores:
            kind = memory_type(kernel.accesses[t.access].dtype)
            if t in packed:
                body.line(f"w{t.access}_out[k] = ({kind}){scope.names[t.value]};")
            else:
                store(scope, t, scope.levels.point, scope.live)
    for t in packed:
        body.line(f"lt_store({pointer(scope, t.access, UNIT)} + {start}, w{t.access}_out, {live});")
