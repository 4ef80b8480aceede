"""Long traces are divided into parts: the bits of the whole, and no more plans than there are different parts."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn, optim
from lazyt.config import general
from lazyt.errors import IndexOutOfRange, SyncError
from lazyt.runtime import division
from lazyt.tracing.steps import hooks
from lazyt.tracing.trace import local

Arrays = list[Any]


def rows(*shape: int, seed: int = 0, dtype: Any = np.float32) -> lt.Tensor:
    return lt.asarray(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


# --- programs that nobody reads for `turns` iterations ---------------------------------------------------------------


def recurrence(turns: int) -> Arrays:
    x, w, xs = lt.zeros((4, 16)), rows(16, 16) * 0.2, rows(8, 4, 16, seed=1)
    for i in range(turns):
        x = lt.tanh(x @ w) + xs[i % 8]
    return [x]


def row_kernels(turns: int) -> Arrays:
    x = rows(6, 10)
    for _ in range(turns):
        p = lt.softmax(x, axis=-1)
        x = x - 0.1 * (p - 0.1) + lt.std(x, axis=-1, keepdims=True)
    return [x]


def heat(turns: int) -> Arrays:
    a = rows(12, 12)
    for i in range(turns):
        a[1:-1, 1:-1] = a[1:-1, 1:-1] + 0.1 * (a[2:, 1:-1] + a[:-2, 1:-1] - 2.0 * a[1:-1, 1:-1])
        a[i % 12] *= 0.5
    return [a, a[3]]


def many_results(turns: int) -> Arrays:
    x, kept = rows(5), []
    for i in range(turns):
        x = x * 0.99 + float(i)
        y = lt.exp(-lt.abs(x))
        _unread = y.sum()
        if i % 7 == 0:
            kept.append(y.max())
    return [x, *kept]


def inner_loops(turns: int) -> Arrays:
    x, w = rows(3, 8), rows(8, 8) * 0.1
    for _ in range(turns // 4):
        for _ in range(3):
            x = x + lt.relu(x @ w)
        x = x / (1.0 + lt.abs(x).max())
    return [x]


def two_loops(turns: int) -> Arrays:
    x = rows(9)
    for _ in range(turns):
        x = lt.sin(x) * 1.5 + 0.1
    y = x.cumsum(0)
    for i in range(turns):
        y = lt.sqrt(lt.abs(y)) - float(i % 3) * x
    return [x, y]


def numbers(turns: int) -> Arrays:
    lt.random.seed(3)
    x = lt.zeros(4)
    for _ in range(turns):
        x = x * 0.9 + lt.random.normal(size=(4,))
        x = lt.where(x > 0, x, x * 0.5)
    return [x]


def trained(algorithm: Callable[[Any], Any]) -> Callable[[int], Arrays]:
    def train(turns: int) -> Arrays:
        lt.random.seed(0)
        net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        opt = algorithm(net.parameters())
        x, y = rows(10, 6), lt.asarray(np.arange(10) % 3)
        total: Any = 0.0
        losses = []
        for i in range(turns // 4):
            loss = nn.functional.cross_entropy(net(x * (1.0 + i % 2)), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total = total + loss.detach()
            if i % 5 == 0:
                losses.append(loss)
        return [total, *(v.detach() for v in losses), *(p.detach() for p in net.parameters())]

    return train


def by_hand(turns: int) -> Arrays:
    w, b = rows(5, 5).requires_grad_(), lt.zeros(5).requires_grad_()
    x = rows(7, 5, seed=2)
    for i in range(turns // 4):
        loss = lt.square(lt.tanh(x @ w + b) - 0.5).mean()
        loss.backward()
        if i % 3 == 2:
            with lt.no_grad():
                for p in (w, b):
                    p -= 0.1 * p.grad
                    p.grad = None
    return [w.detach(), b.detach(), *(p.grad for p in (w, b) if p.grad is not None)]


def curvature(turns: int) -> Arrays:
    x = rows(6)
    for _ in range(turns // 8):
        slope = lt.grad(lambda v: lt.square(lt.grad(lambda u: (lt.sin(u) * u).sum())(v)).sum())(x)
        x = x - 0.1 * slope.detach()
    return [x]


def begun_in_the_last(turns: int) -> Arrays:
    v, x = rows(6).requires_grad_(), rows(3, 6, seed=1)
    e = x
    for _ in range(turns):
        e = v * x
        x = lt.tanh(x) * 0.9 + lt.abs(e.detach()) * 0.1
    (e.sum() * 2.0).backward()
    assert v.grad is not None
    return [x, v.grad]


PROGRAMS: dict[str, Callable[[int], Arrays]] = {
    "recurrence": recurrence,
    "row kernels": row_kernels,
    "heat": heat,
    "many results": many_results,
    "inner loops": inner_loops,
    "two loops": two_loops,
    "random numbers": numbers,
    "SGD": trained(lambda p: optim.SGD(p, lr=0.1)),
    "momentum": trained(lambda p: optim.SGD(p, lr=0.1, momentum=0.9)),
    "Adam": trained(lambda p: optim.Adam(p, lr=0.01)),
    "updates by hand": by_hand,
    "second derivatives": curvature,
    "a backward through the last": begun_in_the_last,
}


def whole(program: Callable[[int], Arrays], turns: int, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the program gives where each trace is one program."""
    with monkeypatch.context() as m:
        m.setitem(general, "partition", False)
        out = [x.numpy() for x in program(turns)]
        lt.sync()
        return out


