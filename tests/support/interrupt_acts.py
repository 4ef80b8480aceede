"""What is done at a place of an interrupted run: an interrupt is raised, or a handler of signals uses lazyt.

`interrupts.py` does them.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from typing import Any

import lazyt as lt
from tests.support.interrupt_places import Places, raises

_kept = lt.asarray([1.0, 2.0])
recorded: list[Any] = []  # by `keeps`


def records() -> None:
    """A handler that records, and keeps nothing."""
    (lt.ones(3) * 2 + _kept[0]) * 2


def keeps() -> None:
    """A handler that records, and keeps what it has recorded: it is computed with what it interrupts, or later."""
    recorded.append(lt.ones(3) * 2 + _kept[0])


def syncs() -> None:
    """A handler that computes all that is pending, of what it interrupts too."""
    with contextlib.suppress(IndexError):  # as in `trains`
        lt.sync()


def reads() -> None:
    """A handler that reads a value of its own."""
    assert float((lt.ones(3) * 2 + _kept[0]).sum()) == 9.0


def saves() -> None:
    """A handler that writes a checkpoint, as one of SIGTERM does, and reads it."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "w.npz")
        lt.save({"w": _kept, "n": 1}, path)
        assert lt.load(path)["w"].tolist() == [1.0, 2.0]


def nested() -> None:
    """A handler that is interrupted in its turn, by one that trains, at a place of its own."""
    Places(40, trains).run(reads)


def trains() -> None:
    """A handler that takes a training step of its own, and syncs."""
    p = lt.tensor([1.0, 2.0], requires_grad=True)
    with lt.enable_grad():  # what it interrupts may be an optimizer's step
        (p * p).sum().backward()
    lt.optim.SGD([p], lr=0.5).step()
    with contextlib.suppress(IndexError):  # of what it interrupts, where that is recorded and not yet computed
        lt.sync()
    assert p.detach().tolist() == [0.0, 0.0]


ACTS: dict[str, tuple[Callable[[], None], type[BaseException] | None]] = {
    "KeyboardInterrupt": (raises(KeyboardInterrupt), KeyboardInterrupt),
    "records": (records, None),
    "keeps": (keeps, None),
    "reads": (reads, None),
    "syncs": (syncs, None),
    "trains": (trains, None),
    "saves": (saves, None),
    "nested": (nested, None),
}


def refused(scenario: str, act: str) -> bool:
    """Whether the scenario refuses what the act does: `no_sync()` counts for the syncs of a signal handler too."""
    return "other contexts" in scenario and act in ("reads", "syncs", "trains", "saves", "nested")
