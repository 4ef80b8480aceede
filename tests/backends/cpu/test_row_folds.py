"""Folds along a row that keep less than their lanes: bools are counted, extremes of numbers tell of NaN."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import lazyt as lt

pytestmark = pytest.mark.usefixtures("planned")

SHAPES = [(1,), (15,), (16,), (17,), (3, 33), (5, 0), (40, 3), (7, 3, 700), (1 << 17,), (2, 70001)]


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


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float32", "float64"])
@pytest.mark.parametrize("shape", [s for s in SHAPES if 0 not in s])
def test_extremes_of_numbers(shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.choice(np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5]), shape)
    rows = x.reshape(-1, shape[-1])
    # Rows of nothing but NaN, and of nothing else but what NaN is replaced by.
    rows[0], rows[1:2, :-1], rows[2:3, 1:] = np.nan, np.nan, -np.inf
    x = x.astype(dtype)
    for lowest, name in ((-np.inf, "max"), (np.inf, "min")):
        t = lt.asarray(x)
        filled = lt.where(lt.isnan(t), lowest, t)
        lt.sync()
        for axis in (None, -1, 0):
            found, extreme = getattr(lt, f"nan{name}")(t, axis=axis), getattr(lt, name)(filled, axis=axis)
            alone = getattr(lt, name)(lt.where(lt.isnan(t), lowest, t), axis=axis)
            nothing, size = lt.all(lt.isnan(t), axis=axis), lt.max(t, axis=axis)
            lt.sync()
            assert alone.numpy().tobytes() == extreme.numpy().tobytes()
            np.testing.assert_array_equal(nothing.numpy(), np.isnan(x).all(axis=axis))
            wide = x.astype("f8")  # of which NumPy's tests know what is NaN
            np.testing.assert_array_equal(size.numpy().astype("f8"), wide.max(axis=axis))
            want = np.where(np.isnan(wide).all(axis=axis), np.nan, extreme.numpy().astype("f8"))
            got = found.numpy().astype("f8")
            np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(np.signbit(got[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))


def test_nan_may_be_replaced_by_something_else() -> None:
    x = lt.asarray(np.array([[np.nan, -3.0], [np.nan, np.nan]], "f4"))
    assert lt.max(lt.where(lt.isnan(x), -1.0, x), axis=1).tolist() == [-1.0, -1.0]
    assert lt.max(lt.where(lt.isnan(x), float("inf"), x), axis=1).tolist() == [float("inf")] * 2
    assert lt.max(lt.where(lt.isnan(x * 0), float("-inf"), x), axis=1).tolist()[0] == -3.0
