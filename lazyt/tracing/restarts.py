"""Recording again what a signal handler or a finalizer interrupted: it records too, and may do so at each attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.tracing.trace import Step, Trace, local

if TYPE_CHECKING:
    from collections.abc import Callable

# Attempts at one operation before what interrupts it records in a trace of its own.
RESTARTS = 3


def repeated(tr: Trace, record: Callable[..., Step], *call: Any) -> Step:
    """Record a call once more, behind what interrupted it, and return its step.

    An interrupt that comes at each attempt (a finalizer, where the collector runs at each allocation) records elsewhere
    from then on, as while a sync computes: else this would never end.
    """
    own = local.trace
    tr.restarts += 1
    try:
        if tr.restarts > RESTARTS and own is tr:
            local.trace = tr.aside()
        return record(tr, *call)
    finally:
        local.trace = own
        tr.restarts -= 1
