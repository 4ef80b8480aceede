"""On a real GPU: skipped where there is none, an error under LAZYT_REQUIRE_CUDA=1."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any
from unittest import mock

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu.flags import switches
from lazyt.backends.cuda import cupy_driver
from lazyt.backends.cuda.flags import switches as own
from lazyt.nn import functional as F
from lazyt.runtime import plan_cache
from lazyt.tracing.trace import local
from tests.support import operations
from tests.support.cuda.programs import PROGRAMS, flat

# What CuPy warns of (a CUDA that it found or did not) is not lazyt's.
pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("default")]


@pytest.fixture(autouse=True)
def _has_a_gpu() -> None:
    try:
        found = cupy_driver.get().count()
    except lt.DeviceError as error:
        if os.environ.get("LAZYT_REQUIRE_CUDA") == "1":
            raise
        pytest.skip(f"no GPU: {error}")
    assert found, "CUDA is here, and no device"
    if os.environ.get("LAZYT_TEST_NO_POOL") == "1":
        # For compute-sanitizer: within a pool's block it sees no access that is outside.
        import cupy

        cupy.cuda.set_allocator(None)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_the_bits_of_the_cpu(name: str) -> None:
    # The device's own exp and tanh have other bits: see `test_native_math_is_near_the_cpu`.
    with mock.patch.dict(plan_cache.settings, {"tiers": False}), mock.patch.dict(own, {"native-math": False}):
        lt.random.seed(5)
        want = flat(PROGRAMS[name]())
        lt.random.seed(5)
        with lt.device("cuda:0"):
            got = flat(PROGRAMS[name]())
    for g, w in zip(got, want, strict=True):
        if name == "network":
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(g, w)


# Five long rows are divided by segments, seventy by chunks.
LENGTHS = [(5, n) for n in (1, 31, 33, 2047, 2049, 8192, 32769, 65536, 200_001)] + [(70, 262_145)]


@pytest.mark.parametrize(("rows", "n"), LENGTHS)
def test_rows_of_every_length(rows: int, n: int) -> None:
    x = np.random.default_rng(n).normal(size=(rows, n)).astype(np.float32)
    there, here = lt.asarray(x, device="cuda:0"), lt.asarray(x)
    for f in (
        lambda v: lt.softmax(v, -1),
        lambda v: v.sum(1),
        lambda v: v.sum(0),
        lambda v: v.argmax(1),
        lambda v: v.var(),
    ):
        with mock.patch.dict(own, {"native-math": False}):
            np.testing.assert_array_equal(f(there).numpy(), f(here).numpy())
    np.testing.assert_allclose(lt.softmax(there, -1).numpy(), lt.softmax(here, -1).numpy(), rtol=1e-6)


def test_native_math_is_near_the_cpu() -> None:
    """exp and tanh of float32, in units of the last place of a float64 result: 2 and 1.4 are promised."""
    x = np.concatenate([np.linspace(-87, 88, 1 << 20), np.linspace(-1, 1, 1 << 20)]).astype(np.float32)
    there = lt.asarray(x, device="cuda:0")
    for f, exact, bound in ((lt.exp, np.exp, 2.0), (lt.tanh, np.tanh, 1.4)):
        want = exact(x.astype(np.float64))
        apart = np.abs(f(there).numpy().astype(np.float64) - want) / np.spacing(np.abs(want).astype(np.float32))
        assert apart.max() <= bound, f"{f.__name__}({x[apart.argmax()]!r}) is off by {apart.max():.2f}"


@pytest.mark.parametrize(
    ("image", "filters", "how"),
    [
        ((4, 8, 17, 15), (12, 8, 3, 3), {"padding": 1}),
        ((4, 8, 17, 15), (12, 8, 3, 3), {"padding": "same", "dilation": 2}),
        ((4, 8, 17, 15), (12, 8, 2, 2), {"padding": "same"}),
        ((4, 8, 17, 15), (12, 8, 3, 3), {"stride": 2, "padding": 1}),
        ((4, 8, 17, 15), (12, 2, 3, 2), {"stride": (3, 2), "groups": 4, "dilation": (1, 2)}),
        ((4, 8, 17, 15), (8, 1, 3, 3), {"groups": 8, "padding": 1}),
        ((4, 8, 40), (12, 4, 5), {"stride": 3, "groups": 2, "padding": 2}),
    ],
)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float16", 2e-2), ("bfloat16", 5e-2)])
def test_convolutions_and_their_gradients(image: Any, filters: Any, how: Any, dtype: str, tolerance: float) -> None:
    """By cuDNN where it is installed, else as products over windows."""
    rng = np.random.default_rng(0)
    x, w = (lt.asarray(rng.normal(size=s).astype(np.float32)).astype(dtype) for s in (image, filters))

    def results(device: str) -> list[np.ndarray]:
        a, b = x.to(device).detach().requires_grad_(), w.to(device).detach().requires_grad_()
        y = (F.conv1d if a.ndim == 3 else F.conv2d)(a, b, **how)
        (y * y).sum().backward()
        return [t.detach().astype("float32").numpy() for t in (y, a.grad, b.grad)]  # type: ignore[union-attr]

    for got, want in zip(results("cuda:0"), results("cpu"), strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * np.abs(want).max())


@pytest.mark.parametrize("mask", ["", "causal", "bool", "added"])
@pytest.mark.parametrize("features", [(64, 64), (33, 70), (256, 130)])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-5), ("float16", 2e-2), ("bfloat16", 5e-2)]
)
def test_attention_and_its_gradients(mask: str, features: tuple[int, int], dtype: str, tolerance: float) -> None:
    """By lazyt's kernels, or cuDNN; the widest of float64 as products."""
    rng, (d, e) = np.random.default_rng(0), features
    shapes = (2, 3, 300, d), (2, 3, 170, d), (2, 3, 170, e)
    host = [lt.asarray(rng.normal(size=s).astype(np.float32)).astype(dtype) for s in shapes]
    seen = rng.random((2, 1, 300, 170)) < 0.7
    seen[..., 0] = True
    given = {"bool": seen, "added": rng.normal(size=(300, 170)).astype(np.float32)}.get(mask)

    def results(device: str) -> list[np.ndarray]:
        xs = [x.to(device).detach().requires_grad_() for x in host]
        masks = None if given is None else lt.asarray(given, device=device)
        y = F.scaled_dot_product_attention(*xs, attn_mask=masks, is_causal=mask == "causal")
        (y * y).sum().backward()
        return [t.detach().astype("float64").numpy() for t in (y, *(x.grad for x in xs))]  # type: ignore[union-attr]

    for got, want in zip(results("cuda:0"), results("cpu"), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * np.abs(want).max())


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_updates_of_a_hundred_tensors_are_those_of_the_cpu(optimizer: str) -> None:
    sizes = [(1,), (3,), (7, 3), (64,), (1025,), (16, 64), (3, 3, 5, 5), (1, 40), (40, 1), (100_000,)] * 10

    def results(device: str) -> list[np.ndarray]:
        rng = np.random.default_rng(0)
        ps = [lt.tensor(rng.normal(size=s).astype(np.float32), device=device, requires_grad=True) for s in sizes]
        opt = getattr(lt.optim, optimizer)(ps, lr=1e-2, weight_decay=0.01)
        for _ in range(4):
            for p in ps:
                p.grad = lt.tensor(rng.normal(size=p.shape).astype(np.float32), device=device)
            opt.step()
            lt.sync()
        return [p.detach().numpy() for p in ps]

    for got, want in zip(results("cuda:0"), results("cpu"), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", operations.NAMES)
def test_the_operation_table(name: str) -> None:
    operations.check(name, "cuda:0", up_to_sign=operations.UP_TO_SIGN)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_orders_with_signed_zeros_and_signed_nans(dtype: str) -> None:
    """CuPy sorts by bits, where a NaN with a sign is less than anything."""
    x = np.random.default_rng(0).choice([np.nan, -np.nan, 0.0, -0.0, 1.5, -1.5, np.inf, -np.inf], (7, 40))
    here = lt.asarray(x.astype(np.float32)).astype(dtype)
    there = here.to("cuda:0")
    for f in (
        lambda v: lt.sort(v), lambda v: lt.argsort(v, axis=0), lambda v: lt.argsort(v, descending=True),
        lambda v: lt.topk(v, 5)[1], lambda v: lt.unique(v), lambda v: lt.unique_counts(v).counts,
        lambda v: lt.median(v, axis=0), lambda v: lt.nanmedian(v, axis=0),
    ):  # fmt: skip
        np.testing.assert_array_equal(f(there).astype("float64").numpy(), f(here).astype("float64").numpy())


def test_training_gives_the_losses_of_the_cpu() -> None:
    def losses(device: str) -> list[float]:
        lt.random.seed(1)
        model = lt.nn.Sequential(lt.nn.Linear(20, 32), lt.nn.GELU(), lt.nn.Linear(32, 5)).to(device)
        opt = lt.optim.AdamW(model.parameters(), lr=1e-2)
        x = lt.asarray(np.random.default_rng(0).normal(size=(64, 20)).astype(np.float32), device=device)
        y = lt.asarray(np.arange(64) % 5, device=device)
        found = []
        for _ in range(20):
            loss = lt.nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            found.append(float(loss))
        return found

    np.testing.assert_allclose(losses("cuda:0"), losses("cpu"), rtol=1e-4)


def test_no_memory() -> None:
    x = lt.zeros((1 << 20,), device="cuda:0")
    y = lt.broadcast_to(x, (1 << 22, 1 << 20)) + 1
    with pytest.raises(lt.OutOfMemory, match="cuda:0: no memory"):
        y.numpy()
    assert y.is_pending
    del y
    assert float(x.sum()) == 0


# Replay


def step(x: Any, w: Any, factor: float) -> tuple[Any, ...]:
    """Kernels that depend on each other, and a product between them."""
    h = lt.tanh(x @ w) * factor
    s = lt.softmax(h, -1)
    return h, s, (s * s).sum(), s.mean(0)


@pytest.mark.parametrize("graphs", [True, False])
def test_replays_with_other_inputs(graphs: bool) -> None:
    kept = []
    with mock.patch.dict(switches, {"graphs": graphs}):
        w = lt.asarray(np.random.default_rng(0).normal(size=(64, 48)).astype(np.float32), device="cuda:0")
        for i in range(8):
            x = np.random.default_rng(i).normal(size=(256, 64)).astype(np.float32)
            got = step(lt.asarray(x, device="cuda:0"), w, 1.0 + i)
            lt.sync()
            kept.append((x, got))
        for i, (x, got) in enumerate(kept):
            for g, v in zip(got, step(lt.asarray(x), w.cpu(), 1.0 + i), strict=True):
                np.testing.assert_allclose(g.numpy(), v.numpy(), rtol=1e-4, atol=1e-5 * (1 + i))
        again = step(lt.asarray(kept[0][0], device="cuda:0"), w, 1.0)
        text = str(again[0].explain())
    if graphs:
        assert re.search(r"replay +\d CUDA graphs?, launched \d", text), text
        assert "not all of it" not in text, text
    else:
        assert "graphs are switched off" in text


def test_replay_gives_the_bits_of_single_launches() -> None:
    def values(graphs: bool) -> list[np.ndarray]:
        lt.sync()
        # The device's own exp has other bits in a kernel of rows than in the first run of a small program.
        settled = mock.patch.dict(plan_cache.settings, {"tiers": False})
        with settled, mock.patch.dict(switches, {"graphs": graphs}), lt.device("cuda:0"):
            lt.random.seed(2)
            found = []
            x = lt.random.normal(shape=(3000, 70))
            for i in range(5):
                x = lt.softmax(x * (1.0 + i), -1) + x.mean(0)
                found.append(x.std())
                lt.sync()
            return [v.numpy() for v in (*found, x)]

    for a, b in zip(values(True), values(False), strict=True):
        np.testing.assert_array_equal(a, b)


def test_new_sizes_and_moving_positions() -> None:
    cache = lt.zeros((64, 1000), device="cuda:0")
    want = np.zeros((64, 1000), np.float32)
    for pos in range(40):
        column = np.random.default_rng(pos).normal(size=64).astype(np.float32)
        cache[:, pos] = lt.asarray(column, device="cuda:0")
        want[:, pos] = column
        lt.sync()
    np.testing.assert_array_equal(cache.numpy(), want)
    for n in (1, 3, 1000, 3, 100_000, 1000, 3):
        x = np.random.default_rng(n).normal(size=(2, n)).astype(np.float32)
        np.testing.assert_array_equal(lt.asarray(x, device="cuda:0").sum(1).numpy(), lt.asarray(x).sum(1).numpy())


# Asynchrony


def test_a_wrong_index_is_raised_by_who_waits() -> None:
    table = lt.asarray(np.arange(40, dtype=np.float32).reshape(10, 4), device="cuda:0")
    y = table[lt.asarray(np.array([1, 99, 3]), device="cuda:0")]
    lt.sync()
    z = y + 1
    lt.sync()
    for v in (y, z):
        with pytest.raises(lt.IndexOutOfRange, match=r"index 99 .*test_cuda_gpu.py"):
            v.numpy()
    np.testing.assert_array_equal((table * 2).numpy(), 2 * np.arange(40, dtype=np.float32).reshape(10, 4))


@pytest.mark.parametrize("n", [1, 1000, 4 << 20, (16 << 20) + 12345])
def test_copies(n: int) -> None:
    a = np.random.default_rng(n).integers(0, 255, n, dtype=np.uint8)
    x = lt.asarray(a, device="cuda:0")
    kept = a.copy()
    a[:] = 0
    np.testing.assert_array_equal(x.numpy(), kept)


def test_streams_of_the_caller_are_in_one_order() -> None:
    import cupy

    x = lt.asarray(np.arange(1 << 22, dtype=np.float32), device="cuda:0")
    first, second = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    for i in range(20):
        with first:
            y = x * float(i) + 1
            for _ in range(5):
                y = lt.sqrt(y)
            lt.sync()
        with second:
            z = y + y
            lt.sync()
        want = np.arange(1 << 22, dtype=np.float32) * np.float32(i) + np.float32(1)
        for _ in range(5):
            want = np.sqrt(want)
        np.testing.assert_array_equal(z.numpy(), want + want)


# Other libraries


def test_cupy_and_torch_share_memory() -> None:
    import cupy

    x = lt.asarray(np.arange(12, dtype=np.float32).reshape(3, 4), device="cuda:0")
    y = x * 2
    for there in (cupy.from_dlpack(y), cupy.asarray(y)):
        assert there.data.ptr == y._buffer.buffer.address
        np.testing.assert_array_equal(cupy.asnumpy(there), x.numpy() * 2)
    ours = lt.from_dlpack(cupy.arange(1000, dtype="float32"))
    assert ours.device == "cuda:0"
    np.testing.assert_array_equal((ours + 1).numpy(), np.arange(1000, dtype=np.float32) + 1)
    odd = lt.from_dlpack(cupy.arange(1001, dtype="float32")[1:])
    np.testing.assert_array_equal((odd * 3).numpy(), np.arange(1, 1001, dtype=np.float32) * 3)
    np.testing.assert_array_equal(lt.asarray(cupy.ones((2, 3)).T).numpy(), np.ones((3, 2)))
    torch = pytest.importorskip("torch")
    t = torch.from_dlpack(y)
    assert t.data_ptr() == y._buffer.buffer.address
    assert float(t.sum()) == 132
    np.testing.assert_array_equal(torch.as_tensor(y, device="cuda").cpu().numpy(), y.numpy())
    back = lt.from_dlpack(torch.arange(8, dtype=torch.float32, device="cuda") * 2)
    np.testing.assert_array_equal((back + 1).numpy(), np.arange(8, dtype=np.float32) * 2 + 1)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        big = torch.ones(1 << 26, device="cuda")
        for _ in range(20):
            big = big + 1
        taken = lt.from_dlpack(big)
    assert float(taken.max()) == float(taken.min()) == 21


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_products_of_halves_are_summed_up_in_float32(half: str) -> None:
    """Also where cuBLAS divides a long sum among blocks; a float32 result is not rounded to the half."""
    rng = np.random.default_rng(0)
    for m, k, n in ((8, 65536, 8), (33, 4097, 17), (256, 512, 128)):
        a, b = (lt.asarray(rng.normal(size=s).astype(np.float32)).astype(half) for s in ((m, k), (k, n)))
        x, y = (v.astype("float64").numpy() for v in (a, b))
        want, most = x @ y, np.abs(x) @ np.abs(y)
        there, other = a.to("cuda:0"), b.to("cuda:0")
        lt.sync()
        rounded = there @ other
        single = lt.matmul(there.astype("float32"), other.astype("float32"))
        assert "cuBLAS gemm" in str(rounded.explain())
        sums = 64 * 2.0**-24 * most  # blocks of a few hundred, and a tree of them
        unit = (2.0**-11 if half == "float16" else 2.0**-8) * np.abs(want)
        assert (np.abs(single.numpy() - want) <= sums).all()
        assert (np.abs(rounded.astype("float64").numpy() - want) <= unit + sums).all()


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_a_step_under_autocast_is_near_the_cpu(half: str) -> None:
    found = []
    for device in ("cpu", "cuda:0"):
        lt.random.seed(3)
        model = lt.nn.Sequential(lt.nn.Linear(64, 96), lt.nn.GELU(), lt.nn.Linear(96, 10)).to(device)
        x = lt.asarray(np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)).to(device)
        y = lt.asarray(np.arange(32) % 10).to(device)
        opt, scaler = lt.optim.SGD(model.parameters(), lr=0.1), lt.amp.GradScaler(device, init_scale=256.0)
        for _ in range(4):  # the third run is a graph
            with lt.autocast(device.partition(":")[0], dtype=half):
                loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            lt.sync()
        found.append([v.detach().numpy() for v in (loss, *model.parameters())])
    for g, w in zip(*found, strict=True):
        np.testing.assert_allclose(g, w, rtol=0.05, atol=5e-3)


