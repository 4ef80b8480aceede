"""Kernels compiled for the CPU by the shim: the mapping of a launch, and what it stores against the interpreter."""

from __future__ import annotations

from lazyt.backends.cuda.codegen.mapping import Mapping, choose
from lazyt.ir.kernel import Kernel
from lazyt.ir.kernel_interpreter import Arguments, table
from tests.support.cuda.shim import Library
from tests.support.kernel_cases import Case
from tests.support.kernel_suite import close, same_bits


def chosen(kernel: Kernel, args: Arguments, shared: int = 48 << 10) -> Mapping:
    return choose(kernel, [int(e) for e in table(kernel, args)], shared)


def verify(library: Library, case: Case, mapping: Mapping, processors: int = 1) -> None:
    got = case.builder.arguments()
    library.run(case.kernel, mapping, got, processors)
    for a, w, g in zip(case.builder.accesses, case.want.accesses, got.accesses, strict=True):
        if a.writes:
            same_bits(g.array, w.array) if case.exact else close(g.array, w.array)
    assert got.status[0] == case.want.status[0]
