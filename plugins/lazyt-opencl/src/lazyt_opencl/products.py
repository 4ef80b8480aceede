"""Matrix products: a tiled kernel, generated for the dtypes of the operands. Strides and a batch are arguments.

A work-group computes a tile of the result. It copies blocks of both operands into local memory, where each work-item
reads what it needs for its own elements. An element is the sum of its products in order, in the dtype of the result
(float32 for halves), each added by fma.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.backends.common.products import MAX_BATCH
from lazyt.backends.math.elements import BFLOAT16, reg_type
from lazyt.backends.math.reduction import FLOAT32
from lazyt.ir.records import dataclass
from lazyt_opencl.codegen import elementwise
from lazyt_opencl.codegen.preamble import HEAD
from lazyt_opencl.codegen.scope import memory_type
from lazyt_opencl.codegen.text import Module, type_of

if TYPE_CHECKING:
    import numpy as np

    from lazyt.backends.common.binding import ScheduleBinding
    from lazyt.ir.passes.schedule import MatmulCall

# Entries of the arguments: the sizes, the offsets in bytes of both operands and of the result, the strides of rows and
# columns, then an extent and two strides for each axis of the batch.
HEAD_SIZE = 11
# Elements of both operands that a block has along the axis that is summed over.
DEPTH = 16


@dataclass(frozen=True)
class Tile:
    """The shape of a product's code: work-items of a group along each side, and results of each along each side."""

    side: int
    each: int

    @property
    def size(self) -> int:
        """Rows and columns of the tile."""
        return self.side * self.each


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
        names = "_".join(map(elementwise.short_name, (self.a, self.b, self.a_as, self.b_as, self.dtype)))
        return f"lazyt_product_{names}_{self.tile.side}_{self.tile.each}"


def form_of(bound: ScheduleBinding, c: MatmulCall, group: int) -> Form | None:
    """The code for a product; None for what has none: convolutions, complex numbers."""
    n = c.node
    if n.op != "matmul" or n.dtype.kind == "c" or len(n.operands[0].shape) - 2 > MAX_BATCH:
        return None
    rows, columns = (bound.value(d) for d in n.shape[-2:])
    side = 16 if group >= 256 else 8
    # Of few rows or columns a large tile would be mostly outside.
    tile = Tile(side, 4 if min(rows, columns) > 2 * side else 1)
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
    blocks = [-(-x // tile.size) * tile.side for x in (columns, rows)]
    return (blocks[0], blocks[1], math.prod(batch)), (tile.side, tile.side, 1)


def source(form: Form, notes: Any = ()) -> str:
    """The program of a product."""
    module = Module()
    own = FLOAT32 if form.dtype == BFLOAT16 or (form.dtype.itemsize == 2 and form.dtype.kind == "f") else form.dtype
    kind = "uint" if own.kind == "b" else type_of(reg_type(own))
    added = "fma(x, y[j], sums[i][j])" if own.kind == "f" else f"({kind})(sums[i][j] + x * y[j])"

    def element(text: str, memory: np.dtype, as_dtype: np.dtype) -> str:
        x = f"({text} != 0)" if memory.kind == "b" else text
        x = elementwise.cast(x, memory, as_dtype, module)
        return f"({kind})({elementwise.cast(x, as_dtype, own, module)})"

    a = element("a[(row + r) * a_row + (t + q) * a_column]", form.a, form.a_as)
    b = element("b[(t + q) * b_row + (column + r) * b_column]", form.b, form.b_as)
    total = "sums[i][j] != 0" if own.kind == "b" else elementwise.cast("sums[i][j]", own, form.dtype, module)
    tile, side, each = form.tile.size, form.tile.side, form.tile.each
    text = _KERNEL.format(
        symbol=form.symbol, kind=kind, a_type=memory_type(form.a), b_type=memory_type(form.b),
        c_type=memory_type(form.dtype), tile=tile, side=side, each=each, depth=DEPTH, items=side * side, head=HEAD_SIZE,
        a=a, b=b, added=added, total=total,
    )  # fmt: skip
    return "\n".join([HEAD, module.text(), *(f"// {line}" for line in notes), text])


_KERNEL = """\
__kernel void {symbol}(__global const long *table, const long first, __global uchar *b0, __global uchar *b1,
                       __global uchar *b2) {{
    __global const long *const args = table + first;
    const long rows = args[0], columns = args[1], depth = args[2];
    const long a_row = args[6], a_column = args[7], b_row = args[8], b_column = args[9];
    __local {kind} a_block[{depth}][{tile} + 1], b_block[{depth}][{tile}];
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
    const long row = (long)get_group_id(1) * {tile}, column = (long)get_group_id(0) * {tile};
    const int v = (int)get_local_id(0), u = (int)get_local_id(1), own = u * {side} + v;
    {kind} sums[{each}][{each}];
    for (int i = 0; i < {each}; i++)
        for (int j = 0; j < {each}; j++) sums[i][j] = 0;
    for (long t = 0; t < depth; t += {depth}) {{
        for (int s = own; s < {tile} * {depth}; s += {items}) {{
            const int r = s / {depth}, q = s % {depth};
            a_block[q][r] = row + r < rows && t + q < depth ? {a} : ({kind})0;
        }}
        for (int s = own; s < {tile} * {depth}; s += {items}) {{
            const int q = s / {tile}, r = s % {tile};
            b_block[q][r] = column + r < columns && t + q < depth ? {b} : ({kind})0;
        }}
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int q = 0; q < {depth}; q++) {{
            {kind} y[{each}];
            for (int j = 0; j < {each}; j++) y[j] = b_block[q][v + {side} * j];
            for (int i = 0; i < {each}; i++) {{
                const {kind} x = a_block[q][u + {side} * i];
                for (int j = 0; j < {each}; j++) sums[i][j] = {added};
            }}
        }}
        barrier(CLK_LOCAL_MEM_FENCE);
    }}
    for (int i = 0; i < {each}; i++)
        for (int j = 0; j < {each}; j++) {{
            const long r = row + u + {side} * i, q = column + v + {side} * j;
            if (r < rows && q < columns) c[r * columns + q] = {total};
        }}
}}
"""
