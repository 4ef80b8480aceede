"""What an update writes: all of its targets, or nothing where one of them is another by now."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn, optim
from lazyt.tracing.commit import SPELLED, writer
from lazyt.tracing.tensor_state import Storage

COUNTS = [1, 3, SPELLED + 1]


def _holder(storage: Any = None) -> Any:
    return SimpleNamespace(_slot=object(), _storage=storage, _buffer=object(), _writes=4)


def _case(n: int) -> tuple[Any, Any, list[Any], list[Any], list[Any]]:
    """A trace, a step that updates n targets, these, what holds their values, and its storages: every other has one."""
    storages = [_holder() if k % 2 else None for k in range(n)]
    targets = [_holder(st) for st in storages]
    holders = [t if st is None else st for t, st in zip(targets, storages, strict=True)]
    pos = object()
    old = tuple(SimpleNamespace(step=SimpleNamespace(index=k)) for k in range(n))
    step = SimpleNamespace(parent=pos, targets=old, slots=tuple(object() for _ in range(n)))
    other = object()
    trace = SimpleNamespace(pos=pos, results=[h if k % 3 else other for k, h in enumerate(holders)])
    return trace, step, targets, holders, storages


def _state(trace: Any, targets: list[Any], holders: list[Any]) -> list[Any]:
    seen = [(id(h._slot), id(h._storage), id(h._buffer), h._writes) for h in (*targets, *holders)]
    return [*seen, id(trace.pos), *map(id, trace.results)]


def _write(trace: Any, step: Any, targets: list[Any], storages: list[Any], before: list[Any]) -> bool:
    return writer(len(targets))(trace, step, targets, storages, before, [4] * len(targets))


@pytest.mark.parametrize("n", COUNTS)
def test_all_targets_have_their_values(n: int) -> None:
    trace, step, targets, holders, storages = _case(n)
    assert _write(trace, step, targets, storages, [h._slot for h in holders])
    for k, (t, h) in enumerate(zip(targets, holders, strict=True)):
        assert t._slot is h._slot is step.slots[k]
        assert h._buffer is None
        assert h._writes == 5
        assert (trace.results[k] is None) == (k % 3 != 0), "only what held the old value is let go"


CHANGES: dict[str, Callable[[Any, Any, Any], None]] = {
    "another slot": lambda trace, target, holder: setattr(holder, "_slot", object()),
    "another storage": lambda trace, target, holder: setattr(target, "_storage", Storage()),
    "another write": lambda trace, target, holder: setattr(holder, "_writes", 5),
    "another step": lambda trace, target, holder: setattr(trace, "pos", object()),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("n", COUNTS)
def test_nothing_is_written_where_the_last_target_changed(n: int, change: str) -> None:
    trace, step, targets, holders, storages = _case(n)
    before = [h._slot for h in holders]
    CHANGES[change](trace, targets[-1], holders[-1])
    state = _state(trace, targets, holders)
    assert not _write(trace, step, targets, storages, before)
    assert _state(trace, targets, holders) == state


def _trained(n: int, together: bool) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    ps = [nn.Parameter(lt.asarray(rng.normal(size=3))) for _ in range(n)]
    optimizers = (
        [optim.SGD(ps, lr=0.1, momentum=0.9)] if together else [optim.SGD([p], lr=0.1, momentum=0.9) for p in ps]
    )
    for k in range(4):
        for p in ps:
            p.grad = None
        lt.stack([(p * p).sum() for p in ps]).sum().backward()
        for o in optimizers:
            o.step()
        if k % 2:
            lt.sync()
    return [p.detach().numpy() for p in ps]


@pytest.mark.parametrize("n", [2, SPELLED // 2 + 1])
def test_one_update_of_many_is_many_updates_of_one(n: int) -> None:
    np.testing.assert_array_equal(_trained(n, True), _trained(n, False))
