"""Rows and maps go by whole vectors, and the rest of them once with a mask: the bits are those of masks everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu.flags import switches
from tests.support.plans import forget

pytestmark = pytest.mark.usefixtures("planned")
ROWS, MAPS = "rows by whole vectors, the last one masked", "whole vectors, and the last one masked"


def written(x: lt.Tensor) -> list[lt.Tensor]:
    shifted = x - lt.max(x, axis=-1, keepdims=True)
    return [shifted, lt.sum(shifted * x[..., ::-1], axis=-1)]


PROGRAMS: dict[str, Callable[[lt.Tensor], list[lt.Tensor]]] = {
    "sum": lambda x: [lt.sum(x, axis=-1)],
    "every other": lambda x: [lt.sum(x[..., ::2] * 2, axis=-1), lt.prod(x[..., ::-2], axis=-1)],
    "extremes": lambda x: [lt.max(x, axis=-1), lt.argmin(x, axis=-1), lt.argmax(x[..., ::-1], axis=-1)],
    "asked": lambda x: [lt.any(x > 2, axis=-1), lt.all(x < 9, axis=-1), lt.count_nonzero(x > 0, axis=-1)],
    "written": written,
    "gathered": lambda x: [lt.sum(lt.take(x, lt.arange(x.shape[-1] - 1, -1, -1), axis=-1) * x, axis=-1)],
    "map": lambda x: [x * 2 + 1, x[..., ::-1] - x[..., :1], x[..., 1:] + x[..., :-1]],
    "map of every other": lambda x: [x[..., ::2] * 3, lt.where(x > 0, x, 0)[..., 1::2], x > x[..., ::-1]],
    "map in place": lambda x: [lt.concatenate([x, x * 2, x[..., :5]], axis=-1), lt.roll(x, 3, -1)],
    "turned": lambda x: [lt.copy(x.T), x.T * 2 + x.T[:, :1]],
    "padded": lambda x: [lt.sum(lt.pad(x, ((0, 0), (3, 18))) * 3, axis=-1)],
}


def bits(program: Callable[[lt.Tensor], list[lt.Tensor]], a: Any) -> list[bytes]:
    forget()
    found = program(lt.asarray(a))
    lt.sync()
    return [y.numpy().tobytes() for y in found]


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float16", marks=pytest.mark.slow), "float64", "int16"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_are_those_of_masks(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for shape in [(3, 1), (5, 15), (4, 16), (7, 33), (2, 2053), (2, 65_541)]:
        a = (rng.standard_normal(shape) * 3).astype(dtype)
        monkeypatch.setitem(switches, "peel", True)
        got = bits(PROGRAMS[name], a)
        monkeypatch.setitem(switches, "peel", False)
        assert got == bits(PROGRAMS[name], a), shape


def test_what_lies_behind_a_row_is_not_read() -> None:
    for n in (5, 21, 37):
        a = np.full((6, 64), np.nan, ml_dtypes.bfloat16)
        a[:, :n] = 1
        assert lt.sum(lt.asarray(a)[:, :n], axis=-1).numpy().tolist() == [n] * 6


@pytest.mark.parametrize("rows", [17, 20, 31])
def test_lines_that_are_not_there(rows: int) -> None:
    """Of a tile or a group of rows; behind them memory may end."""
    a = np.random.default_rng(0).standard_normal((rows, 4099)).astype("f4")
    np.testing.assert_array_equal(lt.copy(lt.asarray(a).T).numpy(), a.T)
    np.testing.assert_allclose(lt.cumsum(lt.asarray(a), 0).numpy(), a.cumsum(0, "f8"), rtol=1e-4, atol=1e-4)


def test_expensive_bodies_are_written_once() -> None:
    def ways(x: lt.Tensor) -> list[str]:
        return [w for kernel in lt.explain(x).kernels for w in kernel.strategies]

    x = lt.asarray(np.ones((4, 90), "f4"))
    assert ROWS in ways(lt.sum(x * 2, axis=-1))
    assert MAPS in ways(x * 2)
    assert ROWS not in ways(lt.sum(lt.exp(x), axis=-1))
    assert MAPS not in ways(lt.exp(x))
