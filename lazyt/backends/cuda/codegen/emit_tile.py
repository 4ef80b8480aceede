"""Maps that read across memory: a block takes 32 x 32 points, and what lies along the other axis comes by a tile.

A warp reads 32 neighbours of memory into a row of the tile, and the points read its columns. A tile's rows are one
element longer than 32, so that a column lies in 32 banks. A thread reads what does not lie across before it waits for
the tile: no load is moved before a store, which might be to the same place.

Whole tiles are of 64 x 64 points, of which a thread takes `wide` neighbours in several rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cuda.codegen.emit_levels import UNIT
from lazyt.backends.cuda.codegen.emit_map import digits
from lazyt.backends.cuda.codegen.emit_memory import pointer, store
from lazyt.backends.cuda.codegen.emit_neighbours import is_packed, is_plain, neighbours
from lazyt.backends.cuda.codegen.emit_scope import memory_type
from lazyt.backends.cuda.codegen.emit_values import open_level
from lazyt.backends.cuda.codegen.mapping import TILE, TILE_WARPS, WHOLE_TILE, tiled_loads
from lazyt.ir.kernel import Load, used_accesses

if TYPE_CHECKING:
    from lazyt.backends.cuda.codegen.emit_scope import Scope

# Registers of what a thread reads before it waits for its tile.
AHEAD = 32


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
    loads, steps = tiled_loads(kernel), TILE // TILE_WARPS
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
        scope.index[across], scope.index[along] = f"({first} + lane)", f"({first_row} + k)"
        needed = scope.levels.needed(scope.levels.roots(stage), scope.names, loads)
        ahead = [v for v in needed if v not in loads and is_plain(scope, v)][: AHEAD // steps]
        for v in ahead:
            body.line(f"{memory_type(kernel.values[v].dtype)} w{v}[{steps}];")
        if ahead:
            body.line("#pragma unroll")
            with body.block(f"for (int s = 0; s < {steps}; s++)"):
                k = body.let("int", f"warp + s * {TILE_WARPS}", "k")
                for v in ahead:
                    element = _element(scope, kernel.values[v].access)  # type: ignore[union-attr]
                    body.line(f"w{v}[s] = lane < {columns} && {k} < {rows} ? {element} : 0;")
        body.line("__syncthreads();")
        with scope.loop(f"if (lane < {columns})"):
            scope.index[across] = body.let("index", f"{first} + lane", f"i{across}")
            open_level(scope, UNIT, needed, used_accesses(kernel, {*needed} - {*loads, *ahead}, stage.stores))
            body.line("#pragma unroll")
            with scope.loop(f"for (int s = 0; s < {steps}; s++)"):
                k = body.let("int", f"warp + s * {TILE_WARPS}", "k")
                scope.index[along] = body.let("index", f"{first_row} + {k}", f"i{along}")
                scope.kept.update({v: f"tile{v}[lane][{k}]" for v in loads} | {v: f"w{v}[s]" for v in ahead})
                scope.live = f"{k} < {rows}"
                open_level(scope, scope.levels.point, needed, ())
                for t in stage.stores:
                    store(scope, t, scope.levels.point, scope.live)
        body.line("__syncthreads();")


def _element(scope: Scope, access: int) -> str:
    """The element at the current indices of all axes."""
    classes = scope.kernel.accesses[access].classes
    steps = [scope.times(scope.index[a], scope.stride(access, a)) for a, c in enumerate(classes) if c != "0"]
    return f"{scope.base(access)}[{' + '.join(steps)}]"


def emit_whole_tiles(scope: Scope) -> None:
    """The loop over whole tiles: `steps` groups of neighbours of each are a thread's."""
    kernel, body, wide = scope.kernel, scope.body, scope.mapping.wide
    (stage,) = kernel.stages
    across, along = kernel.vector_axis, kernel.axes - 1
    lanes = WHOLE_TILE // wide
    rows = scope.mapping.threads // lanes  # at once
    steps = WHOLE_TILE // rows
    sizes = [scope.extent(a) for a in range(kernel.outer - 1)]
    sizes.append(body.let("index", f"{scope.extent(along)} / {WHOLE_TILE}", "down"))
    sizes.append(body.let("index", f"{scope.extent(across)} / {WHOLE_TILE}", "tiles"))
    total = body.let("index", " * ".join(sizes), "total")
    body.let("int", f"threadIdx.x % {lanes} * {wide}", "lane")
    body.let("int", f"threadIdx.x / {lanes}", "row")
    loads = tiled_loads(kernel)
    for v in loads:
        kind = memory_type(kernel.values[v].dtype)
        body.line(f"__shared__ {kind} tile{v}[{WHOLE_TILE}][{WHOLE_TILE + 1}];")
    each = f"for (int s = 0; s < {steps}; s++)"
    with scope.loop(f"for (index u = (index)block; u < {total}; u += (index)blocks)"):
        digits(scope, "u", sizes)
        top = body.let("index", f"{scope.index[across]} * {WHOLE_TILE}", "top")
        left = body.let("index", f"{scope.index[along]} * {WHOLE_TILE}", "left")
        body.line("#pragma unroll")
        with scope.loop(each):
            place = body.let("int", f"s * {rows} + row", "place")
            scope.index[across] = f"({left} + {place})"
            for v in loads:
                _into_tile(scope, v, f"{top} + lane", f"tile{v}[{place}]")
        needed = scope.levels.needed(scope.levels.roots(stage), scope.names, loads)
        accesses = used_accesses(kernel, set(needed) - set(loads), stage.stores)
        scope.index[across] = start = f"({left} + lane)"
        open_level(scope, UNIT, needed, accesses)
        ahead = _read_ahead(scope, [v for v in needed if v not in loads], steps)
        if ahead:
            body.line("#pragma unroll")
            with scope.loop(each):
                scope.index[along] = body.let("index", f"{top} + s * {rows} + row", f"i{along}")
                for v in ahead:
                    at = pointer(scope, kernel.values[v].access, scope.levels.point - 1)  # type: ignore[union-attr]
                    body.line(f"lt_load(w{v}[s], {at} + {start});")
        body.line("__syncthreads();")
        body.line("#pragma unroll")
        with scope.loop(each):
            place = body.let("int", f"s * {rows} + row", "place")
            scope.index[along] = body.let("index", f"{top} + {place}", f"i{along}")
            open_level(scope, scope.levels.of_axis[along], needed, accesses)
            known = {v: f"tile{v}[lane + k][{place}]" for v in loads} | {v: f"w{v}[s][k]" for v in ahead}
            neighbours(scope, needed, stage.stores, start, "", known=known)
        body.line("__syncthreads();")


