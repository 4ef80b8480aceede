"""Small sample calls for operation records: (args, kwargs) of NumPy arrays over dtypes, shapes and zero
sizes; and the dtype that their NumPy references give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt import on_demand
from lazyt.ir import dtypes

if TYPE_CHECKING:
    import random
else:
    random = on_demand.module("random")

Sample = tuple[tuple[Any, ...], dict[str, Any]]
Samples = Callable[[], Sequence[Sample]]


def array(
    shape: tuple[int, ...], dtype: Any = np.float32, low: float = -4, high: float = 4, seed: int = 0
) -> np.ndarray[Any, Any]:
    """Seeded values in [low, high): whole numbers for integers (at least 0 if unsigned), random for bool."""
    # NOTE: not numpy.random, whose import takes longer than all samples.
    rng = random.Random(f"{seed} {shape}")

    def uniform(low: float, high: float) -> np.ndarray[Any, Any]:
        return np.array([low + (high - low) * rng.random() for _ in range(math.prod(shape))], float).reshape(shape)

    d = np.dtype(dtype)
    k = dtypes.kind(d)
    if k == "b":
        return np.asarray(uniform(0, 1) < 0.5)
    values = uniform(max(low, 0) if k == "u" else low, high)
    if k == "c":
        return np.asarray(values + 1j * uniform(low, high)).astype(d)
    return np.floor(values).astype(d) if k in "iu" else values.astype(d)


_BY_KIND: dict[str, tuple[Any, ...]] = {
    "b": (np.bool_,),
    "i": (np.int64, np.int32, np.int8),
    "u": (np.uint64, np.uint8),
    "f": (np.float32, np.float64, np.float16),
    "c": (np.complex64, np.complex128),
}


def unary(kinds: str = "f", low: float = -4, high: float = 4, also: tuple[Any, ...] = ()) -> Samples:
    """Calls f(x): every dtype of the kinds (and `also`), rank 0 to 3, and nothing at all."""

    def make() -> list[Sample]:
        d = [d for k in kinds for d in _BY_KIND[k]] + list(also)
        calls: list[Sample] = [((array((2, 3), t, low, high),), {}) for t in d]
        calls += [((array(s, d[0], low, high),), {}) for s in ((), (1,), (0, 3), (2, 1, 4))]
        return calls

    return make


def binary(
    kinds: str = "f",
    low: float = -4,
    high: float = 4,
    low2: float | None = None,
    high2: float | None = None,
    mixed: tuple[tuple[Any, Any], ...] = ((np.float32, np.float64),),
    scalars: tuple[Any, ...] = (2.5,),
) -> Samples:
    """Calls f(x, y): every dtype, broadcasting both ways, mixed dtypes, a Python scalar on either side."""
    lo2, hi2 = low if low2 is None else low2, high if high2 is None else high2

    def second(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        return array(shape, dtype, lo2, hi2, seed=1)

    def make() -> list[Sample]:
        d = [d for k in kinds for d in _BY_KIND[k]]
        calls: list[Sample] = [((array((2, 3), t, low, high), second((2, 3), t)), {}) for t in d]
        for s, t in (((2, 3), (3,)), ((2, 1), (1, 3)), ((), (4,)), ((0, 3), (1, 3)), ((3, 1, 2), (2, 1))):
            calls.append(((array(s, d[0], low, high), second(t, d[0])), {}))
        calls += [((array((3,), s, low, high), second((3,), t)), {}) for s, t in mixed]
        for v in scalars:
            calls += [((array((3,), d[0], low, high), v), {}), ((v, second((3,), d[0])), {})]
        return calls

    return make


def calls(*samples: tuple[Any, ...]) -> Samples:
    """Positional calls; a trailing dict gives the keywords."""

    def make() -> list[Sample]:
        return [(s[:-1], s[-1]) if isinstance(s[-1], dict) else (s, {}) for s in samples]

    return make


def as_given(y: Any, x: np.ndarray, *others: Any) -> np.ndarray:
    """A reference's result, computed wide, in the dtype of `x`; of all operands where one of them is complex."""
    if dtypes.kind(y.dtype) != "c":
        return np.asarray(y.astype(x.dtype))
    return np.asarray(y.astype(np.result_type(x, *(a for a in others if a is not None))))
