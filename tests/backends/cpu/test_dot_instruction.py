"""`vdpbf16ps` as its maker documents it, emulated: its error beside that of the portable form, subnormals included."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu.engine import host_features
from lazyt.backends.cpu.library import products
from lazyt.backends.cpu.library.gemm_tile import KC
from lazyt.runtime import plan_cache
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


def emulated(a: Array, b: Array) -> Array:
    """a @ b in float32 by the instruction: of each pair along k the second product first, blocks of KC in order."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    if a.shape[1] % 2:
        a, b = np.pad(a, ((0, 0), (0, 1))), np.pad(b, ((0, 1), (0, 0)))
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for start in range(0, a.shape[1], KC):
        block = np.zeros_like(total)
        for p in range(start, min(start + KC, a.shape[1]), 2):
            for i in (p + 1, p):
                block = fused(block, a[:, i : i + 1], b[i])
        total = block if not start else total + block
    return total


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


@pytest.mark.parametrize("name", CASES)
def test_the_instruction_is_within_the_bound(name: str) -> None:
    a, b = CASES[name]
    exact, allowed = bound(a, b)
    assert (np.abs(emulated(a, b) - exact) <= allowed).all()


@pytest.fixture
def _planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(plan_cache.settings, "tiers", False)


@pytest.mark.usefixtures("_planned")
@pytest.mark.parametrize("name", CASES)
def test_the_portable_form_is_within_the_bound_of_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs by float32's instructions: the same bits where nothing is subnormal, else within what flushing may add."""
    monkeypatch.setattr(products, "dot_products", lambda: "portable")
    a, b = CASES[name]
    exact, allowed = bound(a, b)
    got, want = computed(a, b), emulated(a, b)
    assert (np.abs(got - exact) <= allowed).all()
    if "subnormal" in name or name == "far apart":
        assert (np.abs(got.astype(np.float64) - want) <= allowed).all()
    else:
        np.testing.assert_array_equal(got, want)


def test_the_emulation_flushes_and_rounds() -> None:
    """What tells the instruction from a plain sum: subnormals are zeros, and each product is added with a rounding."""
    tiny, one = np.full((1, 2), 2.0**-130, np.float32).astype(BFLOAT16), np.ones((2, 1), BFLOAT16)
    assert emulated(tiny, one).item() == 0.0
    small = np.array([[1.0, 1.0]], np.float32).astype(BFLOAT16) * np.float32(2.0**-70)
    assert emulated(small.astype(BFLOAT16), np.full((2, 1), 2.0**-60, np.float32).astype(BFLOAT16)).item() == 0.0
    # The second product is added first: 1, then 2^24 + 1, a tie that goes to even.
    a = np.array([[2.0**24, 1.0]], np.float32).astype(BFLOAT16)
    assert emulated(a, one).item() == 2.0**24
    a = np.array([[1.0, 2.0**24, 1.0, 0.0]], np.float32).astype(BFLOAT16)
    assert emulated(a, np.ones((4, 1), BFLOAT16)).item() == 2.0**24
    a = np.array([[2.0**24, 3.0]], np.float32).astype(BFLOAT16)
    assert emulated(a, one).item() == 2.0**24 + 4


@pytest.mark.usefixtures("_planned")
@pytest.mark.skipif("avx512bf16" not in host_features(), reason="this processor has no vdpbf16ps (avx512_bf16)")
@pytest.mark.parametrize("name", CASES)
def test_this_processor_does_as_emulated(name: str) -> None:
    a, b = CASES[name]
    np.testing.assert_array_equal(computed(a, b), emulated(a, b))
