"""The CUDA backend above its driver: devices, plans, errors. A fake driver runs the generated source on the CPU."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cuda import cupy_driver, device as devices, horizontal_fusion
from lazyt.backends.cuda.flags import switches
from lazyt.backends.registry import backends
from lazyt.runtime import plan_cache
from tests.support.cuda import on_gpu as on_gpu_script
from tests.support.cuda.fake import FakeDriver
from tests.support.cuda.fake_cudnn import FakeCudnn
from tests.support.cuda.programs import PROGRAMS, flat


def on_gpu(*shape: int, dtype: str = "float32", grad: bool = False, seed: int = 0) -> Any:
    x = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    return lt.tensor(x, device="cuda:0", requires_grad=grad)


def test_arithmetic_on_a_device(gpu: FakeDriver) -> None:
    x = np.random.default_rng(0).normal(size=(30, 70)).astype(np.float32)
    a = lt.asarray(x).to("cuda")
    assert a.device == "cuda:0" == (a + 1).device
    y = lt.softmax(a * 2 + 1, -1)
    assert y.is_pending and y.device.type == "cuda"
    np.testing.assert_array_equal(y.numpy(), lt.softmax(lt.asarray(x) * 2 + 1, -1).numpy())
    assert gpu.launches > 0
    assert a.cpu().device == "cpu"
    np.testing.assert_array_equal(a.cpu().numpy(), x)


# Linear algebra rounds as its library does.
INEXACT = {"network"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_the_bits_of_the_cpu(name: str, gpu: FakeDriver) -> None:
    with mock.patch.dict(plan_cache.settings, {"tiers": False}):
        lt.random.seed(5)
        want = flat(PROGRAMS[name]())
        lt.random.seed(5)
        with lt.device("cuda:0"):
            values = PROGRAMS[name]()
            assert all(v.device == "cuda:0" for v in _tensors(values))
            got = flat(values)
    assert gpu.launches > 0
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        if name in INEXACT:
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(g, w)


def test_exp_and_tanh_of_its_own_are_close_to_the_cpus(gpu: FakeDriver) -> None:
    x = np.random.default_rng(3).normal(size=(5, 300)).astype(np.float32)
    with mock.patch.dict(switches, {"native-math": True}):
        for f in (lambda t: lt.softmax(t, -1), lt.tanh, lt.exp):
            np.testing.assert_array_max_ulp(f(lt.tensor(x, device="cuda:0")).numpy(), f(lt.tensor(x)).numpy(), 4)


@pytest.mark.parametrize("n", [8, 100, 2048, 8192])
def test_exp_of_what_a_rows_greatest_was_taken_from(n: int, gpu: FakeDriver) -> None:
    x = -np.abs(np.random.default_rng(n).normal(size=(6, n)) * 40).astype(np.float32)
    x[:, 0], x[1, 1::2], x[2, 1:], x[3, 2] = 0, -np.inf, -86.5, -88.5
    x[4, 1], x[5, 0] = np.nan, np.inf
    with mock.patch.dict(switches, {"native-math": True}):
        t = lt.asarray(x, device="cuda:0")
        y = lt.exp(t - t.max(-1, keepdims=True))
        (kernel,) = y.explain().kernels
        assert "lt_exp_below_f32(v" in kernel.source()
        got = y.numpy()
    with np.errstate(all="ignore"):
        below = x - x.max(-1, keepdims=True)
        want = np.exp(below.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    normal = want >= 2.0**-126
    error = np.abs(got - want)[normal] / np.spacing(want[normal].astype(np.float32))
    assert error.max() <= 2.5
    assert (got[~normal & ~np.isnan(want)] <= 2.0**-126).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("n", [8, 24, 2048, 3000])
def test_rows_of_halves(dtype: str, n: int, gpu: FakeDriver) -> None:
    """Extremes two at a time, quotients rounded once more."""
    rng = np.random.default_rng(n)
    x = (rng.normal(size=(7, n)) * 6).astype(np.float32)
    x[1, n // 2 :], x[2, 3], x[3, :], x[4, 5], x[5, :], x[6, :] = -np.inf, np.nan, -0.0, np.inf, 0.0, -3e4
    x[3, 6] = 0.0
    here = lt.asarray(x).astype(dtype)
    there = here.to("cuda:0")
    with mock.patch.dict(switches, {"native-math": True}), np.errstate(all="ignore"):
        y = lt.softmax(there, -1)
        if n == 2048:
            assert "lt_near_quotient(v" in y.explain().kernels[0].source()
        got, want = y.astype("float32").numpy(), lt.softmax(here, -1).astype("float32").numpy()
        # A unit of the last place of the half.
        np.testing.assert_allclose(got, want, rtol=2**-7 if dtype == "bfloat16" else 2**-10, atol=1e-7)
        for f in (lt.max, lt.min):
            got, want = (f(v, axis=-1).astype("float32").numpy() for v in (there, here))
            np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(np.signbit(got) & ~np.isnan(got), np.signbit(want) & ~np.isnan(want))


def column_statistics(x: Any) -> Any:
    return x.mean(0), x.var(0), x.max(0)


def columns_of_matrices(x: Any) -> Any:
    y = x[:4998].reshape(17, 294, 41)
    return y.sum((0, 1)), y.max((0, 1))


def long_rows(x: Any) -> Any:
    return lt.softmax(x.T.reshape(1, -1), -1), lt.log(lt.exp(x).sum())


@pytest.mark.parametrize("program", [column_statistics, columns_of_matrices, long_rows])
def test_few_rows_and_tall_columns_are_divided(program: Any, gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(4).normal(size=(5003, 41)).astype(np.float32)
    counts = []
    for on in (True, False):
        monkeypatch.setitem(switches, "split", on)
        part = x if on else x[:-1]
        before = gpu.launches
        got = [v.numpy() for v in program(lt.tensor(part, device="cuda:0"))]
        counts.append(gpu.launches - before)
        for g, w in zip(got, program(lt.tensor(part)), strict=True):
            np.testing.assert_array_equal(g, w.numpy())
    assert counts[0] > counts[1]


def _tensors(values: Any) -> list[lt.Tensor]:
    return [values] if isinstance(values, lt.Tensor) else [t for v in values for t in _tensors(v)]


def test_a_steady_loop_compiles_once(gpu: FakeDriver) -> None:
    w = on_gpu(64, grad=True)
    opt = lt.optim.SGD([w], lr=0.1)
    losses = []
    for _ in range(6):
        loss = ((w - 1) ** 2).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(float(loss))
    loads = gpu.loads
    assert losses == sorted(losses, reverse=True)
    with lt.expect(compiles=0, plans=0):
        loss = ((w - 1) ** 2).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        float(loss)
    assert gpu.loads == loads


def _updates(sizes: Sequence[int | tuple[int, ...]], steps: int, optimizer: Any = lt.optim.AdamW) -> list[np.ndarray]:
    ps = [on_gpu(*(n if isinstance(n, tuple) else (n,)), grad=True, seed=i) for i, n in enumerate(sizes)]
    opt = optimizer(ps, lr=1e-2, weight_decay=0.01)
    for _ in range(steps):
        for i, p in enumerate(ps):
            p.grad = lt.tensor(np.random.default_rng(90 + i).normal(size=p.shape).astype(np.float32), device="cuda:0")
        lt.sync()
        opt.step()
        lt.sync()
    return [p.detach().numpy() for p in ps]


@pytest.mark.parametrize("processors", [2, 0])
def test_updates_of_many_tensors_are_one_launch(
    gpu: FakeDriver, processors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not processors:
        monkeypatch.setattr(horizontal_fusion, "RESIDENT", 2)  # fewer blocks than members have
    sizes = [4, 1000, 1024, 3000, 4096, 8, 2048, 1028, 4100, 20_000]
    counts, found = [], []
    for on in (True, False):
        monkeypatch.setitem(switches, "many", on)
        some = sizes if on else [*sizes[:-1], 20_004]
        before = gpu.launches
        found.append(_updates(some, 1))
        counts.append(gpu.launches - before)
        plan_cache._programs.clear()
    assert counts == [1, 10]
    for got, want in zip(found[0][:-1], found[1][:-1], strict=True):
        np.testing.assert_array_equal(got, want)


def test_updates_of_many_tensors_in_a_loop(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of arguments is another one in every run, and runs are enqueued before older ones are done."""
    sizes, found = [100 + 4 * i for i in range(9)], []
    for on in (True, False):
        monkeypatch.setitem(switches, "many", on)
        found.append(_updates(sizes, 12))
        plan_cache._programs.clear()
    for got, want in zip(*found, strict=True):
        np.testing.assert_array_equal(got, want)


