"""Concatenations: parts of parts go straight where they belong, and complex values whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.runtime import plan_cache

pytestmark = pytest.mark.usefixtures("planned")


def _kept(a: Any, b: Any, m: Any) -> Any:
    c = m.concatenate([a * 2, b])
    return [c, m.concatenate([c, c + 1], axis=1)]


PROGRAMS = {
    "block": lambda a, b, m: m.block([[a, b], [b, a]]),
    "three deep": lambda a, b, m: m.concatenate(
        [m.concatenate([m.concatenate([a, b]), a]), m.concatenate([a, a, b])], axis=1
    ),
    "twice in one": lambda a, b, m: m.concatenate([m.concatenate([a, b])] * 2, axis=1),
    "kept": _kept,
    "stacked": lambda a, b, m: m.stack([m.concatenate([a, b]), m.concatenate([b, a])]),
    "flat": lambda a, b, m: m.concatenate([m.reshape(m.concatenate([a, b]), (-1,)), m.reshape(a, (-1,))]),
    "products": lambda a, b, m: m.concatenate(
        [m.concatenate([a @ b.T, a[:1, :5]]), m.concatenate([a[:, :5], b[:1, :5]])], axis=1
    ),
    "roll": lambda a, b, m: m.roll(a, (1, 2), axis=(0, 1)),
    "roll, an axis twice": lambda a, b, m: m.roll(a, (2, -1, 1), axis=(1, 0, 1)),
    "roll, four axes": lambda a, b, m: m.roll(
        m.stack([m.stack([a, b]), m.stack([b, a])]), (1, 2, -1, 3), axis=(3, 1, 0, 2)
    ),
    "shift": lambda a, b, m: m.fft.fftshift(a),
    "pad": lambda a, b, m: m.pad(a, 2, mode="reflect"),
    "read again": lambda a, b, m: m.sum(m.concatenate([a, b], axis=1) * m.concatenate([b, a], axis=1), axis=1),
}


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128", "int64"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_concatenations_are_those_of_numpy(
    program: str, dtype: str, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(plan_cache.settings, "fuse", fused)
    rng = np.random.default_rng(0)
    # Small whole numbers: every sum is exact, so bits can be compared.
    a, b = ((rng.integers(-9, 9, (5, 7)) + (1j if dtype[0] == "c" else 0)).astype(dtype) for _ in range(2))
    want = PROGRAMS[program](a, b, np)
    found = PROGRAMS[program](lt.asarray(a), lt.asarray(b), lt)
    lt.sync()
    both = zip(found, want, strict=True) if isinstance(found, list) else [(found, want)]
    for got, expected in both:
        np.testing.assert_array_equal(got.numpy(), expected)


def test_a_block_matrix_is_written_once() -> None:
    x = lt.ones((30, 40))
    lt.sync()
    lt.block([[x, x], [x, x]]).numpy()
    kernels = lt.last_sync().plan.schedule.kernels
    targets = {a.buffer for c in kernels for a, own in zip(c.accesses, c.kernel.accesses, strict=True) if own.writes}
    assert len(targets) == 1


def test_a_complex_roll_has_no_planes() -> None:
    x = lt.asarray(np.arange(40, dtype=np.complex64).reshape(4, 10))
    lt.roll(x, 3, axis=1).numpy()
    assert len(lt.last_sync().plan.schedule.kernels) == 2


def test_a_roll_along_several_axes_moves_each_element_once() -> None:
    a = lt.zeros((6, 7, 8)) + 1
    lt.sync()
    b = lt.roll(a, (1, 2, 3), axis=(0, 1, 2))
    lt.sync()
    assert lt.last_sync().launches == 8, "one for each part, and nothing on the way"
    assert b.shape == a.shape


@pytest.mark.parametrize("fused", [True, False])
def test_what_surrounds_a_padded_array_may_lie_in_memory(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of a complex number do, where each operation is a kernel; they are read where the array is not."""
    monkeypatch.setitem(plan_cache.settings, "fuse", fused)
    x = np.ones((5, 7), np.complex64)
    twice = lt.pad(lt.pad(lt.asarray(x), 1, constant_values=2 + 3j), (2, 0), constant_values=5 - 1j)
    want = np.pad(np.pad(x, 1, constant_values=2 + 3j), (2, 0), constant_values=5 - 1j)
    np.testing.assert_array_equal(twice.numpy(), want)
