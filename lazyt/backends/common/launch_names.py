"""What a launch is called where people read it: by the operations in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir.passes.kernelize import KernelCall

if TYPE_CHECKING:
    from lazyt.ir.passes.schedule import Launch

# So many operations are named.
MOST = 4


def name_of(call: Launch) -> str:
    """The public operations in a launch, such as `softmax + multiply`."""
    nodes = call.nodes if isinstance(call, KernelCall) else (call.node,)
    names = list(dict.fromkeys(getattr(n.site, "name", "") or n.op for n in nodes))
    return " + ".join(names[:MOST] + [f"{len(names) - MOST} more"] * (len(names) > MOST)) or "copy"
