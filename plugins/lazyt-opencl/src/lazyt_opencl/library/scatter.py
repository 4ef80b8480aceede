"""Rows put or added at positions, in order of position and of update, without atomics: the bits of the CPU.

Updates are sorted by where they go, so those of one place are neighbours: the first of them goes through them all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.math.c_expressions import short_name
from lazyt.backends.math.elements import reg_type
from lazyt.backends.math.reduction import FLOAT32, FLOAT64
from lazyt.ir import dtypes
from lazyt_opencl.codegen import elementwise
from lazyt_opencl.codegen.scope import memory_type
from lazyt_opencl.codegen.text import type_of
from lazyt_opencl.library.routine import PARAMETERS, Step, filled, flat
from lazyt_opencl.library.sorting import Order

if TYPE_CHECKING:
    from lazyt.ir.passes.schedule import ScatterCall
    from lazyt_opencl.codegen.text import Module
    from lazyt_opencl.executor import Bound
    from lazyt_opencl.library.routine import Patches

_TEXT = """
__kernel void $start$($parameters$, __global uchar *b0, __global uchar *b1) {
    __global const long *const args = table + first;
    const long at = (long)get_global_id(0), total = args[2], fill = args[3];
    if (at >= total) return;
    __global const $memory$ *const x = (__global const $memory$ *)(b1 + args[1]);
    ((__global $memory$ *)(b0 + args[0]))[at] = $first$;
}
__kernel void $rows$($parameters$, __global uchar *b0, __global uchar *b1, __global uchar *b2, __global uchar *b3) {
    __global const long *const args = table + first;
    const long count = args[4], inner = args[5], u = (long)get_global_id(0);
    if (u >= count * inner) return;
    __global $memory$ *const out = (__global $memory$ *)(b0 + args[0]);
    __global const $memory$ *const v = (__global const $memory$ *)(b1 + args[1]);
    __global const long *const at = (__global const long *)(b2 + args[2]);
    __global const uint *const order = (__global const uint *)(b3 + args[3]);
    const long begin = u / inner, j = u % inner, place = at[order[begin]];
    if (begin > 0 && at[order[begin - 1]] == place) return;
    $work$ sum = $of_out$;
    for (long i = begin; i < count && at[order[i]] == place; i++) {
        const $work$ x = $of_v$;
        sum = $next$;
    }
    out[place * inner + j] = ($memory$)($narrow$);
}
"""


def suits(bound: Bound, call: ScatterCall) -> bool:
    """Whether there is code for a call: not if one complex number goes to all places."""
    one = call.fill is not None or call.single
    return (dtypes.kind(call.node.dtype) != "c" or not one) and bound.value(call.at.shape[0]) < 1 << 31


class Scatter(Order):
    """One scatter."""

    name = "scatter in index order"

    def __init__(self, bound: Bound, call: ScatterCall) -> None:
        super().__init__(bound, call)
        n = call.node
        self.x, self.n = call.at, bound.value(call.at.shape[0])
        self.mode: str = n.attrs.mode  # type: ignore[union-attr]
        shape, is_pair = self.shape(n), dtypes.kind(n.dtype) == "c"
        # A complex number is two floats side by side.
        self.dtype = (FLOAT32 if n.dtype.itemsize == 8 else FLOAT64) if is_pair else n.dtype
        self.width = math.prod(shape[1:]) * (2 if is_pair else 1)
        self.total = shape[0] * self.width
        self.single = call.single and self.width * self.n > 1

    @property
    def suffix(self) -> str:
        what = "f" * (self.call.fill is not None) + "s" * self.single
        return f"scatter_{self.mode}_{short_name(self.dtype)}{'_' + what if what else ''}"

    def text(self, module: Module) -> str:
        adds = self.mode == "add"
        halves = dtypes.of(self.dtype).narrow
        # Sums of halves are rounded once.
        work: np.dtype[Any] = FLOAT32 if adds and halves else self.dtype

        def widened(x: str) -> str:
            x = f"({x} != 0)" if dtypes.kind(self.dtype) == "b" else x
            return elementwise.cast(x, self.dtype, work, module)

        add = "sum || x" if dtypes.kind(self.dtype) == "b" else "sum + x"
        words = {
            "parameters": PARAMETERS, "start": self.symbol("start"), "rows": self.symbol("rows"),
            "memory": memory_type(self.dtype), "work": type_of(reg_type(work)),
            "first": f"({memory_type(self.dtype)})0" if self.call.fill is not None else "x[at]",
            "of_out": widened("out[place * inner + j]"),
            "of_v": widened("v[0]" if self.single else "v[order[i] * inner + j]"),
            "next": add if adds else "x", "narrow": elementwise.cast("sum", work, self.dtype, module),
        }  # fmt: skip
        if self.call.fill is not None:
            words["first"] = self._constant()
        return super().text(module) + filled(_TEXT, words)

    def _constant(self) -> str:
        kind = memory_type(self.dtype)
        return (
            f"as_{kind}(({'ulong' if self.dtype.itemsize == 8 else 'uint'})fill)"
            if kind in ("float", "double")
            else f"({kind})fill"
        )

    def steps(self, table: list[int], patches: Patches) -> list[Step]:
        c = self.call
        if not self.total:
            return []
        places = [c.node, c.node if c.x is None else c.x]
        at, bases = self.arguments(table, patches, places, [self.total, self._fill()])
        found = [Step(self.symbol("start"), at, bases, flat(self.total))]
        if self.n:
            ordering, order = self.order(table, patches)
            at, bases = self.arguments(table, patches, [c.node, c.v, c.at, order], [self.n, self.width])
            found += [*ordering, Step(self.symbol("rows"), at, bases, flat(self.n * self.width))]
        return found

    def _fill(self) -> int:
        """The bits of the constant."""
        if self.call.fill is None:
            return 0
        x = np.array([self.call.fill.attrs.value]).astype(self.dtype)
        return int(x.view(f"u{self.dtype.itemsize}").astype(np.uint64).view(np.int64)[0])
