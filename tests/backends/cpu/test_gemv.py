"""Products of few rows by a matrix that is stored transposed: with epilogues, in batches, at any width."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu.engine import compile_module, host_features
from lazyt.backends.cpu.flags import switches
from lazyt.backends.cpu.library import gemv
from lazyt.backends.cpu.library.gemm_tile import AT, SIZE, tile_of
from lazyt.backends.cpu.library.gemv_ir import gemv_text
from lazyt.backends.cpu.thread_pool import Program
from lazyt.ir.passes import pack_shared
from lazyt.runtime import plan_cache
from tests.support.plans import forget

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _fused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fused from the first time on, by generated code, and checked."""
    forget()
    for name, value in {"tiers": False, "verify": True, "blas": False}.items():
        monkeypatch.setitem(plan_cache.settings, name, value)
    yield
    forget()


def array(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def library(x: lt.Tensor) -> list[str]:
    return [k.library for k in x.explain().kernels if k.library]


# A tail of every kind along both axes, more than one unit of columns, no rows.
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (1, 1, 32),
        (1, 70, 33),
        (3, 5, 47),
        (8, 1000, 64),
        (2, 9, 1537),
        (1, 4100, 40),
        (0, 9, 64),
        (1, 33, 2),
        (1, 8, 5),
    ],
)
def test_against_float64(m: int, n: int, k: int, dtype: str) -> None:
    a, b = array(m, k, dtype=dtype), array(n, k, dtype=dtype, seed=1)
    z = lt.asarray(a) @ lt.asarray(b).T
    assert library(z) == ["generated dot products"]
    exact, size = a.astype("f8") @ b.T.astype("f8"), np.abs(a).astype("f8") @ np.abs(b.T).astype("f8")
    assert (np.abs(z.numpy() - exact) <= (2 + k**0.5) * np.finfo(dtype).eps * size).all()


@pytest.mark.parametrize(("m", "k"), [(gemv.MOST_ROWS + 1, 64), (2, 31), (1, 0)])
def test_what_is_computed_otherwise(m: int, k: int) -> None:
    a, b = array(m, k), array(20, k, seed=1)
    z = lt.asarray(a) @ lt.asarray(b).T
    assert "generated dot products" not in library(z)
    np.testing.assert_allclose(z.numpy(), a @ b.T, rtol=1e-4, atol=1e-5)


def test_no_other_operand_is_read_so() -> None:
    x, w, square = lt.asarray(array(1, 64)), lt.asarray(array(64, 50)), lt.asarray(array(64, 64))
    numbers = lt.asarray(np.arange(64).reshape(1, 64))
    for z in (
        x @ w,
        lt.asarray(array(64, 2)).T @ square.T,
        numbers @ numbers.T,
        x.astype("float16") @ w.astype("float16"),
    ):
        assert "generated dot products" not in library(z)


def test_bits_do_not_depend_on_rows_threads_or_epilogues() -> None:
    a, b, c = array(8, 300), array(900, 300, seed=1), array(900, seed=2)
    x, w, bias = map(lt.asarray, (a, b, c))
    threads = lt.get_num_threads()
    try:
        lt.set_num_threads(1)
        want = (x @ w.T).numpy()
        for n in (1, 2, 5):
            lt.set_num_threads(n)
            np.testing.assert_array_equal((x @ w.T).numpy(), want)
            for rows in range(1, 8):
                np.testing.assert_array_equal((x[:rows] @ w.T).numpy(), want[:rows])
            np.testing.assert_array_equal((x @ w[:77].T).numpy(), want[:, :77])
            np.testing.assert_array_equal(lt.relu(x @ w.T + bias).numpy(), np.maximum(want + c, 0))
    finally:
        lt.set_num_threads(threads)


