"""lazyt's attention kernels for a GPU: their source, run on the CPU and compiled; and plans that launch them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cuda import engine
from lazyt.backends.cuda.device import device
from lazyt.backends.cuda.flags import switches
from lazyt.backends.cuda.library.attention_emit import attention_text
from lazyt.backends.cuda.library.attention_gradient_emit import gradient_text
from lazyt.backends.cuda.library.attention_kernels import OLDEST_MMA, Kernels
from lazyt.backends.cuda.library.attention_tile import Variant, tile_for, widest
from lazyt.backends.object_cache import ObjectCache
from lazyt.errors import NotSupportedError
from lazyt.ir import dtypes
from lazyt.ir.attention import attention_of, gradient_of
from lazyt.ir.passes.schedule import AttentionCall
from lazyt.nn import functional as F
from lazyt.runtime import plan_cache
from tests.support.arrays import normal
from tests.support.attention import SIZES, close, exact, mask_of, operands, results
from tests.support.cuda.attention import forward, gradient
from tests.support.cuda.fake import FakeDriver, installed
from tests.support.cuda.fake_cudnn import FakeCudnn
from tests.support.plans import forget

FLOAT16, FLOAT32, FLOAT64 = (np.dtype(t) for t in ("f2", "f4", "f8"))


# The kernels themselves


def aligned(x: np.ndarray, off: int = 0) -> np.ndarray:
    """A copy that begins `off` elements behind a multiple of 16 bytes."""
    memory = np.empty(x.nbytes + 32, np.uint8)
    skip = -memory.ctypes.data % 16 + off * x.itemsize
    found = memory[skip : skip + x.nbytes].view(x.dtype).reshape(x.shape)
    found[...] = x
    return found


def compared(v: Variant, t: int, s: int, batch: tuple[int, ...] = (2,), mask: Any = None, off: int = 0) -> None:
    """Forward and gradient against NumPy in float64, of operands as they are stored."""
    rng, by = np.random.default_rng(t + 7 * s), 0.3
    shapes = (*batch, t, v.d), (*batch, s, v.d), (*batch, s, v.e), (*batch, t, v.e)
    q, k, v_, g = (aligned(rng.standard_normal(x).astype("f4").astype(v.dtype), off) for x in shapes)
    masks = [] if mask is None else [aligned(mask)]
    wide = [x.astype("f8") for x in (q, k, v_)]
    added = [x if x.dtype == bool else x.astype("f8") for x in masks]
    # A hundred roundings; halves are rounded once more.
    if v.dtype == v.work:
        rtol = 5e-3 if v.mma else 100 * float(np.finfo(v.work).eps)  # tf32 has 10 bits
    else:
        rtol = 1e-3 * 8 ** (v.dtype != FLOAT16) * (1 + v.mma)  # weights are rounded too
    o, l = attention_of(np, *wide, *added, by, v.causal)  # noqa: E741 - as in ir/attention.py
    found = forward(replace(v, back=False), q, k, v_, *masks, by=by)
    delta = (g.astype("f8") * o).sum(-1)
    given = aligned(l.astype(v.work)), aligned(delta.astype(v.work)), g
    found |= gradient(replace(v, back=True), q, k, v_, *given, *masks, by=by)
    want = {"o": o, "l": l}
    want |= dict(
        zip(("dq", "dk", "dv"), gradient_of(np, *wide, *added, o, l, delta, g.astype("f8"), by, v.causal), strict=True)
    )
    for name, x in want.items():
        largest = np.abs(x[np.isfinite(x)]).max(initial=1)  # the logarithm of a row without keys is inf
        np.testing.assert_allclose(found[name].astype("f8"), x, rtol=0, atol=rtol * largest, err_msg=name)


def around(v: Variant) -> list[tuple[int, int]]:
    """Numbers of queries and keys about the edges of tiles: less than one, whole ones, one more, one less."""
    height, width = v.tile.height, v.tile.width
    return [(1, 1), (height, width), (height + 1, 2 * width - 1), (2 * height - 3, width + 1), (9, 3 * width)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("dtype", "d", "e"),
    [(FLOAT32, 64, 64), (FLOAT32, 20, 100), (FLOAT32, 132, 24), (FLOAT64, 64, 40), (FLOAT64, 70, 128)],
)
def test_kernels_at_the_edges_of_tiles(dtype: np.dtype, d: int, e: int, causal: bool) -> None:
    v = Variant(dtype, d, e, "", causal, False, True, False)
    for t, s in around(v):
        compared(v, t, s)


@pytest.mark.parametrize("dtype", [FLOAT16, dtypes.bfloat16])
def test_kernels_of_halves(dtype: np.dtype) -> None:
    for v in (
        Variant(dtype, 16, 24, "", True, False, True, False),
        Variant(dtype, 7, 5, "bool", False, False, False, False),
    ):
        for t, s in around(v)[2:4]:
            seen = np.random.default_rng(1).random((2, t, s)) < 0.7
            seen[..., 0] = True
            compared(v, t, s, mask=seen if v.mask else None)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("dtype", "d", "e", "wide"),
    [(FLOAT16, 64, 64, True), (dtypes.bfloat16, 40, 24, True), (FLOAT16, 72, 128, True), (dtypes.bfloat16, 7, 5, False),
     (FLOAT32, 64, 20, True), (FLOAT32, 7, 5, False)],
)  # fmt: skip
def test_kernels_by_tensor_cores(dtype: np.dtype, d: int, e: int, wide: bool, causal: bool) -> None:
    v = Variant(dtype, d, e, "", causal, False, wide, False, mma=True)
    for t, s in around(v)[1:4]:
        compared(v, t, s, (1,))
    masked, seen = replace(v, mask="bool", causal=False, wide_mask=True), np.random.default_rng(1).random((2, 66, 70))
    compared(masked, 66, 70, mask=(seen < 0.7) | (np.arange(70) == 0))
    compared(replace(masked, mask="add", wide_mask=False), 17, 9, mask=seen[:, :17, :9].astype(v.work))


@pytest.mark.parametrize("kind", ["bool", "add"])
@pytest.mark.parametrize(("dtype", "d", "wide"), [(FLOAT32, 8, True), (FLOAT32, 9, False), (FLOAT64, 6, True)])
def test_kernels_with_masks(kind: str, dtype: np.dtype, d: int, wide: bool) -> None:
    """Of every kind of repetition; by neighbours where a row's end is one."""
    rng = np.random.default_rng(3)
    for beside in (False, True):
        v = Variant(dtype, d, d, kind, False, False, wide, beside)
        t, s = (70, 68) if beside else (65, 67)
        for shape in ((2, 2, t, s), (1, 2, 1, s), (2, 1, t, s)):
            mask = rng.standard_normal(shape).astype(dtype) if kind == "add" else rng.random(shape) < 0.6
            if kind == "bool":
                mask[..., 0] = True
            compared(v, t, s, (2, 2), mask)


