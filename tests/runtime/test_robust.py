"""What must survive: long chains, loops without a sync, failures, interrupts at any place, threads."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu import executor
from lazyt.errors import IndexOutOfRange, OutOfMemory
from lazyt.runtime import memory
from lazyt.runtime.sync import counters
from lazyt.tracing import record as recording
from lazyt.tracing.trace import local
from tests.support.interrupt_places import Interrupt


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    memory.set_limit(None)
    local.trace.start()


# --- length ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_long_chain_is_recorded_and_deleted_without_recursion(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # NOTE: a loop ends its trace much sooner.
    monkeypatch.setattr(sys.modules["lazyt.tracing.trace"], "FIRST_BOUND", 1 << 17)
    local.trace.reset_trie()
    x = lt.zeros(2)
    before = counters.syncs
    for _ in range(n):
        x = x + 1
    assert counters.syncs == before and local.trace.pos.index >= n
    del x
    lt.sync()
    assert local.trace.empty


@pytest.mark.slow
def test_a_chain_of_100000_operations_is_synced() -> None:
    x = lt.zeros(2)
    for _ in range(100_000):
        x = x + 1
    assert x.tolist() == [100_000.0, 100_000.0]


def test_a_chain_is_differentiated_without_recursion() -> None:
    w = lt.tensor([1.0, 2.0], requires_grad=True)
    y = w
    for _ in range(sys.getrecursionlimit() + 500):
        y = y + w
    y.sum().backward()
    assert w.grad is not None and w.grad.tolist() == [sys.getrecursionlimit() + 501.0] * 2


def test_a_long_chain_of_views_is_written_through() -> None:
    a = np.arange(4)
    x = lt.asarray(a)
    v, w = x, a
    for i in range(30):
        v, w = (v[::-1], w[::-1]) if i % 2 else (v[...], w[...])
    v[0] += 10
    w[0] += 10
    np.testing.assert_array_equal(x.numpy(), a)


@pytest.mark.slow
def test_a_loop_that_never_syncs_keeps_bounded_memory_and_stops_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_STEPS", 64)
    monkeypatch.setattr(sys.modules["lazyt.tracing.trace"], "FIRST_BOUND", 64)
    local.trace.start()
    x = lt.zeros(1000)
    w = lt.tensor(np.ones(1000, np.float32), requires_grad=True)
    plans, sizes = [], []
    for i in range(120):
        x = x * 0.5 + i
        (w * x).sum().backward()
        with lt.no_grad():
            w -= 0.001 * w.grad
        w.grad = None
        if i % 20 == 19:
            gc.collect()
            plans.append(counters.plans)
            sizes.append((memory.allocated(), local.trace.n_steps))
    assert plans[-1] == plans[1], "planning goes on"
    assert sizes[-1][0] <= sizes[1][0] + 8192 and sizes[-1][1] == sizes[1][1]
    want, y = np.ones(1000), np.zeros(1000)
    for i in range(120):
        y = y * 0.5 + i
        want -= 0.001 * y
    np.testing.assert_allclose(w.detach().numpy(), want, rtol=1e-3)


def test_a_loop_of_leaves_is_cut_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_BYTES", 1 << 16)
    total = lt.zeros(1024)
    before, start, peak = counters.syncs, memory.allocated(), 0
    for i in range(64):
        total = total + lt.asarray(np.full(1024, i, np.float32))
        peak = max(peak, memory.allocated())
    assert counters.syncs > before
    assert peak < start + (3 << 16)
    assert total.tolist()[0] == 2016.0


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_failed_sync_leaves_views_and_writes_as_they_were() -> None:
    x = lt.asarray([1.0, 2.0, 3.0]) * 2
    v = x[1:]
    v += 10
    i = lt.asarray([0, 5]) + 0
    picked = x[i]
    with pytest.raises(IndexOutOfRange, match=r"index 5 is out of bounds for an axis of size 3 .*test_robust.py:\d+"):
        lt.sync()
    assert picked.is_pending and not x.is_pending
    with pytest.raises(IndexOutOfRange, match="index 5"):
        picked.numpy()
    i[1] = -1
    again = x[i]
    assert again.tolist() == [2.0, 16.0]
    assert x.tolist() == [2.0, 14.0, 16.0] and v.tolist() == [14.0, 16.0]


def test_a_negative_index_is_named_as_it_was_given() -> None:
    y = lt.asarray([1, 2, 3])[lt.asarray([-4])]
    with pytest.raises(IndexOutOfRange, match="index -4 is out of bounds"):
        y.numpy()


def test_a_failed_write_at_indices_changes_nothing() -> None:
    x = lt.asarray([1, 2, 3])
    before = x + 0
    x[lt.asarray([0, 3])] = 9
    for compute in (lt.sync, x.tolist, x.tolist):
        with pytest.raises(IndexOutOfRange, match="index 3 is out of bounds"):
            compute()
        assert x.is_pending and before.tolist() == [1, 2, 3]


@pytest.mark.parametrize("limit", [1 << 20, 5 << 20])
def test_no_memory_leaves_gradients_and_writes_pending(limit: int) -> None:
    x = lt.ones((1 << 20,)) + 1
    w = lt.tensor([1.0], requires_grad=True)
    y = lt.cumsum(x) + w
    y.sum().backward()
    with lt.no_grad():
        w += 1
    memory.set_limit(memory.allocated() + limit)
    with pytest.raises(OutOfMemory, match=r"\(its largest array, of 4194304 bytes, is of \w+, recorded at .*robust.py"):
        lt.sync()
    for _ in range(2):
        with pytest.raises(OutOfMemory):
            y.sum()
        assert y.is_pending
    memory.set_limit(None)
    assert float(x[5]) == 2.0 and float(y[2]) == 7.0 and w.tolist() == [2.0]
    assert w.grad is not None and w.grad.tolist() == [float(1 << 20)]


def test_refused_operations_leave_the_program_as_it_was() -> None:
    x = lt.asarray([1.0, 2.0]) * 2
    refused: tuple[Callable[[], Any], ...] = (
        lambda: x + lt.ones(3),
        lambda: x.reshape(5),
        lambda: x[7],
        lambda: x.__setitem__(0, lt.ones(2)),
        lambda: lt.asarray(np.arange(2, dtype=np.uint8)) + 300,
        lambda: x.__iadd__(lt.ones((3, 2))),
        lambda: lt.concat([x, lt.ones((1, 2))]),
        lambda: lt.matmul(x, lt.ones(3)),
        lambda: x.backward(),
    )
    for f in refused:
        with pytest.raises(lt.LazytError):
            f()
    y = x + 1
    assert y.tolist() == [3.0, 5.0] and x.tolist() == [2.0, 4.0]


# --- interrupts ------------------------------------------------------------------------------------------------------


def state(xp: Any) -> dict[str, Any]:
    a = xp.asarray(np.arange(6.0)) * 1.0
    return {"a": a, "v": a[1:4], "b": a * 2, "u": a[::2]}


OPERATIONS: dict[str, Callable[[Any, dict[str, Any]], None]] = {
    "an operation": lambda xp, s: s.update(c=s["a"] + s["b"]),
    "a view": lambda xp, s: s.update(c=s["v"][::-1]),
    "an operation on views": lambda xp, s: s.update(c=s["u"] * s["a"][:3]),
    "in place on a view": lambda xp, s: s["v"].__iadd__(1),
    "in place on a base": lambda xp, s: s["a"].__imul__(3),
    "a write": lambda xp, s: s["a"].__setitem__(0, 5),
    "a write through a view": lambda xp, s: s["v"].__setitem__(slice(1, None), s["a"][:2]),
    "a write at indices": lambda xp, s: s["a"].__setitem__([0, 2], s["b"][:2]),
    "a write under a mask": lambda xp, s: s["a"].__setitem__(s["a"] > 2, 0),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_interrupted_recording_has_happened_or_not(name: str, synced: bool) -> None:
    operation = OPERATIONS[name]
    before, after = state(np), state(np)
    operation(np, after)
    n = 1
    while True:
        # Alternately in a program that is known and in one that is new.
        if n % 2:
            local.trace.reset_trie()
        s = state(lt)
        if synced:
            lt.sync()
        interrupt = Interrupt(n)
        interrupt.run(lambda s=s: operation(lt, s))  # type: ignore[misc]
        got = {k: x.numpy() for k, x in s.items()}
        fits = [
            got.keys() <= want.keys() and all(np.array_equal(got[k], want[k]) for k in got) for want in (before, after)
        ]
        assert any(fits), f"at place {n}: {got}"
        if interrupt.seen < n:
            break
        n += 1 if n < 60 else 7


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("dense", "step"), [(12, 997), pytest.param(100, 11, marks=pytest.mark.slow)])
def test_an_interrupted_sync_leaves_everything_as_it_was(dense: int, step: int) -> None:
    """At the first places of a sync and at every `step`th one; `python -m tests.support.interrupts` tries all."""

    def build() -> dict[str, Any]:
        s = state(lt)
        w = lt.tensor([1.0, 2.0, 3.0], requires_grad=True)
        s["v"] += 1
        s["i"] = s["a"][lt.asarray([0, 2])]
        y = w * w
        (y * s["v"]).sum().backward()
        with lt.no_grad():
            w -= w.grad
        return {**s, "w": w, "g": w.grad, "y": y}

    want = {k: x.detach().numpy() for k, x in build().items()}
    n = 1
    while True:
        s = build()
        interrupt = Interrupt(n)
        interrupt.run(lt.sync)
        for k, x in s.items():
            np.testing.assert_array_equal(x.detach().numpy(), want[k], err_msg=f"{k} at place {n}")
        if interrupt.seen < n:
            break
        n += 1 if n < dense else step


def test_ctrl_c_during_a_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal that arrives while kernels run is raised, and the program can go on."""
    run = executor.Bound.run

    def interrupted(self: Any, *args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.001)
        return run(self, *args)

    x = lt.asarray([1.0, 2.0]) + 1
    x += 1
    # A process that a shell started in the background ignores Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as m:
            m.setattr(executor.Bound, "run", interrupted)
            with pytest.raises(KeyboardInterrupt):
                lt.sync()
    finally:
        signal.signal(signal.SIGINT, before)
    assert x.is_pending and x.tolist() == [3.0, 4.0]