MIXED = [(1,), (3,), (2,), (7, 3), (64,), (1025,), (16, 64), (3, 3, 5, 5), (1, 40), (40, 1)]


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_updates_of_a_hundred_tensors_of_mixed_sizes_are_one_launch(gpu: FakeDriver, optimizer: str) -> None:
    before, compiled = gpu.launches + gpu.graph_runs, gpu.loads
    found = _updates(MIXED * 10, 2, getattr(lt.optim, optimizer))
    # A first step reads its state as later ones do.
    runs = gpu.launches + gpu.graph_runs - before
    assert (runs, gpu.loads - compiled) == (2, 1)
    want = [p.detach().numpy() for p in _on_cpu(MIXED * 10, 2, getattr(lt.optim, optimizer))]
    for got, expected in zip(found, want, strict=True):
        np.testing.assert_array_equal(got, expected)


def _on_cpu(sizes: Sequence[tuple[int, ...]], steps: int, optimizer: Any) -> list[Any]:
    ps = [
        lt.tensor(np.random.default_rng(i).normal(size=n).astype(np.float32), requires_grad=True)
        for i, n in enumerate(sizes)
    ]
    opt = optimizer(ps, lr=1e-2, weight_decay=0.01)
    for _ in range(steps):
        for i, p in enumerate(ps):
            p.grad = lt.tensor(np.random.default_rng(90 + i).normal(size=p.shape).astype(np.float32))
        opt.step()
    return ps


