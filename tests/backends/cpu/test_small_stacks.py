"""Threads with small stacks run every kernel: frames fit a declared budget, large areas are working memory."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from lazyt.backends.cpu import thread_pool_ir as threads_ir, workspace
from lazyt.backends.cpu.codegen import needs
from lazyt.backends.cpu.engine import assembly
from lazyt.backends.cpu.library import attention_tile, small_matrices
from lazyt.backends.cpu.library.attention_gradient_ir import gradient_text
from lazyt.backends.cpu.library.attention_ir import attention_text
from lazyt.backends.cpu.library.conv_features_ir import features_text
from lazyt.backends.cpu.library.conv_ir import convolution_text
from lazyt.backends.cpu.library.convolutions import _features_tile
from lazyt.backends.cpu.library.depthwise_ir import Window, depthwise_text
from lazyt.backends.cpu.library.gemm_ir import product_text
from lazyt.backends.cpu.library.gemv_ir import gemv_text
from lazyt.backends.cpu.library.phases_ir import phases_text, tile_of_phases
from lazyt.backends.cpu.library.products import tile_for
from lazyt.backends.cpu.thread_pool import current_platform
from tests.support.assembly import stack_of

SCRIPT = """
import faulthandler, sys, threading
faulthandler.enable()
import numpy as np
import lazyt as lt
from lazyt.nn.functional import scaled_dot_product_attention as attend

rng = np.random.default_rng(0)


def data(*shape, dtype=np.float32):
    return lt.asarray(rng.normal(size=shape).astype(dtype))


def gradients(f, *shapes):
    operands = [data(*s).requires_grad_() for s in shapes]
    f(*operands).sum().backward()
    return [x.grad for x in operands]


HEADS = (2, 2, 80, 40)
CASES = {
    "gemm": lambda: [
        data(300, 400) @ data(400, 300), data(400, 300).T @ data(300, 400).T, lt.tanh(data(80, 90) @ data(90, 200)),
        lt.exp(-abs(data(4, 60, 90) @ data(4, 90, 70))) + 1, data(120, 130, dtype=np.float64) @ data(130, 60),
        lt.asarray(np.arange(3000).reshape(50, 60)) @ lt.asarray(np.arange(3000).reshape(60, 50)),
    ],
    "attention": lambda: [attend(*(data(*HEADS) for _ in range(3)), is_causal=c) for c in (False, True)],
    "attention's gradient": lambda: gradients(attend, HEADS, HEADS, HEADS),
    "convolution": lambda: [
        lt.conv2d(data(2, 8, 20, 20), data(16, 8, 3, 3)), lt.tanh(lt.conv2d(data(2, 8, 20, 20), data(16, 8, 3, 3))),
        lt.conv2d(data(2, 8, 20, 20), data(16, 8, 3, 3), stride=2),
        *gradients(lambda x, w: lt.conv2d(x, w, padding=1), (2, 8, 20, 20), (16, 8, 3, 3)),
    ],
    "scan": lambda: [
        lt.cumsum(data(50, 900), axis=1), lt.cumsum(data(900, 50), axis=0),
        lt.cumsum(data(900, dtype=np.complex64), axis=0), lt.cumprod(data(40, 40, dtype=np.float64), axis=0),
    ],
    "sort": lambda: [
        lt.sort(data(30, 900)), lt.argsort(data(30, 900)), lt.sort(data(500, 7)), lt.argsort(data(500, 7), axis=0),
    ],
    "scatter": lambda: gradients(
        lambda x: lt.take(x, lt.asarray(rng.integers(0, 700, 5000)), axis=0), (700, 16)
    ),
    "rows and columns": lambda: [
        lt.softmax(data(90, 70)), lt.softmax(data(90, 70), axis=0), data(300, 200).T + data(200, 300),
        lt.layer_norm(data(30, 11), (11,)),
    ],
    "small matrices": lambda: [
        lt.linalg.solve(data(9, 7, 7), data(9, 7, 2)), *lt.linalg.qr(data(9, 7, 7)), lt.linalg.svd(data(9, 5, 7))[1],
        abs(lt.linalg.eigh(data(9, 7, 7))[1]), lt.linalg.slogdet(data(9, 7, 7))[1],
    ],
    "by NumPy": lambda: [lt.linalg.inv(data(40, 40)), abs(lt.fft.fft(data(20, 64))), lt.linalg.svd(data(9, 7))[1]],
}
found = {}


