"""Lanes of elementwise primitives, and of autograd's marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.autograd.batching_rules.registry import batching, unbatched
from lazyt.ir.prims import ELEMENTWISE, SOURCES
from lazyt.ir.symbolic import product

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.autograd.batching_rules.registry import Lanes
    from lazyt.ir.graph import Node


@batching(*ELEMENTWISE)
def _elementwise(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    return lanes.b.elementwise(n.op, *(lanes.whole(n, i, x) if x.shape else x for i, x in enumerate(xs)))


@batching("cast")
def _cast(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    return lanes.b.cast(xs[0], n.dtype)


@batching("stop")
def _stop(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    return lanes.b.stop(xs[0])


@batching("track")
def _track(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    """What a lane asks gradients of is nobody's outside."""
    return xs[0]


@batching("known")
def _known(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    y, x = (lanes.whole(n, i, x) for i, x in enumerate(xs))
    return lanes.b.known(y, x)


@batching("position")
def _position(lanes: Lanes, n: Node, xs: Sequence[Node]) -> Node:
    return lanes.b.position([lanes.whole(n, i, x) for i, x in enumerate(xs)], n.attrs.sizes)  # type: ignore[union-attr]


def random_bits(lanes: Lanes, n: Node) -> Node:
    """Bits of each lane's own: those of one draw for all lanes, one lane after the other."""
    b, (seed, counter, index) = lanes.b, n.operands
    seed, counter = _number(seed), _number(counter)
    shape = (lanes.size, *index.shape)
    if index.op == "iota" and index.ndim == 1 and not seed.shape and not counter.shape:
        flat = b.iota((product(shape),), 0)
        return b.reshape(b.elementwise("random_bits", seed, counter, flat), shape)
    first = b.mul(lanes.number(index.shape), b.extent(product(index.shape)))
    return b.elementwise("random_bits", *map(lanes.repeat, n.operands[:2]), b.add(first, lanes.repeat(index)))


def _number(x: Node) -> Node:
    """The 0-d value that was spread to x, if one was."""
    y = x
    while y.op in ("expand", "reshape"):
        y = y.operands[0]
    return x if y.shape else y


unbatched("a source: it has no operands", *SOURCES, "iota")
