"""Scopes: kernels that take the place of others, also of lazyt's own operations, and end with the block."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

import lazyt as lt

names = itertools.count()
X = [1.0, 2.0]


def twice(x):
    return x + x


def test_an_operation_of_lazyts_is_replaced_and_restored():
    x = lt.asarray(X)
    plain = lt.exp(x).numpy()
    for _ in range(3):  # the same kernel is the same program
        with lt.library.scoped():
            lt.library.impl(lt.exp, "cpu", twice)
            with lt.no_sync():
                y = lt.exp(x) + 1
            assert y.tolist() == [3.0, 5.0]
        np.testing.assert_array_equal(lt.exp(x).numpy(), plain)


def _in_a_scope(x):
    with lt.library.scoped():
        lt.library.impl("exp", "cpu", twice)
        return (lt.exp(x) + 1).tolist()


def test_a_scope_that_is_entered_again_makes_no_plan():
    x = lt.asarray(X)
    for _ in range(3):
        _in_a_scope(x)
    with lt.expect(plans=0):
        assert _in_a_scope(x) == [3.0, 5.0]


def test_another_kernel_is_another_program():
    x, found = lt.asarray(X), []
    for k in (2, 3):
        with lt.library.scoped():
            lt.library.impl("exp", "cpu", lambda x, k=k: np.float32(k) * x)
            found.append(lt.exp(x).tolist())
    assert found == [[2.0, 4.0], [3.0, 6.0]]


def test_products_operators_and_writes_in_place():
    x = lt.asarray([[1.0, 2.0], [3.0, 4.0]])
    with lt.library.scoped():
        lt.library.impl(lt.matmul, "cpu", lambda a, b: a @ b + np.float32(1))
        lt.library.impl("add", kind="composed", kernel=lambda a, b: a + b + 100)
        assert (x @ x).tolist() == [[8.0, 11.0], [16.0, 23.0]]
        assert (x + 1).tolist() == [[102.0, 103.0], [104.0, 105.0]]
        y = x * 1
        y += 1
        assert y.tolist() == [[102.0, 103.0], [104.0, 105.0]]
        with pytest.raises(lt.ShapeError, match="doesn't match the broadcast shape"):
            y[0] += x
    assert (x + 1).tolist() == [[2.0, 3.0], [4.0, 5.0]]


def test_static_arguments_are_passed_as_they_are_recorded():
    x, seen = lt.ones((2, 3)), []
    with lt.library.scoped():

        @lt.library.impl("argmax", "cpu")
        def _(x, *statics):
            seen.append(statics)
            return np.zeros(x.shape[1:], np.int64)

        assert lt.argmax(x, axis=0).tolist() == [0, 0, 0]
    assert seen
    assert 0 in seen[0]


def test_derivatives_and_lanes_are_those_of_the_operation():
    x = lt.asarray(X)
    with lt.library.scoped():
        lt.library.impl(lt.exp, "cpu", twice)
        y = lt.tensor(X, requires_grad=True)
        z = lt.exp(y).sum()
        z.backward()
        assert z.item() == 6.0
        np.testing.assert_allclose(y.grad.numpy(), np.exp(X), rtol=1e-6)
        _, t = lt.jvp(lt.exp, (x,), (lt.ones(2),))
        np.testing.assert_allclose(t.numpy(), np.exp(X), rtol=1e-6)
        assert lt.vmap(lt.exp)(x).tolist() == [2.0, 4.0]


def _fail_in_a_scope(x):
    with lt.library.scoped():
        lt.library.impl("exp", "cpu", np.negative)
        assert lt.exp(x).tolist() == [-1.0, -2.0]
        with lt.no_sync():
            lt.exp(x).numpy()


def test_scopes_nest_and_end_after_an_error():
    x = lt.asarray(X)
    with lt.library.scoped():
        lt.library.impl("exp", "cpu", twice)
        with pytest.raises(lt.SyncError):
            _fail_in_a_scope(x)
        assert lt.exp(x).tolist() == [2.0, 4.0]
    assert lt.exp(x * 0).tolist() == [1.0, 1.0]


def test_a_scope_is_of_its_thread():
    x, found = lt.asarray(X), []
    with lt.library.scoped():
        lt.library.impl("exp", "cpu", twice)
        thread = threading.Thread(target=lambda: found.append(lt.exp(x * 0).tolist()))
        thread.start()
        thread.join()
    assert found == [[1.0, 1.0]]


def test_definitions_and_rules_end_with_the_scope():
    name = f"scope::op{next(names)}"
    outer = lt.library.define(f"{name}_outer(Tensor x) -> Tensor")
    outer.impl("cpu", twice)
    outer.register_fake(lambda x: x)
    with lt.library.scoped():
        op = lt.library.define(f"{name}(Tensor x) -> Tensor")
        op.impl("cpu", twice)
        op.register_fake(lambda x: x)
        outer.impl("cpu", np.negative)
        outer.register_batching("sequential")
        lt.library.fallback("cuda", outer)
        assert op(lt.ones(1)).tolist() == [2.0]
        assert outer(lt.ones(1)).tolist() == [-1.0]
    assert outer(lt.ones(1)).tolist() == [2.0]
    assert outer.rule("batching") is None
    assert ("fallback", "cuda") not in outer.rules
    with pytest.raises(lt.library.RegistrationError, match="no such operation"):
        lt.library.impl(name, "cpu", twice)


def test_what_cannot_be_replaced():
    with pytest.raises(lt.library.RegistrationError, match=r"'exp' is one of lazyt's own .*scoped\(\)"):
        lt.library.impl("exp", "cpu", twice)
    with pytest.raises(lt.NotSupportedError, match="lazyt's own operations keep their rules"):
        lt.library.register_fake("exp", twice)
    with lt.library.scoped():
        with pytest.raises(lt.NotSupportedError, match="a kernel for 'reshape', because its result is a view"):
            lt.library.impl("reshape", "cpu", twice)
        with pytest.raises(lt.library.RegistrationError, match="ns::nothing: no such operation"):
            lt.library.impl("ns::nothing", "cpu", twice)
        lt.library.impl("zeros", "cpu", twice)
        with pytest.raises(lt.NotSupportedError, match=r"for zeros, because it has sizes"):
            lt.zeros(3)
        lt.library.impl("sin", "cpu", lambda x: x[:1])
        y = lt.sin(lt.asarray(X))
        with pytest.raises(lt.ShapeError, match=r"shape \(1,\), register_fake says \(2,\)"):
            y.numpy()
