"""Matrix products: a tiled kernel, generated for the dtypes of the operands. Strides and a batch are arguments.

A work-group computes a tile of the result. It copies blocks of both operands into local memory, where each work-item
reads what it needs for its own elements. An element is the sum of its products in order, in the dtype of the result
(float32 for halves), each added by fma.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lazyt.backends.common.products import MAX_BATCH
from lazyt.backends.math.c_expressions import short_name
from lazyt.backends.math.elements import reg_type
from lazyt.ir import dtypes
from lazyt.ir.records import dataclass
from lazyt_opencl.codegen import elementwise
from lazyt_opencl.codegen.preamble import HEAD
from lazyt_opencl.codegen.scope import memory_type
from lazyt_opencl.codegen.text import Module, type_of

if TYPE_CHECKING:
    import numpy as np

    from lazyt.backends.common.binding import ScheduleBinding
    from lazyt.ir.passes.schedule import MatmulCall
    from lazyt_opencl.device import Device

# Entries of the arguments: the sizes, the offsets in bytes of both operands and of the result, the strides of rows and
# columns, then an extent and two strides for each axis of the batch.
HEAD_SIZE = 11


@dataclass(frozen=True)
class Tile:
    """The shape of a product's code: a group has side * side work-items, each with high rows of wide neighbours."""

    side: int
    high: int
    wide: int
    depth: int  # of a block along the axis that is summed over

    @property
    def rows(self) -> int:
        """Rows of the result that a group computes."""
        return self.side * self.high

    @property
    def columns(self) -> int:
        """Columns of the result that a group computes."""
        return self.side * self.wide


# Bytes of a vector, at most. NOTE: PoCL's own functions (vload, fma) may be compiled for a processor without registers
# of 64 bytes, and then take such a vector in another way than a kernel passes it.
WIDEST = 32
# For processors with vectors, one work-item a thread, and for GPUs; then for few rows or columns.
CPU, CPU_SMALL = Tile(4, 4, 8, 64), Tile(4, 1, 4, 64)
GPU, GPU_SMALL = Tile(16, 4, 4, 16), Tile(16, 1, 1, 16)


@dataclass(frozen=True)
class Form:
    """What a product's code depends on: dtypes in memory, of the operands, and of the result."""

    a: np.dtype
    b: np.dtype
    a_as: np.dtype
    b_as: np.dtype
    dtype: np.dtype
    tile: Tile

    @property
    def symbol(self) -> str:
        """The name of its function."""
        names = "_".join(map(short_name, (self.a, self.b, self.a_as, self.b_as, self.dtype)))
        return f"lazyt_product_{names}_{self.tile.side}_{self.tile.high}_{self.tile.wide}"


