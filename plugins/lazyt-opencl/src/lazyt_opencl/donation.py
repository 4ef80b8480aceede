"""Results that take the memory of inputs: which, and how a run enqueues what overwrites them, all or nothing.

An input is overwritten only behind all that can fail on the host, and by no plan that checks indices: their outcome is
known when the work is done, and then the input is gone.
"""

from __future__ import annotations

from itertools import chain, starmap
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DeviceError
from lazyt.ir.passes import donate
from lazyt.ir.passes.kernelize import KernelCall
from lazyt_opencl.checks import Outcome
from lazyt_opencl.library.registry import may_fail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.common.commit_flag import Receipt
    from lazyt.ir.passes.donate import Donation
    from lazyt.ir.passes.schedule import Schedule
    from lazyt_opencl.executor import Run
    from lazyt_opencl.queues import DeviceBuffer


def possible(schedule: Schedule) -> list[Donation]:
    """The donations of a schedule that a run may make."""
    if any(isinstance(c, KernelCall) and c.checks for c in schedule.launches):
        return []
    last = max((i for i, calls in enumerate(schedule.regions) if any(map(may_fail, calls))), default=-1)
    return [d for d in donate.donations(schedule) if d.region > last]


class Lost(Outcome):
    """The outcome of a run that failed when it had overwritten inputs; in the place of a check."""

    passed = False

    def __init__(self, error: Exception) -> None:
        self._error = error

    def settle(self) -> None:
        """Raises what it failed with."""
        raise DeviceError(f"what was to be overwritten is lost, because its kernels were not enqueued: {self._error}")


def enqueue(parts: Sequence[Any], run: Run, outs: Sequence[DeviceBuffer], receipt: Receipt) -> None:
    """Enqueue kernels (`Enqueued`) that overwrite inputs; an interrupt comes before the first of them, or after all."""
    flag = np.zeros(1, np.int64)
    given: list[tuple[Any, ...]] = [part.prepared(run) for part in parts]
    receipt.flag = flag
    events: list[Any] = []
    launch = run.where.cl.enqueue_nd_range_kernel
    try:
        # NOTE: one call into C, which looks at no signals.
        events.extend(chain(map(flag.fill, (1,)), starmap(launch, given)))
    except run.where.errors as e:
        for b in outs:
            b.checks = (Lost(e),)
        raise DeviceError(f"{run.where.name}: {e}; what was to be overwritten is lost") from e
    for part, event in zip(parts, events[1:], strict=True):
        run.where.note(part.name, event)
