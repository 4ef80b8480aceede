"""Derivatives of movement and indexing: each is linear, and its rule is its adjoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.autograd.rules.formula import zeros
from lazyt.autograd.rules.registry import vjp
from lazyt.ir import dtypes, graph as g
from lazyt.ir.adjoints import fold, place
from lazyt.ir.extents import prefix_sums
from lazyt.ir.symbolic import product
from lazyt.ops.reductions import reduce

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.symbolic import Dim

    Cotangents = tuple[Node | None, ...]


@vjp("permute")
def _permute(b: Builder, n: Node, ct: Node) -> Cotangents:
    assert isinstance(n.attrs, g.Axes)
    axes = n.attrs.axes
    return (b.permute(ct, sorted(range(len(axes)), key=axes.__getitem__)),)


@vjp("reshape")
def _reshape(b: Builder, n: Node, ct: Node) -> Cotangents:
    return (b.reshape(ct, n.operands[0].shape),)


@vjp("expand")
def _expand(b: Builder, n: Node, ct: Node) -> Cotangents:
    """Sum over the axes that grew: those that are surely 1 in the operand (`expand` has seen to that)."""
    x = n.operands[0]

    def is_one(d: int | Dim) -> bool:
        return d == 1 if b.scope is None else b.scope.known_equal(d, 1)

    grown = [i for i, (d, e) in enumerate(zip(x.shape, n.shape, strict=True)) if is_one(d) and not is_one(e)]
    return (b.reshape(reduce(b, "sum", ct, grown), x.shape),)


@vjp("slice")
def _slice(b: Builder, n: Node, ct: Node) -> Cotangents:
    assert isinstance(n.attrs, g.Slice)
    return (place(b, ct, n.operands[0].shape, n.attrs.starts, n.attrs.steps),)


@vjp("update")
def _update(b: Builder, n: Node, ct: Node) -> Cotangents:
    assert isinstance(n.attrs, g.Slice)
    starts, steps, v = n.attrs.starts, n.attrs.steps, n.operands[1]
    return (b.update(ct, zeros(b, v.shape, ct.dtype), starts, steps), b.slice(ct, starts, v.shape, steps))


@vjp("pad")
def _pad(b: Builder, n: Node, ct: Node) -> Cotangents:
    assert isinstance(n.attrs, g.Pad)
    x, value = n.operands
    inside = b.slice(ct, n.attrs.lo, x.shape, (1,) * x.ndim)
    if value.op in ("constant", "scalar"):
        return (inside, None)
    # The frame alone: the cotangent with its inside blanked out.
    frame = b.update(ct, zeros(b, x.shape, ct.dtype), n.attrs.lo, (1,) * x.ndim)
    return (inside, b.reduce("sum", frame, range(n.ndim)))


@vjp("concat")
def _concat(b: Builder, n: Node, ct: Node) -> Cotangents:
    assert isinstance(n.attrs, g.Axis)
    axis = n.attrs.axis
    *begins, _ = prefix_sums([x.shape[axis] for x in n.operands])

    def part(x: Node, begin: int | Dim) -> Node:
        return b.slice(ct, tuple(begin if i == axis else 0 for i in range(n.ndim)), x.shape, (1,) * n.ndim)

    return tuple(map(part, n.operands, begins))


@vjp("window")
def _window(b: Builder, n: Node, ct: Node) -> Cotangents:
    assert isinstance(n.attrs, g.Window)
    return (fold(b, ct, n.operands[0].shape, n.attrs),)


@vjp("gather")
def _gather(b: Builder, n: Node, ct: Node) -> Cotangents:
    assert isinstance(n.attrs, g.Axes)
    x, *indices = n.operands
    nothing = zeros(b, x.shape, ct.dtype)
    return (b.scatter(nothing, ct, indices, n.attrs.axes, "add"), *(None for _ in indices))


@vjp("scatter")
def _scatter(b: Builder, n: Node, ct: Node) -> Cotangents:
    assert isinstance(n.attrs, g.Scatter)
    _, v, *indices = n.operands
    axes, none = n.attrs.axes, tuple(None for _ in indices)
    picked = b.gather(ct, indices, axes)
    if n.attrs.mode == "add":
        return (ct, picked, *none)
    nothing = zeros(b, v.shape, ct.dtype)
    kept = b.scatter(ct, nothing, indices, axes, "set")
    if indices[0].shape:
        won, at = _winners(b, n.shape, indices, axes), indices[0].shape
        won = b.reshape(won, (*at, *(1,) * (v.ndim - len(at))))
        picked = b.select(b.expand(won, v.shape), picked, nothing)
    return (kept, picked, *none)


def _winners(b: Builder, shape: g.Shape, indices: Sequence[Node], axes: Sequence[int]) -> Node:
    """Where an index is the last of its equals, so that its value is the one that was kept."""
    at = indices[0].shape
    number = b.reshape(b.iota((product(at),), 0), at)
    target = zeros(b, tuple(shape[a] for a in axes), dtypes.int64)
    all_axes = tuple(range(len(axes)))
    last = b.gather(b.scatter(target, number, indices, all_axes, "set"), indices, all_axes)
    winners: Node = b.eq(last, number)
    return winners
