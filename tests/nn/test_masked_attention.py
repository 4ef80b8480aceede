"""Rows of attention whose keys are all masked: 0 without gradients on every way to compute it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.nn import functional as F
from tests.support.arrays import normal
from tests.support.attention import close, exact

HIDDEN = np.array([1, 4])
# Queries, keys, heads of the query, what else the call gets.
WAYS: dict[str, tuple[int, int, int, dict[str, Any]]] = {
    "fused": (12, 20, 2, {}),
    "few queries": (6, 9, 2, {}),
    "more queries than keys": (30, 7, 2, {}),
    "groups": (12, 20, 4, {"enable_gqa": True}),
}


def seen_of(t: int, s: int) -> np.ndarray[Any, Any]:
    seen = np.random.default_rng(1).random((t, s)) < 0.6
    seen[:, 0] = True
    seen[HIDDEN] = False
    return seen


def masks(t: int, s: int, dtype: str = "float32") -> list[np.ndarray[Any, Any]]:
    seen = seen_of(t, s)
    return [seen, np.where(seen, 0.25, -np.inf).astype(dtype)]


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("kind", [0, 1])
def test_values_and_gradients(way, kind):
    t, s, heads, more = WAYS[way]
    mask = masks(t, s)[kind]
    q, k, v, ct = (normal(2, h, n, 8, seed=i) for i, (h, n) in enumerate(((heads, t), (2, s), (2, s), (heads, t))))
    leaves = [lt.tensor(x, requires_grad=True) for x in (q, k, v)]
    y = F.scaled_dot_product_attention(*leaves, lt.asarray(mask), **more)
    lt.sum(y * lt.asarray(ct)).backward()
    times = heads // 2
    want = exact(q, np.repeat(k, times, 1), np.repeat(v, times, 1), ct, mask)
    grads = [x.reshape(2, 2, times, s, 8).sum(2) for x in want[2:4]]
    close([y.detach().numpy(), *(x.grad.numpy() for x in leaves)], [*want[:2], *grads])
    assert not y.detach().numpy()[:, :, HIDDEN].any()
    assert not leaves[0].grad.numpy()[:, :, HIDDEN].any()


@pytest.mark.parametrize("kind", [0, 1])
def test_dropout(kind):
    mask = lt.asarray(masks(12, 20)[kind])
    leaves = [lt.tensor(normal(2, n, 8, seed=n), requires_grad=True) for n in (12, 20, 20)]
    y = F.scaled_dot_product_attention(*leaves, mask, 0.3)
    lt.sum(y * y).backward()
    assert not y.detach().numpy()[:, HIDDEN].any()
    for x in leaves:
        assert np.isfinite(x.grad.numpy()).all()


@pytest.mark.parametrize("kind", [0, 1])
def test_second_derivatives_and_tangents(kind):
    mask = lt.asarray(masks(12, 20)[kind])
    q, k, v = (lt.asarray(normal(2, n, 8, seed=n)) for n in (12, 20, 20))

    def loss(q: Any) -> Any:
        return lt.sum(F.scaled_dot_product_attention(q, k, v, mask) ** 2)

    found = lt.func.grad(lambda q: lt.sum(lt.func.grad(loss)(q) ** 2))(q).numpy()
    assert np.isfinite(found).all()
    assert not found[:, HIDDEN].any()
    y, t = lt.func.jvp(lambda q: F.scaled_dot_product_attention(q, k, v, mask), (q,), (q,))
    for x in (y, t):
        assert np.isfinite(x.numpy()).all()
        assert not x.numpy()[:, HIDDEN].any()


def test_halves_and_autocast():
    q, k, v = (lt.tensor(normal(2, n, 8, seed=n), requires_grad=True) for n in (12, 20, 20))
    for mask in masks(12, 20):
        with lt.autocast("cpu", dtype="bfloat16"):
            y = F.scaled_dot_product_attention(q, k, v, lt.asarray(mask))
        lt.sum(y).backward()
        assert not y.detach().astype("float32").numpy()[:, HIDDEN].any()
        assert all(np.isfinite(x.grad.numpy()).all() for x in (q, k, v))


def test_a_batch_whose_keys_are_padding():
    layer = lt.nn.MultiheadAttention(8, 2, batch_first=True)
    x = lt.tensor(normal(2, 10, 8), requires_grad=True)
    padding = lt.asarray(np.array([[True] * 10, [False] * 7 + [True] * 3]))
    y, _ = layer(x, x, x, key_padding_mask=padding, need_weights=False)
    lt.sum(y * y).backward()
    np.testing.assert_allclose(y[0].detach().numpy(), np.broadcast_to(layer.out_proj.bias.detach().numpy(), (10, 8)))
    assert np.isfinite(x.grad.numpy()).all()
    assert not x.grad.numpy()[0].any()
    assert all(np.isfinite(p.grad.numpy()).all() for p in layer.parameters())