# --- threads ---------------------------------------------------------------------------------------------------------


def in_threads(*functions: Callable[[], object]) -> list[Any]:
    """Run functions in threads of their own; their results, or the first exception."""
    results: list[Any] = [None] * len(functions)

    def call(i: int) -> None:
        try:
            results[i] = functions[i]()
        except BaseException as e:  # noqa: BLE001 - handed to the caller
            results[i] = e

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(functions))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
        assert not t.is_alive(), "a thread hangs"
    for r in results:
        if isinstance(r, BaseException):
            raise r
    return results


def test_threads_record_and_sync_at_once() -> None:
    def work(seed: int) -> Callable[[], bool]:
        def run() -> bool:
            for i in range(30):
                a = np.arange(12.0).reshape(3, 4) + seed
                x = lt.asarray(a)
                v = x[1:, ::2]
                v += i
                y = lt.softmax(x, axis=-1).sum(axis=-1) + (x @ x.T)[0]
                w = a.copy()
                w[1:, ::2] += i
                np.testing.assert_allclose(y.numpy(), 1 + (w @ w.T)[0], rtol=1e-9)
            return True

        return run

    assert in_threads(*(work(s) for s in range(4))) == [True] * 4


def test_a_tensor_pending_in_one_thread_is_read_in_another() -> None:
    x = lt.asarray(np.arange(4.0)) * 2
    v = x[1:]
    later = x + 1

    def read() -> tuple[Any, ...]:
        return x.tolist(), v.tolist(), (x + v[0]).tolist(), lt.sum(v * 2).item()

    (got,) = in_threads(read)
    assert got == ([0.0, 2.0, 4.0, 6.0], [2.0, 4.0, 6.0], [2.0, 4.0, 6.0, 8.0], 24.0)
    # The owner's program goes on as if nothing had been.
    x += 1
    assert later.tolist() == [1.0, 3.0, 5.0, 7.0] and v.tolist() == [3.0, 5.0, 7.0]


