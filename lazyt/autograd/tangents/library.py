"""Tangents through library calls.

A rule that pulls cotangents back is linear in them, and its transpose pushes tangents forward: at the same cost, and by
the same formulas. So what has no simpler rule is transposed (Radul and others, You Only Linearize Once, 2022, the other
way round).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.autograd.reverse import backward
from lazyt.autograd.rules.formula import Value, call, statics_of, zeros
from lazyt.autograd.rules.registry import OPAQUE_VJP
from lazyt.autograd.tangents.registry import library_jvp
from lazyt.ir import dtypes, graph as g
from lazyt.ir.attention import along, causal_of, mask_of, scores, transposed, weights

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

    Tangents = tuple[Node | None, ...]


@library_jvp(
    *("linalg_inv", "linalg_solve", "linalg_det", "linalg_slogdet", "linalg_pinv", "linalg_cholesky"),
    *("linalg_eigh", "linalg_eigvalsh", "linalg_svd", "linalg_svdvals", "linalg_qr", "cumprod", "attention_gradient"),
    "residuals",
)
def _transposed(b: Builder, n: Node, ts: Tangents, used: frozenset[int]) -> Tangents:
    """The pull-back of an unknown cotangent, and the tangents pulled back through that in turn."""
    assert isinstance(n.attrs, g.Opaque)
    cts: list[Node | None] = [None] * len(n.attrs.outputs)
    for i in sorted(used):
        shape, dtype = n.attrs.outputs[i]
        # NOTE: a node of its own for each: the position in the graph is nobody else's.
        identity = g.Identity(-len(b.nodes), i)
        cts[i] = b.make("track", (zeros(b, shape, dtype),), identity, shape, dtype)
    pulled = OPAQUE_VJP[n.attrs.fn](b, n, tuple(cts))
    pairs = [(p, t) for p, t in zip(pulled, ts, strict=True) if p is not None and t is not None]
    asked = [c for c in cts if c is not None]
    found, got = backward(b, [p for p, _ in pairs], [t for _, t in pairs], [[c] for c in asked])
    by = {c: t for c, t, ok in zip(asked, found, got, strict=True) if ok}
    return tuple(None if c is None else by.get(c) for c in cts)


@library_jvp("cumsum", *(f"fft_{f}{n}" for f in ("fft", "ifft", "rfft", "irfft") for n in ("", "n")))
@library_jvp("fft_hfft", "fft_ihfft")
def _linear(b: Builder, n: Node, ts: Tangents, used: frozenset[int]) -> Tangents:
    assert isinstance(n.attrs, g.Opaque)
    (t,) = ts
    assert t is not None
    return call(b, n.attrs.fn, (t,), n.attrs.statics, n.attrs.outputs)


@library_jvp("sort")
def _sort(b: Builder, n: Node, ts: Tangents, used: frozenset[int]) -> Tangents:
    """Every tangent goes where its element goes."""
    (t,) = ts
    assert t is not None
    x, axis = n.operands[0], statics_of(n)[0] % n.operands[0].ndim
    order = call(b, "argsort", (x,), statics_of(n), [(x.shape, dtypes.int64)])[0]
    indices = [order if i == axis else b.iota(x.shape, i) for i in range(x.ndim)]
    return (b.gather(t, indices, tuple(range(x.ndim))),)


@library_jvp("after")
def _after(b: Builder, n: Node, ts: Tangents, used: frozenset[int]) -> Tangents:
    """What is waited for has no derivative."""
    return ts[1:]


@library_jvp("attention")
def _attention(b: Builder, n: Node, ts: Tangents, used: frozenset[int]) -> Tangents:
    """With s the scores and w their softmax: ds = (dq @ k.T + q @ dk.T) * by + dmask, dw = w * (ds - sum(w * ds)).

    Only gradients read the second output, and theirs are by other values.
    """
    at, (q, k, v), by = mask_of(n), n.operands[:3], n.operands[-1]
    mask = None if at is None else n.operands[at]
    s = scores(b, q, k, mask, by, causal_of(n))
    w = weights(b, s, mask is not None, b.stop)[0]
    parts: list[Node] = []
    if ts[0] is not None:
        parts.append(b.mul(b.matmul(ts[0], transposed(b, k)), by))
    if ts[1] is not None:
        parts.append(b.mul(b.matmul(q, transposed(b, ts[1])), by))
    if at is not None and (t := ts[at]) is not None:
        parts.append(b.expand_to(t, s.shape))
    found: list[Node] = []
    if parts:
        ds = Value(b, parts[0])
        for p in parts[1:]:
            ds = ds + Value(b, p)
        weighted = Value(b, w) * ds
        total = along(b, b.reduce("sum", weighted.node, (s.ndim - 1,)), s)
        found.append(b.matmul((weighted - Value(b, w) * Value(b, total)).node, v))
    if ts[2] is not None:
        found.append(b.matmul(w, ts[2]))
    return (found[0] if len(found) == 1 else b.add(*found), None) if found else (None, None)
