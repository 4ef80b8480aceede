"""Compressed activations on a GPU: the same bits as on the CPU. Above the fake driver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.ir import dtypes
from lazyt.ir.quantize import quantized
from lazyt.ops.definition import OpDef
from lazyt.tracing.record import record
from tests.support.cuda.fake import FakeDriver


def _packed(b: Any, x: Any, bits: int) -> Any:
    seed, counter = (b.constant(n, dtypes.uint64) for n in (7, 3))
    return quantized(b, x, bits, seed, counter, 1).stored


PACKED = OpDef("packed", _packed)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_arrays_are_packed_into_the_bits_of_the_cpu(gpu: FakeDriver, bits: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, 300)).astype(np.float32)
    found, expected = (
        [t.numpy() for t in record(PACKED, (lt.asarray(x, device=d),), (bits,))] for d in ("cuda", "cpu")
    )
    for a, b in zip(found, expected, strict=True):
        assert a.tobytes() == b.tobytes()


def test_a_step_of_training(gpu: FakeDriver) -> None:
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(s).astype(np.float32) for s in ((16, 64), (64, 64), (64, 64))]
    grads = []
    for device in ("cuda", "cpu"):
        lt.random.seed(0)
        x, w, v = (lt.asarray(a, device=device) for a in values)
        w.requires_grad, v.requires_grad = True, True
        with lt.memory.compress(bits=2):
            y = lt.nn.functional.relu(x @ w) @ v
        y.sum().backward()
        grads.append([p.grad.numpy() for p in (w, v)])
    for a, b in zip(*grads, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_bits_that_differ_among_samples_are_those_of_the_cpu(gpu: FakeDriver) -> None:
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(s).astype(np.float32) for s in ((8, 32), (32, 64), (64, 64))]
    values[0] *= np.exp(2 * rng.standard_normal((8, 1)))
    grads = []
    for device in ("cuda", "cpu"):
        lt.random.seed(0)
        c = lt.memory.compress(bits=2, level="L3", device=device)
        x, w, v = (lt.asarray(a, device=device) for a in values)
        w.requires_grad, v.requires_grad = True, True
        for _ in range(2):
            w.grad = v.grad = None
            with c.samples(range(8)):
                y = lt.nn.functional.relu(x @ w) @ v
            (y * y).sum().backward()
            del y
            lt.sync()
        grads.append([p.grad.numpy() for p in (w, v)])
        with c:
            pass
        assert c._sensitivity.arrays == 2
    for a, b in zip(*grads, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)


def test_arrays_on_another_device_than_the_compression_have_equal_bits(gpu: FakeDriver) -> None:
    c = lt.memory.compress(bits=2, level="L3")
    x = lt.asarray(np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32), device="cuda")
    w = lt.ones((64, 64), device="cuda").requires_grad_()
    for _ in range(2):
        w.grad = None
        with c:
            y = lt.tanh(x @ w)
        y.sum().backward()
        del y
        assert np.isfinite(w.grad.numpy()).all()
    assert c._sensitivity.arrays == 0
