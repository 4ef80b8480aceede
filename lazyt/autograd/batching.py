"""Batching: a transformation of the graph that appends what many lanes compute, given what one does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.autograd.batching_rules import BATCHING, OPAQUE_BATCHING, UNBATCHED
from lazyt.autograd.batching_rules.elementwise import random_bits
from lazyt.autograd.batching_rules.registry import Lanes
from lazyt.errors import NotSupportedError
from lazyt.ir import graph as g

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Dim


def batch(
    b: Builder, outputs: Sequence[Node], inputs: Sequence[Node], values: Sequence[Node], size: int | Dim,
    differ: bool = False,
) -> list[Node | None]:  # fmt: skip
    """Append to `b` what `outputs` are in all lanes, given `values` of `inputs`: an axis of lanes comes first.

    None for what all lanes share. With `differ` random bits that were drawn after the inputs are each lane's own.
    """
    lanes = Lanes(b, size)
    found: dict[Node, Node | tuple[Node, ...]] = dict(zip(inputs, values, strict=True))
    first = min((n.serial for n in inputs), default=len(b.nodes))
    site = b.site

    def enters(n: Node) -> bool:
        return n.serial > first and n not in found

    for n in [n for n in g.reachable(outputs, enters) if enters(n)]:
        b.site = n.site
        if isinstance(n.attrs, g.Item):
            call = found.get(n.operands[0])
            if isinstance(call, tuple):
                found[n] = call[n.attrs.index]
            continue
        if not any(o in found for o in n.operands):
            if differ and n.op == "random_bits":
                found[n] = random_bits(lanes, n)
            continue
        xs = [x if (x := _of(found, o)) is not None else o for o in n.operands]
        if not isinstance(n.attrs, g.Opaque):
            found[n] = BATCHING[n.op](lanes, n, xs)
        elif n.attrs.fn in UNBATCHED:
            raise refuse(n.attrs.fn, n.site)
        else:
            found[n] = OPAQUE_BATCHING[n.attrs.fn](lanes, n, xs)
    b.site = site
    return [_of(found, n) for n in outputs]


def refuse(fn: str, site: object) -> NotSupportedError:
    """The error for a library call that has no lanes."""
    return NotSupportedError(f"not supported: {fn} (recorded at {site}) in vmap, because {UNBATCHED[fn]}")


def _of(found: dict[Node, Node | tuple[Node, ...]], n: Node) -> Node | None:
    x = found.get(n)
    return None if isinstance(x, tuple) else x
