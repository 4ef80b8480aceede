"""Code that runs in the middle of lazyt, in cold processes: it computes or is refused, and never waits for ever."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lazyt.errors import SyncError
from lazyt.forking import LOADER, POOL, SYNC, Helper, OrderedLock, inner_lock, is_held
from tests.support.interrupt_places import Places

LIMIT = 120  # seconds, of which a process takes a few

SETUP = """
import gc, signal, sys, threading, weakref
import numpy as np, lazyt as lt
MOST = 40  # a trace with all that they record is planned at each
outcomes = {"computed": 0, "refused": 0}
busy = []
def use():
    if busy: return
    busy.append(1)
    try:
        assert float((lt.arange(5) + 1).sum()) == 15
        outcomes["computed"] += 1
    except lt.errors.SyncError:
        outcomes["refused"] += 1
    finally:
        busy.clear()
"""
SIGNALS = """
def handler(*_):
    use()
    signal.setitimer(signal.ITIMER_REAL, 0.002)
def begin():
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.002)
def end():
    signal.setitimer(signal.ITIMER_REAL, 0)
"""
FINALIZERS = """
class Final:
    def __init__(self):
        self.me = self
    def __del__(self):
        use()
def more(phase, info):
    if phase == "stop" and sum(outcomes.values()) < MOST: Final()
def begin():
    gc.callbacks.append(more)
    gc.set_threshold(THRESHOLD, 1, 1)
    Final()
def end():
    gc.callbacks.clear()
    gc.set_threshold(700, 10, 10)
"""
CALLBACKS = """
class Cycle:
    pass
def watch():
    c = Cycle()
    c.me = c
    refs.append(weakref.ref(c, lambda r: (refs.remove(r), use())))
def more(phase, info):
    if phase == "stop" and sum(outcomes.values()) < MOST: watch()
refs = []
def begin():
    gc.callbacks.append(more)
    gc.set_threshold(THRESHOLD, 1, 1)
    watch()
def end():
    gc.callbacks.clear()
    gc.set_threshold(700, 10, 10)
"""
WORK = """
begin()
x = lt.asarray(np.arange(50.) / 50)
for k in range(3):
    w = lt.tensor(np.eye(50) * 0.5, requires_grad=True)
    loss = (lt.tanh(x @ w) @ w).sum() + lt.exp(x * k).max()
    loss.backward()
    assert np.isfinite(float(loss)) and np.isfinite(w.grad.numpy()).all()
end()
"""
THREADS = """
def other():
    for k in range(20):
        float((lt.arange(7.0) * 2 + k).sum()); float(lt.sort(lt.asarray(np.arange(30.0))[::-1] + k)[0])
threads = [threading.Thread(target=other) for _ in range(2)]
for t in threads: t.start()
""" + WORK + """
for t in threads: t.join()
"""  # fmt: skip
END = """
assert sum(outcomes.values()), outcomes
float((lt.arange(5) + 1).sum())
print("finished")
"""
KINDS = {"signals": SIGNALS, "finalizers": FINALIZERS, "callbacks": CALLBACKS}


def finishes(tmp_path: Path, kind: str, work: str, threshold: int) -> None:
    program = SETUP + KINDS[kind].replace("THRESHOLD", str(threshold)) + work + END
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT, check=False,
        env={"LAZYT_CACHE_DIR": str(tmp_path), "PATH": ""},
    )  # fmt: skip
    assert found.returncode == 0 and "finished" in found.stdout, found.stderr[-3000:]


@pytest.mark.parametrize("kind", ["signals", "finalizers"])
def test_a_cold_process_that_is_interrupted_finishes(kind: str, tmp_path: Path) -> None:
    finishes(tmp_path, kind, WORK, 50)


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(6))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("work", [WORK, THREADS], ids=["alone", "threads"])
def test_a_cold_process_that_is_interrupted_everywhere_finishes(
    kind: str, work: str, attempt: int, tmp_path: Path
) -> None:
    finishes(tmp_path, kind, work, 1 if attempt < 2 else 7 * attempt)


def held_elsewhere(lock: OrderedLock) -> tuple[threading.Event, threading.Thread]:
    """A thread that holds a lock until the event is set."""
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            ready.set()
            done.wait(LIMIT)

    t = threading.Thread(target=hold)
    t.start()
    ready.wait(LIMIT)
    return done, t


def test_a_lock_that_comes_before_one_that_is_held_is_not_waited_for() -> None:
    first, second, last = OrderedLock(SYNC), OrderedLock(LOADER), inner_lock(threading.RLock())
    with second, first:  # nobody else has it
        assert is_held(POOL) and not is_held(LOADER + 1)
    done, t = held_elsewhere(first)
    try:
        for inside in (second, last):
            with inside, pytest.raises(SyncError, match="another thread computes, and may wait for"), first:
                pass
        refused: list[bool] = []

        def ask() -> None:
            try:
                with first:
                    pass
            except SyncError:
                refused.append(True)

        helper = Helper(target=ask)
        helper.start()
        helper.join(LIMIT)
        assert refused == [True]
    finally:
        done.set()
        t.join(LIMIT)
    with last, second, first:
        pass


def test_a_lock_that_comes_in_order_is_waited_for() -> None:
    first, second = OrderedLock(SYNC), OrderedLock(LOADER)
    done, t = held_elsewhere(second)
    threading.Timer(0.05, done.set).start()
    with first, second:
        assert done.is_set()
    t.join(LIMIT)


def test_an_interrupt_at_any_place_leaves_no_lock_taken() -> None:
    lock, k = OrderedLock(SYNC), 0

    def interrupt() -> None:
        raise KeyboardInterrupt

    def enter() -> None:
        with lock, lock:
            pass

    while True:
        k += 1
        places = Places(k, interrupt)
        with contextlib.suppress(KeyboardInterrupt):
            places.run(enter)
        assert not lock._is_owned(), places.at
        if places.seen < k:
            break
    assert k > 4
    with lock:
        assert lock._is_owned()
