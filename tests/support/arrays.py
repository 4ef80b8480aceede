"""Arrays that several test files make and compare."""

from __future__ import annotations

import numpy as np


def normal(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def octets(x: np.ndarray) -> np.ndarray:
    """The bytes of an array, to compare to the bit."""
    return np.ascontiguousarray(x).reshape(-1).view("u1")
