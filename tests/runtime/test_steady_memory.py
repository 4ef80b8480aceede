"""A steady loop takes no memory from the system, and so no page fault."""

from __future__ import annotations

import gc
import resource
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import IndexOutOfRange
from lazyt.ir.graph import Node
from lazyt.runtime import cache_miss, kept, plan_cache
from lazyt.runtime.replay import counters
from lazyt.tracing import mode, program
from lazyt.tracing.trace import Step, Trace, local
from tests.support.plans import forget

STEPS = 50
# What the interpreter itself may touch meanwhile (a new arena of small objects is 256 pages).
FEW = 300


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def mlp() -> Callable[[], None]:
    model = lt.nn.Sequential(lt.nn.Linear(784, 256), lt.nn.ReLU(), lt.nn.Linear(256, 10))
    optimizer = lt.optim.Adam(model.parameters(), lr=1e-3)
    x, y = lt.asarray(np.ones((128, 784), np.float32)), lt.asarray(np.zeros(128, np.int64))

    def step() -> None:
        optimizer.zero_grad()
        lt.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        lt.sync()

    return step


def large_maps() -> Callable[[], None]:
    x = lt.asarray(np.ones(4 << 20, np.float32))

    def step() -> None:
        y = lt.exp(x) * 2.0
        z = y + x
        lt.sync()
        del y, z

    return step


def in_place() -> Callable[[], None]:
    x = lt.asarray(np.ones((2048, 2048), np.float32)) + 1.0
    lt.sync()

    def step() -> None:
        nonlocal x
        x *= 0.5
        x[:, 3] = 1.0
        lt.sync()

    return step


@pytest.mark.skipif(sys.platform == "win32", reason="resource is of Unix")
@pytest.mark.parametrize("make", [mlp, large_maps, in_place])
def test_a_steady_loop_takes_no_page_fault(make: Callable[[], Callable[[], None]]) -> None:
    step = make()
    for _ in range(8):
        step()

    def taken() -> int:
        before = faults()
        for _ in range(STEPS):
            step()
        return faults() - before

    # What the loop takes it takes every time; what the kernel does besides (pages that it took away before) passes.
    assert min(taken() for _ in range(3)) < FEW


def test_memory_goes_back_when_it_is_asked_for() -> None:
    x = [lt.asarray(np.ones(1 << 20, np.float32)) + float(i) for i in range(8)]
    lt.sync()
    del x
    held = lt.memory.reserved()
    lt.memory.empty_cache()
    assert held - lt.memory.reserved() >= 8 << 22


def steps_known() -> int:
    gc.collect()
    return sum(type(x) is Step for x in gc.get_objects())


def program_and_error(n: int) -> None:
    """A program of n steps more than another, and an error beside it, for which the trie is forgotten."""
    y = lt.asarray(np.ones(8))
    for _ in range(n):
        y = y * 2.0 + 1.0
    wrong = lt.take(y * 2.0, lt.asarray([10**6]), axis=0)
    with pytest.raises(IndexOutOfRange):
        wrong.numpy()
    y.numpy()


@pytest.mark.slow
def test_plans_keep_no_step_of_a_forgotten_trie() -> None:
    local.trace.reset_trie()
    counts = []
    for turn in range(3):
        for n in range(1, 13):
            program_and_error(n + 12 * turn)
        counts.append(steps_known())
    assert counts[2] <= counts[0] + 8, f"steps after 12, 24 and 36 programs: {counts}"


def nodes_known() -> int:
    gc.collect()
    return sum(type(x) is Node for x in gc.get_objects())


@pytest.mark.slow
def test_plans_are_dropped_once_they_have_too_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cache, "budget", kept.Budget(100 * kept.NODE_BYTES))
    local.trace.reset_trie()
    plan_cache._programs.clear()
    counts, x = [], lt.asarray(np.ones(8))
    for n in range(1, 25):
        y = x
        for _ in range(n % 6):
            y = y * 2.0 + float(n)
        for _ in range(n // 6):
            y = lt.tanh(y)
        (y + 1.0).numpy()
        if n % 8 == 0:
            counts.append(nodes_known())
    assert counts[2] < counts[0] + 150, f"nodes after 8, 16 and 24 programs: {counts}"
    assert plan_cache.budget.bound == 100 * kept.NODE_BYTES


@pytest.mark.slow
def test_plans_that_are_used_on_and_on_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cache, "budget", kept.Budget(10 * kept.NODE_BYTES))
    local.trace.reset_trie()
    plan_cache._programs.clear()
    x, made = lt.asarray(np.ones(8)), []
    for _ in range(20):
        before = counters.plans
        for n in range(1, 7):
            y = x
            for _ in range(n):
                y = lt.sin(y) + 1.0
            y.numpy()
        made.append(counters.plans - before)
    assert made[-1] == 0, f"plans made by each turn of the same six programs: {made}"
    assert plan_cache.budget.bound > 10 * kept.NODE_BYTES


def test_a_large_forward_and_its_backward_are_planned_until_they_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cache, "budget", kept.Budget(kept.NODE_BYTES))
    forget()
    w, x, made = lt.asarray(np.full(3, 0.1)).requires_grad_(), lt.asarray(np.ones(3)), []
    for _ in range(6):
        before, y = counters.plans, x
        for _ in range(40):
            y = lt.tanh(y * w)
        loss = y.sum()
        loss.item()
        loss.backward()
        assert w.grad is not None
        w.grad.numpy()
        w.grad = None
        made.append(counters.plans - before)
    assert made[2:] == [0, 0, 0, 0], f"plans made by each turn: {made}"


