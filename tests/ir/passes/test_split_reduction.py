"""Reductions of few long rows are divided among threads: places of extreme elements too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu.flags import switches
from lazyt.runtime import plan_cache
from tests.support.plans import forget


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(plan_cache.settings, "tiers", False)
    before = lt.get_num_threads()
    lt.set_num_threads(3)
    forget()
    yield
    forget()
    lt.set_num_threads(before)


def _values(dtype: str, kind: str, n: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    x = rng.standard_normal(n) * 50
    match kind:
        case "equal":
            x[:] = 3
        case "nan":
            x[rng.integers(0, n, 3)] = np.nan
        case "zeros":
            x = np.abs(x) + 1
            x[n // 2], x[n // 2 + 70000] = 0.0, -0.0
        case "last":
            x[-1] = 1e4
    with np.errstate(all="ignore"):
        return x.astype(dtype)


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("kind", ["normal", "equal", "nan", "zeros", "last"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8", "bool"])
def test_places_are_those_of_the_first_extreme_element(
    dtype: str, kind: str, split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(switches, "split", split)
    for rows, n in ((1, 1 << 18), (1, 300_001), (3, 131_072), (2, 140_000)):
        x = _values(dtype, kind, rows * n).reshape(rows, n)
        t = lt.asarray(x)
        found = [lt.argmax(t, axis=1), lt.argmin(t, axis=1), lt.max(t, axis=1)]
        lt.sync()
        for got, f in zip(found, (np.argmax, np.argmin, np.max), strict=True):
            np.testing.assert_array_equal(got.numpy(), f(x, axis=1))


def test_a_square_is_divided_by_its_rows() -> None:
    x = lt.asarray(_values("float32", "normal", 1_000_000).reshape(1000, 1000))
    found = lt.sum(x), lt.max(x), lt.prod(1 + x * 1e-4)
    lt.sync()
    forget()
    lt.set_num_threads(1)
    assert [float(t) for t in found] == [float(t) for t in (lt.sum(x), lt.max(x), lt.prod(1 + x * 1e-4))]
