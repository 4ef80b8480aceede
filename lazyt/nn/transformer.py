"""Transformers, and the layers that they are stacks of."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

from lazyt.errors import NotSupportedError, ShapeError
from lazyt.functions.creation import full, triu
from lazyt.functions.elementwise import relu
from lazyt.functions.nn import gelu
from lazyt.ir import dtypes
from lazyt.nn import init
from lazyt.nn.attention import MultiheadAttention
from lazyt.nn.containers import ModuleList
from lazyt.nn.dropout import Dropout
from lazyt.nn.linear import Linear
from lazyt.nn.module import Module
from lazyt.nn.norms import LayerNorm

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.runtime.tensor import Tensor

    Activation = str | Callable[[Any], Any]

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]

ACTIVATIONS = {"relu": relu, "gelu": gelu}


def _activation(name: str, activation: Activation) -> Callable[[Any], Any]:
    if not isinstance(activation, str):
        return activation
    if activation not in ACTIVATIONS:
        raise NotSupportedError(f"{name}: activation is 'relu', 'gelu' or a function, got {activation!r}")
    return ACTIVATIONS[activation]


class _Layer(Module):
    """Blocks, each added to its input; the input (`norm_first`) or the sum is normalized."""

    self_attn: Any
    activation: Any

    def __init__(
        self,
        attentions: tuple[str, ...],
        d_model: int,
        nhead: int,
        dim_feedforward: int,
        dropout: float,
        activation: Activation,
        layer_norm_eps: float,
        batch_first: bool,
        norm_first: bool,
        bias: bool,
        device: Any,
        dtype: Any,
    ) -> None:
        super().__init__()
        for name in attentions:
            one = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, device=device, dtype=dtype)
            setattr(self, name, one)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, device=device, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, device=device, dtype=dtype)
        self.norm_first = norm_first
        self._blocks = len(attentions) + 1
        for k in range(1, self._blocks + 1):
            setattr(self, f"norm{k}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype))
        for k in range(1, self._blocks + 1):
            setattr(self, f"dropout{k}", Dropout(dropout))
        self.activation = _activation(type(self).__name__, activation)

    def _added(self, x: Any, k: int, block: Callable[[Any], Any]) -> Any:
        """x with block number k of it added."""
        norm, drop = getattr(self, f"norm{k}"), getattr(self, f"dropout{k}")
        return x + drop(block(norm(x))) if self.norm_first else norm(x + drop(block(x)))

    def _feed_forward(self, x: Any) -> Any:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Attention of a sequence to itself, then two dense layers, each added to its input and normalized.

    Inputs are (length, batch, d_model), (batch, length, d_model) if `batch_first`, or (length, d_model). Masks are as
    in `MultiheadAttention`. Raises ShapeError for shapes that do not fit. As `torch.nn.TransformerEncoderLayer`.

    >>> import lazyt as lt
    >>> layer = lt.nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", norm_first=True)
    >>> layer(lt.ones((5, 3, 8))).shape
    (5, 3, 8)
    """

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = relu, layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(("self_attn",), d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
                         batch_first, norm_first, bias, device, dtype)  # fmt: skip

    def forward(
        self, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False
    ) -> Tensor:
        def attend(x: Any) -> Any:
            return self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal)[0]

        found: Tensor = self._added(self._added(src, 1, attend), 2, self._feed_forward)
        return found


class TransformerDecoderLayer(_Layer):
    """Attention of a sequence to itself, then to `memory`, then two dense layers, each added and normalized.

    Inputs are (length, batch, d_model), (batch, length, d_model) if `batch_first`, or (length, d_model). Masks are as
    in `MultiheadAttention`. Raises ShapeError for shapes that do not fit. As `torch.nn.TransformerDecoderLayer`.

    >>> import lazyt as lt
    >>> layer = lt.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> layer(lt.ones((3, 5, 8)), lt.ones((3, 7, 8)), tgt_is_causal=True).shape
    (3, 5, 8)
    """

    multihead_attn: Any

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = relu, layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(("self_attn", "multihead_attn"), d_model, nhead, dim_feedforward, dropout, activation,
                         layer_norm_eps, batch_first, norm_first, bias, device, dtype)  # fmt: skip

    def forward(
        self,
        tgt: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Any) -> Any:
            return self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal)[0]

        def look_up(x: Any) -> Any:
            return self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, False, memory_mask, is_causal=memory_is_causal
            )[0]

        found: Tensor = self._added(self._added(self._added(tgt, 1, attend), 2, look_up), 3, self._feed_forward)
        return found


