"""Library calls of a plan: what NumPy returns is taken over or copied, and nobody can tell which."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu import callbacks, memory
from lazyt.backends.cpu.flags import switches
from lazyt.backends.cpu.library import sorting
from lazyt.config import general
from lazyt.functions.numpy_calls import record_numpy, record_ufunc
from lazyt.functions.subscript import getitem

N = 50_000
X = np.random.default_rng(3).standard_normal(N)


@pytest.fixture(params=[True, False], ids=["adopt", "no-adopt"], autouse=True)
def adopt(request, monkeypatch):
    monkeypatch.setitem(switches, "adopt", request.param)
    monkeypatch.setitem(general, "adopt", request.param)
    return request.param


def taken_over(t):
    return type(t._buffer.buffer) is memory.ExternalBuffer


def test_a_fresh_result_is_taken_over_and_read_in_the_same_plan(adopt):
    x = lt.asarray(X)
    for _ in range(3):
        f = lt.fft.ihfft(x)
        g = f * 2.0 + lt.sum(lt.real(f))
        lt.sync()
        assert taken_over(f) == adopt
        want = np.fft.ihfft(X)
        np.testing.assert_allclose(f.numpy(), want)
        np.testing.assert_allclose(g.numpy(), want * 2 + want.real.sum(), atol=1e-9)


def test_several_results_and_a_ufunc_that_writes_in_place():
    x = lt.asarray(X)
    fraction, whole = record_ufunc(np.modf, (x,))
    only = record_ufunc(np.modf, (x + 1.0,))[1]
    lt.sync()
    np.testing.assert_array_equal(fraction.numpy(), np.modf(X)[0])
    np.testing.assert_array_equal(whole.numpy(), np.modf(X)[1])
    np.testing.assert_array_equal(only.numpy(), np.modf(X + 1.0)[1])


def test_a_result_taken_over_is_written_in_place_like_any_other():
    x = lt.asarray(X)
    p = lt.partition(x, 100)
    lt.sync()
    before = p.numpy(copy=True)
    view = p.numpy()
    p += 1.0
    p[0] = 7.0
    lt.sync()
    np.testing.assert_array_equal(view, before)
    np.testing.assert_array_equal(p.numpy(), np.concatenate([[7.0], before[1:] + 1.0]))


def test_what_somebody_else_holds_is_copied():
    kept = np.arange(float(N))

    def returned(a):
        return kept

    def itself(a):
        return a

    x = lt.asarray(X)
    a = record_numpy("returned", returned, (x,), {}, [((N,), np.float64)])
    b = record_numpy("itself", itself, (x,), {}, [((N,), np.float64)])
    c = record_numpy("turned", lambda a: a.reshape(2, -1).T, (x,), {}, [((N // 2, 2), np.float64)])
    lt.sync()
    assert not taken_over(a)
    assert not taken_over(b)
    assert not taken_over(c)
    kept[:] = 0
    np.testing.assert_array_equal(a.numpy(), np.arange(float(N)))
    np.testing.assert_array_equal(b.numpy(), X)
    np.testing.assert_array_equal(c.numpy(), X.reshape(2, -1).T)


def test_two_results_that_are_one_array():
    def twice(a):
        r = a + 1
        return r, r

    a, b = record_numpy("twice", twice, (lt.asarray(X),), {}, [((N,), np.float64)] * 2)
    lt.sync()
    a += 1.0
    lt.sync()
    np.testing.assert_array_equal(a.numpy(), X + 1 + 1)
    np.testing.assert_array_equal(b.numpy(), X + 1)


# Indexing that NumPy does on values at hand

M = X[:20_000].reshape(100, 200)
CASES = {
    "mask": lambda m, x: x[x > 0],
    "mask of rows": lambda m, x: x[x[:, 0] > 0],
    "empty mask": lambda m, x: x[x > 99],
    "extract": lambda m, x: m.extract(x > 0.5, x),
    "compress": lambda m, x: m.compress(x[:, 0] > 0, x, axis=0),
    "delete": lambda m, x: m.delete(x, 7),
    "delete last row": lambda m, x: m.delete(x, -1, axis=0),
    "delete columns": lambda m, x: m.delete(x, [1, -1, 5], axis=1),
    "delete slice": lambda m, x: m.delete(x, slice(1, 50, 3), axis=1),
    "insert": lambda m, x: m.insert(x, 7, 2.0),
    "insert rows": lambda m, x: m.insert(x, 1, x[:3], axis=0),
    "insert at the end": lambda m, x: m.insert(x, 200, x[:, 0], axis=1),
    "insert several": lambda m, x: m.insert(x, [1, 9], 5.0, axis=1),
    "argwhere": lambda m, x: m.argwhere(x > 0),
    "trace": lambda m, x: m.trace(x, 3),
    "diagonal": lambda m, x: m.diagonal(x.reshape(10, 10, 200), -2, 2, 0),
    "partition": lambda m, x: m.sort(m.partition(x, 30, axis=1)[:, :30]),
    "argpartition": lambda m, x: m.sort(m.argpartition(x, [3, 30], axis=0)[:30], axis=0),
    "digitize down": lambda m, x: m.digitize(x, m.flip(m.sort(x[0]))),
    "bincount": lambda m, x: m.bincount(m.astype(m.abs(x.reshape(-1)), np.int64)),
}  # fmt: skip


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_same_at_hand_and_pending(name, pending):
    x = lt.asarray(M) * 1.0 if pending else lt.asarray(M)
    got = CASES[name](lt, x)
    want = CASES[name](np, M)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-14)


MOVED = ["mask", "extract", "compress", "delete", "delete columns", "diagonal"]


@pytest.mark.parametrize("name", [*MOVED, "partition", "insert", "trace"])
def test_gradients_pass_through(name):
    w = lt.tensor(M, requires_grad=True)
    out = lt.partition(w, 30, axis=1) if name == "partition" else CASES[name](lt, w)
    (out**2).sum().backward()
    want = np.zeros(M.size)
    # Which elements come through; of the trace, all with the same factor.
    numbers = np.arange(M.size).reshape(M.shape)
    chosen = CASES[name](np, numbers) if name.startswith("delete") else None
    if name == "mask":
        chosen = numbers[M > 0]
    elif name == "extract":
        chosen = numbers[M > 0.5]
    elif name == "compress":
        chosen = numbers[M[:, 0] > 0]
    elif name == "diagonal":
        chosen = CASES[name](np, numbers)
    elif name == "trace":
        chosen = np.diagonal(numbers, 3)
    elif chosen is None:
        chosen = numbers
    want[chosen] = 2 * (np.trace(M, 3) if name == "trace" else M.flat[chosen])
    np.testing.assert_allclose(w.grad.numpy(), want.reshape(M.shape))


def test_a_mask_leaves_what_is_pending_pending():
    x = lt.asarray(X)
    y = x + 1.0
    with lt.no_sync():
        z = getitem(y, X > 0)
    assert z.is_pending
    np.testing.assert_array_equal(z.numpy(), (X + 1.0)[X > 0])


@pytest.mark.parametrize("threads", [1, 3])
def test_ufuncs_and_complex_functions_in_parts(threads, monkeypatch):
    monkeypatch.setattr(callbacks, "THREADED", 0.0)  # whatever takes no time too
    before = lt.get_num_threads()
    lt.set_num_threads(threads)
    x = np.random.default_rng(1).standard_normal(300_001)
    z = x + 1j * x[::-1]
    z[::1000] = complex(np.inf, 1)
    z[1::1000] = 0
    try:
        for got, want in (
            (lt.spacing(lt.asarray(x)), np.spacing(x)),
            (lt.ldexp(lt.asarray(x), 3), np.ldexp(x, 3)),
            (lt.ldexp(lt.asarray(x).reshape(-1, 1), lt.asarray([1, 2])), np.ldexp(x.reshape(-1, 1), [1, 2])),
        ):
            np.testing.assert_array_equal(got.numpy(), want)
        for name in ("sin", "sqrt", "expm1", "tanh", "log"):
            with np.errstate(all="ignore"):
                want = getattr(np, name)(z)
            got = getattr(lt, name)(lt.asarray(z)).numpy()
            finite = np.isfinite(z)
            np.testing.assert_allclose(got[finite], want[finite], rtol=1e-13)
        assert np.signbit(lt.tanh(lt.asarray(np.array(complex(-np.inf, -1)))).numpy().imag)
        assert lt.expm1(lt.asarray(np.array(complex(np.inf, 0)))).numpy() == complex(np.inf, 0)
    finally:
        lt.set_num_threads(before)


@pytest.mark.parametrize("slow", [False, True])
def test_only_a_ufunc_that_takes_its_time_is_divided(slow, adopt, monkeypatch):
    divided, ran, clock = [], sorting.divided, iter(range(1000))
    monkeypatch.setattr(sorting, "divided", lambda *args: divided.append(args[0]) or ran(*args))
    monkeypatch.setattr(callbacks, "perf_counter", lambda: next(clock) * (1.0 if slow else 1e-9))
    # NOTE: extents of its own, for a plan remembers how long it took there.
    x = np.arange(100_000 + 2 * slow + adopt, dtype=np.uint8)
    for _ in range(3):
        np.testing.assert_array_equal(lt.bitwise_count(lt.asarray(x)).numpy(), np.bitwise_count(x))
    assert divided == ([x.size, x.size] if slow and adopt else [])


def test_running_products_of_complex_numbers():
    z = np.exp(1j * X[:2000]).reshape(40, 50)
    for axis in (0, 1, None):
        np.testing.assert_allclose(lt.cumprod(lt.asarray(z), axis=axis).numpy(), np.cumprod(z, axis=axis), rtol=1e-12)
    single = z.astype(np.complex64)
    assert lt.cumprod(lt.asarray(single), axis=1).dtype == np.complex64
    np.testing.assert_allclose(lt.cumprod(lt.asarray(single), axis=1).numpy(), np.cumprod(z, axis=1), rtol=1e-5)
