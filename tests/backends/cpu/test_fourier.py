"""Fourier transforms whose rows are divided among threads: NumPy's bits, whatever their axes and lengths are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu.library import sorting
from lazyt.runtime import plan_cache

ONE = ["fft", "ifft", "rfft", "irfft"]
SHAPES = [(16,), (5, 16), (16, 5), (3, 7, 10), (0, 8), (1, 30)]


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "GRAIN", 8)
    monkeypatch.setitem(plan_cache.settings, "tiers", False)


def draw(fn: str, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(dtype)
    return x if fn.startswith("rfft") else (x + 1j * rng.standard_normal(shape)).astype(np.result_type(dtype, "c8"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fn", ONE)
def test_one_axis_of_every_length(fn: str, shape: tuple[int, ...], dtype: str, threads: int) -> None:
    x = draw(fn, shape, dtype)
    for axis in range(-len(shape), len(shape)):
        for n in (None, 3, 11, 20):
            if shape[axis] < (2 if n is None else 1):
                continue  # no points
            for norm in ("backward", "ortho", "forward"):
                got = getattr(lt.fft, fn)(lt.asarray(x), n, axis, norm).numpy()
                want = getattr(np.fft, fn)(x, n, axis, norm)
                assert got.dtype == want.dtype
                np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("axes", "s"), [
    (None, None), ((0,), None), ((0, 2), None), ((2, 0), None), ((-1, 1), (4, 9)), ((1, 2, 0), (3, 12, 5)),
    ((1,), (6,)),
])  # fmt: skip
@pytest.mark.parametrize("fn", [f"{fn}n" for fn in ONE])
def test_several_axes(fn: str, axes: Any, s: Any, dtype: str, threads: int) -> None:
    x = draw(fn, (4, 6, 10), dtype)
    got = getattr(lt.fft, fn)(lt.asarray(x), s, axes, norm="ortho").numpy()
    want = getattr(np.fft, fn)(x, s, axes, norm="ortho")
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_a_view_and_what_is_computed_of_the_result(threads: int) -> None:
    x = np.random.default_rng(1).standard_normal((6, 8)).astype("f4")
    y = lt.fft.rfft(lt.asarray(x).T[::-1] * 2, axis=0)
    np.testing.assert_allclose((y * 0.5).numpy(), np.fft.rfft(x.T[::-1], axis=0), rtol=1e-6)
