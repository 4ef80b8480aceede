"""A sync like the last one at its place does the same again, and nothing of it when anything is different."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu.executor import Bound
from lazyt.backends.cpu.flags import switches
from lazyt.config import general as settings
from lazyt.runtime import replay, sync
from lazyt.tracing.steps import hooks
from lazyt.tracing.trace import local

pytestmark = pytest.mark.usefixtures("replays_on")

X = np.arange(1, 9, dtype=np.float32)


def test_a_loop_is_repeated_and_gives_each_result_memory_of_its_own(repeated: list[Any]) -> None:
    x, results = lt.asarray(X), []
    for i in range(8):
        y = (x * float(i) + x).sum() + x
        lt.sync()
        report = lt.last_sync()
        assert report is not None and report.steps == 5 and report.outputs == 1
        results.append(y)
    assert len(repeated) >= 4
    for i, y in enumerate(results):
        np.testing.assert_allclose(y.numpy(), (X * i + X).sum() + X, rtol=1e-6)


def test_a_leaf_that_only_dead_values_read_is_none_of_the_plan() -> None:
    x, other = lt.asarray(X), lt.asarray(X + 1)
    for i in range(5):
        y = x * float(i)
        x + other
        lt.sync()
        np.testing.assert_array_equal(y.numpy(), X * i)


def test_the_bits_are_those_of_the_general_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[np.ndarray]:
        x, out = lt.asarray(X), []
        for i in range(6):
            x = lt.sin(x) * (1.0 + i) + lt.exp(-x)
            lt.sync()
            out.append(x.numpy())
        return out

    with_it = run()
    monkeypatch.setitem(settings, "repeat", False)
    for a, b in zip(with_it, run(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_other_values_held_are_another_sync(repeated: list[Any]) -> None:
    x = lt.asarray(X)
    for i in range(12):
        a = x + 1.0
        b = a * 2.0
        if i % 3 == 2:
            del a
        lt.sync()
        np.testing.assert_array_equal(b.numpy(), (X + 1) * 2)
        if i % 3 != 2:
            np.testing.assert_array_equal(a.numpy(), X + 1)


def test_sizes_that_come_in_turn_have_a_replay_each(repeated: list[Any]) -> None:
    for i in range(24):
        if i == 12:
            repeated.clear()
        x = X[: 4 + i % 3]
        y = lt.asarray(x) * 3.0
        lt.sync()
        np.testing.assert_array_equal(y.numpy(), x * 3)
    assert len(repeated) == 12 and len({*map(id, repeated)}) == 3


def test_steps_of_two_batch_sizes_have_a_replay_each() -> None:
    w = lt.tensor(X.copy(), requires_grad=True)
    want = X.copy()
    optimizer = lt.optim.SGD([w], lr=0.1)
    for i in range(24):
        x = np.ones((5 + 3 * (i % 2), 8), np.float32)
        optimizer.zero_grad()
        (lt.asarray(x) * w).sum().backward()
        optimizer.step()
        pos = local.trace.pos
        lt.sync()
        want -= np.float32(0.1) * np.float32(len(x))
        np.testing.assert_allclose(w.detach().numpy(), want, rtol=1e-5)
    assert pos.again and len(pos.again.by_extents) == 2


def test_replays_of_a_step_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "EXTENTS", 3)
    for i in range(60):
        y = lt.asarray(np.ones(10 + i % 7, np.float32)) - 3
        pos = local.trace.pos
        lt.sync()
        np.testing.assert_array_equal(y.numpy(), np.full(10 + i % 7, -2, np.float32))
        assert not pos.again or len(pos.again.by_extents) <= 3


@pytest.mark.parametrize("what", ["a view", "a write", "a written leaf", "indices", "a scalar"])
def test_views_writes_indices_and_scalars_are_repeated(what: str, repeated: list[Any]) -> None:
    x = lt.asarray(X)
    for i in range(7):
        y = x * 2.0
        want = X * 2
        if what == "a view":
            v = y[1:]
            v += 1.0
            want[1:] += 1
        elif what == "a write":
            y += 1.0
            want += 1
        elif what == "a written leaf":
            x += 1.0
        elif what == "indices":
            y = y[lt.asarray(np.arange(7, -1, -1))]
            want = want[::-1]
        else:
            y = y * i + 0.5
            want = want * i + 0.5
        lt.sync()
        np.testing.assert_array_equal(y.numpy(), want + 2 * i * (what == "a written leaf"))
    assert repeated
    np.testing.assert_array_equal(x.numpy(), X + 7 * (what == "a written leaf"))


def test_no_function_is_written_where_a_graph_is_kept(repeated: list[Any]) -> None:
    w = lt.asarray(X).requires_grad_()
    for _ in range(6):
        y = (w * 2.0).detach()
        z = w * 3.0
        lt.sync()
        np.testing.assert_array_equal(y.numpy(), X * 2)
    z.sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), np.full(8, 3.0))
    assert not repeated


def test_places_of_slices_may_move(repeated: list[Any]) -> None:
    x = lt.asarray(X)
    for i in range(12):
        y = x[i % 4 : i % 4 + 3] * 2.0 + x[i % 8]
        lt.sync()
        np.testing.assert_array_equal(y.numpy(), X[i % 4 : i % 4 + 3] * 2 + X[i % 8])
    assert len(repeated) >= 8


def test_a_wrong_index_is_refused_and_all_stays_pending(repeated: list[Any]) -> None:
    x = lt.asarray(X)
    for i in range(8):
        y = (x + 1.0)[lt.asarray(np.array([0, 7 + (i == 6)]))]
        if i == 6:
            with pytest.raises(lt.IndexOutOfRange, match="index 8 is out of bounds"):
                lt.sync()
            assert y.is_pending
            with pytest.raises(lt.IndexOutOfRange):
                y.numpy()
        else:
            lt.sync()
            np.testing.assert_array_equal(y.numpy(), [2, 9])
    assert repeated


def test_a_leaf_that_results_could_overwrite_is_left_while_somebody_holds_it(repeated: list[Any]) -> None:
    values = np.arange(1 << 15, dtype=np.float32)
    x = lt.asarray(values)
    for _ in range(6):
        y = x * 2 + 1
        lt.sync()
        np.testing.assert_array_equal(y.numpy(), values * 2 + 1)
        np.testing.assert_array_equal(x.numpy(), values)
    n = len(repeated)
    assert n >= 3
    y = x * 2 + 1
    del x
    lt.sync()
    report = lt.last_sync()
    assert len(repeated) == n and report is not None and report.in_place == int(switches["donate"])
    np.testing.assert_array_equal(y.numpy(), values * 2 + 1)


def test_a_line_of_many_small_leaves_is_repeated(repeated: list[Any]) -> None:
    leaves = [lt.asarray(X + k) for k in range(5)]
    for i in range(6):
        y = leaves[0] * leaves[1] + leaves[2] * leaves[3] + leaves[4] * float(i)
        lt.sync()
        np.testing.assert_array_equal(y.numpy(), X * (X + 1) + (X + 2) * (X + 3) + (X + 4) * i)
    assert len(repeated) >= 3


def test_small_and_large_leaves_at_one_place_have_their_own_extents(repeated: list[Any]) -> None:
    small, large, other = (np.arange(n, dtype=np.float32) for n in (10, 5000, 12))
    for i in range(24):
        x = (small, small, large, small, other, large)[i % 6]
        y = lt.asarray(x) + 1.0
        assert y.shape == x.shape
        lt.sync()
        np.testing.assert_array_equal(y.numpy(), x + 1)


def test_a_leaf_that_is_written_and_dropped_is_not_computed() -> None:
    for _ in range(4):
        x, y = lt.asarray(X), lt.asarray(X) * 2.0
        x += 1.0
        del x
        lt.sync()
        report = lt.last_sync()
        assert report is not None and report.outputs == 1
        np.testing.assert_array_equal(y.numpy(), X * 2)


def test_sizes_that_are_new_each_time_are_not_kept(monkeypatch: pytest.MonkeyPatch, repeated: list[Any]) -> None:
    made: list[Any] = []

    class Counted(replay.Written):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(replay, "Written", Counted)
    for n in [*range(10, 20), 15, 15, 15]:
        y = lt.asarray(np.ones(n, np.float32)) * 3
        lt.sync()
        np.testing.assert_array_equal(y.numpy(), np.full(n, 3, np.float32))
    assert len(made) <= 3 and len(repeated) >= 1


def test_what_numpy_computes_is_repeated(repeated: list[Any]) -> None:
    rng = np.random.default_rng(0)
    for _ in range(7):
        a = rng.random((4, 4)) + np.eye(4) * 4
        x = lt.asarray(a)
        order, inverse = lt.argsort(x, axis=0), lt.linalg.inv(x)
        lt.sync()
        np.testing.assert_array_equal(order.numpy(), np.argsort(a, axis=0))
        np.testing.assert_allclose(inverse.numpy(), np.linalg.inv(a))
    assert repeated
    x = lt.asarray(np.zeros((4, 4)))
    order, inverse = lt.argsort(x, axis=0), lt.linalg.inv(x)
    with pytest.raises(np.linalg.LinAlgError):
        lt.sync()
    assert inverse.is_pending


def test_large_results_that_numpy_returns_are_repeated(repeated: list[Any]) -> None:
    rng = np.random.default_rng(0)
    for _ in range(7):
        a = rng.random((96, 96)) + np.eye(96) * 96  # so large that its memory is taken over, not copied
        inverse = lt.linalg.inv(lt.asarray(a))
        lt.sync()
        np.testing.assert_allclose(inverse.numpy(), np.linalg.inv(a))
    assert repeated


def test_nothing_held_is_repeated_and_reported(repeated: list[Any]) -> None:
    x = lt.asarray(X)
    for _ in range(5):
        part = x[2:]
        lt.sync()
        np.testing.assert_array_equal(part.numpy(), X[2:])
    report = lt.last_sync()
    assert repeated and report is not None and report.plan is None and "nobody held a result" in str(report)


def test_who_lets_go_of_a_leaf_after_it_was_repeated_gives_it_away(repeated: list[Any]) -> None:
    large = np.arange(1 << 15, dtype=np.float32)
    x = lt.asarray(large) * 1
    lt.sync()
    kept: list[Any] = []
    for i in range(12):
        kept = [x] if i < 6 else []  # the same line: repeated while the old value is held elsewhere
        x = x + 1.0
        lt.sync()
        if switches["donate"]:
            report = lt.last_sync()
            assert report is not None and (report.in_place == 0) == (i < 6)
        for old in kept:
            np.testing.assert_array_equal(old.numpy(), large + i)
        np.testing.assert_array_equal(x.numpy(), large + i + 1)


def test_memory_is_used_again_once_nobody_refers_to_it(repeated: list[Any]) -> None:
    x, seen, values, arrays = lt.asarray(X), [], [], []
    for i in range(30):
        y = x * float(i)
        lt.sync()
        seen.append(y._buffer.address)
        if i % 3 == 0:
            values.append((i, y))
        elif i % 3 == 1:
            arrays.append((i, y.numpy()))
    assert len(set(seen)) < len(seen), "what was dropped had its memory used again"
    for i, y in values:
        np.testing.assert_array_equal(y.numpy(), X * i)
    for i, a in arrays:
        np.testing.assert_array_equal(a, X * i)


def test_temporaries_of_runs_that_take_turns_lie_in_one_place() -> None:
    x, w, v = (lt.asarray(np.random.default_rng(k).standard_normal((9, 9)).astype(np.float32)) for k in range(3))
    programs = [lambda x: lt.tanh(x @ w) @ v, lambda x: (lt.exp(-x @ v) @ w).sum()]
    expected = [[f(x * k).numpy() for k in (1, 2)] for f in programs]
    arenas = []
    for _ in range(5):
        arenas.clear()
        for f, (once, twice) in zip(programs, expected, strict=True):
            a, b = f(x * 1), f(x * 2)
            lt.sync()
            report: Any = local.trace.report
            arenas += [report[0].arena] if type(report) is tuple else []
            np.testing.assert_array_equal(a.numpy(), once)
            np.testing.assert_array_equal(b.numpy(), twice)
    assert len(arenas) == 2 and arenas[0] is arenas[1] is not None


def test_a_pending_reader_keeps_the_memory_that_it_reads(repeated: list[Any]) -> None:
    x = lt.asarray(X)
    for i in range(9):
        y = x * float(i)
        lt.sync()
        late = y + 1.0
        del y
        y = x * float(i + 100)
        lt.sync()
        np.testing.assert_array_equal(late.numpy(), X * i + 1)
        np.testing.assert_array_equal(y.numpy(), X * (i + 100))


def test_a_report_names_the_line_that_synced(repeated: list[Any]) -> None:
    x = lt.asarray(X)

    def one(again: bool) -> Any:
        y = x + 1.0
        if again:
            lt.sync()
        else:
            lt.sync()
        return y

    lines = []
    for i in range(12):
        y = one(i % 2 == 0)  # noqa: F841 - held
        report = lt.last_sync()
        assert report is not None and report.site is not None and report is lt.last_sync()
        lines.append(report.site.line)
    assert repeated and set(lines[::2]) == {lines[0]} and set(lines[1::2]) == {lines[0] + 2}


def test_a_view_made_of_a_leaf_or_a_result_afterwards_is_seen() -> None:
    x = lt.asarray(X)
    for i in range(8):
        y = x + 1.0
        if i > 5:
            part = y[2:]
        lt.sync()
        y -= 1.0
        np.testing.assert_array_equal(y.numpy(), X)
        if i > 5:
            np.testing.assert_array_equal(part.numpy(), X[2:])
    lt.sync()
    base = lt.asarray(X)
    for i in range(6):
        view = base[1:]  # noqa: F841 - base and view share a storage from here on
        z = base * 2.0
        lt.sync()
        base[0] = float(i)
        np.testing.assert_array_equal(z.numpy()[1:], X[1:] * 2)


def test_no_memory_is_said_by_the_general_way(monkeypatch: pytest.MonkeyPatch, repeated: list[Any]) -> None:
    x = lt.asarray(X)
    for _ in range(5):
        y = x * 5.0
        lt.sync()
    assert repeated
    y = x * 5.0  # noqa: F841 - held
    gc.collect()  # nothing of an earlier test's may make room below the limit
    lt.memory.set_limit(lt.memory.allocated())
    try:
        with pytest.raises(MemoryError):
            lt.sync()
    finally:
        lt.memory.set_limit(None)
    lt.sync()


def test_no_sync_and_expect_hold(repeated: list[Any]) -> None:
    x = lt.asarray(X)
    for _ in range(6):
        y = x / 2.0
        with pytest.raises(lt.SyncError), lt.no_sync():
            lt.sync()
        with lt.expect(syncs=1, kernels=1):
            lt.sync()
        np.testing.assert_array_equal(y.numpy(), X / 2)


def test_a_trace_in_another_mode_does_not_lead_on_from_the_last_sync() -> None:
    x = lt.asarray(X).requires_grad_()
    y = lt.asarray(X)

    def line(a: Any) -> Any:
        return a * 2.0

    for k in range(24):
        line(y)
        kept = line(y)
        lt.sync()
        if k % 8 > 5:
            with lt.no_grad():
                assert not line(x).requires_grad
                lt.sync()
        else:
            z = line(x)
            assert z.requires_grad
            z.sum().backward()
            np.testing.assert_array_equal(x.grad.numpy(), np.full(8, 2))
            x.grad = None
        np.testing.assert_array_equal(kept.numpy(), X * 2)


def test_eager_mode_computes_each_operation_of_a_line_that_was_repeated() -> None:
    x, y = lt.asarray(X), lt.asarray(X + 1)

    def line() -> list[Any]:
        return [
            x + y,
            x * 2.0,
            -x,
            lt.exp(x),
            lt.maximum(x, y),
            lt.minimum(x, 3.0),
            lt.sum(x, axis=0),
            x[1:],
            x[[0, 2]],
        ]

    for _ in range(6):
        values = line()
        lt.sync()
    with lt.eager():
        for _ in range(6):
            for now, then in zip(line(), values, strict=True):
                assert not now.is_pending
                np.testing.assert_array_equal(now.numpy(), then.numpy())


def test_integers_that_no_word_holds_go_the_general_way() -> None:
    x = lt.asarray(np.arange(4, dtype=np.uint64))
    for value in [1, 2, 3, 4, (1 << 64) - 1, 5, 1 << 63]:
        y = x | value
        lt.sync()
        np.testing.assert_array_equal(y.numpy(), np.arange(4, dtype=np.uint64) | np.uint64(value))


def test_one_buffer_behind_two_tensors_and_one_tensor_at_two_places() -> None:
    x = lt.asarray(X)
    y = x.detach()
    for i in range(9):
        a, b = (x, y) if i % 3 else (x, x)
        z = a * 2.0 + b
        lt.sync()
        np.testing.assert_array_equal(z.numpy(), X * 3)


def test_host_data_is_met_where_it_stands_among_operands() -> None:
    x = lt.asarray(X)
    for i in range(8):
        y = lt.maximum(X + i, x) + lt.where(X > 3, x, [float(i)] * 8)
        with lt.expect(plans=0) if i > 3 else lt.enable_grad():
            lt.sync()
        np.testing.assert_array_equal(y.numpy(), np.maximum(X + i, X) + np.where(X > 3, X, np.float32(i)))


@pytest.mark.parametrize("again", [False, True])
def test_a_view_that_another_thread_makes_during_the_sync(again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    computed, inside, viewed = threading.Event(), threading.Event(), threading.Event()
    monkeypatch.setitem(settings, "repeat", again)
    lt.sync()
    local.trace.reset_trie()  # what was remembered has the native call as it was then
    x = lt.asarray(X)
    views: list[Any] = []
    compute, program, give = hooks.compute_foreign, Bound.launch_only, sync.compute

    def then_wait(holder: Any) -> Any:
        data = compute(holder)
        computed.set()
        assert inside.wait(10)
        return data

    def looked_at(*args: Any) -> None:
        if threading.current_thread() is threading.main_thread() and not viewed.is_set() and computed.is_set():
            inside.set()
            viewed.wait(0.2)  # in vain the general way: there the view waits until the values are behind their tensors

    def running(bound: Any) -> Any:
        launch = program(bound)

        def launched(bases: Any) -> None:
            looked_at()
            launch(bases)

        return launched

    def computing(*args: Any) -> Any:
        looked_at()
        return give(*args)

    def view(y: lt.Tensor) -> None:
        views.append(y[2:4])
        viewed.set()

    monkeypatch.setattr(hooks, "compute_foreign", then_wait)
    monkeypatch.setattr(Bound, "launch_only", running)
    monkeypatch.setattr(sync, "compute", computing)
    for i in range(8):
        y = x * (i + 1.0)
        if i == 6:
            other = threading.Thread(target=view, args=(y,))
            other.start()
            assert computed.wait(10)
        lt.sync()
        if i == 6:
            other.join()
            np.testing.assert_array_equal(views[0].numpy(), (X * 7)[2:4])
            kept = y
    y = x * 100.0
    np.testing.assert_array_equal(kept.numpy(), X * 7)
    np.testing.assert_array_equal((kept + y).numpy(), X * 107)


def test_long_traces_have_a_function_and_many_results_have_none(repeated: list[Any]) -> None:
    x, want = lt.asarray(X), X.copy()
    for _ in range(150):
        want = want * np.float32(0.5) + np.float32(1)
    for _ in range(5):
        y = x
        for _ in range(150):
            y = y * 0.5 + 1.0
        lt.sync()
        np.testing.assert_array_equal(y.numpy(), want)
    assert len(repeated) >= 2
    del repeated[:]
    for i in range(4):
        results = [x + float(k + i) for k in range(replay.MOST + 1)]
        lt.sync()
        np.testing.assert_array_equal(results[-1].numpy(), X + np.float32(replay.MOST + i))
    assert not repeated


def test_a_long_trace_whose_middle_is_held_is_another_sync(repeated: list[Any]) -> None:
    x = lt.asarray(X)
    for i in range(8):
        y, middle, before = x, None, len(repeated)
        for k in range(40):
            y = y + 1.0
            if k == 20 and i == 6:
                middle = y
        lt.sync()
        assert middle is None or len(repeated) == before
        np.testing.assert_array_equal(y.numpy(), X + 40)
        if middle is not None:
            np.testing.assert_array_equal(middle.numpy(), X + 21)
    assert repeated


def test_threads_that_run_one_program_wait_for_each_other() -> None:
    """A program divided among threads lets the interpreter go while it runs: others may come to it meanwhile."""
    a = np.linspace(0, 1, 400_000, dtype=np.float32)
    start, failed = threading.Barrier(4), list[BaseException]()

    def work(i: int) -> None:
        try:
            x = lt.asarray(a)
            start.wait(10)
            for _ in range(300):
                y = x * 2.0 + float(i)
                lt.sync()
            np.testing.assert_array_equal(y.numpy(), a * 2 + np.float32(i))
        except BaseException as e:  # noqa: BLE001 - told below, in the test's own thread
            failed.append(e)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not failed
