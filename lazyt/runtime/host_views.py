"""Reading a view of a computed value: as NumPy's own view of it, so that nothing has to run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter, itemgetter, methodcaller
from typing import Any

import numpy as np

from lazyt.ir import graph as g
from lazyt.ir.builder import Builder
from lazyt.ir.graph import Node
from lazyt.ops.linear import DIAGONAL
from lazyt.runtime import memory
from lazyt.tracing.tensor_state import Handle, Holder, View

Array = np.ndarray[Any, Any]
Move = Callable[[Array], Array]


def array_of(h: Handle) -> Array | None:
    """The value of a handle as a read-only array over its memory; None where it is pending.

    No step is recorded for a view, and no sync made.
    """
    holder: Holder = h._storage if h._storage is not None else h
    data = holder._buffer
    if data is None:
        return None
    a = memory.as_array(data)
    return a if h._view is None else _seen(a, h._view)


def _seen(a: Array, view: View) -> Array | None:
    """`a` through a chain of view operations; None if one of them is more than a movement."""
    known = view.moves
    if known is None or known[0] != a.shape or known[1] != a.dtype:
        known = view.moves = a.shape, a.dtype, _moves(a, view)
    moves: tuple[Move, ...] | None = known[2]
    if moves is None:
        return None
    for move in moves:
        a = move(a)
    return a


def _moves(a: Array, view: View) -> tuple[Move, ...] | None:
    """What a chain of view operations does to an array like `a`."""
    chain: list[View] = []
    v: View | None = view
    while v is not None:
        chain.append(v)
        v = v.parent
    moves: list[Move] = []
    shape, dtype = a.shape, a.dtype
    for v in reversed(chain):
        made = _moves_of(v, shape, dtype)
        if made is None:
            return None
        moves += made
        shape, dtype = v.shape, v.dtype
    return tuple(moves)


def _moves_of(v: View, shape: tuple[int, ...], dtype: np.dtype) -> list[Move] | None:
    """What one view operation does to an array of this shape and dtype."""
    if v.op is DIAGONAL:
        return [methodcaller("diagonal", *v.statics)]
    b = Builder()
    more = {"ints": v.ints, "offsets": v.offsets}
    options = {k: x for k, x in more.items() if x is not None}
    n = v.op.lower(b, b.input(0, shape, dtype), *v.statics, **options)
    # NOTE: each of one operand at most, so they are in line.
    found = [_move(m) if len(m.operands) <= 1 else None for m in g.reachable([n]) if m.op not in ("input", "stop")]
    moves = [m for m in found if m is not None]
    return moves if len(moves) == len(found) else None


def _move(n: Node) -> Move | None:
    shape: Any = n.shape
    match n.op:
        case "permute":
            assert isinstance(n.attrs, g.Axes)
            return methodcaller("transpose", n.attrs.axes)
        case "reshape":
            return methodcaller("reshape", shape)
        case "expand":
            return partial(np.broadcast_to, shape=shape)
        case "slice":
            assert isinstance(n.attrs, g.Slice)
            return itemgetter(tuple(map(_slice, n.attrs.starts, n.attrs.steps, shape)))
        case "real" | "imag":
            return attrgetter(n.op)
    return None


def _slice(start: Any, step: int, count: int) -> slice:
    """The `count` elements from `start` on."""
    if not count:
        return slice(0, 0)
    stop = start + count * step
    return slice(start, None if stop < 0 else stop, step)
