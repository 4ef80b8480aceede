"""Kernels of users as CUDA C: on a device without a GPU, and compiled by NVRTC where it is there."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cuda import engine
from lazyt.backends.cuda.codegen.preamble import PREAMBLE
from lazyt.backends.object_cache import ObjectCache
from tests.support.user_kernels import CASES, compared

# Reads of every kind, conditions, loops and rows.
SHOWN = [
    c for c in CASES if c[0].__name__ in ("edges_kept", "collected", "softmax_of_rows", "reads_by_data", "clamping")
]


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("f", "args", "more"), SHOWN, ids=[f.__name__ for f, _, _ in SHOWN])
def test_a_kernel_on_a_device(f, args, more):
    with lt.device("cuda"):
        compared(f, args, more, f(*(lt.asarray(x) if isinstance(x, np.ndarray) else x for x in args), **more))


@pytest.mark.usefixtures("nvrtc")
def test_the_code_that_is_shown_compiles():
    for f, args, more in SHOWN:
        text = f.source(*args, device="cuda", **more)
        if text.count("__global__") == 1:
            assert engine.compile_program(f"{PREAMBLE}\n{text}", 90, ObjectCache(None)).cubin.startswith(b"\x7fELF")
