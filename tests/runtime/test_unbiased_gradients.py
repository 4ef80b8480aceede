"""Under compression the mean of many draws is the exact gradient: what is read non-linearly or twice is whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.nn import functional as F
from tests.support.compressed import array, kept

DRAWS = 300


def _means(f: Callable[[Any], Any], shape: tuple[int, ...], bits: int) -> tuple[np.ndarray, np.ndarray]:
    """The exact gradient through f of something that is made in the block, and DRAWS estimates."""
    lt.random.seed(0)
    x, p = lt.tensor(array(*shape, seed=1)), lt.tensor(np.ones(shape, np.float32), requires_grad=True)
    target = lt.tensor(array(*f(x).shape, seed=2))
    lt.sync()

    def gradient(level: str | None) -> np.ndarray:
        p.grad = None
        with lt.memory.compress(bits=None if level else bits, level=level):
            y = f(x * p + 0 * lt.tanh(p))
        loss = (y * target).sum()
        del y
        loss.backward()
        return p.grad.numpy().astype(np.float64)

    return gradient("L0"), np.array([gradient(None) for _ in range(DRAWS)])


def _check(f: Callable[[Any], Any], shape: tuple[int, ...], bits: int) -> None:
    """Along the exact gradient, and along random directions, the mean is within 4.5 of its standard deviations."""
    exact, found = _means(f, shape, bits)
    assert np.isfinite(found).all()
    along = np.stack([exact, *array(3, *shape, seed=3)]).reshape(4, -1)
    error = (found - exact).reshape(DRAWS, -1) @ along.T
    deviation = error.std(0, ddof=1) / DRAWS**0.5
    np.testing.assert_array_less(np.abs(error.mean(0)), 4.5 * deviation + 1e-5 * np.square(exact).sum())


W = lt.tensor(array(32, 32, seed=4) / 4)


def _heads(x: Any) -> Any:
    return x.reshape(2, 16, 2, 16).swapaxes(1, 2)


def _attention(h: Any) -> Any:
    """The projections are arrays of their own; scores are large, so that weights are far from equal."""
    q, k, v = (_heads(lt.tanh(h @ W * (i + 1)) * 2) for i in range(3))
    return F.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_attention_is_unbiased(bits: int):
    """Its gradient computes the weights again, as exp(q . k - l): of estimates it grew without bound."""
    _check(_attention, (32, 32), bits)


def _two_of_three(h: Any) -> Any:
    """Attention whose projections are one array, as in GPT-2."""
    q, k, v = lt.tanh(h @ lt.concat([W, W * 2, W * 3], axis=1)).reshape(2, 16, 3, 2, 16).permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v)


def test_attention_of_one_array_of_projections():
    _check(_two_of_three, (32, 32), 2)


@pytest.mark.parametrize(
    ("f", "whole"),
    [
        (lambda h: lt.linalg.solve(lt.tanh(h) + 4 * lt.eye(32), W), ["linalg.solve"]),
        (lambda h: lt.linalg.cholesky(h @ h.T / 8 + 4 * lt.eye(32)) * W, ["linalg.cholesky"]),
    ],
    ids=["solve", "cholesky"],
)
def test_matrices_that_a_derivative_solves_with_are_kept_whole(f: Callable[[Any], Any], whole: list[str]):
    _check(f, (32, 32), 2)
    x = lt.tensor(array(32, 32), requires_grad=True)
    with lt.memory.compress(bits=2):
        y = f(lt.tanh(x))
    loss = y.sum()
    del y
    loss.backward()
    assert kept().full == whole


def test_a_condition_that_numbers_are_cast_to_is_exact():
    """It was that of estimates, which are hardly ever 0."""
    x, w = lt.tensor(array(32, 32), requires_grad=True), lt.tensor(array(32, 32, seed=1))
    found = []
    for level in ("L0", "L2"):
        x.grad = None
        with lt.memory.compress(level=level):
            h = x @ W
            y = lt.where(F.relu(h).astype(bool), h, 0)
            del h
        (y * w).sum().backward()
        found.append(x.grad.numpy())
    np.testing.assert_array_equal(*found)


def test_values_and_output_of_attention_are_packed():
    x = lt.tensor(array(4, 2, 64, 32))
    ws = [lt.tensor(array(32, 32, seed=i) / 6, requires_grad=True) for i in range(4)]
    with lt.memory.compress(bits=2):
        q, k, v = (x @ w for w in ws[:3])
        y = F.scaled_dot_product_attention(q, k, v)
        z = lt.tanh(y @ ws[3])
        del q, k, v, y
    loss = (z * x).sum()
    del z
    loss.backward()
    plan = lt.memory.plan(loss)
    found = sorted((s.operation, s.decision, s.dtype) for s in plan.saved if s.nbytes >= 2048)
    assert found.count(("matmul", "kept", "float32")) == 2
    assert found.count(("matmul", "compressed", "uint16")) == 1
    assert found.count(("scaled_dot_product_attention", "compressed", "uint16")) == 1
    assert kept().packed > 0


@pytest.mark.parametrize(
    ("f", "shape"),
    [
        (lambda h: F.batch_norm(h.reshape(4, 256), None, None, training=True), (32, 32)),
        (lambda h: F.group_norm(h, 4), (32, 32)),
        (lambda h: F.instance_norm(h.reshape(8, 32, 2, 2)), (32, 32)),
        (lambda h: F.layer_norm(h, (32,)), (32, 32)),
        (lambda h: (h - h.mean(axis=0)) / lt.sqrt(h.var(axis=0) + 1e-5), (32, 32)),
        (lambda h: lt.softmax(h * 3, axis=-1) @ W, (32, 32)),
        (lambda h: h @ h.T @ h, (32, 32)),
        (lambda h: lt.linalg.inv(lt.tanh(h) + 4 * lt.eye(32)) @ W, (32, 32)),
    ],
    ids=["batch_norm", "group_norm", "instance_norm", "layer_norm", "written out", "softmax", "gram", "inv"],
)
def test_what_meets_itself_as_one_of_few_is_kept_whole(f: Callable[[Any], Any], shape: tuple[int, ...]):
    """A sum of few elements, and a product, do not end the search."""
    _check(f, shape, 2)


def _normalized(batch: int, x: Any, w: Any) -> list[str]:
    """What crosses to the backward as it is, of a normalization over a batch."""
    w.grad = None
    with lt.memory.compress(bits=2):
        h = F.batch_norm(x[:batch] @ w, None, None, training=True)
        y = F.relu(h)
        del h
    loss = (y * y).sum()
    del y
    loss.backward()
    found = kept().full
    lt.sync()
    return found


def test_a_batch_on_the_other_side_of_the_bound_has_another_plan():
    x, w = lt.tensor(array(256, 512)), lt.tensor(array(512, 512, seed=1), requires_grad=True)
    lt.sync()
    plans = []
    for batch in (128, 8, 200, 16, 64, 63):
        few = _normalized(batch, x, w)
        assert (few != []) == (batch < 64), (batch, few)
        plans.append(lt.last_sync().plan)
    assert plans[0] is not plans[1]
    assert [plans.index(p) for p in plans] == [0, 1, 0, 1, 0, 1]
