"""Along which axis a kernel's lanes run here, and how they read: the choices that this backend makes for a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.short_axes import widen
from lazyt.backends.cpu.codegen.strided_access import alternate
from lazyt.backends.cpu.codegen.transposed_access import tile, untile
from lazyt.backends.cpu.flags import switches

if TYPE_CHECKING:
    from lazyt.ir.passes.kernelize import KernelCall


def arrange(call: KernelCall, widens: bool) -> None:
    """Each of the ways in turn; `widens` says whether narrow maps may have lanes along another axis."""
    if widens and switches["widen"]:
        widen(call)
    if switches["tile"]:
        tile(call)
        untile(call)
    if switches["alternate"]:
        alternate(call)
