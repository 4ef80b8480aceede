"""`SmallBackend`: what small backends subclass. Its methods are in interface.py, and how they are used in run.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.small.interface import SmallInterface
from lazyt.backends.small.run import SmallExecutable

if TYPE_CHECKING:
    from lazyt.ir.passes.schedule import Schedule


class SmallBackend(SmallInterface):
    """A kind of device, most of whose work is inherited. A block is whatever `allocate` gives."""

    def compile(self, schedule: Schedule, device: str) -> SmallExecutable:
        return SmallExecutable(schedule, self, device)
