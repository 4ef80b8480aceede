"""How a kernel's units are divided into chunks for the threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu.kernel_rows import KernelRows
from tests.support.kernel_builder import Builder

F32 = np.dtype(np.float32)


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(units, grain) of the kernels that are bound."""
    found: list[tuple[int, int]] = []
    piece = KernelRows._piece

    def seen(self: KernelRows, c: Any, p: Any, rows: list[list[int]], *rest: Any) -> None:
        piece(self, c, p, rows, *rest)
        found.append((rows[-1][2], rows[-1][3]))

    monkeypatch.setattr(KernelRows, "_piece", seen)
    return found


def test_weight_counts_costly_functions_and_accesses() -> None:
    x, out = np.ones(40, F32), np.ones(40, F32)
    light, heavy = Builder((40,)), Builder((40,))
    light.stage(light.store(light.op("neg", light.load(x)), out))
    heavy.stage(heavy.store(heavy.op("tanh", heavy.op("exp", heavy.load(x))), out))
    assert light.kernel().weight == 1
    assert heavy.kernel().weight == 6


def test_costly_rows_are_divided_where_cheap_ones_are_not(chunks: list[tuple[int, int]]) -> None:
    x = lt.tensor(np.linspace(-1, 1, 32 * 128, dtype=F32).reshape(32, 128))
    for _ in range(3):  # the first time step by step
        (x[:, ::-1] + 1).numpy()
    assert chunks
    assert all(units <= grain for units, grain in chunks)
    chunks.clear()
    before = lt.get_num_threads()
    try:
        lt.set_num_threads(2)
        for _ in range(3):
            lt.tanh(lt.exp(lt.sin(x[:, ::-1]))).numpy()
    finally:
        lt.set_num_threads(before)
    # 14 rows would be enough, and three chunks leave one thread with two of them.
    assert chunks[-1] == (32, 16)
