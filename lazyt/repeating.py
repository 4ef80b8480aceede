"""A sync like the last one at this place of a program: the same values held, the same extents.

Where an array has ten elements, what a sync costs is its Python. So for the plainest of syncs (results of operations
whose plan is one native program; no views, writes, gradients or checks) what the general way through `syncing.py` and
the executor came to is kept at the last step, and done again in a few lines: in half the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lazyt.backends.cpu import memory
from lazyt.handle import Data, Holder, Storage
from lazyt.planning import Plan
from lazyt.record import LEAF
from lazyt.switches import general as settings
from lazyt.trace import Slot, Trace

if TYPE_CHECKING:
    from lazyt.trace import Ext


class Again:
    """What a sync did, to be done again."""

    __slots__ = ("at", "bound", "ext", "held", "launch", "made", "n_refs", "plan", "sizes")

    def __init__(self, plan: Plan, bound: Any, ext: Ext, held: list[int], slots: Sequence[Slot], n_refs: int) -> None:
        self.plan = plan
        self.bound = bound
        self.ext = ext
        self.held = held
        self.n_refs = n_refs
        self.at = [s.step.index for s in slots]
        self.made = [(s.shape, s.dtype) for s in slots]
        self.sizes: list[int] = bound.sizes
        self.launch = bound.parts[0].launch


def remember(tr: Trace, plan: Any, slots: Sequence[Slot], holders: Sequence[Holder], segment: Any) -> None:
    """Keep what this sync did, if it is plain enough; before the walk ends."""
    pos, ext = tr.pos, tr.ext
    if pos.again is False:
        return
    pos.again = False
    leaves = sum(s.op is LEAF for s in pos.steps())
    if type(plan) is not Plan or plan.device != "cpu" or pos.mixed or segment is not None or len(tr.refs) != leaves:
        return
    bound = plan.executable.bound.get(ext.values)
    # NOTE: what only dead values read is a leaf of the walk, but not of the plan.
    plain = bound is not None and bound.is_plain() and bound.n_leaves == len(tr.leaves)
    plain = plain and [*range(len(slots))] == plan.order_of(ext.values, slots)
    if plain and all(
        tr.results[s.step.index] is h and not s.requires_grad for s, h in zip(slots, holders, strict=True)
    ):
        pos.again = Again(plan, bound, ext, tr.held_places(), slots, leaves)


def repeat(tr: Trace) -> Again | None:
    """Do again what the last sync here did; None, and nothing done, unless all is as it was then."""
    again: Again = tr.pos.again
    if (
        again.ext is not tr.ext
        or len(tr.refs) != again.n_refs
        or tr.held_places() != again.held
        or settings["interpret"]
        or not settings["repeat"]
    ):
        return None
    bound, results, leaves = again.bound, tr.results, tr.leaves
    try:
        buffers = list(map(memory.allocate, again.sizes))
        arena = memory.allocate(bound.arena_size) if bound.arena_size else None
    except MemoryError:
        return None  # the general way says so
    bases = [d.address for d in leaves]
    bases += [b.address for b in buffers]
    bases += (0 if arena is None else arena.address, 0)
    if bound.positions:
        bases += bound.scalar_words(tr.scalars[: tr.pos.scalar_start + tr.pos.n_scalars])
    again.launch(bases)
    for i, b, (shape, dtype) in zip(again.at, buffers, again.made, strict=True):
        h = results[i]
        h._data = Data(b, shape, dtype)
        h._slot = None
    for r in tr.refs.values():
        h = r()
        if h is not None:
            h._slot = None
            if type(h) is Storage:
                h.invalidate(None)
    again.plan.runs += 1
    return again