def test_the_owner_keeps_the_graph_of_what_another_thread_reads() -> None:
    w = lt.tensor([1.0, 2.0], requires_grad=True)
    y = w * w
    v = y[:1]
    (got,) = in_threads(lambda: (y.detach().tolist(), v.detach().tolist()))
    assert got == ([1.0, 4.0], [1.0])
    (y.sum() + v.sum()).backward()
    assert w.grad is not None and w.grad.tolist() == [4.0, 4.0]


def test_a_leaf_is_differentiated_in_any_thread() -> None:
    w = lt.tensor([1.0, 2.0], requires_grad=True)
    here = (w * 2).sum()

    def there() -> None:
        (w * w).sum().backward()

    in_threads(there)
    here.backward()
    assert w.grad is not None and w.grad.tolist() == [4.0, 6.0]


@pytest.mark.parametrize("begins", ["there", "here"])
def test_gradients_asked_for_in_another_thread(begins: str) -> None:
    for _ in range(4):
        y = lt.ones(3) * 2  # pending here
        if begins == "there":
            in_threads(y.requires_grad_)
            in_threads(lambda y=y: (y * 3).sum().backward())
        else:
            y.requires_grad_()
            in_threads(lambda y=y: y.requires_grad_(False))
        lt.sync()
        assert y.tolist() == [2, 2, 2] and y.is_leaf
        assert y.requires_grad == (begins == "there")
        if y.requires_grad:
            (y * y).sum().backward()
            assert y.grad.tolist() == [7, 7, 7]


