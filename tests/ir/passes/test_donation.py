"""Results that stand where a leaf's value was: only when nobody can see it, and never to the harm of a retry."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu.flags import switches
from lazyt.ir.passes.schedule import MatmulCall
from lazyt.runtime import memory
from lazyt.tracing.trace import local
from tests.support.interrupt_places import Interrupt
from tests.support.random_writes import write_at_random

SHAPE = (128, 64)  # 32 KB: large enough to be worth it


@pytest.fixture(autouse=True)
def _switched_on():
    if not switches["donate"]:
        pytest.skip("LAZYT_DEBUG=no-donate")


def fresh(value: float = 1.0) -> lt.Tensor:
    x = lt.asarray(np.full(SHAPE, value, np.float32)) * 1.0
    lt.sync()
    return x


def address(x: lt.Tensor) -> int:
    lt.sync()
    holder: Any = x._storage or x
    found: int = holder._buffer.address
    return found


def test_an_update_writes_where_the_old_value_was() -> None:
    p, g = fresh(), fresh(2.0)
    for step in range(4):
        before = address(p)
        p -= 0.25 * g
        assert step < 2 or address(p) == before  # the first times, its operations may run one by one
        np.testing.assert_array_equal(p.numpy(), np.full(SHAPE, 0.5 - 0.5 * step, np.float32))


def test_a_name_bound_anew_gives_its_memory_away() -> None:
    p = fresh()
    before = address(p)
    p = p * 2.0
    assert address(p) == before


def test_a_write_into_a_part_copies_nothing() -> None:
    cache, want = fresh(), np.ones(SHAPE, np.float32)
    for position in range(5):
        before = address(cache)
        cache[:, position] = lt.arange(128.0) * 2.0
        want[:, position] = np.arange(128.0) * 2
        assert position < 2 or address(cache) == before
        np.testing.assert_array_equal(cache.numpy(), want)


def test_optimizers_update_in_place() -> None:
    p = fresh().requires_grad_()
    optimizer = lt.optim.AdamW([p], lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        (p * p).sum().backward()
        optimizer.step()
        lt.sync()
    assert lt.last_sync().in_place == 3  # of the parameter, its gradient and two moments


def random(*shape: int) -> lt.Tensor:
    x = lt.asarray(np.random.default_rng(0).standard_normal(shape).astype("f4")) * 1.0
    lt.sync()
    return x


def test_an_update_that_goes_with_a_product_writes_in_place() -> None:
    x, w = random(*SHAPE), random(48, SHAPE[1]).requires_grad_()
    a, p = (v.detach().numpy().astype("f8") for v in (x, w))
    momentum = np.zeros_like(p)
    optimizer = lt.optim.SGD([w], lr=0.1, momentum=0.9)
    for _ in range(5):
        optimizer.zero_grad()
        ((x @ w.mT) ** 2).mean().backward()
        optimizer.step()
        lt.sync()
        momentum = 0.9 * momentum + 2 * (a @ p.T).T @ a / (len(a) * len(p))
        p = p - 0.1 * momentum
    report = lt.last_sync()
    assert report is not None and report.in_place == 2
    last = report.plan.schedule.launches[-1]
    assert isinstance(last, MatmulCall) and last.epilogue is not None and len(last.epilogue.writes) == 2
    np.testing.assert_allclose(w.detach().numpy(), p, rtol=1e-4, atol=1e-5)


def test_what_a_product_reads_is_not_overwritten_by_its_epilogue() -> None:
    w, x = random(*SHAPE), random(SHAPE[1], SHAPE[1])
    for _ in range(4):
        old = w.numpy().copy()
        w += w @ x * 1e-3
        lt.sync()
        np.testing.assert_allclose(w.numpy(), old + old @ x.numpy() * 1e-3, rtol=1e-4, atol=1e-5)


def test_a_check_before_the_update_does_not_keep_it_from_writing_in_place() -> None:
    w = fresh().requires_grad_()
    bias = lt.zeros(SHAPE[0], dtype=lt.float32).requires_grad_()
    optimizer = lt.optim.Adam([w, bias], lr=0.1)
    x = lt.asarray(np.random.default_rng(0).standard_normal((8, SHAPE[1])).astype("f4"))

    def record(target: int) -> None:
        labels = lt.asarray(np.full(8, target))
        lt.nn.functional.cross_entropy(lt.nn.functional.linear(x, w, bias), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(4):
        record(5)
        lt.sync()
    report = lt.last_sync()
    assert report is not None and report.in_place == 6  # two parameters with two moments each
    record(SHAPE[0])
    inputs = local.trace.inputs  # the list, which is none of their holders
    before = [memory.as_array(d).copy() for d in inputs]
    with pytest.raises(IndexError, match="out of bounds"):
        lt.sync()
    for d, old in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(memory.as_array(d), old)


@pytest.mark.parametrize("who", ["a tensor", "an array", "a detached tensor", "a memoryview of dlpack"])
def test_what_somebody_holds_stays(who: str) -> None:
    p = fresh()
    lt.sync()
    held: Any = {
        "a tensor": lambda: p,
        "an array": p.numpy,
        "a detached tensor": p.detach,
        "a memoryview of dlpack": lambda: np.from_dlpack(p),
    }[who]()
    if who == "a detached tensor":
        p += 1.0  # shares the storage: both see the write
        np.testing.assert_array_equal(held.numpy(), np.full(SHAPE, 2.0, np.float32))
        return
    p = p + 1.0
    lt.sync()
    np.testing.assert_array_equal(np.asarray(held), np.ones(SHAPE, np.float32))
    np.testing.assert_array_equal(p.numpy(), np.full(SHAPE, 2.0, np.float32))


def test_memory_of_others_is_not_taken() -> None:
    array = np.ones(SHAPE, np.float32)
    x = lt.asarray(array)
    for _ in range(3):
        x += 1.0
        lt.sync()
    np.testing.assert_array_equal(array, np.ones(SHAPE, np.float32))


def test_neighbours_are_read_before_they_are_written() -> None:
    x, want = fresh(), np.ones(SHAPE, np.float32)
    for _ in range(3):
        x[1:] += x[:-1] * 2.0
        want[1:] += want[:-1] * 2
        y, also = x.T[:64, :64] + 1.0, want.T[:64, :64] + 1
        x = x * 0.5 + x[::-1]
        want = want * np.float32(0.5) + want[::-1]
        lt.sync()
        np.testing.assert_array_equal(x.numpy(), want)
        np.testing.assert_array_equal(y.numpy(), also)


def test_a_value_kept_for_a_later_stage_does_not_overwrite_what_that_stage_reads() -> None:
    given = np.random.default_rng(0).uniform(-1, 1, SHAPE).astype("f4")
    want = given
    for _ in range(3):
        want = np.exp(want) / np.exp(want).sum(1, keepdims=True) + want
    x = lt.asarray(given) * 1.0
    lt.sync()
    for _ in range(3):  # exp(x) stands in the row's result until its sum is known, and x is read after that
        costly = lt.exp(x)
        x = costly / costly.sum(1, keepdims=True) + x
        del costly
        lt.sync()
    np.testing.assert_allclose(x.numpy(), want, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_update_has_happened_once() -> None:
    want = np.full(SHAPE, 1.5, np.float32)
    for _ in range(3):  # the plan is known
        p = fresh()
        p += 0.5
        lt.sync()
    n, taken = 1, 0
    while True:
        p, other = fresh(), fresh(3.0)
        before = address(p)
        p += 0.5
        other = other * 2.0
        interrupt = Interrupt(n)
        interrupt.run(lt.sync)
        np.testing.assert_array_equal(p.numpy(), want, err_msg=f"at place {n}")
        np.testing.assert_array_equal(other.numpy(), np.full(SHAPE, 6.0, np.float32), err_msg=f"at place {n}")
        taken += address(p) == before
        if interrupt.seen < n:
            break
        n += 1
    assert taken > 5


def test_a_reader_in_another_thread_sees_the_value_or_its_update() -> None:
    for _ in range(20):
        p = fresh()
        q = p + 10.0
        p += 1.0
        got: list[Any] = []
        reader = threading.Thread(target=lambda q=q, got=got: got.append(q.numpy()))  # type: ignore[misc]
        reader.start()
        lt.sync()
        reader.join()
        np.testing.assert_array_equal(got[0], np.full(SHAPE, 11.0, np.float32))
        np.testing.assert_array_equal(p.numpy(), np.full(SHAPE, 2.0, np.float32))


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_agree_with_numpy(seed: int) -> None:
    write_at_random(seed, fresh)
