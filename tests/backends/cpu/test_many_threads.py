"""Numbers of threads from one to many more than there are processors: the same bits, and every unit once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import lazyt as lt
from tests.support.lock_order import watched_locks
from tests.support.plans import forget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COUNTS = (2, 3, 7, 16, 64)


@pytest.fixture(autouse=True)
def _threads_restored() -> Iterator[None]:
    before = lt.get_num_threads()
    yield
    lt.set_num_threads(before)


def array(*shape: int) -> lt.Tensor:
    return lt.asarray(np.random.default_rng(sum(shape)).standard_normal(shape, np.float32))


def maps() -> list[lt.Tensor]:
    x = array(700, 333)
    return [lt.tanh(x * 2 + 1), x[::-1, ::2] - 1, lt.exp(x.T), x[:3] + 1]


def reductions() -> list[lt.Tensor]:
    x, deep = array(1013, 257), array(3, 200_001)
    sums = [x.sum(), x.sum(axis=0), x.mean(axis=1), deep.sum(axis=1), lt.logsumexp(deep, axis=1), x.max(axis=0)]
    return [*sums, lt.argmax(x, axis=1), lt.var(x, axis=0)]


def rows() -> list[lt.Tensor]:
    x = array(1000, 130)
    return [lt.softmax(x, axis=-1), lt.layer_norm(x, (130,)), lt.softmax(x, axis=0)]


def library_calls() -> list[lt.Tensor]:
    x, at = array(100_003), lt.asarray(np.random.default_rng(1).integers(0, 50, 100_003))
    scattered = lt.scatter_add(lt.zeros(50), at, x)
    return [scattered, lt.cumsum(x), lt.sort(x), lt.argsort(x), lt.take(x, at), lt.nonzero(x > 2)[0]]


def products() -> list[lt.Tensor]:
    a, b, image = array(257, 300), array(300, 129), array(4, 8, 19, 21)
    weight, narrow = array(16, 8, 3, 3), array(5, 4000)
    return [
        a @ b,
        lt.gelu(a @ b + 1),
        narrow @ narrow.T,
        lt.nn.functional.conv2d(image, weight, padding=1),
        lt.nn.functional.conv2d(image, weight, stride=2),
        lt.nn.functional.conv2d(image, array(8, 1, 3, 3), groups=8),
    ]


def training() -> list[lt.Tensor]:
    lt.random.seed(3)
    model = lt.nn.Sequential(lt.nn.Linear(120, 300), lt.nn.GELU(), lt.nn.LayerNorm(300), lt.nn.Linear(300, 10))
    optimizer = lt.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = array(128, 120), lt.asarray(np.arange(128) % 10)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = lt.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *(p.detach() for p in model.parameters())]


def values(program: Callable[[], list[lt.Tensor]], threads: int) -> list[Any]:
    lt.set_num_threads(threads)
    # The second time what is small is compiled, too.
    program()
    return [x.numpy() for x in program()]


@pytest.mark.parametrize("program", [maps, reductions, rows, library_calls, products, training])
def test_bits_do_not_depend_on_the_number_of_threads(program: Callable[[], list[lt.Tensor]]) -> None:
    want = values(program, 1)
    for threads in COUNTS:
        for x, y in zip(values(program, threads), want, strict=True):
            np.testing.assert_array_equal(x, y, err_msg=f"{threads} threads")


@pytest.mark.parametrize("program", [reductions, library_calls, products, training])
def test_locks_are_taken_in_their_order(program: Callable[[], list[lt.Tensor]]) -> None:
    forget()
    with watched_locks() as found:
        values(program, 3)
    assert not found, found[0]


@pytest.mark.slow
def test_threads_that_share_a_pool_of_many() -> None:
    """Callers that come at once: one has the workers, the others run alone."""
    want = values(reductions, 1)
    lt.set_num_threads(16)
    found: list[list[Any]] = []

    def call() -> None:
        found.extend([x.numpy() for x in reductions()] for _ in range(5))

    callers = [threading.Thread(target=call) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(found) == 30
    for got in found:
        for x, y in zip(got, want, strict=True):
            np.testing.assert_array_equal(x, y)
