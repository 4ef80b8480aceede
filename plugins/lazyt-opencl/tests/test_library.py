"""Scatters, scans, sorts, searches and bits on the device: the CPU's bits, and nothing is done by the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt_opencl.device import NAME, Device

NUMBERS = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "uint64", "int64"]


def values(dtype: str, shape: Any, seed: int = 0) -> np.ndarray:
    """Numbers with many duplicates; floats also with NaN, infinities and both zeros."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-50, 50, shape)
    if dtype.startswith(("u", "b")) and dtype != "bfloat16":
        x = np.abs(x)
    if "float" not in dtype:
        return x.astype(dtype)
    f = x / 4
    for special in (np.nan, np.inf, -np.inf, -0.0, 0.0):
        f = np.where(rng.random(shape) < 0.05, special, f)
    return lt.asarray(f).astype(dtype).numpy()


def check(opencl: Device, program: Any, *arrays: np.ndarray) -> None:
    """The device's results are the CPU's, to the bit, and the host computes nothing."""
    before = sum(opencl.fallbacks.values())
    ours = program(*(lt.asarray(a, device=NAME) for a in arrays))
    theirs = program(*map(lt.asarray, arrays))
    lt.sync()
    for found, want in zip(ours, theirs, strict=True):
        a, b = found.numpy(), want.numpy()
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if a.dtype.kind not in "biu":
            nan = b != b
            np.testing.assert_array_equal(a != a, nan)
            a, b = np.where(nan, 0, a).astype(a.dtype), np.where(nan, 0, b).astype(b.dtype)
        assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
    assert sum(opencl.fallbacks.values()) == before


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
def test_sorts(opencl: Device, dtype: str) -> None:
    def program(*several: Any) -> list[Any]:
        found = []
        for x in several:
            for down in (False, True):
                found += [lt.sort(x, axis=0, descending=down), lt.argsort(x, axis=-1, descending=down)]
        return found

    check(opencl, program, *(values(dtype, (3, n, 2)) for n in (1, 16, 17, 33)), values(dtype, (2, 300)))


def test_sorts_of_long_rows_and_of_nothing(opencl: Device) -> None:
    x = np.random.default_rng(0).normal(size=5000).astype(np.float32)
    check(opencl, lambda x, e: [lt.sort(x), lt.argsort(x), lt.sort(e, axis=1)], x, np.zeros((0, 3), np.float32))


def test_the_greatest(opencl: Device) -> None:
    def program(x: Any) -> list[Any]:
        return [*lt.topk(x, 3), *lt.topk(x, 2, axis=0, largest=False)]

    check(opencl, program, values("float32", (5, 40)))


@pytest.mark.parametrize("dtype", [*NUMBERS, "complex64"])
def test_scans(opencl: Device, dtype: str) -> None:
    def program(*several: Any) -> list[Any]:
        found = []
        for x in several:
            found += [lt.cumsum(x, axis=a) for a in range(x.ndim)]
            found += [lt.cumprod(x, axis=0)] if "complex" not in dtype else []
        return found

    rng, shapes = np.random.default_rng(0), [(3, 40, 2), (17,), (1, 1), (16, 3), (0, 4)]
    floats = "float" in dtype or "complex" in dtype
    draw = [rng.normal(size=s) if floats else rng.integers(0, 9, s) for s in shapes]
    check(opencl, program, *(lt.asarray(x).astype(dtype).numpy() for x in draw))


def test_scans_of_several_blocks(opencl: Device) -> None:
    x = np.random.default_rng(0).normal(size=(2, 20_000)).astype(np.float32)
    check(opencl, lambda x, n: [lt.cumsum(x, axis=1), lt.cumsum(x.T, axis=0), lt.cumsum(n)], x, np.arange(16_400))


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool", "complex64"])
def test_scatters(opencl: Device, dtype: str) -> None:
    at = np.random.default_rng(0).integers(0, 7, 40)

    def program(x: Any, v: Any) -> list[Any]:
        y = x + 0 if dtype != "bool" else x | False
        y[at] = v
        found = [y]
        if dtype != "bool":
            found.append(lt.index_add(x, 0, lt.asarray(at, device=x.device), v))
        if "complex" not in dtype:
            z = x.reshape(-1) | False if dtype == "bool" else x.reshape(-1) + 0
            z[at] = 1
            found.append(z)
        return found

    def draw(shape: Any, seed: int) -> np.ndarray:
        found = values("float32" if dtype == "complex64" else dtype, shape, seed)
        return found.astype(dtype) if dtype in ("complex64", "bool") else found

    check(opencl, program, np.nan_to_num(draw((7, 3), 1)), draw((40, 3), 2))


def test_the_gradient_of_an_embedding(opencl: Device) -> None:
    at = np.random.default_rng(0).integers(0, 50, (8, 30))

    def program(w: Any) -> list[Any]:
        w.requires_grad_()
        (w[lt.asarray(at, device=w.device)] * 0.3).sum().backward()
        return [w.grad]

    check(opencl, program, np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8"])
def test_searches(opencl: Device, dtype: str) -> None:
    def program(x: Any, v: Any) -> list[Any]:
        return [lt.searchsorted(x, v), lt.searchsorted(x, v, side="right"), lt.isin(v, x)]

    x = lt.sort(lt.asarray(values(dtype, 33))).numpy()
    check(opencl, program, x, values(dtype, (4, 9), 3))


def test_bits(opencl: Device) -> None:
    rng = np.random.default_rng(0)

    def program(x: Any, b: Any) -> list[Any]:
        found = [lt.packbits(b, axis=-1, bitorder=o) for o in ("big", "little")]
        return found + [lt.unpackbits(x, axis=-1, bitorder=o) for o in ("big", "little")]

    check(opencl, program, rng.integers(0, 256, (3, 2)).astype(np.uint8), rng.random((3, 16)) < 0.5)


def test_explain_says_that_they_are_generated(opencl: Device) -> None:
    x = lt.asarray(values("float32", (4, 9)), device=NAME)
    shown = lt.sort(x * 2, axis=1).explain()
    assert "generated merge sort" in str(shown) and "host" not in str(shown)
    assert "__kernel void lazyt_merge_sort_f32" in shown.kernels[-1].source()