EPILOGUES = {
    "row": lambda z, x: lt.gelu(z + x[0]),
    "residual": lambda z, x: x + lt.tanh(z) * 0.5,
    "kept": lambda z, x: (z, lt.relu(z + x)),
    "several outputs": lambda z, x: (lt.relu(z + x), z > 0),
    "cast": lambda z, x: (z + x).astype("float16"),
    "position": lambda z, x: z + lt.arange(48, dtype="float32"),
    "transposed": lambda z, x: lt.relu(z.T + 1),
    "part": lambda z, x: lt.relu(z[:, :20]),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, other = lt.asarray(array(5, 64)), lt.asarray(array(48, 64, seed=1)), lt.asarray(array(5, 48, seed=2))
    found = []
    for on in (True, False):
        monkeypatch.setitem(plan_cache.settings, "epilogues", on)
        forget()
        out = EPILOGUES[name](x @ w.T, other)
        found.append([y.numpy() for y in (out if isinstance(out, tuple) else (out,))])
    for fused, apart in zip(*found, strict=True):
        np.testing.assert_array_equal(fused, apart)


def test_batches_and_strides() -> None:
    a, b = array(2, 3, 2, 40), array(3, 50, 40, seed=1)
    x, w = lt.asarray(a), lt.asarray(b)
    z = x @ w.mT
    assert library(z) == ["generated dot products"]
    np.testing.assert_allclose(z.numpy(), a @ b.swapaxes(1, 2), rtol=1e-4, atol=1e-5)
    # Rows that are further apart than they are long, of both.
    y = x[:, :, ::2, :36] @ w[:, ::3, :36].mT
    np.testing.assert_allclose(y.numpy(), a[:, :, ::2, :36] @ b[:, ::3, :36].swapaxes(1, 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [1, 5, 16, 33, 100])
def test_the_order_of_a_sum(length: int) -> None:
    """Lane l of 16 adds up the products at l, l + 16, ...; the upper half of the lanes is added to the lower one."""
    a, b = array(1, length), array(21, length, seed=1)
    lanes = np.zeros((21, 16), np.float32)
    for start in range(0, length, 16):
        # NOTE: rounded twice, which is once but for one in 10^8.
        products = a[:, start : start + 16].astype("f8") * b[:, start : start + 16]
        own = lanes[:, : products.shape[1]]
        own[:] = own + (products if tile_of(a.dtype, host_features()).fused else products.astype("f4"))
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    np.testing.assert_array_equal((lt.asarray(a) @ lt.asarray(b).T).numpy(), lanes.T)


def test_a_vector_by_a_matrix_of_short_rows() -> None:
    """Where that lies in memory; what a program computes is multiplied as it is added up."""
    a, b = array(300, 20), array(20, seed=1)
    x, v = lt.asarray(a), lt.asarray(b)
    for f in (lambda: x @ v, lambda: v @ x.T, lambda: x.reshape(150, 40).reshape(300, 20) @ v):
        z = f()
        assert library(z) == ["generated dot products"]
        np.testing.assert_allclose(z.numpy(), a @ b, rtol=1e-5, atol=1e-5)
    long, few = lt.asarray(array(300, 65)), lt.asarray(array(15, 20))
    for z in ((x * 2) @ v, long @ lt.asarray(array(65)), few @ v):
        assert library(z) == []


def test_nan_and_infinity_reach_their_elements_alone() -> None:
    a, b = array(2, 64), array(10, 64, seed=1)
    a[1, 3], b[4, 63] = np.nan, np.inf
    z = (lt.asarray(a) @ lt.asarray(b).T).numpy()
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(z, a @ b.T, rtol=1e-4, atol=1e-5)


def test_new_sizes_compile_nothing() -> None:
    w = lt.asarray(array(70, 64))
    (lt.asarray(array(1, 64)) @ w.T).numpy()
    with lt.expect(compiles=0):
        for m in range(2, 9):
            (lt.asarray(array(m, 64)) @ w.T).numpy()


def test_no_matrix_is_turned_for_such_products() -> None:
    assert gemv.MOST_ROWS == pack_shared.FEW


def test_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(switches, "gemv", False)
    assert library(lt.asarray(array(1, 64)) @ lt.asarray(array(20, 64)).T) != ["generated dot products"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize(("m", "n", "k"), [(3, 75, 413), (1, 70, 20), (1, 79, 3)])
def test_every_width_gives_the_same_bits(m: int, n: int, k: int, width: int, dtype: str) -> None:
    a, b = array(m, k, dtype=dtype), array(n, k, dtype=dtype, seed=1)
    tile = dataclasses.replace(tile_of(np.dtype(dtype), host_features(), width), fused="fma" in host_features())
    text, name = gemv_text(np.dtype(dtype), tile)
    module = compile_module(text, [name])
    c = np.empty((m, n), dtype)
    table = [0] * SIZE
    for field, value in {
        "m": m, "n": n, "k": k, "a_row": k, "b_row": k, "c_row": n, "unit_cols": 16, "col_blocks": 5,
        "A": a.ctypes.data, "B": b.ctypes.data, "C": c.ctypes.data,
    }.items():  # fmt: skip
        table[AT[field]] = value
    Program([[module.address(name), 0, 5, 1, 0]], table).run()
    np.testing.assert_array_equal(c, (lt.asarray(a) @ lt.asarray(b).T).numpy())
