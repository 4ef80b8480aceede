"""Plans on a GPU that run again: graphs with other arguments, asynchronous errors, streams. Above the fake driver."""

from __future__ import annotations

import contextlib
import ctypes
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu.flags import switches
from lazyt.backends.cuda import driver_api
from lazyt.backends.cuda.graph_nodes import KernelNode, Product
from lazyt.nn import functional as F
from lazyt.runtime import computing, plan_cache
from tests.support.cuda.fake import FakeDriver, FakeFailure, FakeStream, installed
from tests.support.cuda.shim import compiler


@pytest.fixture
def gpu() -> Iterator[FakeDriver]:
    compiler()
    with mock.patch.dict(plan_cache.settings, {"tiers": False}), installed(FakeDriver()) as fake:
        yield fake


def on_gpu(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    return lt.asarray(np.random.default_rng(seed).normal(size=shape).astype(dtype), device="cuda:0")


def two_kernels(x: Any, factor: float) -> Any:
    """A reduction over columns and one over everything that reads it."""
    y = (x * factor).sum(0)
    return y, (y * y).sum()


def test_a_graph_runs_with_the_arguments_of_each_call(gpu: FakeDriver) -> None:
    for i in range(6):
        x = on_gpu(300, 40, seed=i)
        y, z = two_kernels(x, 1.0 + i)
        lt.sync()
        want = two_kernels(x.cpu(), 1.0 + i)
        np.testing.assert_array_equal(y.numpy(), want[0].numpy())
        np.testing.assert_array_equal(z.numpy(), want[1].numpy())
    assert (gpu.graphs, gpu.graph_runs) == (1, 5)
    again = two_kernels(on_gpu(300, 40), 1.0)
    assert "replay   1 CUDA graph, launched 5 times" in str(again[0].explain())


@contextlib.contextmanager
def plans_looked_for() -> Iterator[mock.Mock]:
    with mock.patch.object(computing, "find_plan", wraps=computing.find_plan) as found:
        yield found


def test_a_repeated_sync_looks_for_no_plan(gpu: FakeDriver) -> None:
    x, kept = on_gpu(300, 40), []
    with plans_looked_for() as plans:
        for i in range(8):
            kept.append(two_kernels(x, float(i)))
            lt.sync()
            report = lt.last_sync()
            assert report is not None and (report.plan_hit, report.kernels) == (i > 0, 1)
    assert plans.call_count == 2
    for i, got in enumerate(kept):
        for a, b in zip(got, two_kernels(x.cpu(), float(i)), strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_a_repeated_training_step_looks_for_no_plan(gpu: FakeDriver) -> None:
    with mock.patch.dict(plan_cache.settings, {"repeat": False}):
        want = train("cuda:0")
    with plans_looked_for() as plans:
        got = train("cuda:0")
    assert plans.call_count < 6, "of six steps"
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)


def test_a_read_that_is_repeated_waits_for_its_checks(gpu: FakeDriver) -> None:
    table, index = bad_index()
    good = lt.asarray(np.array([1, 2, 3]), device="cuda:0")
    for i in range(8):
        y = table[index if i % 4 == 3 else good] * 2
        if i % 4 == 3:
            with pytest.raises(lt.IndexOutOfRange, match="index 99"):
                y.numpy()
            assert y.is_pending
            lt.sync()
        else:
            np.testing.assert_array_equal(y.numpy(), table.numpy()[1:4] * 2)
            assert y._buffer.buffer.checks == ()
        del y


def test_a_launch_that_fails_when_it_is_repeated(gpu: FakeDriver) -> None:
    """It is tried once more, and is an error then."""
    x = on_gpu(10)

    def step() -> Any:
        y = x + 1
        try:
            lt.sync()
        finally:
            found.append(y)
        return y

    found: list[Any] = []
    for _ in range(4):
        step()
    gpu.failure = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
    np.testing.assert_array_equal(step().numpy(), x.numpy() + 1)
    with (
        mock.patch.object(gpu, "launch", side_effect=FakeFailure("CUDA_ERROR_ILLEGAL_ADDRESS")),
        pytest.raises(lt.DeviceError, match="cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS"),
    ):
        step()
    assert found[-1].is_pending
    np.testing.assert_array_equal(found[-1].numpy(), x.numpy() + 1)


def test_new_sizes_have_graphs_of_their_own(gpu: FakeDriver) -> None:
    for rows in (5, 300, 5, 300, 5, 300):
        x = on_gpu(rows, 40, seed=rows)
        got = two_kernels(x, 2.0)
        lt.sync()
        for a, b in zip(got, two_kernels(x.cpu(), 2.0), strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert (gpu.graphs, gpu.graph_runs) == (2, 4)


def test_results_are_not_overwritten_by_the_next_replay(gpu: FakeDriver) -> None:
    x, kept = on_gpu(300, 40), []
    for i in range(5):
        kept.append(two_kernels(x, float(i)))
        lt.sync()
    for i, (y, z) in enumerate(kept):
        want = two_kernels(x.cpu(), float(i))
        np.testing.assert_array_equal(y.numpy(), want[0].numpy())
        np.testing.assert_array_equal(z.numpy(), want[1].numpy())
    assert gpu.graph_runs == 4


def test_positions_that_move(gpu: FakeDriver) -> None:
    cache, total = lt.zeros((4, 64), device="cuda:0"), []
    want = np.zeros((4, 64), np.float32)
    for pos in range(5, 12):
        cache[:, pos] = lt.arange(4, dtype="float32", device="cuda:0") + pos
        total.append(cache.sum())
        lt.sync()
        want[:, pos] = np.arange(4) + pos
    np.testing.assert_array_equal(cache.numpy(), want)
    assert gpu.graph_runs > 0
    assert [float(t) for t in total] == [want[:, : p + 1].sum() for p in range(5, 12)]


def train(device: str, steps: int = 6) -> list[np.ndarray]:
    lt.random.seed(3)
    model = lt.nn.Sequential(lt.nn.Linear(20, 32), lt.nn.GELU(), lt.nn.Linear(32, 5)).to(device)
    opt = lt.optim.AdamW(model.parameters(), lr=1e-2)
    target = lt.asarray(np.arange(16) % 5, device=device)
    losses = []
    for i in range(steps):
        x = lt.asarray(np.random.default_rng(i).normal(size=(16, 20)).astype(np.float32), device=device)
        loss = F.cross_entropy(model(x), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.detach())
        lt.sync()
    return [v.numpy() for v in (*losses, *(p.detach() for p in model.parameters()))]


def test_training_replays_and_gives_the_same_bits(gpu: FakeDriver) -> None:
    with mock.patch.dict(switches, {"graphs": False}):
        want = train("cuda:0")
        assert gpu.graph_runs == 0
    products = gpu.products
    got = train("cuda:0")
    assert gpu.graph_runs >= 4
    assert gpu.products - products < products, "products are nodes of the graph"
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)
    for g, w in zip(got, train("cpu"), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-3, atol=1e-5)


def test_without_products_in_graphs_the_kernels_between_them_are(gpu: FakeDriver) -> None:
    want = train("cuda:0")
    gpu.refuse_products, runs, products = True, gpu.graph_runs, gpu.products
    # What was made before cannot be changed any more, and is made again without products.
    for g, w in zip(train("cuda:0"), want, strict=True):
        np.testing.assert_array_equal(g, w)
    assert gpu.products > products
    assert gpu.graph_runs > runs
    x = lt.ones((2, 3), device="cuda:0")
    for _ in range(3):
        y = (x @ x.T).sum() + 1
        lt.sync()
    z = (x @ x.T).sum() + 1
    assert "not all of it: cublasGemmStridedBatchedEx: error 7" in str(z.explain())
    assert float(y) == float(z)


def test_where_there_are_no_graphs_it_goes_launch_by_launch_and_says_so(gpu: FakeDriver) -> None:
    gpu.refuse_graphs = True
    for i in range(4):
        x = on_gpu(300, 40, seed=i)
        y, z = two_kernels(x, 3.0)
        if i == 3:
            assert "launch by launch; not all of it: libcuda.so.1: too old" in str(lt.explain(y))
        np.testing.assert_array_equal(z.numpy(), two_kernels(x.cpu(), 3.0)[1].numpy())
    assert gpu.graphs == 0


def test_a_call_on_the_host_divides_a_plan(gpu: FakeDriver) -> None:
    for i in range(4):
        x = on_gpu(30, 8, seed=i)
        a = (x + 1).sum(0)
        y = lt.sort(a / a.sum())
        z = (y * y).sum()
        w = y / z
        lt.sync()
        here = x.cpu()
        b = (here + 1).sum(0)
        v = lt.sort(b / b.sum())
        np.testing.assert_array_equal(w.numpy(), (v / (v * v).sum()).numpy())
    assert gpu.graph_runs == 3 * gpu.graphs > 0


def test_long_rows_share_scratch_memory_in_turn(gpu: FakeDriver) -> None:
    for i in range(3):
        x, y = on_gpu(200_000, seed=i), on_gpu(200_000, seed=i + 9)
        got = (x * 2).sum(), (y * 3).sum()
        lt.sync()
        want = (x.cpu() * 2).sum(), (y.cpu() * 3).sum()
        assert [float(g) for g in got] == [float(w) for w in want]
    assert gpu.graph_runs == 2


# Asynchrony


def test_a_sync_enqueues_and_a_read_waits(gpu: FakeDriver) -> None:
    x = on_gpu(50, 7)
    y = x * 2
    waits = gpu.waits
    lt.sync()
    assert not y.is_pending
    assert gpu.waits == waits
    assert gpu.stream.done < len(gpu.stream.todo), "nothing has run"
    np.testing.assert_array_equal(y.numpy(), x.numpy() * 2)
    assert gpu.waits > waits


def test_host_memory_may_change_once_it_was_given(gpu: FakeDriver) -> None:
    a = np.arange(5000, dtype=np.float32)
    x = lt.asarray(a, device="cuda:0")
    a[:] = -1
    y = x + 0
    np.testing.assert_array_equal(y.numpy(), np.arange(5000, dtype=np.float32))


@pytest.mark.parametrize("n", [1, (4 << 20) - 1, 4 << 20, (9 << 20) + 5])
def test_copies_larger_than_what_is_pinned(n: int, gpu: FakeDriver) -> None:
    a = np.random.default_rng(n).integers(0, 255, n, dtype=np.uint8)
    np.testing.assert_array_equal(lt.asarray(a, device="cuda:0").numpy(), a)


def bad_index() -> tuple[Any, Any]:
    return on_gpu(10, 4), lt.asarray(np.array([1, 99, 3]), device="cuda:0")


def test_a_wrong_index_is_raised_by_who_waits(gpu: FakeDriver) -> None:
    table, index = bad_index()
    y = table[index]
    waits = gpu.waits
    lt.sync()
    assert not y.is_pending
    assert gpu.waits == waits, "a sync waits for nothing, whatever it checks"
    z = y * 2
    lt.sync()
    other = table * 3
    np.testing.assert_array_equal(other.numpy(), table.numpy() * 3)  # nothing of that is wrong
    for value in (y, z, z):
        with pytest.raises(lt.IndexOutOfRange, match=r"index 99 is out of bounds .*test_cuda_replay.py"):
            value.numpy()


def test_a_wrong_index_leaves_what_a_read_needs_pending(gpu: FakeDriver) -> None:
    table, index = bad_index()
    y = table[index] * 2
    with pytest.raises(lt.IndexOutOfRange, match="index 99"):
        y.numpy()
    assert y.is_pending


def test_checks_that_passed_are_forgotten(gpu: FakeDriver) -> None:
    table = on_gpu(10, 4)
    y = table[lt.asarray(np.array([1, 2]), device="cuda:0")]
    lt.sync()
    assert len(y._buffer.buffer.checks) == 1
    z = y + 1
    lt.sync()
    assert len(z._buffer.buffer.checks) == 1, "not known yet"
    z.numpy()
    w = z * y
    lt.sync()
    assert w._buffer.buffer.checks == ()


def test_a_launch_that_fails(gpu: FakeDriver) -> None:
    x = on_gpu(10)
    y = x + 1
    gpu.failure = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
    with pytest.raises(lt.DeviceError, match="cuda:0: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"):
        lt.sync()
    assert y.is_pending
    np.testing.assert_array_equal(y.numpy(), x.numpy() + 1)


def test_streams_are_in_one_order(gpu: FakeDriver) -> None:
    first = gpu.stream
    x = on_gpu(40)
    y = x * 2
    lt.sync()
    gpu.stream = FakeStream()
    z = y + 1
    lt.sync()
    assert first.done < len(first.todo)
    np.testing.assert_array_equal(z.numpy(), x.numpy() * 2 + 1)
    gpu.stream = first
    np.testing.assert_array_equal((z * y).numpy(), z.numpy() * y.numpy())


# Other libraries


def test_memory_is_shared_by_dlpack(gpu: FakeDriver) -> None:
    x = on_gpu(3, 5)
    y = x * 2
    assert y.__dlpack_device__() == (2, 0)
    array, asked = y.__dlpack__(stream=7, max_version=(1, 0))
    assert asked == {"stream": 7, "max_version": (1, 0), "copy": None}
    assert array.address == y._buffer.buffer.address
    back = lt.from_dlpack(array)
    assert (back.device, back.shape, back.dtype) == ("cuda:0", (3, 5), lt.float32)
    assert back._buffer.buffer.address == array.address
    del y, array
    np.testing.assert_array_equal((back + 1).numpy(), x.numpy() * 2 + 1)
    with pytest.raises(BufferError, match=r"device \(2, 1\), because the memory is on \(2, 0\)"):
        x.__dlpack__(dl_device=(2, 1))
    with pytest.raises(BufferError, match="bfloat16"):
        x.astype("bfloat16").__dlpack__()
    np.testing.assert_array_equal(np.from_dlpack(x, device="cpu"), x.numpy())


def test_what_asarray_takes_is_a_copy(gpu: FakeDriver) -> None:
    x = on_gpu(3, 5)
    array, _ = x.__dlpack__()
    copied = lt.asarray(array)
    assert copied.device == "cuda:0"
    assert copied._buffer.buffer.address != array.address
    np.testing.assert_array_equal(copied.numpy(), x.numpy())
    assert lt.asarray(array, dtype="float64", device="cpu").dtype == lt.float64
    assert lt.asarray(array, copy=False)._buffer.buffer.address == array.address


def test_the_interface_of_cuda_arrays(gpu: FakeDriver) -> None:
    x = on_gpu(3, 5)
    y = x + 1
    interface = y.__cuda_array_interface__
    address = y._buffer.buffer.address
    assert interface == {
        "version": 3, "shape": (3, 5), "typestr": "<f4", "data": (address, False), "strides": None, "stream": 1,
    }  # fmt: skip
    y += 1
    lt.sync()
    gpu._check(0, address, 60)  # still memory, though the tensor has gone on
    assert not hasattr(lt.ones(3), "__cuda_array_interface__")
    assert not hasattr(x.astype("bfloat16"), "__cuda_array_interface__")


def test_a_wrong_index_does_not_leave(gpu: FakeDriver) -> None:
    table, index = bad_index()
    y = table[index]
    lt.sync()
    with pytest.raises(lt.IndexOutOfRange):
        y.__dlpack__()
    with pytest.raises(lt.IndexOutOfRange):
        y.__cuda_array_interface__  # noqa: B018


# The native side


def header() -> Path | None:
    found = sorted(Path(p) for p in np.__path__[0:1])
    return next(found[0].parent.glob("nvidia/**/include/cuda.h"), None)


def test_the_layout_is_that_of_the_header(tmp_path: Path) -> None:
    where, cxx = header(), shutil.which("g++")
    if where is None or cxx is None:
        pytest.skip("cuda.h (of nvidia-cuda-runtime) or g++ is not here")
    names = ["func", "gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ", "sharedMemBytes",
             "kernelParams", "extra", "kern", "ctx"]  # fmt: skip
    prints = "".join(f'printf("%zu ", offsetof(CUDA_KERNEL_NODE_PARAMS_v2, {n}));' for n in names)
    # The versions of the functions are those that the header means by their plain names.
    uses = "".join(f"(void)&{n.removesuffix('_v2')};" for n in driver_api.DRIVER)
    text = f"""#include <cuda.h>
#include <cstdio>
#include <cstddef>
#define STRING(x) #x
#define NAME(x) STRING(x)
int main() {{ {prints} printf("%zu %d ", sizeof(CUDA_KERNEL_NODE_PARAMS_v2), CU_STREAM_CAPTURE_MODE_RELAXED);
    {"".join(f'printf("%s ", NAME({n.removesuffix("_v2").removesuffix("WithFlags")}));' for n in driver_api.DRIVER)} }}
"""
    assert uses
    (tmp_path / "layout.cpp").write_text(text)
    subprocess.run([cxx, f"-I{where.parent}", "-o", tmp_path / "layout", tmp_path / "layout.cpp"], check=True)
    done = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True)
    found = done.stdout.split()
    own = [getattr(driver_api.KernelNodeParams, n).offset for n, *_ in driver_api.KernelNodeParams._fields_]
    assert found[: len(own)] == [str(o) for o in own]
    size = ctypes.sizeof(driver_api.KernelNodeParams)
    assert found[len(own) :] == [str(size), str(driver_api.RELAXED), *driver_api.DRIVER]