def test_explain_names_what_is_launched_together(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    xs = [on_gpu(100_000 + 4 * i, seed=i) for i in range(8)]
    monkeypatch.setitem(plan_cache.settings, "tiers", False)
    kept = ys = [x * 2 + 1 for x in xs]
    what = ys[0].explain()
    assert "8 kernels in 1 launch, as they are equal and independent" in str(what)
    assert "share[1]" in what.kernels[0].source()
    before = gpu.launches
    lt.sync()
    assert gpu.launches == before + 1 and len(kept) == 8
    report = lt.last_sync()
    assert report is not None and {v.code for v in report.plan_kernels} == {"memory"}
    for x, y in zip(xs, ys, strict=True):
        np.testing.assert_array_equal(y.numpy(), x.numpy() * 2 + 1)
    del ys, kept
    monkeypatch.setitem(switches, "many", False)
    zs = [x * 3 + 1 for x in xs]
    assert "launch, as they are equal" not in str(zs[0].explain())


def test_results_are_not_overwritten_by_the_next_run(gpu: FakeDriver) -> None:
    x = on_gpu(40)
    kept = []
    for i in range(4):
        y = x * float(i)
        lt.sync()
        kept.append(y)
    for i, y in enumerate(kept):
        np.testing.assert_array_equal(y.numpy(), x.numpy() * np.float32(i))


@pytest.mark.slow
def test_moving_offsets_and_new_sizes(gpu: FakeDriver) -> None:
    cache = lt.zeros((4, 64), device="cuda:0")
    for pos in range(5, 9):
        cache[:, pos] = lt.arange(4, dtype="float32", device="cuda:0") + pos
        lt.sync()
    want = np.zeros((4, 64), np.float32)
    for pos in range(5, 9):
        want[:, pos] = np.arange(4) + pos
    np.testing.assert_array_equal(cache.numpy(), want)
    for n in (1, 7, 100, 3000):
        x = on_gpu(3, n, seed=n)
        np.testing.assert_array_equal(x.sum(1).numpy(), x.cpu().sum(1).numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_products(dtype: str, gpu: FakeDriver) -> None:
    rng = np.random.default_rng(1)
    a, b = (lt.asarray(rng.normal(size=s).astype(np.float32)).astype(dtype) for s in ((2, 3, 5, 7), (7, 6)))
    for x, y in ((a, b), (a[0, 0].T, a[0, 1]), (a, lt.swapaxes(a, -1, -2)), (a[:, :, :, :0], b[:0])):
        want = (x @ y).astype("complex64" if dtype == "complex64" else "float32").numpy()
        got = (x.to("cuda:0") @ y.to("cuda:0")).astype("complex64" if dtype == "complex64" else "float32").numpy()
        np.testing.assert_allclose(got, want, rtol=0.02 if "16" in dtype else 1e-5, atol=1e-6)
    assert gpu.products > 0


def test_a_product_reads_transposed_operands_in_place(gpu: FakeDriver) -> None:
    x, y = on_gpu(20, 30), on_gpu(40, 30, seed=1)
    z = (x @ y.T).numpy()
    assert (gpu.products, gpu.launches) == (1, 0)
    np.testing.assert_allclose(z, x.numpy() @ y.numpy().T, rtol=1e-5)


def test_calls_without_a_gpu_form_run_on_the_host_and_are_counted(gpu: FakeDriver) -> None:
    x = on_gpu(5, 9)
    before = devices.device("cuda:0").fallbacks
    y = lt.linalg.pinv(x * 2)
    np.testing.assert_allclose(y.numpy(), np.linalg.pinv(x.numpy() * 2), rtol=1e-4, atol=1e-5)
    assert devices.device("cuda:0").fallbacks == before + 1
    large = on_gpu(40_000)
    y = lt.sort(large)
    assert "CuPy sort" in str(y.explain())
    assert "on the host" in str(lt.linalg.pinv(x).explain())
    np.testing.assert_array_equal((y + 1).numpy(), np.sort(large.numpy()) + 1)


def test_calls_on_the_host_are_named(gpu: FakeDriver) -> None:
    x = on_gpu(5, 9)
    name = r"linalg\.pinv at .*test_cuda_runtime\.py:\d+ \(no GPU form: CuPy's takes one tolerance for all matrices\)"
    with pytest.raises(lt.SyncError, match=rf"(?s)no_sync \(entered at .*\n  {name}$"), lt.no_sync():
        y = lt.linalg.pinv(x * 2)
    assert y.is_pending
    assert re.search(rf"on host +{name}", str(y.explain()))
    want = np.linalg.pinv(x.numpy() * 2)
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-4, atol=1e-5)
    report = lt.last_sync()
    assert report is not None
    (line,) = report.fallbacks
    assert re.fullmatch(name, line) and re.search(rf"on host +{name}", str(report))
    with lt.no_sync():
        z, on_cpu = lt.sort(x * 3), lt.linalg.pinv(lt.ones((3, 2)))
    z.numpy()
    report = lt.last_sync()
    assert report is not None and report.fallbacks == [] and "on host" not in str(report)
    np.testing.assert_allclose(on_cpu.numpy(), np.full((2, 3), 1 / 6), rtol=1e-5)


def test_a_report_is_of_all_devices_plans(gpu: FakeDriver) -> None:
    a, b = on_gpu(5, 9), lt.asarray(np.ones((4, 3), np.float32), device="cuda:1")
    here = lt.asarray(np.ones((3, 3), np.float32))
    kept = lt.linalg.pinv(a * 2), lt.linalg.pinv(b * 2), here + 1
    lt.sync()
    report = lt.last_sync()
    assert report is not None
    assert len(report.fallbacks) == 2 and str(report).count("on host") == 2
    assert report.kernels == len(report.plan_kernels) == 5
    np.testing.assert_array_equal(kept[2].numpy(), here.numpy() + 1)


def test_a_wrong_index_is_raised_with_its_line(gpu: FakeDriver) -> None:
    table, index = on_gpu(10, 4), lt.asarray(np.array([1, 99, 3]), device="cuda:0")
    y = table[index]
    with pytest.raises(lt.IndexOutOfRange, match=r"index 99 is out of bounds .*test_cuda_runtime.py"):
        y.numpy()
    assert y.is_pending
    del y
    good = table[lt.asarray(np.array([1, 9, 3]), device="cuda:0")]
    np.testing.assert_array_equal(good.numpy(), table.numpy()[[1, 9, 3]])


def test_devices_do_not_mix(gpu: FakeDriver) -> None:
    x = on_gpu(3)
    with pytest.raises(lt.DeviceError, match=r"add: operands on 'cuda:0' and 'cpu'; move them with \.to\(device\)"):
        x + lt.ones(3)
    y = x + lt.ones_like(x)
    z = lt.ones(3) * 2
    # One trace with values on two devices: each is computed where it is.
    np.testing.assert_array_equal(y.numpy(), x.numpy() + 1)
    assert not z.is_pending
    assert (z.device, z.tolist()) == ("cpu", [2, 2, 2])
    with pytest.raises(lt.DeviceError, match="device 'cuda:7': no such GPU; there are 2"):
        x.to("cuda:7")
    other = x.to("cuda:1")
    np.testing.assert_array_equal((other * 2).numpy(), x.numpy() * 2)


def test_sets_and_positions_are_on_the_device_of_what_they_are_of(gpu: FakeDriver) -> None:
    x = lt.asarray(np.array([3, 0, 3, 7, 0, 1]), device="cuda:0")
    values, index, inverse, counts = lt.unique_all(x)
    found = [values, index, inverse, counts, *lt.unique_counts(x), *lt.unique_inverse(x), lt.unique_values(x)]
    found += [lt.unique(x), *lt.unique(x, return_counts=True), lt.flatnonzero(x), lt.argwhere(x), lt.bincount(x)]
    found += [*lt.nonzero(x), lt.union1d(x, x + 1), lt.intersect1d(x, x), lt.setdiff1d(x, x[:2])]
    assert {str(v.device) for v in found} == {"cuda:0"}
    np.testing.assert_array_equal(lt.take(values, inverse).numpy(), x.numpy())
    np.testing.assert_array_equal(x[lt.nonzero(x)].numpy(), [3, 3, 7, 1])
    assert lt.unique(lt.asarray([2, 1, 2])).device == "cpu"


def test_gradients_stay_on_the_device(gpu: FakeDriver) -> None:
    model = lt.nn.Linear(4, 3).to("cuda:0")
    assert all(p.device == "cuda:0" for p in model.parameters())
    loss = model(on_gpu(5, 4)).sum()
    loss.backward()
    assert model.weight.grad.device == "cuda:0"


def test_no_memory_leaves_everything_pending(gpu: FakeDriver) -> None:
    x = on_gpu(1000)
    y = x * 2 + 1
    gpu.limit = gpu.used
    with pytest.raises(lt.OutOfMemory, match="cuda:0: no memory for 4,000 bytes"):
        y.numpy()
    assert gpu.freed_cache == 2  # what depends on nothing that failed is tried by itself
    assert y.is_pending
    gpu.limit = 1 << 30
    np.testing.assert_array_equal(y.numpy(), x.numpy() * 2 + 1)


@pytest.mark.slow
def test_the_script_for_a_gpu_times_every_work(gpu: FakeDriver) -> None:
    gpu.front_end = FakeCudnn(gpu)
    head, *lines = on_gpu_script.table(1 << 18, bandwidth=1e9, seconds=0)
    assert head.split()[:4] == ["work", "ms", "rate", "share"]
    assert len(lines) == len(on_gpu_script.WORKS)
    for line in lines:
        assert float(line[36:].split()[0]) > 0, line
    assert gpu.graph_runs > 0
    assert list(on_gpu_script.table(1 << 18, bandwidth=1e9, until=0.0))[1] == "left out: no time"


def test_the_allocator_counts_what_is_held(gpu: FakeDriver) -> None:
    allocator = backends["cuda:0"].allocator
    before = allocator.statistics("cuda:0").allocated
    buffer = allocator.allocate(1 << 12, "cuda:0")
    assert buffer.device == "cuda:0" and buffer.nbytes == 1 << 12
    assert allocator.statistics("cuda:0").allocated - before >= 1 << 12
    del buffer
    assert allocator.statistics("cuda:0").allocated == before


def test_looking_at_a_device(gpu: FakeDriver) -> None:
    x = on_gpu(6, 500)
    y = lt.softmax(x * 3, -1)
    assert "device=cuda:0 pending" in repr(y)
    found = y.explain()
    (kernel,) = found.kernels
    assert kernel.code == ""
    source = kernel.source()
    assert "lt_exp_f32(v" in source and 'extern "C" __global__ void' in source
    assert "test_cuda_runtime.py" in source, "the user's lines stand above a kernel"
    assert "}\n\n// " in source, "an empty line stands between functions"
    assert gpu.loads == 0, "looking compiles nothing"
    y.numpy()
    ran = lt.last_sync().plan_kernels[-1]
    assert ran.code == "memory"


def test_what_masks_and_indices_choose_stays_on_the_device(gpu: FakeDriver) -> None:
    x = on_gpu(6, 5)
    n = x.numpy()
    mask, keep = n > np.median(n), [True, False, True, True, False, False]
    for got, want in (
        (x[lt.asarray(mask, device="cuda:0")], n[mask]),
        (x[mask], n[mask]),
        (x[[0, 2]], n[[0, 2]]),
        (lt.delete(x, [1], axis=0), np.delete(n, [1], axis=0)),
        (lt.compress(keep, x, axis=0), n[keep]),
        (lt.extract(mask, x), n[mask]),
    ):
        assert got.device == "cuda:0"
        np.testing.assert_array_equal(got.numpy(), want)


def test_memory_goes_back(gpu: FakeDriver) -> None:
    x = on_gpu(1000)
    before = gpu.used
    for _ in range(5):
        (x * 3).numpy()
    assert gpu.used <= before + 4000
    del x
    lt.sync()


# Bad input: what is missing is said at the first use of a device, and how to get it.


class RuntimeFailure(RuntimeError):
    """CuPy's error of a call of CUDA's runtime."""


def cupy_that(error: Exception | None = None, devices: int = 0) -> dict[str, Any]:
    """The modules of a CuPy whose first call fails, or finds so many devices."""

    def count() -> int:
        if error is not None:
            raise error
        return devices

    runtime = SimpleNamespace(
        CUDARuntimeError=RuntimeFailure, getDeviceCount=count, runtimeGetVersion=lambda: 12090,
        getDeviceProperties=lambda n: {"name": b"Old", "major": 6, "minor": 1, "multiProcessorCount": 4},
        deviceGetAttribute=lambda what, n: 48 << 10, cudaDevAttrMaxSharedMemoryPerBlockOptin=97,
    )  # fmt: skip
    cuda = SimpleNamespace(runtime=runtime, cublas=SimpleNamespace(CUBLASError=RuntimeError))
    low = SimpleNamespace(CUDADriverError=RuntimeError)
    return {"cupy": SimpleNamespace(cuda=cuda), "cupy.cuda": cuda, "cupy_backends.cuda.api.driver": low}


NO_DEVICE = RuntimeFailure("cudaErrorNoDevice: no CUDA-capable device is detected")
OLD_DRIVER = RuntimeFailure("cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version")
NO_WHEELS = RuntimeError("CuPy failed to load libcudart.so.12: OSError: cannot open shared object file")
BAD = {
    "no CuPy": ({"cupy": None}, "cuda", r'which cannot be imported .*pip install "lazyt\[cuda\]"'),
    "a CuPy without its CUDA": (cupy_that(NO_WHEELS), "cuda", r'libcudart.*pip install "lazyt\[cuda\]"'),
    "no GPU": (cupy_that(NO_DEVICE), "cuda", "cuda: no GPU can be used .*NoDevice"),
    "no or an old driver": (
        cupy_that(OLD_DRIVER), "cuda", "too old for CUDA 12 .*install a driver, or the CuPy of an older CUDA"),
    "none at all": (cupy_that(), "cuda", "device 'cuda': no such GPU; there is none"),
    "not that one": (cupy_that(devices=2), "cuda:7", "device 'cuda:7': no such GPU; there are 2: cuda:0 to cuda:1"),
    "an old GPU": (cupy_that(devices=1), "cuda:0", r"Old has compute capability 6\.1; lazyt needs 7\.5 or higher"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_what_is_missing_is_one_error_at_the_first_use(what: str) -> None:
    modules, name, message = BAD[what]
    before = cupy_driver.use(None)
    try:
        with mock.patch.dict("sys.modules", modules):
            for use in (lambda: lt.zeros(3, device=name), lambda: lt.ones(3).to(name), lambda: lt.device(name)):
                with pytest.raises(lt.DeviceError, match=message):
                    use()
        assert lt.zeros(3).tolist() == [0, 0, 0], "the CPU goes on"
    finally:
        cupy_driver.use(before)


def test_a_device_that_is_current_is_not_made_current() -> None:
    """Each thread's context is made first, and a device that is another one is put back."""
    log: list[str] = []
    current = [0]

    @contextlib.contextmanager
    def made_current(n: int) -> Iterator[None]:
        before, current[0] = current[0], n
        log.append(f"to {n}")
        yield
        log.append(f"back to {before}")
        current[0] = before

    modules = cupy_that()
    cuda = modules["cupy.cuda"]
    cuda.Device, cuda.get_current_stream = made_current, lambda: f"a stream of {current[0]}"
    cuda.runtime.setDevice = cuda.runtime.free = lambda n: log.append("made")
    cuda.runtime.getDevice = lambda: current[0]
    with mock.patch.dict("sys.modules", modules):
        driver = cupy_driver.CupyDriver()
    for n, said in (
        (0, ["to 0", "made", "made", "back to 0"]), (0, []), (1, ["to 1", "made", "made", "back to 0"]),
        (1, ["to 1", "back to 0"]), (0, []),
    ):  # fmt: skip
        with driver.on(n) as stream:
            assert stream == f"a stream of {n}"
        assert log == said
        log.clear()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there is a GPU")
def test_tests_of_a_gpu_are_skipped_without_one_and_fail_where_it_is_required() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "-m", "cuda"]
    command += ["tests/backends/cuda/test_cuda_gpu.py", "-k", "no_memory"]
    root = Path(__file__).parents[3]
    for required, code, said in (("0", 0, "1 skipped"), ("1", 1, "1 error")):
        environment = {**os.environ, "LAZYT_REQUIRE_CUDA": required, "CUDA_VISIBLE_DEVICES": "-1"}
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, said in done.stdout) == (code, True), done.stdout


def test_importing_and_using_the_cpu_does_not_import_cupy() -> None:
    code = (
        "import sys, lazyt as lt; lt.softmax(lt.ones((3, 4)) @ lt.ones((4, 2))).numpy(); lt.explain();"
        "sys.exit(any(m.partition('.')[0] in ('cupy', 'cupy_backends') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
