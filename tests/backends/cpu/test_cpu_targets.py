"""Code for processors that this one is not: the CPU backend's kernels and runtime, compiled for other targets.

That code cannot run here; what is checked is that LLVM generates it and that it calls only what a C library has.
"""

from __future__ import annotations

import dataclasses
import itertools

import llvmlite.binding as llvm
import numpy as np
import pytest

from lazyt.backends.cpu import engine, thread_platform_ir, thread_pool, thread_pool_ir, time_tiles_ir
from lazyt.backends.cpu.codegen import routine
from lazyt.backends.cpu.codegen.emit import emit
from lazyt.backends.cpu.library import (
    attention_gradient_ir,
    attention_ir,
    attention_tile,
    gemm_ir,
    gemm_tile,
    gemv_ir,
    scan,
    scan_complex,
    scatter,
    small_matrices,
)
from tests.support.kernel_builder import several_sums
from tests.support.kernel_cases import cases_of_suite

TARGETS = {
    "x86-64": ("x86_64-unknown-linux-gnu", "x86-64", ""),
    "arm64": ("aarch64-unknown-linux-gnu", "generic", "+neon"),
    "apple": ("arm64-apple-darwin", "apple-m1", "+neon"),
    "riscv64": ("riscv64-unknown-linux-gnu", "generic-rv64", "+m,+a,+f,+d,+c"),
}
# What code may call: what every POSIX system's C library has.
FROM_C = {"fma", "fmaf", "memset", "memcpy", "memmove", "sched_yield"}


# One target is tried each time; the others are as different from it as they are from this host, and are slow.
FIRST = "arm64"


@pytest.fixture(params=[FIRST, *(pytest.param(t, marks=pytest.mark.slow) for t in TARGETS if t != FIRST)])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> engine.Host:
    """Another host, for which everything is written while the test runs."""
    engine.host()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    other = engine.Host(*TARGETS[request.param])
    monkeypatch.setattr(engine, "host", lambda: other)
    return other


def needed(host: engine.Host, text: str) -> set[str]:
    """The symbols that the object code of `text` takes from elsewhere (none are told for Apple's format)."""
    symbols = engine.elf_symbols(host.machine.emit_object(host.parse(text, ["a test's module"])))
    return symbols[1] if symbols else set()


def test_kernels(target: engine.Host) -> None:
    for name, cases in cases_of_suite().items():
        for case in cases[:: -(-len(cases) // 5)]:
            others = needed(target, emit(case.kernel, "k")) - FROM_C
            assert not others, f"{name}: {case.kernel} needs {others}"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_two_axes_in_the_order_of_one(target: engine.Host, dtype: str) -> None:
    x = np.zeros((2, 30, 10), dtype)
    kernel = several_sums(x, x[:, :, :1], x[:, :1], x.shape, 2, "rows").kernel()
    assert needed(target, emit(kernel, "k")) <= FROM_C


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8])
def test_products(target: engine.Host, dtype: type) -> None:
    tile = gemm_tile.tile_of(np.dtype(dtype), target.features)
    for form in ("row", "col"):
        for n in (1, tile.columns, 3 * tile.columns - 1):
            text, _ = gemm_ir.product_text(np.dtype(dtype), tile, form, tile.families(n))
            assert needed(target, text) <= FROM_C
    if np.dtype(dtype).kind == "f":
        text, _ = gemv_ir.gemv_text(np.dtype(dtype), tile)
        assert needed(target, text) <= FROM_C


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mask", ["", "bool", "add"])
def test_attention(target: engine.Host, dtype: type, mask: str) -> None:
    tile = gemm_tile.tile_of(np.dtype(dtype), target.features)
    panels, every = (
        tuple(attention_tile.widths(tile)),
        {f for d in range(1, 200) for f in attention_tile.parts(tile, d)},
    )
    for write, more in ((attention_ir.attention_text, ()), (attention_gradient_ir.gradient_text, (tuple(every),))):
        # NOTE: not the text that another host's test left in the cache.
        text, _ = write.__wrapped__(np.dtype(dtype), tile, mask, panels, *more)
        assert needed(target, text) <= FROM_C


def test_routines(target: engine.Host, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    class Unloaded:
        def __init__(self, text: str, names: list[str], permanent: bool) -> None:
            texts.append(text)

        def address(self, name: str) -> int:
            return 0

    monkeypatch.setattr(routine, "compile_module", Unloaded)
    for dtype in map(np.dtype, (np.float16, np.float32, np.float64, np.int8, np.int64)):
        scan.routines.__wrapped__(dtype, "cumsum", True)
        scan.routines.__wrapped__(dtype, "cumprod", False)
        scatter.routines.__wrapped__(dtype, "add", False, False, True)
        scatter.routines.__wrapped__(dtype, "set", True, True, False)
    for dtype, innermost in itertools.product((np.dtype("f4"), np.dtype("f8")), (True, False)):
        scan_complex.routines.__wrapped__(dtype, innermost)
    for fn in small_matrices.FORMS:
        small_matrices.routines.__wrapped__(fn, np.dtype("f4"), (True,) * 3)
    assert len(texts) == 24 + len(small_matrices.FORMS)
    for text in texts:
        assert needed(target, text) <= FROM_C


def test_the_runtime(target: engine.Host) -> None:
    futex = thread_pool._FUTEX_NUMBERS.get(target.architecture) if "linux" in target.triple else None
    here = thread_pool.current_platform()
    there = dataclasses.replace(here, architecture=target.architecture, futex=futex, affinity=bool(futex))
    text, _ = thread_pool_ir.render(there)
    others = {s for s in needed(target, text) - FROM_C if not s.startswith(("pthread_", "Py", "_Py"))}
    assert others <= {"clock_gettime", *(("syscall", *thread_platform_ir.AFFINITY) if futex else ())}, others


def test_tiles_of_rows_and_launches(target: engine.Host) -> None:
    text, _ = time_tiles_ir.text()
    assert needed(target, text) <= FROM_C
