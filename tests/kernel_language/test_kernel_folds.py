"""Folds of bools and narrow integers: one dtype and the exact value, however long the range is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import lazyt as lt

TOTALS = {"b": np.int64, "i": np.int64, "u": np.uint64, "f": None}


@lt.kernel(bounds="wrap")
def sums(i, /, g, n):
    return sum(g[i + a] for a in range(n))


@lt.kernel(bounds="wrap")
def products(i, /, g, n):
    return math.prod(g[i + a] for a in range(n))


@lt.kernel(bounds="wrap")
def shown(i, /, g, n):
    return np.sum(g[i + a] for a in range(n) if a % 2 == 0 or g[i] > 0)


@lt.kernel(bounds="wrap")
def means(i, /, g, n):
    return np.mean(g[i + a] for a in range(n))


@lt.kernel(bounds="wrap")
def largest(i, /, g, n):
    return max(g[i + a] for a in range(n))


def given(dtype: str, n: int = 100) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(3)
    drawn = rng.uniform(0.5, 1.5, n) if dtype == "float32" else rng.integers(0, 2 if dtype == "bool" else 120, n)
    return drawn.astype(dtype)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "int64", "uint64", "float32"])
@pytest.mark.parametrize("f", [sums, products, shown], ids=lambda f: f.__name__)
def test_sums_and_products_have_the_dtype_of_a_reduction(f, dtype):
    g = given(dtype)
    for n in (1, 2, 8, 64, 65):
        found = f(lt.asarray(g), n)
        assert found.dtype == (TOTALS[g.dtype.kind] or g.dtype)
        with np.errstate(over="ignore"):
            wanted = f.python(g, n)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5 if dtype == "float32" else 0)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16"])
def test_means_and_extremes_of_narrow_integers(dtype):
    g = given(dtype)
    for n in (1, 2, 64, 65):
        np.testing.assert_allclose(means(lt.asarray(g), n).numpy(), means.python(g, n), rtol=1e-6)
        found = largest(lt.asarray(g), n)
        assert found.dtype == g.dtype
        np.testing.assert_array_equal(found.numpy(), largest.python(g, n))


def test_comparisons_are_counted():
    @lt.kernel
    def level(i, /, x):
        return sum(x[i] > k for k in range(3)) / 3

    x = np.array([0.5, 1.5, 9.0])
    np.testing.assert_allclose(level(lt.asarray(x)).numpy(), [1 / 3, 2 / 3, 1.0])
    np.testing.assert_allclose(level.python(x), [1 / 3, 2 / 3, 1.0])


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int32", "uint64"])
def test_whole_numbers_of_python_are_int64(dtype):
    @lt.kernel
    def double(i, /, x):
        return int(x[i]) * 2, math.floor(x[i]) * 2

    x = given(dtype, 5)
    for found in double(lt.asarray(x)):
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found.numpy(), x.astype(np.int64) * 2)
    for found in double.python(x):
        np.testing.assert_array_equal(found, x.astype(np.int64) * 2)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64"])
@pytest.mark.parametrize("start", ["number", "element"])
def test_a_loop_that_adds_is_what_python_adds(dtype, start):
    """`+=` is Python's, round by round: in the dtype of the elements, whatever the loop's length."""

    @lt.kernel(bounds="wrap")
    def number(i, /, g, n):
        s = 0
        for a in range(n):
            s += g[i + a]
        return s

    @lt.kernel(bounds="wrap")
    def element(i, /, g, n):
        s = g[i]
        for a in range(n):
            s += g[i + a]
        return s

    f = number if start == "number" else element
    g = given(dtype)
    for n in (3, 64, 65):
        found = f(lt.asarray(g), n)
        with np.errstate(over="ignore"):
            wanted = f.python(g, n)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found.numpy(), wanted)
