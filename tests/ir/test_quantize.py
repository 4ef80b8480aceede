"""Arrays in few bits: unbiased, of the variance that rounding at random has, and masks as they were."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt.ir import dtypes
from lazyt.ir.builder import Builder
from lazyt.ir.graph import Node
from lazyt.ir.quantize import Packed, exactly, quantized, unpacked
from lazyt.ops.definition import OpDef
from lazyt.tracing.record import record
from tests.support.lowered import lowered_twice

DRAWS = 4000


def _estimated(b: Builder, x: Node, bits: int) -> tuple[Node, ...]:
    """The estimate of x, and the low end and the step of each group."""
    seed, counter = (b.constant(n, dtypes.uint64) for n in (7, 3))
    p = quantized(b, x, bits, seed, counter, 1)
    assert p.low is not None and p.step is not None
    return unpacked(b, p), p.low, p.step


def _packed(b: Builder, x: Node, bits: int) -> tuple[Node, ...]:
    seed, counter = (b.constant(n, dtypes.uint64) for n in (7, 3))
    return quantized(b, x, bits, seed, counter, 1).stored


ESTIMATED, PACKED = OpDef("estimated", _estimated), OpDef("packed", _packed)
EXACT = OpDef("exact", lambda b, x, bits: unpacked(b, exactly(b, x, bits)))


def _values(shape: tuple[int, ...], mean: float = 0.0) -> np.ndarray:
    return (np.random.default_rng(5).standard_normal(shape) + mean).astype(np.float32)


@pytest.mark.parametrize(("bits", "mean"), [(1, 0), (2, 0), (4, 3), (8, 3), (8, -100)])
def test_estimates_are_unbiased_and_have_the_variance_of_rounding_at_random(bits: int, mean: float):
    x = _values((256,), mean)
    found, low, step = (
        np.asarray(t, np.float64) for t in record(ESTIMATED, (lt.asarray(np.tile(x, (DRAWS, 1))),), (bits,))
    )
    # All draws share the ends of their group: the codes are what differs.
    (low,), (step,) = set(low), set(step)
    assert low <= x.min() and x.max() <= low + step * (2**bits - 1) * (1 + 1e-6)
    p = (x.astype(np.float64) - low) / step % 1
    expected = step**2 * p * (1 - p)
    error = found.mean(0) - x
    np.testing.assert_array_less(np.abs(error), 4.5 * np.sqrt(expected / DRAWS) + step * 2.0**-15)
    # The ends themselves: their average over the group too.
    assert abs(error.mean()) < 4.5 * np.sqrt(expected.mean() / DRAWS / 256) + step * 2.0**-16
    np.testing.assert_allclose(found.var(0).mean(), expected.mean(), rtol=0.05)


def test_two_bits_of_normal_numbers_have_the_variance_that_theory_says():
    x = _values((4096, 256))
    found = record(ESTIMATED, (lt.asarray(x),), (2,))[0].numpy()
    assert np.var(found - x) == pytest.approx(0.600, rel=0.05)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("shape", [(2, 256), (3, 5, 7), (300,)])
def test_plans_and_the_interpreter_pack_the_same_bits(bits: int, shape: tuple[int, ...]):
    x = _values(shape)
    made = [np.asarray(t.numpy()) for t in record(PACKED, (lt.asarray(x),), (bits,))]
    for a, b in zip(made, lowered_twice(_packed, (x,), (bits,), None, None), strict=True):
        assert a.tobytes() == b.tobytes()


def test_groups_without_a_range_and_values_at_its_ends_are_as_they_were():
    x = np.zeros((4, 256), np.float32)
    x[1] = 3
    x[2, ::2] = 96
    x[3] = -1e-30
    found = record(ESTIMATED, (lt.asarray(x),), (2,))[0].numpy()
    np.testing.assert_allclose(found, x, rtol=0, atol=1e-29)


def test_a_group_with_a_nan_is_nan_and_its_neighbour_is_not():
    x = _values((2, 256))
    x[0, 3] = np.nan
    found = record(ESTIMATED, (lt.asarray(x),), (2,))[0].numpy()
    assert np.isnan(found[0]).all() and not np.isnan(found[1]).any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes_are_estimated_in_their_dtype(dtype: str):
    x = lt.asarray(_values((8, 256))).astype(dtype)
    found = record(ESTIMATED, (x,), (8,))[0]
    assert str(found.dtype) == dtype
    np.testing.assert_allclose(found.astype("float64").numpy(), x.astype("float64").numpy(), atol=0.06)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("shape", [(4, 256), (3, 100)])
def test_integers_are_packed_exactly(bits: int, shape: tuple[int, ...]):
    x = np.random.default_rng(0).integers(0, 1 << bits, shape).astype(np.int32)
    np.testing.assert_array_equal(record(EXACT, (lt.asarray(x),), (bits,)).numpy(), x)
    np.testing.assert_array_equal(
        lowered_twice(lambda b, x, n: unpacked(b, exactly(b, x, n)), (x,), (bits,), None, None)[0], x
    )


def test_booleans_are_packed_exactly():
    x = np.random.default_rng(0).random((5, 77)) < 0.3
    np.testing.assert_array_equal(record(EXACT, (lt.asarray(x),), (1,)).numpy(), x)


def test_what_is_stored_of_an_array():
    b = Builder()
    seed = b.constant(1, dtypes.uint64)
    p = quantized(b, b.input(0, (64, 512), dtypes.float32), 2, seed, seed, 0)
    assert isinstance(p, Packed)
    size = sum(int(np.prod(n.shape)) * n.dtype.itemsize for n in p.stored)
    assert 64 * 512 * 4 / size == pytest.approx(32 / 2.125)
