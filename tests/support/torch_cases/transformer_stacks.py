"""Stacks of layers, and transformers whole."""

from typing import Any

from tests.support.torch_cases.transformers import LATER, MEMORY, PADDING, X, Y, decoder, masked
from tests.support.torch_golden import Case


def _layers(t: Any, **options: Any) -> Any:
    layer = t.nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, **options)
    return t.nn.TransformerEncoder(layer, 2, t.nn.LayerNorm(4), enable_nested_tensor=False)


def _all(**options: Any) -> Any:
    return lambda t: t.nn.Transformer(4, 2, 1, 1, 6, dropout=0.0, **options)


CASES = [
    Case("encoder", masked(_layers, mask=LATER), (X,), steps=0),
    Case("encoder, padding", masked(_layers, src_key_padding_mask=PADDING, mask=LATER, is_causal=True), (X,), steps=0),
    Case("decoder", lambda t: t.nn.TransformerDecoder(decoder()(t), 2), (X, Y), steps=0),
    Case("transformer", _all(norm_first=True), (Y, X), steps=3),
    Case("transformer, masks", masked(
        _all(batch_first=True), tgt_mask=LATER, tgt_is_causal=True, src_key_padding_mask=MEMORY,
        memory_key_padding_mask=MEMORY), ((2, 4, 4), (2, 3, 4)), steps=0),
    Case("square mask", lambda t: lambda: t.nn.Transformer.generate_square_subsequent_mask(3), (), grad=False),
]  # fmt: skip
