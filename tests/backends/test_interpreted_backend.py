"""A backend that is registered with no edit in lazyt: a device like any other, and every operation against NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn, optim
from lazyt.backends import registry
from lazyt.ops.definition import OPS
from tests.support import interpreted_backend
from tests.support.interpreted_backend import NAME, InterpretedBackend, Memory
from tests.support.operations import NAMES, TOLERANCE, expected, public, wide

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def interp() -> Iterator[None]:
    registry.register(InterpretedBackend())
    yield
    lt.sync()
    registry.unregister(NAME)


def there(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return lt.asarray(x, device=NAME)
    if isinstance(x, list | tuple) and any(isinstance(q, np.ndarray) for q in x):
        return type(x)(there(q) for q in x)
    return x


@pytest.mark.parametrize("name", NAMES)
def test_every_operation_against_numpy(name: str) -> None:
    for args, kwargs in OPS[name].samples():  # type: ignore[misc]
        with lt.device(NAME):
            out = public(name)(*(there(a) for a in args), **{k: there(v) for k, v in kwargs.items()})
        found = out if isinstance(out, tuple) else (out,)
        for got, want in zip(found, expected(name, args, kwargs, len(found) > 1), strict=True):
            assert got.device == NAME
            a = got.numpy()
            assert (a.shape, a.dtype) == (want.shape, want.dtype)
            if a.dtype.name in TOLERANCE:
                tol = TOLERANCE[a.dtype.name]
                np.testing.assert_allclose(wide(a), wide(want), rtol=tol, atol=tol / 10)
            else:
                np.testing.assert_array_equal(a, want)


def test_the_backend_is_small() -> None:
    text = Path(interpreted_backend.__file__).read_text()
    assert len(text.splitlines()) <= 150


def test_values_go_there_and_back() -> None:
    x = lt.asarray(X).to(NAME)
    assert x.device == NAME == x.device.type
    assert type(x._buffer.buffer) is Memory
    y = x * 2 + 1
    assert y.is_pending and y.device == NAME
    np.testing.assert_array_equal(y.cpu().numpy(), X * 2 + 1)
    assert y.cpu().device == "cpu" and (y.to(dtype=lt.float64, device=NAME) + 1).device == NAME
    assert lt.zeros(3, device=NAME).device == NAME
    np.testing.assert_array_equal(np.from_dlpack(y), X * 2 + 1)  # DLPack has no number for it: a copy on the CPU


def test_it_has_the_bits_of_the_cpu() -> None:
    x = np.random.default_rng(0).normal(size=(7, 300)).astype(np.float32)

    def program(t: Any) -> Any:
        return (t * t).sum(axis=1), t.max(axis=0), (t[1:, ::2] - t[:-1, 1::2]).sum(), lt.cumsum(t, axis=1)

    for ours, theirs in zip(program(lt.asarray(x, device=NAME)), program(lt.asarray(x)), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_a_model_is_trained_as_on_the_cpu() -> None:
    def losses(device: str) -> list[float]:
        lt.random.seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        model.to(device)
        opt = optim.Adam(model.parameters(), lr=0.05)
        x, found = lt.asarray(X / 10, device=device), []
        for _ in range(4):
            loss = ((model(x) - 1) ** 2).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            assert loss.device == device
            found.append(float(loss))
        assert all(p.device == device for p in model.parameters())
        return found

    found = losses(NAME)
    assert found[-1] < found[0]
    np.testing.assert_allclose(found, losses("cpu"), rtol=1e-6)


def test_gradients_cross_to_it_and_come_back() -> None:
    x = lt.asarray(X)
    x.requires_grad_()
    (x.to(NAME) ** 2).sum().cpu().backward()
    assert x.grad is not None and x.grad.device == "cpu"
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X)


def test_writes_in_place_and_results_whose_shapes_are_data() -> None:
    x = lt.asarray(X, device=NAME)
    y = x + 0
    x[1:, 2] = -1
    want = X.copy()
    want[1:, 2] = -1
    np.testing.assert_array_equal(x.numpy(), want)
    np.testing.assert_array_equal(y.numpy(), X)
    found = lt.nonzero(x < 0)
    assert [i.device for i in found] == [NAME, NAME]
    np.testing.assert_array_equal(found[0].numpy(), [1, 2])


def test_a_sync_computes_each_device_apart_and_is_repeated() -> None:
    x, there = lt.asarray(X), lt.asarray(X, device=NAME)
    for i in range(4):
        a, b = x + i, there * i
        lt.sync()
        assert not a.is_pending and not b.is_pending
        assert (a.device, b.device) == ("cpu", NAME)
        np.testing.assert_array_equal(b.numpy(), X * i)
    there.device.synchronize()


def test_memory_is_its_own_and_is_given_back() -> None:
    allocator = registry.get(NAME).allocator
    before, host = allocator.statistics(NAME).allocated, lt.memory.allocated()
    x = lt.zeros((64, 64), device=NAME) + 1
    lt.sync()
    assert allocator.statistics(NAME).allocated - before >= 64 * 64 * 4
    assert lt.memory.allocated() == host
    del x
    assert allocator.statistics(NAME).allocated == before


def test_an_index_out_of_range_names_the_line() -> None:
    table, at = lt.asarray(X, device=NAME), lt.asarray(np.array([0, 9]), device=NAME)
    for name, read in (("indexing", lambda: table[at]), ("take", lambda: lt.take(table, at + 0, axis=0))):
        with pytest.raises(lt.IndexOutOfRange, match=rf"^{name}: index 9 is out of bounds for .* 3 .*test_interpreted"):
            read().numpy()


def test_explain_shows_the_kernels() -> None:
    x = lt.asarray(X, device=NAME)
    y = lt.softmax(x * 2, -1) @ lt.asarray(X.T.copy(), device=NAME)
    shown = y.explain()
    assert str(shown).startswith("would run: 2 kernels")
    kernel = shown.kernels[0]
    assert kernel.source().startswith(";") and kernel.ir
    with pytest.raises(lt.NotSupportedError, match="sass of a kernel for 'interpreted'"):
        kernel.sass()
    with lt.no_sync():
        _ = lt.sort(x)


def test_operands_of_two_devices_are_refused() -> None:
    with pytest.raises(lt.DeviceError, match="interp"):
        _ = lt.asarray(X, device=NAME) + lt.asarray(X)


def test_the_registry() -> None:
    with pytest.raises(ValueError, match="'interpreted' is registered already"):
        registry.register(InterpretedBackend())
    with pytest.raises(ValueError, match="'cpu' is one of lazyt's own"):
        registry.unregister("cpu")
    with pytest.raises(
        lt.DeviceError, match=r"device 'tpu': no such device; lazyt runs on 'cpu', .* and 'interpreted'"
    ):
        lt.Device.check("tpu")
    with pytest.raises(lt.DeviceError, match="device 'interpreted:1': no such device; there is 'interpreted'"):
        lt.zeros(3, device="interpreted:1")
    assert {"cpu", NAME} <= {*registry.available()}
    registry.unregister(NAME)
    with pytest.raises(lt.DeviceError, match="device 'interpreted': no such device"):
        lt.Device.check(NAME)
    registry.register(InterpretedBackend())
