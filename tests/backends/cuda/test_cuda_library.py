"""Sorts, scans, scatters, linear algebra and transforms on a GPU: the table and the kernels, above the fake driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cuda import device as devices, engine
from lazyt.backends.cuda.library import registry, scatter
from lazyt.errors import DeviceError
from lazyt.ir import dtypes, library_calls
from lazyt.ir.attention import ATTENTION
from lazyt.tracing.record import record
from lazyt.utils.checkpoint import AFTER
from tests.support.cuda.fake import FakeDriver


def test_every_opaque_function_has_a_gpu_form_or_a_reason() -> None:
    """One list for both backends: what the CPU does, the GPU does, or says that it asks the host."""
    assert not set(registry.FUNCTIONS) & set(registry.ON_HOST)
    assert set(registry.FUNCTIONS) | set(registry.ON_HOST) == set(library_calls.FUNCTIONS) - library_calls.OF_PASSES


RNG = np.random.default_rng(1)
X = RNG.normal(size=(5, 40)).astype(np.float32)
SQUARE = (X[:, :5] @ X[:, :5].T + 9 * np.eye(5)).astype(np.float32)
Z = (X + 1j * X[::-1]).astype(np.complex64)


def calls() -> dict[str, Callable[[Any], Any]]:
    """By opaque function: a program that calls it, of a function that puts arrays on a device."""
    found: dict[str, Callable[[Any], Any]] = {
        "sort": lambda on: (lt.sort(on(X), axis=0), lt.sort(on(X), descending=True)),
        "argsort": lambda on: (lt.argsort(on(X), axis=1), lt.argsort(on(np.round(X)), descending=True)),
        "topk": lambda on: lt.topk(on(X), 3),
        "cumsum": lambda on: (lt.cumsum(on(X), axis=1), lt.cumsum(on(np.arange(9)))),
        "cumprod": lambda on: lt.cumprod(on(X), axis=0),
        "searchsorted": lambda on: lt.searchsorted(lt.sort(on(X[0])), on(X[1])),
        "packbits": lambda on: lt.packbits(on(X > 0), axis=1, bitorder="little"),
        "unpackbits": lambda on: lt.unpackbits(on(np.arange(40, dtype=np.uint8))),
        "frexp": lambda on: lt.frexp(on(X)),
        "isin": lambda on: lt.isin(on(np.arange(9)), on(np.array([3, 5]))),
        "linalg_inv": lambda on: lt.linalg.inv(on(SQUARE)),
        "linalg_cholesky": lambda on: lt.linalg.cholesky(on(SQUARE)),
        "linalg_det": lambda on: lt.linalg.det(on(SQUARE)),
        "linalg_slogdet": lambda on: lt.linalg.slogdet(on(SQUARE)),
        "linalg_solve": lambda on: lt.linalg.solve(on(SQUARE), on(X)),
        "linalg_eigh": lambda on: lt.linalg.eigh(on(SQUARE)),
        "linalg_eigvalsh": lambda on: lt.linalg.eigvalsh(on(SQUARE)),
        "linalg_qr": lambda on: lt.linalg.qr(on(X)),
        "linalg_svd": lambda on: lt.linalg.svd(on(X), full_matrices=False),
        "linalg_svdvals": lambda on: lt.linalg.svdvals(on(X)),
        "linalg_matrix_rank": lambda on: lt.linalg.matrix_rank(on(X)),
    }
    found["after"] = lambda on: record(AFTER, (on(X), on(X) + 1, on(SQUARE)))
    found |= {f"fft_{n}": lambda on, n=n: getattr(lt.fft, n)(on(X)) for n in ("fft", "ifft", "rfft", "ihfft")}
    found |= {f"fft_{n}": lambda on, n=n: getattr(lt.fft, n)(on(Z)) for n in ("irfft", "hfft")}
    found |= {f"fft_{n}": lambda on, n=n: getattr(lt.fft, n)(on(Z)) for n in ("fftn", "ifftn", "irfftn")}
    found["fft_rfftn"] = lambda on: lt.fft.rfftn(on(X))
    names = ("log10", "log1p", "tan", "sinh", "asin", "acos", "atan", "asinh", "acosh", "atanh")
    for n in ("exp", "log", "sqrt", "sin", "cos", "cosh", *names):
        found[f"complex_{n}"] = lambda on, n=n: getattr(lt, n)(on(Z))
    found["complex_pow"] = lambda on: on(Z) ** on(Z)
    return found


CALLS = calls()


def flat(values: Any) -> list[np.ndarray]:
    return [values.numpy()] if isinstance(values, lt.Tensor) else [a for v in values for a in flat(v)]


@pytest.mark.parametrize("name", CALLS)
def test_library_calls_stay_on_the_device(name: str, gpu: FakeDriver) -> None:
    before, calls = devices.device("cuda:0").fallbacks, gpu.library_calls
    got = flat(CALLS[name](lambda x: lt.tensor(x, device="cuda:0")))
    want = flat(CALLS[name](lt.tensor))
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-5)
    assert gpu.library_calls > calls
    assert devices.device("cuda:0").fallbacks == before


def test_calls_cover_the_table() -> None:
    # Attention is asked of CuPy where cuDNN refuses it: tests/backends/cuda/test_cuda_cudnn.py.
    # Kernels of users have tests of their own: tests/library/test_native.py.
    assert set(CALLS) == set(registry.FUNCTIONS) - ATTENTION - {"operation_on_device"}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_in_library_calls(dtype: str, gpu: FakeDriver) -> None:
    for f in (lambda x: lt.sort(x), lambda x: lt.argsort(x), lambda x: lt.cumsum(x, axis=1)):
        x = lt.tensor(X).astype(dtype)
        got, want = f(x.to("cuda:0")).numpy(), f(x).numpy()
        np.testing.assert_array_equal(got.view(np.uint16) if got.itemsize == 2 else got,
                                      want.view(np.uint16) if want.itemsize == 2 else want)  # fmt: skip


def test_a_permutation_is_the_cpus(gpu: FakeDriver) -> None:
    lt.random.seed(3)
    want = lt.random.permutation(100).numpy()
    lt.random.seed(3)
    with lt.device("cuda:0"):
        got = lt.random.permutation(100)
        assert got.device == "cuda:0"
        np.testing.assert_array_equal(got.numpy(), want)


def test_what_the_host_does_is_counted_and_named(gpu: FakeDriver) -> None:
    where = devices.device("cuda:0")
    before = where.fallbacks
    y = lt.linalg.pinv(lt.tensor(X, device="cuda:0"))
    assert "NumPy linalg.pinv, on the host" in str(lt.explain(y))
    y.numpy()
    assert where.fallbacks == before + 1
    assert "CuPy sort" in str(lt.explain(lt.sort(lt.tensor(X, device="cuda:0")))).replace("argsort", "sort")


AT = np.array([3, 0, 3, 7, 7, 3, 1, 19, 3])


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int64", "bool", "complex64", "uint8"])
@pytest.mark.parametrize("mode", ["set", "add"])
def test_scatters_have_the_bits_of_the_cpu(
    mode: str, dtype: str, counted: bool, gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dtype == "bool" and mode == "add":
        pytest.skip("bools are not added")
    monkeypatch.setattr(scatter, "COUNTED", scatter.COUNTED if counted else 0)
    before, calls = devices.device("cuda:0").fallbacks, gpu.library_calls
    base = lt.tensor(np.arange(20 * 6).reshape(20, 6) % 2).astype(dtype)
    update = lt.tensor(RNG.normal(size=(9, 6)) * 4).astype("float32").astype("float32" if dtype == "uint8" else dtype)
    update = abs(update).astype(dtype) if dtype == "uint8" else update

    def program(device: str) -> list[np.ndarray]:
        x, v, at = base.to(device), update.to(device), lt.tensor(AT, device=device)
        rows, ones = x + 0 if dtype != "bool" else x | False, x + 0 if dtype != "bool" else x | False
        if mode == "set":
            rows[at] = v
            ones[at] = 1
        else:
            rows = lt.index_add(rows, 0, at, v)
        return [rows.numpy(), ones.numpy()]

    for g, w in zip(program("cuda:0"), program("cpu"), strict=True):
        np.testing.assert_array_equal(g.view(np.uint8), w.view(np.uint8))
    assert devices.device("cuda:0").fallbacks == before
    assert (gpu.library_calls > calls) == (not counted)


def test_an_embeddings_gradient_stays_on_the_device(gpu: FakeDriver) -> None:
    def program(device: str) -> np.ndarray:
        w = lt.tensor(np.ones((20, 6), np.float32), device=device, requires_grad=True)
        (w[lt.tensor(AT, device=device)] * 3.0).sum().backward()
        return w.grad.numpy()

    before = devices.device("cuda:0").fallbacks
    np.testing.assert_array_equal(program("cuda:0"), program("cpu"))
    assert devices.device("cuda:0").fallbacks == before


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "bf16", "i8", "u1"])
def test_scatter_programs_compile(dtype: str) -> None:
    try:
        engine.nvrtc()
    except DeviceError as error:
        pytest.skip(f"kernels are compiled by NVRTC: {error}")
    kind = dtypes.bfloat16 if dtype == "bf16" else np.dtype(dtype)
    for mode, filled, single in (("add", True, False), ("set", False, True)):
        found = engine.compile_program(scatter.program(kind, mode, filled, single), 90)
        assert set(found.resources) == set(scatter.NAMES)
        assert not any(r.spill_stores for r in found.resources.values())


KEYS = np.random.default_rng(2).integers(0, 9, (6, 50))


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "float32", "float16", "bfloat16", "complex64"])
@pytest.mark.parametrize("shape", [(6, 50), (300,), (0,), (3, 0)])
def test_what_is_found_in_a_gpus_tensor_is_found_there(dtype: str, shape: tuple[int, ...], gpu: FakeDriver) -> None:
    """CuPy sorts and counts; nothing of the values comes to the host."""
    x = KEYS.ravel()[: int(np.prod(shape))].reshape(shape)
    here = lt.tensor(x if dtype != "bool" else x > 4).astype(dtype)
    if dtype.startswith("float") and x.size:
        # Of several NaN, each by itself, NumPy does not say which is which.
        here = lt.where(lt.arange(x.size).reshape(shape) == 7, float("nan"), here).astype(dtype)
    there = here.to("cuda:0")
    lt.sync()
    functions = [
        lt.unique_values, lt.unique_counts, lt.unique_inverse, lt.unique_all, lt.nonzero, lt.argwhere, lt.flatnonzero,
        lambda v: lt.unique(v), lambda v: lt.unique(v, return_index=True, return_counts=True),
        lambda v: lt.unique(v, return_inverse=True), lambda v: lt.unique(v, equal_nan=False),
    ]  # fmt: skip
    for f in functions:
        reads = gpu.reads
        got = f(there)
        assert gpu.reads == reads, "a value was copied to the host"
        for g, w in zip(_each(got), _each(f(here)), strict=True):
            assert (g.dtype, g.shape, g.device) == (w.dtype, w.shape, "cuda:0")
            g, w = (v.astype("float32") if v.dtype == lt.bfloat16 else v for v in (g, w))
            np.testing.assert_array_equal(g.numpy(), w.numpy())
        assert type(got) is type(f(here))


def _each(values: Any) -> list[Any]:
    return [values] if isinstance(values, lt.Tensor) else list(values)


@pytest.mark.parametrize("equal_nan", [True, False])
def test_several_nan(equal_nan: bool, gpu: FakeDriver) -> None:
    x = np.array([2, np.nan, 1, np.nan, 2, -0.0, 0.0], np.float32)
    got = lt.unique(lt.tensor(x, device="cuda:0"), return_counts=True, equal_nan=equal_nan)
    for g, w in zip(got, np.unique(x, return_counts=True, equal_nan=equal_nan), strict=True):
        np.testing.assert_array_equal(g.numpy(), w)


def test_a_mask_chooses_on_the_device(gpu: FakeDriver) -> None:
    x = lt.tensor(X, device="cuda:0")
    with lt.expect(syncs=1):
        y = x[x > 0.5]
    np.testing.assert_array_equal(y.numpy(), X[X > 0.5])
    z = x[:, lt.asarray([True, False] * 20, device="cuda:0")]
    np.testing.assert_array_equal(z.numpy(), X[:, ::2])
    with pytest.raises(lt.IndexOutOfRange, match="boolean index did not match"):
        x[lt.asarray([True] * 3, device="cuda:0")]


def test_a_wrong_index_below_what_is_looked_through(gpu: FakeDriver) -> None:
    x = lt.tensor(X, device="cuda:0")[lt.asarray([1, 99], device="cuda:0")]
    with pytest.raises(lt.IndexOutOfRange, match="99"):
        lt.unique(x)


def test_products_take_the_precision_that_is_set(gpu: FakeDriver) -> None:
    a = lt.tensor(X, device="cuda:0")
    assert lt.get_float32_matmul_precision() == "highest"
    try:
        for precision in ("high", "medium", "highest"):
            lt.set_float32_matmul_precision(precision)
            y = a @ a.T
            assert ("tf32" in str(lt.explain(y))) == (precision != "highest")
            y.numpy()
            assert gpu.tf32 == (precision != "highest")
        lt.set_float32_matmul_precision("high")
        (a.astype("float64") @ a.T.astype("float64")).numpy()
        assert not gpu.tf32, "float32 alone"
    finally:
        lt.set_float32_matmul_precision("highest")
    with pytest.raises(ValueError, match=r"set_float32_matmul_precision: 'best' is none of 'highest', 'high'"):
        lt.set_float32_matmul_precision("best")


def test_batches_are_few_calls(gpu: FakeDriver) -> None:
    """Axes that both operands walk as one are one; of others the longest is in the call."""
    q = lt.tensor(RNG.normal(size=(3, 7, 5, 2, 4)).astype(np.float32), device="cuda:0")
    heads = lt.permute_dims(q, (0, 3, 1, 2, 4))[:, :, :, 0]  # (3, 2, 7, 4), where no two axes go on as one
    flat = lt.tensor(RNG.normal(size=(3, 2, 4, 6)).astype(np.float32), device="cuda:0")
    for x, y, most in ((heads, flat, 2), (flat, lt.swapaxes(flat, -1, -2), 1)):
        want = x.cpu().numpy() @ y.cpu().numpy()
        lt.sync()
        before = gpu.products
        np.testing.assert_allclose((x @ y).numpy(), want, rtol=1e-5)
        assert 0 < gpu.products - before <= most


def test_products_that_cublas_cannot_read_stay_on_the_device(gpu: FakeDriver) -> None:
    where = devices.device("cuda:0")
    before, calls = where.fallbacks, gpu.library_calls
    n = lt.tensor(np.arange(12).reshape(3, 4), device="cuda:0")
    np.testing.assert_array_equal((n @ n.T).numpy(), np.arange(12).reshape(3, 4) @ np.arange(12).reshape(3, 4).T)
    assert (where.fallbacks, gpu.library_calls) == (before, calls + 1)


def test_the_machine_code_of_a_kernel(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    try:
        engine.nvrtc()
    except DeviceError as error:
        pytest.skip(f"kernels are compiled by NVRTC: {error}")
    y = lt.exp(lt.tensor(X, device="cuda:0"))
    (kernel,) = lt.explain(y).kernels
    monkeypatch.setattr(engine, "_disassembler", lambda: "")
    with pytest.raises(lt.NotSupportedError, match="because nvdisasm is not here"):
        kernel.sass()
    tool = tmp_path / "nvdisasm"
    tool.write_text('#!/bin/sh\nhead -c 4 "$2" | tail -c 3\n')
    tool.chmod(0o700)
    monkeypatch.setattr(engine, "_disassembler", lambda: str(tool))
    assert kernel.sass() == "ELF"
    del y
    lt.sync()
    z = lt.exp(lt.tensor(X))
    (kernel,) = lt.explain(z).kernels
    with pytest.raises(lt.NotSupportedError, match="sass of a kernel for 'cpu'"):
        kernel.sass()
