"""Rows put or added at positions, in order of position and of update, without atomics: the bits of the CPU.

Updates are ordered by where they go (stably), so those of one place are neighbours: the first of them goes through
them all. Few updates are ordered by counting how many come before each; many by CuPy's sort.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.cuda.codegen.preamble import PREAMBLE
from lazyt.backends.cuda.codegen.routine import loaded
from lazyt.backends.cuda.codegen.text import Module, function, type_of
from lazyt.backends.cuda.cuda_graph import Launch
from lazyt.backends.math import casts
from lazyt.backends.math.elements import mem_type
from lazyt.ir import dtypes
from lazyt.ir.passes.call_operands import buffer_of

if TYPE_CHECKING:
    from lazyt.backends.cuda.binding import Binding, Run
    from lazyt.backends.math.vector import Vec
    from lazyt.ir.passes.schedule import ScatterCall

FLOAT32 = np.dtype(np.float32)
INT64 = np.dtype(np.int64)
# Arguments.
OUT, X, V, AT, ORDER, COUNT, INNER, TOTAL, FILL = range(9)
SIZE = FILL + 1
THREADS = 256
# Up to so many updates are ordered by counting, which is quadratic.
COUNTED = 1 << 14
NAMES = ("lazyt_scatter_start", "lazyt_scatter_rank", "lazyt_scatter_rows")

_TEXT = """
extern "C" __global__ void __launch_bounds__(256) lazyt_scatter_start(const __grid_constant__ lt_args<9> arguments) {
    const s64 *const args = arguments.at;
    T *const out = (T *)args[0];
    const T *const x = (const T *)args[1];
    for (s64 i = (s64)blockIdx.x * 256 + threadIdx.x; i < args[7]; i += (s64)gridDim.x * 256)
        out[i] = FILLED ? *(const T *)&args[8] : x[i];
}
// How many updates come before each: those of lower places, and earlier ones of its own.
extern "C" __global__ void __launch_bounds__(256) lazyt_scatter_rank(const __grid_constant__ lt_args<9> arguments) {
    const s64 *const args = arguments.at;
    const s64 *const at = (const s64 *)args[3];
    s64 *const order = (s64 *)args[4];
    const s64 count = args[5], i = (s64)blockIdx.x * 256 + threadIdx.x;
    __shared__ s64 part[256];
    const s64 own = i < count ? at[i] : 0;
    s64 rank = 0;
    for (s64 base = 0; base < count; base += 256) {
        if (base + threadIdx.x < count) part[threadIdx.x] = at[base + threadIdx.x];
        __syncthreads();
        const int some = (int)lt_min_index(count - base, (s64)256);
        for (int k = 0; k < some; k++) rank += part[k] < own || (part[k] == own && base + k < i);
        __syncthreads();
    }
    if (i < count) order[rank] = i;
}
extern "C" __global__ void __launch_bounds__(256) lazyt_scatter_rows(const __grid_constant__ lt_args<9> arguments) {
    const s64 *const args = arguments.at;
    T *const out = (T *)args[0];
    const T *const v = (const T *)args[2];
    const s64 *const at = (const s64 *)args[3], *const order = (const s64 *)args[4];
    const s64 count = args[5], inner = args[6];
    for (s64 u = (s64)blockIdx.x * 256 + threadIdx.x; u < count * inner; u += (s64)gridDim.x * 256) {
        const s64 first = u / inner, j = u - first * inner, place = at[order[first]];
        if (first > 0 && at[order[first - 1]] == place) continue;
        W sum = WIDEN(out[place * inner + j]);
        for (s64 i = first; i < count && at[order[i]] == place; i++) {
            const W x = WIDEN(v[SINGLE ? 0 : order[i] * inner + j]);
            sum = ADDS ? sum + x : x;
        }
        out[place * inner + j] = NARROW(sum);
    }
}
"""


@lru_cache(maxsize=256)
def program(dtype: np.dtype, mode: str, filled: bool, single: bool) -> str:
    """The three kernels for a dtype and a mode; `filled`: x is one constant, `single`: v is one element."""
    module = Module()
    kind = type_of(mem_type(dtype))
    wide = kind
    widen, narrow = "", f"({kind})"
    if mode == "add" and dtypes.of(dtype).narrow:
        # Sums of halves are rounded once.
        wide, widen, narrow = "float", "lt_wide", "lt_narrow"
        element = mem_type(dtype)
        for name, source, target in ((widen, dtype, FLOAT32), (narrow, FLOAT32, dtype)):
            result, operand = (element, "float") if source == FLOAT32 else ("float", element)
            rule = partial(_converted, source, target)
            module.define(name, partial(function, name, (result,), (operand,), module, rule))
    words = {"T": kind, "W": wide, "FILLED": int(filled), "SINGLE": int(single), "ADDS": int(mode == "add")}
    head = [f"#define {name} {value}" for name, value in words.items()]
    head += [f"#define WIDEN(x) {widen}(x)", f"#define NARROW(x) {narrow}(x)"]
    return "\n".join([PREAMBLE, module.text(), *head, _TEXT])


def _converted(source: np.dtype, target: np.dtype, x: Vec) -> tuple[Vec, ...]:
    return (casts.convert(x, source, target),)


class Scatter:
    """One scatter of a bound plan: its launches."""

    def __init__(self, bound: Binding, call: ScatterCall) -> None:
        self.bound, self.call = bound, call
        n, value = call.node, bound.value
        self.count = value(call.at.shape[0])
        inner = 1
        for d in n.shape[1:]:
            inner *= value(d)
        # A complex number is two floats side by side.
        parts = 2 if dtypes.kind(n.dtype) == "c" else 1
        self.dtype = np.dtype(f"f{n.dtype.itemsize // 2}") if parts == 2 else n.dtype
        self.inner = parts * inner
        self.total = value(n.shape[0]) * self.inner
        self.single = call.single and self.inner * self.count > 1

    @property
    def on_device(self) -> bool:
        """Whether it is done here: not if one complex number goes to all places."""
        return self.dtype == self.call.node.dtype or not (self.single or self.call.fill is not None)

    def place(self, table: list[int], patches: list[tuple[int, int, int]], level: int) -> list[Launch | Sorted]:
        """The arguments of all three kernels into the table, the order of updates into the arena; what to run."""
        b, c, at = self.bound, self.call, len(table)
        table.extend([0] * SIZE)
        for slot, node in ((OUT, c.node), (X, c.x), (V, c.v), (AT, c.at)):
            if node is not None:
                b._address(buffer_of(node), 0, node.dtype.itemsize, at + slot, patches)
        patches.append((at + ORDER, b.arena_base, b.arena_size))
        b.arena_size += -(-max(8 * self.count, 1) // 64) * 64
        table[at + COUNT : at + FILL + 1] = [self.count, self.inner, self.total, self._fill()]
        if not self.total:
            return []
        source = program(self.dtype, c.node.attrs.mode, c.fill is not None, self.single)  # type: ignore[union-attr]
        functions = loaded(b.where, source, NAMES, THREADS, SIZE)
        most = 32 * b.where.properties.processors
        start, rank, rows = (functions[name] for name in NAMES)
        parts: list[Launch | Sorted] = [Launch(start, at, max(1, min(-(-self.total // THREADS), most)), level)]
        if self.count:
            if self.count <= COUNTED:
                parts.append(Launch(rank, at, -(-self.count // THREADS), level + 1))
            else:
                parts.append(Sorted(b, at, self.count))
            parts.append(Launch(rows, at, max(1, min(-(-self.count * self.inner // THREADS), most)), level + 2))
        return parts

    def _fill(self) -> int:
        """The bits of the constant."""
        if self.call.fill is None:
            return 0
        x = np.array([self.call.fill.attrs.value]).astype(self.dtype)  # type: ignore[union-attr]
        return int(x.view(f"u{self.dtype.itemsize}").astype(np.uint64).view(np.int64)[0])


class Sorted:
    """The order of many updates, by CuPy's sort, which no graph can hold."""

    def __init__(self, bound: Binding, at: int, count: int) -> None:
        self.bound, self.at, self.count = bound, at, count

    def run(self, run: Run) -> None:
        where = self.bound.where
        at, order = (int(self.bound.table[self.at + slot]) for slot in (AT, ORDER))
        with where.driver.library(where.number) as xp:
            keys, to = (where.driver.view(where.number, x, INT64, (self.count,)) for x in (at, order))
            to[...] = xp.argsort(keys, kind="stable")
