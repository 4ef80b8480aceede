"""Attention in several heads, of PyTorch's layout and arguments."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.errors import DTypeError, ShapeError
from lazyt.functions.arguments import tensor
from lazyt.functions.arithmetic import add, multiply
from lazyt.functions.creation import full, tri, zeros
from lazyt.functions.joining import concat
from lazyt.functions.logic import logical_and, logical_not, where
from lazyt.functions.manipulation import (
    broadcast_to,
    expand_dims,
    permute_dims,
    reshape,
    split,
    squeeze,
    swapaxes,
)
from lazyt.functions.nn import dropout, linear, scaled_dot_product_attention
from lazyt.functions.products import matmul, matrix_transpose
from lazyt.functions.reductions import mean
from lazyt.functions.statistics import softmax
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.runtime.tensor import Tensor

__all__ = ["multi_head_attention_forward"]

NAME = "multi_head_attention_forward"


def multi_head_attention_forward(
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Any,
    out_proj_bias: Any,
    training: bool = True,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Any = None,
    k_proj_weight: Any = None,
    v_proj_weight: Any = None,
    static_k: Any = None,
    static_v: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
    *,
    batch_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention in several projections of query, key and value, put together again: (output, weights or None).

    Inputs are (length, batch, features), or (length, features); with `batch_first`, lazyt's own, (batch, length,
    features). In masks, True hides a key, and floats are added: `attn_mask` (L, S) or (batch * heads, L, S),
    `key_padding_mask` (batch, S). `is_causal` says that `attn_mask` hides what comes later, or stands for such a mask.
    Raises ShapeError for shapes that do not fit. As `torch.nn.functional.multi_head_attention_forward`.

    >>> import lazyt as lt
    >>> x, one = lt.ones((5, 2, 4)), lt.eye(4)
    >>> w, F = lt.concat([one, one, one]), lt.nn.functional
    >>> y, weights = F.multi_head_attention_forward(x, x, x, 4, 2, w, None, None, None, False, 0.0, one, None)
    >>> y.shape, weights.shape
    ((5, 2, 4), (2, 5, 5))
    """
    if query.shape[-1:] != (embed_dim_to_check,) or num_heads < 1 or embed_dim_to_check % num_heads:
        raise ShapeError(
            f"{NAME}: a query of {embed_dim_to_check} features, which {num_heads} heads divide, is required, got shape "
            f"{tuple(query.shape)}"
        )
    lone = len(query.shape) == 2
    if use_separate_proj_weight:
        weights = [q_proj_weight, k_proj_weight, v_proj_weight]
    else:
        weights = [in_proj_weight]
    if any(w is None for w in weights):
        raise ShapeError(f"{NAME}: all projection weights are required, got None for one")
    inputs = [_with_batch(x, lone, batch_first) for x in ((query,) if query is key is value else (query, key, value))]
    xs = _projected(inputs, weights, in_proj_bias)
    n, length = xs[0].shape[:2]
    if xs[1].shape[:2] != xs[2].shape[:2] or xs[1].shape[0] != n:
        raise ShapeError(
            f"{NAME}: key and value of one length, and a batch of {n}, are required, got {tuple(xs[1].shape[:2])} and "
            f"{tuple(xs[2].shape[:2])} (batch, length)"
        )
    keys = xs[1].shape[1]
    attn, padding = _checked(attn_mask, key_padding_mask, (n, num_heads, length, keys), lone)
    if (bias_k is None) != (bias_v is None) or (bias_k is not None and not (static_k is static_v is None)):
        raise ShapeError(f"{NAME}: bias_k and bias_v are given together, and not with static_k or static_v")
    if bias_k is not None:
        xs[1:] = [
            concat([x, broadcast_to(c, (n, 1, c.shape[-1]))], axis=1)
            for x, c in zip(xs[1:], (bias_k, bias_v), strict=True)
        ]
    q, k, v = (_heads(x, num_heads) for x in xs)
    k, v = _static(static_k, k, n, num_heads), _static(static_v, v, n, num_heads)
    if add_zero_attn:
        k, v = (
            concat([x, zeros((*x.shape[:2], 1, x.shape[3]), dtype=x.dtype, device=x.device)], axis=2) for x in (k, v)
        )
    more = k.shape[2] - keys if static_k is None else 0
    causal = is_causal and (attn is None or (padding is None and not need_weights))
    mask = _combined(None if causal else attn, padding, more)
    if causal and (mask is not None or more or need_weights):
        mask, causal = _hidden_later(q, k, mask, more), False
    p = dropout_p if training else 0.0
    if need_weights:
        y, found = _with_weights(q, k, v, mask, p)
        found = mean(found, axis=1) if average_attn_weights else found
    else:
        y, found = scaled_dot_product_attention(q, k, v, mask, p, causal), None
    y = linear(reshape(permute_dims(y, (0, 2, 1, 3)), (n, length, embed_dim_to_check)), out_proj_weight, out_proj_bias)
    if lone:
        return squeeze(y, 0), None if found is None else squeeze(found, 0)
    # NOTE: contiguous, as PyTorch's, which `y.view(...)` takes
    return y if batch_first else swapaxes(y, 0, 1).clone(), found


