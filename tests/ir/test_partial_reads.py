"""Every index is checked, also where a program reads a part of what they select, in each of its turns."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from tests.support.plans import forget

# What is read of the selected rows, of shape (4, 3).
PARTS = {
    "a slice": lambda y: y[:2] * 2,
    "every other one": lambda y: y[::2] + 1,
    "one of them": lambda y: y[0],
    "none": lambda y: y[:0] * 2,
    "along an axis of no elements": lambda y: y[:, None] + lt.zeros((0, 1)),
    "a part of their softmax": lambda y: lt.softmax(y, axis=-1)[:2],
    "a part of their sums": lambda y: y.sum(axis=-1)[:2],
    "windows": lambda y: lt.sliding_window_view(y, 2, axis=0)[::3].sum(axis=-1),
    "a part of a part": lambda y: (y[1:] * 2)[:-1],
}
WHOLE = {
    "all of them": lambda y: y * 2,
    "backwards": lambda y: lt.flip(y, axis=0) * 2,
    "transposed": lambda y: y.T + 1,
    "along an axis of some elements": lambda y: y[:, None] + lt.ones((5, 1)),
}
INDICES = np.array([0, 2, 1, 3])


def rows(n):
    return lt.asarray(np.arange(3.0 * n, dtype=np.float32).reshape(n, 3)) + 1


@pytest.mark.parametrize("part", [*PARTS, *WHOLE])
@pytest.mark.parametrize("size", [4, 3])
def test_each_turn_raises_or_none(part, size):
    read = {**PARTS, **WHOLE}[part]
    for _ in range(4):
        y = read(rows(size)[lt.asarray(INDICES)])
        if size > INDICES.max():
            lt.sync()
        else:
            with pytest.raises(lt.IndexOutOfRange, match="index 3 is out of bounds for an axis of size 3"):
                lt.sync()
        del y


@pytest.mark.parametrize("part", ["all of them", "backwards", "transposed"])
def test_what_is_read_whole_stays_in_one_kernel(part):
    x = rows(4)
    lt.sync()
    y = WHOLE[part](x[lt.asarray(INDICES)])
    assert len(y.explain().kernels) == 1


def test_what_is_read_in_part_says_why_it_is_stored():
    x = rows(4)
    lt.sync()
    y = x[lt.asarray(INDICES)][:2] * 2
    assert "a part of it is read, and all its indices are checked" in str(y.explain())


def test_a_plan_for_some_elements_is_none_for_no_elements():
    forget()
    for n in (5, 4, 5, 0, 0):
        y = rows(3)[lt.asarray(INDICES)][None] + lt.ones((n, 1, 1))
        with pytest.raises(lt.IndexOutOfRange):
            lt.sync()
        del y
