"""Updates take the memory of what they replace."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn, optim
from lazyt.backends import registry
from lazyt_opencl.device import NAME, Device

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def address(x: Any) -> int:
    return x._buffer.buffer.address  # type: ignore[no-any-return]


def test_what_nobody_holds_is_overwritten() -> None:
    x = lt.asarray(X, device=NAME) + 0
    lt.sync()
    for i in range(1, 4):
        before = address(x)
        x += 1
        lt.sync()
        assert lt.last_sync().in_place == 1 and address(x) == before
        np.testing.assert_array_equal(x.numpy(), X + i)


def test_what_somebody_holds_stays() -> None:
    x = lt.asarray(X, device=NAME) + 0
    held = x.detach().clone()
    lt.sync()
    y = x
    y = y + 1
    lt.sync()
    assert lt.last_sync().in_place == 0
    np.testing.assert_array_equal(x.numpy(), X)
    np.testing.assert_array_equal(y.numpy(), X + 1)
    np.testing.assert_array_equal(held.numpy(), X)


def test_a_write_into_a_part_copies_nothing() -> None:
    x = lt.asarray(X, device=NAME) + 0
    lt.sync()
    want = X.copy()
    for i in range(3):
        x[i] = -i - 1.0
        want[i] = -i - 1
        lt.sync()
        assert lt.last_sync().in_place == 1
    np.testing.assert_array_equal(x.numpy(), want)


def test_training_needs_no_new_memory_for_its_parameters() -> None:
    lt.random.seed(0)
    model = nn.Linear(64, 64)
    model.to(NAME)
    opt = optim.Adam(model.parameters(), lr=0.01)
    x = lt.ones((4, 64), device=NAME)
    for _ in range(4):
        loss = (model(x) ** 2).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        loss.item()
    assert lt.last_sync().in_place >= 5  # of two parameters, and two moments of each
    before = address(model.weight)
    (model(x) ** 2).mean().backward()
    opt.step()
    opt.zero_grad()
    lt.sync()
    assert address(model.weight) == before


def test_a_plan_that_checks_indices_overwrites_nothing() -> None:
    x, at = lt.asarray(X, device=NAME) + 0, lt.asarray(np.array([1, 7]), device=NAME)
    lt.sync()
    y = lt.take(x, at, axis=0)
    x += 1
    with pytest.raises(lt.IndexOutOfRange, match="index 7"):
        y.numpy()
    np.testing.assert_array_equal(x.numpy(), X + 1)


def test_what_the_host_cannot_compute_comes_before_what_is_overwritten() -> None:
    x = lt.asarray(np.eye(3), device=NAME) + 0
    lt.sync()
    inverse = lt.linalg.inv(lt.zeros((3, 3), device=NAME))
    x += 1
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        inverse.numpy()
    np.testing.assert_array_equal(x.numpy(), np.eye(3) + 1)


@pytest.mark.parametrize("reads_elsewhere", [True, False])
def test_another_streams_reading_comes_before_an_update(opencl: Device, reads_elsewhere: bool) -> None:
    """Whichever of both streams the memory is of."""
    streams: Any = lt.opencl  # type: ignore[attr-defined]
    x = lt.asarray(X, device=NAME) + 0
    lt.sync()
    gate, other, here = opencl.cl.UserEvent(opencl.context), streams.Stream(), streams.current_stream()
    with streams.stream(other if reads_elsewhere else here):
        opencl.current().after([gate])
        read = x * 2
        lt.sync()
    with streams.stream(here if reads_elsewhere else other):
        x += 1
        lt.sync()
        assert lt.last_sync().in_place == 1 and not streams.current_stream().query()
    gate.set_status(opencl.cl.command_execution_status.COMPLETE)
    np.testing.assert_array_equal(read.numpy(), X * 2)
    np.testing.assert_array_equal(x.numpy(), X + 1)


def test_what_cannot_be_enqueued_is_lost_and_says_so(opencl: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    x = lt.asarray(X, device=NAME) + 0
    lt.sync()
    x += 1

    class Broken:
        """OpenCL whose queue takes no kernels."""

        def __getattr__(self, name: str) -> Any:
            return getattr(cl, name)

        def enqueue_nd_range_kernel(self, *given: Any) -> Any:
            raise cl.RuntimeError("out of resources")

    cl = opencl.cl
    with monkeypatch.context() as patch:
        patch.setattr(opencl, "cl", Broken())
        with pytest.raises(lt.DeviceError, match="opencl:0: out of resources; what was to be overwritten is lost"):
            lt.sync()
    with pytest.raises(
        lt.DeviceError, match="what was to be overwritten is lost, because its kernels were not enqueued"
    ):
        x.numpy()


def test_memory_stays_as_it_was() -> None:
    allocator = registry.get(NAME).allocator
    x = lt.asarray(np.zeros(1 << 16), device=NAME) + 0
    lt.sync()
    gc.collect()
    before = allocator.statistics(NAME).allocated
    for _ in range(3):
        x += 1
        lt.sync()
    assert allocator.statistics(NAME).allocated <= before
