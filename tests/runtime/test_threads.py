"""Tensors that threads share: writes to disjoint parts are exact, and whoever reads sees whole versions."""

from __future__ import annotations

import faulthandler
import random
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.tracing import record as recording
from lazyt.tracing.trace import local, waiting
from tests.support.interrupt_places import Places

SECONDS = 40  # after which a test hangs: everybody's lines are printed, and the process ends


@pytest.fixture(autouse=True)
def _often() -> Iterator[None]:
    """Threads take turns after every few instructions."""
    before = sys.getswitchinterval()
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
    faulthandler.cancel_dump_traceback_later()
    assert not waiting


def together(*works: Callable[[], Any]) -> list[Any]:
    """What functions return that run at the same time; what one raises is raised here."""
    start = threading.Barrier(len(works))
    results: list[Any] = [None] * len(works)
    errors: list[BaseException] = []

    def run(i: int) -> None:
        try:
            start.wait()
            results[i] = works[i]()
        except BaseException as e:  # noqa: BLE001 - raised below
            errors.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(works))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return results


def alone(work: Callable[[], Any]) -> Any:
    """What a function returns in another thread, which ends with it."""
    return together(work)[0]


@pytest.mark.parametrize("pending", [False, True])
def test_writes_to_disjoint_slices_are_exact_and_reads_whole(pending: bool) -> None:
    x = lt.zeros(80)
    if not pending:
        lt.sync()
    left = [0] * 6

    def write(i: int) -> Callable[[], None]:
        def work() -> None:
            for k in range(40):
                x[i * 10 : (i + 1) * 10] = float(1000 * i + k)
            left[i] = 1

        return work

    def read(part: slice) -> Callable[[], int]:
        def work() -> int:
            reads = 0
            while sum(left) < 6:
                v = x[part].numpy()
                for chunk in v.reshape(-1, 10):
                    np.testing.assert_array_equal(chunk, chunk[0])
                reads += 1
            return reads

        return work

    together(*map(write, range(6)), read(slice(None)), read(slice(20, 50)))
    np.testing.assert_array_equal(x.numpy(), np.repeat([*(1000 * np.arange(6) + 39), 0, 0], 10))


