"""Folds along a row that keep less than their lanes: bools are counted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from test_programs import forget

import lazyt as lt
from lazyt import planning

SHAPES = [(1,), (15,), (16,), (17,), (3, 33), (5, 0), (40, 3), (7, 3, 700), (1 << 17,), (2, 70001)]


@pytest.fixture(autouse=True)
def _planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    forget()
    monkeypatch.setitem(planning.settings, "tiers", False)
    yield
    forget()


@pytest.mark.parametrize("shape", SHAPES)
def test_bools_are_counted(shape: tuple[int, ...], threads: int) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype("f4")
    b, t = lt.asarray(x > 0.3), lt.asarray(x)
    for axis in (None, 0, -1):
        np.testing.assert_array_equal(lt.count_nonzero(b, axis=axis).numpy(), np.count_nonzero(x > 0.3, axis=axis))
        np.testing.assert_array_equal(lt.sum(b, axis=axis).numpy(), np.sum(x > 0.3, axis=axis))
        np.testing.assert_array_equal(lt.sum(b, axis=axis, dtype="uint8").numpy(), np.sum(x > 0.3, axis, "uint8"))
        # Beside other folds of the row, and spread over it again.
        n, s, m = lt.count_nonzero(t > 0, axis=axis), lt.sum(t, axis=axis), lt.any(t > 2, axis=axis)
        lt.sync()
        np.testing.assert_array_equal(n.numpy(), np.count_nonzero(x > 0, axis=axis))
        np.testing.assert_allclose(s.numpy(), x.sum(axis=axis), rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(m.numpy(), (x > 2).any(axis=axis))
        spread = lt.count_nonzero(t > 0, axis=axis, keepdims=True) - b
        np.testing.assert_array_equal(spread.numpy(), np.count_nonzero(x > 0, axis=axis, keepdims=True) - (x > 0.3))
