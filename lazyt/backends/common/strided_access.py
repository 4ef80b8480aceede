"""Accesses with stride 2 along the lanes, loaded and stored as neighbours.

    y[i] = x[2 * i]     -->    the access is of class '2': two registers of neighbours, and a shuffle
    y[i] = x[-2 * i]    -->    the same, of class '=', which is read only

Parts of complex numbers are laid out so. A gather costs a cycle an element, whatever the stride; this costs as much as
twice as many neighbours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lazyt.ir.passes.kernelize import KernelCall


def alternate(call: KernelCall) -> None:
    """Name the accesses of stride 2 or -2 along the vector axis; else change nothing."""
    kernel, axis = call.kernel, call.kernel.vector_axis
    if call.product is not None:
        return
    accesses = [
        replace(own, classes=own.classes[:axis] + ("2" if step > 0 else "=") + own.classes[axis + 1 :])
        if isinstance(step := argument.strides[axis], int) and (step == 2 or (step == -2 and not own.writes))
        else own
        for own, argument in zip(kernel.accesses, call.accesses, strict=True)
    ]
    if accesses != list(kernel.accesses):
        call.kernel = replace(kernel, accesses=tuple(accesses))
        call.strategies += ("every other element as two of neighbours and a shuffle",)
