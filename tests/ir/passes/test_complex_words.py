"""Complex arrays that are only moved go by whole words (complex_words.py): every bit as NumPy's."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import IndexOutOfRange
from lazyt.runtime import plan_cache
from tests.support.plans import forget


@pytest.fixture(autouse=True)
def _planned(monkeypatch: pytest.MonkeyPatch) -> Any:
    forget()
    monkeypatch.setitem(plan_cache.settings, "tiers", False)
    monkeypatch.setitem(plan_cache.settings, "verify", True)
    yield
    forget()


def numbers(shape: tuple[int, ...], dtype: str) -> Any:
    """Random bits, so NaNs of every payload are among them, and zeros of both signs."""
    size = np.dtype(dtype).itemsize
    x = np.random.default_rng(5).integers(0, 256, (*shape, size), dtype=np.uint8).view(dtype)[..., 0]
    x.flat[::5] = complex(-0.0, 0.0)
    x.flat[1::5] = complex(1.5, -0.0)
    return x


def agree(found: Any, want: Any) -> None:
    """Equal in all bits."""
    for got, expected in zip(found, want, strict=True) if isinstance(found, list) else [(found, want)]:
        assert got.shape == expected.shape
        assert got.numpy().dtype == expected.dtype
        assert got.numpy().tobytes() == np.ascontiguousarray(expected).tobytes()


MOVES = {
    "transposed": lambda x, i, m: m.permute_dims(x, (1, 0)),
    "turned": lambda x, i, m: m.permute_dims(m.reshape(x, (2, 3, -1)), (2, 0, 1)),
    "mixed": lambda x, i, m: m.reshape(m.permute_dims(m.reshape(x, (2, 3, -1)), (1, 0, 2)), (2, -1)),
    "back": lambda x, i, m: m.flip(x),
    "rows back": lambda x, i, m: m.flip(x, axis=0),
    "every third": lambda x, i, m: m.concatenate([x[:, ::3], x[:, 1::3]], axis=1),
    "rolled": lambda x, i, m: m.roll(x, 2, axis=1),
    "rolled twice": lambda x, i, m: m.roll(x, (2, -1, 1), axis=(1, 0, 1)),
    "rolled along four": lambda x, i, m: m.roll(m.reshape(x, (2, 3, 2, -1)), (1, 2, -1, 3), axis=(3, 1, 0, 2)),
    "shifted": lambda x, i, m: m.fft.fftshift(x),
    "stacked": lambda x, i, m: m.stack([x, x[::-1]], axis=1),
    "in parts": lambda x, i, m: m.concatenate([m.concatenate([x, x[:2]]), x.T[:, :4].T, x]),
    "tiled": lambda x, i, m: m.tile(x[:, :2], (2, 3)),
    "repeated": lambda x, i, m: m.repeat(x, 3, axis=1),
    "padded": lambda x, i, m: m.pad(x, ((1, 2), (0, 3))),
    "padded and rolled": lambda x, i, m: m.roll(m.pad(x[1:], 1), 3, axis=0),
    "padded by something": lambda x, i, m: m.pad(x, 1, constant_values=2 + 3j),
    "padded by less than zero": lambda x, i, m: m.pad(x, 1, constant_values=complex(-0.0, 0.0)),
    "rows": lambda x, i, m: m.take(x, i, axis=0),
    "columns": lambda x, i, m: m.take(x, i, axis=1),
    "rows of a turn": lambda x, i, m: m.take(x.T, i, axis=0)[:, ::-1],
    "rows of rows": lambda x, i, m: m.take(m.take(x, i, axis=0), i[:2], axis=0),
    "rows found": lambda x, i, m: m.take(x, m.argmax(m.reshape(i, (1, -1)), axis=1), axis=0),
    "points": lambda x, i, m: x[i, i],
    "padded points": lambda x, i, m: m.pad(x[i, i], (2, 1)),
    # By parts too.
    "and equal": lambda x, i, m: [x.T, x[:1, :1] == x.T],
    "beside": lambda x, i, m: [m.flip(x), m.isnan(x), x.real],
    "rows and parts": lambda x, i, m: [y := m.take(x, i, axis=0), y.imag],
    "pairs beside": lambda x, i, m: [m.flip(x, axis=1), m.stack([x.real, x.imag], axis=-1)],
    "a part of a whole": lambda x, i, m: m.concatenate([x, x[:2]])[1:].imag,
    "negative": lambda x, i, m: m.where(m.isnan(x[::-1]), 2j, -m.flip(x, axis=0)) == -x,
}


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("move", MOVES)
def test_what_moves_keeps_all_its_bits(move: str, dtype: str, fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(plan_cache.settings, "fuse", fused)
    # The second one is another size of the same plan, the third takes the plan again.
    for columns in (8, 32, 32):
        x, i = numbers((6, columns), dtype), np.array([3, 0, 3, 5, 1])
        agree(MOVES[move](lt.asarray(x), lt.asarray(i), lt), MOVES[move](x, i, np))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_many_elements_move_whole(dtype: str, threads: int) -> None:
    x, i = numbers((300, 301), dtype), np.random.default_rng(1).integers(0, 300, 77)
    for move in ("transposed", "back", "shifted", "rolled twice", "padded", "rows", "columns", "points", "every third"):
        agree(MOVES[move](lt.asarray(x), lt.asarray(i), lt), MOVES[move](x, i, np))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_what_nobody_else_holds_may_be_written_over(dtype: str) -> None:
    x = numbers((48, 48), dtype)
    a = lt.asarray(x.copy())
    for step in (
        lambda m, z: m.permute_dims(z, (1, 0)),
        lambda m, z: m.flip(z),
        lambda m, z: m.roll(z, (1, 2), (0, 1)),
    ):
        for _ in range(3):
            a, x = step(lt, a), step(np, x)
            lt.sync()
            agree(a, x)
    a[1:] = lt.flip(a[:-1], axis=0)
    x[1:] = np.flip(x[:-1], axis=0).copy()
    agree(a, x)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_calls_read_what_was_moved(dtype: str) -> None:
    rng = np.random.default_rng(2)
    x, y = ((rng.standard_normal((6, 8)) + 1j * rng.standard_normal((6, 8))).astype(dtype) for _ in range(2))
    a, b = lt.asarray(x), lt.asarray(y)
    np.testing.assert_allclose((a.T @ b).numpy(), x.T @ y, rtol=1e-5)
    np.testing.assert_allclose((a[:, ::-1] @ b[::2].T[:, :3]).numpy(), x[:, ::-1] @ y[::2].T[:, :3], rtol=1e-5)
    np.testing.assert_allclose(lt.fft.fft(lt.flip(a.T)).numpy(), np.fft.fft(np.flip(x.T)), rtol=1e-4, atol=1e-5)


def test_a_table_is_read_where_it_lies() -> None:
    a, i = lt.ones((40, 50), dtype="complex64") + 1, lt.asarray(np.arange(7))
    lt.sync()
    for once in (lambda: lt.take(a, i, axis=0), lambda: lt.fft.fftshift(lt.flip(a))):
        found = once()
        lt.sync()
        launches = 1 if found.shape == (7, 50) else 4
        assert lt.last_sync().launches == launches, "nothing is taken apart, nothing stored on the way"


def test_parts_are_read_where_they_lie_under_another_shape() -> None:
    x = np.random.default_rng(3).integers(-9, 9, (60, 50)) * (1 + 2j)
    a, b = lt.asarray(x.astype("complex128")), lt.asarray(x.reshape(-1) * 1j)
    lt.sync()
    for once, want in (
        (lambda: lt.dot(lt.reshape(a, (-1,)), b), np.dot(x.reshape(-1), x.reshape(-1) * 1j)),
        (lambda: lt.sum(lt.reshape(a, (50, 60)), axis=1), x.reshape(50, 60).sum(axis=1)),
        (lambda: lt.sum(lt.reshape(lt.concat([a, a]), (-1, 3)), axis=0), np.concatenate([x, x]).reshape(-1, 3).sum(0)),
    ):
        found = once()
        lt.sync()
        assert lt.last_sync().kernels == (3 if want.shape == (3,) else 1)
        np.testing.assert_array_equal(found.numpy(), want)


def test_an_index_out_of_range_is_told() -> None:
    a, i = lt.ones((4, 5), dtype="complex128"), lt.asarray(np.array([1, 4]))
    with pytest.raises(IndexOutOfRange, match="index 4"):
        lt.take(a, i, axis=0).numpy()


@pytest.mark.parametrize("n", [5, 300])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_rows_of_two_beside_single_elements(n: int, dtype: str) -> None:
    """What is copied by halves joins no kernel whose last axis happens to have two as well."""
    at, a = np.arange(n)[::-1].copy(), (np.arange(1, n + 1) * (1 + 2j)).astype(dtype)
    for _ in range(3):
        z, i = lt.asarray(a), lt.asarray(at)
        s = lt.stack([z, z * 2], axis=1)
        rows, single = s[i], z[i]
        np.testing.assert_array_equal(rows.numpy(), np.stack([a, 2 * a], 1)[at])
        np.testing.assert_array_equal(single.numpy(), a[at])


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_a_copy_beside_arithmetic_on_the_same_array(dtype: str) -> None:
    b = (np.arange(12).reshape(3, 4) * (1 + 2j)).astype(dtype)
    for _ in range(3):
        z = lt.asarray(b)
        f, g = lt.asarray(lt.flip(z, axis=0), copy=True), z + 1
        np.testing.assert_array_equal(f.numpy(), b[::-1])
        np.testing.assert_array_equal(g.numpy(), b + 1)
        c = lt.asarray(z, copy=True)
        c[...] = lt.flip(z, axis=0)
        n = -z
        np.testing.assert_array_equal(n.numpy(), -b)
        np.testing.assert_array_equal(c.numpy(), b[::-1])


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_a_wrong_index_is_that_of_its_own_line(dtype: str) -> None:
    """What is gathered by words is so where it was recorded, not where it is read; others have their values."""
    for _ in range(4):
        x = lt.asarray(np.ones((1, 3), dtype))
        bad = lt.take(x, lt.asarray([0, 1]), axis=0)
        line = inspect.currentframe().f_lineno - 1
        good = x + 1
        assert good.tolist() == [[2, 2, 2]]
        with pytest.raises(lt.IndexOutOfRange, match=rf"test_complex_words.py:{line}; found at the sync"):
            bad.numpy()
        del bad, good


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 1), (1, 2, 2), (3, 2, 2)])
def test_one_kernel_moves_a_number_and_reads_its_parts(shape: tuple[int, int, int], dtype: str) -> None:
    x = numbers(shape, dtype)
    turned = x[::-1].reshape(shape[0], -1)
    for _ in range(3):
        a = lt.asarray(x)
        b = lt.reshape(a, (a.shape[0], a.shape[1] * a.shape[2]))
        a[...] = a[::-1]
        c = lt.roll(b, 2, axis=1)
        lt.sync()
        assert a.numpy().tobytes() == x[::-1].tobytes()
        assert c.numpy().tobytes() == np.roll(turned, 2, axis=1).tobytes()
