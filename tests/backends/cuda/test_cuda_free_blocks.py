"""Memory that a run gives back is taken by the next one. Above the fake driver."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cuda import device as devices, free_blocks
from lazyt.backends.cuda.device import Device, device
from lazyt.backends.cuda.free_blocks import ASKED, RUNS, FreeBlocks
from lazyt.backends.registry import backends
from lazyt.runtime import plan_cache
from tests.support.cuda.fake import FakeDriver, FakeStream, installed
from tests.support.cuda.shim import compiler


class Keeping(FakeDriver):
    """Counts what it is asked for."""

    keeps_freed = True
    asked_for = 0

    def allocate(self, device: int, nbytes: int) -> tuple[int, object]:
        self.asked_for += 1
        return super().allocate(device, nbytes)


@pytest.fixture
def gpu() -> Iterator[Keeping]:
    compiler()
    with mock.patch.dict(plan_cache.settings, {"tiers": False}), installed(Keeping()) as fake:
        yield fake


def on_gpu(*shape: int) -> Any:
    return lt.asarray(np.random.default_rng(0).normal(size=shape).astype(np.float32), device="cuda:0")


def where() -> Device:
    return device("cuda:0")


def test_a_loop_asks_for_no_memory(gpu: Keeping) -> None:
    p, g = on_gpu(1000), on_gpu(1000) * 0.1
    want, step = p.numpy(), g.numpy()
    for i in range(12):
        p = p - g
        lt.sync()
        want = want - step
        if i == 3:
            asked = gpu.asked_for
    assert gpu.asked_for == asked
    np.testing.assert_array_equal(p.numpy(), want)


def test_what_is_held_is_not_taken(gpu: Keeping) -> None:
    x, kept = on_gpu(300), []
    for i in range(8):
        y = x * float(i)
        lt.sync()
        if i % 2:
            kept.append((i, y))
        del y
    assert len({y._buffer.address for _, y in kept}) == len(kept)
    for i, y in kept:
        np.testing.assert_array_equal(y.numpy(), x.numpy() * np.float32(i))


def test_memory_in_a_cycle_of_garbage_is_taken(gpu: Keeping) -> None:
    """CPython tells all that is in a cycle that it ends, before any of it does."""
    x = on_gpu(1000)
    for i in range(4):
        y = x + float(i)
        lt.sync()
        cycle: list[Any] = [y]
        cycle.append(cycle)
        del y, cycle
        gc.collect()
    asked = gpu.asked_for
    for _ in range(2):
        y = x * 2
        lt.sync()
        np.testing.assert_array_equal(y.numpy(), x.numpy() * 2)
        del y
    assert gpu.asked_for == asked


def test_what_is_kept_does_not_count_as_allocated(gpu: Keeping) -> None:
    allocator = backends["cuda:0"].allocator
    x = on_gpu(1000)
    before = allocator.statistics("cuda:0").allocated
    used = gpu.used
    for _ in range(3):
        y = x + 1
        lt.sync()
        del y
    assert gpu.used > used
    # The fake driver has no blocks.
    assert before - 512 <= allocator.statistics("cuda:0").allocated <= before
    allocator.release_cached("cuda:0")
    assert gpu.used == used


def test_it_goes_back_where_memory_is_short(gpu: Keeping) -> None:
    x = on_gpu(1000)
    used = gpu.used
    for n in range(2, 6):
        y = x[: 100 * n] + 1
        lt.sync()
        del y
    gpu.limit = gpu.used
    y = x + 1
    np.testing.assert_array_equal(y.numpy(), x.numpy() + 1)
    assert gpu.used == used + 4000
    with pytest.raises(lt.OutOfMemory, match="no memory for"):
        lt.concatenate([x] * 9).numpy()


def test_it_goes_back_when_it_was_not_used_for_long(gpu: Keeping) -> None:
    x = on_gpu(1000)
    for _ in range(2):
        y = x + 1
        lt.sync()
        del y
    used = gpu.used
    z = x[:10] * 2
    for _ in range(2 * RUNS):
        z = z * 2
        lt.sync()
    assert gpu.used < used
    assert gpu.used <= x.nbytes + 3 * 40


def test_sizes_that_are_new_each_time_are_not_kept(gpu: Keeping) -> None:
    x = on_gpu(1000)
    used = gpu.used
    for n in range(100, 160):
        (x[:n] + 1).numpy()
    assert gpu.used - used < 3 * RUNS // ASKED * 4 * 160


def test_large_blocks_go_back_at_once(gpu: Keeping, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "LARGEST", 2000)
    x = on_gpu(1000)
    used = gpu.used
    for _ in range(3):
        y = x + 1
        lt.sync()
        del y
    assert gpu.used == used


def test_streams_have_their_own(gpu: Keeping) -> None:
    x = on_gpu(300)
    first = gpu.stream
    with mock.patch.object(gpu, "name_of", side_effect=lambda stream: 1 + (stream is not first)):
        y = x + 1
        lt.sync()
        at = y._buffer.address
        del y
        gpu.stream = FakeStream()
        y = x + 2
        lt.sync()
        assert y._buffer.address != at
        gpu.stream = first
        z = x + 3
        lt.sync()
        assert z._buffer.address == at
        np.testing.assert_array_equal(z.numpy() - y.numpy(), (x.numpy() + 3) - (x.numpy() + 2))


def test_as_many_stay_as_were_in_use() -> None:
    blocks = FreeBlocks()
    free = blocks.of_size(8)
    for i in range(5):
        free.append(i)
        free.owners[i] = None

    def runs(n: int, takes: int) -> None:
        for _ in range(n):
            taken = [free.pop() for _ in range(takes)]
            blocks.ran([free], False)
            free.extend(taken)

    runs(RUNS, 3)
    assert len(free) == 5, "the first look is only a look"
    runs(RUNS, 3)
    assert len(free) == 3
    runs(2 * RUNS, 3)
    assert len(free) == 3
    runs(RUNS, 1)
    assert len(free) == 3
    runs(RUNS, 1)
    assert len(free) == 1


def test_sizes_of_which_nothing_is_free_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_blocks, "MOST_SIZES", 3)
    blocks = FreeBlocks()
    kept = blocks.of_size(1)
    kept.owners[1] = None
    for n in range(2, 9):
        blocks.of_size(n)
    for _ in range(RUNS):
        blocks.ran([], False)
    assert len(blocks.lists) == 3 and blocks.lists[1] is kept
