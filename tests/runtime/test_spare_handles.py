"""Handles that nobody held at a sync done again are those of the next trace, and of nobody else."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.tracing.trace import local

pytestmark = pytest.mark.usefixtures("replays_on")

X = np.arange(1, 9, dtype=np.float32)


def test_what_nobody_held_serves_the_next_trace(repeated: list[Any]) -> None:
    x, results = lt.asarray(X), []
    for _ in range(8):
        before = len(repeated)
        spare = list(local.trace.results[:8])
        y = lt.abs(x)
        handles = [y]
        for step in (lambda v: v * 2.0, lambda v: v + x, lambda v: lt.maximum(v, 0.0), lambda v: lt.clip(v, 0.0, 9.0)):
            y = step(y)
            handles.append(y)
        results.append(y)
        # All but the first, which is met behind its leaf, and the last one, which was held.
        if before > 2:
            assert [h is s for h, s in zip(handles, spare[1:], strict=False)] == [True, True, True, True, False]
        del y, handles, spare
        lt.sync()
        before = len(repeated)
    assert len(repeated) >= 4
    for y in results:
        np.testing.assert_array_equal(y.numpy(), np.clip(X * 3, 0, 9))


@pytest.mark.parametrize("n", [3, 60])
def test_a_weak_reference_to_what_nobody_held_stays_dead(n: int, repeated: list[Any]) -> None:
    x, known, results = lt.asarray(X), [], []
    for _ in range(8):
        y = x
        for k in range(n):
            y = y + 1.0
            if k == 1:
                known.append(weakref.ref(y))
        results.append(y)
        del y
        lt.sync()
        assert all(r() is None for r in known)
    assert len(repeated) >= 4
    for y in results:
        np.testing.assert_array_equal(y.numpy(), X + n)


def test_the_handle_of_a_trace_is_only_in_one_place() -> None:
    """Handles of an earlier trace stand where another program has leaves, views, writes, several results, gradients."""
    x, y, z = (lt.asarray(X * k) for k in (1, 2, 3))
    w = lt.tensor(X, requires_grad=True)

    def many(n: int) -> Any:
        r = x
        for _ in range(n):
            r = r + y
        return r

    def others(k: int) -> list[Any]:
        match k % 6:
            case 0:
                return [x * z, y * z]
            case 1:
                v = (x + z)[2:5]
                return [v, v * 2.0]
            case 2:
                v = x + y
                v[1:3] = z[:2]
                return [v, v + 1.0]
            case 3:
                return [*lt.meshgrid(x[:2], y[:3]), lt.sum(z)]
            case 4:
                (w * w * x).sum().backward()
                g, w.grad = w.grad, None
                return [g, g + x]
            case _:
                with lt.no_grad():
                    return [w * y, *lt.unstack(lt.reshape(z, (2, 4)))]

    want = [[v.numpy() for v in others(k)] for k in range(6)]
    for turn in range(36):
        r = many(6 + turn % 2)
        lt.sync()
        found = others(turn)
        if turn % 5:
            lt.sync()
        np.testing.assert_array_equal(r.numpy(), X * (13 + 2 * (turn % 2)))
        for got, value in zip(found, want[turn % 6], strict=True):
            np.testing.assert_array_equal(got.numpy(), value)
        assert len({id(v) for v in (r, *found)}) == 1 + len(found)


def test_a_value_that_another_thread_computed_is_no_spare_handle(repeated: list[Any]) -> None:
    x, results = lt.asarray(X), []
    for turn in range(12):
        y = x + 1.0
        if turn % 3 == 2:
            seen: list[Any] = []
            other = threading.Thread(target=lambda t=y, s=seen: s.append(t.numpy()))
            other.start()
            other.join()
            np.testing.assert_array_equal(seen[0], X + 1)
            del other
        z = y * 2.0
        del y
        lt.sync()
        results.append(z)
        again = x - 5.0  # where y stood
        assert again._buffer is None
        np.testing.assert_array_equal(again.numpy(), X - 5)
    assert len(repeated) >= 2
    for z in results:
        np.testing.assert_array_equal(z.numpy(), (X + 1) * 2)


def test_a_step_whose_result_was_refused_is_no_place_for_one(repeated: list[Any]) -> None:
    """In that place another turn has a result: it is computed, and stays what it is."""
    n, m = lt.asarray(np.arange(3)), lt.asarray(np.array([1.0, 4.0, 9.0]))
    lt.sync()

    def turn(in_place: bool) -> Any:
        t = -n
        z = None
        if in_place:
            with pytest.raises(lt.DTypeError):
                t += 0.5
        else:
            z = t + 0.5
        w = t * 2
        lt.sync()
        assert w.tolist() == [0, -2, -4]
        return z

    def other() -> Any:
        return lt.sqrt(lt.abs(m))

    for _ in range(6):
        other()
        lt.sync()
    for _ in range(6):
        turn(True)
    z = turn(False)
    b = other()
    assert b is not z
    lt.sync()
    np.testing.assert_array_equal(z.numpy(), [0.5, -0.5, -1.5])
    np.testing.assert_array_equal(b.numpy(), [1.0, 2.0, 3.0])


def test_a_value_that_another_thread_read_and_dropped_is_held_the_next_time() -> None:
    x = lt.asarray(np.arange(3, dtype=np.float32))
    lt.sync()

    def turn(read: bool) -> Any:
        t = -x
        y = t * 2.0
        if read:
            other = threading.Thread(target=lambda: y.numpy())
            other.start()
            other.join()
            y = other = None
        w = t + 1.0
        lt.sync()
        assert w.tolist() == [1.0, 0.0, -1.0]
        return y

    for _ in range(6):
        turn(True)
    y = turn(False)
    np.testing.assert_array_equal(y.numpy(), [0.0, -2.0, -4.0])


def test_a_weak_reference_becomes_one_while_the_sync_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the sync goes the general way, which computes what is held by then."""
    x = lt.asarray(X)
    lt.sync()
    found: list[Any] = []
    known: list[Any] = []

    def turn(keep: bool) -> Any:
        y = x + 1.0
        if keep:
            known.append(weakref.ref(y))
        z = y * 2.0
        del y
        lt.sync()
        return z

    for _ in range(6):
        turn(False)
    again = local.trace.ended
    assert again is not None
    launch = again.run.__globals__["launch"]

    def reviving(bases: list[int]) -> None:
        launch(bases)
        found.extend(r() for r in known)

    monkeypatch.setitem(again.run.__globals__, "launch", reviving)
    turn(True)
    (y,) = found
    z = turn(False)
    assert z is not y
    np.testing.assert_array_equal(y.numpy(), X + 1)
    np.testing.assert_array_equal(z.numpy(), (X + 1) * 2)
