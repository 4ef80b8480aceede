"""The lists of a GPU, on a backend that has them too: the interpreter's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends import registry
from tests.support.interpreted_backend import NAME, InterpretedBackend

F = lt.nn.functional
Make = Callable[..., lt.Tensor]


@pytest.fixture
def a() -> Iterator[Make]:
    """Make arrays on that backend; its region's dtype is float16."""
    registry.register(InterpretedBackend())
    try:
        yield lambda shape, dtype="float32": lt.asarray(np.full(shape, 0.5, dtype)).to(NAME)
    finally:
        lt.sync()
        registry.unregister(NAME)


def test_dtypes_by_policy(a: Make) -> None:
    x, h = a((2, 2)), a((2, 2), "float16")
    with lt.autocast(NAME):
        assert lt.get_autocast_dtype(NAME) == lt.float16
        lower = [x @ x, F.linear(x, x), lt.einsum("ij,jk", x, h), lt.linalg.multi_dot([x, h, x])]
        full = [
            lt.exp(h), h**2, h**0.5, lt.logsumexp(h), F.softplus(h), F.layer_norm(h, (2,)), F.mse_loss(h, h),
            F.cross_entropy(h, h), F.cosine_similarity(h, h), lt.cdist(h, h), F.interpolate(a((1, 1, 2), "float16"), 4),
            lt.sum(h), F.softmax(h), lt.cumsum(h, 0), lt.linalg.norm(h),
        ]  # fmt: skip
        own = [lt.sqrt(h), lt.tanh(h), F.relu(h), h + h, lt.mean(h), lt.sum(h, dtype=lt.float16)]
        own += [F.softmax(h, dtype=lt.float16), lt.dot(a(2, "float16"), a(2, "float16"))]
        widest = [lt.dot(a(2, "float16"), a(2)), lt.vdot(h, x), lt.tensordot(h, x), lt.atan2(h, x)]
        widest += [F.bilinear(h, h, a((3, 2, 2)))]
    assert {y.dtype for y in lower} == {lt.float16}
    assert [y.dtype for y in full] == [lt.float32] * len(full)
    assert [y.dtype for y in own] == [lt.float16] * len(own)
    assert [y.dtype for y in widest] == [lt.float32] * len(widest)


def test_arrays_of_numpy_go_to_the_device_of_the_others(a: Make) -> None:
    with lt.autocast(NAME):
        y = a((2, 2)) @ np.ones((2, 2), np.float32)
    assert (y.dtype, y.device) == (lt.float16, NAME)
    assert y.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_the_banned_loss(a: Make) -> None:
    x = a(2)
    with lt.autocast(NAME), pytest.raises(RuntimeError, match=r"BCELoss are unsafe to autocast.\nMany models use"):
        F.binary_cross_entropy(x, x)


def test_a_region_of_another_device_changes_nothing(a: Make) -> None:
    x, y = a((2, 2)), lt.ones((2, 2))
    with lt.autocast(NAME), lt.autocast("cpu"):
        assert ((x @ x).dtype, (y @ y).dtype) == (lt.float16, lt.bfloat16)
        with lt.autocast(NAME, enabled=False):
            assert ((x @ x).dtype, (y @ y).dtype) == (lt.float32, lt.bfloat16)