def _into_tile(scope: Scope, v: int, first: str, row: str) -> None:
    """A thread's neighbours along the row axis, from index `first` on, into a row of a tile."""
    kernel, body, wide = scope.kernel, scope.body, scope.mapping.wide
    value, along = kernel.values[v], kernel.axes - 1
    assert isinstance(value, Load)
    packed = kernel.accesses[value.access].classes[along] == "1"
    scope.index[along] = f"({first})" if packed else f"({first} + k)"
    if packed:
        body.line(f"{memory_type(value.dtype)} w{v}[{wide}];")
        body.line(f"lt_load(w{v}, &{_element(scope, value.access)});")
    body.line("#pragma unroll")
    with body.block(f"for (int k = 0; k < {wide}; k++)"):
        body.line(f"{row}[lane + k] = {f'w{v}[k]' if packed else _element(scope, value.access)};")


def _read_ahead(scope: Scope, values: list[int], steps: int) -> list[int]:
    """The loads that fit into `AHEAD` registers, each declared."""
    found, left = [], AHEAD
    for v in values:
        value = scope.kernel.values[v]
        if is_packed(scope, v):
            size = -(-value.dtype.itemsize * scope.mapping.wide * steps // 4)
            if size <= left:
                left -= size
                found.append(v)
                scope.body.line(f"{memory_type(value.dtype)} w{v}[{steps}][{scope.mapping.wide}];")
    return found
