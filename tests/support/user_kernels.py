"""Kernels as users write them, with arguments to try them on; each is compared with the function called by Python."""

from __future__ import annotations

import math
from math import sqrt
from typing import Any

import numpy as np

import lazyt as lt

FACTOR = 3.0
_rng = np.random.default_rng(5)

# The kernel, its arguments, and what else the call gets.
CASES: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []


def drawn(*shape: int, dtype: str = "f4") -> np.ndarray:
    return _rng.normal(size=shape).astype(dtype)


def case(*args: Any, shape: Any = None, **options: Any) -> Any:
    def add(f: Any) -> Any:
        made = lt.kernel(**options)(f) if options else lt.kernel(f)
        CASES.append((made, args, {} if shape is None else {"shape": shape}))
        return f

    return add


def squared(x):
    return x * x


def clamped(x, low, high):
    if x < low:
        return low
    if x > high:
        return high
    return x


# Elementwise, indices and numbers


@case(drawn(7))
def helpers_and_globals(i, /, x):
    return squared(x[i]) + clamped(x[i], -0.5, 0.5) * FACTOR


@case(drawn(4, 5))
def reversed_axes(i, j, /, x):
    return x[i, j] + x[3 - i, j] - x[i, 4 - j]


@case(drawn(4, 5))
def transposed(j, i, /, x):
    return x[i, j] * i + j / 2


@case(drawn(6, dtype="f8"), 0.1)
def numbers_keep_their_bits(i, /, x, c):
    return x[i] * (c * 3)


@case(_rng.integers(-5, 5, size=6))
def whole_numbers(i, /, x):
    return x[i] // 2 + x[i] % 3 + i, (x[i] + i) * 0.5, x[i] & 3


@case(shape=(3, 4))
def indices_alone(i, j, /):
    return i * 10 + j, i / 4, i == j


@case(drawn(6))
def functions_of_three_modules(i, /, x):
    return math.exp(x[i]) + math.floor(x[i]) + int(x[i]) + float(i) + np.float32(x[i]) + lt.tanh(x[i])


# Reading


@case(drawn(7), bounds="wrap")
def wrapping(i, /, x):
    return x[i - 2] + x[i + 3] - x[i - 1]


@case(drawn(7), bounds="clamp")
def clamping(i, /, x):
    return x[i - 2] + x[i + 3] * x[i]


@case(drawn(7), bounds="zero")
def zeros_outside(i, /, x):
    return x[i - 9] + x[i + 3] * x[i] + x[2 * i]


@case(drawn(3), _rng.integers(-9, 9, size=6), bounds="wrap")
def wrapping_by_data(i, /, x, at):
    return x[at[i]]


@case(drawn(3), _rng.integers(-9, 9, size=6), bounds="zero")
def zeros_by_data(i, /, x, at):
    return x[at[i]]


@case(drawn(10), _rng.integers(0, 10, size=6))
def reads_by_data(i, /, x, at):
    return x[at[i]] if at[i] > 2 else -1.0


@case(drawn(4, 4))
def diagonal(i, /, x):
    return x[i, i]


@case(drawn(9), shape=(5,))
def strided(i, /, x):
    return x[2 * i] - x[8 - 2 * i]


@case(drawn(5), shape=(5,))
def not_linear(i, /, x):
    return x[i // 2] + x[(i * i) % 5]


# Conditions


@case(drawn(5))
def guarded_reads(i, /, x):
    return x[i - 1] if i > 0 and x[i - 1] > 0 else 0.0


@case(drawn(5, 6), 0.1)
def edges_kept(i, j, /, u, dt):
    if 0 < i < u.shape[0] - 1 and 0 < j < u.shape[1] - 1:
        return u[i, j] + dt * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - 4 * u[i, j])
    return u[i, j]


@case(drawn(9))
def branches(i, /, x):
    if x[i] > 0:
        y = np.log(x[i])
    elif not x[i] > -1 or i == 3:
        return -2.0
    else:
        y = 0.5
    return y + 1


# Loops and reductions


@case(drawn(4, 70), drawn(70, 3))
def product(i, j, /, a, b):
    return sum(a[i, k] * b[k, j] for k in range(a.shape[1]))


@case(drawn(10), drawn(3), shape=(8,))
def correlated(i, /, x, w):
    return sum(x[i + t] * w[t] for t in range(3)), sum(x[i + t] * w[t] for t in range(w.shape[0]))


@case(drawn(6), shape=(6,))
def running_total(i, /, x):
    total = 0.0
    for t in range(x.shape[0]):
        if t <= i:
            total += x[t]
    return total


@case(drawn(6, 4))
def collected(i, /, x):
    best, least, total, powers = x[i, 0], x[i, 0], 0.0, 1.0
    for t in range(1, x.shape[1]):
        y = x[i, t] * 2
        best = max(best, y)
        least = min(y, least)
        total -= y
        powers = powers * y
    return best, least, total, powers


@case(drawn(9), 3)
def as_often_as_an_argument(i, /, x, n):
    s = 1.0
    for _ in range(n):
        s *= x[i]
    return s if n > 2 else 0.0


@case(drawn(5, 6), drawn(5, 6))
def escape(i, j, /, cx, cy):
    x, y, n = 0.0, 0.0, 0
    for _ in range(12):
        if x * x + y * y <= 4:
            x, y = x * x - y * y + cx[i, j], 2 * x * y + cy[i, j]
            n += 1
    return n


@case(drawn(9, 3))
def folds(i, /, x):
    n = x.shape[1]
    return (
        any(x[i, t] > 1 for t in range(3)),
        all(x[i, t] < 1 for t in range(n)),
        max(x[i, t] for t in range(3)),
        max(x[i, t] * t for t in range(n)),
        sum(x[i, t] for t in range(n) if x[i, t] > 0),
        sum(x[i, t] * x[k, t] for k in range(9) for t in range(n)),
    )


# Rows


@case(drawn(3, 8))
def softmax_of_rows(i, /, x):
    row = x[i]
    e = np.exp(row - max(row))
    return e / sum(e)


@case(drawn(3, 8))
def of_rows(i, /, x):
    return x[i].sum(), min(x[i]), np.argmax(x[i]), len(x[i])


@case(drawn(3, 8), drawn(8))
def row_and_elements(i, /, x, w):
    return sum(x[i] * w) + x[i, 3]


@case(drawn(3, 8), axis=-1)
def centred(x):
    return x - np.mean(x), max(x)


@case(drawn(3, 8), drawn(3), 2.5, axis=0)
def weighted(x, w, c):
    return sum(x * w) * c


@case(drawn(3, 8, 2), axis=1)
def unit(x):
    return x / sqrt(sum(x * x))


def compared(f: Any, args: tuple[Any, ...], more: dict[str, Any], found: Any) -> None:
    """Assert that what a kernel gave is what its function gives."""
    wanted = f.python(*args, **more)
    if not isinstance(wanted, tuple):
        found, wanted = (found,), (wanted,)
    for x, y in zip(found, wanted, strict=True):
        assert x.shape == y.shape
        np.testing.assert_allclose(x.numpy(), y, rtol=2e-5, atol=1e-6)
