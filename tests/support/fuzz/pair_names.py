"""The names that programs of `operation_pairs.py` use."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.ir import dtypes
from lazyt.nn import functional as F
from lazyt.testing.statements import Space, space_of

Array = np.ndarray[Any, Any]


def space_for(xp: Any) -> Space:
    """The names that programs use, for NumPy (`reference`) or lazyt."""

    def total(y: Any, seed: int) -> Any:
        weights = np.random.default_rng(seed).uniform(0.5, 1.5, y.shape)
        if dtypes.kind(y.dtype) != "c":
            return xp.sum(y * weights)
        return xp.sum(xp.real(y) * weights) + xp.sum(xp.imag(y) * (2 - weights))

    def put(a: Any, key: Any, value: Any) -> Any:
        a[key] = value
        return a

    def add(a: Any, key: Any, value: Any) -> Any:
        a[key] += value
        return a

    return {**space_of(xp), "total": total, "put": put, "add": add, **(_OURS if xp is lt else _NUMPY)}


def _linear(x: Array) -> Array:
    """Five points from end to end of the last axis."""
    at = np.linspace(0, x.shape[-1] - 1, 5)
    low = np.minimum(at.astype(int), max(x.shape[-1] - 2, 0))
    return x[..., low] * (1 - (at - low)) + x[..., np.minimum(low + 1, x.shape[-1] - 1)] * (at - low)


# Functions with arguments that the NumPy functions of the table do not take.
_OURS: dict[str, Callable[..., Any]] = {
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "kl_div_log": lambda x, t: F.kl_div(x, t, log_target=True, reduction="sum"),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "linear": lambda x: F.interpolate(x, size=5, mode="linear", align_corners=True),
}
_NUMPY: dict[str, Callable[..., Any]] = {
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "kl_div_log": lambda x, t: np.sum(np.exp(t) * (t - x)),
    "nearest": lambda x: np.repeat(x, 2, axis=-1),
    "linear": _linear,
}
