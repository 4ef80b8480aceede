"""Blocks of `memory.compress` and `memory.budget` nest, also of one object, and each thread has its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.tracing.trace import local
from tests.support.compressed import array, kept

BLOCKS: list[Callable[[], Any]] = [
    lambda: lt.memory.compress(bits=2),
    lambda: lt.memory.compress(bits=2, level="L3"),
    lambda: lt.memory.budget("1 MiB"),
]


def _field(block: Any) -> Any:
    mode = local.trace.mode
    return mode.memory if isinstance(block, lt.memory.budget) else mode.compress


@pytest.mark.parametrize("made", BLOCKS)
def test_a_block_within_itself_ends_when_the_outer_one_does(made: Callable[[], Any]):
    """As where a module enters its compression and calls another that enters the same."""
    c = made()
    before = local.trace.mode
    with c:
        inside = _field(c)
        with c, c:
            assert _field(c) is inside is not None
        assert _field(c) is inside
    assert local.trace.mode is before


@pytest.mark.parametrize("made", BLOCKS)
def test_exceptions_leave_nested_blocks(made: Callable[[], Any]):
    c = made()
    before = local.trace.mode
    with c:
        inside = _field(c)
        with pytest.raises(ValueError, match="one"), c:
            raise ValueError("one")
        assert _field(c) is inside
    assert local.trace.mode is before
    with pytest.raises(ValueError, match="two"), c, c:
        raise ValueError("two")
    assert local.trace.mode is before


@pytest.mark.parametrize("made", BLOCKS)
def test_each_thread_leaves_its_own_blocks(made: Callable[[], Any]):
    """A thread that is outside of all blocks, and one within another block, enter in turn and leave in turn."""
    c, around = made(), made()
    turns = [threading.Event() for _ in range(4)]
    found: list[bool] = []

    def other() -> None:
        turns[0].wait(10)
        before = local.trace.mode
        with c:
            turns[1].set()
            turns[2].wait(10)
        found.append(local.trace.mode is before)
        turns[3].set()

    t = threading.Thread(target=other)
    t.start()
    with around:
        before = _field(c)
        with c:
            turns[0].set()
            turns[1].wait(10)
        assert _field(c) is before
        turns[2].set()
        turns[3].wait(10)
    t.join(10)
    assert found == [True]


def test_gradients_outside_of_nested_blocks_are_exact():
    x, w = lt.tensor(array(64, 64)), lt.tensor(array(64, 64, seed=1), requires_grad=True)

    def gradient() -> np.ndarray:
        w.grad = None
        lt.tanh(lt.tanh(x @ w) @ w).sum().backward()
        return w.grad.numpy()

    exact = gradient()
    c = lt.memory.compress(bits=2)
    with c, c:
        pass
    np.testing.assert_array_equal(gradient(), exact)


def test_the_samples_of_a_block_are_not_those_of_one_within_it():
    c = lt.memory.compress(bits=2, level="L3")
    x, w = lt.tensor(array(4, 256)), lt.tensor(array(256, 256, seed=1), requires_grad=True)
    with c.samples([3, 1, 0, 2]):
        assert local.trace.mode.compress.by_sample
        with c:
            assert not local.trace.mode.compress.by_sample
        assert local.trace.mode.compress.by_sample
        y = lt.tanh(x @ w)
    with c:
        assert not local.trace.mode.compress.by_sample
    loss = (y * y).sum()
    del y
    loss.backward()
    assert kept().packed > 0
    lt.sync()


def test_a_budget_decorates_a_function():
    budget = lt.memory.budget("1 MiB")

    @budget
    def depth(n: int) -> int:
        """Calls itself."""
        assert _field(budget) is not None
        return 0 if n == 0 else 1 + depth(n - 1)

    before = local.trace.mode
    assert depth(3) == 3 and local.trace.mode is before
    assert depth.__doc__ == "Calls itself."


def test_a_block_that_is_left_open_ends_with_its_thread():
    entered = []

    def opens() -> None:
        for block in (lt.no_sync(), lt.expect(syncs=9)):
            entered.append(block)
            block.__enter__()

    def reads() -> None:
        found.append((lt.ones(2) * 2).tolist())

    found: list[Any] = []
    for f in (opens, reads, reads):
        t = threading.Thread(target=f)
        t.start()
        t.join()
        del t
    assert found == [[2.0, 2.0]] * 2


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_blocks_of_no_sync_that_overlap_end_each_for_itself(order: tuple[int, int]):
    blocks = [lt.no_sync(), lt.no_sync()]
    for b in blocks:
        b.__enter__()
    x = lt.ones(2) * 3
    for n, k in enumerate(order):
        with pytest.raises(lt.SyncError, match="no_sync: a sync is not allowed here"):
            x.tolist()
        blocks[k].__exit__(None, None, None)
        assert len(local.trace.syncs_forbidden) == 1 - n
    assert x.tolist() == [3, 3]


def test_a_block_of_no_sync_within_itself():
    block = lt.no_sync()
    with block:
        with block:
            pass
        with pytest.raises(lt.SyncError):
            (lt.ones(2) * 3).tolist()
    assert (lt.ones(2) * 3).tolist() == [3, 3]


def test_a_block_of_no_sync_that_ends_in_a_function_under_vmap():
    block = lt.no_sync()
    block.__enter__()

    def f(x: Any) -> Any:
        block.__exit__(None, None, None)
        return x * 2

    assert lt.vmap(f)(lt.ones(3)).tolist() == [2, 2, 2]
    assert local.trace.syncs_forbidden == []
