"""NumPy's arrays become tensors by copies that several threads share."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu import parallel_copy
from lazyt.backends.cpu.parallel_copy import FEW, PARTS, SHARED
from lazyt.backends.cpu.thread_pool import runtime


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("size", [0, 1, 63, SHARED - 1, SHARED, SHARED + 1, SHARED + 64 * PARTS - 1, 3 * SHARED + 17])
@pytest.mark.parametrize("threads", [1, 2, 3], indirect=True)
def test_every_byte_is_copied_and_none_beside(size: int) -> None:
    a = np.random.default_rng(size).integers(0, 256, size + 2, np.uint8)[1 : size + 1]
    for _ in range(FEW + 2):
        buffer = parallel_copy.copied(a)
        whole = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * max(size, 1)).from_address(buffer.address))
        np.testing.assert_array_equal(whole[:size], a)


def test_what_lies_behind_stays() -> None:
    size = SHARED + 5
    to, a = np.zeros(2 * size, np.uint8), np.ones(size, np.uint8)
    for _ in range(FEW + 2):
        to[:] = 0
        parallel_copy._copier.copy(to.ctypes.data, a.ctypes.data, size)
        assert to[:size].all() and not to[size:].any()


def test_large_copies_are_shared() -> None:
    before = lt.get_num_threads()
    lt.set_num_threads(2)
    runtime()
    try:
        for _ in range(FEW + 1):
            lt.asarray(np.zeros(SHARED, np.uint8))
    finally:
        lt.set_num_threads(before)
    assert parallel_copy._copier.program is not None


def test_threads_that_copy_at_once() -> None:
    arrays = [np.full(SHARED, i, np.int16) for i in range(8)]
    failed: list[np.int16] = []

    def work(a: np.ndarray) -> None:
        failed.extend(a[0] for _ in range(30) if not (lt.asarray(a).numpy() == a).all())

    callers = [threading.Thread(target=work, args=(a,)) for a in arrays]
    for c in callers:
        c.start()
    for c in callers:
        c.join()
    assert not failed


def test_any_order_and_dtype() -> None:
    x = np.arange(6 * 300_000, dtype=np.float32).reshape(6, -1)
    for a in (x, x.T, x[::2], x[:, ::-1], x.astype(np.complex64), x > 5, x.astype(">f4"), np.float32(3), x[:0]):
        got = lt.asarray(a)
        assert got.shape == a.shape
        np.testing.assert_array_equal(got.numpy(), a)


def test_a_copy_is_the_tensor_s_own() -> None:
    for n in (3, SHARED):
        a = np.zeros(n, np.float32)
        x = lt.asarray(a)
        a[:] = 1
        assert not x.numpy().any()
