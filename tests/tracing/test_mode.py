"""A mode is one object, part of every key: a field that only a test knows tells programs apart in every cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.config import general
from lazyt.runtime import chain, division, first_run, plan_cache
from lazyt.runtime.replay_update import MISSES
from lazyt.tracing.call_cache import in_short
from lazyt.tracing.current import restore_mode, return_to, set_mode, switch_mode
from lazyt.tracing.mode import DEFAULT, Mode
from lazyt.tracing.program import INPUT, MODE
from lazyt.tracing.trace import Step, local


class Tagged(Mode):
    """A mode with one field more."""

    FIELDS = (*Mode.FIELDS, "tag")
    tag: str = ""


@contextmanager
def tagged(tag: str) -> Iterator[None]:
    before = switch_mode(Tagged(**{**local.trace.mode.values, "tag": tag}))
    try:
        yield
    finally:
        return_to(before)


def tag() -> str:
    """The tag of this thread's mode."""
    return str(local.trace.mode.values["tag"])


def ramp(*shape: int) -> lt.Tensor:
    return lt.asarray(np.linspace(0.1, 2.0, int(np.prod(shape))).reshape(shape).astype(np.float32))


# --- the object ----------------------------------------------------------------------------------------------------


def test_equal_modes_are_one_object() -> None:
    assert Mode() is DEFAULT
    assert Mode(grad=False) is DEFAULT.near["grad", False]
    assert Mode(grad=False).near["grad", True] is DEFAULT
    assert Mode(grad=False, device="cuda:1") is Mode(grad=False).near["device", "cuda:1"]
    assert Tagged() is not DEFAULT
    assert Tagged(tag="a").near["grad", False] is Tagged(grad=False, tag="a")


def test_a_way_back_is_known_before_it_is_asked_for() -> None:
    away = DEFAULT.near["device", "cuda:7"]
    assert dict.get(away.near, ("device", "cpu")) is DEFAULT


def test_a_mode_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="grad cannot be set: a mode is immutable"):
        DEFAULT.grad = False
    with pytest.raises(TypeError, match="Mode: no such field: tag"):
        Mode(tag="a")


def test_what_only_recording_reads_is_not_computed_apart() -> None:
    assert Mode(grad=False).computing is DEFAULT
    assert Tagged(grad=False, tag="a").computing is Tagged(tag="a")


# --- switching -----------------------------------------------------------------------------------------------------


def test_contexts_may_end_in_another_order_than_they_began() -> None:
    with tagged("a"):
        x = ramp(3) + 1
        grad, name = set_mode("grad", False), set_mode("tag", "out of order")
        y = x * 2
        restore_mode("grad", grad)
        assert local.trace.mode is Tagged(tag="out of order")
        restore_mode("tag", name)
        assert local.trace.mode is Tagged(tag="a")
        assert [(s.mode.grad, s.mode.values["tag"]) for s in local.trace.pos.steps() if s.op is MODE] == [
            (False, "a"), (False, "out of order"), (True, "out of order"), (True, "a")
        ]  # fmt: skip
        np.testing.assert_array_equal(y, (np.linspace(0.1, 2.0, 3).astype(np.float32) + 1) * 2)
    assert local.trace.mode is DEFAULT


def test_a_change_is_one_step_however_many_fields_it_has() -> None:
    with tagged("a"):
        _x = ramp(3) + 1
        before = switch_mode(Tagged(grad=False, tag="b"))
        (step,) = (s for s in local.trace.pos.steps() if s.op is MODE)
        assert step.mode is Tagged(grad=False, tag="b")
        assert "grad mode off, tag b" in str(lt.pending())
        return_to(before)


# --- every cache ---------------------------------------------------------------------------------------------------


def _by_tag(x: lt.Tensor) -> lt.Tensor:
    return x.sum() if tag() == "a" else x.max()


def _slow(x: Any) -> Any:
    return _by_tag(x)


# A function as `lazyt.sum` is, whose calls are cached: what it records depends on the mode.
cached = in_short("sum", _by_tag, _slow)


def operators(x: lt.Tensor) -> lt.Tensor:
    return x + 1 if tag() == "a" else x * 3


def functions(x: lt.Tensor) -> lt.Tensor:
    return lt.exp(x) if tag() == "a" else lt.sqrt(x)


def calls(x: lt.Tensor) -> lt.Tensor:
    return cached(x) + 1


def writes(x: lt.Tensor) -> lt.Tensor:
    y = x * 1
    if tag() == "a":
        y += 1
    else:
        y[0] = 5
    return y


def views(x: lt.Tensor) -> lt.Tensor:
    y = x * 1
    return (y[1:] if tag() == "a" else y[:-1]) * 2


def without_gradients(x: lt.Tensor) -> lt.Tensor:
    with lt.no_grad():
        return operators(x)


PROGRAMS = [operators, functions, calls, writes, views, without_gradients]


def _own(pos: Step) -> list[Step]:
    return [s for s in pos.steps() if s.op not in (INPUT, MODE)]


