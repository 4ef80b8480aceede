"""Gradients across devices.

A transfer is a sync. Its result is a computed value whose record says which value it is a copy of. A backward that
meets it asks for its cotangent as for a leaf's, computes that, moves it back (a sync again), and goes on behind the
transfer in a trace of its own. The newest transfer goes first: what is behind it is older, so every cotangent is
complete before it is moved.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from lazyt.autograd.saved_segment import Passed, behind
from lazyt.errors import NotSupportedError
from lazyt.ops.definition import OPS
from lazyt.tracing.program import Slot
from lazyt.tracing.record import begin, record, slot_of
from lazyt.tracing.tensor_state import Gradient, Handle

Totals = dict[Gradient, Handle]
# Pulls the cotangent of a value of this trace back: the value, its cotangent, the segments that were gone through.
Pull = Callable[[Slot, Slot, Passed], Totals]

_numbers = itertools.count()


class Crossing:
    """Of what a value is a copy, and how a cotangent gets there."""

    def __init__(self, source: Gradient, back: Callable[[Handle], Handle]) -> None:
        self.number = next(_numbers)
        self.source = source
        self.back = back


def copied(out: Handle, x: Handle, back: Callable[[Handle], Handle]) -> None:
    """Let the cotangent of `out`, a copy of the computed value x, go on to x: moved by `back`."""
    source = x._meta
    if source is None:
        raise NotSupportedError(
            "not supported: the gradient of a transfer of a value that another thread has recorded, because its graph "
            "is that thread's; detach() it, or move it where it was made"
        )
    out._meta = Gradient(True, is_leaf=False)
    out._meta.crossing = Crossing(source, back)


def add_to(totals: Totals, record_of: Gradient, ct: Handle) -> None:
    """One more part of a cotangent."""
    before = totals.get(record_of)
    totals[record_of] = ct if before is None else record(OPS["add"], (before, ct))


def pull_across(totals: Totals, passed: Passed, pull: Pull) -> None:
    """Go on behind every transfer that `totals` has a cotangent of."""
    moved: set[Gradient] = set()
    while waiting := [m for m in totals if m.crossing is not None and m not in moved]:
        meta = max(waiting, key=lambda m: m.crossing.number)
        moved.add(meta)
        crossing: Any = meta.crossing
        for hook in list(meta.hooks):
            replaced = hook(totals[meta])
            totals[meta] = totals[meta] if replaced is None else replaced
        ct = crossing.back(totals[meta])
        source = crossing.source
        if source.slot is None:
            add_to(totals, source, ct)
            continue
        tr = begin()
        origin = behind(tr, source, passed)
        for other, part in pull(origin, slot_of(tr, ct), passed).items():
            add_to(totals, other, part)
