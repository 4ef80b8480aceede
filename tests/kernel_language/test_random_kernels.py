"""Random kernels against the same text called by Python at every index."""

from __future__ import annotations

import numpy as np
import pytest

from lazyt.kernel_language import lowering
from tests.support.random_kernels import random_kernel


def check(seed: int, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    x, y, c = rng.normal(size=shape), rng.normal(size=shape[1]), float(rng.normal())
    g, u = rng.random(shape[1]) < 0.6, rng.integers(0, 256, shape[1], "uint8")
    text, f = random_kernel(seed)
    found, wanted = (call(x, y, c, 2, g, u, shape=shape) for call in (f, f.python))
    if not isinstance(wanted, tuple):
        found, wanted = (found,), (wanted,)
    for a, b in zip(found, wanted, strict=True):
        # What is made of Python's numbers alone is of the default dtype.
        tolerance = 1e-8 if a.dtype == np.float64 else 1e-5
        np.testing.assert_allclose(a.numpy(), b, rtol=tolerance, atol=1e-7, err_msg=text)


@pytest.mark.parametrize("seed", range(12))
def test_random_kernels(seed):
    check(seed, (6, 5))


@pytest.mark.parametrize("seed", range(20, 24))
def test_random_kernels_whose_domain_is_divided(seed, monkeypatch):
    monkeypatch.setattr(lowering, "LEAST", 1)
    monkeypatch.setattr(lowering, "MOST_CODE", 1000)
    check(seed, (17, 19))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_random_kernels(seed, monkeypatch):
    check(seed, (6, 5))
    monkeypatch.setattr(lowering, "LEAST", 1)
    monkeypatch.setattr(lowering, "MOST_CODE", 1000)
    check(seed + 1000, (17, 19))
