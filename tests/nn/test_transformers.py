"""Attention and transformers: errors, hints, dropout, laziness; what they compute is in test_torch_golden.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.errors import DTypeError, NotSupportedError, ShapeError
from lazyt.nn import functional as F

RNG = np.random.default_rng(0)


def _drawn(*shape: int) -> Any:
    return lt.asarray(RNG.standard_normal(shape).astype("f4"))


def _attend(*shapes: tuple[int, ...], **more: Any) -> Any:
    return nn.MultiheadAttention(4, 2)(*(_drawn(*s) for s in shapes), **more)


def _function(**more: Any) -> Any:
    options: dict[str, Any] = {"embed": 4, "heads": 2, "w": _drawn(12, 4), "bias_k": None} | more
    x, own = _drawn(3, 2, 4), {k: v for k, v in more.items() if k.startswith(("static", "use"))}
    return F.multi_head_attention_forward(
        x, x, x, options["embed"], options["heads"], options["w"], None, options["bias_k"], None, False, 0.0,
        _drawn(4, 4), None, **own,
    )  # fmt: skip


def _grouped(heads: int, keys: int, values: int) -> Any:
    return F.scaled_dot_product_attention(
        _drawn(heads, 3, 4), _drawn(keys, 3, 4), _drawn(values, 3, 4), enable_gqa=True
    )


X, HIDDEN = (3, 2, 4), lt.zeros((2, 2), dtype=lt.bool)
BAD = {
    "heads": (lambda: nn.MultiheadAttention(8, 3), "MultiheadAttention: 3 heads do not divide 8 features"),
    "query": (lambda: _attend((3, 2, 5), X, X),
              r"MultiheadAttention: a query of .* 4 features .* got shape \(3, 2, 5\)"),
    "value": (lambda: _attend(X, X, (3, 2, 3)), "MultiheadAttention: a value of rank 2 or 3 with 4 features"),
    "ranks": (lambda: _attend(X, (3, 4), (3, 4)), r"of one rank \(2 or 3\) are required, got shape \(3, 4\)"),
    "lengths": (lambda: _attend(X, X, (4, 2, 4)), "key and value of one length, and a batch of 2, are required"),
    "batches": (lambda: _attend(X, (3, 1, 4), (3, 1, 4)), "and a batch of 2, are required"),
    "mask": (lambda: _attend(X, X, X, attn_mask=HIDDEN), r"attn_mask of shape \(3, 3\) or \(4, 3, 3\) .* got \(2, 2\)"),
    "padding": (lambda: _attend(X, X, X, key_padding_mask=HIDDEN),
                r"key_padding_mask of shape \(2, 3\) is required, got \(2, 2\)"),
    "embedding": (lambda: _function(embed=6), "a query of 6 features, which 2 heads divide, is required"),
    "weights": (lambda: _function(w=None), "all projection weights are required"),
    "own weights": (lambda: _function(use_separate_proj_weight=True), "all projection weights are required"),
    "bias": (lambda: _function(bias_k=_drawn(1, 1, 4)), "bias_k and bias_v are given together"),
    "static": (lambda: _function(static_k=_drawn(2, 3, 2)),
               r"static_k and static_v of shape \(4, S, 2\) .* got \(2, 3, 2\)"),
    "groups": (lambda: _grouped(4, 3, 3), "with enable_gqa, as many heads of keys as of values"),
    "values": (lambda: _grouped(4, 2, 4), "with enable_gqa, as many heads of keys as of values"),
    "features": (lambda: nn.Transformer(4, 2, 1, 1, 6)(_drawn(*X), _drawn(3, 2, 5)),
                 "Transformer: src and tgt of 4 features are required"),
    "sizes": (lambda: nn.Transformer(4, 2, 1, 1, 6)(_drawn(*X), _drawn(3, 1, 4)),
              r"Transformer: src and tgt of one batch size \(axis 1\)"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case: str) -> None:
    call, message = BAD[case]
    with pytest.raises(ShapeError, match=message):
        call()


def test_other_bad_arguments() -> None:
    with pytest.raises(DTypeError, match="attn_mask is of bools or floats, got int64"):
        _attend(X, X, X, attn_mask=lt.zeros((3, 3), dtype=lt.int64))
    with pytest.raises(NotSupportedError, match="TransformerEncoderLayer: activation is 'relu', 'gelu' or a function"):
        nn.TransformerEncoderLayer(4, 2, activation="tanh")
    with pytest.raises(AttributeError, match="'MultiHeadAttention': it is spelled MultiheadAttention"):
        nn.MultiHeadAttention  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        nn.Nothing  # noqa: B018
    assert "MultiHeadAttention" not in dir(nn)


def test_dropout_is_of_the_weights_and_in_training_alone() -> None:
    m, x = nn.MultiheadAttention(4, 2, dropout=1.0, bias=False), _drawn(*X)
    y, weights = m(x, x, x)
    assert not weights.detach().numpy().any() and not y.detach().numpy().any()
    assert not m(x, x, x, need_weights=False)[0].detach().numpy().any()
    m.eval()
    np.testing.assert_allclose(m(x, x, x)[1].detach().numpy().sum(-1), 1, rtol=1e-6)


def test_parameters_have_pytorch_s_names_and_values() -> None:
    m = nn.MultiheadAttention(4, 2, kdim=3, vdim=5, add_bias_kv=True)
    names = ["q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias", "bias_k", "bias_v"]
    assert list(m.state_dict()) == [*names, "out_proj.weight", "out_proj.bias"]
    assert m.bias_k.shape == (1, 1, 4) and m.k_proj_weight.shape == (4, 3)
    assert not m.in_proj_bias.detach().numpy().any() and not m.out_proj.bias.detach().numpy().any()
    assert np.abs(m.k_proj_weight.detach().numpy()).max() <= np.sqrt(6 / 7)


def test_a_causal_hint_stands_for_its_mask() -> None:
    m, x = nn.MultiheadAttention(4, 2, add_zero_attn=True), _drawn(*X)
    later = lt.asarray(~np.tri(3, dtype=bool))
    for need in (True, False):
        hinted, masked = (
            m(x, x, x, need_weights=need, **more)[0] for more in ({"is_causal": True}, {"attn_mask": later})
        )
        np.testing.assert_allclose(hinted.detach().numpy(), masked.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_transformer_trains_in_one_plan_and_layers_are_copies() -> None:
    m = nn.Transformer(4, 2, 2, 1, 6, batch_first=True)
    assert m.encoder.layers[0].linear1.weight is not m.encoder.layers[1].linear1.weight
    optimizer = lt.optim.SGD(m.parameters(), lr=0.1)
    src, tgt = _drawn(2, 4, 4), _drawn(2, 3, 4)
    plans = []
    for _ in range(3):
        lt.sync()
        with lt.no_sync():
            optimizer.zero_grad()
            (m(src, tgt, tgt_is_causal=True) ** 2).mean().backward()
            optimizer.step()
        lt.sync()
        plans.append(lt.last_sync().plans)
    assert plans[0] == 1 and plans[2] == 0
