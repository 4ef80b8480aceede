"""Arrays whose samples have different bits: the bits are the allocator's, and estimates are unbiased."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt.ir import dtypes
from lazyt.ir.bit_allocation import allocate
from lazyt.ir.builder import Builder
from lazyt.ir.graph import Node
from lazyt.ir.mixed_bits import allocated, mixed, restored
from lazyt.ops.definition import OpDef
from lazyt.tracing.record import record
from tests.support.lowered import lowered_twice


def _rounded(b: Builder, x: Node, weight: Node, rows: int) -> tuple[Node, ...]:
    """The estimate of x, and what is stored of it."""
    seed, counter = (b.constant(n, dtypes.uint64) for n in (7, 3))
    p = mixed(b, x, rows, weight, (seed, counter, 1))
    return restored(b, p), *p.stored


ROUNDED, ALLOCATED = OpDef("rounded", _rounded), OpDef("allocated", allocated)
DRAWS = 1000
ONES = np.ones(4, np.float32)


def _values(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("budget", [5, 6, 7, 10, 15, 20, 40])
def test_bits_are_those_of_the_allocator(budget: int):
    c = np.array([1, 4, 16, 64, 256], np.float32)
    assert [*record(ALLOCATED, (lt.asarray(c),), (budget,)).numpy()] == allocate([*c], budget)


@pytest.mark.parametrize("value", [0.0, 3.0, np.nan])
def test_equal_samples_get_equal_bits(value: float):
    found = record(ALLOCATED, (lt.full((7,), value, dtype="float32"),), (14,)).numpy()
    assert [*found] == [2] * 7


def test_bits_of_random_sensitivities():
    c = (np.random.default_rng(0).exponential(size=64) ** 3).astype(np.float32)
    assert [*record(ALLOCATED, (lt.asarray(c),), (128,)).numpy()] == allocate([*c], 128)


@pytest.mark.parametrize("shape", [(4, 256), (4, 3, 100), (4, 512), (4, 77)])
def test_plans_and_the_interpreter_pack_the_same_bits(shape: tuple[int, ...]):
    x = _values(shape) * np.array([1, 4, 0.1, 100], np.float32).reshape(-1, *[1] * (len(shape) - 1))
    made = [np.asarray(t.numpy()) for t in record(ROUNDED, (lt.asarray(x), lt.asarray(ONES)), (10,))]
    for a, b in zip(made, lowered_twice(_rounded, (x, ONES), (10,), None, None), strict=True):
        assert a.tobytes() == b.tobytes()
    estimate, rows, low, step, bits, first = made
    columns = -(-x[0].size // 8) if x[0].size < 256 else -(-x[0].size // 256) * 32
    assert rows.dtype == np.uint8 and rows.shape == (10, columns)
    assert bits.sum() == 10 and bits[3] > bits[2] and [*first] == [*np.cumsum(bits) - bits]
    # Of each element less than one step.
    groups = low.size // 4
    error = np.abs(estimate - x).reshape(4, -1).max(1)
    np.testing.assert_array_less(error, np.asarray(step, np.float32).reshape(4, groups).max(1) * 1.001)


def test_estimates_are_unbiased_and_have_the_variance_of_rounding_at_random():
    x = _values((3, 256)) * np.array([[1], [6], [40]], np.float32)
    many = lt.asarray(np.tile(x, (DRAWS, 1)))
    found, _, low, step, bits, _ = (
        np.asarray(t, np.float64) for t in record(ROUNDED, (many, lt.ones(3 * DRAWS)), (9 * DRAWS,))
    )
    # Each of the three samples has the same bits in all draws.
    assert [*bits] == [*bits[:3]] * DRAWS and bits[0] < bits[1] < bits[2]
    for k in range(3):
        v, s, b = found[k::3], step[k], bits[k]
        p = (x[k].astype(np.float64) - low[k]) / s % 1
        expected = s**2 * p * (1 - p)
        assert p.max() <= 2**b - 1
        error = v.mean(0) - x[k]
        np.testing.assert_array_less(np.abs(error), 4.5 * np.sqrt(expected / DRAWS) + s * 2.0**-15)
        np.testing.assert_allclose(v.var(0).mean(), expected.mean(), rtol=0.05)
