"""Kernels of users against the same functions called by Python, on the CPU and on a backend that interprets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends import registry
from tests.support.interpreted_backend import NAME, InterpretedBackend
from tests.support.user_kernels import CASES, compared


@pytest.fixture(scope="module")
def interpreted() -> Iterator[str]:
    registry.register(InterpretedBackend())
    yield NAME
    registry.unregister(NAME)


@pytest.mark.parametrize(("f", "args", "more"), CASES, ids=[f.__name__ for f, _, _ in CASES])
def test_a_kernel_is_its_function_at_every_index(f, args, more):
    compared(f, args, more, f(*args, **more))


def test_kernels_on_a_backend_that_interprets(interpreted):
    with lt.device(interpreted):
        for f, args, more in CASES[::3]:
            given = [lt.asarray(x) if isinstance(x, np.ndarray) else x for x in args]
            found = f(*given, **more)
            assert (found[0] if isinstance(found, tuple) else found).device == interpreted
            compared(f, args, more, found)


def test_what_python_computes_in_a_loop_is_one_kernel_that_is_recorded():
    """Laziness, and fusion with what stands before and behind."""

    @lt.kernel
    def scaled(i, /, x, c):
        return x[i] * c + i

    x = lt.arange(5.0)
    with lt.no_sync():
        y = scaled(x * 2, 3.0) - 1
    assert y.is_pending
    assert y.explain().launches == len(y.explain().kernels) == 1
    assert "scaled" in str(y.explain())
    assert y.tolist() == [-1.0, 6.0, 13.0, 20.0, 27.0]


def test_other_sizes_and_floats_need_no_new_plan():
    @lt.kernel
    def mixed(i, j, /, x, c):
        return c * sum(x[i, k] for k in range(x.shape[1])) if i > 0 else x[i, j]

    for n in (3, 4, 5):
        mixed(lt.ones((n, n + 1)), float(n)).tolist()
    with lt.expect(plans=0):
        assert mixed(lt.ones((7, 2)), 0.5).tolist()[1] == [1.0, 1.0]


def test_numbers_from_outside_are_read_at_each_call():
    @lt.kernel
    def shifted(i, /, x):
        return x[i] + offset

    x = lt.zeros(2)
    for offset in (1.0, 2.5):
        assert shifted(x).tolist() == [offset, offset]


def large(bounds: str, n: int = 150) -> tuple[lt.Tensor, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(n, n)).astype("f4")
    mode = {"zero": "constant", "clamp": "edge", "wrap": "wrap"}[bounds]
    return lt.asarray(x), np.pad(x, 2, mode=mode)  # type: ignore[call-overload]


@pytest.mark.parametrize("bounds", ["zero", "clamp", "wrap"])
def test_a_large_domain_is_divided_where_reads_begin_to_be_outside(bounds):
    @lt.kernel(bounds=bounds)
    def stencil(i, j, /, u):
        return u[i - 1, j] + 2 * u[i, j + 2] - u[i + 1, j - 1] + (u[i, j] if i < 2 else 0.0)

    x, p = large(bounds)
    n = 150
    want = p[1 : n + 1, 2:-2] + 2 * p[2:-2, 4:] - p[3 : n + 3, 1 : n + 1]
    want[:2] += p[2:4, 2:-2]
    y = stencil(x)
    assert any(f"{n - 3} x {n - 3}" in k.domain for k in y.explain().kernels)
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-5, atol=1e-5)
    # What a gradient goes through is one kernel: the gradients of parts would be as many sums.
    t = x.detach().requires_grad_()
    np.testing.assert_allclose(stencil(t).detach().numpy(), want, rtol=1e-5, atol=1e-5)


def test_a_condition_on_an_index_divides_nothing_and_fuses():
    @lt.kernel
    def first(i, /, x):
        return 2 * x[i] if i < 3 else x[i]

    y = first(lt.ones(20_000) * 3) + 1
    assert len(y.explain().kernels) == 1
    assert y[:4].tolist() == [7.0, 7.0, 7.0, 4.0]


def test_a_sum_of_products_is_a_matrix_product():
    @lt.kernel
    def batched(n, i, j, /, a, b):
        return sum(a[n, i, k] * b[k, n, j] for k in range(b.shape[0]))

    a, b = (np.random.default_rng(1).normal(size=s) for s in ((3, 4, 5), (5, 3, 6)))
    y = batched(lt.asarray(a), lt.asarray(b))
    assert "matmul" in batched.graph(lt.asarray(a), lt.asarray(b))
    np.testing.assert_allclose(y.numpy(), np.einsum("nik,knj->nij", a, b))


def test_empty_domains():
    @lt.kernel(bounds="clamp")
    def stencil(i, j, /, x):
        return x[i, j] + x[i - 1, j] + sum(x[i, k] for k in range(x.shape[1]))

    assert stencil(lt.ones((0, 3))).shape == (0, 3)
    assert stencil(lt.ones((3, 0))).shape == (3, 0)


def test_a_kernel_as_the_implementation_of_an_operation():
    @lt.kernel
    def scaled(i, /, x, c):
        return x[i] * c

    op = lt.library.define("kernels::scaled(Tensor x, *, float c=2.0) -> Tensor")
    op.impl(None, lambda x, *, c: scaled(x, c))
    x = lt.tensor([1.0, 2.0], requires_grad=True)
    op(x, c=3.0).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3.0, 3.0]
    passed = lt.library.opcheck(op, [(lt.tensor([1.0, 3.0], dtype=lt.float64, requires_grad=True),)])
    assert set(passed.values()) == {"passed"}