@pytest.fixture
def eager_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short programs are divided as long ones are."""
    for name, value in (("MIN_WEIGHT", 30), ("MIN_TRAINING_WEIGHT", 30), ("PART_WEIGHT", 8)):
        monkeypatch.setattr(division, name, value)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("eager_parts")
def test_parts_give_the_bits_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = PROGRAMS[name]
    local.trace.reset_trie()
    expected = whole(program, 96, monkeypatch)
    # NOTE: where a trace is divided is remembered by its last step.
    local.trace.reset_trie()
    # NOTE: from the fourth time on they run as one.
    for _ in range(6):
        found = program(96)
        lt.sync()
        report = lt.last_sync()
        assert report.parts > 3
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a.numpy(), b)


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n != "two loops"])
@pytest.mark.usefixtures("eager_parts")
def test_more_turns_are_more_parts_and_no_more_plans(name: str) -> None:
    plans = {}
    for turns in (168, 336):
        local.trace.reset_trie()
        with lt.expect() as seen:
            _kept = PROGRAMS[name](turns)
            lt.sync()
        plans[turns] = sum(r.parts for r in seen.reports), max(len(r.ran) for r in seen.reports)
    (few, of_few), (many, of_many) = plans[168], plans[336]
    assert many > 1.5 * few > 8
    assert of_many <= of_few + 2 < 12


@pytest.mark.usefixtures("eager_parts")
def test_a_part_that_fails_leaves_everything_pending_and_names_its_line() -> None:
    table, x, wrong = rows(5, 4), lt.zeros(4), lt.asarray([0, 9]) + 0
    for i in range(60):
        x = x * 0.5 + lt.tanh(x)
        if i == 40:
            y = lt.take(table, wrong, axis=0)  # the line that fails
            x = x + y[0]
    with pytest.raises(IndexOutOfRange, match=r"index 9 is out of bounds.*test_subprograms.py:\d+"):
        x.numpy()
    assert x.is_pending
    z = table * 2.0
    np.testing.assert_array_equal(z.numpy(), table.numpy() * 2)


@pytest.mark.usefixtures("eager_parts")
def test_extents_may_change_from_trace_to_trace() -> None:
    w = rows(6, 6) * 0.3
    for n in (3, 4, 1, 7, 3):
        x = start = rows(n, 6, seed=n)
        expected = start.numpy()
        for _ in range(40):
            x = lt.tanh(x @ w) + x
            expected = np.tanh(expected @ w.numpy()) + expected
        np.testing.assert_allclose(x.numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("eager_parts")
def test_a_value_that_is_kept_can_be_differentiated_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(turns: int) -> Arrays:
        w = rows(5, 5).requires_grad_()
        x = rows(3, 5)
        for _ in range(turns):
            x = lt.tanh(x @ w)
        loss = x.sum()
        lt.sync()
        loss.backward()
        assert w.grad is not None
        return [loss.detach(), w.grad]

    expected = whole(program, 40, monkeypatch)
    local.trace.reset_trie()
    for a, b in zip(program(40), expected, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)


@pytest.mark.usefixtures("eager_parts")
def test_what_would_run_is_explained_by_kinds_of_parts() -> None:
    # Parts that were never run before would run a kernel an operation.
    _known = row_kernels(20)
    lt.sync()
    local.trace.reset_trie()
    x = row_kernels(20)[0]
    found = lt.explain(x)
    text = str(found)
    assert "parts of a long trace, by" in text
    assert found.launches > len(found.kernels) > 0
    assert found.peak > 0
    lt.sync()
    report = lt.last_sync()
    assert f"{report.parts} parts of a long trace" in text
    assert len(report.plan_kernels) <= 2 * len(found.kernels)
    assert f"{report.parts}, by" in str(report)


def test_gradients_of_a_few_batches_are_one_program() -> None:
    w = rows(8, 8).requires_grad_()
    for _ in range(4):
        lt.square(rows(4, 8) @ w).mean().backward()
    lt.sync()
    assert lt.last_sync().parts == 0


# --- the bound on a trace ---------------------------------------------------------------------------------------------


def loop(turns: int) -> lt.Tensor:
    x, w = rows(4, 4), rows(4, 4) * 0.1
    for _ in range(turns):
        x = lt.tanh(x @ w) + x
    return x


def test_a_loop_that_nobody_reads_ends_its_trace_between_two_iterations() -> None:
    with lt.expect() as seen:
        x = loop(20_000)
        x.numpy()
    causes = [r.cause for r in seen.reports]
    assert set(causes[:-1]) == {"bound"}
    assert 5 < len(causes) < 20
    # One more plan at most than for the first two: a trace begins with a leaf, then with what the last one left.
    assert not any(r.plans for r in seen.reports[4:-1])
    assert all(r.steps < 5000 for r in seen.reports)
    # Of an iteration's values one is wanted behind it, and the first trace has the weights.
    assert [r.outputs for r in seen.reports] == [2] + [1] * (len(causes) - 1)


@pytest.fixture
def early_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traces of some hundred steps are asked whether they go round a loop."""
    monkeypatch.setattr(sys.modules["lazyt.tracing.trace"], "FIRST_BOUND", 256)
    lt.sync()
    # NOTE: steps that are known are taken without a question.
    local.trace.reset_trie()


