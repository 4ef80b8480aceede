"""Emits a function that transposes a block of rows.

Squares of lanes x lanes elements go through registers in two loops, and between them through the stack: first the small
squares within 128 bits of several rows are transposed, as unpacking instructions do, then those blocks are exchanged.
A repeated perfect shuffle, all in registers, takes as many instructions and ten times as long to compile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.looptext import Function, suffix_of
from lazyt.backends.cpu.codegen.source import PairReader, Reader
from lazyt.backends.cpu.codegen.text import mem_type

if TYPE_CHECKING:
    import numpy as np

    from lazyt.backends.cpu.codegen.source import Source

# Bytes within which shuffles are cheap, and how many elements of them are taken together at most.
BLOCK = 16
MOST = 4


class Transposer:
    """The function for a dtype, and how it is called."""

    def __init__(self, dtype: np.dtype, lanes: int, source: Source | None = None, pairs: bool = False) -> None:
        assert source is not None or not pairs, "pairs are of halves"
        self.dtype, self.lanes = dtype, lanes
        self.element, self.size = mem_type(dtype), dtype.itemsize
        self.vector = f"<{lanes} x {self.element}>"
        self.source, self.pairs = source, pairs
        self.name = f"transpose.{suffix_of(dtype)}" + (f".{source.stored}.{source.half}" if source is not None else "")

    def call(
        self, f: Function, lines: list[str], depth: str, count: str, to: str, to_step: str, workspace: str
    ) -> None:
        """to[k * to_step + j] = line j's element k, for k < depth and j < count. workspace: see `allocate`.

        With `pairs` the lines are of bfloat16, and k counts pairs of them; depth counts the bfloat16.
        """
        for i, line in enumerate(lines):
            f.line(f"store ptr {line}, ptr {f.at('ptr', workspace, str(i))}")
        f.line(f"call void @{self.name}(ptr {workspace}, i64 {depth}, i64 {count}, ptr {to}, i64 {to_step})")

    def allocate(self, f: Function) -> str:
        """Allocates stack memory for the addresses of the lines, at the beginning of the calling function."""
        return f.let(f"alloca ptr, i64 {self.lanes}, align 64")

    def text(self) -> tuple[str, set[str]]:
        """The function, and what it declares."""
        f, lanes = Function(), self.lanes
        block = min(max(BLOCK // self.size, 1), MOST, lanes)
        blocks = lanes // block
        workspace = f.let(f"alloca {self.vector}, i64 {lanes}, align 64")
        pairs = self.source if self.pairs else None
        read = Reader(f, self.dtype, lanes, self.source) if pairs is None else PairReader(f, lanes, pairs)
        depth = "%depth" if pairs is None else f.let(f"lshr i64 {f.let('add i64 %depth, 1')}, 1")
        written = f"llvm.masked.store.v{lanes}{suffix_of(self.dtype)}.p0"
        bits = f"<{lanes} x i1>"
        f.body.declare(f"declare void @{written}({self.vector}, ptr, {bits})")
        every = f.let(f"icmp sge i64 %count, {lanes}")
        with f.loop("0", depth, str(lanes)) as k:
            left = f.smin(f.let(f"sub i64 {depth}, {k.index}"), str(lanes))
            along = k.index if pairs is None else f.let(f"shl i64 {k.index}, 1")
            part = read.part(left if pairs is None else f.smin(f.let(f"sub i64 %depth, {along}"), str(2 * lanes)))
            whole = f.let(f"and i1 {every}, {f.let(f'icmp eq i64 {left}, {lanes}')}")
            with f.loop("0", str(lanes), str(block)) as first:
                xs = []
                for i in range(block):
                    line = f.load("ptr", f.at("ptr", "%lines", f.let(f"add i64 {first.index}, {i}")))
                    xs.append(read.some(f.at(read.element, line, along), part))
                for i, x in enumerate(self._within(f, xs)):
                    at = f.at(self.vector, workspace, f.let(f"add i64 {first.index}, {i}"))
                    f.line(f"store {self.vector} {x}, ptr {at}, align {self.size}")
            to = f.at(self.element, "%to", f.let(f"mul i64 {k.index}, %to_step"))
            with f.loop("0", str(block), "1") as inside:
                xs = []
                for i in range(blocks):
                    at = f.at(self.vector, workspace, f.let(f"add i64 {inside.index}, {i * block}"))
                    xs.append(f.let(f"load {self.vector}, ptr {at}, align {self.size}"))
                xs = self._apart(f, xs, block)
                rows = [f.let(f"add i64 {inside.index}, {i * block}") for i in range(blocks)]
                ats = [f.at(self.element, to, f.let(f"mul i64 {row}, %to_step")) for row in rows]
                with f.when(whole):
                    for x, at in zip(xs, ats, strict=True):
                        f.line(f"store {self.vector} {x}, ptr {at}, align {self.size}")
                with f.when(f.let(f"xor i1 {whole}, true")):
                    some = f.smin("%count", str(lanes))
                    for x, at, row in zip(xs, ats, rows, strict=True):
                        there = f.let(f"icmp slt i64 {row}, {left}")
                        own = f.mask(lanes, f.let(f"select i1 {there}, i64 {some}, i64 0"))
                        f.line(f"call void @{written}({self.vector} {x}, ptr align {self.size} {at}, {bits} {own})")
        f.line("ret void")
        params = "ptr %lines, i64 %depth, i64 %count, ptr %to, i64 %to_step"
        head = f"define internal void @{self.name}({params}) nounwind noinline {{\nentry:"
        return f"{head}\n{f.text()}\n}}", set(f.body.module.text().splitlines())

    def _shuffled(self, f: Function, a: str, b: str, order: list[int]) -> str:
        wanted = ", ".join(f"i32 {i}" for i in order)
        return f.let(f"shufflevector {self.vector} {a}, {self.vector} {b}, <{self.lanes} x i32> <{wanted}>")

    def _within(self, f: Function, xs: list[str]) -> list[str]:
        """As many vectors as a block has elements, every block transposed: runs ever twice as long are interleaved."""
        block, run = len(xs), 1
        while run < block:
            low, high = (
                [
                    which * self.lanes + first + start + i
                    for first in range(0, self.lanes, block)
                    for start in range(half, half + block // 2, run)
                    for which in (0, 1)
                    for i in range(run)
                ]
                for half in (0, block // 2)
            )
            out = list(xs)
            for first in range(0, block, 2 * run):
                for i in range(run):
                    a, b = xs[first + i], xs[first + run + i]
                    out[first + 2 * i] = self._shuffled(f, a, b, low)
                    out[first + 2 * i + 1] = self._shuffled(f, a, b, high)
            xs, run = out, 2 * run
        return xs

    def _apart(self, f: Function, xs: list[str], block: int) -> list[str]:
        """Vectors of as many blocks each: the first blocks of all, the second ones, ..."""
        if len(xs) == 1:
            return xs
        starts = range(0, 2 * self.lanes, 2 * block)
        even = [first + i for first in starts for i in range(block)]
        odd = [block + i for i in even]
        pairs = list(zip(xs[::2], xs[1::2], strict=True))
        first, second = (self._apart(f, [self._shuffled(f, a, b, o) for a, b in pairs], block) for o in (even, odd))
        return [x for both in zip(first, second, strict=True) for x in both]
