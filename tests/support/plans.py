"""What tests of plans share: to forget all programs, and the bits of results, also with other threads and plans."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import numpy as np

import lazyt as lt
from lazyt.backends.cpu import engine
from lazyt.runtime import chain, first_run, plan_cache
from lazyt.tracing.trace import local

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pytest


def forget() -> None:
    """Make every program a new one."""
    local.trace.reset_trie()
    plan_cache._programs.clear()
    chain.forget()
    first_run.forget()


def make_room() -> None:
    """Drop plans and steps that other tests left, unless half of their bounds is free; nothing is pending.

    Plans are dropped where a sync finds too many. Within a test that counts plans or replays, that is one test's lot
    in ten thousand.
    """
    crowded = engine._loader.remaining < engine.RECOUNT // 2
    if 2 * plan_cache.budget.made < plan_cache.budget.bound and not crowded:
        return
    plan_cache.drop_all()
    plan_cache.drop_plans(local.trace)
    local.trace.reset_trie()
    if crowded:
        gc.unfreeze()  # see conftest.py
        gc.collect()
        engine._loader.remaining = 0
        engine.is_crowded()  # counts what is left


def bits(a: np.ndarray) -> bytes:
    """The bits of an array, all NaNs being one."""
    return (np.where(np.isnan(a), np.array(np.nan, a.dtype), a) if a.dtype.kind == "f" else a).tobytes()


def bits_by_threads_and_epilogues(
    results: Callable[[], Iterable[np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> set[bytes]:
    """All that the results are, bit by bit, on one to four threads, and with what follows in launches of its own."""
    before = lt.get_num_threads()
    found = set()
    try:
        for threads, epilogues in [(1, True), (2, True), (4, True), (2, False)]:
            lt.set_num_threads(threads)
            monkeypatch.setitem(plan_cache.settings, "epilogues", epilogues)
            forget()
            found.add(b"".join(v.tobytes() for v in results()))
    finally:
        lt.set_num_threads(before)
    return found