@pytest.mark.usefixtures("early_bound", "eager_parts")
def test_a_short_bound_ends_a_loop_too() -> None:
    with lt.expect() as seen:
        loop(200)
    assert [r.cause for r in seen.reports] == ["bound", "bound"]


def write_a_row(x: lt.Tensor, i: int) -> None:
    x[i % 8] = 2.5


def write_two_rows(x: lt.Tensor, i: int) -> None:
    v = x[1:]
    v[i % 7] = x[i % 8] * 0.5
    v += 1


def write_a_leaf(x: lt.Tensor, i: int) -> None:
    x += lt.asarray(np.full(8, i, np.float32))  # an input each time, which no iteration counts
    x[0] = x[1] * 0.5


@pytest.mark.usefixtures("early_bound", "eager_parts")
@pytest.mark.parametrize("write", [write_a_row, write_two_rows, write_a_leaf], ids=lambda f: f.__name__)
def test_a_loop_whose_iterations_begin_inside_of_calls_ends_its_trace(write: Any, monkeypatch: Any) -> None:
    asked: list[int | None] = []
    ask = hooks.iteration_left
    monkeypatch.setattr(hooks, "iteration_left", lambda tr: [asked.append(ask(tr)), asked[-1]][-1])
    x = rows(8) * 1
    with lt.expect() as seen:
        for i in range(400):
            write(x, i)
    causes = [r.cause for r in seen.reports]
    assert len(causes) > 2
    assert set(causes) == {"bound"}
    assert len(asked) <= 4 * len(causes)


