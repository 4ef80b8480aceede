"""The first run of a tiny program: step by step, through plans that programs share, with the bits of any other run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import IndexOutOfRange
from lazyt.ir import bit_exact
from lazyt.runtime import first_run, plan_cache
from lazyt.runtime.first_run import Stepwise
from lazyt.tracing.trace import local


def forget() -> None:
    """Let every program be new."""
    plan_cache._programs.clear()
    local.trace.reset_trie()


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch):
    lt.sync()
    forget()
    monkeypatch.setattr(first_run, "_kinds", {})


def ramp(*shape: int, dtype: str = "float32") -> lt.Tensor:
    return lt.asarray(np.linspace(0.1, 2.0, int(np.prod(shape))).reshape(shape).astype(dtype))


def written(x: lt.Tensor) -> lt.Tensor:
    y = x + 1
    y[0] *= 3
    y.T[0] = 2
    return y


PROGRAMS = {
    "one operand twice": lambda x: x * x + x,
    "scalars": lambda x: (2 * x - 0.5) / 3,
    "rows": lambda x: lt.softmax(x - lt.mean(x, axis=-1, keepdims=True), axis=-1),
    "views": lambda x: (x.T[::-1, 1:] + 1).reshape((-1,)),
    "in place": written,
    "several results": lambda x: sum(lt.split(x, 2, axis=1), lt.zeros(())) if x.shape[1] % 2 == 0 else x,
    "sizes": lambda x: lt.pad(x, ((1, 2), (0, 1))) + lt.ones((x.shape[0] + 3, x.shape[1] + 1)),
    "made of nothing": lambda x: lt.arange(5) * 2,
    "library calls": lambda x: lt.sort(x, axis=0) + lt.cumsum(x, axis=1),
    "complex": lambda x: lt.abs(lt.exp(x * 1j) * (1 + 2j)),
    "a product": lambda x: x @ x.T,
}


@pytest.mark.parametrize("shape", [(3, 4), (1, 6), (0, 2)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_bits_are_those_of_a_plan(name, shape, monkeypatch):
    if name == "in place" and shape[0] < 2:
        shape = (2, 2)
    stepped = PROGRAMS[name](ramp(*shape)).numpy()
    assert isinstance(lt.last_sync().plan, Stepwise)
    monkeypatch.setitem(plan_cache.settings, "tiers", False)
    planned = PROGRAMS[name](ramp(*shape)).numpy()
    assert not isinstance(lt.last_sync().plan, Stepwise)
    assert stepped.dtype == planned.dtype and stepped.shape == planned.shape
    if name == "a product":
        np.testing.assert_allclose(stepped, planned, rtol=1e-6)
    else:
        assert stepped.tobytes() == planned.tobytes()


def test_programs_share_the_plans_of_their_steps(monkeypatch):
    x, y = ramp(5), ramp(5)
    (lt.sin(x) + y).numpy()
    lt.sin(x + y * x).numpy()
    known = {id(p) for ps in first_run._kinds.values() for p in ps}
    # Other programs of the same operations, at another size.
    monkeypatch.setattr(first_run, "build", None)
    x, y = ramp(7), ramp(7)
    (lt.sin(lt.sin(x) + y) * y + x).numpy()
    report = lt.last_sync()
    assert isinstance(report.plan, Stepwise) and report.compiles == 0 and report.kernels == 5
    assert {id(p) for ps in first_run._kinds.values() for p in ps} == known


@pytest.mark.parametrize("join", [lt.stack, lt.concat])
def test_a_list_that_grows_runs_step_by_step_each_time(join):
    found = []
    for i in range(60):
        found.append(ramp(3) * float(i))
        assert join(found).mean().item() == pytest.approx(np.mean([x.numpy() for x in found]), rel=1e-6)
        report = lt.last_sync()
        assert isinstance(report.plan, Stepwise)


def test_dtypes_ranks_and_repeats_tell_steps_apart():
    x = ramp(2, 3)
    for operands in ((x, x), (x, x + 0), (x, 2.0), (x, x[0]), (x.astype("float64"), x), (x > 1, x)):
        (operands[0] * operands[1]).numpy()
        want = operands[0].numpy() * (operands[1] if isinstance(operands[1], float) else operands[1].numpy())
        np.testing.assert_array_equal((operands[0] * operands[1]).numpy(), want)


def test_guards_choose_among_the_plans_of_a_step():
    for n in (1, 3, 1, 4):
        got = (ramp(n) + ramp(1)).numpy()
        np.testing.assert_array_equal(got, ramp(n).numpy() + ramp(1).numpy())
        forget()


def test_the_second_time_it_gets_a_plan():
    def f() -> None:
        (ramp(3) * 2 + 1).numpy()

    f()
    assert isinstance(lt.last_sync().plan, Stepwise) and lt.last_sync().kernels == 2
    f()
    assert not isinstance(lt.last_sync().plan, Stepwise) and lt.last_sync().kernels == 1
    assert "seen again" in lt.last_sync().reason


def test_what_is_not_wanted_does_not_run():
    x = ramp(3)
    y = x + 1
    lt.exp(y)
    y.numpy()
    assert lt.last_sync().kernels == 1


def test_a_report_shows_the_kernels_of_each_operation():
    (lt.exp(ramp(3)) + 1).numpy()
    report = lt.last_sync()
    assert [v.title for v in report.plan_kernels] == ["exp (exp)", "add (add)"] and "2 kernels" in str(report)


@pytest.mark.parametrize("size", [plan_cache.TINY_SIZE, plan_cache.TINY_SIZE + 1])
def test_larger_programs_are_planned(size):
    (lt.ones(size) + 1).numpy()
    assert isinstance(lt.last_sync().plan, Stepwise) == (size == plan_cache.TINY_SIZE)


def test_what_fails_names_its_own_line_though_steps_share_a_plan():
    def first(i):
        return ramp(3)[lt.asarray(i)]

    def second(i):
        return ramp(3)[lt.asarray(i)]

    assert first([1]).tolist() == [ramp(3).tolist()[1]]
    assert isinstance(lt.last_sync().plan, Stepwise)
    kinds = sum(map(len, first_run._kinds.values()))
    for f in (first, second):
        y = f([5])
        line = f.__code__.co_firstlineno + 1
        with pytest.raises(IndexOutOfRange, match=f"index 5 is out of bounds.*test_first_run.py:{line};"):
            y.numpy()
        assert y.is_pending
        del y
    assert sum(map(len, first_run._kinds.values())) == kinds


def test_values_die_with_their_last_reader():
    x = ramp(64, 64)
    y = x
    for _ in range(8):
        y = lt.sin(y)
    lt.memory.reset_peak()
    before = lt.memory.allocated()
    y.numpy()
    assert isinstance(lt.last_sync().plan, Stepwise)
    assert lt.memory.peak() - before <= 2 * x.nbytes + 4096


def test_gradients_are_planned():
    w = lt.tensor([1.0, 2.0], requires_grad=True)
    (w * w).sum().backward()
    assert w.grad.tolist() == [2.0, 4.0]
    assert not isinstance(lt.last_sync().plan, Stepwise)


def test_a_synced_forward_keeps_its_graph():
    w = lt.tensor([1.0, 2.0], requires_grad=True)
    y = (lt.exp(w) * w).sum()
    y.item()
    assert isinstance(lt.last_sync().plan, Stepwise)
    y.backward()
    np.testing.assert_allclose(w.grad.numpy(), np.exp([1, 2]) * np.array([2, 3]), rtol=1e-6)


# What NumPy does the first times, where that has the same bits.


@pytest.fixture
def interpreted(monkeypatch) -> Callable[[], int]:
    """How many steps of the last sync NumPy computed; such steps were never met before."""
    monkeypatch.setitem(plan_cache.settings, "first", True)
    return lambda: lt.last_sync().interpreted


@pytest.mark.parametrize("shape", [(3, 4), (1, 6), (0, 2)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_numpy_gives_the_bits_of_kernels(name, shape, interpreted, monkeypatch):
    if name == "in place" and shape[0] < 2:
        shape = (2, 2)
    got = PROGRAMS[name](ramp(*shape)).numpy()
    assert interpreted() or name in ("a product", "complex")
    monkeypatch.setitem(plan_cache.settings, "first", False)
    forget()
    want = PROGRAMS[name](ramp(*shape)).numpy()
    assert isinstance(lt.last_sync().plan, Stepwise) and not interpreted()
    assert (got.dtype, got.shape, got.tobytes()) == (want.dtype, want.shape, want.tobytes())


def test_a_kind_of_step_that_comes_often_is_compiled(interpreted, monkeypatch):
    monkeypatch.setattr(first_run, "INTERPRETED", 2)
    for n in (3, 4, 5, 6):
        got = (ramp(n) + 0.5).numpy()
        np.testing.assert_array_equal(got, ramp(n).numpy() + np.float32(0.5))
        report = lt.last_sync()
        assert (report.interpreted, report.kernels) == ((1, 0) if n < 5 else (0, 1))
        forget()


def test_a_plan_at_hand_is_taken(interpreted, monkeypatch):
    monkeypatch.setitem(plan_cache.settings, "first", False)
    (ramp(3) * 2 - ramp(3)).numpy()
    monkeypatch.setitem(plan_cache.settings, "first", True)
    forget()
    (ramp(5) * 3).numpy()
    assert interpreted() == 0 and lt.last_sync().kernels == 1


def test_a_report_tells_what_numpy_did_from_kernels(interpreted):
    y = lt.exp(ramp(3) + 1) * 2
    assert "one by one, by NumPy where that has the same bits" in str(y.explain())
    y.numpy()
    report = lt.last_sync()
    assert (report.interpreted, report.kernels, report.launches) == (2, 1, 1)
    assert [v.title for v in report.plan_kernels] == ["exp (exp)"]
    assert "2 steps interpreted by NumPy, 1 kernel in 1 launch" in str(report)
    assert "2 steps interpreted, 1 kernel" in repr(report)
    (ramp(3) - 1).numpy()
    assert lt.last_sync().plan_kernels == [] and "1 step interpreted by NumPy, " in str(lt.last_sync())
    assert "kernel" not in str(lt.last_sync())


def test_what_fails_has_the_words_of_kernels(interpreted):
    x, i = ramp(3), lt.asarray([5])
    y = x[i]
    line = test_what_fails_has_the_words_of_kernels.__code__.co_firstlineno + 2
    with pytest.raises(IndexOutOfRange, match=f"index 5 is out of bounds.*test_first_run.py:{line};"):
        y.numpy()
    assert y.is_pending
    del y
    before = lt.memory.allocated()
    z = x + 1
    lt.memory.set_limit(before)
    try:
        with pytest.raises(lt.OutOfMemory):
            lt.sync()
    finally:
        lt.memory.set_limit(None)
    np.testing.assert_array_equal(z.numpy(), x.numpy() + 1)


def test_a_mistake_of_lazyts_own_is_not_covered(interpreted, monkeypatch):
    def wrong(form, leaves, scalars):
        raise AssertionError("a mistake")

    monkeypatch.setattr(bit_exact.Form, "values", wrong)
    monkeypatch.setattr(first_run, "is_ours", lambda error: True)
    x = ramp(3)
    y = x + 1
    with pytest.raises(AssertionError, match="a mistake"):
        y.numpy()
    monkeypatch.setitem(plan_cache.settings, "strict", False)
    np.testing.assert_array_equal(y.numpy(), x.numpy() + 1)
    assert interpreted() == 0


def test_results_are_in_memory_of_their_own(interpreted):
    x = ramp(4, 3)
    pool, own = type(x._buffer.buffer), x._buffer.address
    rows, same = x[1:3] + 0, x.reshape((12,)) * 1
    half, turned = lt.split(x, 2)[0] + 0, lt.transpose(x) + 0
    lt.sync()
    assert interpreted() > 0
    for y in (rows, same, half, turned):
        assert type(y._buffer.buffer) is pool and y._buffer.address % 64 == 0 and y._buffer.address != own
    x[0] = 9.0
    assert same.numpy()[0] == ramp(4, 3).numpy()[0, 0]


def test_a_process_may_compute_without_compiling():
    code = """
