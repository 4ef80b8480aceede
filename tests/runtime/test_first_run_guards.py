"""A first run, step by step: its plans hold where the guards of all choices hold, those of the backend's too."""

from __future__ import annotations

import numpy as np

import lazyt as lt
from tests.support.arrays import normal
from tests.support.plans import forget


def test_a_plan_for_few_channels_is_not_taken_for_others():
    forget()
    for rows, count in ((2, 4), (2, 2), (3, 3), (5, 4), (4, 1), (4, 7), (7, 2)):
        x, c = normal(rows, count), normal(count, seed=1)
        # NOTE: an operation in a program of its own, so that each is a first run.
        y = lt.asarray(x) + lt.asarray(c)
        for _ in range(count + rows):
            y = y * 1.5
        want = x + c
        for _ in range(count + rows):
            want = want * np.float32(1.5)
        np.testing.assert_array_equal(y.numpy(), want)
