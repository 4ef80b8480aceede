"""Winograd's algorithm as NumPy computes it: it is the convolution, and how much it rounds."""

from __future__ import annotations

import numpy as np
import pytest

from lazyt.ir import winograd
from tests.support.arrays import normal


def direct(x, w, padding):
    """The convolution in float64, an element of the window after another."""
    x = np.pad(x.astype("f8"), ((0, 0), (0, 0), *((p, p) for p in padding)))
    height, width = (d - 2 for d in x.shape[2:])
    parts = ((x[:, :, i : i + height, j : j + width], w[:, :, i, j]) for i, j in np.ndindex(3, 3))
    return sum(np.einsum("nchw,oc->nohw", part, each.astype("f8")) for part, each in parts)


def by_calls(x, w, padding):
    y = direct(x[:, :1], w[:1, :1], padding)
    extents = y.shape[2:]
    counts = tuple(-(-d // winograd.PLACES) for d in extents)
    return winograd.convolve(x, winograd.filters(w), padding, counts, (len(w), *extents))


@pytest.mark.parametrize("padding", [(0, 0), (1, 1), (2, 0)])
@pytest.mark.parametrize("extents", [(3, 3), (4, 6), (9, 13)])
def test_it_is_the_convolution(extents, padding):
    x, w = normal(2, 5, *extents, dtype="float64"), normal(70, 5, 3, 3, seed=1, dtype="float64")
    np.testing.assert_allclose(by_calls(x, w, padding), direct(x, w, padding), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("extents", [(3, 3), (6, 11)])
def test_the_derivative_by_the_filters(extents):
    x, y = normal(2, 5, *extents, dtype="float64"), normal(2, 7, *extents, seed=1, dtype="float64")
    counts = tuple(-(-d // winograd.PLACES) for d in extents)
    read = winograd.tiles(x, "image", (1, 1), counts)
    slopes = winograd.tiles(y, "slope", (0, 0), counts)
    sums = read.swapaxes(1, 2) @ slopes
    np.testing.assert_allclose(winograd.filter_sums(x, y, (1, 1), counts).sum(axis=0), sums, rtol=1e-10, atol=1e-10)
    found = winograd.filter_slope(sums)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    for i, j in np.ndindex(3, 3):
        part = padded[:, :, i : i + extents[0], j : j + extents[1]]
        np.testing.assert_allclose(found[:, i, j], np.einsum("nchw,nohw->co", part, y), rtol=1e-10, atol=1e-10)


def test_how_much_it_rounds():
    """Five times what a convolution in float32 does: docs/accuracy.md says so."""
    x, w = normal(8, 256, 12, 12), normal(32, 256, 3, 3, seed=1)
    want = direct(x, w, (1, 1))
    scale = np.sqrt((want**2).mean())
    error = np.sqrt(((by_calls(x, w, (1, 1)) - want) ** 2).mean()) / scale
    assert 5e-7 < error < 2.5e-6


@pytest.mark.parametrize("points", [(0.0, 1.0, -1.0, 2.0, -2.0), (0.0, 1.0, -1.0, 0.5, -0.5)])
def test_usual_points_round_more(points, monkeypatch):
    x, w = normal(4, 64, 12, 12), normal(16, 64, 3, 3, seed=1)
    want = direct(x, w, (1, 1))
    errors = [np.abs(by_calls(x, w, (1, 1)) - want).mean()]
    monkeypatch.setattr(winograd, "POINTS", points)
    a, g = winograd._evaluated(winograd.PLACES), winograd._evaluated(winograd.WINDOW)
    g = tuple(tuple(v / s for v in row) for row, s in zip(g, winograd._scales(), strict=True))
    monkeypatch.setattr(winograd, "G", g)
    monkeypatch.setitem(winograd.READ, "image", winograd._interpolated())
    monkeypatch.setitem(winograd.WRITTEN, "image", winograd._transposed(a))
    errors.append(np.abs(by_calls(x, w, (1, 1)) - want).mean())
    assert errors[0] < errors[1] < 1e-3
