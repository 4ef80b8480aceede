"""Searches, sets and counts whose shape is data; the functions of fft and linalg that are made of others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import DTypeError, ShapeError
from lazyt.functions import fft, linalg, searching, sets
from lazyt.ir import dtypes

X = np.array([[3, 0, 1], [0, 1, 3]])


def same(got: Any, want: Any) -> None:
    if isinstance(want, tuple):
        assert len(got) == len(want)
        for x, y in zip(got, want, strict=True):
            same(x, y)
        return
    want = np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got.numpy().astype("c16"), want.astype("c16"), rtol=1e-6)


def test_positions() -> None:
    x = lt.asarray(X)
    same(searching.nonzero(x), np.nonzero(X))
    same(searching.argwhere(x), np.argwhere(X))
    same(searching.flatnonzero(x), np.flatnonzero(X))
    with pytest.raises(ShapeError, match="nonzero: at least 1 dimension is required"):
        searching.nonzero(lt.asarray(1))
    assert searching.nonzero(lt.asarray(np.zeros((0, 2))))[0].shape == (0,)


def test_counts() -> None:
    v, w = X.ravel(), np.arange(6) / 2
    same(searching.bincount(lt.asarray(v)), np.bincount(v))
    same(searching.bincount(lt.asarray(v), lt.asarray(w), 9), np.bincount(v, w, 9))
    same(lt.histogram(lt.asarray(w), 4), np.histogram(w, 4))
    same(lt.histogram(lt.asarray(w), lt.asarray([0.0, 1.0, 3.0])), np.histogram(w, np.array([0, 1, 3], "f4")))
    same(searching.digitize(lt.asarray(w), lt.asarray([0.5, 1.0])), np.digitize(w, [0.5, 1.0]))
    with pytest.raises(ShapeError, match="bincount: a vector of numbers that are at least 0"):
        searching.bincount(lt.asarray([-1]))


def test_sets() -> None:
    x = lt.asarray(X)
    values, index, inverse, counts = np.unique(X, True, True, True)
    same(sets.unique_all(x), (values, index, inverse, counts))
    same(sets.unique_counts(x), (values, counts))
    same(sets.unique_inverse(x), (values, inverse))
    same(sets.unique_values(x), values)
    same(sets.unique(x, return_counts=True), (values, counts))
    same(sets.unique(x, axis=0), np.unique(X, axis=0))
    same(sets.union1d(x, lt.asarray([7])), np.union1d(X, [7]))
    same(sets.intersect1d(x, lt.asarray([3, 7])), np.array([3]))
    same(sets.setdiff1d(x, lt.asarray([3, 7])), np.array([0, 1]))
    nan = lt.asarray([np.nan, 1.0, np.nan])
    assert sets.unique_values(nan).shape == (3,) and sets.unique(nan).shape == (2,)
    half = sets.unique_values(lt.asarray([2.0, 1.0, 2.0], dtype="bfloat16"))
    assert half.dtype == dtypes.bfloat16 and half.astype("float32").tolist() == [1.0, 2.0]


def test_frequencies() -> None:
    for n in (1, 4, 5):
        same(fft.fftfreq(n, d=0.5), np.fft.fftfreq(n, 0.5).astype("f4"))
        same(fft.rfftfreq(n, d=0.5), np.fft.rfftfreq(n, 0.5).astype("f4"))
        v = np.arange(2 * n).reshape(2, n)
        same(fft.fftshift(lt.asarray(v)), np.fft.fftshift(v))
        same(fft.ifftshift(lt.asarray(v), axes=1), np.fft.ifftshift(v, axes=1))
    assert fft.fftfreq(3, dtype="float64").dtype == np.float64
    with pytest.raises(DTypeError, match=r"fft.fftfreq: a real floating dtype is required"):
        fft.fftfreq(3, dtype="int64")
    with pytest.raises(ShapeError, match=r"fft.rfftfreq: at least one point"):
        fft.rfftfreq(0)


def test_norms_and_products() -> None:
    a = np.random.default_rng(0).standard_normal((3, 4)).astype("f4")
    x = lt.asarray(a)
    for args in ({}, {"ord": 1}, {"ord": "nuc"}, {"axis": 1}, {"axis": 0, "ord": np.inf}, {"axis": (1, 0), "ord": 1}):
        for keep in (False, True):
            same(linalg.norm(x, keepdims=keep, **args), np.asarray(np.linalg.norm(a, keepdims=keep, **args)))
    same(linalg.cond(x), np.asarray(np.linalg.cond(a)))
    for m in (np.zeros((2, 2)), np.array([[np.inf]]), np.zeros((3, 2, 2)), np.diag([1.0, 0.0])):
        same(linalg.cond(lt.asarray(m)), np.asarray(np.linalg.cond(m)))
    chain = [a, a.T, a, a[0]]
    same(linalg.multi_dot([lt.asarray(m) for m in chain]), np.linalg.multi_dot(chain))
    same(linalg.lstsq(x.mT, lt.asarray(a[0]))[0], np.linalg.lstsq(a.T, a[0], rcond=None)[0])
    same(linalg.outer(x[0], x[1]), np.outer(a[0], a[1]))
    same(linalg.diagonal(x, offset=1), np.linalg.diagonal(a, offset=1))
    same(linalg.trace(x), np.asarray(np.linalg.trace(a)))
    with pytest.raises(ShapeError, match=r"linalg.outer: vectors are required"):
        linalg.outer(x, x)
    with pytest.raises(ShapeError, match=r"linalg.norm: one axis or two"):
        linalg.norm(lt.zeros((2, 2, 2)), ord=2)


def test_named_results() -> None:
    x = lt.asarray([[2.0, 1.0], [1.0, 3.0]])
    u, s, vh = linalg.svd(x)
    np.testing.assert_allclose((u * s @ vh).numpy(), x.numpy(), rtol=1e-5)
    q = linalg.qr(x)
    np.testing.assert_allclose((q.Q @ q.R).numpy(), x.numpy(), rtol=1e-5)
    e = linalg.eigh(x)
    np.testing.assert_allclose((e.eigenvectors * e.eigenvalues @ e.eigenvectors.mT).numpy(), x.numpy(), rtol=1e-5)
    assert linalg.slogdet(x).sign.item() == 1.0
    assert linalg.eig(x).eigenvalues.dtype == np.complex64


def test_singular_matrices_are_refused_at_the_sync() -> None:
    y = linalg.inv(lt.zeros((2, 2)))
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        y.numpy()


def test_what_is_found_in_values_that_are_here_records_nothing() -> None:
    x, c, at = lt.asarray(X), lt.asarray(X > 0), lt.asarray([1, 4])
    lt.sync()
    found = lt.extract(c, x), lt.compress([True, False, True], x), lt.compress([False, True], x, axis=0)
    left = lt.delete(x, at), lt.delete(x, [0], axis=1), lt.delete(x, slice(0, 2))
    assert not lt.pending().lines
    same(found, (X[X > 0], X.ravel()[[0, 2]], X[1:]))
    same(left, (np.delete(X, [1, 4]), X[:, 1:], X.ravel()[2:]))
    # What is not, is deferred once it is known which they are.
    y = x + 1
    same(lt.extract(c, y), (X + 1)[X > 0])
    same(lt.delete(x + 1, 2), np.delete(X + 1, 2))
    same(lt.delete(x + 1, -1, axis=1), np.delete(X + 1, -1, axis=1))
