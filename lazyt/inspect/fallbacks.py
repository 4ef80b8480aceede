"""What the host does for a device that has no code for it: each such call makes a sync wait for the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lazyt.backends.registry import backends
from lazyt.config import HOST
from lazyt.inspect.kernels import allowed_fallback, fallback_text
from lazyt.ir import graph as g
from lazyt.tracing.lower import lower

if TYPE_CHECKING:
    from lazyt.tracing.trace import Trace


def recorded_fallbacks(tr: Trace, first: int) -> Sequence[str]:
    """The operations of a trace, from step `first` on, that the host would do for their device, each with its line.

    From what is recorded alone: nothing is planned, and what nobody will want is named too.
    """
    pos = tr.pos
    steps = pos.steps()
    if all(s.device == HOST for s in steps[first:]):
        return ()
    low = lower(steps, tr.ext.values, tr.scalars[: pos.scalar_start + pos.n_scalars])
    found: dict[str, None] = {}
    for n in low.builder.nodes:
        if isinstance(n.attrs, g.Opaque) and isinstance(n.site, g.Origin) and n.site.step >= first:
            why = allowed_fallback(n) or backends[steps[n.site.step].device].fallback(n.attrs.fn)
            if why:
                found[fallback_text(n.site.name, n.site.site, why)] = None
    return tuple(found)
