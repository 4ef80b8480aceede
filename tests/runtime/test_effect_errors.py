"""An effect that raises: the sync that ran it says so, whatever asked for it, and every recorded call runs once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.config import general
from lazyt.errors import IndexOutOfRange
from lazyt.runtime import division


class Refused(Exception):
    """What the callbacks here raise."""


def ramp(n: int = 3) -> lt.Tensor:
    return lt.asarray(np.arange(n, dtype="f4"))


def noting(seen: list[Any], *refused: Any) -> Callable[[Any], None]:
    """A callback that notes what it is given, and refuses some of it."""

    def note(v: Any) -> None:
        seen.append(v.item() if isinstance(v, np.generic) else v)
        if seen[-1] in refused:
            raise Refused(seen[-1])

    return note


SYNCS: dict[str, Callable[[lt.Tensor], Any]] = {
    "sync": lambda x: lt.sync(),
    "sync(x)": lt.sync,
    "item": lambda x: x.sum().item(),
    "numpy": lambda x: x.numpy(),
    "float": lambda x: float(x[0]),
    "str": str,
    "mask": lambda x: x[x > 1],
    "__array__": np.asarray,
    "bool": lambda x: bool(x[0] > 0),
    "view": lambda x: x[1:].tolist(),
    "tensor": lambda x: lt.tensor(x),
}


@pytest.mark.parametrize("how", SYNCS)
def test_every_kind_of_sync_raises_it_once(how: str, seen: list[Any]) -> None:
    note = noting(seen, 2)
    for _ in range(4):  # the first run, a plan's, and a replay's
        seen.clear()
        x = ramp() + 1
        for i in range(5):
            lt.debug.callback(note, i)
        with pytest.raises(Refused, match="2") as e:
            SYNCS[how](x)
        assert e.value.__notes__[0].startswith("debug.callback, recorded at")
        assert "test_effect_errors.py" in e.value.__notes__[0]
        assert not x.is_pending
        np.testing.assert_array_equal(x.numpy(), [1, 2, 3])
        lt.sync()
        assert seen == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("how", [{}, {"fuse": False}, {"first": False}, {"interpret": True}, {"verify": True},
                                 {"repeat": False}, {"tiers": False}])  # fmt: skip
@pytest.mark.parametrize("divided", [True, False])
def test_calls_run_once_however_the_program_is_planned(
    how: dict[str, bool], divided: bool, seen: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for flag, value in how.items():
        monkeypatch.setitem(general, flag, value)
    if divided:
        monkeypatch.setattr(division, "MIN_WEIGHT", 64)
    n = 40 if divided else 6
    note = noting(seen, 3, 5)
    for _ in range(4):
        seen.clear()
        y = ramp()
        for i in range(n):
            y = lt.tanh(y) * 0.5 + i
            lt.debug.callback(note, i)
        with pytest.raises(Refused, match="3") as e:
            lt.sync()
        (line, others) = e.value.__notes__
        assert line.split(" recorded at ")[1].split(";")[0] in others, "both are of one line"
        assert others.startswith("1 later call raised too, the first of them Refused(5)")
        assert seen == [*range(n)]
        assert y.numpy()[0] > n - 2


def test_a_sync_of_the_bound_raises_it_and_loses_nothing(seen: list[Any]) -> None:
    note = noting(seen, 100, 4000)
    x, met = ramp(), []
    for i in range(5000):
        before = x
        try:
            x = x + 1
        except Refused as e:
            met.append((i, e.args[0]))
            x = before + 1
        lt.debug.callback(note, i)
    lt.sync()
    assert [v for _, v in met] == [100, 4000]
    assert all(i >= v for i, v in met)
    assert seen == [*range(5000)]
    np.testing.assert_array_equal(x.numpy(), [5000, 5001, 5002])


def test_the_line_is_that_of_the_call_that_failed(seen: list[Any]) -> None:
    note = noting(seen, 1)
    for _ in range(4):
        lt.debug.callback(note, 0)
        lt.debug.callback(note, 1)
        line = test_the_line_is_that_of_the_call_that_failed.__code__.co_firstlineno + 4
        with pytest.raises(Refused) as e:
            lt.sync()
        assert f"test_effect_errors.py:{line};" in e.value.__notes__[0]


def test_an_error_keeps_no_tensor_alive(seen: list[Any]) -> None:
    note = noting(seen, 0)
    x = ramp() * 2
    gone = weakref.ref(x)
    lt.debug.callback(note, x[0])
    gc.disable()
    try:
        with pytest.raises(Refused) as e:
            lt.sync()
        del x
        assert gone() is None
        assert e.value.args == (0,)
    finally:
        gc.enable()


@pytest.mark.parametrize("asks", [True, False])
def test_data_that_fails_loses_only_the_calls_that_read_it(asks: bool, seen: list[Any]) -> None:
    note = noting(seen)
    for _ in range(3):
        seen.clear()
        x, at = ramp(), lt.asarray(np.array([7]))
        lt.debug.callback(note, x.sum())
        bad = lt.take(x, at)
        lt.debug.callback(note, bad[0])
        lt.debug.callback(note, (x * 2).sum())
        lt.debug.callback(note, 5)
        lt.debug.callback(note, x.astype("bfloat16")[1])
        lt.debug.callback(note, x[2])
        del bad
        # NOTE: nobody else reads what the second call reads, so whatever is asked for, the error is for this sync.
        with pytest.raises(IndexOutOfRange, match="index 7"):
            (x + 1).numpy() if asks else lt.sync()
        lt.sync()
        assert seen == [3, 6, 5, 1, 2]


def test_an_effect_and_data_that_fail_are_both_told(seen: list[Any]) -> None:
    note = noting(seen, 3)
    x = ramp()
    lt.debug.callback(note, x.sum())
    bad = lt.take(x, lt.asarray(np.array([7])))
    lt.debug.callback(note, 4)
    with pytest.raises(IndexOutOfRange, match="index 7") as e:
        lt.sync()
    assert "an effect raised too: Refused(3.0)" in e.value.__notes__[-1]
    assert seen == [3, 4]
    assert bad.is_pending
    assert (x + 1).tolist() == [1, 2, 3]
    assert seen == [3, 4]


def test_an_interrupt_in_a_call_runs_none_twice(seen: list[Any]) -> None:
    def interrupted(v: Any) -> None:
        seen.append(int(v))
        raise KeyboardInterrupt

    for _ in range(4):
        seen.clear()
        x = ramp() + 1
        lt.debug.callback(seen.append, 0)
        lt.debug.callback(interrupted, 1)
        lt.debug.callback(seen.append, 2)
        with pytest.raises(KeyboardInterrupt):
            lt.sync()
        assert seen == [0, 1]
        lt.debug.callback(seen.append, 3)
        np.testing.assert_array_equal(x.numpy(), [1, 2, 3])
        lt.sync()
        assert seen == [0, 1, 2, 3]


def test_a_callback_that_uses_lazyt_runs_once_in_a_steady_loop(seen: list[Any]) -> None:
    def computes(v: Any) -> None:
        seen.append((lt.asarray(v) * 2).sum().item())
        lt.debug.callback(seen.append, -1)
        lt.sync()

    x = ramp()
    for _ in range(6):
        seen.clear()
        y = x + 1
        lt.debug.callback(computes, x)
        lt.debug.callback(seen.append, 7)
        lt.sync()
        assert seen == [6, -1, 7]
        np.testing.assert_array_equal(y.numpy(), [1, 2, 3])


def test_no_sync_still_refuses(seen: list[Any]) -> None:
    lt.debug.callback(noting(seen, 1), 1)
    with lt.no_sync(), pytest.raises(lt.SyncError):
        ramp().sum().item()
    assert not seen
    with pytest.raises(Refused):
        lt.sync()
    assert seen == [1]
