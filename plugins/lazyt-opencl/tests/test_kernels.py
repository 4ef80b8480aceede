"""The kernels that every backend must do, on the device: to the bit what the interpreter of the kernel IR stores."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from lazyt.ir.kernel_interpreter import table
from lazyt_opencl.codegen.emit import program, symbol_of
from lazyt_opencl.device import Device
from lazyt_opencl.executor import sizes_of
from tests.support.kernel_builder import layernorm, reduction, softmax
from tests.support.kernel_cases import SUITE, Case, cases_of_suite
from tests.support.kernel_suite import F32, close, finite, same_bits

# Cases of each test of the suite, at most, out of the hundreds that some have.
CASES = 3


class Programs:
    """Cases with one program for all their kernels."""

    def __init__(self, device: Device, cases: list[Case]) -> None:
        self.device = device
        kernels = {symbol_of(c.kernel): c.kernel for c in cases}
        self.program, _ = device.build(program(kernels.values()))

    def check(self, case: Case) -> None:
        """Run a case, and compare all that it stores."""
        device, cl, kernel, args = self.device, self.device.cl, case.kernel, case.builder.arguments()
        if (sizes := sizes_of(kernel, args.extents, device.group)) is None:
            return
        entries = table(kernel, args)
        for bound, at in zip(args.accesses, kernel.layout.accesses, strict=True):
            entries[at] = bound.offset * bound.array.itemsize
        buffers = []
        held: dict[int, Any] = {}
        for bound in args.accesses:
            where = bound.array.ctypes.data
            if where not in held:
                held[where] = device.allocate(bound.array.nbytes)
                device.write(held[where], bound.array)
            buffers.append(held[where])
        status = device.allocate(16)
        device.write(status, args.status)
        handle, where = cl.Kernel(self.program, symbol_of(kernel)), device.allocate(entries.nbytes)
        device.write(where, entries)
        parameters = [b.memory for b in buffers] + [status.memory] * kernel.has_check
        handle.set_args(where.memory, np.int64(0), *parameters)
        cl.enqueue_nd_range_kernel(device.current().found, handle, *sizes)
        device.synchronize()
        for own, bound, buffer, want in zip(kernel.accesses, args.accesses, buffers, case.want.accesses, strict=True):
            if own.writes:
                got = device.read(buffer, bound.array.dtype, bound.array.shape)
                (same_bits if case.exact else close)(got, want.array)
        code = device.read(status, args.status.dtype, (2,))[0]
        assert code == case.want.status[0]


@functools.cache
def of_suite() -> tuple[dict[str, list[Case]], list[Case]]:
    cases = {name: found[:: -(-len(found) // CASES)] for name, found in cases_of_suite().items()}
    return cases, [c for some in cases.values() for c in some]


@pytest.fixture(scope="module")
def programs(optimized: Device) -> Programs:
    return Programs(optimized, of_suite()[1])


@pytest.mark.parametrize("name", SUITE)
def test_kernels_of_the_suite(name: str, programs: Programs) -> None:
    for case in of_suite()[0][name]:
        programs.check(case)


def test_rows_and_columns_at_every_boundary(opencl: Device, rng: np.random.Generator) -> None:
    """Of a work-group, of what is flushed, of a chunk."""
    cases = []
    for n in (1, 15, 16, 17, 127, 129, 2047, 2048, 2049, 65536, 65600):
        x = finite(rng, (3, n), F32)
        ones = np.ones(n, F32)
        cases += [Case.of(layernorm(x, ones, ones, "row")), Case.of(reduction("argmax", x, "row"))]
        cases.append(Case.of(softmax(x, "row", 1), exact=False))  # NumPy's exp is not lazyt's
        if n < 5000:
            columns = np.ascontiguousarray(x.T).T
            cases += [Case.of(layernorm(columns, ones, ones, "outer")), Case.of(reduction("min", columns, "outer"))]
    programs = Programs(opencl, cases)
    for case in cases:
        programs.check(case)
