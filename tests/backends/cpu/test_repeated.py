"""Values that repeat along a short last axis, beside others: one axis in whole vectors, with the same bits."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu import flags
from lazyt.backends.cpu.codegen.lane_by_lane import has_moves
from lazyt.backends.cpu.codegen.repeated import MOST
from tests.support.arrays import normal
from tests.support.cpu_kernels import check
from tests.support.kernel_builder import Builder
from tests.support.plans import bits, forget

pytestmark = pytest.mark.usefixtures("planned")

DTYPES = ["float32", "float64", "float16", "int8", "uint16", "int64", "bool", "complex64"]


def array(*shape, dtype="float32", seed=0):
    a = normal(*shape, seed=seed) * 50
    return (a > 0) if dtype == "bool" else a.astype(dtype)


def spreads():
    """As `periods`, of what stands for several elements of a short axis."""
    return [a.spread for c in lt.last_sync().plan.schedule.kernels for a in c.kernel.accesses if a.spread]


def periods():
    """Of the accesses of the last sync's kernels, as they were arranged."""
    return [a.period for c in lt.last_sync().plan.schedule.kernels for a in c.kernel.accesses if a.period]


PROGRAMS = {
    "a constant a channel": (lambda x, c, d: x * c, True),
    "several": (lambda x, c, d: (x - c) / d + c, True),
    "what is between": (lambda x, c, d: lt.maximum(x, c) * (d > 0), True),
    "what is read under a condition": (lambda x, c, d: lt.where(c > 0, x * 2, x + d), False),
    "two results": (lambda x, c, d: (x + c, x * x), True),
    "a part": (lambda x, c, d: x[1:] * c, True),
    "every other row": (lambda x, c, d: x[::2] * c, False),
    "turned": (lambda x, c, d: x[..., ::-1] * c, False),
    "alone": (lambda x, c, d: x * 2, False),
    "with a column": (lambda x, c, d: x * c + x[..., :1], False),
    "summed up": (lambda x, c, d: (x * c).sum(0), False),
}


def run(program, x, c, d):
    out = PROGRAMS[program][0](x, c, d)
    out = out if isinstance(out, tuple) else (out,)
    lt.sync()
    found = periods()
    return [v.numpy() for v in out], found


@pytest.mark.parametrize("count", [2, 3, 4, 7])
@pytest.mark.parametrize("program", list(PROGRAMS))
def test_the_bits_are_those_of_other_lanes(program, count, monkeypatch):
    arrays = [array(157, count), array(count, seed=1), array(count, seed=2)]
    got, found = run(program, *map(lt.asarray, arrays))
    if PROGRAMS[program][1]:
        assert set(found) == {count}
    elif program != "summed up":
        assert not found
    forget()
    monkeypatch.setitem(flags.switches, "widen", False)
    want, found = run(program, *map(lt.asarray, arrays))
    assert not found
    assert list(map(bits, got)) == list(map(bits, want))


@pytest.mark.parametrize("dtype", DTYPES)
def test_against_numpy(dtype):
    x, c = array(41, 7, 3, dtype=dtype), array(3, dtype=dtype, seed=1)
    f = (lambda m, x, c: x ^ c) if dtype == "bool" else (lambda m, x, c: x * c + c)
    y = f(lt, lt.asarray(x), lt.asarray(c))
    lt.sync()
    assert set(periods()) == ({3} if dtype != "complex64" else set())
    with np.errstate(over="ignore"):
        want = f(np, x, c)
    if dtype in ("float32", "float64", "complex64", "float16"):
        np.testing.assert_allclose(y.numpy(), want, rtol=2e-3 if dtype == "float16" else 1e-5)
    else:
        np.testing.assert_array_equal(y.numpy(), want)