def work(name):
    rng.bit_generator.state = state
    found[name] = [x.detach().numpy() for x in CASES[name]()]


state = rng.bit_generator.state
for name in CASES:
    threading.stack_size(int(sys.argv[1]) << 10)
    thread = threading.Thread(target=work, args=(name,))
    thread.start()
    thread.join()
    threading.stack_size(0)
    small = found.pop(name)
    work(name)
    for a, b in zip(small, found[name], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=name)
print("done")
"""


@pytest.mark.parametrize("size", [128, pytest.param(256, marks=pytest.mark.slow)])
@pytest.mark.parametrize("threads", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_every_kind_of_kernel(size: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a thread with a large stack (attention alone has other last bits in a first run); with workers too."""
    monkeypatch.setenv("LAZYT_DEBUG", f"threads-{threads}")
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(size)], capture_output=True, text=True, timeout=240, check=False
    )
    assert run.returncode == 0, run.stderr[-4000:]
    assert "done" in run.stdout


@pytest.mark.slow
@pytest.mark.parametrize("size", [128, 256])
def test_code_that_is_compiled_on_a_small_stack(size: int, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYT_CACHE_DIR", str(tmp_path))
    test_every_kind_of_kernel(size, 1, monkeypatch)


# Functions of small matrices, and how many results they have.
RESULTS = {
    "solve": 1, "inv": 1, "det": 1, "slogdet": 2, "cholesky": 1, "qr": 2, "eigvalsh": 1, "eigh": 2, "svdvals": 1,
    "svd": 3,
}  # fmt: skip


def texts() -> dict[str, tuple[str, str]]:
    """Modules of library kernels (text, name of the function)."""
    out = {}
    for dtype in map(np.dtype, ("float32", "float64")):
        for form in ("row", "col"):
            tile = tile_for(dtype, form)
            assert tile is not None
            out[f"product {dtype} {form}"] = product_text(dtype, tile, form, tile.families(2 * tile.columns + 1))
        tile = tile_for(dtype)
        assert tile is not None
        out[f"dot products {dtype}"] = gemv_text(dtype, tile)
        widths = tuple(range(1, tile.vectors + 1))
        for op in ("convolve", "filter"):
            out[f"{op} {dtype}"] = convolution_text(dtype, tile, op, widths)
        out[f"convolve along features {dtype}"] = features_text(dtype, tile, 0, widths)
        out[f"convolve along features, in runs {dtype}"] = features_text(
            dtype, _features_tile(tile, tile.columns, True), 1, widths
        )
        for steps in ((1, 1), (2, 2), (8, 8)):
            out[f"{steps} phases {dtype}"] = phases_text(dtype, tile_of_phases(tile, dtype, steps[1]), steps)
        window = Window((7, 7), (2, 2), (1, 1), (3, 3), False)
        for by_filter in (False, True):
            out[f"depthwise{' filter' * by_filter} {dtype}"] = depthwise_text(dtype, tile, window, by_filter)
        used = attention_tile.panels(tile, 1000)
        out[f"attention {dtype}"] = attention_text(dtype, tile, "add", used)
        for name, results in RESULTS.items():
            text = small_matrices.routines(f"linalg_{name}", dtype, (True,) * results).text
            found = re.search(r"define void @(\w+)", text)
            assert found is not None
            out[f"{name} {dtype}"] = text, found[1]
        families = attention_tile.parts(tile, 65)
        out[f"attention's gradient {dtype}"] = gradient_text(dtype, tile, "bool", used, families)
    return out


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads the assembly of x86-64")
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if "32" in n else pytest.mark.slow) for n in texts()])
def test_frames_of_library_kernels(name: str) -> None:
    text, function = texts()[name]
    assert stack_of(assembly(text, [function]), function, every=True) <= needs.LIBRARY_FRAME


def test_workers_have_what_kernels_declare() -> None:
    text, _ = threads_ir.render(current_platform())
    assert f"alloca i8, i64 {workspace.WORKSPACE}," in text
    declared = workspace.WORKSPACE + needs.LIBRARY_FRAME + needs.FRAME
    assert f"@pthread_attr_setstacksize(ptr @attributes, i64 {threads_ir.STACK})" in textwrap.dedent(text)
    assert declared <= threads_ir.STACK
