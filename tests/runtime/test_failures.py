"""What goes wrong at a sync is said at the user's line, and leaves everything as it was."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.ir.dtypes import LARGEST
from lazyt.runtime import computing, plan_cache, sync


@pytest.fixture
def no_limit():
    yield
    lt.memory.set_limit(None)


def test_an_index_out_of_range_from_data_names_its_line_and_the_rest_is_computed():
    i = lt.asarray([1, 5])
    q = lt.arange(3)[i]
    w = lt.ones(3) + 1
    dependent = q * 2
    with pytest.raises(
        lt.IndexOutOfRange, match=r"indexing: index 5 is out of bounds .*\(recorded at .*test_failures\.py"
    ):
        lt.sync()
    assert q.is_pending
    assert dependent.is_pending
    assert not w.is_pending
    with lt.no_sync():
        assert w.tolist() == [2.0, 2.0, 2.0]
    lt.sync()  # what failed was said, and is said again only to whoever wants it
    assert (w + 1).tolist() == [3.0, 3.0, 3.0]
    for want in (q.numpy, dependent.numpy, lambda: q + 1, lambda: q[0], q.numpy):
        with pytest.raises(
            lt.IndexOutOfRange, match=r"indexing: index 5 is out of bounds .*\(recorded at .*test_failures\.py"
        ):
            want()


def test_a_sync_for_one_value_does_not_raise_for_another():
    x = lt.arange(4)
    bad, good = x[lt.asarray([9])], x[lt.asarray([2])]
    singular = lt.linalg.inv(lt.zeros((2, 2)))
    view = bad[:1]
    assert (x + 1).tolist() == [1, 2, 3, 4]
    assert good.tolist() == [2]
    for _ in range(2):
        with pytest.raises(np.linalg.LinAlgError, match=r"^linalg\.inv: Singular matrix \(recorded at .*test_failures"):
            singular.numpy()
    assert (x * 2).tolist() == [0, 2, 4, 6]
    for want in (bad.numpy, view.numpy):
        with pytest.raises(lt.IndexOutOfRange, match="index 9"):
            want()
    with pytest.raises(lt.IndexOutOfRange, match="index 9"):
        bad += 1


@pytest.mark.parametrize("loss", [lt.nn.functional.cross_entropy, lt.nn.functional.nll_loss])
@pytest.mark.parametrize("target", [-1, -5, 4])
def test_a_target_that_is_no_class_is_named_as_it_was_given(loss, target):
    x = lt.zeros((2, 4), dtype="float32").requires_grad_()
    y = loss(x, lt.asarray([0, target]))
    y.backward()
    for want in (y.detach(), x.grad):
        with pytest.raises(lt.IndexOutOfRange, match=rf"{loss.__name__}: target {target} is out of bounds for 4 cl"):
            want.numpy()


def test_a_write_that_fails_fails_whoever_reads_it():
    x = lt.arange(4) * 1
    before = x + 1
    x[lt.asarray([7])] = 0
    assert before.tolist() == [1, 2, 3, 4]
    with pytest.raises(lt.IndexOutOfRange, match="index 7"):
        x.tolist()


def test_a_gradient_that_fails_leaves_other_programs_alone():
    w = lt.tensor([1.0, 2.0], requires_grad=True)
    v = lt.tensor([3.0], requires_grad=True)
    (w[lt.asarray([5])] * v).sum().backward()
    other = v.detach() + 1
    assert other.tolist() == [4.0]
    for x in (w, v):
        with pytest.raises(lt.IndexOutOfRange, match="index 5"):
            x.grad.numpy()


def test_a_plan_that_others_recorded_too_names_the_line_that_failed():
    def first(i):
        return lt.arange(3)[lt.asarray(i)]

    def second(i):
        return lt.arange(3)[lt.asarray(i)]

    for f in (first, second, first, second):
        assert f([1]).tolist() == [1]
    assert lt.last_sync().plan_hit
    for f in (first, second, first):
        with pytest.raises(lt.IndexOutOfRange, match=rf"test_failures\.py:{f.__code__.co_firstlineno + 1};"):
            f([4]).numpy()


def test_out_of_memory_leaves_everything_pending(no_limit):
    gc.collect()  # nothing of an earlier test's may make room below the limit
    lt.memory.set_limit(lt.memory.allocated() + 1000)
    x = lt.zeros((1000, 1000)) + 1
    with pytest.raises(lt.OutOfMemory, match="asked for 4000000 bytes"):
        lt.sync()
    assert x.is_pending
    lt.memory.set_limit(None)
    assert x.sum().item() == 1e6


def test_an_impossible_size_is_out_of_memory():
    x = lt.zeros((1 << 22, 1 << 22)) + 1
    with pytest.raises(MemoryError, match="out of memory"):
        lt.sync()
    assert x.shape == (1 << 22, 1 << 22)


def test_planning_without_memory_is_out_of_memory_too(monkeypatch):
    def none(*_, **__):
        raise MemoryError

    x = lt.arange(7.0) + 1
    with monkeypatch.context() as m:
        m.setattr(computing, "find_plan", none)
        with pytest.raises(lt.OutOfMemory, match=r"numpy\(\): no memory is left; what was pending still is"):
            x.numpy()
    assert x.is_pending
    assert x.tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_an_interrupted_sync_can_be_retried():
    def interrupt(*_):
        raise KeyboardInterrupt

    a = lt.asarray(np.ones((1500, 1500), np.float32))
    lt.sync()
    before = signal.signal(signal.SIGALRM, interrupt)
    gc.disable()  # what is raised inside a collector's callback is lost
    try:
        b = a @ a
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - whichever sync the signal falls into
            for _ in range(1000):
                b = b @ a * 1e-3
                lt.sync()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    assert b.shape == (1500, 1500)
    assert float(b[0, 0]) > 0
    assert float((lt.ones(3) * 2).sum()) == 6


def test_an_error_while_recording_leaves_the_trace_as_before():
    x = lt.ones((3, 4)) + 1
    before = str(lt.pending())
    with pytest.raises(lt.ShapeError, match=r"shapes \(3, 4\) and \(2, 4\) do not broadcast"):
        x + lt.ones((2, 4))
    assert str(lt.pending()).splitlines()[1:3] == before.splitlines()[1:3]
    assert x.sum().item() == 24


def test_threads_record_apart_and_read_each_other():
    results = {}

    def train(k):
        rng = np.random.default_rng(0)
        w = lt.tensor(np.ones((5, 3), np.float32), requires_grad=True)
        opt = lt.optim.SGD([w], lr=0.1)
        for i in range(20):
            x = lt.asarray(rng.standard_normal((4 + i % 3, 5)).astype(np.float32))
            loss = ((x @ w) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            lt.sync()
        results[k] = w.detach().numpy()

    threads = [threading.Thread(target=train, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 4
    for r in results.values():
        np.testing.assert_array_equal(r, results[0])

    pending = lt.ones(4) * 3
    seen: list[list[float]] = []
    t = threading.Thread(target=lambda: seen.append((pending + 1).tolist()))
    t.start()
    t.join()
    assert seen == [[4.0] * 4]
    assert (pending * 2).tolist() == [6.0] * 4


def test_a_forked_child_computes():
    (lt.ones(100000) * 2).sum().item()
    child = os.fork()
    if child == 0:
        ok = (lt.ones(100000) * 2).sum().item() == 200000
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_while_another_thread_syncs_computes(monkeypatch: pytest.MonkeyPatch):
    inside, compute = threading.Event(), sync.compute

    def slowly(*args):
        inside.set()
        time.sleep(0.2)
        return compute(*args)

    monkeypatch.setattr(sync, "compute", slowly)
    other = threading.Thread(target=lambda: (lt.ones(7) * 2).tolist())
    other.start()
    assert inside.wait(10)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if (lt.ones(7) * 2).tolist() == [2.0] * 7 else 1)
    other.join()
    assert os.waitpid(child, 0)[1] == 0


def test_a_read_in_the_middle_runs_nothing_twice():
    x = lt.asarray(np.ones(100, np.float32))
    y = lt.exp(x)
    assert float(y[0]) > 2
    with lt.expect(syncs=1):
        z = y + 1
        lt.sync()
    texts = [k.ir for k in lt.last_sync().plan_kernels]
    assert texts
    assert all("exp" not in t for t in texts)
    assert z.shape == (100,)


def test_objects_that_are_not_arrays_are_refused():
    with pytest.raises(lt.DTypeError, match="cannot make a tensor of"):
        lt.asarray("text")
    with pytest.raises(TypeError):
        lt.ones(2) + object()
    with pytest.raises(lt.DeviceError, match="cuda"):
        lt.ones(2, device="cuda:0")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ([("a", "f4")], r"not a dtype: \[\('a', 'f4'\)\]"),
        ({"names": ["a"]}, "not a dtype: {'names'"),
        ("nope", "not a dtype: 'nope'"),
        ("M8[s]", r"dtype datetime64\[s\] is not supported: lazyt has bool"),
    ],
)
def test_what_is_no_dtype_is_named(spec: object, message: str) -> None:
    with pytest.raises(lt.DTypeError, match=message):
        lt.zeros(2, dtype=spec)


@pytest.mark.parametrize(
    "f",
    [lt.linalg.svd, lt.linalg.pinv, lambda a: lt.linalg.lstsq(a, lt.ones(5, dtype=a.dtype))],
    ids=["svd", "pinv", "lstsq"],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_a_decomposition_of_an_infinity_fails_where_lapack_never_returns(f, dtype):
    x = np.random.default_rng(1).standard_normal((5, 3)).astype(dtype)
    x[2, 0] = np.inf
    with pytest.raises(np.linalg.LinAlgError, match="SVD did not converge: the matrix holds infinities"):
        lt.sync(f(lt.asarray(x))[0])


BIG = 10**400


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x + BIG, lambda x: -BIG * x, lambda x: x.astype(lt.float32) - BIG, lambda x: (x * 1j) + BIG,
        lambda x: lt.where(x > 2, x, BIG), lambda x: lt.full(3, 10**5000, dtype=lt.float64),
        lambda x: lt.maximum(x, BIG), lambda x: x.__setitem__(0, BIG), lambda x: x.__iadd__(BIG),
    ],
)  # fmt: skip
def test_an_integer_that_no_float_holds_is_refused_where_it_is_written(f):
    # It was recorded, and every sync from then on raised.
    x = lt.arange(4, dtype=lt.float64)
    kept = x * 2
    for _ in range(3):
        with pytest.raises(
            lt.ScalarRangeError, match=r"integer of \d+ bits is out of range: a float64 holds up to 1\.80e"
        ):
            f(x)
    lt.sync()
    assert kept.tolist() == [0, 2, 4, 6] and x.tolist() == [0, 1, 2, 3]
    assert (x + LARGEST).tolist() == [float(LARGEST)] * 4
    assert (x < BIG).all() and (x > -(10**5000)).all() and not (x == BIG).any()


class TestGradientsBesideAFailingLine:
    """What a backward does not read an index for is computed, though it was recorded after the line that fails."""

    def failing(self) -> lt.Tensor:
        return lt.take(lt.arange(3) * 1.0, lt.asarray([10**6]))

    def weight(self, requires_grad: bool = True) -> lt.Tensor:
        return lt.asarray(np.array([1.0, 2.0, 3.0]), copy=True).requires_grad_(requires_grad)

    def test_a_gradient(self) -> None:
        w = self.weight()
        bad = self.failing()
        (w * w).sum().backward()
        with pytest.raises(lt.IndexOutOfRange, match=r"test_failures\.py"):
            lt.sync()
        assert bad.is_pending and not w.grad.is_pending
        np.testing.assert_array_equal(w.grad.numpy(), [2.0, 4.0, 6.0])

    def test_reading_what_does_not_depend_on_it_raises_nothing(self) -> None:
        w, v = self.weight(), self.weight()
        bad = self.failing()
        for _ in range(3):
            w.grad = None
            (w * v * 2).sum().backward()
            with lt.no_grad():
                w -= 0.25 * w.grad
        np.testing.assert_array_equal(w.detach().numpy(), [-0.5, -1.0, -1.5])
        np.testing.assert_array_equal(v.grad.numpy(), [3.0, 6.0, 9.0])
        with pytest.raises(lt.IndexOutOfRange):
            bad.numpy()

    def test_a_gradient_that_depends_on_it_fails_alone(self) -> None:
        w, v = self.weight(), self.weight()
        (w * self.failing()).sum().backward()
        (v * 2).sum().backward()
        with pytest.raises(lt.IndexOutOfRange):
            lt.sync()
        assert not v.grad.is_pending and w.grad.is_pending
        np.testing.assert_array_equal(v.grad.numpy(), [2.0, 2.0, 2.0])
        with pytest.raises(lt.IndexOutOfRange):
            w.grad.numpy()
        w.grad = None
        (w * 3).sum().backward()
        np.testing.assert_array_equal(w.grad.numpy(), [3.0, 3.0, 3.0])

    @pytest.mark.parametrize("before", [True, False])
    def test_a_backward_after_the_sync_that_failed(self, before: bool) -> None:
        w = self.weight()
        bad = self.failing() if before else None
        loss = (lt.exp(w) * w).sum()
        if bad is None:
            bad = self.failing() + w.sum()
        with pytest.raises(lt.IndexOutOfRange):
            lt.sync()
        loss.backward()
        x = np.array([1.0, 2.0, 3.0])
        np.testing.assert_allclose(w.grad.numpy(), np.exp(x) * (1 + x), rtol=1e-12)
        assert bad.is_pending

    def test_steps_of_an_optimizer(self) -> None:
        found = []
        for fails in (False, True):
            layer = lt.nn.Linear(3, 1)
            with lt.no_grad():
                layer.weight[...] = lt.asarray([[0.1, 0.2, 0.3]], dtype=lt.float32)
                layer.bias[...] = 0.0
            optimizer = lt.optim.Adam(layer.parameters(), lr=0.1)
            bad = None
            for turn in range(4):
                if fails and turn == 1:
                    bad = self.failing()
                optimizer.zero_grad()
                (layer(lt.ones((4, 3), dtype=lt.float32)) ** 2).mean().backward()
                optimizer.step()
                if fails and turn == 2:
                    with pytest.raises(lt.IndexOutOfRange):
                        lt.sync()
            found.append([p.detach().numpy() for p in layer.parameters()])
            assert bad is None or bad.is_pending
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("collects", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_the_collector_is_as_it_was_after_a_plan_is_made(
    collects: bool, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    during: list[bool] = []
    build = plan_cache.build

    def watched(*given: Any) -> plan_cache.Plan:
        during.append(gc.isenabled())
        if fails:
            raise KeyboardInterrupt
        return build(*given)

    monkeypatch.setattr(plan_cache, "build", watched)
    x = lt.asarray(np.arange(2e4))
    times = 1 + 2 * collects + fails  # each case is a program that nothing has planned
    for _ in range(times):
        x = x * 3 + 1
    if not collects:
        gc.disable()
    try:
        with pytest.raises(KeyboardInterrupt) if fails else contextlib.nullcontext():
            lt.sync()
        assert (during, gc.isenabled()) == ([False], collects)
    finally:
        gc.enable()
    monkeypatch.undo()
    assert x[1] == functools.reduce(lambda y, _: y * 3 + 1, range(times), 1)