@pytest.mark.usefixtures("early_bound", "eager_parts")
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize("fresh", [False, True], ids=["one batch", "fresh batches"])
@pytest.mark.parametrize("more", range(4))
def test_training_that_nobody_reads_ends_its_traces_at_the_first_bound(optimizer: str, fresh: bool, more: int) -> None:
    """Wherever in an iteration it is asked first: between the loss and its backward too."""
    found = []
    for every in (0, 10):
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
        with lt.no_grad():
            for i, p in enumerate(model.parameters()):
                p[...] = lt.asarray(np.cos(np.arange(p.size, dtype=np.float32) + i).reshape(p.shape))
        opt = getattr(optim, optimizer)(model.parameters(), lr=1e-2)
        x, y = rows(8, 4) * 1, rows(8, 2) * 1
        for _ in range(more):  # moves where in an iteration the bound falls
            x = x * 1.0
        with lt.expect() as seen:
            for i in range(120):
                if fresh:
                    x = lt.asarray(np.sin(np.arange(32, dtype=np.float32) + i).reshape(8, 4))
                opt.zero_grad()
                loss = lt.square(model(x) - y).mean()
                loss.backward()
                opt.step()
                if every and i % every == every - 1:
                    loss.item()
        if not every:
            assert {r.cause for r in seen.reports} == {"bound"}
            assert max(r.steps for r in seen.reports) < 256 + 64
        found.append([p.detach().numpy() for p in model.parameters()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("early_bound", "eager_parts")
def test_a_loop_whose_graph_is_needed_keeps_its_trace() -> None:
    w = rows(4, 4).requires_grad_()
    with lt.expect() as seen:
        h = rows(4, 4)
        for _ in range(300):
            h = lt.tanh(h @ w)
        h.sum().backward()
    assert not seen.reports
    assert w.grad is not None and w.grad.shape == (4, 4)


@pytest.mark.usefixtures("early_bound", "eager_parts")
def test_what_is_no_loop_is_recorded_on() -> None:
    x = rows(4)
    functions = [lt.sin, lt.cos, lt.tanh, lt.exp, lt.abs, lt.negative, lt.square, lt.arctan]
    chosen = itertools.cycle(np.random.default_rng(0).permutation(8 * 61) % 8)
    with lt.expect() as seen:
        for _ in range(300):
            x = functions[next(chosen)](x * 0.5)
    assert not seen.reports
    lt.sync()


@pytest.mark.usefixtures("early_bound", "eager_parts")
def test_no_trace_ends_by_itself_where_syncs_are_forbidden() -> None:
    with lt.no_sync():
        x = loop(200)
        with pytest.raises(SyncError, match="a sync is not allowed here"):
            x.numpy()
    assert np.isfinite(x.numpy()).all()


@pytest.mark.usefixtures("early_bound", "eager_parts")
def test_no_trace_ends_by_itself_while_a_value_can_be_differentiated() -> None:
    w = rows(4, 4).requires_grad_()
    x, calls = rows(2, 4), []
    with lt.expect() as seen:
        for _ in range(200):
            x = lt.tanh(x @ w) + 0.5
        x.register_hook(calls.append)
        x.sum().backward()
    assert not seen.reports
    assert w.grad is not None
    assert np.isfinite(w.grad.numpy()).all()
    assert len(calls) == 1


def test_a_backward_whose_leaves_are_gone_is_a_step_without_results() -> None:
    x, kept = lt.ones((4, 8)), []
    for i in range(80):
        lt.nn.Linear(8, 8)(x).sum().backward()  # nobody has the layer any more
        x = lt.tanh(x + 1)
        kept.append((x * float(i)).sum())
    expected, y = [], np.ones((4, 8), np.float32)
    for i in range(80):
        y = np.tanh(y + 1)
        expected.append((y * np.float32(i)).sum())
    np.testing.assert_allclose(lt.stack(kept).numpy(), expected, rtol=1e-5)
