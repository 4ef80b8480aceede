"""Sorting on the CPU: the results of stable sorts, bit by bit, for every dtype, layout and number of threads."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu.library import insertion_sort, sorting
from lazyt.ir import library_calls
from lazyt.runtime import plan_cache
from tests.support.arrays import octets
from tests.support.plans import forget

DTYPES = [
    np.dtype(d) for d in (*("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"), ml_dtypes.bfloat16)
]
SHAPES = [((1,), 0), ((300,), 0), ((100000,), 0), ((40, 7), 1), ((40, 7), 0), ((5, 6, 9), 1), ((300, 500), 1),
          ((0,), 0), ((3, 0), 1), ((0, 3), 1)]  # fmt: skip


def values(shape: tuple[int, ...], dtype: np.dtype, special: bool) -> np.ndarray:
    """Many equal ones; extremes, or zeros of both signs and NaN of both."""
    rng = np.random.default_rng(len(shape))
    if dtype.kind == "b":
        return rng.random(shape) > 0.5
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        x = rng.integers(0, 50, shape).astype(dtype)
        return np.where(rng.random(shape) < 0.1, info.min, np.where(rng.random(shape) < 0.1, info.max, x)).astype(dtype)
    x = (rng.integers(-20, 20, shape) / 4).astype(dtype)
    if special:
        for v in (-0.0, 0.0, np.nan, -np.nan, np.inf, -np.inf):
            x[rng.random(shape) < 0.05] = v
    return x


@pytest.mark.parametrize("few", [0, sorting.FEW, "lines", "halves"])
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_results_are_those_of_a_stable_sort(dtype, special, few, threads, monkeypatch):
    if few == "lines":  # the short ones, in machine code
        monkeypatch.setattr(insertion_sort, "GRAIN", 16)
        monkeypatch.setattr(insertion_sort, "SMALL", 1 << 20)
    else:
        monkeypatch.setattr(insertion_sort, "FEW", 0)
        monkeypatch.setattr(sorting, "FEW", 0 if few == "halves" else few)
        if few == "halves":  # of one row, on several threads
            monkeypatch.setattr(sorting, "DIVIDED", 64)
    forget()
    for shape, axis in SHAPES:
        if few == "lines" and shape[axis] > insertion_sort.FEW:
            continue
        x = values(shape, dtype, special)
        t = lt.asarray(x)
        for down in (False, True):
            order = library_calls.argsort(x, axis, down)
            np.testing.assert_array_equal(lt.argsort(t, axis=axis, descending=down).numpy(), order)
            y = lt.sort(t, axis=axis, descending=down).numpy()
            assert y.dtype == dtype
            np.testing.assert_array_equal(octets(y), octets(np.take_along_axis(x, order, axis)))
            for k in sorted({0, min(1, shape[axis]), shape[axis] // 3, shape[axis]}):
                top = lt.topk(t, k, axis=axis, largest=down)
                first = np.take(order, np.arange(k), axis)
                np.testing.assert_array_equal(top.indices.numpy(), first)
                np.testing.assert_array_equal(octets(top.values.numpy()), octets(np.take_along_axis(x, first, axis)))


def test_one_program_for_short_and_long_lines():
    """Which of the two ways sorts is decided anew for other extents, whoever works out what these take."""
    rng = np.random.default_rng(0)
    for n in [10, 64, 65, 200, 5, 63, 300, 66, 11, 12, 90, 64, 13, 70]:
        x = rng.integers(0, 9, (2, n)).astype("f4")
        for down in (False, True):
            found = lt.argsort(lt.asarray(x), axis=1, descending=down)
            assert ("native argsort" in str(lt.explain())) == (n <= insertion_sort.FEW), n
            np.testing.assert_array_equal(found.numpy(), library_calls.argsort(x, 1, down))


def test_of_a_view():
    x = np.random.default_rng(0).standard_normal((6, 50))
    t = lt.asarray(x)
    np.testing.assert_array_equal(lt.sort(t[::-1, ::2].T, axis=0).numpy(), np.sort(x[::-1, ::2].T, axis=0))


def test_an_interrupted_sort_waits_for_its_threads(monkeypatch):
    done = []

    def some(part: slice) -> None:
        if part.start == 0:
            raise KeyboardInterrupt
        np.sort(np.random.default_rng(0).random(1 << 20))
        done.append(part)

    with pytest.raises(KeyboardInterrupt):
        sorting._together([slice(0, 1), slice(1, 2), slice(2, 3)], some)
    assert len(done) == 2


@pytest.mark.parametrize("count", [1, 2, 3])
def test_halves_of_long_rows_are_sorted_side_by_side(count, monkeypatch):
    """As many parts as threads are left for a row, each of it in its place."""
    monkeypatch.setattr(sorting, "DIVIDED", 1024)
    parts = []

    def together(halves, some):
        parts.extend(halves)
        for half in halves:
            some(half)

    monkeypatch.setattr(sorting, "_together", together)
    rows = np.random.default_rng(0).permutation(count * 3001).reshape(count, -1)
    expected = np.sort(rows, axis=1)
    sorting._sort(rows, 3)
    np.testing.assert_array_equal(rows, expected)
    assert [threads for _, threads in parts] == [2, 1, 1, 1] * count


def test_what_fails_on_a_thread_is_raised():
    def some(part: slice) -> None:
        if part.start:
            raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        sorting._together([slice(0, 1), slice(1, 2)], some)


@pytest.mark.parametrize("native", [True, False])
def test_a_gradient_through_topk(native, monkeypatch):
    monkeypatch.setitem(plan_cache.settings, "native", native)
    x = lt.tensor([3.0, 1.0, 4.0, 1.5], requires_grad=True)
    (lt.topk(x, 2).values * lt.asarray([1.0, 10.0])).sum().backward()
    assert x.grad.tolist() == [10.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("length", [-sorting.LONG, sorting.LONG, 70_001])  # less than 0: as eight shorter rows
@pytest.mark.parametrize("kind", ["normal", "narrow", "whole range", "many ties", "few ties", "signed zeros", "ends"])
def test_places_of_rows_of_64_bits(kind, length, descending, monkeypatch):
    """Keys that leave room for the position, that are told apart by their high bits, and that are not."""
    monkeypatch.setattr(sorting, "DIVIDED", 1 << 16)
    rng = np.random.default_rng(0)
    n = abs(length)
    x = {
        "normal": rng.standard_normal(n),
        "narrow": rng.integers(-100, 100, n),
        "whole range": rng.integers(0, 2**64 - 1, n, dtype=np.uint64),
        "many ties": rng.integers(0, 50, n) + rng.integers(0, 2, n) * 2**62,
        "few ties": np.where(rng.random(n) < 0.05, rng.integers(0, 50, n), rng.integers(-(2**63), 2**63 - 1, n)),
        "signed zeros": np.where(rng.random(n) < 0.5, -0.0, 0.0),
        "ends": np.where(rng.random(n) < 0.01, np.nan, np.where(rng.random(n) < 0.5, np.inf, rng.standard_normal(n))),
    }[kind]
    rows = x[None] if length > 0 else x.reshape(8, -1)
    found = np.empty(rows.shape, np.int64)
    sorting.argsort(found, rows, 1, descending)
    keys = sorting._keys(rows)
    np.testing.assert_array_equal(found, np.argsort(~keys if descending else keys, axis=1, kind="stable"))
