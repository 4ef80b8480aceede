"""What must hold for every backend, on this one: files, random state, autocast, the current device, another plugin."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn, optim
from lazyt.backends import registry
from lazyt_opencl.backend import BACKEND
from lazyt_opencl.device import NAME, Device

FIRST = f"{NAME}:0"
X = np.arange(12, dtype=np.float32).reshape(3, 4)
EXAMPLE = Path(__file__).parents[2] / "lazyt-example" / "lazyt_example.py"


@pytest.fixture
def example() -> Iterator[str]:
    """The example of a plugin, in this process beside this one; by the devices `example:0` and `example:1`."""
    spec = importlib.util.spec_from_file_location("lazyt_example", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    registry.register(module.ExampleBackend())
    yield "example"
    registry.unregister("example")


def test_two_plugins_in_one_program(example: str) -> None:
    x = lt.asarray(X, device="example:1")
    y = x.to(NAME) * 2
    z = (y.to("example:0") + 1).to(NAME)
    assert (y.device, z.device, z.to("example:1").device) == (FIRST, FIRST, "example:1")
    np.testing.assert_array_equal(z.numpy(), 2 * X + 1)
    with pytest.raises(lt.DeviceError, match="example:1"):
        _ = x + y


def test_gradients_go_through_both_plugins(example: str) -> None:
    x = lt.asarray(X, device=example).requires_grad_()
    ((x.to(NAME) ** 2).to("example:1") * 3).sum().backward()
    assert x.grad is not None and x.grad.device == "example:0"
    np.testing.assert_array_equal(x.grad.numpy(), 6 * X)


def test_a_training_run_is_that_of_the_cpu_and_of_the_other_plugin(example: str) -> None:
    def losses(device: str) -> list[float]:
        lt.random.seed(5)
        model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 3), nn.LayerNorm(3))
        model.to(device)
        opt, found = optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
        at = lt.asarray(np.array([[0, 3], [3, 6]]), device=device)
        for _ in range(3):
            loss = ((model(at) - 0.5) ** 2).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            found.append(loss.item())
        return found

    ours = losses(NAME)
    np.testing.assert_allclose(ours, losses("cpu"), rtol=1e-5)
    np.testing.assert_allclose(ours, losses(example), rtol=1e-5)


def test_values_are_saved_here_and_loaded_elsewhere(tmp_path: Path) -> None:
    model = nn.Linear(4, 2).opencl()  # type: ignore[attr-defined]
    lt.save({"x": lt.asarray(X, device=NAME) * 2, "model": model.state_dict()}, tmp_path / "here.lt")
    elsewhere = lt.load(tmp_path / "here.lt", map_location="cpu")
    assert elsewhere["x"].device == "cpu" and elsewhere["model"]["weight"].device == "cpu"
    np.testing.assert_array_equal(elsewhere["x"].numpy(), 2 * X)
    lt.save({"x": lt.asarray(X)}, tmp_path / "cpu.lt")
    here = lt.load(tmp_path / "cpu.lt", map_location=NAME)
    assert here["x"].device == FIRST
    np.testing.assert_array_equal(here["x"].numpy(), X)


def test_the_random_state_is_saved_and_put_back() -> None:
    opencls: Any = lt.opencl  # type: ignore[attr-defined]
    opencls.manual_seed(3)
    assert opencls.initial_seed() == 3
    state = opencls.get_rng_state()
    with lt.device(NAME):
        first = lt.random.normal(size=5).numpy()
        opencls.set_rng_state(state)
        np.testing.assert_array_equal(lt.random.normal(size=5).numpy(), first)


def test_dropout_has_the_cpus_masks() -> None:
    found = {}
    for device in ("cpu", NAME):
        lt.random.seed(2)
        found[device] = nn.functional.dropout(lt.ones((20, 30), device=device), 0.4).numpy()
    np.testing.assert_array_equal(found[NAME], found["cpu"])


def test_autocast() -> None:
    x = lt.asarray(X[:, :3], device=NAME)
    with lt.autocast(NAME):
        y = x @ x
        assert y.dtype == lt.float16 and lt.exp(y).dtype == lt.float32
    assert (x @ x).dtype == lt.float32
    np.testing.assert_array_equal(y.astype("float32").numpy(), X[:, :3] @ X[:, :3])


def test_the_current_device_is_restored_after_an_exception() -> None:
    opencls: Any = lt.opencl  # type: ignore[attr-defined]
    with pytest.raises(KeyError), opencls.device(0):
        raise KeyError("of the block")
    assert opencls.current_device() == 0
    with pytest.raises(lt.DeviceError, match="no such device"):
        opencls.set_device(99)
    with pytest.raises(lt.ShapeError), lt.device(NAME):
        lt.ones((2, 3)) @ lt.ones((2, 3))
    assert lt.ones(1).device == "cpu"


def test_memory_that_is_held_and_not_used_goes_back(opencl: Device) -> None:
    opencls: Any = lt.opencl  # type: ignore[attr-defined]
    x = lt.ones(1 << 18, device=NAME) + 1
    lt.sync()
    del x
    assert opencls.memory_reserved() > opencls.memory_allocated()
    opencls.synchronize()
    opencls.empty_cache()
    assert opencls.memory_reserved() <= opencls.memory_allocated() + (1 << 18)


def test_it_is_removed_and_loaded_again() -> None:
    x = lt.asarray(X, device=NAME) + 1
    lt.backends.unregister(NAME)
    try:
        with pytest.raises(lt.DeviceError, match="its backend was removed"):
            x.numpy()
    finally:
        registry.register(BACKEND)
    np.testing.assert_array_equal((lt.asarray(X, device=NAME) + 1).numpy(), X + 1)


def test_what_the_driver_reports_is_an_error_of_the_device(opencl: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    x = lt.asarray(X, device=NAME) + 0
    lt.sync()
    y = lt.cumsum(x, 0) + x
    cl = opencl.cl

    def fail(*given: Any) -> Any:
        raise cl.RuntimeError("out of resources")

    with monkeypatch.context() as patch:
        patch.setattr(opencl, "note", fail)
        with pytest.raises(lt.DeviceError, match=r"opencl:0 \(.*\): out of resources \(of this sync, or of work"):
            y.numpy()
    assert y.is_pending
    np.testing.assert_array_equal(y.numpy(), np.cumsum(X, 0) + X)
