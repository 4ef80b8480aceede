"""Reading a view of a computed value: as NumPy's own view of it, so that nothing has to run."""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyt import memory
from lazyt.handle import Handle, Holder, View
from lazyt.ir import graph as g
from lazyt.ir.builder import Builder
from lazyt.ir.graph import Node

Array = np.ndarray[Any, Any]


def array_of(h: Handle) -> Array | None:
    """The value of a handle as a read-only array over its memory; None where it is pending.

    No step is recorded for a view, and no sync made.
    """
    holder: Holder = h._storage if h._storage is not None else h
    data = holder._data
    if data is None:
        return None
    a = memory.as_array(data)
    return a if h._view is None else _seen(a, h._view)


def _seen(a: Array, view: View) -> Array | None:
    """`a` through a chain of view operations; None if one of them is more than a movement."""
    chain: list[View] = []
    v: View | None = view
    while v is not None:
        chain.append(v)
        v = v.parent
    b = Builder()
    n = b.leaf(0, a.shape, a.dtype)
    for v in reversed(chain):
        more = {"ints": v.ints, "offsets": v.offsets}
        n = v.op.lower(b, n, *v.statics, **{k: x for k, x in more.items() if x is not None})
    values: dict[Node, Array] = {}
    for m in g.reachable([n]):
        found = _move(m, a if m.op == "leaf" else values[m.operands[0]]) if len(m.operands) <= 1 else None
        if found is None:
            return None
        values[m] = found
    return values[n]


def _move(n: Node, x: Array) -> Array | None:
    shape: Any = n.shape
    match n.op:
        case "leaf" | "stop":
            return x
        case "permute":
            assert isinstance(n.attrs, g.Axes)
            return x.transpose(n.attrs.axes)
        case "reshape":
            return x.reshape(shape)
        case "expand":
            return np.broadcast_to(x, shape)
        case "slice":
            assert isinstance(n.attrs, g.Slice)
            return x[tuple(map(_slice, n.attrs.starts, n.attrs.steps, shape))]
        case "real":
            return x.real
        case "imag":
            return x.imag
    return None


def _slice(start: Any, step: int, count: int) -> slice:
    """The `count` elements from `start` on."""
    if not count:
        return slice(0, 0)
    stop = start + count * step
    return slice(start, None if stop < 0 else stop, step)
