"""Maps that read across memory: their loops are ordered so that neighbours in memory are read together.

    y[i, v] = x[v, i] + b[i, v]: lanes along v, which x is strided along    -->    i becomes a row axis

The kernel then runs as a reduction over columns does, without the reduction: some rows at a time, which `ColumnStage`
reads along i and transposes in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lazyt.ir import kernel as k
from lazyt.ir.passes.kernelize import AccessArg, KernelCall
from lazyt.ir.symbolic import Dim

# A last axis of fewer elements is narrow (at seven, gathering costs what idle lanes do).
NARROW = 5


def tiled_accesses(kernel: k.Kernel) -> list[int]:
    """The accesses of a `vector='outer'` kernel that are read in tiles: strided lanes, neighbours along the last row
    axis, and no read but plain loads."""
    if kernel.vector != "outer" or not kernel.rows:
        return []
    plain = {v.access for v in kernel.values if isinstance(v, k.Load) and v.where is None}
    guarded = {
        v.access for v in kernel.values if isinstance(v, k.Gather | k.Load) and getattr(v, "where", None) is not None
    }
    guarded |= {v.access for v in kernel.values if isinstance(v, k.Gather)}
    return [
        a for a in sorted(plain - guarded) if _strided(kernel.accesses[a].classes, kernel.vector_axis, kernel.axes - 1)
    ]


def _strided(classes: str, vector: int, along: int) -> bool:
    return classes[vector] == "n" and classes[along] in "1-"


def tile(call: KernelCall) -> None:
    """Make the axis along which strided reads have their neighbours a row axis of a map; else change nothing."""
    kernel = call.kernel
    if kernel.rows or kernel.has_check:
        return
    vector = kernel.vector_axis
    if any(a.writes and a.classes[vector] == "n" for a in kernel.accesses):
        return
    for along in range(kernel.outer - 1):
        # NOTE: of tiles of a few columns strided reads cost less.
        read = any(not a.writes and _strided(a.classes, vector, along) for a in kernel.accesses)
        if read and _has_columns(call.extents[along]):
            break
    else:
        return

    def moved(own: Sequence[Any]) -> tuple[Any, ...]:
        return (*own[:along], *own[along + 1 :], own[along])

    (stage,) = kernel.stages
    new = replace(
        kernel,
        outer=kernel.outer - 1,
        rows=1,
        accesses=tuple(replace(a, classes="".join(moved(a.classes))) for a in kernel.accesses),
        affines=tuple(k.Affine("".join(moved(a.classes))) for a in kernel.affines),
        stages=(k.Stage(True, (), stage.stores),),
    )
    if tiled_accesses(new):
        call.kernel = new
        call.extents = moved(call.extents)
        call.accesses = [AccessArg(a.buffer, a.offset, moved(a.strides), a.itemsize) for a in call.accesses]
        call.affines = [(moved(coefs), offset) for coefs, offset in call.affines]


def untile(call: KernelCall) -> None:
    """Read a few columns by strided lanes, where a reduction would read them in tiles; otherwise change nothing."""
    kernel, columns = call.kernel, call.extents[-1]
    found = tiled_accesses(kernel)
    if not found or _has_columns(columns):
        return
    call.kernel = replace(
        kernel,
        accesses=tuple(
            replace(a, classes=a.classes[:-1] + "n") if i in found else a for i, a in enumerate(kernel.accesses)
        ),
    )


def _has_columns(columns: int | Dim) -> bool:
    """Whether there are enough columns for tiles; the plan then holds only where this is so (a guard)."""
    return columns.scope.at_least(columns, NARROW) if isinstance(columns, Dim) else columns >= NARROW
