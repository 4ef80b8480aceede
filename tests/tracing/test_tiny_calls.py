"""A small call that repeats: inputs and the first step of another mode are predicted, one element is read as it is."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt.tracing import inputs
from lazyt.tracing.tensor_state import Inference

pytestmark = pytest.mark.usefixtures("new_trace")


@pytest.fixture(params=[False, True], ids=["", "after inference mode"])
def at_length(request, monkeypatch):
    """The inputs that were not predicted, in a process that never was in inference mode, and in one that was."""
    monkeypatch.setattr(Inference, "used", request.param)
    found: list[object] = []
    bind = inputs._bind_input
    monkeypatch.setattr(inputs, "_bind_input", lambda tr, h, known: found.append(h) or bind(tr, h, known + 1))
    return found


def policy():
    return lt.nn.Sequential(lt.nn.Linear(4, 8), lt.nn.Tanh(), lt.nn.Linear(8, 2))


def test_inputs_of_a_policy_are_predicted(at_length):
    m, rng = policy(), np.random.default_rng(0)
    w0, b0, w1, b1 = (p.detach().numpy(copy=True) for p in m.parameters())
    for _ in range(12):
        del at_length[:]
        o = rng.standard_normal((1, 4)).astype(np.float32)
        with lt.no_grad():
            found = m(lt.asarray(o)).argmax().item()
        assert found == np.argmax(np.tanh(o @ w0.T + b0) @ w1.T + b1)
    assert not at_length


def test_a_leaf_that_is_another_one_has_its_own_gradient():
    leaves = [lt.tensor([1.0, 2.0], requires_grad=True) for _ in range(2)]
    x = lt.tensor([3.0, 4.0])
    for i in range(8):
        w = leaves[i % 2]
        (x * w).sum().backward()
        assert w.grad.tolist() == [3, 4]
        w.grad = None
        if i == 5:
            leaves[0].requires_grad_(False)
            assert not (x * leaves[0]).requires_grad
            leaves[0].requires_grad_(True)


def test_the_first_step_of_a_mode_is_that_of_its_line():
    x = lt.tensor([1.0, 2.0])
    for i in range(9):
        with lt.no_grad():
            y = x + 1 if i % 3 else x * 2
            assert y.tolist() == ([2, 3] if i % 3 else [2, 4])
        with lt.no_grad():
            assert lt.arange(3).tolist() == [0, 1, 2]
        with pytest.raises(IndexError, match="test_tiny_calls"), lt.no_grad():
            lt.take(x, lt.tensor([7]), axis=0).tolist()


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "int64", "uint8", "uint64", "float16", "float32", "float64", "complex64"]
)
def test_one_element_is_read_as_numpy_reads_it(dtype):
    a = np.asarray([1.1, 2.7, 100.3]).astype(dtype)
    x = lt.asarray(a)
    for y, b in ((x[1], a[1]), (x[1:2] * x[:1], a[1:2] * a[:1]), (lt.asarray(a[2:]), a[2:])):
        found, expected = y.item(), b.item()
        assert found == expected
        assert type(found) is type(expected)


@pytest.mark.parametrize("n", [3, 100])
def test_small_and_large_arrays_are_copied(n):
    a = np.arange(n * n, dtype=np.float32).reshape(n, n)
    for v in (a, a.T, a[::2], a[:, ::-1], a[:0], a[1, 1:2].reshape(())):
        np.testing.assert_array_equal(lt.asarray(v).numpy(), v)
    x = lt.asarray(a)
    a[0] = 7
    assert x[0, 0].item() == 0
