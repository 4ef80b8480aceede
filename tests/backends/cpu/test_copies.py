"""The copies of `after` are rows of a native program: all dtypes and sizes, and only what is read."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt.tracing.record import record
from lazyt.utils.checkpoint import AFTER

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float32", "complex128"])
def test_copies_have_the_bits_of_what_they_copy(dtype, threads):
    arrays = [RNG.integers(0, 2, size=n).astype(dtype) for n in (0, 1, 5, 4097, 300_001)]
    token = lt.ones(3) * 2
    copies = record(AFTER, (token, *map(lt.asarray, arrays)))
    assert copies[-1].is_pending
    for copy, a in zip(copies, arrays, strict=True):
        np.testing.assert_array_equal((copy[::-1] if copy.size else copy).numpy(), a[::-1])


def test_they_are_native_and_only_what_is_read_is_copied():
    x, y = lt.ones((64, 64)), lt.zeros((64, 64))
    lt.sync()
    _, copy = record(AFTER, (lt.exp(x), x, y))
    found = lt.explain(copy + 1)
    assert any("native after" in str(k) for k in found.kernels)
    np.testing.assert_array_equal((copy + 1).numpy(), np.ones((64, 64), np.float32))
