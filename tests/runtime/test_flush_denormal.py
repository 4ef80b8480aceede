"""Numbers below the smallest normal one as zeros, where that is asked for: in each kind of run, on all threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.runtime import plan_cache

SMALL = np.float32(1e-40)


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    if not lt.set_flush_denormal(False):
        pytest.skip("this processor has no such mode")
    yield
    lt.set_flush_denormal(False)


PROGRAMS: dict[str, Any] = {
    "a map": lambda x: x * 0.5,
    "what is made of normal numbers": lambda x: (x * 0 + np.float32(1e-20)) * np.float32(1e-20),
    "a sum": lambda x: x.sum(),
    "a product": lambda x: x.reshape(-1, 4) @ (lt.ones((4, 4)) * 0.5),
    "rows": lambda x: lt.mean(x.reshape(-1, 4), axis=1),
    "a running sum": lambda x: lt.cumsum(x),
}


@pytest.mark.parametrize("tiers", [False, True])
@pytest.mark.parametrize("n", [4, 1 << 18])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_zeros_while_it_is_on(
    name: str, n: int, tiers: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a first run, and in those that are repeated."""
    monkeypatch.setitem(plan_cache.settings, "tiers", tiers)
    x = lt.asarray(np.full(n, SMALL))
    for mode in (False, True, False):
        assert lt.set_flush_denormal(mode)
        for _ in range(4):
            assert bool((PROGRAMS[name](x).numpy() != 0).all()) is not mode


def test_an_optimizer_s_state_that_decays_comes_to_zero() -> None:
    p = lt.nn.Parameter(lt.ones(3))
    optimizer = lt.optim.SGD([p], lr=0.1, momentum=0.5)
    p.grad = lt.full(3, 1e-30)
    optimizer.step()
    for mode in (False, True):
        lt.set_flush_denormal(mode)
        for _ in range(40):
            p.grad = lt.zeros(3)
            optimizer.step()
        found = optimizer.state[p]["momentum_buffer"].numpy()
        assert (found == 0).all() if mode else ((found > 0) & (found < np.finfo(np.float32).tiny)).all()


def test_numpy_in_this_thread_computes_as_before() -> None:
    lt.set_flush_denormal(True)
    (lt.asarray(np.full(4, SMALL)) * 2).numpy()
    assert np.full(4, SMALL)[0] * np.float32(0.5) > 0
