"""Prints and callbacks in a program on a GPU run on the host, once each, in the order of their device."""

from __future__ import annotations

from typing import Any

import numpy as np

import lazyt as lt
from tests.support.cuda.fake import FakeDriver


def test_effects_of_a_device_run_in_order(gpu: FakeDriver) -> None:
    seen: list[Any] = []
    x = lt.tensor([1.0, 2.0], device="cuda:0")
    for i in range(5):
        y = x * i
        lt.debug.callback(seen.append, y)
        lt.debug.callback(seen.append, i)
        lt.debug.callback(seen.append, y.sum())
        y = y + 1
        lt.sync()
        np.testing.assert_array_equal(y.numpy(), np.array([1, 2]) * i + 1)
    on_gpu = [v.tolist() for v in seen if v.dtype.kind == "f"]
    assert on_gpu == [v for i in range(5) for v in ([i, 2 * i], 3 * i)]
    assert [v for v in seen if v.dtype.kind == "i"] == list(range(5))
    assert gpu.launches > 0
