"""Stages of a row kernel read back what an earlier one stored (stage_reuse.py): fewer loads, and every bit the same."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest

import lazyt as lt
from lazyt.config import general as switches
from lazyt.inspect.explain import explain_whole
from lazyt.ir import kernel as k
from lazyt.ir.passes.schedule import Schedule
from lazyt.ir.passes.stage_reuse import evaluated
from tests.support.plans import forget

READS_BACK = "stages read back what earlier ones stored"


def normalisation(n: int, dtype: Any) -> list[lt.Tensor]:
    """The backward of a normalisation of rows: a difference and a masked gradient, which somebody holds, and sums."""
    rng = np.random.default_rng(n)
    x, dy = (lt.asarray(rng.standard_normal((n, 105)).astype(dtype)) for _ in range(2))
    p, q = x * 2, dy * 3
    lt.sync(p, q)
    centred = p - lt.mean(x, axis=-1, keepdims=True)
    masked = lt.where(x > 0, q, 0.0)
    slope = lt.sum(masked * centred, axis=-1, keepdims=True)
    grad = masked + slope * centred
    return [centred, masked, grad, lt.sum(-grad, axis=-1)]


def planned(n: int, dtype: Any) -> tuple[Schedule, list[bytes]]:
    """The schedule of that program, and its results."""
    with mock.patch.dict(switches, {"tiers": False, "first": False}):
        forget()
        made = normalisation(n, dtype)
        found: Any = explain_whole(made[-1])
        return found.plan.schedule, [v.numpy().tobytes() for v in made]


def loads(schedule: Schedule) -> list[list[int]]:
    """How many arrays each stage of a row kernel reads along its rows."""
    found = []
    for kernel in (c.kernel for c in schedule.kernels if len([s for s in c.kernel.stages if s.loops]) > 1):
        moves = k.moving_axes(kernel)
        needs = [evaluated(kernel, s) for s in kernel.stages if s.loops]
        found.append(
            [
                sum(isinstance(kernel.values[v], k.Load) and max(moves[v], default=-1) >= kernel.outer for v in some)
                for some in needs
            ]
        )
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 33])
def test_bits_are_those_of_computing_everything_again(n: int, dtype: Any) -> None:
    _, found = planned(n, dtype)
    with mock.patch.dict(switches, {"reuse": False}):
        _, expected = planned(n, dtype)
    assert found == expected


def test_no_stage_reads_more_and_some_read_less() -> None:
    schedule, _ = planned(8, np.float32)
    with mock.patch.dict(switches, {"reuse": False}):
        again, _ = planned(8, np.float32)
    assert any(READS_BACK in c.strategies for c in schedule.kernels)
    assert not any(READS_BACK in c.strategies for c in again.kernels)
    few, many = loads(schedule), loads(again)
    assert [len(x) for x in few] == [len(x) for x in many]
    assert all(a <= b for x, y in zip(few, many, strict=True) for a, b in zip(x, y, strict=True))
    assert few != many
