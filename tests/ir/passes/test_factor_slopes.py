"""What a cotangent is multiplied with in one step is one array, which compression packs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import lazyt as lt
from lazyt.nn import functional as F
from tests.support.compressed import kept


@pytest.mark.parametrize("f", [F.gelu, F.mish])
def test_an_activation_keeps_its_slope_alone(f: Callable[[lt.Tensor], lt.Tensor]):
    x, w = lt.random.normal(size=(64, 32)), lt.random.normal(size=(32, 32)).requires_grad_()
    c = lt.random.normal(size=(32, 32))
    lt.sync()
    with lt.memory.compress(bits=8):
        y = f(x @ w)
    (y @ c).sum().backward()
    found = kept()
    assert [n for n, _ in found.arrays] == [f.__name__]
    assert found.packed < 64 * 32 * 1.1
    packed = w.grad.numpy()
    w.grad = None
    (f(x @ w) @ c).sum().backward()
    np.testing.assert_allclose(packed, w.grad.numpy(), atol=0.05 * float(np.abs(packed).max()))


def test_a_cotangent_is_multiplied_with_the_inverse_of_what_it_is_divided_by():
    # An estimate of 1 / y is unbiased; the inverse of an estimate of y, where y is near zero, is not.
    lt.random.seed(0)
    x, w = lt.ones((64, 32)), lt.ones((32, 8)).requires_grad_()
    y = lt.tensor(np.linspace(0.05, 2, 64 * 8, dtype=np.float32).reshape(64, 8))
    lt.sync()
    total = np.zeros((32, 8))
    for _ in range(60):
        with lt.memory.compress(bits=2):
            loss = ((x @ w) / (y * 1.0 + lt.tanh(y) * 0.0)).sum()
        loss.backward()
        total += w.grad.numpy() / 60
        w.grad = None
    np.testing.assert_allclose(total[0], (1 / y.numpy()).sum(0), rtol=0.1)
