"""Temporaries in the memory of others that die where they are made: which, and that no value depends on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

import lazyt as lt
from lazyt.config import general as switches
from lazyt.inspect.explain import explain_whole
from lazyt.ir.passes.schedule import Schedule
from tests.support.plans import forget

Program = Callable[..., Any]
RNG = np.random.default_rng(0)
X, W, V = (RNG.standard_normal(s).astype(np.float32) for s in ((48, 64), (64, 64), (64, 64)))


def _planned(program: Program, *arrays: np.ndarray) -> tuple[Schedule, int, np.ndarray]:
    """The schedule of a program, the bytes of its arena, and its result."""
    with mock.patch.dict(switches, {"tiers": False, "first": False}):
        forget()
        out = program(*(lt.asarray(a) for a in arrays))
        found: Any = explain_whole(out)
        return found.plan.schedule, found.bound.arena_size, out.numpy()


def _taken(program: Program, *arrays: np.ndarray) -> int:
    """How many temporaries take the memory of others, with the same bits as without that, and no more memory."""
    schedule, size, found = _planned(program, *arrays)
    with mock.patch.dict(switches, {"inplace": False}):
        apart, more, expected = _planned(program, *arrays)
    assert not apart.in_place
    assert size <= more
    assert found.tobytes() == expected.tobytes()
    assert schedule.in_place is not None
    assert bool(schedule.in_place) == (size < more) or size == more
    return len(schedule.in_place)


def test_a_row_kernel_writes_over_what_it_reads() -> None:
    assert _taken(lambda x, w, v: lt.softmax(x @ w, -1) @ v, X, W, V) == 1


def test_a_row_kernel_whose_later_stages_read_back_what_it_writes_over_its_operand() -> None:
    def program(x: Any, w: Any, v: Any) -> Any:
        p = x @ w
        c = p - lt.mean(p, axis=-1, keepdims=True)
        scale = lt.rsqrt(lt.mean(c * c, axis=-1, keepdims=True))
        return (c @ v) + lt.sum(lt.exp(c * scale), axis=-1, keepdims=True)

    taken = _taken(program, X, W, V)
    with mock.patch.dict(switches, {"reuse": False}):
        assert _taken(program, X, W, V) < taken


def test_the_arena_is_smaller() -> None:
    def program(x: Any, w: Any, v: Any) -> Any:
        return lt.softmax(x @ w, -1) @ v

    _, size, _ = _planned(program, X, W, V)
    with mock.patch.dict(switches, {"inplace": False}):
        _, more, _ = _planned(program, X, W, V)
    assert size == more - X.nbytes


def test_a_value_that_is_read_later_stays() -> None:
    def program(x: Any, w: Any, v: Any) -> Any:
        y = x @ w
        return lt.softmax(y, -1) @ v @ (y.mT @ x)

    _taken(program, X, W, V)
    schedule, _, _ = _planned(program, X, W, V)
    assert not any(n.op == "matmul" for n in (schedule.in_place or {}).values())


@pytest.mark.parametrize(
    "read",
    [
        lambda y: lt.roll(y, 1, 0) + y,
        lambda y: lt.roll(y, 1, 1) * y,
        lambda y: lt.flip(y, (0,)) - y,
        lambda y: y[:, :48].mT + y[:, :48],
        lambda y: y + y[5:6],
        lambda y: lt.cumsum(y, 1) + y,
        lambda y: lt.take(y, lt.asarray([3, 3, 5, *range(45)]), 0) + y,
    ],
)
def test_what_is_read_elsewhere_too_is_not_written_over(read: Program) -> None:
    def program(x: Any, w: Any, v: Any) -> Any:
        y = read(x @ w)
        return y @ v[: y.shape[1]]

    _taken(program, X, W, V)


def test_an_operand_of_a_product_is_not_written_over_by_its_epilogue() -> None:
    def program(x: Any, w: Any, v: Any) -> Any:
        y = lt.tanh(x @ w)
        return lt.tanh(y @ v + y) @ w

    _taken(program, X, W, V)


def test_a_chain_shares_one_block() -> None:
    def program(x: Any, w: Any, v: Any) -> Any:
        y = x @ w
        for _ in range(6):
            y = lt.softmax(lt.layer_norm(y, (64,)) @ v, -1)
        return y @ w

    assert _taken(program, X, W, V) >= 5


def test_gradients_lie_where_their_values_lay() -> None:
    def program(x: Any, w: Any, v: Any) -> Any:
        w.requires_grad_()
        loss = lt.nn.functional.cross_entropy(lt.tanh(x @ w) @ v, lt.arange(48) % 64)
        loss.backward()
        return w.grad

    assert _taken(program, X, W, V) >= 1


def test_a_loop_over_many_sizes_is_right_at_each() -> None:
    """One plan, bound again: what fits in the memory of another value at one size may not at another."""
    forget()
    for n in (48, 1, 7, 64, 3, 128, 200, 5, 64, 33, 17, 9, 250):
        x = RNG.standard_normal((n, 64)).astype(np.float32)
        with mock.patch.dict(switches, {"tiers": False}):
            y = lt.softmax(lt.asarray(x) @ lt.asarray(W), -1) @ lt.asarray(V)
            z = lt.layer_norm(y, (64,)) @ lt.asarray(W)
            found = z.numpy()
        with mock.patch.dict(switches, {"inplace": False, "tiers": False}):
            forget()
            y = lt.softmax(lt.asarray(x) @ lt.asarray(W), -1) @ lt.asarray(V)
            expected = (lt.layer_norm(y, (64,)) @ lt.asarray(W)).numpy()
        assert found.tobytes() == expected.tobytes()
