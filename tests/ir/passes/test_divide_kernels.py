"""Kernels of bounded size: divided until each needs what is allowed, also where cheap values are what it reads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lazyt.ir.builder import Builder
from lazyt.ir.passes.kernelize import KernelCall
from lazyt.ir.passes.pipeline import compile_graph
from lazyt.ir.passes.program import USUAL, Options
from lazyt.ir.symbolic import Scope


@pytest.mark.parametrize(("sums", "terms", "most"), [(60, 5, 100), (60, 5, 32), (24, 3, 8), (1, 40, 6), (12, 1, 4)])
def test_no_kernel_reads_more_arrays_than_a_device_takes(sums: int, terms: int, most: int) -> None:
    """A product of sums: each sum is cheap to compute again, and reads arrays of its own."""
    b = Builder(Scope())
    xs = [b.input(i, (4, 8), np.dtype(np.float32)) for i in range(sums * terms)]
    out = None
    for i in range(sums):
        total = xs[i * terms]
        for x in xs[i * terms + 1 : (i + 1) * terms]:
            total = b.add(total, x)
        out = total if out is None else b.mul(out, total)
    assert out is not None
    target = replace(USUAL, share=lambda call: len(call.reads) / most)
    found = compile_graph([out], Scope(), Options(target)).schedule
    assert found is not None
    reads = [len(c.reads) for c in found.launches if isinstance(c, KernelCall)]
    assert max(reads) <= most, reads
    assert len(reads) <= 4 * sums * terms // most + 2, "no more kernels than that takes"