MASKS = [np.arange(80) // 10 == i for i in range(8)]
WAYS: dict[str, Callable[[lt.Tensor, slice, int], None]] = {
    "+= through a view": lambda x, part, k: x[part].__iadd__(1),
    "+= of a part": lambda x, part, k: x.__setitem__(part, x[part] + 1),
    "a view of a view": lambda x, part, k: x.reshape(8, 10)[part.start // 10].__iadd__(1),
    "a column": lambda x, part, k: x.reshape(10, 8)[:, part.start // 10].__iadd__(1),
    "a mask": lambda x, part, k: x.__setitem__((MASKS[part.start // 10],), k + 1),
    "add.at": lambda x, part, k: np.add.at(x, np.arange(part.start, part.stop), 1),
    "copyto": lambda x, part, k: np.copyto(x, k + 1, where=MASKS[part.start // 10]),
    "put": lambda x, part, k: np.put(x, np.arange(part.start, part.stop), k + 1),
    "an index": lambda x, part, k: x.__setitem__(list(range(part.start, part.stop)), x[part] + 1),
}


@pytest.mark.parametrize("way", WAYS)
def test_counts_kept_by_threads_in_their_parts_are_exact(way: str) -> None:
    x = lt.zeros(80, dtype="int64")
    together(*(lambda i=i: [WAYS[way](x, slice(i * 10, i * 10 + 10), k) for k in range(15)] for i in range(8)))
    np.testing.assert_array_equal(x.numpy(), np.full(80, 15))


VIEWS: dict[str, Callable[[lt.Tensor], lt.Tensor]] = {
    "a slice": lambda x: x[10:20],
    "a slice of a view": lambda x: x[:][10:20],
    "a row of a reshape": lambda x: x.reshape(8, 10)[1],
    "a row of a transpose": lambda x: x.reshape(10, 8).T[1],
}


@pytest.mark.parametrize("kind", VIEWS)
def test_another_thread_writes_at_every_place_of_making_a_view(kind: str) -> None:
    """What is made then has what was written before and after, and what is written through it reaches the base."""
    part = VIEWS[kind](lt.arange(80)).numpy()
    other = int(part[0]) + 1 if kind.endswith("transpose") else 0

    def run(k: int) -> bool:
        """Whether there is a k-th place."""
        x = lt.zeros(80, dtype="int64")
        lt.sync()
        made: list[lt.Tensor] = []

        def write() -> None:
            for n in (other, int(part[0])):
                x[n : n + 1] += 1

        writer = threading.Thread(target=write)

        def start() -> None:
            writer.start()
            writer.join(0.1)  # it waits if this thread holds what it needs

        places = Places(k, start)
        places.run(lambda: made.append(VIEWS[kind](x)))
        expected = np.zeros(80, dtype="int64")
        reached = 0 < k <= places.seen
        if reached:
            writer.join()
            expected[[other, part[0]]] = 1
        v = made[0]
        np.testing.assert_array_equal((v + 0).numpy(), expected[part], f"at {places.at}")
        v += 2
        expected[part] += 2
        np.testing.assert_array_equal(x.numpy(), expected, f"at {places.at}")
        return reached

    for _ in range(4):  # so it is recorded in short
        run(0)
    k = 1
    while run(k):
        k += 1
    assert k > 5


def test_views_made_before_and_each_with_its_own_thread() -> None:
    x = lt.zeros((8, 10))
    views = [x[i] for i in range(8)]

    def work(i: int) -> None:
        for k in range(25):
            views[i] += 1
            if k % 5 == 0:
                np.testing.assert_array_equal(views[i].numpy(), np.full(10, k + 1.0))

    together(*(lambda i=i: work(i) for i in range(8)))
    np.testing.assert_array_equal(x.numpy(), np.full((8, 10), 25))
    for v in views:
        np.testing.assert_array_equal((v + 0).numpy(), np.full(10, 25))


def test_whole_writes_of_several_threads_are_each_whole() -> None:
    x = lt.zeros(64)

    def work(i: int) -> None:
        for k in range(30):
            x[...] = float(100 * i + k)
            v = x.numpy()
            np.testing.assert_array_equal(v, v[0])

    together(*(lambda i=i: work(i) for i in range(4)))
    assert float(x[0]) % 100 == 29


@pytest.mark.parametrize("n", [1, 200])
def test_threads_read_what_one_has_pending(n: int) -> None:
    x = lt.asarray(np.arange(50.0))
    y = x
    for _ in range(n):
        y = y + 1
    z = y[10:20]
    for found in together(*[lambda: y.tolist()] * 3, *[lambda: (y * 2).tolist()] * 2, lambda: z.tolist()):
        assert found in ((np.arange(50.0) + n).tolist(), (2 * np.arange(50.0) + 2 * n).tolist(),
                         (np.arange(10.0, 20) + n).tolist())  # fmt: skip
    assert y.tolist() == (np.arange(50.0) + n).tolist()


@pytest.mark.parametrize("view", [False, True])
def test_one_thread_adds_in_place_while_others_read(view: bool) -> None:
    base = lt.zeros((3, 20), dtype="int64")
    x = base[1] if view else lt.zeros(20, dtype="int64")
    done = threading.Event()

    def add() -> None:
        nonlocal x
        target = x
        for _ in range(150):
            target += 1
        done.set()

    def read() -> None:
        last = 0
        while not done.is_set():
            v = x.numpy()
            np.testing.assert_array_equal(v, v[0])
            assert v[0] >= last, "versions come in their order"
            last = v[0]

    together(add, read, read)
    np.testing.assert_array_equal(x.numpy(), np.full(20, 150))
    if view:
        np.testing.assert_array_equal(base.numpy(), np.repeat([[0], [150], [0]], 20, axis=1))


def test_a_trace_that_others_read_again_and_again_is_synced() -> None:
    """Else each read would plan a longer program."""
    x = lt.zeros(5)
    y = x[:]  # which has what is written to x
    for k in range(3 * recording.POLLS):
        x += 1
        assert alone(y.tolist) == [k + 1.0] * 5
        assert local.trace.pos.index <= 4 * recording.POLLS
    with lt.no_sync():  # where none is allowed, none comes by itself
        for _ in range(2 * recording.POLLS):
            x += 1
            alone(y.tolist)


def test_made_in_one_thread_viewed_in_another_written_in_a_third() -> None:
    made = alone(lambda: lt.arange(12.0) * 2)
    viewed = alone(lambda: made.reshape(3, 4)[1])
    alone(lambda: viewed.__iadd__(100))
    alone(lambda: made[:2].__imul__(-1))
    want = np.arange(12.0) * 2
    want[4:8] += 100
    want[:2] *= -1
    assert alone(lambda: viewed.tolist()) == want[4:8].tolist()
    assert made.tolist() == want.tolist()
    assert (viewed + 1).tolist() == (want[4:8] + 1).tolist()


def test_what_a_thread_knows_of_a_view_is_not_older_than_what_it_was_told() -> None:
    x = lt.zeros(40)
    v = x[10:20]
    turn = threading.Semaphore(0), threading.Semaphore(0)

    def write() -> None:
        for k in range(60):
            x[10:20] = float(k)
            turn[0].release()
            turn[1].acquire()

    def read() -> None:
        for k in range(60):
            turn[0].acquire()
            assert (v + 0).tolist() == [float(k)] * 10
            turn[1].release()

    def disturb() -> None:
        for k in range(60):
            x[30:] = float(k)
            v.tolist()

    together(write, read, disturb)


def test_a_thread_ends_with_pending_work_that_others_hold() -> None:
    held: list[Any] = []

    def work(i: int) -> Callable[[], None]:
        def record() -> None:
            a = lt.arange(10.0) + i
            held.append((i, a * 2, a[3:6], lt.exp(a) - lt.exp(a)))

        return record

    for turn in range(4):
        together(*(work(10 * turn + i) for i in range(3)))
    alone(lambda: (lt.ones(3) * 5).tolist())  # a new thread takes what one that is gone leaves
    for i, doubled, part, nothing in held:
        part += 1
        assert doubled.tolist() == ((np.arange(10.0) + i) * 2).tolist()
        assert part.tolist() == (np.arange(3.0, 6) + i + 1).tolist()
        assert nothing.tolist() == [0] * 10


def test_a_pool_maps_over_slices() -> None:
    x = lt.asarray(np.arange(96.0))
    y = lt.exp(x * 0.01)

    def work(k: int) -> float:
        part = y[k * 12 : (k + 1) * 12]
        x[k * 12 : (k + 1) * 12] *= -1
        return float(part.sum())

    with ThreadPoolExecutor(4) as pool:
        sums = list(pool.map(work, range(8)))
    np.testing.assert_allclose(sums, np.exp(np.arange(96.0) * 0.01).reshape(8, 12).sum(1), rtol=1e-6)
    np.testing.assert_array_equal(x.numpy(), -np.arange(96.0))


def _train(steps: int, w: lt.Tensor, b: lt.Tensor, optimizer: Callable[..., Any]) -> None:
    x = lt.asarray(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3))
    opt = optimizer([w, b], 0.05)
    for _ in range(steps):
        opt.zero_grad()
        ((x @ w + b) ** 2).mean().backward()
        opt.step()
        lt.sync()


def _weights() -> tuple[lt.Tensor, lt.Tensor]:
    # Rows, and so what is computed from them, stay equal to each other.
    return lt.tensor(np.full((3, 5), 0.5, np.float32), requires_grad=True), lt.tensor(
        np.zeros(5, np.float32), requires_grad=True
    )


@pytest.mark.parametrize("optimizer", [lt.optim.SGD, lt.optim.Adam])
def test_parameters_of_one_training_thread_are_read_by_others(optimizer: Callable[..., Any]) -> None:
    w, b = _weights()
    _train(25, w, b, optimizer)
    want = w.detach().numpy().copy(), b.detach().numpy().copy()
    w, b = _weights()
    done = threading.Event()

    def train() -> None:
        try:
            _train(25, w, b, optimizer)
        finally:
            done.set()

    def infer() -> None:
        x = lt.ones((2, 3))
        while not done.is_set():
            with lt.no_grad():
                y = (x @ w).numpy()
                np.testing.assert_array_equal(y, y[0, 0])
                v = w.detach().numpy()
                np.testing.assert_array_equal(v, v[:, :1] + 0 * v)

    together(train, infer, infer)
    np.testing.assert_array_equal(w.detach().numpy(), want[0])
    np.testing.assert_array_equal(b.detach().numpy(), want[1])


def test_a_graph_that_another_thread_records_is_refused_by_name() -> None:
    w = lt.tensor([1.0, 2.0], requires_grad=True)
    y = w * 3
    assert alone(lambda: y.tolist()) == [3.0, 6.0]

    def backward() -> None:
        (y * 2).sum().backward()

    with pytest.raises(lt.ThreadError, match=r"another thread has recorded \(multiply at .*test_threads.py:\d+\)"):
        alone(backward)
    lt.sync()
    alone(backward)
    assert w.grad.tolist() == [6.0, 6.0]
    (w * 5).sum().backward()
    assert w.grad.tolist() == [11.0, 11.0]


def test_a_detached_value_of_another_thread_carries_no_graph() -> None:
    w = lt.tensor([1.0, 2.0], requires_grad=True)
    y = (w * 3).detach()
    v = lt.tensor([1.0, 1.0], requires_grad=True)
    alone(lambda: (y * v).sum().backward())
    assert v.grad.tolist() == [3.0, 6.0] and w.grad is None


def _fuzz(seed: int, turns: int, threads: int) -> None:
    """Each thread owns a part of each tensor: what it does there is what NumPy does; all of a part is equal."""
    tensors = [lt.zeros(threads * 6), lt.ones((threads, 6)) * 1, lt.asarray(np.zeros((6, threads)))]
    whole: list[Callable[[lt.Tensor, int], lt.Tensor]] = [
        lambda t, i: t[i * 6 : i * 6 + 6], lambda t, i: t[i], lambda t, i: t[:, i],
    ]  # fmt: skip

    def work(i: int) -> list[float]:
        rng = random.Random(f"{seed} {i}")
        mine = [0.0, 1.0, 0.0]
        kept = [whole[n](t, i) for n, t in enumerate(tensors)]
        for _ in range(turns):
            n = rng.randrange(3)
            t = tensors[n]
            part = kept[n] if rng.random() < 0.5 else whole[n](t, i)
            how = rng.randrange(8)
            if how < 2:
                mine[n] = float(rng.randrange(100))
                part[...] = mine[n]
            elif how < 4:
                mine[n] += 1
                part += 1
            elif how == 4:
                assert part.tolist() == [mine[n]] * 6, (n, i)
            elif how == 5:
                assert (part * 2 + 1).tolist() == [mine[n] * 2 + 1] * 6, (n, i)
            elif how == 6:
                j = rng.randrange(threads)
                v = whole[n](t, j).numpy()
                np.testing.assert_array_equal(v, v[0])
            else:
                lt.sync()
        return mine

    found = together(*(lambda i=i: work(i) for i in range(threads)))
    for n, t in enumerate(tensors):
        for i, mine in enumerate(found):
            assert whole[n](t, i).tolist() == [mine[n]] * 6, (n, i)


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_of_threads(seed: int) -> None:
    _fuzz(seed, 40, 2 + seed)


@pytest.mark.slow
def test_long_random_programs_of_threads() -> None:
    for seed in range(30):
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        _fuzz(1000 + seed, 150, 2 + seed % 7)