@pytest.mark.parametrize("kind", ["bool", "add"])
@pytest.mark.parametrize(("dtype", "mma"), [(FLOAT32, False), (FLOAT64, False), (FLOAT16, False), (FLOAT16, True)])
def test_kernels_where_rows_see_no_key(dtype: np.dtype, mma: bool, kind: str) -> None:
    v = Variant(dtype, 16, 24, kind, False, False, True, False, mma=mma)
    t, s = v.tile.height + 3, 2 * v.tile.width + 1
    seen = np.random.default_rng(1).random((2, t, s)) < 0.7
    seen[:, ::5] = False
    mask = seen if kind == "bool" else np.where(seen, 0.5, -np.inf).astype(v.work)
    compared(v, t, s, mask=mask)
    q, k, v_ = (aligned(normal(2, n, d).astype(dtype)) for n, d in ((t, 16), (s, 16), (s, 24)))
    found = forward(v, q, k, v_, aligned(mask))
    assert not found["o"][:, ::5].any()
    assert np.isposinf(found["l"][:, ::5]).all()


@pytest.mark.slow
def test_rows_that_are_not_aligned() -> None:
    compared(Variant(FLOAT32, 12, 8, "", False, False, False, False), 66, 70, off=1)
    compared(Variant(FLOAT32, 7, 5, "", True, False, False, False), 130, 70)


def test_a_wrong_index_is_seen() -> None:
    """The harness is one that fails: features past an array's end, and rows that are not aligned."""
    x = aligned(normal(1, 9, 8))
    with pytest.raises(AssertionError, match="touches byte"):
        forward(Variant(FLOAT32, 9, 8, "", False, False, False, False), x, x, x)
    with pytest.raises(AssertionError, match="not aligned"):
        compared(Variant(FLOAT32, 8, 8, "", False, False, True, False), 9, 9, off=1)


