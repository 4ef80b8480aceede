"""Which holder gets a value at a sync, and which leaves the trace: the rule, and that replays are written with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.runtime import replay
from lazyt.runtime.liveness import LEAVE, WANTED, commit, is_wanted, lines, wanted_of
from lazyt.tracing.program import Slot
from lazyt.tracing.tensor_state import Data, Holder, Storage
from lazyt.tracing.trace import local


def _pending(n: int) -> tuple[list[Slot], list[Holder]]:
    """Some values of this trace, and who waits for each."""
    x = lt.asarray(np.ones(3, np.float32))
    slots = [(x + float(k))._slot for k in range(n)]
    holders = [Holder() for _ in slots]
    for h, slot in zip(holders, slots, strict=True):
        h._slot = slot
    return slots, holders


def _values(n: int) -> list[Data]:
    return [lt.asarray(np.full(3, k, np.float32))._buffer for k in range(n)]


def test_a_holder_waits_for_a_value_of_the_step_that_its_slot_is_of() -> None:
    (a, b), (h, _) = _pending(2)
    assert is_wanted(h, a.step) and not is_wanted(h, b.step)
    h._slot = None
    assert not is_wanted(h, a.step)
    x = lt.asarray(np.ones(3, np.float32)) + 1
    slot = x._slot
    view = x[1:]
    assert not is_wanted(x, slot.step) and is_wanted(x._storage, slot.step) and not is_wanted(view, slot.step)


def test_a_value_goes_to_who_waits_for_it() -> None:
    slots, holders = _pending(3)
    holders[1]._slot = None  # it was committed before, and written since
    values = _values(3)
    for _ in range(2):
        commit(local.trace, slots, holders, [], values, None)
        assert [h._buffer for h in holders] == [values[0], None, values[2]]
        assert all(h._slot is None for h in holders)


def test_who_has_a_value_leaves_and_who_was_written_elsewhere_stays() -> None:
    (_, b), (met, written) = _pending(2)
    met._buffer = _values(1)[0]
    foreign = Holder(met._buffer)
    other = type(local.trace)()
    foreign._slot = other.root(other.mode)
    commit(local.trace, [], [], [met, written, foreign], [], None)
    assert met._slot is None
    assert written._slot is b and written._buffer is None, "it is pending in the thread that wrote it"
    assert foreign._slot is not None, "another trace's slot is not this one's to take"


def test_an_interrupt_goes_on_when_all_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazyt.tracing.tensor_state.Storage.let_go", _interrupted(Storage.let_go))
    slots, holders = _pending(2)
    storage = Storage()
    storage._slot, slots = slots[0], [slots[0], *slots]
    values = _values(3)
    with pytest.raises(KeyboardInterrupt):
        commit(local.trace, slots, [storage, *holders], [], values, None)
    assert [h._buffer for h in (storage, *holders)] == values


def _interrupted(usual: Any) -> Any:
    left = [1]

    def let_go(self: Storage) -> None:
        if left[0]:
            left[0] -= 1
            raise KeyboardInterrupt
        usual(self)

    return let_go


def test_replays_are_written_with_the_rule(replays_on: None) -> None:
    def run() -> str:
        y = lt.asarray(np.arange(4, dtype=np.float32)) * 2
        view, pos = y[1:], local.trace.pos
        assert wanted_of(local.trace)[1] == [y._storage]
        lt.sync()
        assert view.tolist() == [2, 4, 6]
        again = pos.again
        return next(
            (text for text, code in replay._codes.items() if again and again.run.__code__ in code.co_consts), ""
        )

    text = [run() for _ in range(4)][-1]
    for rule in (LEAVE.format(h="s0"), WANTED.format(h="s0", step="step0")):
        for line in lines(rule):
            assert line in text
