"""`vdpbf16ps` as its maker documents it, emulated: its error beside that of the portable form, subnormals included."""

from __future__ import annotations

import numpy as np
import pytest

from lazyt.backends.cpu import pair_products
from lazyt.backends.cpu.engine import host_features
from lazyt.backends.cpu.library.gemm_tile import KC
from lazyt.runtime import plan_cache
from tests.support.dots import BFLOAT16, CASES, Array, bound, computed, fused


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
    monkeypatch.setattr(pair_products, "dot_products", lambda: "portable")
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
def test_this_processor_does_as_emulated(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_products, "dot_products", lambda: "native")
    a, b = CASES[name]
    np.testing.assert_array_equal(computed(a, b), emulated(a, b))
