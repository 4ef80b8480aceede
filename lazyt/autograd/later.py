"""A backward behind a sync of what was recorded under a compression: the plan that computes a value stores for it what
it reads, in few bits (`ir/residuals.py`), and a step on a later trace stands for the forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.autograd.reachability import Reach, lane_bound, reach_of
from lazyt.autograd.track import TRACK
from lazyt.autograd.vjp_step import may_refuse
from lazyt.ops.residuals import EARLIER
from lazyt.tracing.current import return_to, switch_mode
from lazyt.tracing.inputs import bind_input
from lazyt.tracing.program import Slot, is_expanded, position
from lazyt.tracing.record import advance
from lazyt.tracing.tensor_state import Data, Gradient, Holder
from lazyt.tracing.trace import Step, Trace

if TYPE_CHECKING:
    from lazyt.autograd import reverse
    from lazyt.ir.graph import Node
    from lazyt.ir.residuals import Residuals
    from lazyt.tracing.lower import Lowered
else:
    reverse = on_demand.module("lazyt.autograd.reverse")


class Later:
    """What a later backward goes through: from these values to groups of others, of each of which it is one gradient.

    name: the values by their positions; equal ones of one program are the same.
    """

    def __init__(self, outputs: Sequence[Slot], groups: Sequence[Sequence[Slot]], leaves: Sequence[Slot] = ()) -> None:
        """leaves: who has the record of each gradient."""
        self.outputs = list(outputs)
        self.groups = [list(group) for group in groups]
        self.leaves = list(leaves)
        # Which of the leaves each value leads to: gradients of the others are none, not zeros.
        self.leads = tuple(tuple(i for i, x in enumerate(self.leaves) if _leads(o, x)) for o in self.outputs)
        self.name = tuple([position(x) for some in ([*outputs], *self.groups) for x in some]), len(outputs)

    def asked(self) -> list[Slot]:
        """The values whose cotangents it gives."""
        return [x for group in self.groups for x in group]

    def pulled(self, low: Lowered) -> tuple[list[Node], tuple[int, int]]:
        """The values and, for cotangents that are inputs of negative numbers, the gradients; how many there are."""
        b = low.builder
        values = [low.nodes[x] for x in self.outputs]
        cotangents = [b.input(-1 - i, x.shape, x.dtype) for i, x in enumerate(values)]
        gradients, _ = reverse.backward(b, values, cotangents, [[low.nodes[x] for x in g] for g in self.groups])
        return [*values, *gradients], (len(values), len(gradients))


def _leads(output: Slot, leaf: Slot) -> bool:
    reach = reach_of([output])
    return leaf in reach.leaves or leaf in reach.synced


def later(path: Sequence[Step], outputs: Sequence[Slot], reach: Reach) -> Later | None:
    """What the plan of this program stores for a later backward; None where that computes all again.

    That is where values are asked for that only a program of the forward pass has: by functions with derivatives in
    Python, in the lanes of a vmap, and where a budget of memory is to be kept.
    """
    if not any(s.mode.compress is not None for s in reach.steps):
        return None
    special = any(is_expanded(s.op) and not _is_leaf(s) for s in reach.steps)
    bounded = path[-1].mixed or any(s.mode.memory is not None for s in path)
    if special or bounded or may_refuse(reach.steps) or lane_bound(path):
        return None
    groups = [*reach.leaves.values(), *([x] for x in reach.synced)]
    return Later(outputs, groups, [*reach.leaves, *reach.synced])


def _is_leaf(s: Step) -> bool:
    """Whether a step makes a leaf of a value of this trace: a parameter that was initialized in it."""
    return s.op is TRACK and not s.operands[0].requires_grad


def again(
    tr: Trace, found: Later, residuals: Residuals, stored: Sequence[Data], leaves: Mapping[Slot, Data],
    metas: Mapping[int, Gradient], numbers: tuple[Sequence[int], Sequence[Any]],
) -> dict[Slot, Slot]:  # fmt: skip
    """Record the step that stands for the forward pass on this trace: its values, by those that they are.

    numbers: the extents and the scalars of the program of the forward pass.
    """
    extents, scalars = numbers
    before = tr.mode
    try:
        switch_mode(found.outputs[0].step.mode)
        operands: list[Any] = [bind_input(tr, Holder(leaves[x], metas.get(x.step.index))) for x in found.leaves]
        operands += [bind_input(tr, Holder(x)) for x in stored]
        given = [scalars[k] for k in residuals.scalars]
        operands += map(type, given)
        ints = tuple(extents[k] for k in residuals.symbols)
        offsets = tuple(scalars[k] for k in residuals.offsets)
        made = advance(tr, EARLIER, operands, (residuals, found.leads), ints or None, offsets or None, given)
    finally:
        return_to(before)
    made.site = found.outputs[0].step.site  # where the user recorded it
    return dict(zip(found.outputs, made.slots, strict=True))
