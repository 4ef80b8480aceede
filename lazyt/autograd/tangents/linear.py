"""Tangents through primitives that are linear in their operands, together or in each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.autograd.rules.formula import zeros
from lazyt.autograd.tangents.registry import jvp
from lazyt.ir.prims import CONVOLUTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

    Tangents = tuple[Node | None, ...]


def again(b: Builder, n: Node, operands: Sequence[Node]) -> Node:
    """The same primitive of other operands, of the same shapes and dtypes."""
    return b.make(n.op, tuple(operands), n.attrs, n.shape, n.dtype)


def whole(b: Builder, n: Node, ts: Tangents) -> list[Node]:
    """The tangents of the operands, zeros for those that have none."""
    return [zeros(b, x.shape, x.dtype) if t is None else t for x, t in zip(n.operands, ts, strict=True)]


@jvp("permute", "reshape", "expand", "slice", "window", "sum", "neg", "conj", "real", "imag")
@jvp("concat", "update", "pad", "complex")
def _linear(b: Builder, n: Node, ts: Tangents) -> Node:
    return again(b, n, whole(b, n, ts))


@jvp("cast")
def _cast(b: Builder, n: Node, ts: Tangents) -> Node:
    (t,) = ts
    assert t is not None
    return b.cast(t, n.dtype)


@jvp("gather", "scatter")
def _indexed(b: Builder, n: Node, ts: Tangents) -> Node:
    """Indices stay: of a gather all operands but the first, of a scatter all but the first two."""
    values = 1 if n.op == "gather" else 2
    return again(b, n, [*whole(b, n, ts)[:values], *n.operands[values:]])


@jvp("add")
def _add(b: Builder, n: Node, ts: Tangents) -> Node:
    s, t = ts
    found = t if s is None else s if t is None else b.add(s, t)
    assert found is not None
    return found


@jvp("sub")
def _sub(b: Builder, n: Node, ts: Tangents) -> Node:
    s, t = ts
    if t is None:
        assert s is not None
        return s
    found: Node = b.neg(t) if s is None else b.sub(s, t)
    return found


@jvp("mul", "matmul", *CONVOLUTIONS)
def _bilinear(b: Builder, n: Node, ts: Tangents) -> Node:
    (x, y), (s, t) = n.operands, ts
    by_x = None if s is None else again(b, n, (s, y))
    by_y = None if t is None else again(b, n, (x, t))
    found = by_y if by_x is None else by_x if by_y is None else b.add(by_x, by_y)
    assert found is not None
    return found


@jvp("track", "known")
def _mark(b: Builder, n: Node, ts: Tangents) -> Node | None:
    """The value that gradients are asked for; of a stored copy that of what it is a copy of."""
    return ts[0]
