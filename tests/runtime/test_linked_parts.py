"""The parts of a long trace that comes again run as one: the bits of parts, with new values, after errors, or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn, optim
from lazyt.errors import IndexOutOfRange
from lazyt.runtime import division, linked_parts, subprograms
from lazyt.runtime.linked_parts import NEVER, LinkedPlan
from lazyt.tracing.trace import local
from tests.support.plans import forget

TURNS = 48


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short programs are divided as long ones are."""
    for name, value in (("MIN_WEIGHT", 30), ("MIN_TRAINING_WEIGHT", 30), ("PART_WEIGHT", 8)):
        monkeypatch.setattr(division, name, value)
    # NOTE: on a busy machine a part may take any time.
    monkeypatch.setattr(linked_parts, "LONG", 1e9)
    monkeypatch.setattr(linked_parts, "LONG_PART", 1e9)
    local.trace.reset_trie()


def is_linked() -> bool:
    """Whether the last sync was a replay of linked parts."""
    report: Any = local.trace.report
    return type(report) is tuple and isinstance(report[0].plan, LinkedPlan)


def rows(*shape: int, seed: int = 0) -> lt.Tensor:
    return lt.asarray(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def normalized() -> list[lt.Tensor]:
    x = rows(6, 10)
    for _ in range(TURNS):
        x = x - 0.1 * (lt.softmax(x, axis=-1) - 0.1) + lt.std(x, axis=-1, keepdims=True)
    return [x]


def trained() -> list[lt.Tensor]:
    lt.random.seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    opt = optim.Adam(net.parameters(), lr=0.01)
    x, y, losses = rows(10, 6), lt.asarray(np.arange(10) % 3), []
    for i in range(TURNS // 4):
        loss = nn.functional.cross_entropy(net(x * (1.0 + i % 2)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    return [*losses, *(p.detach() for p in net.parameters()), *(p.grad for p in net.parameters())]


def differentiated() -> list[lt.Tensor]:
    x = rows(6)
    for _ in range(TURNS // 4):
        x = x - 0.1 * lt.grad(lambda v: (lt.sin(v) * v).sum())(x)
    return [x]


@pytest.mark.parametrize("program", [normalized, trained, differentiated])
def test_a_trace_that_comes_again_runs_as_one(program: Callable[[], list[lt.Tensor]]) -> None:
    expected: Any = None
    linked = []
    forget()
    for _ in range(6):
        found = program()
        lt.sync()
        linked.append(is_linked())
        report = lt.last_sync()
        assert report.parts > 3 and report.kernels > 3
        arrays = [x.numpy() for x in found]
        expected = expected or arrays
        for a, b in zip(arrays, expected, strict=True):
            np.testing.assert_array_equal(a, b)
    assert not any(linked[:3]) and linked[-1]
    assert len(report.ran) < 8 and f"{report.parts}, by" in str(report)


def test_what_runs_long_stays_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linked_parts, "LONG", 1e-9)
    for _ in range(6):
        _kept = normalized()
        lt.sync()
        assert not is_linked()


def shifted(scale: float, first: int, table: lt.Tensor) -> list[lt.Tensor]:
    x, kept = table[0] * 1, []
    for i in range(TURNS):
        x = lt.tanh(x) * scale + table[(first + i) % len(table)] - float(i)
        if i % 16 == 3:
            kept.append(x.sum())
    return [x, *kept]


def test_values_scalars_and_offsets_are_those_of_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [(0.5, 0), (0.5, 0), (0.5, 0), (0.5, 0), (1.5, 3), (1.0, 3), (0.25, 6), (0.25, 6)]
    tables = [rows(7, 5, seed=k) for k in range(len(runs))]
    found, linked = [], 0
    for (scale, first), table in zip(runs, tables, strict=True):
        values = shifted(scale, first, table)
        lt.sync()
        linked += is_linked()
        found.append([x.numpy() for x in values])
    assert linked >= 4
    monkeypatch.setattr(division, "MIN_WEIGHT", 1 << 20)
    local.trace.reset_trie()
    for (scale, first), table, values in zip(runs, tables, found, strict=True):
        for a, b in zip(values, shifted(scale, first, table), strict=True):
            np.testing.assert_array_equal(a, b.numpy())


def test_a_part_that_fails_when_it_comes_again() -> None:
    table = rows(5, 4)

    def run(places: lt.Tensor) -> lt.Tensor:
        x = table[0] * 1
        for i in range(TURNS):
            x = x * 0.5 + lt.tanh(x)
            if i % 8 == 5:
                x = x + lt.take(table, places, axis=0)[1]  # the line that may fail
        return x

    good, wrong = lt.asarray([0, 4]), lt.asarray([0, 9])
    lt.sync()
    expected = run(good).numpy()
    for _ in range(5):
        np.testing.assert_array_equal(run(good).numpy(), expected)
    assert is_linked()
    x = run(wrong)
    with pytest.raises(IndexOutOfRange, match=r"index 9 is out of bounds.*test_linked_parts.py:\d+"):
        x.numpy()
    assert x.is_pending
    for _ in range(6):
        np.testing.assert_array_equal(run(good).numpy(), expected)


def test_parts_with_calls_of_numpy_run_one_by_one() -> None:
    def run() -> lt.Tensor:
        x = rows(40)
        for _ in range(TURNS):
            x = lt.tanh(lt.real(lt.fft.ifft(lt.fft.fft(x) * 0.5)) + 1)
        return x

    expected = run().numpy()
    for _ in range(5):
        x = run()
        lt.sync()
        assert not is_linked() and lt.last_sync().parts > 3
        np.testing.assert_array_equal(x.numpy(), expected)
    divisions = {s._program.division for s in steps() if s._program is not None} - {None, subprograms.WHOLE}
    assert NEVER in [p.linked for places in divisions for p in places.known.values()]


def steps() -> list[Any]:
    """All that the trie has."""
    found, todo = [], [*local.trace._roots.values()]
    while todo:
        s = todo.pop()
        found.append(s)
        todo += s.children.values()
    return found


def test_what_is_given_back_as_it_is_has_no_memory_of_its_own() -> None:
    def run(x: lt.Tensor) -> list[lt.Tensor]:
        y = x + 1
        for _ in range(TURNS):
            y = lt.sin(y) * 1.5
        return [y, y.reshape(2, 3) * 1, +y]

    x = rows(6)
    expected = [v.numpy() for v in run(x)]
    for _ in range(6):
        found = run(x)
        lt.sync()
        assert lt.last_sync().parts > 3
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a.numpy(), b)
