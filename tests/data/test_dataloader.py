"""The DataLoader: one seed gives the same batches for any number of workers, and workers end in every case."""

from __future__ import annotations

import collections
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import lazyt as lt
from lazyt import data
from lazyt.data import DataLoader, WorkerError
from lazyt.errors import DTypeError, ShapeError
from tests.support.shared_files import shared_files

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


class Rows(data.Dataset):
    """Rows, numbers and random numbers of each kind."""

    def __init__(self, n=50, width=5):
        self.x = np.arange(n * width, dtype=np.float32).reshape(n, width)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "i": i, "r": (random.random(), np.random.random(), lt.random.rand(2))}


class Count(data.IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        info = data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        return iter(range(first, self.n, step))

    def __len__(self):
        return self.n


class Faulty(data.Dataset):
    """What goes wrong at sample 5: an exception, an end, or sleep."""

    def __init__(self, how):
        self.how = how

    def __len__(self):
        return 16

    def __getitem__(self, i):
        if i == 5:
            if isinstance(self.how, Exception):
                raise self.how
            if self.how == "sleep":
                time.sleep(60)
            os.kill(os.getpid(), self.how) if isinstance(self.how, signal.Signals) else os._exit(3)
        return i


class Unsendable(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")


def children():
    return multiprocessing.active_children()


def flat(batch):
    if isinstance(batch, dict):
        return [y for x in batch.values() for y in flat(x)]
    if isinstance(batch, list):
        return [y for x in batch for y in flat(x)]
    return [(batch.dtype, batch.numpy().copy())]


def epochs(**options):
    lt.random.seed(3)
    loader = DataLoader(Rows(), 8, shuffle=True, **options)
    return [flat(b) for _ in range(2) for b in loader]


def same(a, b):
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        for (d, u), (e, v) in zip(x, y, strict=True):
            assert d == e
            np.testing.assert_array_equal(u, v)


def test_a_seed_gives_the_same_batches_for_any_number_of_workers():
    here = epochs()
    assert len(here) == 14 and not np.array_equal(here[0][1][1], here[7][1][1])
    same(here, epochs(num_workers=1))
    same(here, epochs(num_workers=3, persistent_workers=True, prefetch_factor=1))
    g = lt.random.Generator(5)
    first = [b["i"].tolist() for b in DataLoader(Rows(), 8, shuffle=True, generator=g)]
    g = lt.random.Generator(5)
    assert first == [b["i"].tolist() for b in DataLoader(Rows(), 8, shuffle=True, generator=g, num_workers=2)]
    assert not children()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_ways_to_start_processes(method):
    same(epochs(), epochs(num_workers=2, multiprocessing_context=method))


def test_generators_of_the_loops_process_go_on_as_before():
    random.seed(1)
    np.random.seed(1)
    lt.random.seed(1)
    it = iter(DataLoader(Rows(), 8))
    state = lt.random.get_state()
    next(it)
    found = random.random(), np.random.random()
    next(it)
    assert lt.random.get_state() == (state[0], state[1] + 1), "the seed of the epoch is one draw"
    random.seed(1)
    np.random.seed(1)
    assert found == (random.random(), np.random.random())


@pytest.mark.parametrize("workers", [0, 2])
def test_options(workers):
    rows = data.TensorDataset(lt.arange(10).reshape(5, 2), lt.arange(5.0))
    found = [
        (x.tolist(), i) for (x, _), i in DataLoader(rows, 2, drop_last=True, with_indices=True, num_workers=workers)
    ]
    assert found == [([[0, 1], [2, 3]], [0, 1]), ([[4, 5], [6, 7]], [2, 3])]
    batches = DataLoader(range(6), batch_sampler=[[5, 0], [1]], num_workers=workers, collate_fn=tuple)
    assert [*batches] == [(5, 0), (1,)] and len(batches) == 2
    assert list(DataLoader(range(3), batch_size=None, num_workers=workers)) == [0, 1, 2]
    assert [*DataLoader("abcd", 2, sampler=[3, 1, 0], num_workers=workers)] == [["d", "b"], ["a"]]
    x = lt.ones(2) + 1
    next(iter(DataLoader(range(3), num_workers=workers, sync_per_batch=True)))
    assert not x.is_pending


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_iterable_datasets(workers):
    loader = DataLoader(Count(10), 2, num_workers=workers)
    assert sorted(i for b in loader for i in b.tolist()) == [*range(10)] and len(loader) == 5
    whole = [b.tolist() for b in DataLoader(Count(7), 2, drop_last=True, num_workers=min(workers, 1))]
    assert whole == [[0, 1], [2, 3], [4, 5]]
    assert sorted(DataLoader(Count(5), None, num_workers=workers)) == [*range(5)]


def test_batches_of_many_bytes_come_through_memory_that_is_used_again():
    x = lt.random.rand(40, 3000)
    loader = DataLoader(data.TensorDataset(x), 4, num_workers=2)
    before = shared_files()
    kept = [*loader]
    assert shared_files() > before
    for k, (batch,) in enumerate(loader):  # each is let go of before the next
        np.testing.assert_array_equal(batch.numpy(), x[4 * k : 4 * k + 4].numpy())
    for k, (batch,) in enumerate(kept):
        np.testing.assert_array_equal(batch.numpy(), x[4 * k : 4 * k + 4].numpy())
        batch += 1  # a batch is the loop's own
    assert kept[0][0][0, 0].numpy() == x[0, 0].numpy() + np.float32(1)
    del kept, batch
    assert shared_files() <= before


def test_what_samples_may_be():
    def collate(samples):
        a = np.arange(9000).reshape(3, 3000)
        return {"t": lt.asarray(a.T), "n": a, "z": lt.zeros((0, 2)), "s": lt.asarray(2.5),
                "h": lt.ones(9000, dtype=lt.bfloat16),
                "g": lt.tensor([1.0, 1.0], requires_grad=True), "o": [samples, "text", None]}  # fmt: skip

    (b,) = DataLoader(range(2), 2, num_workers=1, collate_fn=collate)
    assert b["t"].shape == (3000, 3) and b["t"].tolist() == b["n"].T.tolist() and b["z"].shape == (0, 2)
    assert b["s"].item() == 2.5 and b["h"].dtype == lt.bfloat16 and bool((b["h"] == 1).all())
    assert b["g"].requires_grad and b["o"] == [[0, 1], "text", None]
    b["n"][0, 0] = 7  # as NumPy's arrays are


def initialised(i):
    info = data.get_worker_info()
    assert info.id == i and info.num_workers == 2
    info.dataset.x[:] = i


def test_workers_are_initialised_and_know_themselves():
    found = [b["x"].numpy().max() for b in DataLoader(Rows(8), 2, num_workers=2, worker_init_fn=initialised)]
    assert found == [0, 1, 0, 1]


def test_an_exception_of_a_worker_is_raised_with_its_traceback():
    with pytest.raises(KeyError, match="no such sample") as found:
        [*DataLoader(Faulty(KeyError("no such sample")), 4, num_workers=2)]
    assert "in __getitem__" in str(found.value.__cause__)
    assert any("in worker 1 (process" in n and "batch 1, samples [4, 5, 6, 7]" in n for n in found.value.__notes__)
    with pytest.raises(WorkerError, match=r"Unsendable: 1 and 2 \(in worker 1.*cannot be sent"):
        [*DataLoader(Faulty(Unsendable(1, 2)), 4, num_workers=2)]
    with pytest.raises(Exception, match="pickle"):
        [*DataLoader(range(2), 2, num_workers=1, collate_fn=lambda b: lambda: b)]
    with pytest.raises(ZeroDivisionError):
        [*DataLoader(range(2), 2, num_workers=1, worker_init_fn=lambda i: 1 / 0)]
    assert not children()


@pytest.mark.parametrize(("how", "match"), [
    (signal.SIGKILL, r"worker 1 \(process \d+\) was killed by SIGKILL .* before batch 1 was made"),
    ("exit", r"worker 1 \(process \d+\) ended with exit status 3 before batch 1"),
])  # fmt: skip
def test_a_worker_that_dies_is_named(how, match):
    with pytest.raises(WorkerError, match=match):
        [*DataLoader(Faulty(how), 4, num_workers=2)]
    assert not children()


def test_a_worker_that_takes_too_long_is_named():
    with pytest.raises(WorkerError, match=r"no batch in 0.3 seconds: worker 1 .* still making batch 1"):
        [*DataLoader(Faulty("sleep"), 4, num_workers=2, timeout=0.3)]
    assert not children()


def test_a_loop_that_is_left_ends_its_workers():
    for persistent in (False, True):
        loader = DataLoader(Rows(), 2, num_workers=2, persistent_workers=persistent)
        for _ in loader:
            break
        assert [b["i"].tolist() for b in loader][-1] == [48, 49]
        pids = {p.pid for p in children()}
        assert len(pids) == (2 if persistent else 0)
        assert len([*loader]) == 25 and {p.pid for p in children()} == pids
        del loader
        assert not children()


@pytest.mark.parametrize(("options", "match"), [
    ({"num_workers": -1}, "num_workers is an integer from 0 on, not -1"),
    ({"batch_size": 0}, "batch_size is a positive integer or None, not 0"),
    ({"timeout": -1, "num_workers": 1}, "timeout is in seconds"),
    ({"prefetch_factor": 2}, "about workers, and num_workers is 0"),
    ({"prefetch_factor": 0, "num_workers": 1}, "prefetch_factor is a positive integer, not 0"),
    ({"sampler": [0], "shuffle": True}, "sampler and shuffle exclude each other"),
    ({"batch_sampler": [[0]], "batch_size": 2}, "batch_sampler excludes batch_size"),
    ({"batch_size": None, "drop_last": True}, "drop_last has no meaning"),
])  # fmt: skip
def test_what_a_loader_refuses(options, match):
    with pytest.raises(ShapeError, match=match):
        DataLoader(range(3), **options)


def test_what_a_loader_of_an_iterable_refuses():
    with pytest.raises(ShapeError, match="samples of an IterableDataset have not"):
        DataLoader(Count(3), shuffle=True)
    with pytest.raises(DTypeError, match=r"multiprocessing_context is one of .* not 'thread'"):
        DataLoader(range(3), num_workers=1, multiprocessing_context="thread")


INTERRUPTED = """
import os, sys, threading, time, signal, random, multiprocessing
import numpy as np, lazyt as lt
class D(lt.data.Dataset):
    def __len__(self): return 10_000
    def __getitem__(self, i): return np.ones(2000, np.float32), i
def main(n):
    rng = random.Random(0)
    for _ in range(n):
        timer = threading.Timer(rng.uniform(0, 0.15), lambda: os.killpg(0, signal.SIGINT))
        try:
            timer.start()
            for x, i in lt.data.DataLoader(D(), 8, num_workers=4):
                x.sum().item()
        except KeyboardInterrupt:
            pass
        timer.join()
        del timer
    assert not multiprocessing.active_children(), multiprocessing.active_children()
    maps = open("/proc/self/maps").read().count("memfd:lazyt")
    assert maps <= 4, maps  # of the last batch, which `x` still is
    print("done", flush=True)
    if sys.argv[2:]:
        it = iter(lt.data.DataLoader(D(), 8, num_workers=2)); next(it)
        print(*[p.pid for p in multiprocessing.active_children()], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
main(int(sys.argv[1]))
"""


def interrupted(tmp_path: Path, n: int, *more: str) -> list[str]:
    program = tmp_path / "interrupted.py"
    program.write_text(INTERRUPTED)
    p = subprocess.Popen(
        [sys.executable, str(program), str(n), *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    out, err = p.communicate(timeout=60 + 3 * n)
    assert out.startswith("done"), err
    return out.split()[1:]


@pytest.mark.slow
def test_workers_end_at_an_interrupt_and_when_the_loop_is_killed(tmp_path):
    before = {*os.listdir("/dev/shm")}
    workers = interrupted(tmp_path, 3, "killed")
    until = time.monotonic() + 20
    while (
        left := [p for p in workers if Path(f"/proc/{p}/cmdline").exists() and Path(f"/proc/{p}/cmdline").read_text()]
    ) and time.monotonic() < until:
        time.sleep(0.05)
    assert len(workers) == 2 and not left
    while (left := {*os.listdir("/dev/shm")} - before) and time.monotonic() < until:  # what other tests have, they free
        time.sleep(0.05)
    assert not left


@pytest.mark.slow
def test_a_hundred_interrupts_leave_nothing(tmp_path):
    interrupted(tmp_path, 100)


def test_a_batch_of_mappings_has_their_class() -> None:
    for sample in (
        {"a": 1.0},
        collections.OrderedDict(a=1.0),
        collections.defaultdict(list, a=1.0),
        collections.UserDict(a=1.0),
    ):
        got = lt.data.default_collate([sample, sample])
        assert type(got) is type(sample)
        assert got["a"].tolist() == [1.0, 1.0]
        assert getattr(got, "default_factory", None) is getattr(sample, "default_factory", None)
        assert sample["a"] == 1.0
