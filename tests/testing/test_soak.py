"""The soak: a process that trains, fails and is interrupted tells its memory and latency, and what is not flat."""

from __future__ import annotations

import io
import signal
import time
from types import SimpleNamespace

import numpy as np
import pytest

import lazyt as lt
from lazyt.testing import soak
from lazyt.testing.__main__ import main
from lazyt.testing.soak import OPTIMIZERS, Interval, Soak, Training, is_at


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_a_twin_takes_the_same_steps(name: str) -> None:
    t = Training(name, 2, 4, 3)
    x, y = t.batch(3)
    t.step(x, y)
    old, twin = t.state(), t.twin()
    assert is_at(twin.state(), old)
    t.step(x, y, every=1)
    twin.step(x, y)
    assert is_at(twin.state(), t.state()) and not is_at(t.state(), old)
    assert not is_at({k: v for k, v in old.items() if k != "parameter 0.weight"}, old)


@pytest.mark.slow
def test_a_soak_tells_each_interval(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGALRM)
    out = io.StringIO()
    s = Soak(2, frozenset(("interrupts", "handlers")), out)
    monkeypatch.setattr(soak, "MEASURED", 2)
    s.growth = list  # type: ignore[method-assign] # two seconds are not flat: plans are made
    assert s.run(0.03, 0.9) == [], out.getvalue()
    lines = out.getvalue().splitlines()
    assert len(lines) >= 2 and "MB; a step p50" in lines[0] and "probes" in lines[0]
    assert lines[-1] == "flat, and nothing wrong"
    assert "in use after a drop" not in lines[0] and all("in use after a drop" in x for x in lines[1:2] if x[0] == "2")
    assert signal.getsignal(signal.SIGALRM) is before
    with pytest.raises(SystemExit):
        main(["soak", "--without", "everything"])
    assert "everything" in capsys.readouterr().err


@pytest.mark.slow
def test_each_disturbance_leaves_the_training_as_it_was() -> None:
    s = Soak(4, out=io.StringIO())
    t = Training("Adam", 1, 8, 1)
    for disturb in (s._errors, s._shapes, s._threads):
        disturb(t)
    s.usual = 100.0  # the signal falls behind the step
    s.rng.random = lambda: 0.9  # type: ignore[method-assign]
    for disturb in (s._interrupted, s._handled):
        disturb(t)
    assert s.did["edges"] == 2 and s.did["interrupted"] == 0


def test_an_interrupt_behind_the_update_is_the_new_step(monkeypatch: pytest.MonkeyPatch) -> None:
    s, t = Soak(4, out=io.StringIO()), Training("momentum", 1, 8, 1)
    usual = t.step

    def step(*args: object, **more: object) -> None:
        usual(*args, **more)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(t, "step", step)
    s.usual = 100.0
    s.rng.random = lambda: 0.9  # type: ignore[method-assign]
    s._interrupted(t)
    assert s.did["interrupted"] == 1 and s.did["edges"] == 1


def test_a_step_that_was_taken_by_half_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    s, t = Soak(4, out=io.StringIO()), Training("SGD", 1, 8, 1)

    def step(*args: object, **more: object) -> None:
        weight = next(iter(t.model.parameters()))
        with soak.lt.no_grad():
            weight += 1
        raise KeyboardInterrupt

    monkeypatch.setattr(t, "step", step)
    s.usual = 100.0
    s.rng.random = lambda: 0.9  # type: ignore[method-assign]
    with pytest.raises(soak.Wrong, match="SGD: neither the old step"):
        s._interrupted(t)


def test_what_is_not_flat_is_wrong() -> None:
    s = Soak(out=io.StringIO())
    times = list(np.full(9, 0.001))
    s.intervals = [Interval(100 << 20, times, times) for _ in range(7)]
    assert s.growth() == []
    s.intervals = [Interval((100 + 20 * k) << 20, times, times) for k in range(7)]
    assert len(s.growth()) == 1 and "memory grows: 170 MB" in s.out.getvalue()  # type: ignore[attr-defined]
    s.intervals = [Interval(100 << 20, times, [t * (1 + k) for t in times]) for k in range(7)]
    assert len(s.growth()) == 1 and "a step takes longer" in s.out.getvalue()  # type: ignore[attr-defined]
    for k, i in enumerate(s.intervals):  # the machine is slower, not the step
        i.yard = [0.002 * (1 + k)]
    assert s.growth() == []


def test_what_a_drop_leaves_must_not_grow() -> None:
    s = Soak(out=io.StringIO())
    times = list(np.full(9, 0.001))
    for more, found in ((100 << 10, 0), (2 << 20, 1)):
        s.intervals = [Interval(100 << 20, times, times, left=(10 << 20) + k * more) for k in range(7)]
        assert len(s.growth()) == found
    assert "what a drop leaves grows: 15.0 MB in use in the second third" in s.out.getvalue()  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("leak", [0, 20_000])
def test_a_leak_of_some_kilobytes_a_program_is_found(leak: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "MEASURED", 1)
    s, leaked, x, now = Soak(out=io.StringIO()), [], lt.asarray(np.ones(8)), [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=time.perf_counter, thread_time=time.thread_time)
    monkeypatch.setattr(soak, "time", clock)  # a round takes a second, so each interval has as many on any machine

    def programs() -> None:
        """A few, met again and again in another order."""
        now[0] += 1.0
        for _ in range(20):
            y = x
            for _ in range(s.rng.randrange(1, 5)):
                y = y * 2.0 + 1.0
            y.numpy()
            leaked.append(bytes(leak) if leak else None)

    monkeypatch.setattr(s, "_round", programs)
    s.run(0.6, 4.0)
    grows = [w for w in s.wrong if "what a drop leaves grows" in w]
    assert len(grows) == (leak > 0), s.out.getvalue()  # type: ignore[attr-defined]


def test_what_a_round_raises_is_reported_with_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    s = Soak(out=io.StringIO())

    def wrong() -> None:
        raise KeyError("a slot")

    monkeypatch.setattr(s, "_round", wrong)
    assert s.run(0.05, 1.0) and "wrong: KeyError: 'a slot'" in s.out.getvalue()  # type: ignore[attr-defined]
    assert "test_soak.py" in s.out.getvalue() and len(s.wrong) == 20  # type: ignore[attr-defined]
