"""Arrays that several test files make and compare."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def normal(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def octets(x: np.ndarray) -> np.ndarray:
    """The bytes of an array, to compare to the bit."""
    return np.ascontiguousarray(x).reshape(-1).view("u1")


def assert_close_at_scale(got: Sequence[np.ndarray], want: Sequence[np.ndarray], ulps: float) -> None:
    """Sums of many: each array differs by at most so many units of its largest element's last place."""
    for p, q in zip(got, want, strict=True):
        scale = float(np.abs(q).max(initial=0)) or 1.0
        np.testing.assert_allclose(p, q, rtol=0, atol=ulps * float(np.finfo(q.dtype).eps) * scale)
