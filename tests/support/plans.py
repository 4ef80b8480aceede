"""What tests of plans share: to forget all programs, and the bits of results."""

from __future__ import annotations

import numpy as np

from lazyt.runtime import first_run, plan_cache
from lazyt.tracing.trace import local


def forget() -> None:
    """Make every program a new one."""
    local.trace.reset_trie()
    plan_cache._programs.clear()
    first_run.forget()


def bits(a: np.ndarray) -> bytes:
    """The bits of an array, all NaNs being one."""
    return (np.where(np.isnan(a), np.array(np.nan, a.dtype), a) if a.dtype.kind == "f" else a).tobytes()
