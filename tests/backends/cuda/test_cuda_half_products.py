"""Products of float16 and bfloat16 on a GPU: cuBLAS reads them as they lie, and rounds a result that is a half."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cuda.cupy_driver import CupyDriver
from lazyt.backends.cuda.graph_nodes import Product
from lazyt.ir import dtypes
from lazyt.ir.passes.casts import widens
from lazyt.ir.passes.schedule import MatmulCall
from lazyt.runtime import plan_cache
from tests.support.cuda.fake import FakeDriver

HALVES = {"float16": np.dtype(np.float16), "bfloat16": dtypes.bfloat16}
UNIT = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


@pytest.fixture(autouse=True)
def _fused() -> Iterator[None]:
    with mock.patch.dict(plan_cache.settings, {"tiers": False, "verify": True}):
        yield


def draw(*shape: int, dtype: Any = "float32", seed: int = 0) -> Any:
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    out = lt.asarray(x).astype(dtype).to("cuda:0")
    lt.sync()
    return out


def wide(x: Any) -> np.ndarray:
    return np.asarray(x.astype("float32").numpy())


def launches_of(x: Any) -> list[Any]:
    return list(x.explain().plan.schedule.launches)


@pytest.mark.parametrize("half", HALVES)
def test_halves_are_read_and_written_as_they_lie(half: str, gpu: FakeDriver) -> None:
    x, y = draw(3, 8, 5, dtype=half), draw(3, 9, 5, dtype=half, seed=1)
    want = wide(x) @ np.swapaxes(wide(y), 1, 2)
    before = gpu.launches
    z = x @ lt.swapaxes(y, -1, -2)
    assert z.dtype == HALVES[half]
    (call,) = launches_of(z)
    assert isinstance(call, MatmulCall)
    lt.sync()
    assert gpu.launches == before
    assert {(p.read, p.dtype, p.tf32) for p in gpu.asked} == {(HALVES[half], HALVES[half], False)}
    np.testing.assert_allclose(wide(z), want, rtol=UNIT[half], atol=1e-5)


def test_a_float32_product_of_halves_reads_them(gpu: FakeDriver) -> None:
    x, y = draw(6, 4, dtype="bfloat16"), draw(4, 7, dtype="bfloat16", seed=1)
    lt.set_float32_matmul_precision("medium")
    try:
        z = lt.matmul(x.astype("float32"), y.astype("float32"))
        np.testing.assert_allclose(z.numpy(), wide(x) @ wide(y), rtol=1e-6, atol=1e-6)
    finally:
        lt.set_float32_matmul_precision("highest")
    (p,) = gpu.asked
    assert (p.read, p.dtype, p.tf32) == (dtypes.bfloat16, np.float32, False)


def test_a_result_that_is_read_as_float32_too_is_not_rounded(gpu: FakeDriver) -> None:
    x, y = draw(6, 4, dtype="float16"), draw(4, 7, dtype="float16", seed=1)
    z = lt.matmul(x.astype("float32"), y.astype("float32"))
    h = z.astype("float16")
    want = wide(x) @ wide(y)
    lt.sync()
    np.testing.assert_allclose(z.numpy(), want, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(h.numpy(), z.numpy().astype(np.float16))


def test_two_kinds_of_halves_are_read_as_float32(gpu: FakeDriver) -> None:
    x, y, single = draw(6, 4, dtype="float16"), draw(4, 7, dtype="bfloat16", seed=1), draw(4, 7, seed=1)
    np.testing.assert_allclose((x @ y).numpy(), wide(x) @ wide(y), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose((x @ single).numpy(), wide(x) @ wide(single), rtol=1e-6, atol=1e-6)
    assert {(p.read, p.dtype) for p in gpu.asked} == {(np.dtype(np.float32),) * 2}


def test_a_weight_is_cast_in_memory(gpu: FakeDriver) -> None:
    """cuBLAS rounds nothing that it reads, as generated products do."""
    x, w = draw(6, 4, dtype="float16"), draw(7, 4, seed=1)
    with lt.autocast("cuda"):
        z = x @ w.T
    calls = [c for c in launches_of(z) if isinstance(c, MatmulCall)]
    assert [b.dtype for c in calls for b, _, _ in c.operands] == [np.float16, np.float16]
    np.testing.assert_allclose(wide(z), wide(x) @ wide(w.astype("float16")).T, rtol=UNIT["float16"], atol=1e-5)


def test_products_without_rows_and_of_odd_layouts(gpu: FakeDriver) -> None:
    """No elements, and strides that cuBLAS cannot read."""
    none = draw(0, 4, dtype="float16") @ draw(4, 3, dtype="float16")
    zero = draw(2, 4, dtype="float16")[:, :0] @ draw(4, 3, dtype="float16")[:0]
    x, y = draw(5, 12, dtype="bfloat16"), draw(6, 9, dtype="bfloat16", seed=1)
    odd = x[:, ::2] @ y[:, ::3]
    assert none.numpy().shape == (0, 3)
    np.testing.assert_array_equal(zero.numpy(), np.zeros((2, 3), np.float16))
    np.testing.assert_allclose(wide(odd), wide(x)[:, ::2] @ wide(y)[:, ::3], rtol=UNIT["bfloat16"], atol=1e-5)


def step(device: str, half: str) -> tuple[list[np.ndarray], Any]:
    """A training step under autocast, and its plan."""
    lt.random.seed(3)
    model = lt.nn.Sequential(lt.nn.Linear(6, 10), lt.nn.ReLU(), lt.nn.Linear(10, 3)).to(device)
    x = lt.asarray(np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)).to(device)
    y = lt.asarray(np.arange(8) % 3).to(device)
    opt = lt.optim.SGD(model.parameters(), lr=0.1)
    lt.sync()
    with lt.autocast(device.partition(":")[0], dtype=half):
        loss = lt.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    opt.zero_grad()
    lt.sync()
    return [x.detach().numpy() for x in (loss, *model.parameters())], lt.last_sync().plan  # type: ignore[union-attr]


@pytest.mark.parametrize("half", HALVES)
def test_a_step_under_autocast_has_no_float32_copies(half: str, gpu: FakeDriver) -> None:
    got, plan = step("cuda:0", half)
    products = [p for p in gpu.asked if p.k]
    assert {p.read for p in products} == {HALVES[half]}
    # Two forward, to which a bias is added before it is rounded; three backward.
    assert sorted(str(p.dtype) for p in products) == sorted(["float32"] * 2 + [half] * 3)
    launches = plan.schedule.launches
    written = {n for c in launches for n in c.writes}
    assert not [n for n in written if widens(n)]
    want, _ = step("cpu", half)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=0.02, atol=2e-3)


def test_no_halves(gpu: FakeDriver) -> None:
    """The switch: float32 copies, as before."""
    x, y = draw(8, 5, dtype="float16"), draw(5, 6, dtype="float16", seed=1)
    want = wide(x @ y)
    with mock.patch.dict(plan_cache.settings, {"halves": False}):
        got = wide((x * 1.0) @ y)
    assert [p.read for p in gpu.asked] == [np.float16, np.float32]
    np.testing.assert_array_equal(got, want)


# What is asked of cuBLAS


class Blas:
    """cuBLAS's part of CuPy: constants are their names, and calls are listed."""

    CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_32F_FAST_TF32 = (
        "NT",
        "T",
        32,
        64,
        19,
    )

    def __init__(self, fails: bool = False) -> None:
        self.mode, self.fails = 2, fails
        self.calls: list[tuple[int, tuple[Any, ...]]] = []

    def getMathMode(self, handle: int) -> int:  # noqa: N802 - CuPy's name
        return self.mode

    def setMathMode(self, handle: int, mode: int) -> None:  # noqa: N802 - CuPy's name
        self.mode = mode

    def gemmStridedBatchedEx(self, handle: int, *arguments: Any) -> None:  # noqa: N802 - CuPy's name
        self.calls.append((self.mode, arguments))
        if self.fails:
            raise RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED")


