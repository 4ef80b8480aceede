"""Which loops are written for whole vectors without masks, and their last step once more with one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cpu.flags import switches
from lazyt.ir.kernel import Op
from lazyt.ir.prims import ELEMENTWISE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lazyt.backends.cpu.codegen.emit_levels import Levels
    from lazyt.ir.kernel import Kernel

# A body of more values is not written twice.
SHORT = 16


def peeled(kernel: Kernel, levels: Levels, needed: Sequence[int]) -> bool:
    """Whether the lanes' loop over these values is.

    A mask takes longer than a body of a few operations; many, or an expensive one, are not worth writing twice.
    """
    own = [v for v in needed if levels.of_value[v] == levels.lanes]
    return switches["peel"] and len(own) <= SHORT and not has_costly(kernel, own)


def has_costly(kernel: Kernel, values: Iterable[int]) -> bool:
    """Whether one of these values is an elementary function or the like."""
    found = (kernel.values[v] for v in values)
    return any(isinstance(v, Op) and ELEMENTWISE[v.name].costly for v in found)
