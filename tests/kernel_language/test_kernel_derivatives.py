"""Gradients, forward derivatives and lanes of kernels come from their primitives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt


@lt.kernel
def stencil(i, j, /, u):
    if 0 < i < u.shape[0] - 1:
        return u[i - 1, j] + u[i + 1, j] - 2 * u[i, j] * u[i, j]
    return np.log(u[i, j]) if u[i, j] > 0 else np.sqrt(-u[i, j])


@lt.kernel
def product(i, j, /, a, b, c):
    return c * sum(a[i, k] * b[k, j] for k in range(a.shape[1]))


@lt.kernel(axis=-1)
def softmax(x):
    e = np.exp(x - max(x))
    return e / sum(e)


@lt.kernel
def taken(i, /, x, at):
    return x[at[i]] * x[i]


@lt.kernel(bounds="wrap")
def around(i, /, x):
    return x[i - 1] * x[i + 1]


@lt.kernel(bounds="clamp")
def inside(i, /, x):
    return x[i - 1] * x[i + 1]


@lt.kernel
def largest(i, /, x):
    best = x[i, 0]
    for k in range(x.shape[1]):
        best = max(best, x[i, k] * x[i, k])
    return best


_rng = np.random.default_rng(0)


def leaf(*shape: int) -> lt.Tensor:
    return lt.tensor(_rng.normal(size=shape), requires_grad=True)


CASES: list[tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = [
    (stencil, (leaf(4, 3),), ()),
    (product, (leaf(3, 4), leaf(4, 2)), (0.5,)),
    (softmax, (leaf(3, 4),), ()),
    (taken, (leaf(5),), (np.array([0, 4, 4, 1, 2]),)),
    (around, (leaf(5),), ()),
    (inside, (leaf(5),), ()),
    (largest, (leaf(3, 4),), ()),
]


@pytest.mark.parametrize(("f", "leaves", "rest"), CASES, ids=[f.__name__ for f, _, _ in CASES])
def test_derivatives_and_lanes(f, leaves, rest):
    def call(*xs: Any) -> Any:
        return f(*xs, *rest)

    assert lt.autograd.gradcheck(call, leaves)
    plain = [x.detach() for x in leaves]
    lanes = lt.vmap(call)(*(lt.stack([x, 2 * x]) for x in plain))
    np.testing.assert_allclose(lanes.numpy(), [call(*plain).numpy(), call(*(2 * x for x in plain)).numpy()])
    ones = tuple(lt.ones_like(x) for x in plain)
    forward = lt.jvp(call, tuple(plain), ones)[1].numpy()
    pulled = lt.vjp(call, *leaves)[1](lt.ones(forward.shape, dtype=lt.float64))
    pulled = pulled if isinstance(pulled, tuple) else (pulled,)
    np.testing.assert_allclose(forward.sum(), sum(p.detach().numpy().sum() for p in pulled), atol=1e-12)


def test_a_gradient_is_finite_where_a_condition_leaves_an_operation_out():
    """The other branch's derivative is infinite there, and times zero would be NaN."""

    @lt.kernel
    def guarded(i, /, x):
        return x[i] ** 1.5 / np.sqrt(x[i]) + np.log(x[i]) if x[i] > 0 else 0.0

    x = lt.tensor([4.0, 0.0, -1.0], dtype=lt.float64, requires_grad=True)
    guarded(x).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [1.25, 0.0, 0.0])


def test_a_training_step():
    @lt.kernel(bounds="zero")
    def smoothed(i, /, x, w):
        return sum(w[k] * x[i + k - 1] for k in range(3))

    w = lt.tensor([0.0, 1.0, 0.0], requires_grad=True)
    x = lt.arange(6.0)
    for _ in range(60):
        loss = ((smoothed(x, w) - smoothed(x, lt.asarray([0.5, 0.0, 0.5]))) ** 2).mean()
        loss.backward()
        with lt.no_grad():
            w -= 0.03 * w.grad
            w.grad = None
    assert loss.item() < 0.05
