"""Products of float16 and bfloat16 by generated code: read as they lie, summed up in float32, rounded once."""

from __future__ import annotations

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu import engine, pair_products
from lazyt.backends.cpu.engine import host_features
from lazyt.backends.cpu.library import gemm_ir, gemm_tile, products
from lazyt.backends.cpu.library.gemm_tile import KC
from lazyt.ir.passes.schedule import MatmulCall
from lazyt.ir.symbolic import hint
from lazyt.runtime import plan_cache
from tests.support.plans import forget

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
HALVES = {"float16": np.dtype("float16"), "bfloat16": BFLOAT16}
# Half a unit of a result's last place, relative to it.
ROUNDED = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}
# Rows, length, columns: tails of every kind, odd lengths, blocks of k, packed and read in place, a column, nothing.
SIZES = [
    (1, 5, 7), (30, 33, 16), (65, 130, 47), (100, 1201, 40), (3, 300, 65), (13, 17, 1), (3, 0, 4),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _checked(monkeypatch):
    """Fused from the first time on, and checked."""
    forget()
    for name, value in {"tiers": False, "verify": True}.items():
        monkeypatch.setitem(plan_cache.settings, name, value)
    yield
    forget()


def random(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32").astype(dtype)


def tensors(*arrays):
    out = [lt.asarray(a) for a in arrays]
    lt.sync()
    return out


def calls_of(x):
    return [c for c in x.explain().plan.schedule.launches if isinstance(c, MatmulCall)]


def assert_rounded_once(z, x, y):
    """The bound of docs/accuracy.md: half a unit of the result, and float32's rounding of each sum."""
    x, y = (np.asarray(v).astype("float64") for v in (x, y))
    want, most = x @ y, np.abs(x) @ np.abs(y)
    bound = ROUNDED[str(z.dtype)] * np.abs(want) + (x.shape[-1] + 1) * 2.0**-24 * most
    got = z.numpy().astype("float64")
    assert got.shape == want.shape
    assert (np.abs(got - want) <= bound).all(), np.max(np.abs(got - want) - bound)


@pytest.mark.parametrize("transposed", ["", "left", "right"])
@pytest.mark.parametrize(("left", "right"), [("bfloat16",) * 2, ("float16",) * 2, ("bfloat16", "float32")])
def test_halves_are_read_as_they_lie(left, right, transposed):
    for i, (m, k, n) in enumerate(SIZES):
        a = random((k, m) if transposed == "left" else (m, k), HALVES.get(left, left), i)
        b = random((n, k) if transposed == "right" else (k, n), HALVES.get(right, right), i + 50)
        x, y = tensors(a, b)
        z = (x.T if a.shape != (m, k) else x) @ (y.T if b.shape != (k, n) else y)
        if min(m, n, k) > 1:
            (call,) = calls_of(z)
            assert [base.dtype for base, _, _ in call.operands] == [a.dtype, b.dtype]
        assert_rounded_once(z, a if a.shape == (m, k) else a.T, b if b.shape == (k, n) else b.T)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("transposed", [False, True])
def test_casts_of_weights_are_never_in_memory(half, transposed):
    x, w, bias = tensors(random((40, 65), "float32"), random((50, 65) if transposed else (65, 50), "float32", 1),
                         random(50, "float32", 2))  # fmt: skip
    w_ = w.T if transposed else w
    z = lt.maximum(x.astype(half) @ w_.astype(half) + bias.astype(half), 0)
    (call,) = z.explain().plan.schedule.launches
    assert [base.dtype for base, _, _ in call.operands] == ["float32", "float32"]
    assert call.epilogue is not None
    assert not call.kept
    h = HALVES[half]
    p = (x.numpy().astype(h).astype("f8") @ w_.numpy().astype(h).astype("f8")).astype("f4").astype(h)
    np.testing.assert_allclose(
        z.numpy().astype("f8"), np.maximum(p + bias.numpy().astype(h), 0).astype("f8"), rtol=2**-6, atol=0.05
    )


@pytest.mark.parametrize("half", HALVES)
def test_rounding_while_reading_is_the_casts(half):
    """By the identity: the bits of a cast, for every kind of float32, packed and read in place."""
    near = np.arange(0x7F7FFF00, 0x7F800100, 1, dtype=np.uint32)  # around the greatest, infinity, NaNs
    ties = (np.arange(4096, dtype=np.uint32) << 11) | np.array([0, 0x7FFF, 0x8000, 0x8001], np.uint32).repeat(1024)
    small = np.arange(1, 257, dtype=np.uint32) << 12  # subnormal
    bits = np.concatenate([near, ties + 0x38000000, small, near | 0x80000000])
    one = lt.asarray(np.ones((1, 1), "float32"))
    for rows in (1, 64):
        # A product over k = 1 by ones: what is read comes out, in float32.
        x = lt.asarray(np.tile(bits.view("float32"), (1, 1)))
        (x,) = tensors(x)
        z = lt.matmul(lt.ones((rows, 1), dtype=half) * one.astype(half), x.astype(half)).astype("float32")
        got = z.numpy()
        with np.errstate(over="ignore", invalid="ignore"):
            want = bits.view("float32").astype(HALVES[half]).astype("float32")
        if half == "bfloat16" and pair_products.dot_products() == "native" and rows > 1:
            want[np.abs(want) < np.finfo("float32").tiny] = 0  # what the instruction takes subnormal numbers as
        for row in got[:: max(rows - 1, 1)]:
            np.testing.assert_array_equal(row, want)


@pytest.mark.parametrize("half", HALVES)
def test_the_bits_are_those_of_float32_copies(half, monkeypatch):
    """`no-halves` reads copies; with `no-blas` both are one code's sums."""
    monkeypatch.setitem(plan_cache.settings, "blas", False)
    monkeypatch.setattr(pair_products, "dot_products", lambda: "")
    a, b = random((70, 130), HALVES[half]), random((130, 90), HALVES[half], 1)
    found = []
    for on in (True, False):
        forget()
        monkeypatch.setitem(plan_cache.settings, "halves", on)
        x, y = tensors(a, b)
        found.append((x @ y).numpy().astype("float32"))
    np.testing.assert_array_equal(*found)


def test_batches_and_attention_read_halves():
    a, b = random((3, 2, 20, 30), BFLOAT16), random((3, 2, 40, 30), BFLOAT16, 1)
    x, y = tensors(a, b)
    z = x @ y.mT
    (call,) = calls_of(z)
    assert {base.dtype for base, _, _ in call.operands} == {BFLOAT16}
    assert_rounded_once(z, a, np.swapaxes(b, -1, -2))
    q, k = tensors(a[..., :1, :], b)
    o = lt.nn.functional.scaled_dot_product_attention(q, k, k)
    s = np.asarray(a[..., :1, :], "f8") @ np.swapaxes(np.asarray(b, "f8"), -1, -2) / np.sqrt(30)
    w = np.exp(s - s.max(-1, keepdims=True))
    np.testing.assert_allclose(o.numpy().astype("f8"), w / w.sum(-1, keepdims=True) @ b.astype("f8"), atol=2e-2)


def test_gradients_of_products_of_halves():
    x, w = tensors(random((33, 20), "float32"), random((20, 17), "float32", 1))
    w.requires_grad_()
    (x.astype("bfloat16") @ w.astype("bfloat16")).sum().backward()
    want = x.numpy().astype(BFLOAT16).astype("f8").T @ np.ones((33, 17))
    np.testing.assert_allclose(w.grad.numpy(), want, rtol=2**-7, atol=1e-2)


def test_a_layer_under_autocast_is_divided_as_in_float32():
    """An activation and its derivative are epilogues: casts do not make them costly."""
    x, w, v = tensors(random((33, 20), "float32"), random((20, 48), "float32", 1), random((48, 16), "float32", 2))
    w.requires_grad_()
    found = []
    for enabled in (False, True):
        with lt.amp.autocast("cpu", dtype=lt.bfloat16, enabled=enabled):
            y = lt.nn.functional.gelu(x @ w, approximate="tanh") @ v
        y.astype("float32").sum().backward()
        plan = w.grad.explain().plan
        found.append(sum(c.epilogue is not None for c in plan.schedule.launches if isinstance(c, MatmulCall)))
        w.grad = None
    assert found[1] >= found[0] > 0


def test_many_batch_axes_and_no_gemm_are_computed_from_copies(monkeypatch):
    a, b = random((1, 2, 1, 2, 1, 2, 1, 3, 4), BFLOAT16), random((1, 2, 1, 2, 1, 2, 1, 4, 5), BFLOAT16, 1)
    x, y = tensors(a, b)
    assert_rounded_once(x @ y, a, b)
    monkeypatch.setitem(plan_cache.settings, "gemm", False)
    forget()
    x, y = tensors(a[0, 0, 0], b[0, 0, 0])
    z = x @ y
    assert {base.dtype for c in calls_of(z) for base, _, _ in c.operands} == {np.dtype("float32")}
    assert_rounded_once(z, a[0, 0, 0], b[0, 0, 0])


class TestDots:
    """Products of pairs of bfloat16: `vdpbf16ps`, or the same in float32's instructions."""

    @staticmethod
    def meaning(a, b):
        """What the instruction defines, in float32: the second product of a pair first, blocks of KC added in order.

        A product of two bfloat16 is exact in float32, so a sum of it is a fused one.
        """
        a, b = a.astype("float32"), b.astype("float32")
        if a.shape[1] % 2:
            a, b = np.pad(a, ((0, 0), (0, 1))), np.pad(b, ((0, 1), (0, 0)))
        total = np.zeros((len(a), b.shape[1]), "float32")
        for start in range(0, a.shape[1], KC):
            block = np.zeros_like(total)
            for p in range(start, min(start + KC, a.shape[1]), 2):
                for i in (p + 1, p):
                    block += a[:, i : i + 1] * b[i]
            total = block if not start else total + block
        return total

    @pytest.mark.parametrize("stored", ["bfloat16", "float32"])
    @pytest.mark.parametrize("transposed", ["", "left", "right"])
    def test_the_layout_of_pairs(self, transposed, stored, monkeypatch):
        monkeypatch.setattr(pair_products, "dot_products", lambda: "portable")
        self.check(transposed, stored)

    @pytest.mark.skipif("avx512bf16" not in host_features(), reason="this processor has no vdpbf16ps (avx512_bf16)")
    @pytest.mark.parametrize("stored", ["bfloat16", "float32"])
    @pytest.mark.parametrize("transposed", ["", "left", "right"])
    def test_the_instruction(self, transposed, stored, monkeypatch):
        monkeypatch.setattr(pair_products, "dot_products", lambda: "native")
        self.check(transposed, stored)

    def check(self, transposed, stored):
        for i, (m, k, n) in enumerate([(40, 7, 5), (33, 400, 35), (65, 771, 16)]):
            a = random((k, m) if transposed == "left" else (m, k), BFLOAT16, i)
            b = random((n, k) if transposed == "right" else (k, n), BFLOAT16, i + 50)
            x, y = tensors(a.astype(HALVES.get(stored, stored)), b.astype(HALVES.get(stored, stored)))
            x, y = x.astype("bfloat16"), y.astype("bfloat16")
            x, y = x.T if transposed == "left" else x, y.T if transposed == "right" else y
            z = lt.matmul(x, y)
            (call,) = calls_of(z)
            assert products.choose(call, hint, True, True).dots
            want = self.meaning(a if a.shape == (m, k) else a.T, b if b.shape == (k, n) else b.T)
            np.testing.assert_array_equal(z.numpy().astype("f4"), want.astype(BFLOAT16).astype("f4"))

    def test_few_rows_are_not_packed_for_it(self, monkeypatch):
        monkeypatch.setattr(pair_products, "dot_products", lambda: "portable")
        x, y = tensors(random((4, 64), BFLOAT16), random((64, 64), BFLOAT16))
        (call,) = calls_of(x @ y)
        assert not products.choose(call, hint, True, True).dots

    @pytest.mark.parametrize("cpu", ["sapphirerapids", "znver4"])
    def test_code_for_processors_that_have_it(self, cpu, monkeypatch):
        engine.host()
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        flags = "+avx2,+fma,+f16c,+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512bf16"
        other = engine.Host("x86_64-unknown-linux-gnu", cpu, flags)
        monkeypatch.setattr(engine, "host", lambda: other)
        for module in (products, pair_products):
            monkeypatch.setattr(module, "host_features", lambda: other.features)
        assert pair_products.dot_products() == "native"
        source = products.Source(BFLOAT16, BFLOAT16)
        for width, register in ((64, "zmm"), (32, "ymm")):
            tile = gemm_tile.tile_of(np.dtype("float32"), other.features, width)
            reads = gemm_ir.Reads(source, source, True, "native")
            text, name = gemm_ir.product_text(np.dtype("float32"), tile, "row", tile.families(tile.columns + 1), reads)
            code = other.machine.emit_assembly(other.parse(text, [name]))
            dots = [line for line in code.splitlines() if "vdpbf16ps" in line]
            assert len(dots) >= tile.rows[0] * tile.vectors
            assert all(register in line for line in dots)
            assert "vfmadd" not in code
