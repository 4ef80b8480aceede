"""Loops that are alike but for a schedule: what lazyt remembers of a place gives the bits of the general way."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.autograd import engine
from lazyt.config import general as settings
from lazyt.functions import subscript
from lazyt.runtime import replay, replay_update
from lazyt.testing.choices import choices_of
from lazyt.testing.seeds import Found, kind_of, small_of, try_seed
from lazyt.testing.statements import Failure
from lazyt.tracing import current, record
from tests.support.fuzz.loop_programs import LoopWriter
from tests.support.fuzz.loops import AS_USED, FINE, LOOPS, again_loop, check_loop, is_loop, loop_script
from tests.support.fuzz.shrink_source import shrink_source


def written(seed: int) -> list[str]:
    w = LoopWriter(random.Random(seed).randrange, choices_of(0))
    w.program()
    return w.lines


@pytest.mark.parametrize("seed", [1, 2, 4, 7, 9, 13, 14])
def test_loops_give_the_bits_of_the_general_way(seed: int) -> None:
    lines = written(seed)
    assert is_loop(lines) and lines == written(seed)
    assert check_loop(lines, (AS_USED, FINE)[seed % 2 :][:1]) is None


CHANGED = """
x = data((3, 4), 1)
lo = data((4,), 2)
at = lt.asarray([1])
for k in turns(12):
    see(lt.clip(x * 1, None if k < 5 else lo, 4.0))
    see((x * 1)[None if k < 7 else at, 0])
    see(lt.sum(x * 1, axis=(0, 1) if k < 9 else np.int64(1)))
"""


def test_an_argument_that_changes_its_kind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_loop(CHANGED, (AS_USED,)) is None
    if not settings["calls"] or settings["interpret"]:
        return

    def by_identity(key: Any, known: Any) -> bool:
        return all(k is m or getattr(k, "_slot", k) is m for k, m in zip(key, known, strict=True))

    monkeypatch.setattr(subscript, "_is_tuple", by_identity)
    failure = check_loop(CHANGED, (AS_USED,))
    assert failure is not None and failure.kind == "loops, as used: see" and "line 7, turn 7" in failure.message


def test_programs_have_arguments_that_change_their_kind() -> None:
    texts = ["\n".join(written(seed)) for seed in range(100)]
    for kind in ("None", "np.float32(0.5)", "lt.asarray(0.5)", "data(v.shape, k)", "w[0]", "True", "v * 0.5"):
        assert any(f"({kind} if k" in text for text in texts), kind


# A validation between the steps of a training, in turns that are not always the same.
VALIDATED = """
def f(a, b):
    return a * 2.0 * b
x = param((3,), 1)
y = data((3,), 2)
for k in turns(24):
    f(y, x)
    kept = f(y, x)
    lt.sync()
    with lt.no_grad() if k % 8 > 5 else same():
        z = f(y, x)
        note(z)
        unused = lt.tanh(y)
        if k % 8 > 5: lt.sync()
    see(kept)
finish(x, y, z)
"""


def test_a_way_on_from_another_mode_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_loop(VALIDATED, (AS_USED,)) is None
    monkeypatch.setattr(current, "other_root", lambda tr, mode: tr.pos)
    if not settings["repeat"]:
        return
    lines = VALIDATED.split("\n")
    failure = check_loop(lines, (AS_USED,))
    assert failure is not None and failure.kind == "loops, as used: note" and "requires_grad=False" in failure.message
    found = small_of(LOOPS, 0, lines, failure, lambda x: again_loop(x, failure), 12)
    assert len(found.small) < len(lines) - 2 and not any("finish" in line for line in found.small), found.small
    with pytest.raises(AssertionError, match="requires_grad=False"):
        exec(compile(found.script(), "<script>", "exec"), {"__name__": "script"})
    monkeypatch.undo()
    exec(compile(found.script(), "<script>", "exec"), {"__name__": "script"})


def test_a_value_that_was_let_go_has_no_hook():
    text = """
h = None
hook = on_gradient(h)
retain(h)
note(hook)
"""
    assert check_loop(text, (AS_USED,)) is None


def test_a_hook_that_is_not_called_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
w = param((3,), 1)
hook = None
for k in turns(9):
    if k == 5: hook = w.register_hook(lambda g: g * 2)
    (w * w).sum().backward()
    if k % 2: lt.sync()
finish(w.grad)
"""
    assert check_loop(text, (AS_USED,)) is None

    usual, through = engine._backward_again, engine._through_hooks
    repeated = False

    def again(*args: Any) -> Any:
        nonlocal repeated
        found = usual(*args)
        repeated = found is not None
        return found

    def hooked(meta: Any, h: Any) -> Any:
        return h if repeated else through(meta, h)

    monkeypatch.setattr(engine, "_backward_again", again)
    monkeypatch.setattr(engine, "_through_hooks", hooked)
    failure = check_loop(text, (AS_USED,))
    assert failure is not None and failure.kind == "loops, as used: see"


