"""Derivatives of attention: by the library call that makes the weights again; those of that call by products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.autograd.rules.formula import Value, call, carries, outputs_of
from lazyt.autograd.rules.registry import library_vjp
from lazyt.ir.attention import along, causal_of, mask_of, of_halves, scores, weights

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

    Cotangents = tuple[Node | None, ...]


def _mask(b: Builder, mask: Node, s: Value) -> Node | None:
    """The cotangent of a mask, given that of the scores: they were added, along axes that it repeats."""
    if not carries(mask):
        return None
    axes = [
        i
        for i, (d, e) in enumerate(zip(mask.shape, s.node.shape, strict=True))
        if isinstance(d, int) and d == 1 and not b.equal(e, 1)
    ]
    return b.reshape(b.reduce("sum", s.node, axes), mask.shape) if axes else s.node


@library_vjp("attention")
def _attention(b: Builder, n: Node, cts: Cotangents) -> Cotangents:
    (ct, of_l), at, causal = cts, mask_of(n), causal_of(n)
    assert ct is not None
    assert of_l is None, "only gradients read it, and theirs are by other values"
    q, k, v, *masks, by = n.operands
    o, l = outputs_of(b, n)  # noqa: E741 - the name that it has in ir/attention.py
    delta = b.reduce("sum", b.mul(ct, o), (o.ndim - 1,))
    shapes = [(x.shape, x.dtype) for x in (q, k, v)]
    found = call(b, "attention_gradient", (q, k, v, *masks, o, l, delta, ct, by), (causal, of_halves(n)), shapes)
    if at is None:
        return *found, None
    # NOTE: has all weights at once, but is as large itself; dead code where nobody asks for it.
    s = scores(b, q, k, masks[0], by, causal)
    w = Value(b, weights(b, s, True, b.stop)[0])
    p = Value(b, ct) @ Value(b, v).H
    return *found, _mask(b, masks[0], w * (p - Value(b, along(b, delta, s)))), None


@library_vjp("attention_gradient")
def _attention_gradient(b: Builder, n: Node, cts: Cotangents) -> Cotangents:
    """With s = w * (p - delta) * by, p = ct @ v.T: dq = s @ k, dk = s.T @ q, dv = w.T @ ct, of q, k, v, ct and mask.

    What o, l and delta are computed from is among these, so no cotangent passes to them.
    """
    at, causal = mask_of(n), causal_of(n)
    q, k, v, ct, by = (Value(b, x) for x in (*n.operands[:3], *n.operands[-2:]))
    mask = None if at is None else n.operands[at]
    w = Value(b, weights(b, scores(b, q.node, k.node, mask, by.node, causal), mask is not None, b.stop)[0])

    def total(x: Value) -> Value:
        return Value(b, along(b, b.reduce("sum", x.node, (x.node.ndim - 1,)), x.node))

    p = ct @ v.H
    rest = p - total(w * p)
    s = w * rest * by
    none: list[Value | None] = [None] * 4
    of_q, of_k, of_v, of_ct = none
    of_w: Value | None = None
    of_s: Value | None = None

    def plus(x: Value | None, y: Value) -> Value:
        return y if x is None else x + y

    a, c, d = (None if x is None else Value(b, x) for x in cts)
    if a is not None:
        of_s = plus(of_s, a @ k.H)
        of_k = plus(of_k, s.H @ a)
    if c is not None:
        of_s = plus(of_s, q @ c.H)
        of_q = plus(of_q, s @ c)
    if d is not None:
        of_w = plus(of_w, ct @ d.H)
        of_ct = plus(of_ct, w @ d)
    if of_s is not None:
        of_s = of_s * by
        of_p = w * (of_s - total(w * of_s))
        of_ct = plus(of_ct, of_p @ v)
        of_v = plus(of_v, of_p.H @ ct)
        of_w = plus(of_w, of_s * rest - p * total(w * of_s))
    assert of_w is not None, "a call without cotangents is not pulled"
    back = w * (of_w - total(w * of_w))
    inner = back * by
    of_q, of_k = plus(of_q, inner @ k), plus(of_k, inner.H @ q)
    nodes = [None if x is None else x.node for x in (of_q, of_k, of_v)]
    masks = [] if mask is None else [_mask(b, mask, back)]
    return (*nodes, *masks, None, None, None, None if of_ct is None else of_ct.node, None)
