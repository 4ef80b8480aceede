"""What a kernel's code needs, as a backend counts it from the kernel alone: see its `needs.py`."""

from __future__ import annotations

from lazyt.ir.records import dataclass


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes of stack, and instructions."""

    frame: int
    code: int
