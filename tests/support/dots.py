"""Products of pairs of bfloat16: operands, their error's bound, and what instructions for them do with a number."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import lazyt as lt
from tests.support.plans import forget

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
LEAST = 2.0**-126  # the least normal number, of bfloat16 as of float32

Array = np.ndarray


def flushed(x: Array) -> Array:
    """Subnormal numbers as zeros of their sign."""
    return np.where(np.abs(x) < LEAST, np.copysign(np.float32(0), x), x).astype(np.float32)


def fused(total: Array, a: Array, b: Array) -> Array:
    """total + a * b of float32, rounded once to nearest even: operands and result flushed, whatever the mode is.

    A product of two bfloat16 has 16 bits. So the sum in float64 is exact, or one addend is below a quarter of the
    other's last place in float32: float64's rounding never makes a tie.
    """
    exact = flushed(total).astype(np.float64) + flushed(a).astype(np.float64) * flushed(b).astype(np.float64)
    # As x86 has it: what counts is the result once it is rounded to 24 bits, as if there were no least exponent.
    small = np.abs(exact) < 2 * LEAST
    scaled = (np.where(small, exact, 0) * 2.0**64).astype(np.float32)
    return np.where(small & (np.abs(scaled) < LEAST * 2.0**64), np.copysign(0, exact), exact).astype(np.float32)


def bound(a: Array, b: Array) -> tuple[Array, Array]:
    """The exact product, and what docs/accuracy.md allows of error before it is rounded to the result's dtype."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    k = a.shape[1]
    most = np.abs(a) @ np.abs(b)
    small_a, small_b = (np.where(np.abs(x) < LEAST, np.abs(x), 0) for x in (a, b))
    lost = small_a @ np.abs(b) + np.abs(a) @ small_b
    return a @ b, (k + 1) * 2.0**-24 * most + lost + (k + 1) * LEAST


def cases() -> list[tuple[str, Array, Array]]:
    rng = np.random.default_rng(0)

    def draw(*shape: int, scale: float = 1.0) -> Array:
        return (rng.standard_normal(shape) * scale).astype(np.float32).astype(BFLOAT16)

    mixed = np.exp2(rng.integers(-126, 60, (33, 70)).astype(np.float64))
    tiny = np.exp2(rng.integers(-133, -120, (33, 70)).astype(np.float64))
    order = np.array([[2.0**24, 3.0, 1.0, 1.0]] * 33, np.float32)
    return [
        ("usual", draw(40, 131), draw(131, 35)),
        ("long", draw(33, 771), draw(771, 17)),
        ("odd", draw(40, 7), draw(7, 5)),
        ("far apart", (mixed * rng.choice([-1, 1], mixed.shape)).astype(BFLOAT16), draw(70, 17)),
        ("subnormal operands", tiny.astype(BFLOAT16), draw(70, 17, scale=4.0)),
        ("subnormal sums", draw(33, 70, scale=2.0**-70), draw(70, 17, scale=2.0**-60)),
        ("subnormal products", draw(33, 70, scale=2.0**-64), draw(70, 17, scale=2.0**-64)),
        ("rounded between", order.astype(BFLOAT16), np.ones((4, 3), BFLOAT16)),
    ]


CASES = {name: (a, b) for name, a, b in cases()}


def computed(a: Array, b: Array) -> Array:
    forget()
    x, y = lt.asarray(a), lt.asarray(b)
    lt.sync()
    z = lt.matmul(x.astype("float32"), y.astype("float32"))  # of the halves themselves, not rounded
    return np.asarray(z.numpy())
