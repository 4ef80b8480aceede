"""Maps that read across memory: a block takes 32 x 32 points, and what lies along the other axis comes by a tile.

A warp reads 32 neighbours of memory into a row of the tile, and the points read its columns. A tile's rows are one
element longer than 32, so that a column lies in 32 banks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cuda.codegen.emit_levels import UNIT
from lazyt.backends.cuda.codegen.emit_map import digits
from lazyt.backends.cuda.codegen.emit_memory import store
from lazyt.backends.cuda.codegen.emit_scope import memory_type
from lazyt.backends.cuda.codegen.emit_values import open_level
from lazyt.backends.cuda.codegen.mapping import TILE, TILE_WARPS, tiled_loads
from lazyt.ir.kernel import used_accesses

if TYPE_CHECKING:
    from lazyt.backends.cuda.codegen.emit_scope import Scope


def emit_tiles(scope: Scope) -> None:
    """The loop over tiles of the last outer axis (its lanes) and the row axis."""
    kernel, body = scope.kernel, scope.body
    (stage,) = kernel.stages
    across, along = kernel.vector_axis, kernel.axes - 1
    width, height = scope.extent(across), scope.extent(along)
    sizes = [scope.extent(a) for a in range(kernel.outer - 1)]
    sizes.append(body.let("index", f"({height} + {TILE - 1}) / {TILE}", "down"))
    sizes.append(body.let("index", f"({width} + {TILE - 1}) / {TILE}", "tiles"))
    total = body.let("index", " * ".join(sizes), "total")
    body.let("int", f"threadIdx.x % {TILE}", "lane")
    body.let("int", f"threadIdx.x / {TILE}", "warp")
    loads = tiled_loads(kernel)
    for v in loads:
        body.line(f"__shared__ {memory_type(kernel.values[v].dtype)} tile{v}[{TILE}][{TILE + 1}];")
    with scope.loop(f"for (index u = (index)block; u < {total}; u += (index)blocks)"):
        digits(scope, "u", sizes)
        first_row = body.let("index", f"{scope.index[across]} * {TILE}", "top")
        first = body.let("index", f"{scope.index[along]} * {TILE}", "left")
        rows = body.let("int", f"(int)lt_min_index({height} - {first_row}, (index){TILE})", "rows")
        columns = body.let("int", f"(int)lt_min_index({width} - {first}, (index){TILE})", "columns")
        body.line("#pragma unroll 4")
        with scope.loop(f"for (int k = warp; k < {columns}; k += {TILE_WARPS})"), body.block(f"if (lane < {rows})"):
            scope.index[across] = f"({first} + k)"
            scope.index[along] = f"({first_row} + lane)"
            for v in loads:
                body.line(f"tile{v}[k][lane] = {_element(scope, kernel.values[v].access)};")  # type: ignore[union-attr]
        body.line("__syncthreads();")
        with scope.loop(f"if (lane < {columns})"):
            scope.index[across] = body.let("index", f"{first} + lane", f"i{across}")
            needed = scope.levels.needed(scope.levels.roots(stage), scope.names, loads)
            open_level(scope, UNIT, needed, used_accesses(kernel, set(needed) - set(loads), stage.stores))
            body.line("#pragma unroll 4")
            with scope.loop(f"for (int k = warp; k < {rows}; k += {TILE_WARPS})"):
                scope.index[along] = body.let("index", f"{first_row} + k", f"i{along}")
                scope.kept.update({v: f"tile{v}[lane][k]" for v in loads})
                open_level(scope, scope.levels.point, needed, ())
                for t in stage.stores:
                    store(scope, t, scope.levels.point)
        body.line("__syncthreads();")


def _element(scope: Scope, access: int) -> str:
    """The element at the current indices of all axes."""
    classes = scope.kernel.accesses[access].classes
    steps = [scope.times(scope.index[a], scope.stride(access, a)) for a, c in enumerate(classes) if c != "0"]
    return f"{scope.base(access)}[{' + '.join(steps)}]"
