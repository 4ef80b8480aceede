"""Results of a GPU's plans in the memory of inputs: equal bits, each update once, and nobody sees it. A fake driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest

import lazyt as lt
from lazyt.config import cpu as switches
from lazyt.runtime import plan_cache
from lazyt.tracing.trace import local
from tests.support.cuda.fake import FakeArray, FakeDriver, installed
from tests.support.cuda.shim import compiler
from tests.support.interrupt_places import Interrupt, count
from tests.support.random_writes import write_at_random

SHAPE = (128, 64)  # 32 KB: large enough to be worth it
GPU = "cuda:0"


@pytest.fixture
def gpu() -> Iterator[FakeDriver]:
    compiler()
    if not (switches["donate"] and switches["graphs"]):
        pytest.skip("LAZYT_DEBUG=no-donate or no-graphs")
    with mock.patch.dict(plan_cache.settings, {"tiers": False}), installed(FakeDriver()) as fake:
        yield fake


def forget() -> None:
    """No plan, and no sync to repeat."""
    plan_cache._programs.clear()
    local.trace.reset_trie()


def fresh(value: float = 1.0, device: str = GPU) -> Any:
    x = lt.asarray(np.full(SHAPE, value, np.float32), device=device) * 1.0
    lt.sync()
    return x


def address(x: Any) -> int:
    lt.sync()
    found: int = (x._storage or x)._buffer.address
    return found


def in_place() -> int:
    report = lt.last_sync()
    assert report is not None
    return report.in_place


Step = Callable[[], Any]


class Training:
    """Steps of two layers and an optimizer, with labels that are indices, or without."""

    def __init__(self, kind: Any = lt.optim.Adam, device: str = GPU, labels: bool = True, **options: Any) -> None:
        rng = np.random.default_rng(0)

        def array(*shape: int) -> Any:
            return lt.asarray(rng.standard_normal(shape).astype("f4") / 8, device=device)

        self.labels, self.device = labels, device
        self.w, self.v, self.b = (lt.nn.Parameter(array(*s)) for s in ((64, 64), (10, 64), (10,)))
        self.x = array(8, 64)
        self.target = lt.asarray(np.arange(8), device=device)
        self.optimizer = kind([self.w, self.v, self.b], lr=0.01, **options)
        lt.sync()

    def step(self, target: Any = None) -> Any:
        y = lt.tanh(self.x @ self.w) @ self.v.mT + self.b
        target = self.target if target is None else target
        loss = lt.nn.functional.cross_entropy(y, target) if self.labels else (y * y).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def values(self) -> list[Any]:
        return [p.detach().numpy().copy() for p in (self.w, self.v, self.b)]


def equal(a: list[Any], b: list[Any]) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(("kind", "options", "n"), [
    (lt.optim.SGD, {}, 3), (lt.optim.SGD, {"momentum": 0.9}, 6), (lt.optim.Adam, {}, 9), (lt.optim.AdamW, {}, 9),
])  # fmt: skip
def test_parameters_stay_where_they_are(gpu: FakeDriver, kind: Any, options: dict[str, Any], n: int) -> None:
    found = []
    for donate in (False, True):
        with mock.patch.dict(switches, {"donate": donate}):
            forget()
            training, losses, places = Training(kind, **options), [], []
            for _ in range(7):
                loss = training.step()
                lt.sync()
                places.append(training.w._buffer.address)
                assert in_place() in (0, n if donate else 0)
                losses.append(loss)
            assert in_place() == (n if donate else 0)
            assert (len({*places[2:]}) == 1) == donate
            found.append([*(x.item() for x in losses), *training.values()])
    equal(*found)


def test_a_steady_step_changes_no_argument(gpu: FakeDriver) -> None:
    """What is updated stands where it stood, so the graph is the same."""
    changed = []
    for donate in (False, True):
        with mock.patch.dict(switches, {"donate": donate}):
            forget()
            p, q = fresh(), fresh(2.0)
            for _ in range(6):
                p += q
                lt.sync()
            with mock.patch.object(gpu, "update", wraps=gpu.update) as update:
                p += q
                lt.sync()
            changed.append(update.call_count)
            np.testing.assert_array_equal(p.numpy(), np.full(SHAPE, 15.0, np.float32))
    assert changed[1] == 0


def test_a_step_takes_less_memory(gpu: FakeDriver) -> None:
    def most(donate: bool) -> int:
        with mock.patch.dict(switches, {"donate": donate}):
            forget()
            p, found = fresh(), 0
            for _ in range(4):
                p += 1.0
                lt.sync()
            allocate, peaks = gpu.allocate, [0]

            def counting(device: int, nbytes: int) -> Any:
                given = allocate(device, nbytes)
                peaks.append(gpu.used)
                return given

            before = gpu.used
            with mock.patch.object(gpu, "allocate", counting):
                p += 1.0
                lt.sync()
            found = max(peaks) - before
            np.testing.assert_array_equal(p.numpy(), np.full(SHAPE, 6.0, np.float32))
            return max(found, 0)

    assert most(False) >= 128 * 64 * 4
    assert most(True) < 4096


def test_what_a_plan_says_it_takes(gpu: FakeDriver) -> None:
    p = fresh()
    for _ in range(3):
        p += 1.0
        planned = lt.memory.plan(p)
        lt.sync()
    assert planned.results == 0


def test_a_write_into_a_part_copies_nothing(gpu: FakeDriver) -> None:
    cache, want = fresh(), np.ones(SHAPE, np.float32)
    for position in range(6):
        before = address(cache)
        cache[:, position] = lt.arange(128.0, device=GPU) * 2.0
        want[:, position] = np.arange(128.0) * 2
        assert position < 2 or address(cache) == before
        np.testing.assert_array_equal(cache.numpy(), want)


def test_what_somebody_holds_stays(gpu: FakeDriver) -> None:
    for how in ("a tensor", "dlpack", "nobody"):
        p = fresh()
        for _ in range(3):
            p = p + 1.0
            lt.sync()
        before = address(p)
        held = {"a tensor": lambda p=p: p, "dlpack": p.__dlpack__, "nobody": lambda: None}[how]()
        p = p + 1.0
        assert (address(p) == before) == (how == "nobody")
        if how == "a tensor":
            np.testing.assert_array_equal(held.numpy(), np.full(SHAPE, 4.0, np.float32))
        np.testing.assert_array_equal(p.numpy(), np.full(SHAPE, 5.0, np.float32))
        del held


def test_memory_of_other_libraries_is_not_taken(gpu: FakeDriver) -> None:
    for _ in range(4):
        given = fresh()
        holder: Any = given._storage or given
        theirs = FakeArray(0, holder._buffer.address, SHAPE, np.dtype("f4"), given)
        x = lt.from_dlpack(theirs)
        x = x + 1.0
        lt.sync()
        np.testing.assert_array_equal(x.numpy(), np.full(SHAPE, 2.0, np.float32))
        np.testing.assert_array_equal(given.numpy(), np.ones(SHAPE, np.float32))


def test_a_failing_index_in_a_sync_that_waits_overwrites_nothing(gpu: FakeDriver) -> None:
    """All stays pending, and is computed of what it was recorded with."""
    p, table = fresh(), fresh()
    good, bad = (lt.asarray(np.array([1, n]), device=GPU) for n in (2, 999))
    want = 1.0
    for i in range(12):
        p += 1.0
        want += 1.0
        found = table[bad if i % 3 == 2 else good].sum()
        if i % 3 == 2:
            for _ in range(2):
                with pytest.raises(lt.IndexOutOfRange, match="999"):
                    found.item()
            assert p._storage is None or p.is_pending
        else:
            assert found.item() == 128.0
        del found
        np.testing.assert_array_equal(p.numpy(), np.full(SHAPE, want, np.float32))


def test_a_failing_index_in_a_sync_that_does_not_wait(gpu: FakeDriver) -> None:
    """Whoever reads what was computed with it gets the error, as without: at its line, and every time."""
    training = Training()
    for _ in range(4):
        training.step()
        lt.sync()
    assert in_place() == 9
    loss = training.step(lt.asarray(np.arange(8) + 5, device=GPU))
    lt.sync()
    for x in (loss.detach(), training.w.detach(), training.w.detach() * 2):
        for _ in range(2):
            with pytest.raises(lt.IndexOutOfRange, match="out of bounds"):
                x.numpy()
    lt.sync()
    other = fresh(3.0)
    np.testing.assert_array_equal((other + 1).numpy(), np.full(SHAPE, 4.0, np.float32))


def test_a_value_whose_check_is_open_keeps_a_waiting_sync_from_overwriting(gpu: FakeDriver) -> None:
    p, table = fresh(), fresh()
    bad = lt.asarray(np.array([999]), device=GPU)
    for _ in range(4):
        p += 1.0
        lt.sync()
    broken = table[bad].sum()
    lt.sync()  # enqueued
    for _ in range(3):
        p += 1.0
        both = broken + p.sum()
        with pytest.raises(lt.IndexOutOfRange, match="999"):
            both.item()
        del both
    np.testing.assert_array_equal((p + 0.0).numpy(), np.full(SHAPE, 8.0, np.float32))


def test_graphs_that_are_refused(gpu: FakeDriver) -> None:
    p = fresh()
    gpu.refuse_graphs = True
    for i in range(6):
        p += 1.0
        lt.sync()
        assert in_place() == 0
        np.testing.assert_array_equal(p.numpy(), np.full(SHAPE, i + 2.0, np.float32))


def test_a_graph_that_is_not_launched_has_overwritten_nothing(gpu: FakeDriver) -> None:
    p = fresh()
    for _ in range(4):
        p += 1.0
        lt.sync()
    assert in_place() == 1
    for known in range(6):  # how far a repeated sync is from here
        p += 1.0
        gpu.failure = "CUDA_ERROR_LAUNCH_FAILED"
        try:
            lt.sync()
        except lt.DeviceError:
            assert p.is_pending
        gpu.failure = ""
        np.testing.assert_array_equal(p.numpy(), np.full(SHAPE, 6.0 + known, np.float32))


def test_a_graph_that_is_half_changed_is_made_again(gpu: FakeDriver) -> None:
    """After an interrupt between two of its nodes, with the arguments that it had before."""
    p, r = fresh(0.0), fresh(0.0).reshape(64, 128) * 1.0
    some = [fresh(1.0), fresh(100.0)]
    turned = [x.reshape(64, 128) * 1.0 for x in some]
    lt.sync()

    def step(i: int) -> None:
        nonlocal p, r
        p += some[i]
        r += turned[i]
        lt.sync()

    for _ in range(5):
        step(0)
    assert in_place() == 2
    update, left = gpu.update, [1]

    def interrupted(*args: Any) -> None:
        update(*args)
        if not left:
            raise KeyboardInterrupt
        left.pop()

    with mock.patch.object(gpu, "update", interrupted), pytest.raises(KeyboardInterrupt):
        step(1)
    # NOTE: what is compared with its arguments next may be those that it had: then the changed node would stay.
    before = gpu.graphs
    lt.sync()
    assert gpu.graphs == before + 1
    step(0)
    np.testing.assert_array_equal(p.numpy(), np.full(SHAPE, 106.0, np.float32))
    np.testing.assert_array_equal(r.numpy(), np.full((64, 128), 106.0, np.float32))


LONGER = [pytest.param(n, labels, marks=pytest.mark.slow) for n in (2, 3, 5) for labels in (False, True)]


@pytest.mark.parametrize(("warm", "labels"), [(2, True), *LONGER])
def test_an_interrupted_step_is_one_step(gpu: FakeDriver, warm: int, labels: bool) -> None:
    """At any place of the sync: its steps are made once, and what they are computed of is what it was."""
    training = Training(labels=labels)
    states = [training.values()]
    for _ in range(16):
        training.step()
        lt.sync()
        states.append(training.values())

    def warmed() -> Training:
        found = Training(labels=labels)
        for _ in range(warm):
            found.step()
            lt.sync()
        return found

    found = warmed()
    found.step()
    places = count(lt.sync)
    rng = np.random.default_rng(warm)
    for n in sorted({*rng.integers(1, places + 1, 60).tolist(), *range(places - 300, places + 1, 12)}):
        found = warmed()
        found.step()
        interrupt = Interrupt(n)
        interrupt.run(lt.sync)
        equal(found.values(), states[warm + 1])
        found.step()
        lt.sync()
        equal(found.values(), states[warm + 2])


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_agree_with_numpy(gpu: FakeDriver, seed: int) -> None:
    write_at_random(seed, fresh)
