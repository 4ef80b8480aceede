"""Products of many matrices of at most three rows, columns and terms: sums, in a kernel with what reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.ir.passes.canonical_products import MANY, TINY
from tests.support.plans import forget

pytestmark = pytest.mark.usefixtures("planned")


def array(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def libraries(x: lt.Tensor) -> list[str]:
    return [k.library for k in x.explain().kernels]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("batch", "m", "n", "k"),
    [((MANY,), 2, 2, 2), ((5, 40), 3, 3, 3), ((200,), 1, 3, 2), ((70,), 3, 2, 1), ((2, 90), 2, 3, 0)],
)
def test_against_numpy(batch: tuple[int, ...], m: int, n: int, k: int, dtype: str) -> None:
    a, b = array(*batch, m, k, dtype=dtype), array(*batch, k, n, dtype=dtype, seed=1)
    x, y = lt.asarray(a), lt.asarray(b)
    z = lt.tanh(x @ y + 1)
    assert libraries(z) == [""]
    np.testing.assert_allclose(z.numpy(), np.tanh(a @ b + 1), rtol=1e-5, atol=1e-6)
    turned = (x @ y).mT @ x
    np.testing.assert_allclose(turned.numpy(), (a @ b).swapaxes(-1, -2) @ a, rtol=1e-4, atol=1e-5)


def test_one_of_many_and_a_matrix_for_all() -> None:
    a, r = array(500, 3), array(3, 3, seed=1)
    points = lt.asarray(a)[:, None] @ lt.asarray(r).T
    np.testing.assert_allclose(points.numpy()[:, 0], a @ r.T, rtol=1e-5, atol=1e-6)
    x, y = lt.asarray(array(90, 2, 3)).requires_grad_(), lt.asarray(array(90, 3, 3, seed=1)).requires_grad_()
    ((x @ y) ** 2).sum().backward()
    want = 2 * (x.detach().numpy() @ y.detach().numpy())
    np.testing.assert_allclose(x.grad.numpy(), want @ y.detach().numpy().swapaxes(1, 2), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(y.grad.numpy(), x.detach().numpy().swapaxes(1, 2) @ want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32", "complex64"])
def test_other_dtypes_are_products(dtype: str) -> None:
    a = lt.asarray(array(MANY, 2, 2) * 4).astype(dtype)
    got = (a @ a).astype("complex128").numpy()
    wide = a.astype("complex128").numpy()
    np.testing.assert_allclose(got, wide @ wide, rtol=2e-2, atol=0.5)


def test_a_plan_for_tiny_ones_is_not_used_for_larger_ones() -> None:
    def plans(n: int) -> int:
        a = array(100, n, n)
        found = lt.asarray(a) @ lt.asarray(a)
        np.testing.assert_allclose(found.numpy(), a @ a, rtol=1e-4, atol=1e-5)
        return lt.last_sync().plans

    assert [plans(n) for n in (2, TINY, TINY + 1, 20, 2)] == [1, 0, 1, 0, 0]


@pytest.mark.parametrize("n", [2, TINY])
def test_bits_do_not_depend_on_how_many_were_planned_first(n: int) -> None:
    """Sums have other bits than the product: a plan for many does not serve few, nor the other way round."""

    def found(batch: int) -> np.ndarray:
        x, y = lt.asarray(array(batch, n, n)), lt.asarray(array(batch, n, n, seed=1))
        return (lt.exp(lt.tanh(x) @ y) @ y).numpy()

    forget()
    few = found(4)
    forget()
    many = found(4 * MANY)
    np.testing.assert_array_equal(found(4), few)
    np.testing.assert_array_equal(found(4 * MANY), many)
    forget()
    found(4)
    np.testing.assert_array_equal(found(4 * MANY), many)
