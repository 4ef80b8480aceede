"""The CPU's choices of the axis that a kernel's lanes run along, and of how they read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.common.strided_access import alternate
from lazyt.backends.common.transposed_access import tile, untile
from lazyt.backends.cpu.codegen.emit_pairs import over_pairs
from lazyt.backends.cpu.codegen.interleaved import interleave
from lazyt.backends.cpu.codegen.repeated import flatten
from lazyt.backends.cpu.codegen.short_axes import widen
from lazyt.backends.cpu.flags import switches

if TYPE_CHECKING:
    from lazyt.ir.passes.kernelize import KernelCall


def arrange(call: KernelCall) -> None:
    """Each of the ways in turn."""
    if switches["widen"]:
        flatten(call)
        widen(call)
    if switches["tile"]:
        tile(call)
        untile(call)
    if switches["interleave"] and switches["alternate"]:
        interleave(call)
    if switches["alternate"] and not over_pairs(call.kernel):
        alternate(call)
