"""Linear algebra of stacks of small matrices, in machine code: where NumPy calls LAPACK for one after the other.

The algorithms are in matrix_lu.py, matrix_factors.py and matrix_jacobi.py; how matrices become lanes is said in
matrix_lanes.py. Results have errors as small as LAPACK's. What NumPy raises for singular matrices is raised by way of
the status word.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lazyt.backends.cpu.codegen.routine import Routines
from lazyt.backends.cpu.library import matrix_factors, matrix_jacobi, matrix_lu
from lazyt.backends.cpu.library.matrix_lanes import (
    CODE,
    COUNT,
    LANES,
    SIZE,
    STATUS,
    VECTOR,
    WORK,
    A,
    B,
    K,
    M,
    N,
    X,
    Y,
    Z,
)
from lazyt.ir import graph as g
from lazyt.ir.passes.call_operands import buffer_of
from lazyt.ir.symbolic import hint

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.backends.common.binding import ScheduleBinding
    from lazyt.backends.cpu.codegen.routine import Routine
    from lazyt.ir.passes.schedule import LibraryCall

DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
# Right-hand sides, at most.
SIDES = 64
# One or two matrices fill few lanes, which costs more than the call of Python that is saved, from so many steps on.
FEW = 32000
# Steps of the innermost loops, of a vector each, that a chunk should have at least.
GRAIN = 4096


class Form(NamedTuple):
    """A function in machine code, for matrices of m rows and n columns, and k columns of something else (`_sizes`)."""

    write: Callable[[Routine, np.dtype, tuple[bool, ...]], None]
    vectors: Callable[[int, int, int], int]  # of the workspace
    steps: Callable[[int, int, int], int]  # of the innermost loops
    most: int = 32  # rows and columns: LAPACK's calls are slower up to here
    enough: int = 3  # matrices that make a group faster than LAPACK's calls, of any size
    # Whether fewer are computed here while they are small. NOTE: not vectors whose signs are free: of one matrix, or of
    # a few, they are those that NumPy gives.
    few: bool = True


def _elimination(m: int, n: int, k: int) -> int:
    return n * n + n * k + 3 * n + k + 1


def _inverse(m: int, n: int, k: int) -> int:
    return _elimination(m, n, n)


def _symmetric(m: int, n: int, k: int) -> int:
    return 3 * n * n + 6 * n + 2


def _singular(m: int, n: int, k: int) -> int:
    large, small = max(m, n), min(m, n)
    return 2 * m * n + 2 * small * small + 2 * large * k + 8 * small + max(small, k) + 2


FORMS = {
    "linalg_solve": Form(matrix_lu.solve, _elimination, lambda m, n, k: n * n * (n + 3 * k) // 3),
    "linalg_inv": Form(matrix_lu.inverse, _inverse, lambda m, n, k: 4 * n * n * n // 3),
    "linalg_det": Form(matrix_lu.determinant, _elimination, lambda m, n, k: n * n * n // 3),
    "linalg_slogdet": Form(matrix_lu.sign_and_logarithm, _elimination, lambda m, n, k: n * n * n // 3),
    "linalg_cholesky": Form(matrix_factors.cholesky, lambda m, n, k: n * n + n, lambda m, n, k: n * n * n // 6),
    "linalg_qr": Form(
        matrix_factors.qr, lambda m, n, k: m * n + m * k + n + max(n, k), lambda m, n, k: m * n * (n + k)
    ),
    "linalg_eigvalsh": Form(matrix_jacobi.symmetric, _symmetric, lambda m, n, k: 16 * n * n * n, 16, 6),
    "linalg_eigh": Form(matrix_jacobi.symmetric, _symmetric, lambda m, n, k: 24 * n * n * n, 24, 6, False),
    "linalg_svdvals": Form(matrix_jacobi.singular, _singular, lambda m, n, k: 16 * m * n * min(m, n), 16, 6),
    "linalg_svd": Form(matrix_jacobi.singular, _singular, lambda m, n, k: 24 * m * n * min(m, n), 24, 6, False),
}


def native(c: LibraryCall) -> bool:
    """Whether there is machine code for this call, if its matrices are small."""
    return _form(c) is not None


def suits(b: ScheduleBinding, c: LibraryCall) -> bool:
    """Whether the matrices are small and enough, for these extents; NumPy has those without elements."""
    form, (m, n, k) = _form(c), _sizes(b, c)
    assert form is not None, "asked for in `native`"
    if not 0 < m <= form.most or not 0 < n <= form.most or not 0 < k <= SIDES:
        return False
    count = prod(b.value(d) for d in c.operands[0].shape[:-2])
    return count >= form.enough or (form.few and (form.enough - count) * form.steps(m, n, k) <= FEW)


def prepare(c: LibraryCall) -> None:
    """Compile or load the machine code, if the matrices are small in the trace that is planned."""
    form = _form(c)
    assert form is not None, "asked for in `native`"
    if max(map(hint, c.operands[0].shape[-2:])) <= form.most:
        _routines(c)


def workspace(b: ScheduleBinding, c: LibraryCall) -> int:
    """Bytes of working memory of a unit."""
    form = _form(c)
    assert form is not None, "asked for in `native`"
    return form.vectors(*_sizes(b, c)) * VECTOR


def launch(
    b: ScheduleBinding, c: LibraryCall, rows: list[list[int]], table: list[int], patches: list[tuple[int, int, int]]
) -> None:
    """Write the row of a program for one call."""
    form, at, x = _form(c), len(table), c.operands[0]
    assert form is not None, "asked for in `native`"
    m, n, k = _sizes(b, c)
    count = prod(b.value(d) for d in x.shape[:-2])
    if not count:
        return
    for slots, nodes in (((A, B), c.operands), ((X, Y, Z), c.results)):
        for slot, node in zip(slots, nodes, strict=False):
            if node is not None:
                b._address(buffer_of(node), 0, node.dtype.itemsize, at + slot, patches)
    args = [0] * SIZE
    for slot, value in ((COUNT, count), (M, m), (N, n), (K, k)):
        args[slot] = value
    patches.append((at + WORK, b.arena_base, b.workspace_at))
    patches.append((at + STATUS, b.status_base, 0))
    b.checks.append(c.node)
    args[CODE] = len(b.checks)
    units, grain = -(-count // LANES), max(GRAIN // (form.steps(m, n, k) + 1), 1)
    rows.append([_routines(c).address["matrices"], at, units, grain, 0])
    table.extend(args)


def _name(c: LibraryCall) -> str:
    assert isinstance(c.node.attrs, g.Opaque)
    return c.node.attrs.fn


def _form(c: LibraryCall) -> Form | None:
    return FORMS.get(_name(c)) if c.operands[0].dtype in DTYPES else None


def _sizes(b: ScheduleBinding, c: LibraryCall) -> tuple[int, int, int]:
    """Rows and columns of the matrices; columns of the right-hand sides, or of the factor that reflections make."""
    assert isinstance(c.node.attrs, g.Opaque)
    m, n = (b.value(d) for d in c.operands[0].shape[-2:])
    match c.node.attrs.fn, *c.node.attrs.statics:
        case ["linalg_solve"]:
            return m, n, b.value(c.operands[1].shape[-1])
        case ["linalg_qr", "complete"]:
            return m, n, m
        case ["linalg_svd", True]:
            return m, n, max(m, n)
    return m, n, min(m, n)


def _routines(c: LibraryCall) -> Routines:
    return routines(_name(c), c.operands[0].dtype, tuple(r is not None for r in c.results))


@lru_cache(maxsize=64)
def routines(name: str, dtype: np.dtype, wanted: tuple[bool, ...]) -> Routines:
    """The machine code of a function for a dtype, and for those of its results that are read."""
    return Routines({"matrices": lambda r: FORMS[name].write(r, dtype, wanted)})