class Clock(kept.Budget):
    """A budget whose time is told by a test."""

    time = 0.0

    def _now(self) -> tuple[float, float]:  # type: ignore[override]
        return self.time, self.time


def drop(budget: Clock, seconds: float) -> None:
    """So much later, with more than the bound."""
    budget.time += seconds
    budget.made = budget.bound + 1
    budget.drop()


def test_the_bound_is_doubled_where_making_plans_again_takes_much_of_the_time() -> None:
    budget = Clock(10 * kept.NODE_BYTES)
    bounds = []
    for elapsed in (1.0, 1.0, 20.0, 5.0):
        for name in range(8):
            budget.add_plan(name, 1, 0.1)
        drop(budget, elapsed)
        bounds.append(budget.bound // kept.NODE_BYTES)
    assert bounds == [10, 20, 20, 40], (
        "the first drop's plans are new, the third one's are made again in 4 % of the time"
    )


def test_a_process_that_goes_on_meeting_new_programs_keeps_its_bound() -> None:
    """Most of what it makes was there before, but rarely: such a set of programs grows for ever."""
    budget = Clock(10 * kept.NODE_BYTES)
    for turn in range(40):
        for name in range(9):
            budget.add_plan(name, 1, 0.1)
        budget.add_plan(100 + turn, 1, 0.1)
        drop(budget, 30.0)
    assert budget.bound == 10 * kept.NODE_BYTES


def test_a_trace_longer_than_the_bound_is_kept() -> None:
    budget = kept.Budget(10 * kept.STEP_BYTES)
    budget.add_steps(50, 50)
    assert not budget.is_spent()


def test_tries_of_all_threads_are_forgotten_by_a_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the next sync of theirs that is planned, though another thread dropped the plans."""
    monkeypatch.setattr(plan_cache, "budget", kept.Budget(1 << 30))
    asked, done, known = threading.Semaphore(0), threading.Semaphore(0), []

    def work() -> None:
        for n in range(3):
            asked.acquire()
            for m in range(8 if n == 0 else 1):
                y = lt.asarray(np.ones(8))
                for _ in range(m + 1 + 10 * n):
                    y = y + 1.0
                y.numpy()
            known.append(local.trace.n_steps)
            done.release()

    thread = threading.Thread(target=work)
    thread.start()
    for n in range(3):
        asked.release()
        done.acquire()
        if n == 0:
            plan_cache.drop_all()
    thread.join()
    assert known[0] >= 8 and known[1] == 0, f"steps of the thread's trie: {known}"
    assert known[2] > 20, f"the next program is kept: {known}"


def test_a_new_trace_has_nothing_to_forget_of_an_earlier_drop() -> None:
    plan_cache.drop_all()
    tr = Trace()
    assert not plan_cache.drop_plans(tr)
    assert not plan_cache.drop_plans(tr)
    plan_cache.drop_all()
    assert plan_cache.drop_plans(tr)
    assert not plan_cache.drop_plans(tr)


def test_steps_are_forgotten_once_they_have_too_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closure of each iteration's own makes a new program each time, which leads to no plan of a graph."""
    monkeypatch.setattr(plan_cache, "budget", kept.Budget(100 * kept.STEP_BYTES))
    forget()
    most = 0
    for _ in range(150):
        lt.debug.callback(lambda x: None, lt.asarray([1.0]))
        lt.sync()
        most = max(most, local.trace.n_steps)
    assert 50 < most <= 104


def test_what_leads_to_no_known_program_is_looked_for_among_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_miss, "LOOKED_AT", 4)
    forget()
    x = lt.asarray(np.ones(8))
    for n in range(3, 13):
        (x.reshape((1,) * n + (8,)) * 2.0).numpy()
    (start,) = local.trace.root(local.trace.mode).children.values()
    assert len(start.children) > 4
    assert cache_miss._known(start) == list(start.children.values())[-4:]


def in_a_scope(n: int) -> None:
    with lt.library.scoped():
        lt.library.impl("exp", "cpu")(lambda x: n * x)
        assert lt.exp(lt.asarray([1.0])).item() == n


def within_a_budget(n: int) -> None:
    with lt.memory.budget((1 << 30) + n):
        assert (lt.asarray([1.0]) * n).item() == n


@pytest.mark.slow
@pytest.mark.parametrize("under", [in_a_scope, within_a_budget])
def test_modes_that_nobody_asks_for_again_are_forgotten(
    under: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_cache, "budget", kept.Budget(200 * kept.STEP_BYTES))
    monkeypatch.setattr(program, "MAX_NUMBERS", 200)
    monkeypatch.setattr(mode, "MOST_NEAR", 50)
    forget()
    counts = []
    for turn in range(3):
        for n in range(150):
            under(150 * turn + n)
        forget()
        gc.collect()
        counts.append(sum(type(x) is mode.Mode for x in gc.get_objects()))
    assert counts[2] < counts[0] + 100, f"modes after 150, 300 and 450 of them: {counts}"