def test_results_that_nobody_reads() -> None:
    q, k, v_ = (aligned(normal(2, 20, 8, seed=i)) for i in range(3))
    v = Variant(FLOAT32, 8, 8, "", False, False, True, False)
    both, logs = (forward(v, q, k, v_, by=0.5, only_logs=only) for only in (False, True))
    assert logs.keys() == {"l"}
    np.testing.assert_array_equal(both["l"], logs["l"])


# To cubins


def _variants() -> Iterator[Variant]:
    for dtype, widths in ((FLOAT32, (64, 128, 256)), (FLOAT64, (64, 128))):
        for width in widths:
            yield Variant(dtype, width, width, "", True, False, True, False)
    for dtype in (FLOAT32, FLOAT16):
        yield Variant(dtype, 64, 64, "bool", False, False, True, True)
    yield Variant(FLOAT32, 128, 128, "add", False, False, False, False)
    yield Variant(dtypes.bfloat16, 256, 256, "add", False, False, True, True)
    yield Variant(FLOAT64, 128, 128, "add", False, False, True, True)


def _variants_of_tensor_cores() -> Iterator[Variant]:
    for dtype, width in ((FLOAT16, 128), (dtypes.bfloat16, 128), (dtypes.bfloat16, 64), (FLOAT32, 64)):
        for mask in ("", "bool", "add"):
            yield Variant(dtype, width, width, mask, not mask, False, True, bool(mask), mma=True)


@pytest.mark.slow
@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("capability", [75, 80, 90])
def test_no_kernel_spills(capability: int) -> None:
    """Two blocks find room in the 64 Ki registers of a multiprocessor, and 48 KB of shared memory do."""
    for v in (*_variants(), *(_variants_of_tensor_cores() if capability >= OLDEST_MMA else ())):
        for back, text in ((False, attention_text), (True, gradient_text)):
            found = engine.compile_program(text(replace(v, back=back)), capability, ObjectCache(None)).resources
            assert len(found) == 1 + back
            for name, r in found.items():
                assert (r.stack, r.spill_stores) == (0, 0), (name, v)
                assert r.registers * v.tile.threads * 2 <= 1 << 16, (name, v)


def test_what_a_tile_is() -> None:
    for dtype in (FLOAT32, FLOAT64):
        for back in (False, True):
            for features in range(1, widest(dtype) + 1, 13):
                tile = tile_for(dtype, (features, 1), back)
                assert tile.padded(features) % (tile.chunk * tile.across) == 0
                assert tile.height % 32 == tile.width % 32 == 0 or dtype == FLOAT64
    with pytest.raises(StopIteration):
        tile_for(FLOAT64, (widest(FLOAT64) + 1,), False)


# Plans that launch them


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    forget()
    for name, value in {"tiers": False, "verify": True}.items():
        monkeypatch.setitem(plan_cache.settings, name, value)
    with installed(FakeDriver()) as driver, lt.device("cuda:0"):
        yield driver
    forget()


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("size", ["odd", "across", "few queries", "one key"])
def test_sizes(size: str, is_causal: bool, gpu: FakeDriver) -> None:
    args = operands(size)
    got, calls = results(*args, is_causal=is_causal)
    assert (calls, gpu.products, gpu.library_calls) == (2, 0, 0)
    close(got, exact(*args, is_causal=is_causal))


@pytest.mark.parametrize("kind", ["bool", "added", "a batch", "keys", "queries"])
def test_masks(kind: str, gpu: FakeDriver) -> None:
    args, mask = operands("odd"), mask_of(kind, "odd")
    got, calls = results(*args, mask, scale=0.3)
    assert calls == 2
    close(got, exact(*args, mask, scale=0.3), factor=400)