def form_of(bound: ScheduleBinding, c: MatmulCall, where: Device) -> Form | None:
    """The code for a product; None for what has none: complex numbers, very many axes, very small groups."""
    n = c.node
    large, small = (CPU, CPU_SMALL) if where.is_cpu else (GPU, GPU_SMALL)
    if n.op != "matmul" or dtypes.kind(n.dtype) == "c" or len(n.shape) - 2 > MAX_BATCH or large.side**2 > where.group:
        return None
    # Of few rows or columns a large tile would be mostly outside.
    rows, columns = (bound.value(d) for d in n.shape[-2:])
    tile = large if 2 * rows > large.rows and 2 * columns > large.columns else small
    if tile.wide * n.dtype.itemsize > WIDEST:
        tile = replace(tile, wide=WIDEST // n.dtype.itemsize)
    (a, _, _), (b, _, _) = c.operands
    return Form(a.dtype, b.dtype, n.operands[0].dtype, n.operands[1].dtype, n.dtype, tile)


def arguments(bound: ScheduleBinding, c: MatmulCall, table: list[int], patches: list[tuple[int, int, int]]) -> int:
    """Append the arguments of a product; gives their start."""
    at, value = len(table), bound.value
    (rows, depth), columns = (value(d) for d in c.node.operands[0].shape[-2:]), value(c.node.shape[-1])
    strides = [[value(s) for s in steps] for _, steps, _ in c.operands]
    shapes = [[value(d) for d in x.shape] for x in c.node.operands]
    batch = [value(d) for d in c.node.shape[:-2]]
    table.extend([rows, columns, depth, 0, 0, 0, *strides[0][-2:], *strides[1][-2:], len(batch)])
    for i, extent in enumerate(batch):
        table.append(extent)
        for own, shape in zip(strides, shapes, strict=True):
            axis = i - len(batch) - 2 + len(shape)
            table.append(own[axis] if axis >= 0 and shape[axis] != 1 else 0)
    for slot, (base, _, offset) in enumerate(c.operands):
        bound._address(base, offset, base.dtype.itemsize, at + 3 + slot, patches)
    bound._address(c.node, 0, c.node.dtype.itemsize, at + 5, patches)
    return at


def sizes(bound: ScheduleBinding, c: MatmulCall, tile: Tile) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """The work-items along each axis, and those of a group."""
    *batch, rows, columns = (bound.value(d) for d in c.node.shape)
    blocks = [-(-x // size) * tile.side for x, size in ((columns, tile.columns), (rows, tile.rows))]
    return (blocks[0], blocks[1], math.prod(batch)), (tile.side, tile.side, 1)


def source(form: Form, notes: Any = ()) -> str:
    """The program of a product."""
    module = Module()
    own = dtypes.computed_in(form.dtype)
    kind = "uint" if dtypes.kind(own) == "b" else type_of(reg_type(own))

    def element(text: str, memory: np.dtype, as_dtype: np.dtype) -> str:
        x = f"({text} != 0)" if dtypes.kind(memory) == "b" else text
        x = elementwise.cast(x, memory, as_dtype, module)
        return f"({kind})({elementwise.cast(x, as_dtype, own, module)})"

    a = element("a[(row + r) * a_row + (t + q) * a_column]", form.a, form.a_as)
    b = element("b[(t + q) * b_row + (column + r) * b_column]", form.b, form.b_as)
    total = "sum[j] != 0" if dtypes.kind(own) == "b" else elementwise.cast("sum[j]", own, form.dtype, module)
    tile, wide = form.tile, form.tile.wide
    vector = kind if wide == 1 else f"{kind}{wide}"
    x = f"a_block[q][u + {tile.side} * i]"
    x = x if wide == 1 else f"({vector})({x})"
    near = f"b_block[q][v * {wide}]"
    text = _KERNEL.format(
        symbol=form.symbol, kind=kind, a_type=memory_type(form.a), b_type=memory_type(form.b),
        c_type=memory_type(form.dtype), rows=tile.rows, columns=tile.columns, side=tile.side, high=tile.high, wide=wide,
        depth=tile.depth, items=tile.side**2, head=HEAD_SIZE, vector=vector, a=a, b=b, total=total,
        near=near if wide == 1 else f"vload{wide}(0, &{near})",
        sum=f"fma({x}, y, sums[i])" if dtypes.kind(own) == "f" else f"sums[i] + {x} * y",
        put="sum[0] = sums[i]" if wide == 1 else f"vstore{wide}(sums[i], 0, sum)",
    )  # fmt: skip
    return "\n".join([HEAD, module.text(), *(f"// {line}" for line in notes), text])


_KERNEL = """\
__kernel void {symbol}(__global const long *table, const long first, __global uchar *b0, __global uchar *b1,
                       __global uchar *b2) {{
    __global const long *const args = table + first;
    const long rows = args[0], columns = args[1], depth = args[2];
    const long a_row = args[6], a_column = args[7], b_row = args[8], b_column = args[9];
    __local {kind} a_block[{depth}][{rows} + 1], b_block[{depth}][{columns}];
    long matrix = (long)get_group_id(2), a_first = 0, b_first = 0;
    for (int axis = (int)args[10] - 1; axis >= 0; axis--) {{
        __global const long *const own = args + {head} + 3 * axis;
        a_first += matrix % own[0] * own[1];
        b_first += matrix % own[0] * own[2];
        matrix /= own[0];
    }}
    __global const {a_type} *const a = (__global const {a_type} *)(b0 + args[3]) + a_first;
    __global const {b_type} *const b = (__global const {b_type} *)(b1 + args[4]) + b_first;
    __global {c_type} *const c = (__global {c_type} *)(b2 + args[5]) + (long)get_group_id(2) * rows * columns;
    const long row = (long)get_group_id(1) * {rows}, column = (long)get_group_id(0) * {columns};
    const int v = (int)get_local_id(0), u = (int)get_local_id(1), own = u * {side} + v;
    {vector} sums[{high}];
    for (int i = 0; i < {high}; i++) sums[i] = 0;
    for (long t = 0; t < depth; t += {depth}) {{
        const int deep = (int)min((long){depth}, depth - t);
        for (int s = own; s < {rows} * {depth}; s += {items}) {{
            const int r = s / {depth}, q = s % {depth};
            a_block[q][r] = row + r < rows && q < deep ? {a} : ({kind})0;
        }}
        for (int s = own; s < {columns} * deep; s += {items}) {{
            const int q = s / {columns}, r = s % {columns};
            b_block[q][r] = column + r < columns ? {b} : ({kind})0;
        }}
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int q = 0; q < deep; q++) {{
            const {vector} y = {near};
            for (int i = 0; i < {high}; i++) sums[i] = {sum};
        }}
        barrier(CLK_LOCAL_MEM_FENCE);
    }}
    for (int i = 0; i < {high}; i++) {{
        const long r = row + u + {side} * i, first_column = column + v * {wide};
        {kind} sum[{wide}];
        {put};
        for (int j = 0; j < {wide}; j++)
            if (r < rows && first_column + j < columns) c[r * columns + first_column + j] = {total};
    }}
}}
"""
