"""The pool of the CPU's memory: blocks, limits, figures, and what NumPy holds of it."""

from __future__ import annotations

import ctypes
import gc
import itertools
import mmap
import sys
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest

from lazyt.backends.cpu import memory


class TestMemory:
    @pytest.fixture
    def pool(self):
        return memory.Pool()

    def test_size_classes(self):
        for nbytes in [*range(1, 2000), *(2**k + d for k in range(11, 41) for d in (-1, 0, 1))]:
            size = memory.class_size(nbytes)
            assert nbytes <= size <= max(nbytes * 1.125, nbytes + 63)
            assert size % 64 == 0
            assert memory.class_size(size) == size
        assert memory.class_size(0) == 64

    def test_buffers_are_aligned_apart_and_writable(self, pool):
        sizes = [0, 1, 64, 65, 1000, 5000, 70_000, 300_000, 3 << 20]
        buffers = [pool.allocate(size) for size in sizes * 3]
        for i, buffer in enumerate(buffers):
            assert buffer.address % 64 == 0
            ctypes.memset(buffer.address, i, buffer.nbytes)
        for i, buffer in enumerate(buffers):
            assert ctypes.string_at(buffer.address, buffer.nbytes) == bytes([i]) * buffer.nbytes
        spans = sorted((b.address, b.address + b.nbytes) for b in buffers)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        assert "3145728 bytes" in repr(buffers[-1])

    def test_steady_loop_reuses_the_last_block(self, pool):
        for size in (100, 5000, 1 << 20, 5 << 20):
            first, second = pool.allocate(size), pool.allocate(size)
            addresses = first.address, second.address
            reserved = pool.reserved()
            del first
            del second
            assert pool.allocate(size).address == addresses[1]
            kept = [pool.allocate(size), pool.allocate(size)]
            assert {b.address for b in kept} == set(addresses)
            assert pool.reserved() == reserved

    @pytest.mark.skipif(sys.platform != "linux", reason="counts page faults")
    def test_steady_loop_has_no_page_faults(self, pool):
        resource = pytest.importorskip("resource")

        def step() -> None:
            buffers = [pool.allocate(size) for size in (4096, 100_000, 4 << 20)]
            for buffer in buffers:
                ctypes.memset(buffer.address, 1, buffer.nbytes)

        for _ in range(3):
            step()

        def taken() -> int:
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
            for _ in range(20):
                step()
            return int(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt) - before

        # 20 x 1,050 pages if they were fresh, every time; a few belong to the interpreter, or to what the kernel took.
        assert min(taken() for _ in range(3)) < 200

    def test_statistics(self, pool):
        assert (pool.allocated(), pool.reserved(), pool.peak()) == (0, 0, 0)
        one = pool.allocate(1 << 20)
        two = pool.allocate(1 << 20)
        assert pool.allocated() == pool.peak() == 2 << 20
        assert pool.reserved() == (2 << 20) + 2 * mmap.PAGESIZE, "where they begin in a page is another place for each"
        del two
        assert (pool.allocated(), pool.peak()) == (1 << 20, 2 << 20)
        pool.reset_peak()
        assert pool.peak() == 1 << 20
        three = pool.allocate(1 << 20)  # a cached block: no new memory, and yet a peak
        assert (pool.peak(), pool.reserved()) == (2 << 20, (2 << 20) + 2 * mmap.PAGESIZE)
        del one, three
        assert pool.allocated() == 0 and pool.reserved() == (2 << 20) + 2 * mmap.PAGESIZE
        pool.empty_cache()
        assert pool.reserved() == 0

    def test_temporaries_of_plans_that_take_turns_share_one_block(self, pool):
        first = pool.lend(3 << 20)
        at = first.address
        assert pool.allocated() == pool.peak() == 3 << 20
        del first
        small = pool.lend((1 << 20) + 1)
        assert (small.address, small.nbytes) == (at, (1 << 20) + 1), "any free block that is large enough serves"
        assert pool.allocated() == (1 << 20) + mmap.PAGESIZE, "and counts the pages that it needs"
        del small
        assert pool.allocated() == 0
        before = pool.reserved()
        large = pool.lend(6 << 20)
        assert pool.reserved() < before + (6 << 20), "smaller free blocks go first"
        del large
        assert pool.lend(3 << 20).nbytes == 3 << 20 and pool.reserved() < before + (6 << 20)

    def test_results_take_a_block_of_their_class_and_temporaries_what_is_left(self, pool):
        del (held := [pool.allocate(1 << 20), pool.allocate(2 << 20)])[:]
        reserved = pool.reserved()
        result, temporaries = pool.allocate(1 << 20), pool.lend(1 << 20)
        assert temporaries.address != result.address and pool.reserved() == reserved
        inner = pool.lend(1 << 19)  # a run within a run
        assert inner.address not in (result.address, temporaries.address)
        for b in (result, temporaries, inner):
            ctypes.memset(b.address, 1, b.nbytes)
        del result, temporaries, inner, b, held
        assert pool.allocated() == 0

    def test_temporaries_beyond_the_limit(self, pool):
        pool.set_limit(4 << 20)
        held = pool.lend(3 << 20)
        with pytest.raises(MemoryError, match=rf"asked for {2 << 20} bytes; allocated {3 << 20}"):
            pool.lend(2 << 20)
        del held
        assert pool.lend(4 << 20).nbytes == 4 << 20
        assert pool.allocated() == 0
        with pytest.raises(MemoryError, match="out of memory"):
            pool.lend(memory.LARGEST + 1)

    def test_large_blocks_begin_at_many_places_of_a_page(self, pool):
        # A load waits for a store under way to the same place of another page, so arrays should not be in step.
        held = [pool.allocate(n) for n in (1 << 20, 4_000_000, 3 << 20, 1 << 20) * 4]
        places = [b.address % mmap.PAGESIZE for b in held]
        assert len(set(places)) == memory.COLOURS
        assert all(a != b for a, b in itertools.pairwise(places))
        assert not any(b.address % memory.ALIGNMENT for b in held)
        for b in held:
            ctypes.memset(b.address, 1, b.nbytes)
        del b, held
        pool.empty_cache()
        assert pool.reserved() == 0

    def test_empty_cache_keeps_slabs_in_use(self, pool):
        small = [pool.allocate(64) for _ in range(1000)]
        kept = small[500]
        ctypes.memset(kept.address, 7, 64)
        del small[:]
        pool.empty_cache()
        assert 0 < pool.reserved() < 1000 * 64
        assert ctypes.string_at(kept.address, 64) == b"\7" * 64
        again = [pool.allocate(64) for _ in range(1000)]
        assert len({b.address for b in again} | {kept.address}) == 1001

    def test_limit(self, pool):
        pool.set_limit(3 << 20)
        first = pool.allocate(2 << 20)
        said = f"allocated 2097152, reserved {(2 << 20) + mmap.PAGESIZE}, limit 3145728"
        message = f"lazyt: out of memory: asked for 2097152 bytes; {said}"
        with pytest.raises(MemoryError, match=message):
            pool.allocate(2 << 20)
        assert pool.allocated() == 2 << 20
        del first
        # The cached 2 MiB are given back, for the class of 3 MiB does not fit beside them.
        second = pool.allocate(3 << 20)
        assert pool.reserved() == (3 << 20) + mmap.PAGESIZE
        del second
        pool.set_limit(None)
        assert pool.allocate(8 << 20).nbytes == 8 << 20

    def test_limit_below_what_is_allocated(self, pool):
        one, two = pool.allocate(1 << 20), pool.allocate(1 << 20)
        pool.set_limit(1 << 20)
        with pytest.raises(MemoryError, match="limit 1048576"):
            pool.allocate(64)
        del one  # cached: taking it would still pass the limit
        with pytest.raises(MemoryError, match="asked for 1048576 bytes; allocated 1048576"):
            pool.allocate(1 << 20)
        assert pool.allocated() == 1 << 20
        del two
        assert pool.allocate(1 << 20).nbytes == 1 << 20

    def test_limit_leaves_room_for_small_buffers(self, pool):
        pool.set_limit(10_000)
        kept = [pool.allocate(n) for n in (10, 100, 1000, 8000)]
        assert pool.allocated() <= 10_000 < pool.allocated() + 1024
        with pytest.raises(MemoryError, match="asked for 1000 bytes"):
            pool.allocate(1000)
        assert len(kept) == 4

    @pytest.mark.parametrize("nbytes", [1 << 46, 1 << 60, 1 << 70])
    def test_impossible_sizes(self, pool, nbytes):
        with pytest.raises(MemoryError, match=f"asked for {nbytes} bytes; .* limit none"):
            pool.allocate(nbytes)
        assert pool.reserved() == pool.allocated() == 0

    def test_wrong_arguments(self, pool):
        with pytest.raises(ValueError, match="a size in bytes is required, not -1"):
            pool.allocate(-1)
        with pytest.raises(ValueError, match="a limit in bytes or None is required, not -5"):
            pool.set_limit(-5)
        with pytest.raises(TypeError):
            pool.allocate("4")

    def test_sizes_that_always_change_do_not_pile_up(self, pool):
        for i in range(300):
            pool.allocate((1 << 20) + (i << 17))
        assert pool.reserved() <= 2 * memory.CACHE_FLOOR + (64 << 20)

    def test_freed_by_the_collector_inside_allocate(self, pool):
        class Cycle:
            pass

        threshold = gc.get_threshold()
        gc.set_threshold(5)
        try:
            for i in range(3000):
                holder = Cycle()
                holder.me = holder
                holder.buffer = pool.allocate(64 + 64 * (i % 7))
        finally:
            gc.set_threshold(*threshold)
        del holder
        gc.collect()
        assert pool.allocated() == 0

    def test_many_threads(self, pool):
        failures: list[str] = []

        def work(seed: int) -> None:
            random = np.random.default_rng(seed)
            live: list[tuple[memory.Buffer, int]] = []
            for step in range(400):
                buffer = pool.allocate(int(random.choice([64, 200, 5000, 300_000])))
                mark = (seed * 37 + step) % 251
                ctypes.memset(buffer.address, mark, 64)
                live.append((buffer, mark))
                if len(live) > 8:
                    old, expected = live.pop(int(random.integers(8)))
                    if ctypes.string_at(old.address, 64) != bytes([expected]) * 64:
                        failures.append(f"{old} was handed out twice")

        workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not failures
        assert pool.allocated() == 0

    def test_buffer_outlives_its_pool(self):
        buffer = memory.Pool().allocate(3 << 20)
        gc.collect()
        ctypes.memset(buffer.address, 1, buffer.nbytes)

    def test_ndarray_keeps_the_buffer(self, pool):
        buffer = pool.allocate(4000)
        gone = weakref.ref(buffer)
        array = memory.as_ndarray(buffer, np.float32, (10, 100), writable=True)
        assert array.ctypes.data == buffer.address
        array[:] = np.arange(1000).reshape(10, 100)
        view = memory.as_ndarray(buffer, np.float32, (5,), strides=(-8,), offset=32)
        np.testing.assert_array_equal(view, [8, 6, 4, 2, 0])
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            view.flags.writeable = True
        half = array[5:]
        del array, view, buffer
        assert gone() is not None and half[0, 0] == 500
        del half
        assert gone() is None
        assert pool.allocated() == 0

    @pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i8", "f2", "f8", "c8", "c16", ml_dtypes.bfloat16])
    def test_the_array_of_a_value(self, pool, dtype):
        dtype = np.dtype(dtype)
        buffer = pool.allocate(6 * dtype.itemsize)
        gone = weakref.ref(buffer)
        memory.as_ndarray(buffer, dtype, (2, 3), writable=True)[:] = expected = np.arange(6).reshape(2, 3).astype(dtype)
        array = memory.value_array(buffer, dtype, (2, 3))
        assert array.dtype == dtype and array.ctypes.data == buffer.address
        np.testing.assert_array_equal(array, expected)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
        del buffer
        assert gone() is not None
        del array
        assert gone() is None

    def test_the_array_of_no_dimensions_and_of_no_elements(self, pool):
        assert memory.value_array(pool.allocate(4), np.dtype("f4"), ()).shape == ()
        assert memory.value_array(pool.allocate(0), np.dtype("f4"), (0, 5)).shape == (0, 5)

    def test_ndarray_stays_inside(self, pool):
        buffer = pool.allocate(100)
        assert memory.as_ndarray(buffer, np.int64, (12,)).shape == (12,)
        assert memory.as_ndarray(buffer, np.int64, (0, 5)).shape == (0, 5)
        assert memory.as_ndarray(buffer, np.int8, (), offset=99).shape == ()
        with pytest.raises(TypeError, match="too small"):
            memory.as_ndarray(buffer, np.int64, (13,))
        with pytest.raises(ValueError, match="strides is incompatible"):
            memory.as_ndarray(buffer, np.int64, (3,), strides=(-8,), offset=8)

    def test_external_memory(self):
        array = np.arange(10.0)
        before = memory.allocated()
        buffer = memory.wrap_external(array.ctypes.data, array.nbytes, array)
        assert (buffer.readonly, buffer.owner is array, buffer.nbytes) == (True, True, 80)
        with pytest.raises(ValueError, match="the buffer is read-only"):
            memory.as_ndarray(buffer, np.float64, (10,), writable=True)
        view = memory.as_ndarray(buffer, np.float64, (10,))
        assert np.shares_memory(view, array)
        writable = memory.wrap_external(array.ctypes.data, 80, array, readonly=False)
        memory.as_ndarray(writable, np.float64, (10,), writable=True)[3] = -1
        assert array[3] == -1
        owner = weakref.ref(array)
        del array, buffer, writable
        assert owner() is not None and view[3] == -1
        del view
        assert owner() is None
        assert memory.allocated() == before