def test_products_of_every_dtype() -> None:
    rng = np.random.default_rng(0)
    for dtype, tolerance in (("float16", 2e-2), ("bfloat16", 5e-2), ("float32", 1e-4), ("float64", 1e-12),
                             ("complex64", 1e-4), ("complex128", 1e-12)):  # fmt: skip
        wide = "complex128" if dtype.startswith("complex") else "float64"
        for m, k, n in ((1, 1, 1), (33, 65, 17), (128, 256, 64)):
            a, b = (lt.asarray(rng.normal(size=s)).astype(dtype) for s in ((3, m, k), (3, k, n)))
            want = a.astype(wide).numpy() @ b.astype(wide).numpy()
            there, other = a.to("cuda:0"), b.to("cuda:0")
            back = lt.swapaxes(other, -1, -2).copy()
            for got in (there @ other, there @ lt.swapaxes(back, -1, -2)):
                np.testing.assert_allclose(got.astype(wide).numpy(), want, rtol=tolerance, atol=tolerance * k**0.5)


@pytest.mark.parametrize("how", ["policy", "swap", "L4"])
def test_values_in_the_hosts_memory_change_no_bit(how: str) -> None:
    """Copies of some megabytes beside kernels that take as long; many turns, of which each could come too early."""

    def context(moves: bool) -> Any:
        if how == "L4":
            return lt.memory.compress(bits=2, level="L4" if moves else "L3", device="cuda:0")
        if not moves:
            return contextlib.nullcontext()
        if how == "swap":
            return lt.memory.compress(level="swap", device="cuda:0")
        return lt.memory.budget(None, policy=lambda s: "offload")

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2048, 1024)).astype(np.float32)]
    arrays += [rng.standard_normal((1024, 1024)).astype(np.float32) / 32 for _ in range(6)]
    found = []
    for moves in (False, True):
        lt.random.seed(0)
        x, *weights = (lt.asarray(a, device="cuda:0").requires_grad_(i > 0) for i, a in enumerate(arrays))
        held = context(moves)
        optimizer = lt.optim.SGD(weights, lr=1e-3)
        for i in range(30):
            optimizer.zero_grad()
            with held:
                h = x
                for w in weights:
                    h = F.gelu(F.layer_norm(h @ w, (1024,))) + h
            loss = (h * h).mean()
            del h
            loss.backward()
            optimizer.step()
            if i == 2 and moves:
                assert "offloaded" in {s.decision for s in lt.memory.plan(loss).saved}
            lt.sync()
        found.append([w.detach().numpy() for w in weights])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("reads", [False, True])
