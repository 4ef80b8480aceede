"""On a real GPU: skipped where there is none, an error under LAZYT_REQUIRE_CUDA=1."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

import numpy as np
import pytest
import test_ops

import lazyt as lt
from lazyt import planning
from lazyt.backends.cuda import driver
from lazyt.ops.core import OPS
from tests.cuda.programs import PROGRAMS

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def _has_a_gpu() -> None:
    try:
        found = driver.get().count()
    except lt.DeviceError as error:
        if os.environ.get("LAZYT_REQUIRE_CUDA") == "1":
            raise
        pytest.skip(f"no GPU: {error}")
    assert found, "CUDA is here, and no device"


def flat(values: Any) -> list[np.ndarray]:
    if isinstance(values, lt.Tensor):
        return [values.detach().numpy()]
    return [a for v in values for a in flat(v)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_the_bits_of_the_cpu(name: str) -> None:
    with mock.patch.dict(planning.settings, {"tiers": False}):
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


@pytest.mark.parametrize("n", [1, 31, 33, 2047, 2049, 8192, 32769, 65536, 200_001])
def test_rows_of_every_length(n: int) -> None:
    x = np.random.default_rng(n).normal(size=(5, n)).astype(np.float32)
    there, here = lt.asarray(x, device="cuda:0"), lt.asarray(x)
    for f in (
        lambda v: lt.softmax(v, -1),
        lambda v: v.sum(1),
        lambda v: v.sum(0),
        lambda v: v.argmax(1),
        lambda v: v.var(),
    ):
        np.testing.assert_array_equal(f(there).numpy(), f(here).numpy())


@pytest.mark.parametrize("name", test_ops.NAMES)
def test_the_operation_table(name: str) -> None:
    for args, kwargs in OPS[name].samples():  # type: ignore[misc]
        with lt.device("cuda:0"):
            got = test_ops.run(name, args, kwargs)
        for g, w in zip(got, test_ops.expected(name, args, kwargs, len(got) > 1), strict=True):
            assert (g.shape, g.dtype) == (w.shape, w.dtype)
            tolerance = test_ops.TOLERANCE.get(g.dtype.name, 0)
            np.testing.assert_allclose(test_ops.wide(g), test_ops.wide(w), rtol=tolerance, atol=tolerance / 10)


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
    y = lt.broadcast_to(x, (1 << 30, 1 << 20)) + 1
    with pytest.raises(lt.OutOfMemory, match="cuda:0: no memory"):
        y.numpy()
    del y
    assert float(x.sum()) == 0


def test_the_stream_of_the_caller() -> None:
    import cupy

    x = lt.asarray(np.arange(1 << 16, dtype=np.float32), device="cuda:0")
    with cupy.cuda.Stream(non_blocking=True):
        assert float((x * 2).sum()) == float((1 << 16) * ((1 << 16) - 1))
