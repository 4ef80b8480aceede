"""The resources of a kernel's code on a GPU, computed from the kernel alone; the counterpart of `cpu/codegen/needs.py`.

    shared = what the warps of a row, or the groups of columns, fold through, of all reductions (`emit_row.py`,
             `emit_columns.py`), with as many as a mapping may have
    arguments = its entries, by value, and what a mapping adds
    code = statements of all stages: a value counts in each stage that evaluates it

Registers are bounded by the launch (`emit.RESIDENT`); what does not fit into them is in a thread's local memory, of
which code of this length cannot fill much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cuda.codegen.emit_levels import UNIT, Levels
from lazyt.backends.cuda.codegen.mapping import MAX_GROUPS, MAX_WARPS, WARP
from lazyt.backends.math.reduction import is_float
from lazyt.ir.kernel import LANES, Cast, Check, Gather, Load, Op, Reduce
from lazyt.ir.prims import ELEMENTWISE
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    from lazyt.ir.kernel import Kernel
    from lazyt.ir.passes.kernelize import KernelCall

# Bytes of shared memory that a block has without asking, less what a row keeps at least.
SHARED = 40 << 10
# Bytes of arguments: drivers take 4096 or more, but the assembler takes seconds for some thousand.
ARGUMENTS = 2560
CODE = 2_000
# Statements: operations by kind, reads and writes of memory, a reduction, and what a stage has around its loop.
CHEAP, DIVIDES, COSTLY, ACCESS, FOLD, AROUND = 1, 30, 60, 4, 60, 20

_DIVIDES = frozenset({"floordiv", "rem", "fmod", "nextafter", "div"})


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes of shared memory and of arguments, and statements."""

    shared: int
    arguments: int
    code: int


def needs_of(kernel: Kernel) -> Needs:
    """What the code of a kernel needs, under any mapping."""
    levels = Levels(kernel)
    known: set[int] = set()
    code = shared = 0
    for stage in kernel.stages:
        values = levels.needed(levels.roots(stage), known, ())
        code += AROUND + ACCESS * len(stage.stores) + sum(_statements(kernel, v) for v in values)
        known |= {v for v in values if levels.of_value[v] <= UNIT} | {*stage.reduces}
        for r in stage.reduces:
            reduce = kernel.values[r]
            assert isinstance(reduce, Reduce)
            code += FOLD
            blocked = reduce.name in ("sum", "prod") and is_float(kernel.values[reduce.operand].dtype)
            own = MAX_WARPS if kernel.vector == "row" else MAX_GROUPS * WARP
            lanes = LANES if blocked and kernel.vector == "row" else 1
            shared += 8 * own * lanes * (2 if reduce.name in ("argmax", "argmin") else 1)
    return Needs(shared, 8 * kernel.layout.size, code)


def share_of(call: KernelCall) -> float:
    """How much of what a kernel may need its code does: above 1 it must be divided."""
    needs = needs_of(call.kernel)
    return max(needs.shared / SHARED, needs.arguments / ARGUMENTS, needs.code / CODE)


def _statements(kernel: Kernel, v: int) -> int:
    value = kernel.values[v]
    match value:
        case Op():
            if ELEMENTWISE[value.name].costly:
                return COSTLY
            return DIVIDES if value.name in _DIVIDES else CHEAP
        case Cast():
            return 2 * CHEAP
        case Load() | Gather() | Check():
            return ACCESS
        case _:
            return CHEAP
