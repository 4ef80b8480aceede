"""Writes that take the steps they took the last time: the same values, views, errors and gradients as at length."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import lazyt as lt
from lazyt.config import general
from lazyt.errors import AutogradError, ScalarRangeError
from lazyt.functions import subscript
from lazyt.tracing import write_cache

pytestmark = pytest.mark.usefixtures("new_trace")

TIMES = 7  # a write is remembered after two


@pytest.fixture(params=[False, True], ids=["", "after inference mode"])
def short(monkeypatch, request):
    """Whether each write that was looked at was taken in short: after `inference_mode` was used, too."""
    # None is, once there is memory of others or traces that several threads share.
    monkeypatch.setattr(write_cache.Inference, "used", request.param)
    monkeypatch.setattr(write_cache, "EXTERNAL", {})
    monkeypatch.setattr(write_cache, "several", [])
    found: list[bool] = []

    def rewritten(*args):
        found.append(write_cache.rewritten(*args))
        return found[-1]

    monkeypatch.setattr(subscript, "rewritten", rewritten)
    for name in ("__iadd__", "__imul__"):
        monkeypatch.setitem(getattr(lt.Tensor, name).__globals__, "rewritten", rewritten)
    return found


def _row(x):
    x[1] = x[1] + 1
    x[-1] = 2


def _column(x):
    x[:, 1] *= 0.5
    x[:, 2] += x[:, 1]


def _slices(x):
    x[1:3] = x[:2] * 2
    x[::2, 1:] = 3
    x[...] = x + 1


def _within(x):
    y = x[1:]
    y[0] = 5
    y[:, 0] += 1
    x[2, 3] = True


def _whole(x):
    x += 1
    x *= x * 0 + 0.5
    x[0] = x[1]


def _seen(x):
    v, t = x[1], x.T
    x[1] = v * 0.5
    t[0] += v[0]
    v *= 2
    x[0] = t[1][0] + v[2]


@pytest.mark.parametrize("write", [_row, _column, _slices, _within, _whole, _seen], ids=lambda f: f.__name__)
@pytest.mark.parametrize("calls", [True, False])
def test_again_as_numpy(write, calls, monkeypatch, short):
    monkeypatch.setitem(general, "calls", calls)
    a = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    x = lt.asarray(a.copy())
    for _ in range(TIMES):
        before, was = x + 0, a.copy()
        write(x)
        write(a)
        np.testing.assert_array_equal(np.asarray(x), a)
        np.testing.assert_array_equal(np.asarray(before), was)
    assert any(short) == calls


def test_large_indices_are_taken_in_short(short):
    x, a = lt.zeros(400), np.zeros(400, np.float32)
    for _ in range(TIMES):
        for i in range(300, 303):
            x[i] = float(i)
            x[i] += 1
            a[i] = i + 1
        np.testing.assert_array_equal(np.asarray(x), a)
    assert sum(short[-6:]) >= 5  # all but that of the input


def test_another_key_value_or_target_is_not_the_one_that_is_remembered():
    x, y = lt.zeros(6), lt.zeros(6)
    a, b = np.zeros(6, np.float32), np.zeros(6, np.float32)
    rng = np.random.default_rng(1)
    for _ in range(40):
        (t, u), k, v = ((x, a), (y, b))[rng.integers(2)], int(rng.integers(6)), (1, 2.5, True)[rng.integers(3)]
        s = slice(k, None) if rng.integers(2) else k
        for z, w in ((x, a), (y, b)):
            z[0] = 1
            w[0] = 1
        t[s] = v
        u[s] = v
        t[s] += v
        u[s] += v
        np.testing.assert_array_equal(np.asarray(x), a)
        np.testing.assert_array_equal(np.asarray(y), b)


def test_other_extents():
    for n in (*(4,) * TIMES, 5, 4, 6, 5):
        x, a = lt.ones((n, n)) * 2, np.full((n, n), 2, np.float32)
        for m in (x, a):
            m[1] = m[0] + 1
            m[:, -1] *= 3
        np.testing.assert_array_equal(np.asarray(x), a)


def test_a_scalar_out_of_range_is_refused_each_time():
    x = lt.zeros(3, dtype=lt.int8) + lt.ones(3, dtype=lt.int8)
    for _ in range(TIMES):
        y = x + x
        y[0] = 7
        y[1] = 127
        assert y.tolist() == [7, 127, 2]
    for _ in range(2):
        y = x + x
        y[0] = 7
        with pytest.raises(ScalarRangeError):
            y[1] = 128
        assert y.tolist() == [7, 2, 2]


def test_versions_and_gradients():
    for _ in range(TIMES):
        x = lt.ones(3) * 2
        x[0] = 1
        x[1] += 1
        assert x._version == 3
        w = lt.tensor([1.0, 1.0, 1.0], requires_grad=True)
        y = w * x
        y[0] = y[0] * 2
        y[1] *= 3
        y.sum().backward()
        assert w.grad.tolist() == [2, 9, 2]
        with pytest.raises(AutogradError, match="leaf"):
            w[0] = 1
        with pytest.raises(AutogradError, match="leaf"):
            w *= 2


def test_eager_and_other_threads():
    def step(x):
        x[0] = x[0] + 1
        x[1] *= 2
        x += 1

    x, a = lt.zeros(3) + 1, np.ones(3, np.float32)
    for _ in range(TIMES):
        step(x)
        step(a)
    with lt.eager():
        for _ in range(TIMES):
            step(x)
            step(a)
            np.testing.assert_array_equal(np.asarray(x), a)
    workers = [threading.Thread(target=lambda: [step(x) for _ in range(TIMES)]) for _ in range(2)]
    for w in workers:
        w.start()
        w.join()
        for _ in range(TIMES):
            step(a)
    np.testing.assert_array_equal(np.asarray(x), a)


def test_a_mode_is_part_of_the_place():
    for mode in (lt.no_grad, lt.enable_grad, lt.no_grad):
        for _ in range(4):
            w = lt.tensor([1.0, 1.0, 1.0], requires_grad=True)
            x = lt.ones(3) + 0
            with mode():
                x[0] = 2
                x[1:] *= w[1:]
            assert x.requires_grad == (mode is lt.enable_grad)
            assert x.tolist() == [2, 1, 1]
