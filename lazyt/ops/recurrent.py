"""Recurrent layers: the parts of an array by time, and what an iteration does behind its products.

The gates' sigmoids are written as (1 + tanh(x / 2)) / 2 and multiplied out, so that derivatives read the tangents
alone: half as much is kept for each iteration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.ir import dtypes
from lazyt.ir.graph import shape_text
from lazyt.ir.symbolic import hint
from lazyt.ops.definition import define, require_kind, result_type

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node


def _steps(b: Builder, x: Node, count: int) -> tuple[Node, ...]:
    """x[0], x[1], ..., x[count - 1]. They are no views, so that their places are known when a plan is made."""
    if not x.ndim or hint(x.shape[0]) != count:
        raise ShapeError(f"time_steps: {count} steps are required, got shape {shape_text(tuple(map(hint, x.shape)))}")
    b.same(x.shape[0], count)
    rest = x.shape[1:]
    ones = (1,) * x.ndim
    return tuple(b.reshape(b.slice(x, (t, *(0,) * len(rest)), (1, *rest), ones), rest) for t in range(count))


TIME_STEPS = define("recurrent.time_steps", _steps)


def _half(b: Builder, x: Node) -> Node:
    return b.mul(x, b.constant(0.5, x.dtype))


def _gates(b: Builder, name: str, count: int, h: Node, *zs: Node) -> list[list[Node]]:
    """Each of zs, (N, count * H), as `count` parts of H features, as many as h has."""
    found = []
    size = h.shape[-1]
    for z in zs:
        if z.ndim != 2 or h.ndim != 2 or hint(z.shape[0]) != hint(h.shape[0]) or hint(z.shape[1]) != count * hint(size):
            shapes = " and ".join(shape_text(tuple(map(hint, x.shape))) for x in (z, h))
            raise ShapeError(f"{name}: shapes (N, {count} * H) and (N, H) are required, got {shapes}")
        rows = b.same(z.shape[0], h.shape[0])
        b.same(z.shape[1], size * count)
        found.append([b.slice(z, (0, size * k), (rows, size), (1, 1)) for k in range(count)])
    return found


def _kept(b: Builder, new: Node, old: Node, shown: tuple[Node, ...]) -> Node:
    """The new state where a sequence goes on, the old one where it has ended."""
    if not shown:
        return new
    return b.select(b.expand(b.reshape(shown[0], (shown[0].shape[0], 1)), new.shape), new, old)


def _prepared(b: Builder, name: str, *xs: Node) -> tuple[Any, list[Node]]:
    d = result_type(*xs)
    require_kind(name, d, "f", "a real floating dtype")
    work = dtypes.computed_in(d)
    return d, [b.cast(x, work) for x in xs]


def _lstm(b: Builder, x: Node, y: Node, c: Node, *rest: Node) -> tuple[Node, Node]:
    """Operands: input's and state's share of the gates (N, 4 H), state c (N, H), [h, mask (N,)]; gives h, c."""
    d, (x, y, c) = _prepared(b, "lstm", x, y, c)
    ((zi, zf, zu, zo),) = _gates(b, "lstm", 4, c, b.add(x, y))
    i, f, o = (b.tanh(_half(b, z)) for z in (zi, zf, zo))
    u = b.tanh(zu)
    new = _half(b, b.add(b.add(c, b.mul(f, c)), b.add(u, b.mul(i, u))))
    out = b.tanh(new)
    y = _half(b, b.add(out, b.mul(o, out)))
    if rest:
        y, new = _kept(b, y, b.cast(rest[0], y.dtype), rest[1:]), _kept(b, new, c, rest[1:])
    return b.cast(y, d), b.cast(new, d)


def _gru(b: Builder, x: Node, y: Node, h: Node, *shown: Node) -> Node:
    """Operands: the input's and the state's share of the gates (N, 3 H), the state h (N, H), [mask (N,)]; gives h."""
    d, (x, y, h) = _prepared(b, "gru", x, y, h)
    (xr, xz, xn), (yr, yz, yn) = _gates(b, "gru", 3, h, x, y)
    r, z = (b.tanh(_half(b, b.add(p, q))) for p, q in ((xr, yr), (xz, yz)))
    n = b.tanh(b.add(xn, _half(b, b.add(yn, b.mul(r, yn)))))
    # (1 - s) n + s h, where s = (1 + z) / 2
    new = _half(b, b.add(b.add(n, h), b.mul(z, b.sub(h, n))))
    return b.cast(_kept(b, new, h, shown), d)


def _rnn(b: Builder, x: Node, y: Node, h: Node, *rest: Any) -> Node:
    """Operands: the input's and the state's share (N, H), the state h, [mask (N,)]; static: the nonlinearity."""
    *shown, nonlinearity = rest
    d, (x, y, h) = _prepared(b, "rnn", x, y, h)
    ((z,),) = _gates(b, "rnn", 1, h, b.add(x, y))
    new = b.tanh(z) if nonlinearity == "tanh" else b.select(b.le(z, b.constant(0, z.dtype)), b.constant(0, z.dtype), z)
    return b.cast(_kept(b, new, h, tuple(shown)), d)


LSTM_TURN = define("recurrent.lstm", _lstm, saves=(2,))
GRU_TURN = define("recurrent.gru", _gru, saves=(2,))
RNN_TURN = define("recurrent.rnn", _rnn)