import numpy as np, lazyt as lt
from lazyt.backends.cpu.engine import counters
x = lt.asarray(np.arange(6, dtype="float32").reshape(2, 3))
y = ((x + 1) * 2 - lt.mean(x, axis=0))[::-1, 1:]
assert y.tolist() == [[7.5, 8.5], [1.5, 2.5]] and float(x.max()) == 5.0
assert lt.last_sync().interpreted and not counters.compiles, counters.compiles
"""
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "LAZYT_CACHE_DIR": "", "LAZYT_DEBUG": ""}
    )


def plans_of(program: Callable[[], lt.Tensor]) -> list[int]:
    """How many plans each of three runs makes, of a program that is too large to run step by step."""
    made = []
    for _ in range(3):
        program().numpy()
        made.append(lt.last_sync().plans)
    return made


def test_a_program_with_nothing_to_fuse_is_planned_once():
    x, y = (lt.asarray(np.ones((3, 160, 160), np.float32)) for _ in range(2))
    for program in (lambda: x + y, lambda: x[1:] - y[1:], lambda: lt.sin(x), lambda: x.sum(axis=1)):
        assert plans_of(program) == [1, 0, 0]


def test_a_program_that_fuses_is_planned_again():
    x, y = (lt.asarray(np.ones((3, 160, 160), np.float32)) for _ in range(2))
    for program in (lambda: (x + y) * x, lambda: lt.softmax(x), lambda: lt.exp(x).sum()):
        assert plans_of(program) == [1, 1, 0]


def test_what_numpy_computes_is_not_counted_as_a_plan(monkeypatch):
    monkeypatch.setitem(plan_cache.settings, "first", True)
    x = lt.asarray(np.arange(6.0).reshape(1, 2, 3))
    with lt.expect(plans=0):
        (x * 2.0 - x).numpy()
    assert lt.last_sync().interpreted == 2
    with lt.expect(plans=1):
        (x * 2.0 - x).numpy()


def straight(n: int, seed: int) -> list[lt.Tensor]:
    """Operations in no order that comes again."""
    rng = np.random.default_rng(seed)
    xs = [ramp(16) * float(i) for i in range(4)]
    one = [lt.tanh, lt.abs, lambda x: -x, lambda x: x * 0.5]
    two = [lt.maximum, lambda x, y: x - y, lambda x, y: x * y * 0.1]
    for kind, i, j, to in rng.integers(0, (7, 4, 4, 4), (n, 4)):
        xs[to] = one[kind](xs[i]) if kind < 4 else two[kind - 4](xs[i], xs[j])
    return xs


def test_long_straight_code_of_little_data_compiles_no_kernels_of_its_own() -> None:
    """It is mostly run once. What comes again is planned, and has the same bits."""
    n = plan_cache.LONG_PROGRAM + 100
    first = straight(n, 1)
    lt.sync()
    report = lt.last_sync()
    assert isinstance(report.plan, Stepwise)
    assert report.compiles <= 8
    assert report.plan_time >= 0
    values = [x.numpy() for x in first]
    again = straight(n, 1)
    lt.sync()
    assert not isinstance(lt.last_sync().plan, Stepwise)
    for a, b in zip(values, again, strict=True):
        np.testing.assert_array_equal(a, b.numpy())


def test_a_shorter_program_is_planned() -> None:
    kept = straight(100, 2)
    lt.sync()
    assert not isinstance(lt.last_sync().plan, Stepwise)
    assert kept
