"""Blocks in an arena: none overlaps another that lives with it, and both ways to place them pack well."""

from __future__ import annotations

import numpy as np
import pytest

from lazyt.backends.common.arena import by_size, by_time


def blocks_of(seed: int, n: int) -> list[tuple[int, int, int]]:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, n, n)
    last = first + rng.integers(0, 1 + rng.integers(1, n), n)
    size = 64 * rng.integers(1, 9, n) ** rng.integers(1, 4)
    return sorted(zip(size.tolist(), first.tolist(), last.tolist(), strict=True), reverse=True)


@pytest.mark.parametrize("place", [by_size, by_time])
@pytest.mark.parametrize("seed", range(8))
def test_no_two_blocks_overlap(place, seed):
    blocks = blocks_of(seed, 90)
    offsets, top = place(blocks)
    ends = [at + size for at, (size, _, _) in zip(offsets, blocks, strict=True)]
    assert top == max(ends)
    for i, (_, first, last) in enumerate(blocks):
        for j, (_, f, t) in enumerate(blocks[:i]):
            if first <= t and f <= last:
                assert ends[i] <= offsets[j] or ends[j] <= offsets[i]


@pytest.mark.parametrize("place", [by_size, by_time])
def test_a_chain_needs_two_places(place):
    assert place([(64, i, i + 1) for i in range(100)])[1] == 128


@pytest.mark.parametrize("place", [by_size, by_time])
def test_what_a_backward_keeps_is_given_back_in_turn(place):
    """Blocks that live from i to 2n - i, and one at each time: as many places as live at once, and no more."""
    n = 40
    kept = [(256, i, 2 * n - i) for i in range(n)]
    beside = [(64, i, i) for i in range(2 * n)]
    assert place([*kept, *beside])[1] == 256 * n + 64


def test_gaps_that_touch_become_one():
    offsets, top = by_time([(192, 2, 2), (64, 0, 0), (64, 0, 1), (64, 0, 1)])
    assert top == 192
    assert sorted(offsets) == [0, 0, 64, 128]


def test_nothing_needs_no_room():
    assert by_size([]) == by_time([]) == ([], 0)
