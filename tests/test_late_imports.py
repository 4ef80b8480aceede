"""What interrupts an import of a module that is loaded on demand leaves lazyt whole."""

from __future__ import annotations

import subprocess
import sys

import pytest

# argv: the module whose import is interrupted, and what the handler does with its error.
PROGRAM = """
import signal, sys
import lazyt as lt

state = lt.ones(3)
state.tolist()
told = []

def show(*_):
    if how == "interrupt":
        raise KeyboardInterrupt
    try:
        float(sum(lt.sin(state * i) for i in range(60))[0])
        lt.logaddexp2(state, state).tolist()
        told.append("")
    except lt.SyncError as e:
        told.append(str(e))
        if how == "raise":
            raise

class Hook:
    done = False

    def find_spec(self, name, path=None, target=None):
        if name == module and not Hook.done:
            Hook.done = True
            signal.raise_signal(signal.SIGUSR1)

module, how = sys.argv[1:]
signal.signal(signal.SIGUSR1, show)
sys.meta_path.insert(0, Hook())

def program():
    y = lt.ones(3)
    for i in range(300):
        y = lt.sin(y) + i
    return [round(v) for v in lt.logaddexp2(y, y).tolist()]

found = []
for _ in range(3):
    try:
        found.append(program())
    except (lt.SyncError, KeyboardInterrupt) as e:
        found.append(type(e).__name__)
show() if how != "interrupt" else None
print([Hook.done, found, [x and x[x.index(" is needed"):] for x in told]])
"""
MODULES = (
    "lazyt.runtime.backward_route", "lazyt.backends.cpu.code_cache", "llvmlite.binding", "lazyt.functions.special",
)  # fmt: skip


@pytest.mark.parametrize("how", ["catch", "raise", "interrupt"])
@pytest.mark.parametrize("module", MODULES)
def test_an_import_that_is_interrupted_is_made_again(module: str, how: str) -> None:
    out = subprocess.run(
        [sys.executable, "-c", PROGRAM, module, how], capture_output=True, text=True, timeout=120, check=True
    ).stdout  # fmt: skip
    done, found, told = eval(out)
    assert done
    assert found[1:] == [[299] * 3] * 2
    assert found[0] == {"catch": [299] * 3, "raise": "SyncError", "interrupt": "KeyboardInterrupt"}[how]
    if how != "interrupt":
        first, last = told
        assert first.startswith(" is needed, and what interrupts an import (a handler of signals, a finalizer) cannot")
        assert "is being imported just now" in first
        assert last == "", "afterwards it can"


TIMED = """
import random, signal, sys
import lazyt as lt

state = lt.ones(3)
state.tolist()
seed = random.Random(int(sys.argv[1]))

def show(*_):
    try:
        float(sum(lt.sin(state * i) for i in range(60))[0])
    except lt.SyncError:
        pass
    if shows:
        shows.pop()
        signal.setitimer(signal.ITIMER_REAL, seed.uniform(0.001, 0.03))

signal.signal(signal.SIGALRM, show)
for _ in range(6):
    shows = [None] * 10
    signal.setitimer(signal.ITIMER_REAL, seed.uniform(0.001, 0.03))
    y = lt.ones(3)
    for i in range(300):
        y = lt.sin(y) + i
    found = y.tolist()
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert round(found[0]) == 298, found
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(__import__("signal"), "setitimer"), reason="a system without timers")
@pytest.mark.parametrize("seed", range(4))
def test_a_progress_display_in_a_cold_process(seed: int) -> None:
    subprocess.run([sys.executable, "-c", TIMED, str(seed)], timeout=120, check=True)
