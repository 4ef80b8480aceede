"""Scatter and gather on the CPU against NumPy: bits, orders, threads, errors, one native call."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu.callbacks import Callback
from lazyt.backends.cpu.thread_pool import Program
from lazyt.errors import IndexOutOfRange
from lazyt.runtime import plan_cache

HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
DTYPES = [
    np.dtype(d)
    for d in (
        *("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"),
        ml_dtypes.bfloat16,
    )
]
# The shape of x, what its key is made of (an extent of indices, or a whole axis).
ALL = slice(None)
CASES = [
    ((7,), (20,)),
    ((300, 130), (1000,)),  # most rows are hit: lists
    ((300, 13), (20,)),  # few are: updates one after the other
    ((5, 6, 4), (ALL, 9)),
    ((5, 6, 7), ((3, 2), ALL, (2,))),
    ((5, 6, 7), (ALL, ALL, 11)),
    ((4, 5), (9, 9)),
    ((5, 4), (0,)),
    ((0, 4), (0,)),
    ((5, 0), (2,)),
    ((50, 17), ((),)),
]


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "b":
        return rng.random(shape) > 0.5
    if dtype.kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.kind == "c" else x).astype(dtype)


def key_of(rng: np.random.Generator, shape: tuple[int, ...], spec: tuple) -> tuple:
    """Indices with repeats, from the start and from the end."""
    return tuple(
        s if isinstance(s, slice) else rng.integers(-n, n, s) if n else np.zeros(s, int)
        for s, n in zip(spec, shape, strict=False)
    )


def tensors(key: tuple) -> tuple:
    return tuple(lt.asarray(k) if isinstance(k, np.ndarray) else k for k in key)


def added(x: np.ndarray, key: tuple, v: np.ndarray) -> np.ndarray:
    """x with v added in order: halves in float32, rounded once."""
    y = x.astype("f4") if x.dtype in HALVES else x.copy()
    np.add.at(y, key, v.astype(y.dtype))
    return y.astype(x.dtype)


def assert_bits(got: lt.Tensor, want: np.ndarray) -> None:
    assert got.numpy().dtype == want.dtype
    np.testing.assert_array_equal(
        np.ascontiguousarray(got.numpy()).view("u1"), np.ascontiguousarray(want).view("u1"), strict=True
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_writes_and_sums_have_the_bits_of_numpy(dtype, threads):
    rng = np.random.default_rng(threads)
    for shape, spec in CASES:
        key = key_of(rng, shape, spec)
        x = values(rng, shape, dtype)
        seen = x[key].shape
        for v in (values(rng, seen, dtype), values(rng, (), dtype), values(rng, seen[-1:], dtype)):
            y = lt.asarray(x)
            y[tensors(key)] = lt.asarray(v)
            want = x.copy()
            want[key] = v
            assert_bits(y, want)
            assert_bits(lt.add_at(lt.asarray(x), tensors(key), lt.asarray(v)), added(x, key, v))
            nothing = lt.zeros(shape, dtype=dtype)
            assert_bits(lt.add_at(nothing, tensors(key), lt.asarray(v)), added(np.zeros_like(x), key, v))


@pytest.mark.parametrize("dtype", [np.dtype("f4"), np.dtype("i8"), HALVES[1]], ids=str)
@pytest.mark.parametrize("rows", [False, True])
def test_large_ones_are_divided_among_threads(dtype, rows, threads):
    rng = np.random.default_rng(7)
    x = values(rng, (5000, 24) if rows else (70000,), dtype)
    i = rng.integers(-len(x), len(x), 50000)
    v = values(rng, x[i].shape, dtype)
    assert_bits(lt.add_at(lt.asarray(x), lt.asarray(i), lt.asarray(v)), added(x, (i,), v))
    y = lt.asarray(x)
    y[lt.asarray(i)] = lt.asarray(v)
    want = x.copy()
    want[i] = v
    assert_bits(y, want)


def test_off_it_is_a_call_of_numpy(monkeypatch):
    called: list[int] = []
    run = Callback.run
    monkeypatch.setattr(Callback, "run", lambda *a: called.append(1) or run(*a))
    monkeypatch.setitem(plan_cache.settings, "native", False)
    monkeypatch.setitem(plan_cache.settings, "tiers", False)
    rng = np.random.default_rng(3)
    for shape, spec in CASES:
        key, x = key_of(rng, shape, spec), values(rng, shape, np.dtype("f4"))
        v = values(rng, x[key].shape, x.dtype)
        # A program of its own, whole: plans that were made with the setting on are not asked.
        total = lt.add_at(lt.asarray(x), tensors(key), lt.asarray(v)) + 0.0
        assert_bits(total, added(x, key, v) + np.float32(0))
        assert called
        called.clear()


def parts_of_last_plan(step) -> list:
    made: list[plan_cache.Plan] = []
    init = plan_cache.Plan.__init__

    def record(self, *args, **more):
        init(self, *args, **more)
        made.append(self)

    plan_cache.Plan.__init__ = record
    try:
        for _ in range(3):
            step()
    finally:
        plan_cache.Plan.__init__ = init
    return [type(p) for p in next(iter(made[-1].executable.bound.values())).parts]


def test_a_training_step_with_an_embedding_is_one_native_call():
    rng = np.random.default_rng(0)
    table = lt.tensor(rng.standard_normal((50, 8)).astype("f4"), requires_grad=True)
    tokens = lt.asarray(rng.integers(0, 50, (4, 6)))

    def step():
        loss = (table[tokens] ** 2).sum()
        loss.backward()
        with lt.no_grad():
            table[...] = table - 0.1 * table.grad
        table.grad = None
        lt.sync(table, loss)

    assert parts_of_last_plan(step) == [Program]


@pytest.mark.parametrize("i", [[0, 9], [-5, 0]])
def test_an_index_out_of_range_leaves_all_as_it_was(i):
    x, at = lt.zeros((4, 3)), lt.asarray(i) + 0
    kept = lt.ones((2,)) * 3
    y = lt.index_add(x, 0, at, lt.ones((2, 3)))
    message = rf"index {i[0] or i[1]} is out of bounds .* size 4 .*recorded at .*test_scatter"
    for _ in range(2):
        with pytest.raises(IndexOutOfRange, match=message):
            y.numpy()
    del y
    np.testing.assert_array_equal(kept.numpy(), [3, 3])


def test_a_gather_of_rows_reads_neighbours():
    """One index for all lanes of a row: the bits of any, also where rows are read under a condition."""
    rng = np.random.default_rng(5)
    for dtype in DTYPES:
        x = values(rng, (9, 4, 37), dtype)
        i = rng.integers(-9, 9, (5, 2))
        assert_bits(lt.asarray(x)[lt.asarray(i)], x[i])
        padded = np.pad(x[i[:, 0], :, 3:], ((1, 0), (0, 0), (0, 1)))
        assert_bits(lt.pad(lt.asarray(x)[lt.asarray(i[:, 0]), :, 3:], ((1, 0), (0, 0), (0, 1))), padded)
