"""What attention of bfloat16 by AMX, and its gradient, are written with: products by registers of 16 x 16 sums.

A panel of queries has four registers side by side. A register adds up 32 features, keys or queries at a time: pairs of
one operand, which lie beside each other, by pairs of the other, which lie as words below each other (gemm_amx.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.cpu.codegen.looptext import Function
from lazyt.backends.cpu.codegen.source import Source
from lazyt.backends.cpu.codegen.text import mem_type
from lazyt.backends.cpu.codegen.transpose import Transposer
from lazyt.backends.cpu.library import gemm_amx
from lazyt.backends.cpu.library.attention_writer import Writer
from lazyt.backends.cpu.library.gemm_amx import SIDE, do
from lazyt.backends.math import casts
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from lazyt.backends.math.vector import Vec

FLOAT32 = np.dtype(np.float32)
HALF = Source(dtypes.bfloat16, dtypes.bfloat16)
# Elements of a row of a register: pairs.
LONG = 2 * SIDE
# Where the registers have the operands of products. Sums come before.
_A, _B = 4, 5


class Tiles(Writer):
    """Of float32, with operands that are bfloat16 in memory."""

    stored = mem_type(dtypes.bfloat16)

    def end(self, f: Function) -> None:
        gemm_amx.end(f)

    @property
    def row_bytes(self) -> int:
        """From row to row of a panel."""
        return 4 * self.panel

    # Elements

    def rounded(self, x: Vec) -> Vec:
        """The nearest bfloat16, as the upper half of a word."""
        return casts.rounded(x, dtypes.bfloat16).as_int()

    def pair(self, low: Vec, high: Vec | None) -> Vec:
        """Two that are rounded as one word: the first in its lower half."""
        found = (low >> 16) & 0xFFFF
        return (found if high is None else found | high).as_float()

    def hide_scaled(self, f: Function, nv: int) -> Vec:
        """Hide what is not seen of %s; what its elements are still to be multiplied by: those that hide are already."""
        hides = "true" if self.mask else f.let("icmp slt i64 %ahead, %last.key")
        every = self.splat(f, "%by")
        with f.when(hides), f.loop("0", "%keys", "1") as key:
            for a in self.row(f, "%s", key.index, nv):
                self.store(f, self.load(f, a) * every, a)
        self.hide(f, nv)
        return self.splat(f, f.let(f"select i1 {hides}, float 1.0, float %by"))

    def zeros_behind(self, f: Function, weights: str, end: str, nv: int) -> str:
        """Fill weights with zeros from pair `end` on, to whole registers; how many times 32 keys these are."""
        packed = f.let(f"udiv i64 {f.let(f'add i64 %keys, {LONG - 1}')}, {LONG}")
        with f.loop(end, f.let(f"mul i64 {packed}, {SIDE}"), "1") as row:
            for a in self.row(f, weights, row.index, nv):
                f.line(f"store {self.vector} zeroinitializer, ptr {a}, align 4")
        return packed

    # Products

    def scores(self, f: Function, nv: int, to: str, lines: str, row: str, features: str, panel: str) -> None:
        """to[key, query]: products of all keys' lines by the queries of a panel, which lie by pairs of features."""
        k_step, size = f.let(f"shl i64 {row}, 1"), f.let(f"shl i64 {features}, 1")
        steps = f.let(f"udiv i64 {features}, {LONG}")
        with f.loop("0", "%keys", str(SIDE)) as rows:
            here = f.at("i16", lines, f.let(f"mul i64 {rows.index}, {row}"))
            left = f.let(f"sub i64 %keys, {rows.index}")
            whole = f.let(f"icmp sge i64 {left}, {SIDE}")
            # Keys that are no 16 lie in %rest, as far apart as they are long.
            first = f.let(f"select i1 {whole}, ptr {here}, ptr %rest")
            step = f.let(f"select i1 {whole}, i64 {k_step}, i64 {size}")
            with f.when(f.let(f"xor i1 {whole}, true")), f.loop("0", left, "1") as line:
                source = f.at("i16", here, f.let(f"mul i64 {line.index}, {row}"))
                target = f.at("i8", "%rest", f.let(f"mul i64 {line.index}, {size}"))
                f.body.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
                f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)")
            self.clear(f, nv)
            with f.loop("0", steps, "1") as part:
                a = f.at("i8", first, f.let(f"mul i64 {part.index}, {2 * LONG}"))
                b = f.at("float", panel, f.let(f"mul i64 {part.index}, {SIDE * self.panel}"))
                self.multiply(f, a, step, b, str(self.row_bytes), nv)
            self.put(f, f.at("float", to, f.let(f"mul i64 {rows.index}, {self.panel}")), str(self.row_bytes), nv)

    def results(self, f: Function, nv: int, to: str, features: str, turned: str, weights: str, packed: str) -> None:
        """to[feature, query]: turned features times weights are added to it, or are it where there are no %more.

        packed: how many times 32 keys there are.
        """
        step = str(self.row_bytes)
        with f.loop("0", features, str(SIDE)) as rows:
            here = f.at("float", to, f.let(f"mul i64 {rows.index}, {self.panel}"))
            with f.when("%more"):
                self.take(f, here, step, nv)
            with f.when(f.let("xor i1 %more, true")):
                self.clear(f, nv)
            with f.loop("0", packed, "1") as part:
                row = f.at("float", turned, f.let(f"mul i64 {rows.index}, {self.panel}"))
                a = f.at("float", row, f.let(f"mul i64 {part.index}, {SIDE}"))
                b = f.at("float", weights, f.let(f"mul i64 {part.index}, {SIDE * self.panel}"))
                self.multiply(f, a, step, b, step, nv)
            self.put(f, here, step, nv)

    def clear(self, f: Function, nv: int) -> None:
        for v in range(nv):
            do(f, "tilezero", f"i8 {v}")

    def take(self, f: Function, source: str, step: str, nv: int) -> None:
        for v in range(nv):
            do(f, "tileloadd64", f"i8 {v}", f"ptr {f.at('float', source, str(SIDE * v))}", f"i64 {step}")

    def multiply(self, f: Function, a: str, a_step: str, b: str, b_step: str, nv: int) -> None:
        do(f, "tileloadd64", f"i8 {_A}", f"ptr {a}", f"i64 {a_step}")
        for v in range(nv):
            register = _B + v % 3
            do(f, "tileloadd64", f"i8 {register}", f"ptr {f.at('float', b, str(SIDE * v))}", f"i64 {b_step}")
            do(f, "tdpbf16ps", f"i8 {v}", f"i8 {_A}", f"i8 {register}")

    def put(self, f: Function, to: str, step: str, nv: int) -> None:
        for v in range(nv):
            do(f, "tilestored64", f"i8 {v}", f"ptr {f.at('float', to, str(SIDE * v))}", f"i64 {step}")

    # Packed operands

    def lines_of_pairs(self) -> None:
        """`@pairs(from, row_step, lines, features, to)`: pairs of lines as words below each other, zeros behind them.

        There are so many as registers of 16 take. Returns their number.
        """
        f = Function()
        half, word = f"<{self.lanes} x i16>", f"<{self.lanes} x i32>"
        above = f.let(f"add i64 %lines, {LONG - 1}")
        rows = f.let(f"mul i64 {f.let(f'udiv i64 {above}, {LONG}')}, {SIDE}")
        zeros = f.let(f"alloca {half}, align 32")
        f.line(f"store {half} zeroinitializer, ptr {zeros}, align 32")
        with f.loop("0", rows, "1") as pair:
            both = []
            for i in range(2):
                number = f.let(f"add i64 {f.let(f'shl i64 {pair.index}, 1')}, {i}")
                there = f.let(f"icmp slt i64 {number}, %lines")
                both.append((there, f.at("i16", "%from", f.let(f"mul i64 {number}, %row_step"))))
            to = f.at("float", "%to", f.let(f"mul i64 {pair.index}, %features"))
            with f.loop("0", "%features", str(self.lanes)) as at:
                words = []
                for there, line in both:
                    place = f.let(f"select i1 {there}, ptr {f.at('i16', line, at.index)}, ptr {zeros}")
                    x = f.let(f"load {half}, ptr {place}, align 2")
                    words.append(f.let(f"zext {half} {x} to {word}"))
                high = f.let(f"shl {word} {words[1]}, splat (i32 16)")
                x = f.let(f"or {word} {words[0]}, {high}")
                f.line(f"store {word} {x}, ptr {f.at('float', to, at.index)}, align 4")
        f.line(f"ret i64 {rows}")
        params = "ptr %from, i64 %row_step, i64 %lines, i64 %features, ptr %to"
        self.add(f, f"define internal i64 @pairs({params}) nounwind noinline {{\nentry:\n{f.text()}\n}}")

    def turned_pairs(self) -> None:
        """`@turned(from, row_step, lines, features, pairs, to)`: to[feature] has the pairs of lines of `pairs`."""
        f = Function()
        rows = f.let("call i64 @pairs(ptr %from, i64 %row_step, i64 %lines, i64 %features, ptr %pairs)")
        f.line(f"call void @transpose(ptr %pairs, i64 %features, i64 %features, i64 {rows}, i64 {rows}, ptr %to)")
        f.line("ret void")
        params = "ptr %from, i64 %row_step, i64 %lines, i64 %features, ptr %pairs, ptr %to"
        self.add(f, f"define internal void @turned({params}) nounwind noinline {{\nentry:\n{f.text()}\n}}")

    def packing(self) -> None:
        """The functions that pack operands; queries lie by pairs of features: `@transpose.pairs`, as `@transpose`."""
        self.transposes()
        self.transpose_of("transpose.pairs", Transposer(self.dtype, self.lanes, HALF, pairs=True), self.stored)
        self.lines_of_pairs()
        self.turned_pairs()

    def shapes(self) -> None:
        """What `gemm_amx.begin` reads."""
        self.texts.append(gemm_amx.whole_shape())
