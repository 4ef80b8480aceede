"""Running sums and products, in the order of `lazyt.ir.scan`: the bits of the CPU.

A work-item has a block of a row. With more than one block, a first launch finds the total of each.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.backends.math.c_expressions import short_name
from lazyt.backends.math.elements import reg_type
from lazyt.backends.math.reduction import FLOAT32, FLOAT64
from lazyt.ir import dtypes
from lazyt.ir.scan import BLOCK, LANES
from lazyt_opencl.codegen import elementwise
from lazyt_opencl.codegen.scope import memory_type
from lazyt_opencl.codegen.text import type_of
from lazyt_opencl.library.routine import PARAMETERS, Routine, Step, filled, flat

if TYPE_CHECKING:
    import numpy as np

    from lazyt_opencl.codegen.text import Module
    from lazyt_opencl.executor import Bound
    from lazyt_opencl.library.routine import Patches

# Few rows are shared out among processors one by one.
GROUP = 4

_TEXT = """
#define OF(a, b) ((a) $op$ (b))
__kernel void $total$($parameters$, __global uchar *b0, __global uchar *b1) {
    __global const long *const args = table + first;
    const long n = args[2], inner = args[3], blocks = args[4], size = args[5], rows = args[6];
    const long at = (long)get_global_id(0);
    if (at >= rows * blocks) return;
    const long row = at / blocks, begin = at % blocks * size;
    const long place = row / inner * n * inner + row % inner;
    __global const $memory$ *const x = (__global const $memory$ *)(b0 + args[0]) + place;
    $work$ part[$lanes$];
    for (int j = 0; j < $lanes$; j++) {
        const long i = begin + j;
        part[j] = i < n ? $load$ : $start$;
    }
    for (long group = begin + $lanes$; group < begin + size; group += $lanes$)
        for (int j = 0; j < $lanes$; j++) {
            const long i = group + j;
            part[j] = OF(part[j], i < n ? $load$ : $start$);
        }
    for (int some = $lanes$ / 2; some; some /= 2)
        for (int j = 0; j < some; j++) part[j] = OF(part[j], part[j + some]);
    ((__global $work$ *)(b1 + args[1]))[at] = part[0];
}
__kernel void $scan$($parameters$, __global uchar *b0, __global uchar *b1, __global uchar *b2) {
    __global const long *const args = table + first;
    const long n = args[3], inner = args[4], blocks = args[5], size = args[6], rows = args[7];
    const long at = (long)get_global_id(0);
    if (at >= rows * blocks) return;
    const long row = at / blocks, block = at % blocks, begin = block * size;
    const long place = row / inner * n * inner + row % inner;
    __global const $memory$ *const x = (__global const $memory$ *)(b0 + args[0]) + place;
    __global $memory$ *const y = (__global $memory$ *)(b1 + args[1]) + place;
    __global const $work$ *const totals = (__global const $work$ *)(b2 + args[2]) + row * blocks;
    $work$ carry = $start$;
    for (long b = 0; b < block; b++) carry = OF(carry, totals[b]);
    for (long group = begin; group < min(begin + size, n); group += $lanes$) {
        $work$ p[$lanes$];
        for (int j = 0; j < $lanes$; j++) {
            const long i = group + j;
            p[j] = i < n ? $load$ : $start$;
        }
        for (int step = 1; step < $lanes$; step *= 2)
            for (int j = $lanes$ - 1; j >= step; j--) p[j] = OF(p[j - step], p[j]);
        for (int j = 0; j < $lanes$ && group + j < n; j++) {
            const $work$ sum = OF(carry, p[j]);
            y[(group + j) * inner] = ($memory$)($store$);
        }
        carry = OF(carry, p[$lanes$ - 1]);
    }
}
"""


def suits(call: Any) -> bool:
    """Whether there is code for a call: complex products have another order."""
    kind = dtypes.kind(call.operands[0].dtype)
    return kind != "b" and (kind != "c" or bool(call.node.attrs.fn == "cumsum"))


class Scan(Routine):
    """`cumsum` or `cumprod` along an axis."""

    name = "scan by blocks"

    def __init__(self, bound: Bound, call: Any) -> None:
        super().__init__(bound, call)
        (x,), self.fn = call.operands, call.node.attrs.fn
        axis, shape = self.statics[0], self.shape(x)
        axis %= len(shape)
        # A complex number is two floats side by side.
        parts = 2 if dtypes.kind(x.dtype) == "c" else 1
        self.dtype = {1: x.dtype, 2: FLOAT32 if x.dtype.itemsize == 8 else FLOAT64}[parts]
        self.n, self.inner = shape[axis], math.prod(shape[axis + 1 :]) * parts
        self.rows = math.prod(shape[:axis]) * self.inner
        self.size = min(BLOCK, max(-(-self.n // LANES) * LANES, LANES))
        self.blocks = -(-self.n // self.size)

    @property
    def suffix(self) -> str:
        return f"{self.fn}_{short_name(self.dtype)}"

    @property
    def is_float(self) -> bool:
        """Whether it runs in float64."""
        return dtypes.kind(self.dtype) == "f"

    def text(self, module: Module) -> str:
        work: np.dtype[Any] = FLOAT64 if self.is_float else self.dtype
        start = "1" if self.fn == "cumprod" else "-0.0" if self.is_float else "0"
        kind = type_of(reg_type(work))
        words = {
            "parameters": PARAMETERS, "total": self.symbol("totals"), "scan": self.symbol("scan"), "lanes": LANES,
            "memory": memory_type(self.dtype), "work": kind, "start": f"({kind}){start}",
            "op": "*" if self.fn == "cumprod" else "+",
            "load": f"({kind})({elementwise.cast('x[i * inner]', self.dtype, work, module)})",
            "store": elementwise.cast("sum", work, self.dtype, module),
        }  # fmt: skip
        return filled(_TEXT, words)

    def steps(self, table: list[int], patches: Patches) -> list[Step]:
        count = self.rows * self.blocks
        if not count:
            return []
        (x,), y = self.call.operands, self.call.results[0]
        numbers = [self.n, self.inner, self.blocks, self.size, self.rows]
        totals, found, sizes = self.room(8 * count), [], flat(count, GROUP)
        if self.blocks > 1:
            found.append(Step(self.symbol("totals"), *self.arguments(table, patches, [x, totals], numbers), sizes))
        found.append(Step(self.symbol("scan"), *self.arguments(table, patches, [x, y, totals], numbers), sizes))
        return found