class Library:
    """A libcuda or libcublas that writes down what it is called with, and gives handles."""

    def __init__(self, log: list[str], fails: str = "") -> None:
        self.log, self.fails, self.handles = log, fails, 0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.log.append(name)
            if name == self.fails:
                return 1
            for place in arguments[:2]:
                if name in MAKERS and type(place).__name__ == "CArgObject" and place._obj.value is None:
                    self.handles += 1
                    place._obj.value = 0x1000 * self.handles
                    break
            return 0

        return call


MAKERS = {"cuGraphCreate", "cuGraphAddKernelNode_v2", "cuGraphAddChildGraphNode", "cuGraphInstantiateWithFlags",
          "cuStreamEndCapture"}  # fmt: skip


class Function:
    ptr = 64


def native(fails: str = "") -> tuple[list[str], Any]:
    log: list[str] = []

    @contextlib.contextmanager
    def capturing(product: Product) -> Iterator[Any]:
        yield 7, 130000, 8, 4096, 1 << 20, (0,) * 22

    node = KernelNode(Function(), 2, 64, 0, 0, 3)
    product = Product(np.dtype("f4"), np.dtype("f4"), 2, 2, 2, 1, 2, 3, 2, 2, False, False, 1, 0, 0, 4, False)
    with (
        mock.patch.object(driver_api, "libcuda", return_value=Library(log, fails)),
        mock.patch.object(driver_api, "libcublas", return_value=Library(log, fails)),
    ):
        graph = driver_api.NativeGraph([(node, ()), (product, (0,)), (node, (0, 1))], capturing)
        made = list(log)
        graph.update(0, node)
        graph.update(1, product)  # captured before
        other = Product(np.dtype("f4"), np.dtype("f4"), 2, 2, 2, 9, 2, 3, 2, 2, False, False, 1, 0, 0, 4, False)
        graph.update(1, other)
        graph.launch(0, [])
    assert made == [
        "cuGraphCreate", "cuGraphAddKernelNode_v2", "cublasSetStream_v2", "cublasSetWorkspace_v2",
        "cuStreamBeginCapture_v2", "cublasGemmStridedBatchedEx", "cuStreamEndCapture", "cuGraphAddChildGraphNode",
        "cuGraphAddKernelNode_v2", "cuGraphInstantiateWithFlags",
    ]  # fmt: skip
    return log[len(made) :], graph