def test_results_in_the_memory_of_inputs_change_no_bit(reads: bool) -> None:
    """Steps that are enqueued while older ones run, each in the place of the last; some are waited for."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) / 16 for s in ((512, 512), (512,), (512, 512), (512,))]
    table = rng.standard_normal((1000, 512)).astype(np.float32)
    found = []
    for on in (False, True):
        with mock.patch.dict(switches, {"donate": on}):
            plan_cache._programs.clear()
            local.trace.reset_trie()
            params = [lt.asarray(a, device="cuda:0").requires_grad_() for a in (*arrays, table)]
            optimizer = lt.optim.AdamW(params, lr=1e-3)
            places: list[int] = []
            for i in range(40):
                optimizer.zero_grad()
                index = lt.asarray(np.arange(i, i + 256), device="cuda:0")
                h = params[4][index]
                for w, b in (params[:2], params[2:4]):
                    h = lt.tanh(h @ w + b)
                loss = (h * h).mean()
                loss.backward()
                optimizer.step()
                lt.sync()
                report = lt.last_sync()
                assert report is not None and (report.in_place > 0) == (on and i > 0)
                if reads and i % 7 == 3:
                    loss.item()
                places.append(params[0]._buffer.address)
            assert (len({*places[2:]}) == 1) == on
            found.append([p.detach().numpy() for p in params])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
