"""Fusion and mapping for a GPU: neighbours of moving parts, what is computed again. Above the fake driver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from tests.support.cuda.fake import FakeDriver


def _parts_at(device: str, dtype: str, first: int) -> list[Any]:
    """Parts of one array, read from an index on that is another number in each run, and put together transposed."""
    rng = np.random.default_rng(0)
    x = lt.asarray(rng.standard_normal((4, 2, 3, 40, 16)).astype(np.float32), device=device).astype(dtype)
    w = lt.asarray(rng.standard_normal((4, 2, 3, 40, 16)).astype(np.float32), device=device).astype(dtype)
    x.requires_grad_()
    q, k, v = x[first], x[first + 1], x[(first + 2) % 4]
    y = lt.stack([q * 2, k + 1, v * q], 2).permute(0, 1, 3, 2, 4)
    (y * w[:3].permute(1, 2, 3, 0, 4)).sum().backward()
    return [y.astype("float32").detach().numpy(), x.grad.astype("float32").numpy()]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_parts_that_begin_elsewhere_in_each_run_are_read_by_neighbours(gpu: FakeDriver, dtype: str) -> None:
    for first in (0, 2, 1):
        for a, b in zip(_parts_at("cuda", dtype, first), _parts_at("cpu", dtype, first), strict=True):
            assert a.tobytes() == b.tobytes()
    with lt.device("cuda"):
        x = lt.ones((4, 8, 3, 40, 16), dtype=dtype)
        lt.sync()
        y = lt.concat([x[1], x[2]], 1)
        assert "lt_load" in "".join(k.source() for k in lt.explain(y).kernels)
        z = lt.concat([x[1, :, :, :, 1:], x[2, :, :, :, 1:]], 1)  # rows that begin at no multiple of 16 bytes
        assert float(z.astype("float32").sum()) == 2 * 8 * 3 * 40 * 15


def test_elementary_functions_are_computed_again_where_that_is_faster_than_to_read_them(gpu: FakeDriver) -> None:
    def step(device: str) -> tuple[Any, list[np.ndarray]]:
        rng = np.random.default_rng(0)
        x, w, v = (
            lt.asarray(rng.standard_normal(s).astype(np.float32), device=device).requires_grad_()
            for s in ((32, 48), (48, 64), (64, 16))
        )
        loss = (lt.nn.functional.gelu(x @ w, approximate="tanh") @ v).sum()
        loss.backward()
        plan = lt.memory.plan(loss)
        return plan, [x.grad.numpy(), w.grad.numpy()]

    there, found = step("cuda")
    here, expected = step("cpu")
    # What GELU is computed from, and its result, which a product reads; on the CPU tanh(...) too.
    assert sum(s.shape == (32, 64) for s in there.saved) == 2
    assert sum(s.shape == (32, 64) for s in here.saved) == 3
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