HELD = """
x = data((3,), 1)
kept = []
for k in turns(12):
    t = x * 2
    if k == 8: kept.append(t)
    t = lt.tanh(t)
    lt.sync()
finish(kept, t)
"""
RETAINED = """
w = param((3,), 1)
for k in turns(9):
    h = w * 2
    if k == 6: retain(h)
    lt.sync()
    h.sum().backward()
    see(h.grad, h)
"""


def test_a_value_that_is_held_for_once_is_found_and_a_record_for_once_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_loop(HELD, (AS_USED,)) is None and check_loop(RETAINED, (AS_USED,)) is None
    if not settings["repeat"] or settings["interpret"]:
        return
    text = replay._text

    def unchecked(*args: Any) -> str:
        return re.sub(r" or count\(results\[dead\d+\]\) > \d+", "", text(*args))

    monkeypatch.setattr(replay, "_text", unchecked)
    failure = check_loop(HELD, (AS_USED,))
    assert failure is not None and failure.kind.endswith("an error of lazyt's own")


def test_an_error_of_lazyts_own_is_a_failure_in_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "x = data((3,), 1)\nfor k in turns(3):\n    try: see(x.sum())\n    except Exception as e: note(e)"
    assert check_loop(text) is None

    def wrong(*_: Any) -> Any:
        return record.slot_of(*(None, None))  # type: ignore[arg-type]

    monkeypatch.setattr(record, "advance", wrong)
    failure = check_loop(text)
    assert failure is not None and failure.kind.endswith("an error of lazyt's own")
    assert check_loop("for k in turns(2):\n    try: [][k]\n    except IndexError as e: note(e)") is None


@pytest.mark.parametrize("trained", [False, True])
def test_a_mistake_of_our_own_is_not_covered_by_the_general_way(trained: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not settings["repeat"] or settings["interpret"]:
        pytest.skip("LAZYT_DEBUG=no-repeat or interpret")
    x = lt.asarray(np.ones(16, np.float32)).requires_grad_(trained)
    wrong: list[Any] = []
    start = itertools.count()
    owner, name = (replay_update.Update, "_run") if trained else (replay.Written, "move")
    usual = getattr(owner, name)

    def moved(*args: Any) -> Any:
        return replay.remember(*wrong) if wrong else usual(*args)

    def line() -> Any:
        k = next(start)
        y = x[k : k + 4] * 2  # another address each time: `move`
        if trained:
            y.sum().backward()
            x.grad = None
        lt.sync()
        return y.tolist()

    monkeypatch.setattr(owner, name, moved)
    want = [line() for _ in range(5)][-1]
    wrong += [None, None, (), ()]
    monkeypatch.setitem(settings, "strict", False)
    assert line() == want
    monkeypatch.setitem(settings, "strict", True)
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'pos'"):
        line()
    wrong.clear()
    lt.sync()  # what was pending still was


def test_other_events_and_errors_that_are_not_caught() -> None:
    assert check_loop("for k in turns(2):\n    note(k)\nraise ValueError('here')") is None
    with pytest.raises(SyntaxError):
        check_loop("for k in turns(2):")
    failure = check_loop("from lazyt.config import general\nnote(general['calls'])", (AS_USED,))
    assert failure is not None and failure.kind == "loops, as used: note" and "line 2, turn -1" in failure.message
    text = "from lazyt.config import general\nfor k in turns(2 + general['calls']): note(1)"
    assert (failure := check_loop(text, (AS_USED,))) is not None and failure.kind == "loops, as used: end"


def test_a_seed_of_a_search_may_be_a_loop() -> None:
    assert kind_of(71) == kind_of(227) == "loops" and kind_of(371) == "loops"
    assert try_seed(71) is None


def test_a_loop_as_a_script() -> None:
    lines = ["for k in turns(2):", "    note('a\\\\n')"]
    exec(compile(loop_script("A loop", lines), "<script>", "exec"), {"__name__": "script"})
    found = Found(1, lines, lines, Failure("loops, as used: see", "see", "differs"))
    assert found.script() == loop_script("Seed 1", lines)


def test_a_program_is_made_small_by_statements_blocks_and_expressions() -> None:
    text = (
        "def f(x):\n    y = x\n    return y\nfor k in turns(20):\n    try:\n        a = f(g(k + 1), 2)\n    except E: b"
    )
    assert shrink_source(text, lambda x: "g(" in x, 5) == "a = g(k)"
    assert shrink_source(text, lambda x: "zzz" in x, 5) == text
    assert shrink_source(text, lambda x: True, 5) == ""  # nothing of the program is needed: a machine too slow, say
