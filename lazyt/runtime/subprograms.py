"""Partition of a long trace into subprograms that are planned one by one.

A loop that nobody reads records the same steps again and again. Planned as one graph, n iterations cost n plans' time
and n plans' memory. So a trace with equal iterations is divided between them, and a very long one without at places
that few values cross (division.py). Each part is a program of its own: its *inputs* are the values that it reads and
does not compute. Parts of equal structure share one *template*, hence one plan, whatever iteration, line or trace they
are from.

    0  input x                 part 0: steps 2, 4         template: input, input, matmul, tanh
    1  input w                 part 1: steps 5, 6         the same template, over the result of part 0
    2  matmul 0 1              part 2: ...
    4  tanh 2
    5  matmul 4 1

What no part needs is not computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lazyt import on_demand
from lazyt.autograd.engine import BACKWARD
from lazyt.config import general as settings
from lazyt.tracing.program import UNASKED, Slot
from lazyt.tracing.trace import Ext, Step

if TYPE_CHECKING:
    from lazyt.runtime import division, partition as partitions
    from lazyt.runtime.partition import Partition
else:
    division = on_demand.module("lazyt.runtime.division")
    partitions = on_demand.module("lazyt.runtime.partition")

# A trace with fewer steps is one program, unless it accumulates gradients.
MIN_STEPS = 64
# Memo of a trace that is not divided.
WHOLE = object()


def partition(pos: Step, ext: Ext, want: Sequence[Slot]) -> Partition | None:
    """The parts of the trace that ends in `pos`; None where it is planned as one program."""
    # NOTE: most traces end here.
    if pos.mixed or not settings["partition"]:
        return None
    program = pos.program
    places, path = program.division, program.calls
    if places is None:
        short = len(path) <= MIN_STEPS and sum(s.op is BACKWARD for s in path) < 2
        places = program.division = WHOLE if short else partitions.Places(path, len(path) > MIN_STEPS)
    return None if places is WHOLE else places.partition(path, ext, want)


def iteration_left(pos: Step) -> int | None:
    """Least number of steps left of the current iteration of a loop; None for a trace without a loop."""
    if pos.mixed or not settings["partition"]:
        return None
    program = pos.program
    if program.left is UNASKED:
        program.left = division.left_of_iteration(program.calls)
    found: int | None = program.left
    return found