@pytest.mark.parametrize("inside", [False, True], ids=["from the root", "within a trace"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_field_tells_programs_apart(program: Callable[[lt.Tensor], lt.Tensor], inside: bool) -> None:
    x = ramp(4, 3)
    lt.sync()
    want: dict[str, Any] = {}
    steps: dict[str, set[Step]] = {"a": set(), "b": set()}
    for turn in range(MISSES + 4):
        for name in "ab":
            with tagged(name):
                start = x + 1 if inside else None
                got = program(x if start is None else start)
                recorded = _own(local.trace.pos)[inside:]
                found = got.numpy()
            assert {s.mode.values["tag"] for s in recorded} == {name}
            steps[name] |= {*recorded}
            assert want.setdefault(name, found.tobytes()) == found.tobytes(), f"turn {turn} in mode {name}"
            assert want["a"] != want[name] or name == "a", "the programs differ"
    assert not steps["a"] & steps["b"]


def test_the_field_is_changed_in_the_middle_of_a_trace() -> None:
    x = ramp(5)
    for _ in range(4):
        with tagged("a"):
            y = operators(x)
            with tagged("b"):
                z = operators(x)
            w = operators(x)
            lt.sync()
        for got, want in ((y, x.numpy() + 1), (z, x.numpy() * 3), (w, x.numpy() + 1)):
            np.testing.assert_array_equal(got, want)


def test_a_replay_is_of_one_mode(replays_on: None) -> None:
    x = ramp(3)
    lt.sync()

    def run() -> Any:
        y = x * 2
        lt.sync()
        return y

    def replayed(name: str) -> bool:
        with tagged(name):
            y = run()
        np.testing.assert_array_equal(y, np.linspace(0.1, 2.0, 3).astype(np.float32) * 2)
        return type(local.trace.report) is tuple

    assert [replayed("a") for _ in range(4)][-1]
    assert not replayed("replay"), "in another mode it is another program"
    assert replayed("a")


@pytest.fixture
def replays_on() -> None:
    """Skips the test where replays are switched off."""
    if not general["repeat"] or general["interpret"]:
        pytest.skip("LAZYT_DEBUG=no-repeat or interpret")


def test_plans_are_of_one_mode() -> None:
    x = ramp(3)

    def sid(mode: Mode) -> int:
        before = switch_mode(mode)
        y = x * 2
        found = local.trace.pos.number
        y.numpy()
        return_to(before)
        return found

    a, b = sid(Tagged(tag="a")), sid(Tagged(tag="b"))
    assert a != b
    assert plan_cache._programs[a] is not plan_cache._programs[b]
    assert sid(Tagged(tag="a")) == a


def test_plans_of_single_steps_are_of_one_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_run, "_kinds", {})
    plan_cache._programs.clear()
    x = ramp(3)

    def kinds(mode: Mode) -> int:
        local.trace.reset_trie()
        before = switch_mode(mode)
        (lt.exp(x) + lt.log(x)).numpy()
        return_to(before)
        return len(first_run._kinds)

    counts = [kinds(Tagged(tag="a")), kinds(Tagged(tag="b")), kinds(Tagged(grad=False, tag="b"))]
    assert counts[1] == 2 * counts[0] == counts[2], "grad changes nothing in what a step computes"


def test_parts_of_long_programs_are_of_one_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "_templates", {})
    monkeypatch.setattr(division, "MIN_WEIGHT", 64)
    x = ramp(9)

    def templates(mode: Mode) -> int:
        before = switch_mode(mode)
        y = x
        for _ in range(64):
            y = lt.tanh(y) + 1
        y.numpy()
        return_to(before)
        return len(chain._templates)

    counts = [templates(Tagged(tag="a")), templates(Tagged(tag="b")), templates(Tagged(grad=False, tag="b"))]
    assert counts[0] > 0
    assert counts[1] == 2 * counts[0] == counts[2], "grad changes nothing in what a step computes"


def test_a_segment_is_recorded_again_in_the_modes_that_it_was_recorded_in() -> None:
    w = lt.tensor([1.0, 2.0], requires_grad=True)
    with tagged("a"):
        y = w * 3
        with tagged("b"):
            z = lt.exp(y) * y
    lt.sync()
    with tagged("c"):
        z.sum().backward()
        found = {s.mode.values["tag"] for s in local.trace.pos.steps() if s.op not in (INPUT, MODE)}
        assert local.trace.mode is Tagged(tag="c")
        assert found == {"a", "b", "c"}
        got = w.grad.numpy()
    v = np.array([3.0, 6.0])
    np.testing.assert_allclose(got, 3 * np.exp(v) * (1 + v), rtol=1e-6)


def test_a_default_device_that_nothing_is_made_on_mixes_no_devices() -> None:
    """Where devices are mixed no sync is replayed and no long program is divided."""
    for _ in range(3):
        y = ramp(3) + 1
        before = switch_mode(Mode(device="cuda:0"))
        z = y * 2
        return_to(before)
        assert any(s.op is MODE for s in local.trace.pos.steps()) and not local.trace.pos.mixed
        np.testing.assert_array_equal(z.numpy(), (ramp(3).numpy() + 1) * 2)
