"""Forward mode: a transformation of the graph that appends the nodes of its tangents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.autograd.rules.formula import carries
from lazyt.autograd.rules.registry import NONDIFFERENTIABLE
from lazyt.autograd.tangents import JVP, OPAQUE_JVP
from lazyt.ir import graph as g

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

    # A node's tangent, or those of a library call's outputs.
    Found = dict[Node, Node | tuple[Node | None, ...] | None]


def push(b: Builder, outputs: Sequence[Node], inputs: Sequence[Node], tangents: Sequence[Node]) -> list[Node | None]:
    """Append to `b` the tangents of `outputs`, given those of `inputs`; None for what depends on none of them.

    `stop`, integers and what has no derivative have no tangent.
    """
    found: Found = dict(zip(inputs, tangents, strict=True))
    first = min((n.serial for n in inputs), default=len(b.nodes))

    def enters(n: Node) -> bool:
        fn = n.attrs.fn if isinstance(n.attrs, g.Opaque) else n.op
        return n.serial > first and n not in found and _varies(n) and fn not in NONDIFFERENTIABLE

    path = [n for n in g.reachable(outputs, enters) if enters(n)]
    used: dict[Node, set[int]] = {}
    for n in path:
        if isinstance(n.attrs, g.Item):
            used.setdefault(n.operands[0], set()).add(n.attrs.index)
    site = b.site
    for n in path:
        if isinstance(n.attrs, g.Item):
            of_call = found.get(n.operands[0])
            t = of_call[n.attrs.index] if isinstance(of_call, tuple) else None
            if t is not None and carries(n):
                found[n] = t
            continue
        ts = tuple(_of(found, o) for o in n.operands)
        if all(t is None for t in ts):
            continue
        b.site = n.site
        if isinstance(n.attrs, g.Opaque):
            found[n] = OPAQUE_JVP[n.attrs.fn](b, n, ts, frozenset(used.get(n, ())))
        else:
            t = JVP[n.op](b, n, ts)
            if t is not None:
                found[n] = b.cast(t, n.dtype)
    b.site = site
    return [_of(found, n) for n in outputs]


def _of(found: Found, n: Node) -> Node | None:
    t = found.get(n)
    return None if isinstance(t, tuple) else t


def _varies(n: Node) -> bool:
    return carries(n) or n.op == "opaque"
