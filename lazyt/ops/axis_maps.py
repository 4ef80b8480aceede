"""Linear maps along one axis that read few elements for each result: resampling and adaptive means.

A map is four nodes. Result i is the sum over k of weights[i, k] * x[reads[i, k]]; element j of x goes into the results
fed[j, m] with the weights shares[j, m]. A weight of 0 is an entry that is not there: it reads nothing.
NOTE: the second pair is the transposed map, so that a gradient reads as well, in place of adding up by index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lazyt.ir.symbolic import hint

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

# So many elements a result are spelled out; more are a reduction.
SPELLED_OUT = 4


@dataclass(frozen=True)
class AxisMap:
    """int64 indices (n, k) and weights of the dtype to compute in."""

    reads: Node
    weights: Node
    fed: Node
    shares: Node


def mapped(b: Builder, x: Node, axis: int, m: AxisMap) -> Node:
    """x, of a floating dtype, with the map along an axis."""
    value = _moved(b, _read(b, x, axis, m.reads, m.weights), x.ndim, axis)
    # What stands for its derivative: the same sums, in the order of the elements of x.
    ahead = (axis, *(i for i in range(x.ndim) if i != axis))
    permuted = b.permute(x, ahead)
    rows, width = m.fed.shape
    lone = b.reshape(permuted, (permuted.shape[0], 1, *permuted.shape[1:]))
    spread = b.expand(lone, (rows, width, *permuted.shape[1:]))
    shares = b.expand(b.reshape(m.shares, (rows, width, *(1,) * (x.ndim - 1))), spread.shape)
    zero = b.constant(0, x.dtype)
    terms = b.select(b.ne(shares, b.expand_to(zero, shares.shape)), b.mul(spread, shares), zero_like(b, spread))
    nothing = b.expand_to(zero, (m.reads.shape[0], *permuted.shape[1:]))
    total = _moved(b, b.scatter(nothing, terms, (m.fed,), (0,), "add"), x.ndim, axis)
    return b.known(total, b.stop(value))


def picked(b: Builder, x: Node, axis: int, reads: Node) -> Node:
    """x at one element a result, of any dtype: `reads` is (n, 1)."""
    return _moved(b, b.gather(x, (b.reshape(reads, reads.shape[:1]),), (axis,)), x.ndim, axis)


def zero_like(b: Builder, x: Node) -> Node:
    """Zeros of the shape and dtype of x."""
    return b.expand_to(b.constant(0, x.dtype), x.shape)


def _read(b: Builder, x: Node, axis: int, reads: Node, weights: Node) -> Node:
    """The sums with the axis first."""
    rows, width = reads.shape
    if hint(width) > SPELLED_OUT or not isinstance(width, int):
        parts = b.gather(x, (reads,), (axis,))
        return b.reduce("sum", _weighted(b, parts, weights), (1,))
    total: Node | None = None
    for k in range(width):
        one = (b.reshape(b.slice(v, (0, k), (rows, 1), (1, 1)), (rows,)) for v in (reads, weights))
        index, weight = one
        term = _weighted(b, b.gather(x, (index,), (axis,)), weight)
        total = term if total is None else b.add(total, term)
    assert total is not None, "a result reads at least one element"
    return total


def _weighted(b: Builder, parts: Node, weights: Node) -> Node:
    wide = b.expand(b.reshape(weights, (*weights.shape, *(1,) * (parts.ndim - weights.ndim))), parts.shape)
    # NOTE: no product with a weight of 0, which an infinity would make NaN.
    zero = zero_like(b, parts)
    return b.select(b.ne(wide, zero), b.mul(parts, wide), zero)


def _moved(b: Builder, y: Node, ndim: int, axis: int) -> Node:
    """The first axis at `axis`."""
    return b.permute(y, (*range(1, axis + 1), 0, *range(axis + 1, ndim)))