def test_what_another_thread_writes_is_seen_here() -> None:
    x = lt.asarray(np.arange(4.0)) * 2
    v = x[1:]
    before = v * 1

    def write() -> None:
        v[0] = 50.0
        x[3] += 1

    in_threads(write)
    x[0] = 7.0
    assert x.tolist() == [7.0, 50.0, 4.0, 7.0] and v.tolist() == [50.0, 4.0, 7.0] and before.tolist() == [2.0, 4.0, 6.0]


@pytest.mark.parametrize("viewed", [False, True])
@pytest.mark.parametrize("trained", [False, True])
def test_what_another_thread_writes_outlives_the_sync_here(viewed: bool, trained: bool) -> None:
    w = lt.ones(4).requires_grad_()
    for k in range(8):  # from the third or fourth time on the sync is repeated
        x = lt.asarray(np.full(4, k, "f4"))
        z = lt.asarray(np.full(4, k, "f4")) * 2
        v = x[:2] if viewed else None
        y = x + z
        if trained:
            (x * w).sum().backward()

        def write(x: Any = x, z: Any = z) -> None:
            x[...] = x * 2 + 1
            z[...] = z + 3

        in_threads(write)
        lt.sync()
        assert y.tolist() == [3 * k] * 4
        assert (x + 0).tolist() == [2 * k + 1] * 4 and z.tolist() == [2 * k + 3] * 4
        assert v is None or v.tolist() == [2 * k + 1] * 2


def test_a_tensor_that_another_thread_views_is_met_anew_after_each_sync() -> None:
    x, y = lt.ones(4), lt.ones(4) + 1
    lt.sync()
    views = in_threads(lambda: x[1:])  # from here on x has a storage, which that thread has met
    for k in range(4):
        # NOTE: x keeps no value of a trace that has ended: the next one goes another way.
        assert (x * 2 if k % 2 else y + x).sum() == (8 if k % 2 else 12)
    assert views[0].tolist() == [1, 1, 1]


def test_a_tensor_pending_in_a_thread_that_is_gone_can_be_read() -> None:
    ((x, v),) = in_threads(lambda: (lambda x: (x, x[1:]))(lt.asarray([1.0, 2.0]) * 3))
    y = x + 1
    v += 10
    assert y.tolist() == [4.0, 7.0] and x.tolist() == [3.0, 16.0]


def test_an_optimizer_updates_what_another_thread_has_met() -> None:
    w, v = lt.ones(4).requires_grad_(), lt.ones(4).requires_grad_()
    optimizer = lt.optim.SGD([w, v], lr=0.5)
    lt.sync()
    for k in range(5):
        views = in_threads(lambda: w.detach()[1:])
        (w * v.detach() + v).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if k % 2:
            lt.sync()
        assert views[0].shape == (3,)
    assert v.tolist() == [-1.5] * 4 and w.tolist() == [1 - 0.5 * (1 + 0.5 + 0 - 0.5 - 1)] * 4


def test_threads_read_a_program_while_it_grows() -> None:
    x = lt.asarray(np.arange(100.0))
    kept = [x + 0]
    stop = threading.Event()
    reading = threading.Barrier(3)

    def read() -> None:
        reading.wait()
        while not stop.is_set():
            i = len(kept) - 1
            assert kept[i].tolist()[1] == 1.0 + i

    def grow() -> None:
        reading.wait()
        for i in range(60):
            kept.append(kept[-1] + 1)
            if i % 7 == 6:
                lt.sync()
        stop.set()

    in_threads(grow, read, read)
    assert kept[-1].tolist()[0] == 60.0


def test_grad_mode_belongs_to_a_thread() -> None:
    w = lt.tensor([1.0], requires_grad=True)
    with lt.no_grad():
        ((inside, enabled),) = in_threads(lambda: ((w * 2).requires_grad, lt.is_grad_enabled()))
        assert inside and enabled and not (w * 2).requires_grad


CROWDED = """
import numpy as np
import lazyt as lt
from lazyt.backends.cpu import engine
from lazyt.config import general

engine.GENERATION_OBJECTS, engine.MAX_OBJECTS, engine.RECOUNT, engine._loader.remaining = 4, 24, 6, 24
general["tiers"] = False  # each program has kernels of its own from the first time on
x, most = lt.asarray(np.arange(6.0)), 0
kept = x * 0.5
for k in range(100):
    y = x
    for bit in range(7):  # another program for each k
        y = lt.exp(y * 0.1) if k >> bit & 1 else lt.sin(y)
    lt.sync()
    assert np.isfinite(y.numpy()).all()
    most = max(most, engine._loader.objects())
assert 24 <= most < 48, most
assert kept.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
"""


@pytest.mark.slow
def test_a_process_drops_code_before_it_has_too_much() -> None:
    # LLVM ends a process that has no mapping of memory left: two are an object's.
    found = subprocess.run([sys.executable, "-c", CROWDED], capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
