"""Kernels compiled by the CPU backend and called on arrays, beside the kernel interpreter."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
from typing import Any

import numpy as np

from lazyt.backends.cpu import engine
from lazyt.backends.cpu.codegen.emit import emit
from lazyt.backends.object_cache import ObjectCache
from lazyt.ir import kernel as ir, kernel_interpreter as oracle
from lazyt.ir.kernel_interpreter import Arguments
from tests.support.kernel_builder import Builder
from tests.support.kernel_suite import close, same_bits

NO_CACHE = ObjectCache(None)


MODULES: dict[str, Any] = {}


def native(kernel: ir.Kernel) -> Any:
    if kernel.key not in MODULES:
        # What tests set decides on the code of a kernel too.
        name = "k_" + hashlib.sha256(emit(kernel, "f").encode()).hexdigest()
        module = engine.compile_module(emit(kernel, name), [name], cache=NO_CACHE)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        MODULES[kernel.key] = module, kind(module.address(name))
    return MODULES[kernel.key][1]


def call(kernel: ir.Kernel, args: Arguments, pieces: int = 1) -> None:
    """Run the emitted code, the units cut into so many ranges (done last to first)."""
    entries = oracle.table(kernel, args)
    units = kernel.units(args.extents)
    cuts = [units * p // pieces for p in range(pieces + 1)]
    for begin, end in reversed(list(itertools.pairwise(cuts))):
        native(kernel)(entries.ctypes.data, begin, end)


def check(k: Builder, pieces: int = 1, exact: bool = True) -> list[np.ndarray]:
    """Compare native code with the interpreter; the stored arrays (flat)."""
    kernel = k.kernel()
    want, got = k.arguments(), k.arguments()
    oracle.run(kernel, want)
    call(kernel, got, pieces)
    outputs = []
    for a, w, g in zip(k.accesses, want.accesses, got.accesses, strict=True):
        if a.writes:
            same_bits(g.array, w.array) if exact else close(g.array, w.array)
            outputs.append(g.array)
    assert got.status[0] == want.status[0]
    return outputs
