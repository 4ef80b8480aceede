"""Interrupts, handlers and faults at sampled places: a step was taken or not, and the thread goes on.

`python -m tests.support.interrupts` tries all places, and real signals.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import random
import signal
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu import engine, memory as pool, parallel_copy
from lazyt.backends.cpu.parallel_copy import FEW, SHARED
from lazyt.backends.cpu.thread_pool import runtime
from lazyt.errors import LazytInternalError
from lazyt.interrupts import uninterrupted
from lazyt.ir.passes import pipeline
from lazyt.runtime import memory, plan, plan_cache
from lazyt.tracing.commit import carry_out, prepared
from lazyt.tracing.inplace import set_items
from lazyt.tracing.trace import local
from tests.support.interrupt_acts import ACTS, refused
from tests.support.interrupt_places import Places, count, pending, places_in, raises
from tests.support.interrupts import (
    OPTIMIZERS,
    WRITES,
    Restoring,
    Run,
    Saving,
    Scenario,
    Searching,
    Training,
    Write,
    scenarios,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    # What a handler does while the function is called may look like the function's doing.
    pytest.mark.filterwarnings("ignore:jit:lazyt.errors.LazytWarning"),
]
SAMPLES = 2


def _try(scenario: Scenario, samples: int, warm: int) -> None:
    run = Run(scenario, warm)
    n = run.places()
    rng = random.Random(scenario.name)
    for act in ACTS:
        if not refused(scenario.name, act):
            for k in sorted(rng.sample(range(1, n + 1), min(n, samples))):
                run.at(k, *ACTS[act])


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("warm", [0, 3])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_step_is_taken_or_not(name: str, warm: int, synced: bool) -> None:
    _try(Training(name, synced), SAMPLES, warm)


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_done_or_not(name: str) -> None:
    _try(Write(name, WRITES[name], False), SAMPLES, 1)


@pytest.mark.parametrize("scenario", [Saving(), Restoring()], ids=lambda s: s.name)
def test_a_state_is_saved_or_loaded_or_not(scenario: Scenario) -> None:
    _try(scenario, 2 * SAMPLES, 1)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_an_iteration_of_lbfgs_is_made_or_not(search: str | None) -> None:
    _try(Searching(search), SAMPLES, 3)


def test_a_handler_syncs_while_a_sync_is_replayed() -> None:
    scenario = Write("an update of views", WRITES["an update of views"], True)
    run = Run(scenario, 3)
    s = run.begin()
    places = places_in("<lazyt again>", lambda: scenario.step(s))
    assert len(places) > 20
    for k in places:
        run.at(k, *ACTS["reads"])


@pytest.mark.parametrize("act", ["keeps", "syncs"])
def test_a_handler_at_each_place_of_expressions(act: str) -> None:
    run = Run(Write("expressions", WRITES["expressions"], True), 3)
    n = run.places()
    assert n > 60
    for k in range(1, n + 1):
        run.at(k, *ACTS[act])


def test_a_function_around_collections_is_no_place() -> None:
    """What is raised in it is dropped, so it would interrupt nothing."""
    calls: list[str] = []

    def around(phase: str, info: dict[str, int]) -> None:
        calls.append(phase)

    def collected() -> int:
        return gc.collect()

    gc.collect()  # finalizers of what other tests left behind have places
    gc.callbacks.append(around)
    try:
        n = count(collected)
        assert n > 0 and not calls
        gc.collect()
        assert calls == ["start", "stop"]
    finally:
        gc.callbacks.remove(around)
    assert n == count(collected)


def test_a_first_compile_is_interrupted() -> None:
    _try(Training("SGD momentum", True), SAMPLES, 0)


@pytest.mark.parametrize(
    "scenario",
    [
        Training("Adam", True),
        *(Write(name, WRITES[name], True) for name in ("a sync that fails", "a write at indices")),
    ],
    ids=lambda s: s.name,
)
def test_each_allocation_of_a_step_fails(scenario: Scenario) -> None:
    run = Run(scenario, 0)
    k = 1
    while run.without_memory(k):
        k += 1
    assert k > 2


def test_an_interrupted_save_raises_the_interrupt(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise ValueError("an open writing handle")

    lt.save({"n": 1}, tmp_path / "w.npz")
    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lt.save({"n": 2}, tmp_path / "w.npz")
    assert lt.load(tmp_path / "w.npz") == {"n": 1} and os.listdir(tmp_path) == ["w.npz"]


def test_a_handler_saves_to_the_file_that_is_being_saved(tmp_path: Any) -> None:
    a, b, path = lt.asarray([1.0] * 9), lt.asarray([2.0] * 9), tmp_path / "w.npz"
    n = count(lambda: lt.save({"w": a}, path))
    for k in random.Random(0).sample(range(1, n + 1), 12):
        Places(k, lambda: lt.save({"w": b}, path)).run(lambda: lt.save({"w": a}, path))
        assert lt.load(path)["w"].tolist() in (a.tolist(), b.tolist())
        assert os.listdir(tmp_path) == ["w.npz"]


@pytest.mark.slow
@pytest.mark.parametrize("warm", [0, 3])
@pytest.mark.parametrize("scenario", [*scenarios()], ids=lambda s: s.name)
def test_every_scenario_at_many_places(scenario: Scenario, warm: int, monkeypatch: Any) -> None:
    # What a scenario sets is as before afterwards.
    monkeypatch.setitem(os.environ, "LAZYT_CACHE_DIR", os.environ.get("LAZYT_CACHE_DIR", ""))
    for name in ("stored", "tiers"):
        monkeypatch.setitem(plan_cache.settings, name, plan_cache.settings[name])
    _try(scenario, 8, min(warm, scenario.warmest))


def test_the_interrupter_finds_what_a_call_divides() -> None:
    class Divided(Scenario):
        name = "two lists"

        def start(self) -> Any:
            return [0], [0]

        def step(self, s: Any) -> None:
            s[0][0] += 1
            lt.is_grad_enabled()
            s[1][0] += 1

        def read(self, s: Any) -> dict[str, Any]:
            return {"a": s[0][0], "b": s[1][0]}

    run = Run(Divided(), 1)
    found = 0
    for k in range(1, run.places() + 1):
        try:
            run.at(k, *ACTS["KeyboardInterrupt"])
        except AssertionError as e:
            found += "neither before nor after" in str(e)
    assert found


def test_an_uninterrupted_function_is_entered_without_a_look_at_signals() -> None:
    class Mark:
        done = False

    @uninterrupted
    def quiet() -> None:
        Mark.done = True
        int("1")

    def late(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, late)
    try:
        with pytest.raises(KeyboardInterrupt):
            _ = -pending or quiet()  # type: ignore[operator]
    finally:
        signal.signal(signal.SIGINT, before)
    assert Mark.done


def test_a_buffer_that_dies_loses_no_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)

    def late(*_: Any) -> None:
        raise KeyboardInterrupt

    held = pool.allocate(1 << 12)
    address, origin = held.address, held._bin

    def die() -> None:
        nonlocal held
        held = -pending  # type: ignore[operator]
        int("1")

    before, used = signal.signal(signal.SIGINT, late), origin.pool._used
    try:
        with pytest.raises(KeyboardInterrupt):
            die()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not lost
    assert origin[-1] == address and origin.pool._used == used - origin.size


def test_a_large_copy_is_interrupted_by_another() -> None:
    a, b = np.arange(SHARED, dtype=np.uint8), np.arange(SHARED, dtype=np.uint8)[::-1].copy()
    before = lt.get_num_threads()
    lt.set_num_threads(2)
    runtime()
    try:
        for _ in range(FEW + 1):
            parallel_copy.copied(a)
        n = count(lambda: parallel_copy.copied(a))
        for k in range(1, n + 1):
            made: list[Any] = []
            places = Places(k, lambda made=made: made.append(parallel_copy.copied(b)))  # type: ignore[misc]
            places.run(lambda made=made: made.append(parallel_copy.copied(a)))  # type: ignore[misc]
            inner, outer = (pool.as_ndarray(x, a.dtype, a.shape) for x in made)
            assert (inner == b).all() and (outer == a).all(), k
            with contextlib.suppress(KeyboardInterrupt):
                Places(k, raises(KeyboardInterrupt)).run(lambda: parallel_copy.copied(a))
            assert not parallel_copy._copier.busy, k
    finally:
        lt.set_num_threads(before)


def test_assignments_are_made_at_once() -> None:
    class Two:
        a = b = 0

    x = Two()
    carry_out(prepared([(x, "a", 1), (x, "b", 2), (x, "a", 3)]))
    assert (x.a, x.b) == (3, 2)
    carry_out(prepared([]))


class Keyed(dict[Any, Any]):
    def __setitem__(self, key: Any, value: Any) -> None:
        raise AssertionError("signals would get in here")


class Listed(list[Any]):
    def __setitem__(self, key: Any, value: Any) -> None:
        raise AssertionError("signals would get in here")


def test_no_container_s_own_method_divides_a_commit() -> None:
    by_key, in_order = Keyed(), Listed([1, 2])
    carry_out(set_items([(by_key, 0, "first"), (in_order, 1, 3), (by_key, 1, "second")]))
    assert (by_key, in_order) == ({0: "first", 1: "second"}, [1, 3])


def test_an_interrupted_load_can_be_repeated() -> None:
    texts = [
        f"define i64 @lazyt_k_interrupted_{n}() {{\n  ret i64 {n}\n}}\n" for n in range(1, 40)
    ]  # fmt: skip
    for n, text in enumerate(texts, 1):
        name = f"lazyt_k_interrupted_{n}"
        places = Places(n, raises(KeyboardInterrupt))
        with contextlib.suppress(KeyboardInterrupt):
            places.run(lambda text=text, name=name: engine.compile_module(text, [name]))  # type: ignore[misc]
        module = engine.compile_module(text, [name])
        assert module.address(name)


PASSES = {
    "lower": plan, "names": plan,
    **dict.fromkeys(("canonicalize", "fuse_bounded", "kernelized", "ordered", "verify"), pipeline),
}  # fmt: skip


def of_lazyt(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, as if a module of lazyt's had it: what it raises is a fault there."""
    return types.FunctionType(function.__code__, {"__name__": "lazyt.injected"}, closure=function.__closure__)


