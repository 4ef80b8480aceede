"""Random training programs: their bits do not depend on where they are divided, or on plans of earlier steps."""

from __future__ import annotations

from typing import Any

import pytest

import lazyt as lt
from lazyt.config import general as settings
from lazyt.runtime import first_step
from tests.support.fuzz.training import Program, Trainings, check_training


@pytest.mark.parametrize("seed", range(6))
def test_training_agrees_with_itself(seed: int) -> None:
    lines = Program(seed).lines
    assert Trainings().includes(lines) and lines == Program(seed).lines
    assert check_training(lines) is None


RECURRENT = """
t = Training(3, 4, 1)
t.add(Rows(nn.LSTM(4, 4)))
t.add(nn.Tanh())
t.add(Rows(nn.LSTM(4, 4)))
t.optimize(lambda p: optim.Adam(p, lr=0.01))
t.step('squares')
t.step('squares')
t.end()
"""


def test_a_wrong_division_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    divided: list[Any] = []
    step = first_step.first_step
    monkeypatch.setattr("lazyt.runtime.partition.first_step", lambda *a: divided.append(step(*a)) or divided[-1])
    assert check_training(RECURRENT) is None
    if not settings["partition"]:
        return
    assert divided, "its parameters are made by the sync that trains them"

    def exchanged(self: Any, v: Any, s: Any) -> None:
        v.info = tuple(sorted(v.info, key=lambda group: group[0].step.index))

    # Gradients in another order, and nobody is told.
    monkeypatch.setattr(first_step._Recorder, "_order", exchanged)
    failure = check_training(RECURRENT)
    assert failure is not None and failure.kind.startswith("training, undivided: ")


def test_an_error_of_its_own_is_none_of_the_programs() -> None:
    assert check_training("t = Training(3, 4, 1)\nt.step('sum')\nt.end()") is None
    lt.sync()
