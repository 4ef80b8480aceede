"""Bits for arrays: golden values of ActNN's and GACT's allocators, and the best there is by trying all."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from lazyt.ir.bit_allocation import allocate, variance

POWERS = [1.0, 4.0, 16.0, 64.0, 256.0]


@pytest.mark.parametrize(
    ("budget", "bits", "left"),
    [
        (5, [1, 1, 1, 1, 1], 341),
        (6, [1, 1, 1, 1, 2], 113.444),
        (7, [1, 1, 1, 2, 2], 56.556),
        (10, [1, 1, 2, 3, 3], 13.308),
        (15, [2, 2, 3, 4, 4], 2.3043),
        (20, [2, 3, 4, 5, 6], 0.39495),
    ],
)
def test_bits_for_equal_sizes(budget: int, bits: list[int], left: float):
    assert allocate(POWERS, budget) == bits
    assert variance(POWERS, bits) == pytest.approx(left, rel=1e-4)


def test_half_a_bit_is_spent_on_nothing():
    assert allocate(POWERS, 7.9) == [1, 1, 1, 2, 2]


def test_bits_of_whole_words():
    assert allocate(POWERS, 20, choices=(1, 2, 4, 8, 32)) == [2, 2, 4, 4, 8]


def test_what_is_left_of_the_budget_is_given_back():
    """Where ActNN's greedy choice uses 1450 bits of 2220, for 1.0496."""
    bits = allocate([10, 1, 5], 2220, [100, 1000, 10])
    assert variance([10, 1, 5], bits) == pytest.approx(1.0002, rel=1e-4)


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_equal_arrays_get_equal_bits(value: float):
    assert allocate([value] * 7, 14) == [2] * 7


@pytest.mark.parametrize("seed", range(12))
def test_equal_sizes_get_the_best_bits_there_are(seed: int):
    rng = np.random.default_rng(seed)
    c = [*rng.exponential(size=5) ** 3]
    budget = int(rng.integers(5, 41))
    best = min(variance(c, b) for b in itertools.product(range(1, 9), repeat=5) if sum(b) <= budget)
    assert variance(c, allocate(c, budget)) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(12))
def test_other_sizes_get_nearly_the_best_bits_and_use_the_budget(seed: int):
    rng = np.random.default_rng(seed)
    c, w = [*rng.exponential(size=4) ** 2], [int(n) for n in rng.integers(1, 200, 4)]
    budget = int(sum(w) * rng.uniform(1, 8))

    def cost(bits: tuple[int, ...]) -> int:
        return sum(b * n for b, n in zip(bits, w, strict=True))

    best = min(variance(c, b) for b in itertools.product(range(1, 9), repeat=4) if cost(b) <= budget)
    bits = allocate(c, budget, w)
    assert budget - max(w) < cost(tuple(bits)) <= budget
    assert variance(c, bits) <= 1.25 * best


def test_many_arrays():
    rng = np.random.default_rng(0)
    bits = allocate([*rng.exponential(size=20_000)], 40_000)
    assert sum(bits) == 40_000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([1.0, 1.0], 1), "allocate: 2 bits are the fewest, the budget is 1"),
        (([1.0, -2.0], 9), "allocate: sensitivities are finite and not negative, got [1.0, -2.0]"),
        (([float("nan")], 9), "allocate: sensitivities are finite and not negative, got [nan]"),
    ],
)
def test_bad_requests(given: tuple[list[float], int], message: str):
    with pytest.raises(ValueError, match=re.escape(message)):
        allocate(*given)
