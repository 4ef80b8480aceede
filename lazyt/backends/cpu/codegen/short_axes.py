"""Maps and columns whose last axis is shorter than a register: lanes run along another axis.

    y[i, j, v] = x[i, j, v], v < 5                        -->    lanes along j: y[i, v, j]
    y[n, i] = sum over k of a[n, i, k] * b[n, k], i < 5   -->    lanes along n: y[i, n]

Images of few pixels are such: lanes along a row of three pixels leave most of a register idle, and what a unit costs
(addresses, masks) is paid for three elements. Across channels every lane works; loads and stores then gather and
scatter, which pays where the machine can. A sum reads more than it writes, and pays on every machine. The plan so made
holds only while the last axis is narrow (a guard).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lazyt.backends.common.transposed_access import NARROW
from lazyt.backends.cpu.engine import host_features
from lazyt.ir import kernel as k
from lazyt.ir.passes.kernelize import AccessArg, KernelCall
from lazyt.ir.symbolic import Dim, hint

# Lanes run along the nearest axis that fills them, if it is short enough that what they reach stays in a cache; along
# a longer one (pixels of few channels, points of the plane or of space) if memory is gone through that few times.
LANES = 16
LONGEST = 1024
TIMES = 3


def widen(call: KernelCall) -> None:
    """Make an axis that fills a register the last one of a narrow map, or of narrow columns; else change nothing."""
    kernel, outer = call.kernel, call.kernel.outer
    columns = kernel.rows > 0 and kernel.vector == "outer" and call.product is None
    if kernel.has_check or outer < 2 or not (columns or (not kernel.rows and "avx512f" in host_features())):
        return
    # NOTE: what stands for several elements of a short axis is read along the last one (repeated.py).
    if any(a.period or a.spread for a in kernel.accesses):
        return
    extents = [hint(e) for e in call.extents[:outer]]
    along = next((a for a in reversed(range(outer - 1)) if extents[a] >= LANES), None)
    if along is None or extents[-1] >= NARROW or (not columns and extents[along] > LONGEST and extents[-1] > TIMES):
        return
    last = call.extents[outer - 1]
    if isinstance(last, Dim):
        last.scope.at_least(last, NARROW)

    def moved(own: Sequence[Any]) -> tuple[Any, ...]:
        return (*own[:along], *own[along + 1 : outer], own[along], *own[outer:])

    call.kernel = replace(
        kernel,
        accesses=tuple(replace(a, classes="".join(moved(a.classes))) for a in kernel.accesses),
        affines=tuple(k.Affine("".join(moved(a.classes))) for a in kernel.affines),
    )
    call.extents = moved(call.extents)
    call.strategies += (f"lanes along axis {along}, the last is short",)
    call.accesses = [AccessArg(a.buffer, a.offset, moved(a.strides), a.itemsize) for a in call.accesses]
    call.affines = [(moved(coefs), offset) for coefs, offset in call.affines]
