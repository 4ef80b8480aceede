"""A kernel of the kernel IR as a function in OpenCL C.

What of it a work-item computes:
- of a map one point: work-item (j, g) has index j along the last axis, and g counts the other axes in row-major order;
- with row axes and lanes along an outer axis one output, by loops over the rows; the work-items are those of a map;
- with lanes along a row one of its 16 chains: a row has a work-group of 16 work-items, which read neighbours.

Every access has a parameter of its own, the buffer; sizes, strides and offsets are entries of one table of a plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.math.elements import reg_type
from lazyt.ir.kernel import CHUNK, FLUSH, LANES
from lazyt_opencl.codegen.folds import folds_of
from lazyt_opencl.codegen.preamble import HEAD
from lazyt_opencl.codegen.scope import UNIT, Scope
from lazyt_opencl.codegen.text import Module, type_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lazyt.ir.kernel import Kernel, Stage
    from lazyt_opencl.codegen.folds import Fold


def symbol_of(kernel: Kernel) -> str:
    """The name of a kernel's function."""
    return f"lazyt_k_{kernel.key}"


def emit(kernel: Kernel, module: Module, notes: Sequence[str] = ()) -> str:
    """The text of a kernel, whose helpers go to `module`; `notes` (the user's lines) become comments above it."""
    scope = Scope(kernel, module)
    if kernel.vector == "row":
        scope.body.line("const int lane = (int)get_local_id(0);")
        _indices(scope, "get_group_id(0)", kernel.outer)
    else:
        last = kernel.outer - 1
        scope.body.line(f"const long i{last} = (long)get_global_id(0);")
        others = " * ".join(scope.extent(a) for a in range(last)) or "1"
        scope.body.line(f"if (i{last} >= {scope.extent(last)} || (long)get_global_id(1) >= {others}) return;")
        _indices(scope, "get_global_id(1)", last)
    for stage in kernel.stages:
        _stage(scope, stage)
    parameters = ["__global const long *table", "const long first"]
    parameters += [f"__global uchar *b{i}" for i in range(len(kernel.accesses))]
    parameters += ["__global long *status"] * kernel.has_check
    comments = [f"// {line}" for line in notes] + [f"// {kernel.title}"] * bool(kernel.title)
    lines = [
        *comments,
        f"__kernel void {symbol_of(kernel)}({', '.join(parameters)}) {{",
        "    __global const long *const args = table + first;",
        *scope.head.lines,
        *scope.body.lines,
        "}",
        "",
    ]
    return "\n".join(lines)


def program(kernels: Iterable[Kernel]) -> str:
    """A program with these kernels."""
    module = Module()
    texts = [emit(kernel, module) for kernel in kernels]
    return "\n".join([HEAD, module.text(), *texts])


def _indices(scope: Scope, number: str, axes: int) -> None:
    """The indices of the first axes, from a number that counts them in row-major order."""
    body = scope.body
    if not axes:
        return
    # NOTE: on most devices a division of 32 bits is several times as fast.
    rest = body.let("ulong", number, "g")
    for axis in range(axes - 1, 0, -1):
        n = f"(ulong){scope.extent(axis)}"
        small = f"{rest} >> 32 | {n} >> 32"
        upper = body.let("ulong", f"{small} ? {rest} / {n} : (ulong)((uint){rest} / (uint){n})", f"g{axis}")
        body.line(f"const long i{axis} = (long)({rest} - {upper} * {n});")
        rest = upper
    body.line(f"const long i0 = (long){rest};")


def _stage(scope: Scope, stage: Stage) -> None:
    kernel, body = scope.kernel, scope.body
    folds = folds_of(kernel, stage.reduces)
    roots = [f.operand for f in folds] + [t.value for t in stage.stores]
    needed = scope.needed(roots)
    scope.open(UNIT, needed)
    if not stage.loops:
        with scope.inside("if (lane == 0)" if kernel.vector == "row" else ""):
            for t in stage.stores:
                scope.store(t)
        return
    for f in folds:
        f.declare(body)
        if kernel.vector == "row":
            f.declare_shared(scope.head)
    _row_axes(scope, stage, folds, needed, kernel.outer)
    for f in folds:
        if kernel.vector == "row" and not f.blocked:
            f.across_lanes(body)
        scope.names[f.number] = body.let(type_of(reg_type(f.dtype)), f.result(body), f"v{f.number}")


def _row_axes(scope: Scope, stage: Stage, folds: Sequence[Fold], needed: Sequence[int], axis: int) -> None:
    """The loops over the row axes from `axis` on."""
    kernel = scope.kernel
    if axis < kernel.axes - 1:
        i, n = scope.index[axis], scope.extent(axis)
        with scope.inside(f"for (long {i} = 0; {i} < {n}; {i}++)"):
            scope.open(axis - kernel.outer + 1, needed)
            _row_axes(scope, stage, folds, needed, axis + 1)
        return
    blocked = [f for f in folds if f.blocked]
    n = scope.extent(axis)
    if not blocked:
        first, step = ("lane", LANES) if kernel.vector == "row" else ("0", 1)
        _points(scope, stage, folds, needed, (first, n, step))
    elif kernel.vector == "row":
        _chunks(scope, stage, folds, needed, n)
    else:
        with scope.inside(f"for (long f = 0; f < {n}; f += {FLUSH})"):
            _part(scope, stage, folds, needed, ("f", f"min(f + {FLUSH}, {n})", 1))
            for f in blocked:
                f.flush(scope.body, "total")


def _chunks(scope: Scope, stage: Stage, folds: Sequence[Fold], needed: Sequence[int], n: str) -> None:
    """A row by chunks: each chain is flushed now and then, and at a chunk's end the chains are added."""
    body, blocked = scope.body, [f for f in folds if f.blocked]
    with scope.inside(f"for (long c = 0; c < {n}; c += {CHUNK})"):
        body.line(f"const long stop = min(c + {CHUNK}, {n});")
        for f in blocked:
            body.line(f"double wide{f.number} = {f.start};")
        with scope.inside(f"for (long f = c; f < stop; f += {FLUSH * LANES})"):
            _part(scope, stage, folds, needed, ("f + lane", f"min(f + {FLUSH * LANES}, stop)", LANES))
            for f in blocked:
                f.flush(body, "wide")
        for f in blocked:
            f.chunk_done(body)


def _part(
    scope: Scope, stage: Stage, folds: Sequence[Fold], needed: Sequence[int], points: tuple[str, str, int]
) -> None:
    for f in folds:
        if f.blocked:
            scope.body.line(f"{f.kind} part{f.number} = {f.start};")
    first, stop, step = points
    _points(scope, stage, folds, needed, (first, scope.body.let("long", stop), step))


def _points(
    scope: Scope, stage: Stage, folds: Sequence[Fold], needed: Sequence[int], points: tuple[str, str, int]
) -> None:
    """The innermost loop: from, to and step of the index along the last row axis."""
    kernel = scope.kernel
    i = scope.index[kernel.axes - 1]
    first, stop, step = points
    with scope.inside(f"for (long {i} = {first}; {i} < {stop}; {i} += {step})"):
        scope.open(kernel.rows, needed)
        for f in folds:
            f.step(scope.body, scope.names[f.operand], i)
        for t in stage.stores:
            scope.store(t)
