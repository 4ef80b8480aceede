"""Gradient scaling: gradients divided by a scale, whether they are finite, and the next scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.ir import dtypes
from lazyt.ops.definition import OpDef, node_of
from lazyt.ops.reductions import reduce

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node


def _unscale(b: Builder, *operands: Any) -> tuple[Node, ...]:
    """Operands: gradients, a flag, the scale; gives gradients / scale, and the flag, 1 where one is not finite."""
    *grads, found, scale = operands
    # NOTE: as PyTorch's, the factor is that of a double, rounded once.
    inverse = b.div(b.constant(1, dtypes.float64), b.cast(scale, dtypes.float64))
    out = []
    for g in grads:
        work = dtypes.computed_in(g.dtype)
        v = b.cast(g, work)
        finite = reduce(b, "all", b.isfinite(v), range(v.ndim)) if v.ndim else b.isfinite(v)
        found = b.select(finite, found, b.constant(1, found.dtype))
        out.append(b.cast(b.mul(v, b.expand_to(b.cast(inverse, work), v.shape)), g.dtype))
    return (*out, found)


def _update_scale(b: Builder, scale: Node, tracker: Node, *operands: Any) -> tuple[Node, Node]:
    """Operands: scale, count of good steps, flags, growth and backoff factor, growth interval, bounds of the scale.

    Gives the next scale and count.
    """
    *flags, growth, backoff, interval, least, most = operands
    found = flags[0]
    for flag in flags[1:]:
        found = b.maximum(found, flag)
    overflow = b.ne(found, b.constant(0, found.dtype))
    count = b.add(tracker, b.constant(1, tracker.dtype))
    due = b.eq(count, node_of(b, interval, tracker.dtype))
    grown = b.mul(scale, node_of(b, growth, scale.dtype))
    grown = b.minimum(b.select(b.isfinite(grown), grown, scale), node_of(b, most, scale.dtype))
    shrunk = b.maximum(b.mul(scale, node_of(b, backoff, scale.dtype)), node_of(b, least, scale.dtype))
    none = b.constant(0, tracker.dtype)
    new = b.select(overflow, shrunk, b.select(due, grown, scale))
    return new, b.select(overflow, none, b.select(due, none, count))


UNSCALE = OpDef("unscale_gradients", _unscale, differentiable=False)
UPDATE_SCALE = OpDef("update_scale", _update_scale, differentiable=False)
