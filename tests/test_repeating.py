"""A sync like the last one at its place does the same again, and nothing of it when anything is different."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import repeating, syncing
from lazyt.switches import general as settings

X = np.arange(1, 9, dtype=np.float32)


@pytest.fixture(autouse=True)
def _switched_on():
    if not settings["repeat"] or settings["interpret"]:
        pytest.skip("LAZYT_DEBUG=no-repeat or interpret")


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every sync that was a repetition."""
    found: list[Any] = []

    def counting(tr: Any) -> Any:
        again = repeating.repeat(tr)
        if again is not None:
            found.append(again)
        return again

    monkeypatch.setattr(syncing, "repeat", counting)
    return found


def test_a_loop_is_repeated_and_gives_each_result_memory_of_its_own(repeated: list[Any]) -> None:
    x, results = lt.asarray(X), []
    for i in range(8):
        y = (x * float(i) + x).sum() + x
        lt.sync()
        report = lt.last_sync()
        assert report is not None and report.steps == 5 and report.outputs == 1
        results.append(y)
    assert len(repeated) >= 4
    for i, y in enumerate(results):
        np.testing.assert_allclose(y.numpy(), (X * i + X).sum() + X, rtol=1e-6)


def test_a_leaf_that_only_dead_values_read_is_none_of_the_plan() -> None:
    x, other = lt.asarray(X), lt.asarray(X + 1)
    for i in range(5):
        y = x * float(i)
        x + other
        lt.sync()
        np.testing.assert_array_equal(y.numpy(), X * i)


def test_the_bits_are_those_of_the_general_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[np.ndarray]:
        x, out = lt.asarray(X), []
        for i in range(6):
            x = lt.sin(x) * (1.0 + i) + lt.exp(-x)
            lt.sync()
            out.append(x.numpy())
        return out

    with_it = run()
    monkeypatch.setitem(settings, "repeat", False)
    for a, b in zip(with_it, run(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_other_values_held_are_another_sync(repeated: list[Any]) -> None:
    x = lt.asarray(X)
    for i in range(12):
        a = x + 1.0
        b = a * 2.0
        if i % 3 == 2:
            del a
        lt.sync()
        np.testing.assert_array_equal(b.numpy(), (X + 1) * 2)
        if i % 3 != 2:
            np.testing.assert_array_equal(a.numpy(), X + 1)


def test_other_sizes_are_another_sync(repeated: list[Any]) -> None:
    for i in range(12):
        x = X[: 4 + i % 3]
        y = lt.asarray(x) * 3.0
        lt.sync()
        np.testing.assert_array_equal(y.numpy(), x * 3)


@pytest.mark.parametrize("what", ["a view", "a write", "a gradient", "a check"])
def test_what_is_not_plain_goes_the_general_way(what: str, repeated: list[Any]) -> None:
    x, w = lt.asarray(X), lt.asarray(X).requires_grad_()
    for _ in range(6):
        y = x * 2.0
        want = X * 2
        if what == "a view":
            v = y[1:]
            v += 1.0
            want[1:] += 1
        elif what == "a write":
            y += 1.0
            want += 1
        elif what == "a gradient":
            y = (w * 2.0).detach()
            z = w * 3.0  # noqa: F841 - held
        else:
            y = y[lt.asarray(np.arange(8))]
        lt.sync()
        np.testing.assert_array_equal(y.numpy(), want)
    assert not repeated


def test_a_view_made_of_a_leaf_or_a_result_afterwards_is_seen() -> None:
    x = lt.asarray(X)
    for i in range(8):
        y = x + 1.0
        if i > 5:
            part = y[2:]
        lt.sync()
        y -= 1.0
        np.testing.assert_array_equal(y.numpy(), X)
        if i > 5:
            np.testing.assert_array_equal(part.numpy(), X[2:])
    lt.sync()
    base = lt.asarray(X)
    for i in range(6):
        view = base[1:]  # noqa: F841 - base and view share a storage from here on
        z = base * 2.0
        lt.sync()
        base[0] = float(i)
        np.testing.assert_array_equal(z.numpy()[1:], X[1:] * 2)


def test_no_memory_is_said_by_the_general_way(monkeypatch: pytest.MonkeyPatch, repeated: list[Any]) -> None:
    x = lt.asarray(X)
    for _ in range(5):
        y = x * 5.0
        lt.sync()
    assert repeated
    y = x * 5.0  # noqa: F841 - held
    lt.memory.set_limit(lt.memory.allocated())
    try:
        with pytest.raises(MemoryError):
            lt.sync()
    finally:
        lt.memory.set_limit(None)
    lt.sync()


def test_no_sync_and_expect_hold(repeated: list[Any]) -> None:
    x = lt.asarray(X)
    for _ in range(6):
        y = x / 2.0
        with pytest.raises(lt.SyncError), lt.no_sync():
            lt.sync()
        with lt.expect(syncs=1, kernels=1):
            lt.sync()
        np.testing.assert_array_equal(y.numpy(), X / 2)
