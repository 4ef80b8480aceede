"""Long programs: what nobody reads for a while has the bits of what is synced each turn, and leaves nothing behind."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.runtime import memory
from lazyt.testing.fuzz import Search, Worker, check_apart
from lazyt.testing.seeds import Found, small_of, try_seed
from lazyt.testing.statements import Failure
from tests.support.fuzz import long
from tests.support.fuzz.long import (
    EACH_TURN,
    INTERPRETED,
    LIGHT,
    NUMPY,
    OTHERS,
    again_long,
    check_long,
    is_known,
    is_long,
    long_script,
    ways_of,
)
from tests.support.fuzz.long_programs import FAMILIES, LongWriter
from tests.support.fuzz.shrink_source import shrink_source


def written(seed: int) -> LongWriter:
    w = LongWriter(random.Random(seed).randrange)
    w.program()
    return w


def test_programs_are_drawn_from_their_seed() -> None:
    writers = [written(seed) for seed in range(60)]
    assert {w.family for w in writers} == set(FAMILIES)
    assert all(is_long(w.lines) for w in writers) and writers[3].lines == written(3).lines
    for w in writers:
        compile("\n".join(w.lines), "<program>", "exec")
    assert ways_of(5) == ways_of(5) and ways_of(5)[0] is LIGHT[0]


@pytest.mark.parametrize("seed", [3, *(pytest.param(s, marks=pytest.mark.slow) for s in (6, 11, 14, 92, 104, 109))])
def test_long_programs_have_the_bits_of_each_turn(seed: int) -> None:
    lines = written(seed).lines
    assert check_long(lines, (*LIGHT, INTERPRETED, NUMPY)) is None, "\n".join(lines)


UNREAD = """
x = data((3, 4), 1)
kept = []
for k in unread(40):
    x = xp.tanh(x) * 0.9 + x[::-1] * 0.1
    x[k % 3] *= 0.5
    if k % 7 == 0: kept.append(x[1:])
    if k == 20: gc.collect()
    if k == 21: x = pickle.loads(pickle.dumps(x))
    if k == 30: bad = lt.take(x * 2, lt.asarray([10 ** 6]), axis=0)
    if k == 35: settle()
    fails(lambda: x[99])
finish(x, kept, bad)
"""


@pytest.mark.parametrize(
    "way", [OTHERS[0], *(pytest.param(OTHERS[i], marks=pytest.mark.slow) for i in (3, 5))], ids=str
)
@pytest.mark.slow
def test_what_may_fall_anywhere_changes_nothing(way: long.Way) -> None:
    assert check_long(UNREAD, (way,)) is None


def test_numpy_runs_what_it_has() -> None:
    text = "x = data((3, 4), 1)\nfor k in unread(9):\n    x = xp.tanh(x) + xp.sum(x, axis=0) * 0.1\nfinish(x)"
    events, _ = long.long_events(compile(text, "<program>", "exec"), NUMPY)
    assert isinstance(events[0].values[0], np.ndarray)
    assert check_long(text, (NUMPY,)) is None


@pytest.mark.slow
def test_other_values_of_what_is_unread_are_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
x = data((3, 4), 1)
y = x * 2
for k in unread(30):
    x = x * 0.5 + k
    y = y + 1
finish(x, y)
"""
    usual = long._settle
    settled: list[int] = []

    def settle(*xs: Any) -> None:
        settled.append(1)
        usual(*xs)

    monkeypatch.setattr(long, "_settle", settle)
    assert check_long(text, LIGHT) is None and len(settled) == 30
    run = long.LongRun.data

    def other(self: Any, shape: Any, *args: Any) -> Any:
        return run(self, shape, *args) + (0.0 if self.way is EACH_TURN else 1e-6)

    monkeypatch.setattr(long.LongRun, "data", other)
    failure = check_long(text, LIGHT)
    assert failure is not None and failure.kind == "long, unread: see"
    found = small_of(long.LONG, 0, text.split("\n"), failure, lambda x: again_long(x, failure), 4)
    assert len(found.small) < 7 and "data((3" in "".join(found.small), found.small
    with pytest.raises(AssertionError, match="expected: line"):
        exec(compile(found.script(), "<script>", "exec"), {"__name__": "script"})