def _with_batch(x: Any, lone: bool, batch_first: bool) -> Tensor:
    """(batch, length, features)"""
    if len(x.shape) != (2 if lone else 3):
        raise ShapeError(f"{NAME}: query, key and value of one rank (2 or 3) are required, got shape {tuple(x.shape)}")
    return expand_dims(x, 0) if lone else tensor(x) if batch_first else swapaxes(x, 0, 1)


def _projected(inputs: Sequence[Any], weights: Sequence[Any], bias: Any) -> list[Any]:
    """Query, key and value times their weights: one product where they are one array."""
    if len(inputs) == len(weights) == 1:
        return list(split(linear(inputs[0], weights[0], bias), 3, axis=-1))
    biases = (None,) * 3 if bias is None else split(bias, 3)
    ws = split(weights[0], 3) if len(weights) == 1 else weights
    return [
        linear(x, w, c)
        for x, w, c in zip((*inputs, *inputs, *inputs)[:3] if len(inputs) == 1 else inputs, ws, biases, strict=True)
    ]


def _heads(x: Any, heads: int) -> Tensor:
    """(batch, length, features) -> (batch, heads, length, features / heads)"""
    n, length, features = x.shape
    return permute_dims(reshape(x, (n, length, heads, features // heads)), (0, 2, 1, 3))


def _static(given: Any, x: Any, n: int, heads: int) -> Any:
    """Keys or values (batch * heads, S, features / heads) in place of the projected ones."""
    if given is None:
        return x
    if len(given.shape) != 3 or given.shape[0] != n * heads or given.shape[2] != x.shape[3]:
        raise ShapeError(
            f"{NAME}: static_k and static_v of shape ({n * heads}, S, {x.shape[3]}) are required, got "
            f"{tuple(given.shape)}"
        )
    return reshape(given, (n, heads, *given.shape[1:]))


def _checked(attn: Any, padding: Any, sizes: tuple[int, int, int, int], lone: bool) -> tuple[Any, Any]:
    """The masks as (batch or 1, heads or 1, L or 1, S)."""
    n, heads, length, keys = sizes
    for name, mask in (("attn_mask", attn), ("key_padding_mask", padding)):
        if mask is not None and mask.dtype != dtypes.bool_ and dtypes.kind(mask.dtype) != "f":
            raise DTypeError(f"{NAME}: {name} is of bools or floats, got {mask.dtype}")
    if attn is not None:
        shape = tuple(attn.shape)
        if shape not in ((length, keys), (n * heads, length, keys)):
            raise ShapeError(
                f"{NAME}: attn_mask of shape {(length, keys)} or {(n * heads, length, keys)} is required, got {shape}"
            )
        attn = reshape(attn, (1, 1, length, keys) if len(shape) == 2 else sizes)
    if padding is not None:
        required = (keys,) if lone else (n, keys)
        if tuple(padding.shape) != required:
            raise ShapeError(f"{NAME}: key_padding_mask of shape {required} is required, got {tuple(padding.shape)}")
        padding = reshape(padding, (n, 1, 1, keys))
    return attn, padding


def _additive(mask: Any) -> Any:
    """A mask whose True hides, or a float one, as what is added to the products."""
    return where(mask, -math.inf, 0.0) if mask.dtype == dtypes.bool_ else mask


def _combined(attn: Any, padding: Any, more: int) -> Any:
    """One mask for `scaled_dot_product_attention` (whose True shows), or None; `more` last keys are always shown."""
    masks = [m for m in (attn, padding) if m is not None]
    rest: bool | float
    if not masks:
        return None
    if all(m.dtype == dtypes.bool_ for m in masks):
        shown = [logical_not(m) for m in masks]
        found, rest = shown[0] if len(shown) == 1 else logical_and(shown[0], shown[1]), True
    else:
        floats = [_additive(m) for m in masks]
        found, rest = floats[0] if len(floats) == 1 else add(floats[0], floats[1]), 0.0
    if not more:
        return found
    last = full((*found.shape[:3], more), rest, dtype=found.dtype, device=found.device)
    return concat([found, last], axis=3)


def _hidden_later(q: Any, k: Any, mask: Any, more: int) -> Any:
    """The mask with later keys hidden too, but for `more` last ones."""
    seen = tri(q.shape[-2], k.shape[-2] - more, dtype=dtypes.bool_, device=q.device)
    if more:
        last = full((q.shape[-2], more), True, dtype=dtypes.bool_, device=q.device)
        seen = concat([seen, last], axis=1)
    if mask is None:
        return seen
    if mask.dtype == dtypes.bool_:
        return logical_and(mask, seen)
    return where(seen, mask, full((), -math.inf, dtype=mask.dtype, device=mask.device))


def _with_weights(q: Any, k: Any, v: Any, mask: Any, p: float) -> tuple[Tensor, Tensor]:
    """Attention written out, for the sake of its weights."""
    scores = multiply(matmul(q, matrix_transpose(k)), 1 / math.sqrt(q.shape[-1]))
    if mask is not None:
        scores = where(mask, scores, -math.inf) if mask.dtype == dtypes.bool_ else add(scores, mask)
    weights = dropout(softmax(scores, axis=-1), p, p > 0)
    return matmul(weights, v), weights
