"""Children forked while other threads work: what those hold at that moment nobody in the child releases."""

from __future__ import annotations

import ast
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends import plugins, registry
from lazyt.backends.cpu import code_cache, memory
from lazyt.forking import cached_property
from lazyt.library import scope
from lazyt.runtime import plan_cache
from lazyt.tracing import mode, program

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
SECONDS = 20  # after which a child that waits for ever is ended
SOURCES = Path(lt.__file__).parent


@pytest.fixture(autouse=True)
def _often() -> Iterator[None]:
    """Threads take turns after every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_child(work: Callable[[], bool]) -> bool:
    """Whether `work` is true in a forked child; an error or an endless wait there is False."""
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)  # faulthandler waits for a thread, which is not here
        try:
            os._exit(0 if work() else 1)
        except BaseException:  # noqa: BLE001 - a child never returns into the test's process
            traceback.print_exc()
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


def beside(hold: Callable[[Callable[[], None]], None], work: Callable[[], bool]) -> bool:
    """Whether `work` is true in a child that is forked while another thread is within `hold`, where it calls `stay`."""
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        inside.set()
        leave.wait()

    thread = threading.Thread(target=hold, args=(stay,))
    thread.start()
    try:
        assert inside.wait(SECONDS)
        return in_child(work)
    finally:
        leave.set()
        thread.join()


def a_new_program() -> bool:
    """Whether a program that nobody recorded before has NumPy's values, with a mode and a scope of its own."""
    x = np.arange(12.0).reshape(3, 4)
    t = lt.tensor(x, requires_grad=True)
    with lt.memory.budget("1 GiB"), lt.library.scoped():
        lt.library.impl(lt.exp, "cpu")(lambda v: 2 * v)
        y = (lt.exp(t) * 7.125 + t[1, ::2].sum()).sum(axis=0)
    y.sum().backward()
    return bool(
        np.allclose(y.detach().numpy(), (2 * x * 7.125 + x[1, ::2].sum()).sum(axis=0)) and t.grad.shape == (3, 4)
    )


@pytest.mark.parametrize(
    "lock",
    [
        mode._lock,
        program._lock,
        scope._lock,
        plan_cache._lock,
        code_cache._lock,
        registry._lock,
        plugins._lock,
        memory._pool._lock,
    ],
    ids=["mode", "program", "scope", "plan_cache", "code_cache", "registry", "plugins", "memory"],
)
def test_a_child_computes_whatever_lock_another_thread_holds(lock: threading.RLock) -> None:
    def hold(stay: Callable[[], None]) -> None:
        with lock:
            stay()

    assert beside(hold, a_new_program)
    assert lock.acquire(timeout=SECONDS), "the parent's is as it was"
    lock.release()


def test_a_child_computes_an_attribute_that_another_thread_computes() -> None:
    class Steps:
        def __init__(self, stay: Callable[[], None] | None) -> None:
            self.stay = stay

        @cached_property
        def count(self) -> int:
            """How many."""
            if self.stay is not None:
                self.stay()
            return 3

    assert beside(lambda stay: Steps(stay).count == 3 or None, lambda: Steps(None).count == 3)
    steps = Steps(None)
    assert "count" not in vars(steps) and steps.count == 3 and vars(steps)["count"] == 3
    assert Steps.count.__doc__ == "How many."


def test_no_lock_of_the_process_stays_held_in_a_child() -> None:
    """Each is a `process_lock`, or is dealt with by its owner's `after_fork`; none is `functools.cached_property`'s."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        tree = ast.parse(path.read_text())
        found += [
            f"{name}: {ast.unparse(node)}"
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            and node.value is not None
            and ast.unparse(node.value).startswith(("threading.Lock(", "threading.RLock(", "OrderedLock("))
        ]
        found += [
            f"{name}: {ast.unparse(node)}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            and node.module == "functools"
            and any(a.name == "cached_property" for a in node.names)
            and name != "forking.py"
        ]
    # A fork waits for it: what is computed, and who holds it, is whole in the child.
    assert found == ["tracing/trace.py: holding = OrderedLock(SYNC)"]


def test_a_child_forked_among_writers_computes() -> None:
    x = lt.zeros(40)
    done = threading.Event()

    def write(i: int) -> None:
        k = 0
        while not done.is_set():
            k += 1
            x[i * 10 : (i + 1) * 10] = float(k)

    def read() -> bool:
        v = x.numpy().reshape(4, 10)
        x[:5] = 7.0
        return bool((v == v[:, :1]).all() and x[:5].tolist() == [7.0] * 5)

    writers = [threading.Thread(target=write, args=(i,)) for i in range(2)]
    for t in writers:
        t.start()
    try:
        assert [in_child(read) for _ in range(3)] == [True] * 3
    finally:
        done.set()
        for t in writers:
            t.join()