@pytest.mark.parametrize("kind", [None, "causal", "bool", "added"])
def test_on_and_off(kind: str | None, gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    args, how = operands("odd"), {"is_causal": True} if kind == "causal" else {}
    mask = None if kind == "causal" else mask_of(kind, "odd")
    got, calls = results(*args, mask, **how)
    assert calls == 2
    forget()
    monkeypatch.setitem(plan_cache.settings, "attention", False)
    want, calls = results(*args, mask, **how)
    assert calls == 0
    assert gpu.products
    close(got, want)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("masked", [False, True])
def test_other_dtypes(dtype: str, masked: bool, gpu: FakeDriver) -> None:
    args = [x.astype(lt.asarray(x).astype(dtype).numpy().dtype) for x in operands("odd")]
    mask = mask_of("bool", "odd") if masked else None
    got, calls = results(*args, mask)
    assert (calls, gpu.products, gpu.library_calls) == (2, 0, 0)
    if dtype == "float64":
        close(got, exact(*args, mask), "float64")
    for x, y in zip(got, exact(*args, mask), strict=True):
        np.testing.assert_allclose(x.astype("float64"), y, atol=2e-2 * np.abs(y).max())


@pytest.mark.slow
def test_what_hides_everything_and_what_is_no_number(gpu: FakeDriver) -> None:
    """As on the CPU: a row without keys is 0, and keys before the first that is seen have no weight."""
    q, k, v, ct = normal(1, 40, 8), normal(1, 150, 8, seed=1), normal(1, 150, 8, seed=2), normal(1, 40, 8, seed=3)
    seen = np.broadcast_to(np.arange(150) >= 130 + np.arange(40)[:, None] % 3, (40, 150)).copy()
    close(results(q, k, v, ct, seen)[0], exact(q, k, v, ct, seen))
    seen[3] = False
    for mask in (seen, np.where(seen, 0, -np.inf).astype("float32")):
        (y, dq, dk, dv, *_), _ = results(q, k, v, ct, mask)
        close([y, dq, dk, dv], exact(q, k, v, ct, seen))
        assert not y[:, 3].any()
        assert not dq[:, 3].any()
    q, v = q.copy(), v.copy()
    q[0, 5, 1], q[0, 6, 0], v[0, 7, 2] = np.nan, np.inf, np.inf
    (y, *_), _ = results(q, k, v, ct)
    assert np.isnan(y[0, 5:7]).all()
    others = np.r_[0:5, 7:40]
    assert np.isinf(y[0, others, 2]).all()
    assert np.isfinite(y[0, others][:, [0, 1, 3, 4, 5, 6, 7]]).all()


@pytest.mark.slow
def test_both_rules_of_exp(gpu: FakeDriver) -> None:
    args = operands("few queries", batch=(1,))
    for native in (True, False):
        forget()
        with mock.patch.dict(switches, {"native-math": native}):
            close(results(*args)[0], exact(*args))
            (bound,) = lt.last_sync().plan.executable.bound.values()
            calls = [c for c in lt.last_sync().plan.schedule.launches if isinstance(c, AttentionCall)]
            # Once where the machine's 2**x is defined, and again where it is used.
            assert {Kernels(bound, c).source.count("lt_exp2(") for c in calls} == {1 + native}


def test_tf32_where_products_may_be_and_no_longer(gpu: FakeDriver) -> None:
    """The precision is that of the moment, in a plan that is there already, and in a graph."""
    args, before = operands("few queries", batch=(1,)), lt.get_float32_matmul_precision()
    apart = []
    try:
        for precision in ("highest", "highest", "high", "high", "highest", "high"):
            lt.set_float32_matmul_precision(precision)
            got, calls = results(*args)
            assert calls == 2
            apart.append(max(np.abs(g - w).max() for g, w in zip(got, exact(*args), strict=True)))
    finally:
        lt.set_float32_matmul_precision(before)
    assert all(x < 1e-5 for x in (apart[0], apart[1], apart[4]))
    assert all(1e-5 < x < 2e-2 for x in (apart[2], apart[3], apart[5]))


def test_halves_are_multiplied_by_tensor_cores(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    x = lt.asarray(normal(1, 40, 8)).astype("bfloat16")
    assert "lazyt's attention kernel, by tensor cores" in str(F.scaled_dot_product_attention(x, x, x).explain())
    monkeypatch.setitem(switches, "tensor-cores", False)
    assert "by tensor cores" not in str(F.scaled_dot_product_attention(x, x, x).explain())


@pytest.mark.slow
def test_large_scores(gpu: FakeDriver) -> None:
    q, k, v, ct = operands("odd")
    (y, *_), _ = results(q * 60, k * 60, v, ct)
    close([y], exact(q * 60, k * 60, v, ct)[:1], factor=3e4)


def test_operands_are_read_where_they_lie(gpu: FakeDriver) -> None:
    for lead in (0, 1):  # with 1 the rows begin between multiples of 16 bytes
        x = normal(2, 50, 3, 4, 8, seed=lead)  # batch, length, (q, k, v), heads, features
        leaf = lt.tensor(
            np.concatenate([np.zeros((2, lead, 3, 4, 8), "float32"), x], 1)[..., : 8 - lead], requires_grad=True
        )
        q, k, v = (np.moveaxis(x[:, :, i, :, : 8 - lead], 1, 2) for i in range(3))
        ct = normal(2, 4, 50, 8 - lead, seed=1)
        y = F.scaled_dot_product_attention(
            *(lt.permute_dims(leaf[:, lead:, i], (0, 2, 1, 3)) for i in range(3)), is_causal=True
        )
        lt.sum(y * lt.asarray(ct)).backward()
        lt.sync()
        plan = lt.last_sync().plan
        calls = [c for c in plan.schedule.launches if isinstance(c, AttentionCall)]
        (one,) = [c for c in calls if c.node.attrs.fn == "attention"]
        assert {base.op for base, _, _ in one.views} == {"input"}
        (bound,) = plan.executable.bound.values()
        assert Kernels(bound, one).variant.wide is (lead == 0)
        want = exact(q, k, v, ct, is_causal=True)
        close(
            [y.detach().numpy(), leaf.grad.numpy()[:, lead:]],
            [want[0], np.stack([np.moveaxis(g, 1, 2) for g in want[1:]], 2)],
        )


@pytest.mark.parametrize("axis", [1, 2])
def test_a_part_that_moves(axis: int, gpu: FakeDriver) -> None:
    """Rows that move by whole ones are read by neighbours; where they begin anywhere, not."""
    x = normal(3, 48, 8) if axis == 1 else normal(3, 48, 48)
    leaf, q = lt.asarray(x), normal(3, 20, 8, seed=1)
    lt.sync()
    for start in (0, 1, 5, 8):
        at = (slice(None), *(slice(start, start + 8) if i == axis else slice(None) for i in (1, 2)))
        y = F.scaled_dot_product_attention(lt.asarray(q), leaf[at], leaf[at])
        np.testing.assert_allclose(y.numpy(), exact(q, x[at], x[at], np.zeros((3, 20, 8)))[0], atol=1e-5)
        plan = lt.last_sync().plan
        (one,) = plan.schedule.launches
        assert all(Kernels(b, one).variant.wide is (axis == 1) for b in plan.executable.bound.values())


@pytest.mark.parametrize(
    "asked", [(True, False, False), (False, True, False), (False, False, True), (False, True, True)]
)
def test_some_gradients(asked: tuple[bool, ...], gpu: FakeDriver) -> None:
    q, k, v, ct = operands("odd")
    xs = [lt.tensor(x, requires_grad=a) for x, a in zip((q, k, v), asked, strict=True)]
    lt.sum(F.scaled_dot_product_attention(*xs) * lt.asarray(ct)).backward()
    want = [g for g, a in zip(exact(q, k, v, ct)[1:], asked, strict=True) if a]
    close([x.grad.numpy() for x in xs if x.requires_grad], want)


def test_across_a_sync(gpu: FakeDriver) -> None:
    """The logarithms of the rows are made again for a gradient in a later sync."""
    q, k, v, ct = operands("odd")
    xs = [lt.tensor(x, requires_grad=True) for x in (q, k, v)]
    y = F.scaled_dot_product_attention(*xs)
    lt.sync()
    lt.sum(y * lt.asarray(ct)).backward()
    close([y.detach().numpy(), *(x.grad.numpy() for x in xs)], exact(q, k, v, ct))


def test_a_plan_runs_again_as_one_graph(gpu: FakeDriver) -> None:
    """With other values, another number and other sizes; the two launches of a gradient do not need each other."""
    for seed in range(4):
        q, k, v, ct = (normal(2, 30, 8, seed=4 * seed + i) for i in range(4))
        before = gpu.graph_runs
        got, _ = results(q, k, v, ct, scale=0.1 * (1 + seed))
        close(got, exact(q, k, v, ct, scale=0.1 * (1 + seed)))
        # The first run is another program: what its results were looked at by comes before the second.
        assert gpu.graph_runs - before == (seed > 1)
    q, k, v, ct = normal(3, 41, 8), normal(3, 70, 8, seed=1), normal(3, 70, 8, seed=2), normal(3, 41, 8, seed=3)
    close(results(q, k, v, ct)[0], exact(q, k, v, ct))
    assert not gpu.library_calls


@pytest.mark.slow
def test_no_matrix_of_all_weights(gpu: FakeDriver) -> None:
    t = 600
    q, k, v, ct = (normal(1, 1, t, 8, seed=i) for i in range(4))
    peak = 0
    take = gpu.allocate

    def allocate(number: int, nbytes: int) -> tuple[int, object]:
        nonlocal peak
        found = take(number, nbytes)
        peak = max(peak, gpu.used)
        return found

    with mock.patch.object(gpu, "allocate", allocate):
        got, calls = results(q, k, v, ct, is_causal=True)
    assert calls == 2
    assert 0 < peak < 4 * t * t / 2
    close(got, exact(q, k, v, ct, is_causal=True))


@pytest.mark.parametrize(("t", "d", "dtype"), [(3, 16, "float32"), (20, 257, "float32"), (20, 129, "float64")])
def test_what_is_left_to_products(t: int, d: int, dtype: str, gpu: FakeDriver) -> None:
    args = [normal(2, n, d, seed=i, dtype=dtype) for i, n in enumerate((t, 30, 30, t))]
    got, calls = results(*args)
    assert calls == 0
    assert gpu.products
    close(got, exact(*args), dtype)


def test_dropout_is_left_to_products(gpu: FakeDriver) -> None:
    assert results(*operands("odd"), dropout_p=0.5)[1] == 0


def test_nothing_to_attend(gpu: FakeDriver) -> None:
    for t, s, batch in ((20, 0, 2), (0, 20, 2), (20, 20, 0)):
        q, k, v = (lt.zeros((batch, n, 4)) for n in (t, s, s))
        assert F.scaled_dot_product_attention(q, k, v).numpy().shape == (batch, t, 4)


def test_it_says_whose_it_is(gpu: FakeDriver) -> None:
    q = lt.asarray(normal(2, 60, 8))
    lt.sync()
    y = F.scaled_dot_product_attention(q, q, q)
    explained = y.explain()
    assert "lazyt's attention kernel," in str(explained)
    assert "at most 60 of 60 keys at a time; the weights are never in memory" in str(explained)
    (kernel,) = explained.kernels
    assert kernel.code == ""
    assert "__global__ void __launch_bounds__(THREADS, 2) lazyt_attention(" in kernel.source()
    y.numpy()
    assert F.scaled_dot_product_attention(q, q, q).explain().kernels[0].code == "memory"
    both = lt.value_and_grad(lambda x: F.scaled_dot_product_attention(x, q, q).sum())(q)
    assert "lazyt's attention kernels, gradient" in str(both[1].explain())


@pytest.mark.usefixtures("nvrtc")
def test_its_machine_code_wants_a_disassembler(gpu: FakeDriver) -> None:
    q = lt.asarray(normal(2, 60, 8))
    kernel = F.scaled_dot_product_attention(q, q, q).explain().kernels[0]
    with (
        mock.patch.object(engine, "_disassembler", return_value=""),
        pytest.raises(NotSupportedError, match="nvdisasm"),
    ):
        kernel.sass()


@pytest.mark.parametrize(("on", "why"), [(True, "no kernel has its sizes, or dropout"), (False, "it is switched off")])
def test_it_says_why_not(on: bool, why: str, gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(plan_cache.settings, "attention", on)
    q = lt.asarray(normal(2, 60, 8))
    text = str(F.scaled_dot_product_attention(q, q, q, dropout_p=0.5 * on).explain())
    assert f"attention is products with all weights in memory: {why}" in text


@pytest.mark.parametrize("fails", ["refusal", "failure"])
def test_what_cudnn_refuses(fails: str, gpu: FakeDriver) -> None:
    gpu.front_end = FakeCudnn(gpu)
    setattr(gpu.front_end, fails, "no engine for this")
    args = [x.astype("float16") for x in operands("odd")]
    for _ in range(2):
        got, calls = results(*args, is_causal=True)
        assert calls == 2
        for x, y in zip(got, exact(*args, is_causal=True), strict=True):
            np.testing.assert_allclose(x.astype("float64"), y, atol=2e-2 * np.abs(y).max())
    assert device("cuda:0").cudnn.fallbacks == 4
    q = lt.asarray(args[0])
    text = str(F.scaled_dot_product_attention(q, *(lt.asarray(x) for x in args[1:3]), is_causal=True).explain())
    assert "lazyt's attention kernel," in text
    assert "cuDNN refused it: no engine for this" in text


@pytest.mark.slow
def test_halves_with_a_mask_are_not_cudnn_s(gpu: FakeDriver) -> None:
    gpu.front_end = FakeCudnn(gpu)
    args = [x.astype("float16") for x in operands("odd")]
    _, calls = results(*args, mask_of("bool", "odd"))
    assert calls == 2
    assert not gpu.front_end.runs


def test_sizes_of_tests_are_sizes_of_kernels() -> None:
    assert max(max(s[2:]) for s in SIZES.values()) == widest(FLOAT32)