def driver(blas: Blas) -> CupyDriver:
    found = CupyDriver.__new__(CupyDriver)
    kinds = ("CUDA_R_16F", "CUDA_R_16BF", "CUDA_R_32F", "CUDA_R_64F", "CUDA_C_32F", "CUDA_C_64F")
    found.runtime = SimpleNamespace(**{k: k for k in kinds})
    found.cuda = SimpleNamespace(cublas=blas, device=SimpleNamespace(get_cublas_handle=lambda: 5))
    return found


@pytest.mark.parametrize(
    ("read", "dtype", "kinds", "mode"),
    [
        ("float16", "float16", ("CUDA_R_16F", "CUDA_R_16F"), 2 | 16),
        ("bfloat16", "bfloat16", ("CUDA_R_16BF", "CUDA_R_16BF"), 2 | 16),
        ("bfloat16", "float32", ("CUDA_R_16BF", "CUDA_R_32F"), 2),
        ("float32", "float32", ("CUDA_R_32F", "CUDA_R_32F"), 2),
    ],
)
def test_what_is_asked_of_cublas(read: str, dtype: str, kinds: tuple[str, str], mode: int) -> None:
    blas = Blas()
    kind = {**HALVES, "float32": np.dtype(np.float32)}
    product = Product(kind[dtype], kind[read], 2, 3, 4, 100, 200, 300, 4, 3, False, True, 5, 8, 12, 6, False)
    driver(blas).multiply(0, None, product)
    ((used, call),) = blas.calls
    # Parts of a sum are added in float32 where the result is a half; the handle is as it was.
    assert (used, blas.mode) == (mode, 2)
    assert call[:5] == ("T", "NT", 3, 2, 4)
    assert call[6:10] == (200, kinds[0], 3, 12)
    assert call[10:14] == (100, kinds[0], 4, 8)
    assert call[15:] == (300, kinds[1], 3, 6, 5, 32, -1)


def test_a_product_that_fails_leaves_cublas_as_it_was() -> None:
    blas = Blas(fails=True)
    half = HALVES["float16"]
    product = Product(half, half, 2, 3, 4, 100, 200, 300, 4, 3, False, False, 1, 0, 0, 0, False)
    with pytest.raises(RuntimeError, match="NOT_SUPPORTED"):
        driver(blas).multiply(0, None, product)
    assert blas.mode == 2