@pytest.mark.parametrize("name", PASSES)
def test_what_a_handler_raises_while_a_pass_runs_is_the_programs(name: str, monkeypatch: Any) -> None:
    class TimeUp(Exception):
        pass

    def handler(*_: Any) -> None:
        raise TimeUp("too slow")

    own = getattr(PASSES[name], name)

    def late(*args: Any, **options: Any) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return own(*args, **options)

    monkeypatch.setitem(plan_cache.settings, "tiers", False)
    monkeypatch.setitem(plan_cache.settings, "verify", True)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        x = lt.asarray([1.0, 2.0, 3.0])
        lt.sync()
        plan_cache._programs.clear()
        local.trace.reset_trie()
        y = lt.tanh(x) * 2.5
        with monkeypatch.context() as m:
            m.setattr(PASSES[name], name, late)
            with pytest.raises(TimeUp, match="too slow"):
                lt.sync()
        assert abs(float(y[0]) - 2.5 * math.tanh(1.0)) < 1e-6
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("error", [KeyError, AssertionError, IndexError, LazytInternalError])
@pytest.mark.parametrize("name", PASSES)
def test_a_fault_of_a_pass_costs_no_thread(name: str, error: type[Exception], monkeypatch: Any) -> None:
    def faulty(*_: Any, **__: Any) -> Any:
        raise error("injected")

    x = lt.asarray([1.0, 2.0, 3.0])
    monkeypatch.setitem(plan_cache.settings, "tiers", False)
    monkeypatch.setitem(plan_cache.settings, "verify", True)
    for turn in range(3):
        lt.sync()
        plan_cache._programs.clear()
        local.trace.reset_trie()  # its steps know plans of their own
        with monkeypatch.context() as m:
            y = lt.tanh(x + turn) * 2.5
            m.setattr(PASSES[name], name, of_lazyt(faulty))
            with pytest.raises(LazytInternalError, match=r"injected.*Please report it"):
                lt.sync()
            assert local.trace.empty
            with pytest.raises(LazytInternalError, match="injected"):
                y.numpy()
        # The fault is gone, and nothing was lost.
        assert y.shape == (3,) and float((x * 2).sum()) == 12.0
        assert abs(float(y[0]) - 2.5 * math.tanh(1.0 + turn)) < 1e-6


@pytest.mark.slow
def test_faults_again_and_again_keep_no_memory(monkeypatch: Any) -> None:
    def faulty(*_: Any, **__: Any) -> Any:
        raise KeyError("injected")

    x = lt.ones((1 << 16,)) * 1
    lt.sync()
    monkeypatch.setattr(plan, "lower", of_lazyt(faulty))
    used: list[int] = []
    for turn in range(12):
        y = x * (turn + 2)
        with pytest.raises(LazytInternalError):
            lt.sync()
        del y
        gc.collect()
        used.append(memory.allocated())
    assert used[-1] <= used[3]
