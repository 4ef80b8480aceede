"""The devices as users have them: values, training, random numbers, memory, errors, what the host computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
import lazyt_opencl
from lazyt import nn, optim
from lazyt.backends import registry
from lazyt_opencl import backend
from lazyt_opencl.device import NAME, Device
from lazyt_opencl.queues import DeviceBuffer

FIRST = f"{NAME}:0"
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_values_go_there_and_back() -> None:
    x = lt.asarray(X).to(NAME)
    assert x.device == FIRST and x.device.type == NAME
    assert type(x._buffer.buffer) is DeviceBuffer
    y = x * 2 + 1
    assert y.is_pending and y.device == FIRST
    np.testing.assert_array_equal(y.cpu().numpy(), X * 2 + 1)
    assert y.cpu().device == "cpu" and (y.to(dtype=lt.float64, device=NAME) + 1).device == FIRST
    assert lt.zeros(3, device=FIRST).device == FIRST
    np.testing.assert_array_equal(np.from_dlpack(y), X * 2 + 1)  # a copy on the CPU


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 3, 4, 5)], ids=str)
def test_shapes_of_all_kinds(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).normal(size=shape)
    there = lt.asarray(x, device=NAME)
    np.testing.assert_array_equal((there * 2).numpy(), x * 2)
    np.testing.assert_allclose(there.sum().numpy(), x.sum(), atol=1e-12)


def test_it_has_the_bits_of_the_cpu() -> None:
    x = np.random.default_rng(0).normal(size=(7, 300)).astype(np.float32)

    def program(t: Any) -> Any:
        return (
            (t * t).sum(axis=1), t.max(axis=0), (t[1:, ::2] - t[:-1, 1::2]).sum(), lt.cumsum(t, axis=1), t.prod(axis=1),
            lt.softmax(t, -1), lt.erf(t), lt.argmin(t, 1), t.astype("float16").sum(0), lt.sin(t.astype("bfloat16")),
            lt.exp(t + 1j), t.std(0),
        )  # fmt: skip

    for ours, theirs in zip(program(lt.asarray(x, device=NAME)), program(lt.asarray(x)), strict=True):
        assert ours.numpy().tobytes() == theirs.numpy().tobytes()


def test_a_long_row_is_divided_among_the_processors_with_the_same_bits() -> None:
    x = np.random.default_rng(0).normal(size=1 << 19).astype(np.float32)
    ours, theirs = lt.asarray(x, device=NAME), lt.asarray(x)
    assert lt.sum(ours).item() == lt.sum(theirs).item()
    assert lt.argmax(ours).item() == x.argmax()


def test_random_numbers_are_the_cpus() -> None:
    drawn = {}
    for device in ("cpu", NAME):
        lt.random.seed(7)
        with lt.device(device):
            drawn[device] = [lt.random.uniform(size=(5, 7)), lt.random.normal(size=9), lt.random.permutation(20)]
        assert all(d.device.type == device for d in drawn[device])
    for ours, theirs in zip(drawn[NAME], drawn["cpu"], strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bool", "float16", "bfloat16", "complex64"])
@pytest.mark.parametrize("shape", [(3, 5, 2), (40, 17, 65), (1, 300, 1), (4, 0, 3)], ids=str)
def test_products(dtype: str, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    rng = np.random.default_rng(0)
    a, b = (lt.asarray(rng.integers(0, 3, s)).astype(dtype) for s in ((2, m, k), (n, k)))
    got = (a.to(NAME) @ b.to(NAME).T).numpy()
    want = (a @ b.T).numpy()
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))  # small integers: exact in any order


def test_products_of_gpus_and_of_processors(opencl: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = lt.asarray(np.arange(100 * 70).reshape(100, 70) % 11), lt.asarray(np.arange(70 * 90).reshape(70, 90) % 7)
    for is_cpu in (False, True):
        monkeypatch.setattr(opencl, "is_cpu", is_cpu)
        # Another program, so that it is planned anew.
        got = (a.to(NAME).astype("float32") + is_cpu) @ b.to(NAME).astype("float32")
        np.testing.assert_array_equal(got.numpy(), (a.numpy() + is_cpu) @ b.numpy())


def test_a_batch_of_products_that_broadcasts() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 1, 40, 20)), rng.normal(size=(3, 20, 50))
    got = lt.asarray(a, device=NAME) @ lt.asarray(b, device=NAME)
    np.testing.assert_allclose(got.numpy(), a @ b, rtol=1e-12, atol=1e-12)


def test_a_model_is_trained_as_on_the_cpu() -> None:
    def losses(device: str) -> list[float]:
        lt.random.seed(3)
        model = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(36, 2), nn.Dropout(0.2))
        model.to(device)
        opt = optim.Adam(model.parameters(), lr=0.02)
        x, found = lt.asarray(X.reshape(1, 1, 3, 4) / 10, device=device), []
        for _ in range(4):
            loss = ((model(x) - 1) ** 2).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            found.append(float(loss))
        assert all(p.device.type == device for p in model.parameters())
        return found

    found = losses(NAME)
    assert found[-1] < found[0]
    np.testing.assert_allclose(found, losses("cpu"), rtol=1e-5)


def test_gradients_cross_to_it_and_come_back() -> None:
    x = lt.asarray(X)
    x.requires_grad_()
    (x.to(NAME) ** 2).sum().cpu().backward()
    assert x.grad is not None and x.grad.device == "cpu"
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X)


def test_a_kernel_has_no_more_buffers_than_drivers_take() -> None:
    several = [lt.asarray(X + i, device=NAME) for i in range(150)]
    total = several[0]
    for x in several[1:]:
        total = total + x
    np.testing.assert_array_equal(total.numpy(), 150 * X + 149 * 75)


def test_writes_in_place_and_results_whose_shapes_are_data() -> None:
    x = lt.asarray(X, device=NAME)
    y = x + 0
    x[1:, 2] = -1
    want = X.copy()
    want[1:, 2] = -1
    np.testing.assert_array_equal(x.numpy(), want)
    np.testing.assert_array_equal(y.numpy(), X)
    assert [i.device for i in lt.nonzero(x < 0)] == [FIRST, FIRST]


def test_a_sync_computes_each_device_apart_and_is_repeated() -> None:
    x, there = lt.asarray(X), lt.asarray(X, device=NAME)
    for i in range(4):
        a, b = x + i, there * i
        lt.sync()
        assert (a.device, b.device) == ("cpu", FIRST)
        np.testing.assert_array_equal(b.numpy(), X * i)
    there.device.synchronize()


def test_sizes_change_nothing_that_is_compiled() -> None:
    for n in (5, 6, 7):
        _ = (lt.asarray(np.ones((n, 3), np.float32), device=NAME) * 3).sum(0).numpy()
    assert lt.last_sync().compiles == 0


def test_memory_is_its_own_and_is_given_back() -> None:
    allocator = registry.get(NAME).allocator
    before, host = allocator.statistics(NAME).allocated, lt.memory.allocated()
    x = lt.zeros((64, 64), device=NAME) + 1
    lt.sync()
    assert allocator.statistics(NAME).allocated - before >= 64 * 64 * 4
    assert allocator.statistics(NAME).reserved >= allocator.statistics(NAME).allocated
    assert lt.memory.allocated() == host
    del x
    assert allocator.statistics(NAME).allocated == before


def test_too_much_memory_leaves_all_pending(opencl: Device) -> None:
    y = lt.zeros((1 << 21, 1 << 21), device=NAME) + lt.asarray(X[0, 0], device=NAME)
    with pytest.raises(lt.OutOfMemory, match=r"opencl:0 \(.*\): no memory for [\d,]+ bytes"):
        lt.sync()
    assert y.is_pending
    del y


def test_an_index_out_of_range_names_the_line() -> None:
    table, at = lt.asarray(X, device=NAME), lt.asarray(np.array([0, 9]), device=NAME)
    with pytest.raises(lt.IndexOutOfRange, match=r"index 9 is out of bounds for an axis of size 3 .*test_devices"):
        table[at].numpy()


def test_what_has_no_kernel_is_done_by_the_host_and_counted(opencl: Device) -> None:
    before = registry.get(NAME).fallbacks_of(NAME)["fft_fft"]
    y = lt.fft.fft(lt.asarray(X, device=NAME)).real
    assert "there is no OpenCL kernel" in str(y.explain())
    np.testing.assert_array_equal(y.numpy(), np.fft.fft(X).real)
    assert opencl.fallbacks["fft_fft"] == before + 1


def test_explain_shows_the_source() -> None:
    x = lt.asarray(X, device=NAME)
    shown = (lt.softmax(x * 2, -1) @ lt.asarray(X.T.copy(), device=NAME)).explain()
    kernel, product = shown.kernels
    assert "__kernel void lazyt_k_" in kernel.source() and "get_global_id" in kernel.source()
    assert "generated product" in str(shown)
    assert product is not None
    with pytest.raises(lt.NotSupportedError, match="sass of a kernel for 'opencl:0'"):
        kernel.sass()


def test_operands_of_two_devices_are_refused() -> None:
    with pytest.raises(lt.DeviceError, match=NAME):
        _ = lt.asarray(X, device=NAME) + lt.asarray(X)


def test_devices_that_are_not_there() -> None:
    with pytest.raises(lt.DeviceError, match=r"device 'opencl:9': no such device; there is opencl:0 \("):
        lt.zeros(3, device="opencl:9")
    with pytest.raises(lt.DeviceError, match=r"device 'opencl:x': no such device; OpenCL devices are 'opencl:0'"):
        lt.zeros(3, device="opencl:x")
    assert lazyt_opencl.devices()[0].startswith("opencl:0 (")
    assert backend.BACKEND.device_count() == len(lazyt_opencl.devices())
    assert registry.get(NAME) is backend.BACKEND


def test_it_is_attached_as_every_backend_is(opencl: Device) -> None:
    opencls: Any = lt.opencl  # type: ignore[attr-defined]
    assert opencls.is_available() and opencls.device_count() == len(lazyt_opencl.devices())
    assert opencls.get_device_properties(0).name == opencl.found.name
    assert lt.asarray(X).opencl().device == FIRST  # type: ignore[attr-defined]
    assert nn.Linear(2, 2).opencl().weight.device == FIRST  # type: ignore[attr-defined]


def test_a_device_without_float64_is_refused(opencl: Device) -> None:
    class Found:
        name, double_fp_config = "a small GPU", 0

    with pytest.raises(
        lt.NotSupportedError, match=r"'opencl:3' \(a small GPU\): not supported, because it has no float64"
    ):
        Device(3, Found())