POINTS = {
    "a number a point": (lambda x, k, c: x * k, True),
    "and a constant a channel": (lambda x, k, c: x * k + c, True),
    "under a condition": (lambda x, k, c: lt.where(k > 0, x, x + k), True),
    "several": (lambda x, k, c: (x - k) / (k * k + 1), True),
    "two results": (lambda x, k, c: (x + k, x * k), True),
    "a part": (lambda x, k, c: x[1:] * k[1:], True),
    "every other one": (lambda x, k, c: x * k[::2][: len(x)], False),
}


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("program", list(POINTS))
def test_numbers_of_points(program, count, monkeypatch):
    """Beside pixels or points: the bits are those of other lanes."""
    n = 157
    k = array(2 * n if program == "every other one" else n, 1, seed=1)
    arrays = [array(n, count), k, array(count, seed=2)]

    def found():
        out = POINTS[program][0](*map(lt.asarray, arrays))
        lt.sync()
        return [bits(v.numpy()) for v in (out if isinstance(out, tuple) else (out,))]

    got = found()
    assert set(spreads()) == ({count} if POINTS[program][1] and has_moves(np.dtype("float32")) else set())
    forget()
    monkeypatch.setitem(flags.switches, "widen", False)
    want = found()
    assert not spreads()
    assert got == want


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_of_pixels_of_every_dtype(dtype):
    """With an outer axis, of which nothing is merged."""
    x, k = array(9, 41, 3, dtype=dtype)[::2], array(5, 41, 1, dtype=dtype, seed=1)
    f = (lambda x, k: x ^ k) if dtype == "bool" else (lambda x, k: x * k + k)
    y = f(lt.asarray(array(9, 41, 3, dtype=dtype))[::2], lt.asarray(k)).numpy()
    with np.errstate(over="ignore"):
        want = f(x, k)
    if dtype in ("float32", "float64", "complex64", "float16"):
        np.testing.assert_allclose(y, want, rtol=2e-3 if dtype == "float16" else 1e-5, atol=1e-3)
    else:
        np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("pixels", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("rows", [1, 3, 80])
def test_few_pixels_of_many_rows(rows, count, pixels):
    """Lanes then run along no other axis: the gradient of a pool over rows of 5 had other windows' elements."""
    x, k = array(rows, 2, pixels, count), array(rows, pixels, seed=1)
    u, v = lt.asarray(x), lt.asarray(k)
    lt.sync()
    np.testing.assert_array_equal((u + v[:, None, :, None]).numpy(), x + k[:, None, :, None])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int16", "bool"])
@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_what_is_spread_is_as_its_kernel_says(count, dtype):
    """Native code beside the kernel interpreter, from every place on, and in pieces."""
    if not has_moves(np.dtype(dtype)):
        pytest.skip("no masked access to neighbours of this size here")
    for points, outer, pieces in ((1, 1, 1), (5, 3, 1), (67, 2, 2), (9000, 1, 3)):
        n = points * count
        b = Builder((outer, n))
        x = array(outer, n, dtype=dtype)
        own = b.load(x)
        few = array(outer, n, dtype=dtype, seed=1)  # of which a row's first ones are read
        spread = b.load(few, classes="n1")
        b.accesses[-1] = dataclasses.replace(b.accesses[-1], spread=count)
        b.stage(b.store(b.op("xor" if dtype == "bool" else "add", own, spread), np.empty_like(x)))
        (got,) = check(b, pieces)
        wide = np.repeat(few[:, :points], count, axis=1)
        np.testing.assert_array_equal(got.reshape(x.shape), x ^ wide if dtype == "bool" else x + wide)


def test_rows_of_any_number():
    c = lt.asarray(array(3, seed=1))
    lt.sync()
    for n in (*range(4, 70), 0, 1, 2, 3, 5000):
        x = array(n, 3)
        np.testing.assert_array_equal((lt.asarray(x) * c).numpy(), x * c.numpy())
        np.testing.assert_array_equal((lt.asarray(x) * lt.asarray(x[:, :1].copy())).numpy(), x * x[:, :1])


def test_other_numbers_of_channels_have_plans_of_their_own():
    for rows, count in ((1, 3), (50, 3), (3, 4), (50, 9), (50, 1), (50, 3), (2, 40), (50, 2), (50, 8)):
        x, c = array(rows, count), array(count, seed=1)
        np.testing.assert_array_equal((lt.asarray(x) + lt.asarray(c)).numpy(), x + c)
        assert set(periods()) == ({count} if 2 <= count <= MOST else set())


def test_a_constant_of_each_image():
    x, c = array(5, 40, 3), array(5, 1, 3, seed=1)
    np.testing.assert_array_equal((lt.asarray(x) * lt.asarray(c)).numpy(), x * c)
    k = array(5, 40, 1, seed=2)
    np.testing.assert_array_equal((lt.asarray(x) * lt.asarray(k) + 1).numpy(), x * k + 1)


def test_a_value_computed_in_the_same_program_is_read_when_it_is_there():
    x, w = array(4000, 3), array(6, 3, seed=1)
    a, b = lt.asarray(x), lt.asarray(w)
    mean = b.sum(0)
    y = (a - mean) / (mean * mean + 1)
    z = y * mean
    m = w.sum(0, dtype=np.float32)
    want = (x - m) / (m * m + 1)
    np.testing.assert_allclose(z.numpy(), want * m, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
def test_large_ones_in_place_on_threads(threads):
    before = lt.get_num_threads()
    lt.set_num_threads(threads)
    try:
        x, c = array(300, 301, 3), array(3, seed=1) / 50
        a, b = lt.asarray(x), lt.asarray(c)
        for _ in range(4):
            a = a * b + b
            lt.sync()
            x = (x.astype(np.float64) * c + c).astype(np.float32)
        np.testing.assert_allclose(a.numpy(), x, rtol=1e-4, atol=1e-3)
    finally:
        lt.set_num_threads(before)