def test_memory_that_is_not_let_go_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Any] = []
    monkeypatch.setattr(lt, "sin", lambda x: held.append(x) or x)
    text = "for k in unread(3):\n    x = lt.sin(lt.ones((64, 1024)) + k)\nfinish(x)"
    failure = check_long(text, LIGHT)
    assert failure is not None and failure.kind.endswith(": memory") and "bytes left" in failure.message
    held.clear()
    assert memory.allocated() < 1 << 30


@pytest.mark.slow
def test_an_error_of_lazyts_own_is_found() -> None:
    text = "from lazyt.tracing import lower\nfails(lambda: {}['a slot'])\nfails(lambda: lt.ones(2) + lt.ones(3))"
    assert check_long(text, LIGHT) is None
    failure = check_long(f"{text}\nfails(lambda: lower.lower([None], (), []))", LIGHT)
    assert failure is not None and failure.kind.endswith("an error of lazyt's own")
    with pytest.raises(SyntaxError):
        check_long("for k in unread(3):")


@pytest.mark.slow
def test_a_search_of_long_programs() -> None:
    assert try_seed(8, kind="long") is None
    lines = ["for k in unread(2):", "    note('a\\\\n')"]
    exec(compile(long_script("A program", lines), "<script>", "exec"), {"__name__": "script"})
    found = Found(1, lines, lines, Failure("long, unread: see", "see", "differs"))
    assert found.script() == long_script("Seed 1", lines)


def test_what_is_known_is_counted_and_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    import re

    monkeypatch.setattr(long, "KNOWN", ((re.compile("hints differ"), re.compile("tile"), "an example"),))
    failure = Failure("long, unread: error", "", "hints differ")
    assert is_known(failure, ["x = tile(y)"]) and not is_known(failure, ["x = y"])
    s = Search(1, kind="long", out=io.StringIO())
    s._report(Found(1, ["tile(y)"], ["tile(y)"], failure))
    assert (s.known, s.found) == (1, [])
    s._report(Found(1, ["y"], ["y"], failure))
    assert (s.known, len(s.found)) == (1, 1)


def test_turns_are_tried_in_growing_numbers() -> None:
    tried: list[str] = []

    def fails(text: str) -> bool:
        tried.append(text)
        return "unread(" in text and int(text.split("unread(")[1].split(")")[0]) >= 37

    assert "unread(37)" in shrink_source("for k in unread(300):\n    x", fails, 20)
    assert len(tried) < 150 and any("unread(48)" in text for text in tried)


@pytest.mark.slow
def test_a_long_program_that_hangs_or_dies_tells_where() -> None:
    failure = check_apart(["import time", "def wait():", "    time.sleep(100)", "wait()"], 12, "long")
    assert failure is not None and failure.kind == "hangs" and "in wait" in failure.message
    failure = check_apart(["import os", "def end():", "    os.kill(os.getpid(), 11)", "end()"], 60, "long")
    assert failure is not None and failure.kind == "crashes" and "SIGSEGV" in failure.message
    assert "in end" in failure.message


@pytest.mark.slow
def test_a_process_that_takes_too_much_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazyt.testing.fuzz.GROWS", 1 << 20)
    s = Search(8, kind="long", out=io.StringIO())
    found = s.run(60, most=6)
    assert {f.failure.kind for f in found} == {"memory"} and "MB" in found[0].failure.message


def test_a_worker_tells_its_memory_and_its_log_is_removed() -> None:
    w = Worker("long")
    try:
        assert w.resident() >= 0
        assert Path(w.log).exists()
    finally:
        w.stop()
    assert not Path(w.log).exists() and w.resident() == 0
