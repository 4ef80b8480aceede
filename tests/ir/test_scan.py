"""Running sums and products: the order of `ir/scan.py` on every path, NumPy's values, any number of threads."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu.callbacks import Callback
from lazyt.ir.scan import BLOCK, scan
from lazyt.runtime import plan_cache
from tests.support.arrays import octets

DTYPES = [
    np.dtype(d)
    for d in (
        *("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"),
        ml_dtypes.bfloat16,
    )
]
SHAPES = [
    ((1,), 0), ((16,), 0), ((100,), 0), ((BLOCK,), 0), ((BLOCK + 1,), 0), ((5 * BLOCK + 3,), 0), ((30, 37), 1),
    ((300, 37), 0), ((2, 2 * BLOCK + 5, 3), 1), ((3, 40000), 1), ((7, 0), 0), ((0, 7), 1), ((2, 17, 300), 1),
    ((2, 17, 1), 1), ((0,), 0),
]  # fmt: skip
RUNNING = {"cumsum": lt.cumulative_sum, "cumprod": lt.cumulative_prod}


def values(name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    rng = np.random.default_rng(shape[0])
    if dtype.kind == "b":
        return rng.random(shape) > 0.5
    if dtype.kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    x = rng.standard_normal(shape)
    x = x + 1j * rng.standard_normal(shape) if dtype.kind == "c" else x
    return (1 + x * 1e-3 if name == "cumprod" else x).astype(dtype)


@pytest.mark.parametrize("name", RUNNING)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_bits_are_those_of_the_order(dtype, name, threads):
    for shape, axis in SHAPES:
        x = values(name, shape, dtype)
        y = RUNNING[name](lt.asarray(x), axis=axis, dtype=dtype).numpy()
        want = scan(name, x, axis)
        assert y.dtype == dtype
        assert y.shape == shape
        np.testing.assert_array_equal(octets(y), octets(want), err_msg=f"{shape} {axis}")


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_products_of_complex_numbers(dtype, threads):
    for shape, axis in (*SHAPES, ((2 * BLOCK + 3,), 0), ((300, 500), 0), ((3, 100, 300), 1), ((700, 130), 1)):
        x = values("cumprod", shape, np.dtype(dtype)) * np.exp(0.1j).astype(dtype)
        if x.size > 20:
            x.flat[-3] = complex(np.inf, -0.0)
        y = lt.cumulative_prod(lt.asarray(x), axis=axis).numpy()
        np.testing.assert_array_equal(octets(y), octets(scan("cumprod", x, axis)), err_msg=f"{shape} {axis}")
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(y, np.cumprod(x, axis), rtol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_order_gives_the_values_of_numpy(dtype):
    work = {"f": "f8", "c": "c16"}.get("f" if dtype == ml_dtypes.bfloat16 else dtype.kind, dtype)
    tolerance = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-7, "complex64": 1e-6}.get(dtype.name, 1e-12)
    for shape, axis in SHAPES:
        for name, f in (("cumsum", np.cumsum), ("cumprod", np.cumprod)):
            x = values(name, shape, dtype)
            got, want = scan(name, x, axis), f(x.astype(work), axis=axis, dtype=work)
            if dtype.kind in "biu":
                np.testing.assert_array_equal(got, want)
            else:
                top = np.abs(want).max(initial=1)
                np.testing.assert_allclose(got.astype(want.dtype), want, rtol=tolerance, atol=tolerance * top)


def test_a_sum_is_more_exact_than_one_after_the_other():
    x = np.random.default_rng(0).random(1_000_000).astype("f4")
    exact = np.cumsum(x.astype(np.longdouble))
    ours = np.abs(lt.cumulative_sum(lt.asarray(x)).numpy() - exact).max()
    assert ours <= np.abs(np.cumsum(x) - exact).max() / 10
    y = np.random.default_rng(1).standard_normal(1_000_000)
    exact = np.cumsum(y.astype(np.longdouble))
    ours = np.abs(lt.cumulative_sum(lt.asarray(y)).numpy() - exact).max()
    assert ours <= np.abs(np.cumsum(y) - exact).max()


def test_special_values():
    inf, nan = np.inf, np.nan
    for x in ([-0.0, -0.0, 0.0], [inf, -inf, 1.0], [1.0, nan, 2.0], [3e38, 3e38, -3e38]):
        a = np.array(x, "f4")
        y = lt.cumulative_sum(lt.asarray(a)).numpy()
        with np.errstate(all="ignore"):
            want = np.cumsum(a, dtype="f8").astype("f4")
        np.testing.assert_array_equal(y, want)
        np.testing.assert_array_equal(np.signbit(y[want == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize("view", [np.s_[::-1], np.s_[3::2], np.s_[5:5]])
def test_of_a_view(view):
    x = np.arange(100)
    np.testing.assert_array_equal(lt.cumulative_sum(lt.asarray(x)[view]).numpy(), np.cumsum(x[view]))


def test_off_it_is_a_call_of_numpy(monkeypatch):
    called = []
    run = Callback.run
    monkeypatch.setattr(Callback, "run", lambda *a: called.append(1) or run(*a))
    x = values("cumsum", (50, 70), np.dtype("f4"))
    y = lt.cumulative_sum(lt.asarray(x) - 1, axis=1).numpy()
    assert not called, "a scan is native"
    monkeypatch.setitem(plan_cache.settings, "native", False)
    # Another program, whole: plans that were made with the setting on are not asked.
    monkeypatch.setitem(plan_cache.settings, "tiers", False)
    z = lt.cumulative_sum(lt.asarray(x) - 1, axis=1)
    w = (z + 0.0).numpy()
    assert called
    np.testing.assert_array_equal(octets(y + np.float32(0)), octets(w))


def test_no_carry_is_left_from_the_run_before(threads):
    x = np.random.default_rng(2).standard_normal(40 * BLOCK)
    for _ in range(30):
        x = np.roll(x, 1)
        np.testing.assert_array_equal(lt.cumulative_sum(lt.asarray(x)).numpy(), scan("cumsum", x, 0))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_a_complex_array_under_another_shape_is_read_where_it_lies(dtype):
    x = np.random.default_rng(5).standard_normal((30, 80)).view(np.complex128).astype(dtype)
    t = lt.asarray(x)
    y = lt.cumsum(t)
    assert len(y.explain().kernels) == 1
    shaped = lt.reshape(t, (60, 20))
    spectrum, product = lt.fft.fft(shaped), shaped @ lt.reshape(t, (20, 60))
    for got, want in (
        (y, np.cumsum(x)), (spectrum, np.fft.fft(x.reshape(60, 20))), (shaped, x.reshape(60, 20)),
        (product, x.reshape(60, 20) @ x.reshape(20, 60)), (lt.cumsum(t.T), np.cumsum(x.T)),
        (lt.cumsum(lt.reshape(t + 1, (-1,))), np.cumsum(x + 1)),
    ):  # fmt: skip
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-4)
