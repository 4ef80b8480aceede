"""Multi-head attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.functions.attention import multi_head_attention_forward
from lazyt.functions.creation import zeros
from lazyt.ir import dtypes
from lazyt.nn import init
from lazyt.nn.linear import Linear
from lazyt.nn.module import Module, Parameter
from lazyt.nn.new_parameters import new_parameter

if TYPE_CHECKING:
    from lazyt.runtime.tensor import Tensor

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention in several projections of query, key and value, put together again. As `torch.nn.MultiheadAttention`.

    Inputs are (length, batch, features), or (batch, length, features) if `batch_first`, or (length, features). In
    masks, True hides a key, and floats are added: `attn_mask` (L, S) or (batch * heads, L, S), `key_padding_mask`
    (batch, S). `is_causal` says that `attn_mask` hides what comes later, or stands for such a mask. Returns the output
    and, if `need_weights`, the weights (else None), which keeps them in memory. Raises ShapeError for shapes that do
    not fit.

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
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim < 1 or embed_dim % num_heads:
            raise ShapeError(f"MultiheadAttention: {num_heads} heads do not divide {embed_dim} features")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self.packed = self.kdim == self.vdim == embed_dim
        e = embed_dim
        one = new_parameter(3 * e, e, device=device, dtype=dtype) if self.packed else None
        self.register_parameter("in_proj_weight", one)
        for name, inputs in (("q", e), ("k", self.kdim), ("v", self.vdim)):
            own = None if self.packed else new_parameter(e, inputs, device=device, dtype=dtype)
            self.register_parameter(f"{name}_proj_weight", own)
        d = dtypes.float32 if dtype is None else dtype
        self.register_parameter("in_proj_bias", Parameter(zeros((3 * e,), dtype=d, device=device)) if bias else None)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, new_parameter(1, 1, e, device=device, dtype=dtype) if add_bias_kv else None)
        self.out_proj = Linear(e, e, bias=bias, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        for w in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if w is not None:
                init.xavier_uniform_(w)
        for x in (self.in_proj_bias, self.out_proj.bias):
            if x is not None:
                init.zeros_(x)
        for x in (self.bias_k, self.bias_v):
            if x is not None:
                init.xavier_normal_(x)

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
        features = (self.embed_dim, self.kdim, self.vdim)
        for name, x, size in zip(("query", "key", "value"), (query, key, value), features, strict=True):
            if len(x.shape) not in (2, 3) or x.shape[-1] != size:
                raise ShapeError(
                    f"MultiheadAttention: a {name} of rank 2 or 3 with {size} features is required, got shape "
                    f"{tuple(x.shape)}"
                )
        return multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k,
            self.bias_v, self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias, self.training,
            key_padding_mask, need_weights, attn_mask, not self.packed, self.q_proj_weight, self.k_proj_weight,
            self.v_proj_weight, average_attn_weights=average_attn_weights, is_causal=is_causal,
            batch_first=self.batch_first,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, {self.num_heads}, dropout={self.dropout}, batch_first={self.batch_first}"
