"""Attention: softmax(q @ k.T * by + mask) @ v as one library call, so that a backend need not store all weights.

    attention            q, k, v, [mask], by                    -->  o, l      l: log of the sum of exp along each row
    attention_gradient   q, k, v, [mask], o, l, delta, ct, by   -->  dq, dk, dv     delta: the sum of ct * o along a row

q (..., T, D), k (..., S, D), v (..., S, E), o and ct (..., T, E), l and delta (..., T); the leading extents are equal.
`by` is a number (0-d), and no derivative by it is asked for. Where a backend asks for it (`on_halves`) q, k, v, o, ct
and the gradients are halves, or these float32; l and delta are float32.
A mask has their rank, each of its leading extents and T may be 1: bool says which keys a query sees, else it is added.
A row whose keys a mask hides all is 0, without gradients, and its l is inf: every weight made from that is 0.
The first static says whether query i sees keys up to i only, the second one whether attention was recorded of halves.
The gradient recomputes the weights from l (Dao et al., 2022).

Backends without code for it compute products instead (`by_products`):

    attention            -->  w = softmax(matmul(q, k.T) * by + mask), o = matmul(w, v)
    attention_gradient   -->  s = w * (matmul(ct, v.T) - delta) * by, dq = matmul(s, k), dk = matmul(s.T, q),
                              dv = matmul(w.T, ct)
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.ir import dtypes, graph as g
from lazyt.ir.library_calls import register

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

    Array = np.ndarray[Any, Any]

ATTENTION = frozenset({"attention", "attention_gradient"})


def is_attention(n: Node) -> bool:
    return isinstance(n.attrs, g.Opaque) and n.attrs.fn in ATTENTION


def attention(
    b: Builder, q: Node, k: Node, v: Node, mask: Node | None, by: Node, causal: bool, halves: bool = False
) -> tuple[Node, Node]:
    """The nodes (o, l) of these operands. halves: that they are copies of halves, and the result is to be one."""
    b.same(q.shape[-1], k.shape[-1])
    b.same(k.shape[-2], v.shape[-2])
    operands = (q, k, v, by) if mask is None else (q, k, v, mask, by)
    shapes = (*q.shape[:-1], v.shape[-1]), q.shape[:-1]
    o, l = b.opaque("attention", operands, (causal, halves), [(s, q.dtype) for s in shapes])  # noqa: E741 - as above
    return o, l


def causal_of(n: Node) -> bool:
    assert isinstance(n.attrs, g.Opaque)
    causal: bool = n.attrs.statics[0]
    return causal


def of_halves(n: Node) -> bool:
    """Whether attention was recorded of halves: weights, and what its gradient makes of them, may be rounded then."""
    assert isinstance(n.attrs, g.Opaque)
    return bool(n.attrs.statics[1])


def mask_of(n: Node) -> int | None:
    """The position of the mask among the operands of a call, if it has one."""
    assert isinstance(n.attrs, g.Opaque)
    return 3 if len(n.operands) == (5 if n.attrs.fn == "attention" else 9) else None


# As primitives


def transposed(b: Builder, x: Node) -> Node:
    return b.permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def scores(b: Builder, q: Node, k: Node, mask: Node | None, by: Node, causal: bool) -> Node:
    """q @ k.T * by, with masked scores at -inf."""
    s = b.mul(b.matmul(q, transposed(b, k)), by)
    low = b.constant(-math.inf, s.dtype)
    if causal:
        at = s.shape[-2:]
        seen = b.ge(b.iota(at, 0), b.iota(at, 1))
        s = b.select(b.expand_to(seen, s.shape), s, low)
    if mask is not None:
        whole = b.expand_to(mask, s.shape)
        s = b.select(whole, s, low) if mask.dtype == dtypes.bool_ else b.add(s, whole)
    return s


def along(b: Builder, row: Node, like: Node) -> Node:
    """Broadcasts one value a row over the elements of the rows."""
    return b.expand(b.reshape(row, (*row.shape, 1)), like.shape)


def weights(b: Builder, s: Node, masked: bool, stop: Callable[[Node], Node] = lambda n: n) -> tuple[Node, Node]:
    """The softmax of scores along rows, and the log of the sum of their exp. `stop` keeps derivatives from the maximum.

    As it is recorded for `softmax`; where there is a mask rows of -inf alone are 0, and their log is inf.
    """
    last = (s.ndim - 1,)
    top = stop(b.reduce("max", s, last))
    unseen = b.eq(top, b.constant(-math.inf, s.dtype)) if masked else None
    # NOTE: a choice for each row, so scores are passed over no more often.
    top = top if unseen is None else b.select(unseen, b.constant(0, s.dtype), top)
    e = b.exp(b.sub(s, along(b, top, s)))
    total = b.reduce("sum", e, last)
    total = total if unseen is None else b.select(unseen, b.constant(1, s.dtype), total)
    log = b.add(top, b.log(total))
    return b.div(e, along(b, total, s)), log if unseen is None else b.select(unseen, b.constant(math.inf, s.dtype), log)


def by_products(b: Builder, n: Node, operands: Sequence[Node]) -> tuple[Node, ...]:
    """The results of the call n, of these operands."""
    at, causal = mask_of(n), causal_of(n)
    q, k, v, by = (*operands[:3], operands[-1])
    mask = None if at is None else operands[at]
    w, l = weights(b, scores(b, q, k, mask, by, causal), mask is not None)  # noqa: E741 - as above
    assert isinstance(n.attrs, g.Opaque)
    if n.attrs.fn == "attention":
        return b.matmul(w, v), l
    delta, ct = operands[-3:-1]
    s = b.mul(b.mul(w, b.sub(b.matmul(ct, transposed(b, v)), along(b, delta, w))), by)
    return b.matmul(s, k), b.matmul(transposed(b, s), q), b.matmul(transposed(b, w), ct)


# As calls


def as_call(b: Builder, n: Node, operands: Sequence[Node]) -> tuple[Node, ...]:
    """The results of the call n, of these operands, as one."""
    assert isinstance(n.attrs, g.Opaque)
    return b.opaque(n.attrs.fn, operands, n.attrs.statics, n.attrs.outputs)


def on_halves(b: Builder, n: Node, operands: Sequence[Node], wide: bool = False) -> tuple[Node, ...] | None:
    """The same on the halves that q, k, v and ct were cast from; None if they were not halves of one kind.

    wide: whether the call gives gradients as float32.
    """
    assert isinstance(n.attrs, g.Opaque)
    back = n.attrs.fn == "attention_gradient"
    at = (0, 1, 2, *((len(operands) - 2,) if back else ()))
    found = {i: x for i in at if (x := before_cast(b, operands[i])) is not None}
    if len(found) < len(at) or len({x.dtype for x in found.values()}) > 1:
        return None
    half = found[0].dtype
    if back:
        found[len(operands) - 5] = halved(b, operands[-5], half)
    outputs = [
        (shape, dtypes.float32 if (wide if back else i) else half) for i, (shape, _) in enumerate(n.attrs.outputs)
    ]
    results = b.opaque(n.attrs.fn, [found.get(i, x) for i, x in enumerate(operands)], n.attrs.statics, outputs)
    return tuple(x if x.dtype == dtypes.float32 else b.cast(x, dtypes.float32) for x in results)


def before_cast(b: Builder, x: Node) -> Node | None:
    """The halves that x was cast from, moved as x is."""

    def half(y: Node) -> Node | None:
        return y.operands[0] if y.op == "cast" and y.operands[0].dtype in dtypes.HALVES else None

    return under(b, x, ("permute", "reshape", "expand", "slice", "window", "pad"), half)


def under(b: Builder, x: Node, movement: Collection[str], rewrite: Callable[[Node], Node | None]) -> Node | None:
    """Applies `rewrite` to the value below the movement of x, and moves the result alike; None where it gives None."""
    moved = []
    while x.op in movement:
        moved.append(x)
        x = x.operands[0]
    y = rewrite(x)
    if y is None:
        return None
    for n in reversed(moved):
        y = b.make(n.op, (y, *(b.cast(z, y.dtype) for z in n.operands[1:])), n.attrs, n.shape, y.dtype)
    return y


def halved(b: Builder, x: Node, half: np.dtype) -> Node:
    """x as a half, without a detour through float32 where it was one."""
    return x.operands[0] if x.op == "cast" and x.operands[0].dtype == half else b.cast(x, half)


# As arrays of NumPy, or of what has its functions


def _scores(xp: Any, q: Array, k: Array, mask: Array | None, by: Any, causal: bool) -> Array:
    s: Array = q @ xp.swapaxes(k, -1, -2) * by
    if causal:
        s = xp.where(xp.tri(*s.shape[-2:]) > 0, s, -xp.inf)
    if mask is not None:
        s = xp.where(mask, s, -xp.inf) if mask.dtype == bool else s + mask
    return s


def attention_of(xp: Any, q: Array, k: Array, v: Array, *rest: Any) -> tuple[Array, Array]:
    *mask, by, causal = rest
    s = _scores(xp, q, k, mask[0] if mask else None, by, causal)
    top = s.max(-1, keepdims=True)
    unseen = (top == -xp.inf) & bool(mask)
    top = xp.where(unseen, 0, top)
    e = xp.exp(s - top)
    total = xp.where(unseen, 1, e.sum(-1, keepdims=True))
    return (e / total) @ v, xp.where(unseen, xp.inf, top + xp.log(total))[..., 0]


def gradient_of(xp: Any, q: Array, k: Array, v: Array, *rest: Any) -> tuple[Array, Array, Array]:
    *mask, _, l, delta, ct, by, causal = rest  # noqa: E741 - as above
    w = xp.exp(_scores(xp, q, k, mask[0] if mask else None, by, causal) - l[..., None])
    s = w * (ct @ xp.swapaxes(v, -1, -2) - delta[..., None]) * by
    return s @ k, xp.swapaxes(s, -1, -2) @ q, xp.swapaxes(w, -1, -2) @ ct


def _by_numpy(function: Callable[..., tuple[Array, ...]], *arguments: Any) -> tuple[Array, ...]:
    """The results, float32 of halves: the call's outputs say which are rounded."""
    wide = [x.astype(np.float32) if _is_half(x) else x for x in arguments]
    with np.errstate(all="ignore"):
        return tuple(x.astype(wide[0].dtype) for x in function(np, *wide))


def _is_half(x: Any) -> bool:
    return isinstance(x, np.ndarray | np.generic) and x.dtype in dtypes.HALVES


def by_call(function: Callable[..., tuple[Array, ...]], xp: Any, *arguments: Any) -> tuple[Array, ...]:
    """`function` of the operands and statics of a call: whether it was recorded of halves changes nothing here."""
    return function(xp, *arguments[:-1])


# NOTE: the weights are no linear function of q, k, mask and l. o is not read: delta is made of it.
register("attention", linear=(2,))(partial(_by_numpy, partial(by_call, attention_of)))
register("attention_gradient", linear=(2, -5, -3, -2))(partial(_by_numpy, partial(by_call, gradient_of)))