class _Stack(Module):
    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def _normalized(self, x: Any) -> Any:
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """A stack of copies of an encoder layer, and a norm behind. As `torch.nn.TransformerEncoder`.

    `is_causal` says that `mask` hides what comes later; None leaves it at the mask, whose values are not read.
    `enable_nested_tensor` and `mask_check` are accepted: there is one path for all.

    >>> import lazyt as lt
    >>> layer = lt.nn.TransformerEncoderLayer(8, 2, 16)
    >>> lt.nn.TransformerEncoder(layer, 2, lt.nn.LayerNorm(8))(lt.ones((5, 3, 8))).shape
    (5, 3, 8)
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check

    def forward(
        self, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool | None = None
    ) -> Any:
        for layer in self.layers:
            src = layer(src, src_mask=mask, is_causal=bool(is_causal), src_key_padding_mask=src_key_padding_mask)
        return self._normalized(src)


class TransformerDecoder(_Stack):
    """A stack of copies of a decoder layer, and a norm behind. As `torch.nn.TransformerDecoder`.

    `tgt_is_causal` says that `tgt_mask` hides what comes later; None leaves it at the mask, whose values are not read.

    >>> import lazyt as lt
    >>> layer = lt.nn.TransformerDecoderLayer(8, 2, 16)
    >>> lt.nn.TransformerDecoder(layer, 2)(lt.ones((5, 3, 8)), lt.ones((7, 3, 8))).shape
    (5, 3, 8)
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Any:
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=bool(tgt_is_causal),
                memory_is_causal=memory_is_causal,
            )
        return self._normalized(tgt)


class Transformer(Module):
    """An encoder of `src`, and a decoder of `tgt` that reads what it gives. As `torch.nn.Transformer`.

    Inputs are (length, batch, d_model), (batch, length, d_model) if `batch_first`, or (length, d_model). Masks are as
    in `MultiheadAttention`. Raises ShapeError for shapes that do not fit.

    >>> import lazyt as lt
    >>> model = lt.nn.Transformer(8, 2, 1, 1, 16)
    >>> model(lt.ones((7, 3, 8)), lt.ones((5, 3, 8)), tgt_mask=model.generate_square_subsequent_mask(5)).shape
    (5, 3, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        one = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        if custom_encoder is None:
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype)
            custom_encoder = TransformerEncoder(
                TransformerEncoderLayer(*one, device=device, dtype=dtype), num_encoder_layers, norm
            )
        if custom_decoder is None:
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype)
            custom_decoder = TransformerDecoder(
                TransformerDecoderLayer(*one, device=device, dtype=dtype), num_decoder_layers, norm
            )
        self.encoder, self.decoder = custom_encoder, custom_decoder
        for p in self.parameters():
            if len(p.shape) > 1:
                init.xavier_uniform_(p)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self,
        src: Any,
        tgt: Any,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Any:
        at = 0 if self.batch_first else 1
        shapes = tuple(src.shape), tuple(tgt.shape)
        if shapes[0][-1:] != (self.d_model,) or shapes[1][-1:] != (self.d_model,) or len(shapes[0]) != len(shapes[1]):
            raise ShapeError(f"Transformer: src and tgt of {self.d_model} features are required, got {shapes}")
        if len(shapes[0]) == 3 and shapes[0][at] != shapes[1][at]:
            raise ShapeError(f"Transformer: src and tgt of one batch size (axis {at}) are required, got {shapes}")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """(sz, sz), to be added to products of queries and keys: -inf for keys that come later, 0 elsewhere."""
        d = dtypes.float32 if dtype is None else dtype
        return triu(full((sz, sz), -math.inf, dtype=d, device=device), k=1)