def test_what_is_called_of_the_driver() -> None:
    log, graph = native()
    assert log == [
        "cuGraphExecKernelNodeSetParams_v2", "cuGraphExecChildGraphNodeSetParams", "cublasSetStream_v2",
        "cublasSetWorkspace_v2", "cuStreamBeginCapture_v2", "cublasGemmStridedBatchedEx", "cuStreamEndCapture",
        "cuGraphExecChildGraphNodeSetParams", "cuGraphLaunch",
    ]  # fmt: skip
    assert len(set(graph.nodes)) == 3
    graph.close()
    assert graph.exec.value is None


@pytest.mark.parametrize("fails", ["cuGraphCreate", "cublasGemmStridedBatchedEx", "cuGraphInstantiateWithFlags"])
def test_a_call_that_fails_is_an_error_with_its_name(fails: str) -> None:
    with pytest.raises(driver_api.GraphError, match=f"{fails}: error 1"):
        native(fails)


def test_a_driver_that_is_not_there_is_an_error() -> None:
    with pytest.raises(driver_api.GraphError, match=r"liblazyt-is-not-here\.so"):
        driver_api._library("liblazyt-is-not-here.so", driver_api.DRIVER)
    with pytest.raises(driver_api.GraphError, match="cuGraphCreate"):
        driver_api._library("libc.so.6", driver_api.DRIVER)


def test_a_wrong_index_names_the_line_of_its_own_program(gpu: FakeDriver) -> None:
    """Though the plan is that of the same program at another line, and the sync is repeated."""
    table, index = bad_index()
    lines = []
    for _ in range(5):
        y = table[index]
        lt.sync()
        with pytest.raises(lt.IndexOutOfRange) as first:
            y.numpy()
        y = table[index]
        lt.sync()
        with pytest.raises(lt.IndexOutOfRange) as second:
            y.numpy()
        del y
        lines.append([int(re.findall(r"test_cuda_replay.py:(\d+)", str(e.value))[0]) for e in (first, second)])
    start = test_a_wrong_index_names_the_line_of_its_own_program.__code__.co_firstlineno
    assert lines == [[start + 5, start + 9]] * 5
