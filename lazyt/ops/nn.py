"""Layers without state: linear, embedding, dropout and attention."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.errors import DTypeError, ShapeError
from lazyt.ir import dtypes
from lazyt.ir.attention import attention as call_attention, weights
from lazyt.ir.builder import broadcast_shapes
from lazyt.ir.symbolic import hint
from lazyt.ops import samples
from lazyt.ops.definition import PRODUCT, Operand, define, node_of, require_kind, result_type
from lazyt.ops.linear import matmul_nodes
from lazyt.ops.random import uniform_bits
from lazyt.ops.statistics import SOFTMAX

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node


def linear(b: Builder, x: Operand, w: Node, *biases: Node) -> Node:
    """x @ w.T + bias, with w of shape (out, in)."""
    d = result_type(x, w, *biases)
    work = dtypes.computed_in(d)
    v, m = node_of(b, x, work), b.cast(w, work)
    if m.ndim not in (1, 2) or not v.ndim or hint(v.shape[-1]) != hint(m.shape[-1]):
        raise ShapeError(
            f"linear: an input (..., in) and a weight (out, in) or (in,) are required, got shapes "
            f"{tuple(map(hint, v.shape))} and {tuple(map(hint, m.shape))}"
        )
    y = matmul_nodes(b, "linear", v, b.permute(m, range(m.ndim)[::-1]))
    for bias in biases:
        shape = broadcast_shapes(b, "linear", y.shape, bias.shape)
        y = b.add(b.expand_to(y, shape), b.expand_to(b.cast(bias, work), shape))
    return b.cast(y, d)


def _linear_numpy(x: np.ndarray, weight: np.ndarray, bias: Any = None) -> np.ndarray:
    y = x.astype(np.result_type(np.float64, x)) @ weight.T
    return samples.as_given(np.asarray(y if bias is None else y + bias), x, weight, bias)


_W = samples.array((5, 4))
LINEAR = define(
    "linear",
    linear,
    saves=PRODUCT,
    numpy=_linear_numpy,
    samples=samples.calls(
        (samples.array((3, 4)), _W),
        (samples.array((2, 3, 4)), _W, samples.array((5,))),
        (samples.array((4,)), _W, samples.array((5,))),
        (samples.array((3, 4)), _W[0]),
        (samples.array((3, 4), "float16"), _W.astype("float16"), samples.array((5,), "float16")),
    ),
    errors=[((samples.array((3, 3)), _W), {}, ShapeError, "linear: an input")],
)


def embedding(b: Builder, x: Node, w: Node, *padding: Operand) -> Node:
    """Operands x, weight, [padding_idx]: that row gets no gradient."""
    if dtypes.kind(x.dtype) not in "iu":
        raise DTypeError(f"embedding: integer indices are required, got {x.dtype}")
    if w.ndim != 2:
        raise ShapeError(f"embedding: a weight (rows, features) is required, got shape {tuple(map(hint, w.shape))}")
    index = b.cast(x, dtypes.int64)
    y = b.gather(w, (index,), (0,))
    if padding:
        skipped = b.eq(index, b.expand_to(node_of(b, padding[0], dtypes.int64), index.shape))
        y = b.select(b.expand(b.reshape(skipped, (*index.shape, 1)), y.shape), b.stop(y), y)
    return y


def _embedding_numpy(x: np.ndarray, weight: np.ndarray, padding_idx: Any = None) -> np.ndarray:
    return np.asarray(weight[x])


EMBEDDING = define(
    "embedding",
    embedding,
    saves=(0,),
    fallible=True,
    numpy=_embedding_numpy,
    samples=samples.calls(
        (np.array([[0, 4], [2, 2]]), _W),
        (np.array(3, "int32"), _W, {"padding_idx": 3}),
        (np.zeros((0, 2), int), _W),
    ),
    errors=[
        ((_W, _W), {}, DTypeError, "embedding: integer indices are required"),
        ((np.array([0]), _W[0]), {}, ShapeError, "embedding: a weight"),
    ],
)


def dropped(b: Builder, x: Node, p: Operand, scale: Operand, seed: Operand, counter: Operand) -> Node:
    """x * scale where a uniform number is at least p, and 0 elsewhere."""
    kept = b.ge(uniform_bits(b, seed, counter, x.shape, dtypes.float32), node_of(b, p, dtypes.float32))
    return b.select(kept, b.mul(x, node_of(b, scale, x.dtype)), b.constant(0, x.dtype))


def dropout(b: Builder, x: Node, p: Operand, scale: Operand, seed: Operand, counter: Operand) -> Node:
    require_kind("dropout", x.dtype, "fc", "a floating dtype")
    return b.cast(dropped(b, b.cast(x, dtypes.computed_in(x.dtype)), p, scale, seed, counter), x.dtype)


DROPOUT = define("dropout", dropout)


def attention(b: Builder, q: Node, k: Node, v: Node, *rest: Any) -> Node:
    """Operands q, k, v, [mask], scale, [p, 1 / (1 - p), seed, counter]; statics: mask?, causal?, dropout?"""
    *operands, masked, causal, drops = rest
    name = "scaled_dot_product_attention"
    d = result_type(q, k, v)
    require_kind(name, d, "f", "a real floating dtype")
    work = dtypes.computed_in(d)
    q, k, v = (b.cast(t, work) for t in (q, k, v))
    if min(q.ndim, k.ndim, v.ndim) < 2:
        raise ShapeError(f"{name}: query, key and value have at least two dimensions (..., length, features)")
    scale = node_of(b, operands[masked], work)
    if not drops and (
        found := _as_call(b, name, q, k, v, operands[0] if masked else None, scale, causal, d in dtypes.HALVES)
    ):
        return b.cast(found, d)
    keys = b.permute(k, (*range(k.ndim - 2), k.ndim - 1, k.ndim - 2))
    scores = b.mul(matmul_nodes(b, name, q, keys), scale)
    low = b.constant(-math.inf, work)
    if causal:
        at = scores.shape[-2:]
        seen = b.ge(b.iota(at, 0), b.iota(at, 1))
        scores = b.select(b.expand_to(seen, scores.shape), scores, low)
    if masked:
        mask = operands[0]
        shape = broadcast_shapes(b, name, scores.shape, mask.shape)
        scores = b.expand_to(scores, shape)
        if mask.dtype == dtypes.bool_:
            scores = b.select(b.expand_to(mask, shape), scores, low)
        else:
            scores = b.add(scores, b.expand_to(b.cast(mask, work), shape))
    w = weights(b, scores, True, b.stop)[0] if masked else SOFTMAX.lower(b, scores, -1)
    assert not isinstance(w, tuple), "softmax has one result"
    if drops:
        w = dropped(b, w, *operands[masked + 1 :])
    return b.cast(matmul_nodes(b, name, w, v), d)


def _as_call(
    b: Builder, name: str, q: Node, k: Node, v: Node, mask: Node | None, scale: Node, causal: bool, halves: bool
) -> Node | None:
    """Attention as one call, which keeps no weights; None for shapes that it does not have."""
    if (
        scale.op != "scalar"
        or hint(q.shape[-1]) != hint(k.shape[-1])
        or hint(k.shape[-2]) != hint(v.shape[-2])
        or not hint(k.shape[-2])
    ):
        return None
    b.at_least(k.shape[-2], 1)
    rows = q.shape[-2], k.shape[-2]
    if mask is not None:
        # NOTE: a mask may have more queries or keys than there are, where that is one.
        if any(hint(d) not in (1, hint(e)) for d, e in zip(mask.shape[::-1], rows[::-1], strict=False)):
            return None
        broadcast_shapes(b, name, rows, mask.shape[-2:])
    leading = [x.shape[:-2] for x in (q, k, v)] + ([] if mask is None else [mask.shape[:-2]])
    batch = broadcast_shapes(b, name, *leading)
    q, k, v = (b.expand_to(x, (*batch, *x.shape[-2:])) for x in (q, k, v))
    if mask is not None:
        mask = mask if mask.dtype == dtypes.bool_ else b.cast(mask, q.dtype)
        mask = b.reshape(mask, (*(1,) * (q.ndim - mask.ndim), *mask.shape))
        mask = b.expand_to(mask, (*mask.shape[:-1], k.shape[-2]))
    return call_attention(b, q, k, v, mask, scale, causal, halves)[0]


def _attention_numpy(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None,
) -> np.ndarray:  # fmt: skip
    q, k, v = (t.astype(np.float64) for t in (query, key, value))
    s = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        s = np.where(np.tri(*s.shape[-2:]) > 0, s, -np.inf)
    if attn_mask is not None:
        s = np.where(attn_mask, s, -np.inf) if attn_mask.dtype == bool else s + attn_mask
    top = s.max(-1, keepdims=True)
    unseen = (top == -np.inf) & (attn_mask is not None)
    e = np.exp(s - np.where(unseen, 0, top))
    return np.asarray(e / np.where(unseen, 1, e.sum(-1, keepdims=True)) @ v).astype(query.dtype)


_Q, _K, _V = (samples.array((2, 3, n, 4), seed=n) for n in (5, 6, 7))
_V = _V[:, :, :6]
SCALED_DOT_PRODUCT_ATTENTION = define(
    "scaled_dot_product_attention",
    attention,
    saves=(0, 1, 2),
    numpy=_attention_numpy,
    samples=samples.calls(
        (_Q, _K, _V),
        (_Q, _K, _V, {"is_causal": True}),
        (_Q, _K, _V, {"attn_mask": np.arange(30).reshape(5, 6) % 3 < 2}),
        (_Q, _K, _V, {"attn_mask": samples.array((5, 6)), "scale": 0.3}),
        (_Q[0, 0], _K[0, 0], _V[0, 0]),
        (*(t.astype("float16") for t in (_Q, _K, _V)),),
    ),
    errors=[
        ((_Q, _K[..., :3], _V), {}, ShapeError, "scaled_dot_product_attention: shapes .* do not match"),
        ((_Q[0, 0, 0], _K, _V), {}, ShapeError, "have at least two dimensions"),
    ],
)
