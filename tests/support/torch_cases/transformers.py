"""Layers of transformers: where norms stand, activations, biases, masks and hints of causality."""

from typing import Any

import numpy as np

from tests.support.torch_golden import Case

LATER = ~np.tri(3, dtype=bool)
PADDING = np.array([[False, False, True], [False, False, False]])
MEMORY = np.array([[False, False, False, True], [False, False, False, False]])


def masked(module: Any, **masks: Any) -> Any:
    """A module called with masks: arrays are tensors there, the rest as it is."""

    def build(t: Any) -> Any:
        class With(t.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.inner = module(t)

            def forward(self, *xs: Any) -> Any:
                found = {k: t.tensor(v) if isinstance(v, np.ndarray) else v for k, v in masks.items()}
                return self.inner(*xs, **found)

        return With()

    return build


def encoder(**options: Any) -> Any:
    return lambda t: t.nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, **options)


def decoder(**options: Any) -> Any:
    return lambda t: t.nn.TransformerDecoderLayer(4, 2, 6, dropout=0.0, **options)


X, Y = (3, 2, 4), (4, 2, 4)
SQUARE = lambda t: t.nn.Transformer.generate_square_subsequent_mask(3)
CASES = [
    Case("encoder layer", encoder(), (X,), steps=3),
    Case("encoder layer, norm first", encoder(norm_first=True, activation="gelu"), (X,), steps=0),
    Case("encoder layer, batch first", encoder(batch_first=True, bias=False, layer_norm_eps=0.1),
         ((2, 3, 4),), steps=0),
    Case("encoder layer, activation", lambda t: encoder(activation=t.tanh)(t), ((3, 4),), steps=0),
    Case("encoder layer, masks", masked(encoder(), src_mask=LATER, src_key_padding_mask=PADDING), (X,), steps=0),
    Case("encoder layer, causal", masked(encoder(), src_mask=LATER, is_causal=True), (X,), steps=0),
    Case("decoder layer", decoder(), (X, Y), steps=3),
    Case("decoder layer, norm first", decoder(norm_first=True, activation="gelu", batch_first=True),
         ((2, 3, 4), (2, 4, 4)), steps=0),
    Case("decoder layer, masks", masked(
        decoder(), tgt_mask=LATER, tgt_key_padding_mask=PADDING, memory_key_padding_mask=MEMORY,
        memory_mask=np.zeros((3, 4), bool)), (X, Y), steps=0),
    Case("decoder layer, causal", masked(decoder(bias=False), tgt_mask=LATER, tgt_is_causal=True), (X, Y), steps=0),
]  # fmt: skip
