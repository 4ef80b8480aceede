"""Multi-head attention."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions import nn as functional
from lazyt.functions.arithmetic import add, multiply
from lazyt.functions.creation import full, tri, zeros
from lazyt.functions.logic import logical_and, logical_not, where
from lazyt.functions.manipulation import expand_dims, permute_dims, reshape, split, squeeze, swapaxes
from lazyt.functions.products import matmul, matrix_transpose
from lazyt.functions.reductions import mean
from lazyt.functions.statistics import softmax
from lazyt.ir import dtypes
from lazyt.nn import init
from lazyt.nn.linear import Linear
from lazyt.nn.module import Module, Parameter
from lazyt.nn.parameters import new_parameter

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention in several projections of query, key and value, put together again. As `torch.nn.MultiheadAttention`.

    Inputs are (length, batch, features), or (batch, length, features) if `batch_first`, or (length, features). In
    masks, True hides a key. Returns the output and, if `need_weights`, the weights (else None).

    >>> import lazyt as lt
    >>> x = lt.ones((2, 5, 8))
    >>> y, weights = lt.nn.MultiheadAttention(8, 2, batch_first=True)(x, x, x)
    >>> y.shape, weights.shape
    ((2, 5, 8), (2, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ShapeError(f"MultiheadAttention: {num_heads} heads do not divide {embed_dim} features")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout, self.batch_first = dropout, batch_first
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self.packed = self.kdim == self.vdim == embed_dim
        e = embed_dim
        one = new_parameter(3 * e, e, dtype=dtype) if self.packed else None
        self.register_parameter("in_proj_weight", one)
        for name, inputs in (("q", e), ("k", self.kdim), ("v", self.vdim)):
            own = None if self.packed else new_parameter(e, inputs, dtype=dtype)
            self.register_parameter(f"{name}_proj_weight", own)
        d = dtypes.float32 if dtype is None else dtype
        self.register_parameter("in_proj_bias", Parameter(zeros((3 * e,), dtype=d)) if bias else None)
        self.out_proj = Linear(e, e, bias=bias, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        for w in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if w is not None:
                init.xavier_uniform_(w)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)

    def _projected(self, query: Any, key: Any, value: Any) -> list[Tensor]:
        if self.packed and query is key is value:
            return list(split(functional.linear(query, self.in_proj_weight, self.in_proj_bias), 3, axis=-1))
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        weights = split(self.in_proj_weight, 3) if self.packed else [getattr(self, name) for name in names]
        biases = (None,) * 3 if self.in_proj_bias is None else split(self.in_proj_bias, 3)
        return [functional.linear(x, w, c) for x, w, c in zip((query, key, value), weights, biases, strict=True)]

    def _heads(self, x: Any) -> Tensor:
        """(batch, length, features) -> (batch, heads, length, features / heads)"""
        n, length = x.shape[:2]
        return permute_dims(reshape(x, (n, length, self.num_heads, self.head_dim)), (0, 2, 1, 3))

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        lone = len(query.shape) == 2
        shared = query is key is value
        inputs = [self._batch_first(x, lone) for x in ((query,) if shared else (query, key, value))]
        q, k, v = (self._heads(x) for x in self._projected(*(inputs * 3 if shared else inputs)))
        causal = is_causal and attn_mask is None
        mask = _combined(attn_mask, key_padding_mask, lone, self.num_heads)
        p = self.dropout if self.training else 0.0
        weights: Tensor | None = None
        if need_weights:
            y, weights = _with_weights(q, k, v, mask, causal, p)
            weights = mean(weights, axis=1) if average_attn_weights else weights
        else:
            if causal and mask is not None:
                mask, causal = _hidden_later(q, k, mask), False
            y = functional.scaled_dot_product_attention(q, k, v, mask, p, causal)
        n, _, length, _ = y.shape
        y = reshape(permute_dims(y, (0, 2, 1, 3)), (n, length, self.embed_dim))
        y = self.out_proj(y)
        if lone:
            return squeeze(y, 0), None if weights is None else squeeze(weights, 0)
        return y if self.batch_first else swapaxes(y, 0, 1), weights

    def _batch_first(self, x: Any, lone: bool) -> Tensor:
        if len(x.shape) != (2 if lone else 3):
            raise ShapeError(
                f"MultiheadAttention: query, key and value of one rank (2 or 3) are required, got {x.shape}"
            )
        return expand_dims(x, 0) if lone else x if self.batch_first else swapaxes(x, 0, 1)

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, {self.num_heads}, dropout={self.dropout}, batch_first={self.batch_first}"


def _additive(mask: Any) -> Any:
    """A mask whose True hides, or a float one, as what is added to the products."""
    return where(mask, -math.inf, 0.0) if mask.dtype == dtypes.bool_ else mask


def _combined(attn: Any, padding: Any, lone: bool, heads: int) -> Any:
    """One mask for `scaled_dot_product_attention` (whose True shows), or None."""
    if attn is not None and len(attn.shape) == 3:
        attn = reshape(attn, (-1, heads, *attn.shape[1:]))
    if padding is not None:
        padding = reshape(padding, (1 if lone else padding.shape[0], 1, 1, padding.shape[-1]))
    masks = [m for m in (attn, padding) if m is not None]
    if not masks:
        return None
    if all(m.dtype == dtypes.bool_ for m in masks):
        shown = [logical_not(m) for m in masks]
        return shown[0] if len(shown) == 1 else logical_and(shown[0], shown[1])
    floats = [_additive(m) for m in masks]
    return floats[0] if len(floats) == 1 else add(floats[0], floats[1])


def _hidden_later(q: Any, k: Any, mask: Any) -> Any:
    """The mask with later keys hidden too."""
    seen = tri(q.shape[-2], k.shape[-2], dtype=dtypes.bool_, device=q.device)
    if mask.dtype == dtypes.bool_:
        return logical_and(mask, seen)
    return where(seen, mask, full((), -math.inf, dtype=mask.dtype, device=mask.device))


def _with_weights(q: Any, k: Any, v: Any, mask: Any, causal: bool, p: float) -> tuple[Tensor, Tensor]:
    """Attention spelled out, for the sake of its weights."""
    scores = multiply(matmul(q, matrix_transpose(k)), 1 / math.sqrt(q.shape[-1]))
    if causal:
        seen = tri(q.shape[-2], k.shape[-2], dtype=dtypes.bool_, device=q.device)
        mask = seen if mask is None else _hidden_later(q, k, mask)
    if mask is not None:
        scores = where(mask, scores, -math.inf) if mask.dtype == dtypes.bool_ else add(scores, mask)
    weights = softmax(scores, axis=-1)
    return matmul(functional.dropout(weights, p, p > 0), v), weights
