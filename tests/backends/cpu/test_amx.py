"""Products of bfloat16 by AMX: as its maker documents it, on processors that have it and, emulated, on all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.backends.cpu import engine, pair_products
from lazyt.backends.cpu.library import gemm_amx, gemm_ir, products
from lazyt.ir.passes.schedule import MatmulCall
from lazyt.ir.symbolic import hint
from lazyt.runtime import plan_cache
from tests.support.amx import here
from tests.support.dots import BFLOAT16, CASES, Array, bound, computed, flushed, fused
from tests.support.plans import forget

FLOAT32 = np.dtype(np.float32)
# Rows, length, columns: whole registers, rests of rows, columns and pairs, several units, chunks and blocks of k.
SIZES = [
    (64, 64, 64),
    (65, 130, 47),
    (47, 7, 5),
    (30, 33, 16),
    (50, 2, 33),
    (300, 771, 40),
    (40, 1201, 70),
    (33, 0, 4),
    (400, 1160, 140),
]


@pytest.fixture(autouse=True)
def _planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small products too."""
    monkeypatch.setitem(plan_cache.settings, "tiers", False)
    for name in ("ROWS", "LENGTH"):
        monkeypatch.setattr(gemm_amx, name, 0)
    forget()
    yield
    forget()


def meaning(a: Array, b: Array) -> Array:
    """a @ b: of 16 pairs along k the first products are a sum, and so are the second ones; both are added at once."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for start in range(0, a.shape[1], 2 * gemm_amx.SIDE):
        sums = [np.zeros_like(total), np.zeros_like(total)]
        for p in range(start, min(start + 2 * gemm_amx.SIDE, a.shape[1])):
            sums[p % 2] = fused(sums[p % 2], a[:, p : p + 1], b[p])
        total = flushed(flushed(total) + flushed(sums[0] + sums[1]))
    return total


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(BFLOAT16)


@pytest.mark.parametrize("stored", ["bfloat16", "float32"])
@pytest.mark.parametrize("transposed", ["", "left", "right"])
def test_every_layout_and_rest(transposed: str, stored: str, way: str) -> None:
    for m, k, n in SIZES:
        a, b = draw(m, k), draw(k, n, seed=1)
        x, y = (lt.asarray(np.ascontiguousarray(v).astype(BFLOAT16 if stored == "bfloat16" else FLOAT32)) for v in (
            a.T if transposed == "left" else a, b.T if transposed == "right" else b,
        ))  # fmt: skip
        lt.sync()
        x, y = x.astype("bfloat16"), y.astype("bfloat16")
        z = lt.matmul(x.T if transposed == "left" else x, y.T if transposed == "right" else y)
        (call,) = [c for c in z.explain().plan.schedule.launches if isinstance(c, MatmulCall)]
        assert products.choose(call, hint, True, True).dots == ("tiles" if m > 6 * products.FEW else "")
        np.testing.assert_array_equal(z.numpy().astype("f4"), meaning(a, b).astype(BFLOAT16).astype("f4"))


@pytest.mark.parametrize("transposed", [False, True])
def test_panels_that_several_units_read_are_packed_once(
    transposed: bool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = lt.asarray(draw(401, 1161)), lt.asarray(draw(*((150, 1161) if transposed else (1161, 150)), seed=1))
    lt.sync()
    lt.set_num_threads(1)
    packed: list[str] = []
    write = products.pack_pairs_text

    def noted(*given: Any) -> tuple[str, str]:
        packed.append(given[2])
        return write(*given)

    monkeypatch.setattr(products, "pack_pairs_text", noted)
    w = b.T if transposed else b
    parts = [lt.matmul(a[rows], w).numpy() for rows in (slice(0, 130), slice(130, 260), slice(260, 401))]
    assert packed == []
    whole = lt.relu(lt.matmul(a, w) + 1).numpy()
    assert {*packed} == {"across" if transposed else "panel"}
    bits = lt.relu(lt.asarray(np.concatenate(parts)) + 1).numpy()
    np.testing.assert_array_equal(whole.astype("f4"), bits.astype("f4"))


def test_panels_that_are_packed_for_one_run_do_not_stay(way: str) -> None:
    """A matrix that a batch shares, of which a product with other rows asks for the panels next."""
    w, x, y = (lt.asarray(draw(*shape, seed=i)) for i, shape in enumerate([(256, 256), (4, 40, 256), (64, 256)]))
    lt.sync()
    want = lt.matmul(y, w).numpy().tobytes()
    forget()
    for _ in range(3):
        lt.matmul(x, lt.broadcast_to(w, (4, 256, 256))).numpy()
    assert lt.matmul(y, w).numpy().tobytes() == want


@pytest.mark.parametrize("name", CASES)
def test_the_instruction_is_within_the_bound(name: str) -> None:
    a, b = CASES[name]
    exact, allowed = bound(a, b)
    assert (np.abs(meaning(a, b) - exact) <= allowed).all()


@here
@pytest.mark.parametrize("name", CASES)
def test_this_processor_does_as_documented(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_products, "dot_products", lambda: "tiles")
    a, b = CASES[name]
    np.testing.assert_array_equal(computed(a, b), meaning(a, b))


@here
def test_bits_do_not_depend_on_threads() -> None:
    """Nor on whether weights stay packed: the second call has them so."""
    a, b = lt.asarray(draw(200, 900)), lt.asarray(draw(900, 300, seed=1))
    lt.sync()
    threads, found = lt.get_num_threads(), set()
    try:
        for n in (1, 2, 3, 5):
            lt.set_num_threads(n)
            forget()
            for _ in range(2):
                found.add(lt.matmul(a[:64], b).numpy().tobytes() + lt.matmul(a, b).numpy().tobytes())
    finally:
        lt.set_num_threads(threads)
    assert len(found) == 1


def test_a_step_of_training_under_autocast(way: str) -> None:
    """An epilogue on a product's part, batches of matrices, gradients by both operands: near float32's."""
    lt.random.seed(0)
    net = nn.Sequential(nn.Linear(40, 72), nn.GELU(), nn.Linear(72, 33))
    x = lt.asarray(draw(3, 50, 40).astype(np.float32))

    def gradients(enabled: bool) -> list[Array]:
        net.zero_grad()
        with lt.amp.autocast("cpu", dtype=lt.bfloat16, enabled=enabled):
            loss = (net(x) ** 2).sum()
        loss.backward()
        lt.sync()
        return [np.array(p.grad.numpy()) for p in net.parameters()]

    for half, exact in zip(gradients(True), gradients(False), strict=True):
        assert np.abs(half - exact).max() < 0.03 * np.abs(exact).max()


def test_code_for_a_processor_that_has_it() -> None:
    """Every step has four multiplications for four loads, and nothing of the registers is spilled."""
    engine.host()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    flags = "+avx2,+fma,+f16c,+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512bf16,+amx-tile,+amx-bf16"
    other = engine.Host("x86_64-unknown-linux-gnu", "sapphirerapids", flags)
    source = products.Source(BFLOAT16, BFLOAT16)
    tile = gemm_amx.TILE
    reads = gemm_ir.Reads(source, source, True, "tiles")
    text, name = gemm_ir.product_text(FLOAT32, tile, "row", tile.families(tile.columns), reads)
    code = other.machine.emit_assembly(other.parse(text, [name]))
    (tall,) = [part for part in code.split(".type\t") if part.startswith("micro.32.2,")]
    count: Callable[[str], int] = tall.count
    assert count("tdpbf16ps") == 8  # of whole steps, and of the rest
    assert count("tilestored") == 8
    assert count("tileloadd") == 2 * (4 + 4)


def test_small_products_are_float32s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(pair_products, "dot_products", lambda: "tiles")
    for m, k, dots in ((16, 32, "tiles"), (15, 64, ""), (64, 31, "")):
        z = lt.matmul(lt.asarray(draw(m, k)), lt.asarray(draw(k, 20)))
        (call,) = [c for c in z.explain().plan.schedule.launches if isinstance(c, MatmulCall)]
        assert products.choose(call, hint, True, True).dots == dots


def test_who_may_not_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor with AMX multiplies pairs by AVX-512 no faster than float32, so then not at all."""
    monkeypatch.setitem(pair_products.switches, "amx", True)
    features = engine.host_features() | {"amx-tile", "amx-bf16", "avx512bf16"}
    for module in (products, pair_products):
        monkeypatch.setattr(module, "host_features", lambda: features)
    for granted, expected in ((True, "tiles"), (False, "")):
        monkeypatch.setattr(pair_products, "_granted", lambda granted=granted: granted)
        assert pair_products.dot_products() == expected
    monkeypatch.setattr(pair_products, "_granted", lambda: True)
    monkeypatch.setitem(pair_products.switches, "amx", False)
    assert pair_products.dot_products() == ""
