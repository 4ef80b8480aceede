"""`lt.memory.set_limit` and `set_packed_share`: what they take, and what they say of all else."""

from __future__ import annotations

import gc
import re
from typing import Any

import numpy as np
import pytest

import lazyt as lt


@pytest.mark.parametrize("limit", ["1 KB", 1000, np.int64(1000)])
def test_a_limit_is_a_number_or_a_text_as_a_budget_is(limit: Any):
    x = lt.ones(2**16) + 1
    try:
        lt.memory.set_limit(limit)
        with pytest.raises(lt.OutOfMemory):
            lt.sync()
        lt.memory.set_limit("1 TiB")
        assert float(x[0]) == 2
    finally:
        lt.memory.set_limit(None)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ("1 apple", ValueError, "memory.set_limit: '1 apple' is no size"),
        (1.5, TypeError, "memory.set_limit: bytes or a text such as '2 GiB' are required, not 'float'"),
        (True, TypeError, "memory.set_limit: bytes or a text such as '2 GiB' are required, not 'bool'"),
        (-1, ValueError, "memory.set_limit: a size of at least 0 is required, not -1"),
    ],
)
def test_what_is_no_limit(value: Any, error: type[Exception], message: str):
    with pytest.raises(error, match=re.escape(message)):
        lt.memory.set_limit(value)


@pytest.mark.parametrize("value", ["a", None, True])
def test_what_is_no_share(value: Any):
    with pytest.raises(TypeError, match=re.escape("memory.set_packed_share: a number from 0 to 1 is required, not")):
        lt.memory.set_packed_share(value)


def test_a_program_goes_on_when_what_did_not_fit_is_dropped() -> None:
    """Also where a plan for both is known: what is dropped is not computed."""
    # NOTE: what other tests left, and their memory that is kept for later, would have room for it.
    gc.collect()
    lt.memory.empty_cache()
    lt.memory.set_limit(lt.memory.reserved() + 3_000_000)
    try:
        for turn in range(3):
            big, small = lt.ones((1000, 1000)) * 3, lt.ones(3) * float(turn)
            with pytest.raises(lt.OutOfMemory):
                big.tolist()
            del big
            assert small.tolist() == [float(turn)] * 3
    finally:
        lt.memory.set_limit(None)
