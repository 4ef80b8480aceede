"""Maps with conditions on places: places that no condition divides have a text of their own.

`test_cpu_switches.py` compares with the form without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyt as lt

pytestmark = pytest.mark.usefixtures("planned")
WAY = "places that no condition divides are computed without masks"


def heat(m: Any, u: Any) -> Any:
    u = u * 1
    u[1:-1, 1:-1] += u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
    return u


def rolled(m: Any, u: Any) -> Any:
    return m.roll(u, 1, 0) + m.roll(u, -1, 0) + m.roll(u, 3, 1) + m.roll(u, -1, 1)


def written(m: Any, u: Any) -> Any:
    u = u * 1
    u[2:, 3:20] = u[:-2, 1:18]
    u[:, ::-1][:, 5:] *= 2
    return u


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "heat": heat,
    "rolled": rolled,
    "written": written,
    "padded": lambda m, u: m.pad(u, ((1, 2), (17, 40))) + 1,
    "padded by a value": lambda m, u: m.pad(u, 5, constant_values=3) * 2,
    "joined": lambda m, u: m.concatenate([u, u * 2, u[:, :5]], axis=1) + 1,
    "joined rows": lambda m, u: m.concatenate([u[:2], u * 2], axis=0)[:, ::-1] + 1,
    "triangle": lambda m, u: m.tril(u, 3) + m.triu(u, 40),
    "rows alike": lambda m, u: m.pad(u[:, :1] + u[:1] * 2, ((0, 0), (20, 20))) * 1,
    "another stride": lambda m, u: m.pad(u[:, ::2], ((0, 0), (3, 40))) + 1,
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "float64", "int64"])
def test_bits_are_equal(dtype: str) -> None:
    rng = np.random.default_rng(0)
    for shape in [(3, 21), (5, 160), (4, 203), (40, 34)]:
        a = rng.integers(-9, 9, shape).astype(dtype)
        for name, program in PROGRAMS.items():
            got = program(lt, lt.asarray(a)).numpy()
            np.testing.assert_array_equal(got, program(np, a), err_msg=f"{name} {shape}")


def test_infinities_outside_of_a_condition_stay_there() -> None:
    a = np.full((5, 70), np.inf, "f4")
    a[:, 20:50] = 1
    got = lt.pad(lt.asarray(a)[:, 20:50] - 1, ((0, 0), (30, 30))).numpy()
    np.testing.assert_array_equal(got, np.zeros((5, 90)))


def test_costly_bodies_are_written_once_and_masks_of_data_are_no_intervals() -> None:
    def ways(x: lt.Tensor) -> list[str]:
        return [w for kernel in lt.explain(x).kernels for w in kernel.strategies]

    x = lt.asarray(np.ones((4, 90), "f4"))
    assert WAY in ways(lt.pad(x, 20) * 2)
    assert WAY not in ways(lt.exp(lt.pad(x, 20)) * 2)
    assert WAY not in ways(lt.where(x > 0, x, 2))
