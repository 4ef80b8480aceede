"""Stable sorts along an axis: runs of 16 are sorted by insertion, then merged two by two.

A work-item merges a piece of a merge's result. A binary search finds where the piece begins in both runs (Odeh, Green
and others, "Merge Path", 2012), so no work-item waits for another. Elements are compared by keys: unsigned integers in
the order of NumPy's sorts (-0 is 0, NaN is greatest), the other way round where it descends.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.math.c_expressions import short_name
from lazyt.backends.math.reduction import FLOAT32
from lazyt.ir import dtypes
from lazyt_opencl.codegen import elementwise
from lazyt_opencl.codegen.scope import memory_type
from lazyt_opencl.library.routine import PARAMETERS, Routine, Step, filled, flat

if TYPE_CHECKING:
    from lazyt_opencl.codegen.text import Module
    from lazyt_opencl.executor import Bound
    from lazyt_opencl.library.routine import Patches

RUN = 16
# What a work-item merges; it divides every two runs.
PIECE = 32
INT64 = np.dtype(np.int64)

_TEXT = """
__kernel void $runs$($parameters$, __global uchar *b0, __global uchar *b1, __global uchar *b2) {
    __global const long *const args = table + first;
    const long n = args[3], inner = args[4], runs = args[5], count = args[6];
    const long at = (long)get_global_id(0);
    if (at >= count) return;
    const long row = at / runs, begin = at % runs * $run$;
    const int size = (int)min((long)$run$, n - begin);
    const long place = row / inner * n * inner + row % inner;
    __global const $memory$ *const x = (__global const $memory$ *)(b0 + args[0]) + place;
    $key$ keys[$run$];
    uint from[$run$];
    for (int i = 0; i < size; i++) {
        const $key$ own = $of$(x[(begin + i) * inner]);
        int j = i;
        for (; j > 0 && keys[j - 1] > own; j--) {
            keys[j] = keys[j - 1];
            from[j] = from[j - 1];
        }
        keys[j] = own;
        from[j] = (uint)(begin + i);
    }
    for (int i = 0; i < size; i++) {
        ((__global $key$ *)(b1 + args[1]))[row * n + begin + i] = keys[i];
        ((__global uint *)(b2 + args[2]))[row * n + begin + i] = from[i];
    }
}
__kernel void $merge$($parameters$, __global uchar *b0, __global uchar *b1, __global uchar *b2, __global uchar *b3) {
    __global const long *const args = table + first;
    const long n = args[4], width = args[5], pieces = args[6], count = args[7];
    const long at = (long)get_global_id(0);
    if (at >= count) return;
    const long row = at / pieces * n, first_out = at % pieces * $piece$;
    __global const $key$ *const keys = (__global const $key$ *)(b0 + args[0]) + row;
    __global const uint *const from = (__global const uint *)(b1 + args[1]) + row;
    __global $key$ *const to_keys = (__global $key$ *)(b2 + args[2]) + row;
    __global uint *const to = (__global uint *)(b3 + args[3]) + row;
    const long begin = first_out / (2 * width) * 2 * width;
    const long middle = min(begin + width, n), end = min(middle + width, n), skipped = first_out - begin;
    long low = max(0l, skipped - (end - middle)), high = min(skipped, middle - begin);
    while (low < high) {
        const long some = (low + high) / 2;
        if (keys[begin + some] <= keys[middle + skipped - 1 - some]) low = some + 1; else high = some;
    }
    long i = begin + low, j = middle + skipped - low;
    const long stop = min(first_out + $piece$, n);
    $key$ a = i < middle ? keys[i] : 0, b = j < end ? keys[j] : 0;
    for (long out = first_out; out < stop; out++) {
        if (i < middle && (j >= end || a <= b)) {
            to_keys[out] = a;
            to[out] = from[i++];
            if (i < middle) a = keys[i];
        } else {
            to_keys[out] = b;
            to[out] = from[j++];
            if (j < end) b = keys[j];
        }
    }
}
__kernel void $put$($parameters$, __global uchar *b0, __global uchar *b1, __global uchar *b2) {
    __global const long *const args = table + first;
    const long n = args[3], inner = args[4], kept = args[5], count = args[6];
    const long at = (long)get_global_id(0);
    if (at >= count) return;
    const long row = at / inner / kept * inner + at % inner, i = at / inner % kept;
    const uint from = ((__global const uint *)(b1 + args[1]))[row * n + i];
    const long place = row / inner * n * inner + row % inner;
    __global const $memory$ *const x = (__global const $memory$ *)(b0 + args[0]) + place;
    ((__global $result$ *)(b2 + args[2]))[at] = $value$;
}
"""


def key_function(dtype: np.dtype[Any], descending: bool, module: Module) -> tuple[str, str]:
    """The type of a dtype's keys, and the function that gives an element's, which `module` then has."""
    kind = "ulong" if dtype.itemsize == 8 else "uint"
    name = f"lt_sort_key_{short_name(dtype)}{'_down' if descending else ''}"
    if dtypes.kind(dtype) == "f":
        wide = FLOAT32 if dtype.itemsize < 8 else dtype
        real = "double" if dtype.itemsize == 8 else "float"
        ones, top = (
            ("0xfffffffffffffffful", "0x8000000000000000ul") if kind == "ulong" else ("0xffffffffu", "0x80000000u")
        )
        body = (
            f"    const {real} v = {elementwise.cast('x', dtype, wide, module)};\n"
            f"    const {kind} bits = v == 0 ? 0 : as_{kind}(v);\n"
            f"    const {kind} key = v != v ? {ones} : bits & {top} ? ~bits : bits | {top};\n"
        )
    elif dtypes.kind(dtype) == "i":
        top = "0x8000000000000000ul" if kind == "ulong" else "0x80000000u"
        signed = {1: "char", 2: "short", 4: "int", 8: "long"}[dtype.itemsize]
        body = f"    const {kind} key = ({kind})({kind[1:]})({signed})x ^ {top};\n"
    else:
        body = f"    const {kind} key = ({kind})x;\n"
    text = f"{kind} {name}({memory_type(dtype)} x) {{\n{body}    return {'~' * descending}key;\n}}"
    module.entries.setdefault(name, text)
    return kind, name


def has_keys(dtype: np.dtype[Any]) -> bool:
    """Whether elements of a dtype have keys: not pairs of numbers."""
    return dtypes.kind(dtype) != "c"


class Order(Routine):
    """The order of each row of a value, in the arena: (n, inner) are the row's elements and their stride."""

    name = "merge sort"

    def __init__(self, bound: Bound, call: Any) -> None:
        super().__init__(bound, call)
        self.x, self.descending = call.operands[0], False
        self.n, self.inner, self.rows = 0, 1, 1

    @property
    def suffix(self) -> str:
        return f"{short_name(self.x.dtype)}{'_down' if self.descending else ''}"

    def text(self, module: Module) -> str:
        kind, of = key_function(self.x.dtype, self.descending, module)
        words = {
            "parameters": PARAMETERS, "runs": self.symbol("runs"), "merge": self.symbol("merge"),
            "run": RUN, "piece": PIECE,
            "put": self.symbol("put"), "key": kind, "of": of, "memory": memory_type(self.x.dtype),
            "result": self.result, "value": self.value,
        }  # fmt: skip
        return filled(_TEXT, words)

    # What is written of each element, and its type.
    result, value = "long", "(long)from"

    def order(self, table: list[int], patches: Patches) -> tuple[list[Step], int]:
        """The launches that find the order, and the offset in the arena of the positions: uint32, row by row."""
        total, size = self.n * self.rows, 8 if self.x.dtype.itemsize == 8 else 4
        keys, order = ([self.room(width * total) for _ in range(2)] for width in (size, 4))
        runs = -(-self.n // RUN)
        at, bases = self.arguments(
            table, patches, [self.x, keys[0], order[0]], [self.n, self.inner, runs, runs * self.rows]
        )
        found = [Step(self.symbol("runs"), at, bases, flat(runs * self.rows))]
        now, width, pieces = 0, RUN, -(-self.n // PIECE)
        while width < self.n:
            places = [keys[now], order[now], keys[1 - now], order[1 - now]]
            at, bases = self.arguments(table, patches, places, [self.n, width, pieces, pieces * self.rows])
            found.append(Step(self.symbol("merge"), at, bases, flat(pieces * self.rows)))
            now, width = 1 - now, 2 * width
        return found, order[now]


class Sort(Order):
    """`sort`, `argsort` and `topk`."""

    def __init__(self, bound: Bound, call: Any) -> None:
        super().__init__(bound, call)
        self.fn = call.node.attrs.fn
        axis, self.descending, *rest = self.statics
        shape = self.shape(self.x)
        axis %= len(shape)
        self.n, self.inner = shape[axis], math.prod(shape[axis + 1 :])
        self.rows = math.prod(shape[:axis]) * self.inner
        self.kept = rest[0] if rest else self.n
        if self.fn == "sort":
            self.result, self.value = memory_type(self.x.dtype), "x[from * inner]"

    @property
    def suffix(self) -> str:
        return f"{self.fn}_{super().suffix}"

    def steps(self, table: list[int], patches: Patches) -> list[Step]:
        count = self.kept * self.rows
        if not count:
            return []
        found, order = self.order(table, patches)
        at, bases = self.arguments(
            table, patches, [self.x, order, self.call.results[0]], [self.n, self.inner, self.kept, count]
        )
        return [*found, Step(self.symbol("put"), at, bases, flat(count))]
