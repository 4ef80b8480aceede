"""The LLVM IR of attention of bfloat16 by AMX: as attention_ir.py, its products by registers of 16 x 16 sums.

    scores   s[key, query] = sum over d of k[key, d] * q[query, d]      16 keys of k, where they lie, by pairs of q
    weights  m, l, w as there, of by * s; w is rounded to bfloat16, and two neighbours along the keys are a pair
    result   o[e, query] = o * exp(old m - m) + sum over keys of v[key, e] * w[key, query]    v transposed by pairs

q is transposed by pairs once a unit, and v once a block of keys. Keys that are no 16 are copied first, so nothing is
read behind them; what is behind the last pairs of w and v are zeros. Each register adds up 32 features, or keys, after
another: see gemm_amx.py. Sums of weights are of those that are not rounded. o is rounded at its end, and l is float32.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.cpu.codegen.looptext import Function
from lazyt.backends.cpu.codegen.source import Source
from lazyt.backends.cpu.codegen.text import mem_type
from lazyt.backends.cpu.codegen.transpose import Transposer
from lazyt.backends.cpu.library import gemm_amx
from lazyt.backends.cpu.library.attention_ir import Forward
from lazyt.backends.cpu.library.attention_tile import KEYS_PACKED, PANELS, SCORES, VALUES
from lazyt.backends.cpu.library.gemm_amx import SIDE, do
from lazyt.backends.math import casts
from lazyt.backends.math.elements import BFLOAT16
from lazyt.backends.math.vector import Vec, where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.cpu.library.gemm_tile import Tile

FLOAT32 = np.dtype(np.float32)
HALF = Source(BFLOAT16, BFLOAT16)
# Elements of a row of a register: pairs.
LONG = 2 * SIDE
# Where the registers have sums, and the operands of products.
_A, _B = 4, 5


class _Tiles(Forward):
    PARAMS = (
        "ptr %q, ptr %o, ptr %state, ptr %s, ptr %t, ptr %k, i64 %k_row, ptr %v, ptr %w, ptr %rest, "
        "i64 %keys, i64 %d, i64 %e, i1 %more, i64 %ahead, float %by"
    )

    @property
    def row_bytes(self) -> int:
        """From row to row of a panel."""
        return 4 * self.panel

    def step(self, nv: int) -> None:
        f = Function()
        exp = self.rules["exp"]
        f.line("%last.key = sub i64 %keys, 1")
        self._scores(f, nv)
        hides = "true" if self.mask else f.let("icmp slt i64 %ahead, %last.key")
        every = self.splat(f, "%by")
        with f.when(hides), f.loop("0", "%keys", "1") as key:
            for a in self.row(f, "%s", key.index, nv):
                self.store(f, self.load(f, a) * every, a)
        self.hide(f, nv)
        # What was multiplied to be hidden is not multiplied again.
        by = self.splat(f, f.let(f"select i1 {hides}, float 1.0, float %by"))
        tops = [self.load(f, a) for a in self.part(f, "%state", 0, nv)]
        with f.loop("0", "%keys", "1", [(self.vector, x.name) for x in tops]) as key:
            for a, held in zip(self.row(f, "%s", key.index, nv), key.carried, strict=True):
                x, top = self.load(f, a) * by, self.vec(f, held)
                key.next.append(where(x > top, x, top).name)
        found = [self.vec(f, x) for x in key.carried]
        safe = [where(x.eq(-math.inf), 0.0, x) for x in found]
        scales = [exp(old - new) for old, new in zip(tops, safe, strict=True)]

        def weights(key: str) -> list[Vec]:
            return [exp(self.load(f, a) * by - top) for a, top in zip(self.row(f, "%s", key, nv), safe, strict=True)]

        pairs = f.let("lshr i64 %keys, 1")
        with f.loop("0", pairs, "1", [(self.vector, "zeroinitializer")] * nv) as pair:
            first = f.let(f"shl i64 {pair.index}, 1")
            both = weights(first), weights(f.let(f"add i64 {first}, 1"))
            for a, x, y, held in zip(self.row(f, "%w", pair.index, nv), *both, pair.carried, strict=True):
                self.store(f, self.pair(x, y), a)
                pair.next.append((self.vec(f, held) + x + y).name)
        odd = f.let("and i64 %keys, 1")
        with f.loop(pairs, f.let(f"add i64 {pairs}, {odd}"), "1", [(self.vector, x) for x in pair.carried]) as last:
            for a, x, held in zip(self.row(f, "%w", last.index, nv), weights("%last.key"), last.carried, strict=True):
                self.store(f, self.pair(x, None), a)
                last.next.append((self.vec(f, held) + x).name)
        packed = f.let(f"udiv i64 {f.let(f'add i64 %keys, {LONG - 1}')}, {LONG}")
        with f.loop(f.let(f"add i64 {pairs}, {odd}"), f.let(f"mul i64 {packed}, {SIDE}"), "1") as row:
            for a in self.row(f, "%w", row.index, nv):
                f.line(f"store {self.vector} zeroinitializer, ptr {a}, align 4")
        for at, x in zip(self.part(f, "%state", 0, nv), found, strict=True):
            self.store(f, x, at)
        for at, scale, part in zip(self.part(f, "%state", 1, nv), scales, last.carried, strict=True):
            self.store(f, self.load(f, at) * scale + self.vec(f, part), at)
        with f.when(f.let("icmp ne ptr %o, null")):
            with f.when("%more"):
                self.scaled(f, scales, nv)
            self._results(f, packed, nv)
        f.line("ret void")
        self.add(f, f"define internal void @step.{nv}({self.PARAMS}) nounwind noinline {{\nentry:\n{f.text()}\n}}")

    def pair(self, x: Vec, y: Vec | None) -> Vec:
        """Two rounded, as one word: the first in its lower half."""
        low = (casts.rounded(x, BFLOAT16).as_int() >> 16) & 0xFFFF
        return (low if y is None else low | casts.rounded(y, BFLOAT16).as_int()).as_float()

    def _scores(self, f: Function, nv: int) -> None:
        """%s: products of all keys by the queries of a panel."""
        k_step = f.let("shl i64 %k_row, 1")
        steps = f.let(f"udiv i64 %d, {LONG}")
        with f.loop("0", "%keys", str(SIDE)) as rows:
            here = f.at("i16", "%k", f.let(f"mul i64 {rows.index}, %k_row"))
            left = f.let(f"sub i64 %keys, {rows.index}")
            whole = f.let(f"icmp sge i64 {left}, {SIDE}")
            # Keys that are no 16 lie in %rest, as far apart as they are long.
            first = f.let(f"select i1 {whole}, ptr {here}, ptr %rest")
            step = f.let(f"select i1 {whole}, i64 {k_step}, i64 {f.let('shl i64 %d, 1')}")
            with f.when(f.let(f"xor i1 {whole}, true")):
                size = f.let("shl i64 %d, 1")
                with f.loop("0", left, "1") as row:
                    source = f.at("i16", here, f.let(f"mul i64 {row.index}, %k_row"))
                    to = f.at("i8", "%rest", f.let(f"mul i64 {row.index}, {size}"))
                    f.body.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
                    f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {size}, i1 false)")
            self._clear(f, nv)
            with f.loop("0", steps, "1") as part:
                a = f.at("i8", first, f.let(f"mul i64 {part.index}, {2 * LONG}"))
                b = f.at("float", "%q", f.let(f"mul i64 {part.index}, {SIDE * self.panel}"))
                self._multiply(f, a, step, b, nv)
            to = f.at("float", "%s", f.let(f"mul i64 {rows.index}, {self.panel}"))
            self._put(f, to, nv)

    def _results(self, f: Function, packed: str, nv: int) -> None:
        """%o: values times weights are added to it."""
        with f.loop("0", "%e", str(SIDE)) as rows:
            to = f.at("float", "%o", f.let(f"mul i64 {rows.index}, {self.panel}"))
            with f.when("%more"):
                for v in range(nv):
                    do(f, "tileloadd64", f"i8 {v}", f"ptr {f.at('float', to, str(SIDE * v))}", f"i64 {self.row_bytes}")
            with f.when(f.let("xor i1 %more, true")):
                self._clear(f, nv)
            with f.loop("0", packed, "1") as part:
                row = f.at("float", "%v", f.let(f"mul i64 {rows.index}, {self.panel}"))
                a = f.at("float", row, f.let(f"mul i64 {part.index}, {SIDE}"))
                b = f.at("float", "%w", f.let(f"mul i64 {part.index}, {SIDE * self.panel}"))
                self._multiply(f, a, str(self.row_bytes), b, nv)
            self._put(f, to, nv)

    def _clear(self, f: Function, nv: int) -> None:
        for v in range(nv):
            do(f, "tilezero", f"i8 {v}")

    def _multiply(self, f: Function, a: str, a_step: str, b: str, nv: int) -> None:
        do(f, "tileloadd64", f"i8 {_A}", f"ptr {a}", f"i64 {a_step}")
        for v in range(nv):
            register = _B + v % 3
            do(f, "tileloadd64", f"i8 {register}", f"ptr {f.at('float', b, str(SIDE * v))}", f"i64 {self.row_bytes}")
            do(f, "tdpbf16ps", f"i8 {v}", f"i8 {_A}", f"i8 {register}")

    def _put(self, f: Function, to: str, nv: int) -> None:
        for v in range(nv):
            do(f, "tilestored64", f"i8 {v}", f"ptr {f.at('float', to, str(SIDE * v))}", f"i64 {self.row_bytes}")

    # What the driver asks for

    stored = mem_type(BFLOAT16)

    def begin(self, f: Function, arg: dict[str, str]) -> None:
        areas = ("qt", PANELS), ("s", SCORES), ("t", SCORES), ("st", PANELS), ("w", SCORES), ("rest", KEYS_PACKED)
        self.areas(f, arg, (*areas, ("pairs", SCORES * 4), ("vt", VALUES)))
        gemm_amx.begin(f)

    def end(self, f: Function) -> None:
        gemm_amx.end(f)

    def take_queries(self, f: Function, arg: dict[str, str], source: str, left: str, width: str, target: str) -> None:
        f.line(f"call void @transpose.pairs(ptr {source}, i64 {arg['q_row']}, i64 {arg['d']}, i64 {left}, "
               f"i64 {width}, ptr {target})")  # fmt: skip

    def take_values(self, f: Function, arg: dict[str, str], source: str, keys: str) -> None:
        f.line(f"call void @values(ptr {source}, i64 {arg['v_row']}, i64 {keys}, i64 {arg['e']}, ptr %pairs, ptr %vt)")

    def own_arguments(self, arg: dict[str, str], v: str) -> tuple[str, str]:
        return "ptr %vt, ptr %w, ptr %rest", f", float {arg['by']}"

    def give_results(self, f: Function, arg: dict[str, str], ot: str, left: str, out: str) -> None:
        # NOTE: no values are packed any more, so where their pairs were is free.
        e = arg["e"]
        f.line(f"call void @transpose.back(ptr {ot}, i64 {left}, i64 {e}, ptr %pairs, i64 {e})")
        count = f.let(f"mul i64 {left}, {e}")
        with f.loop("0", count, str(self.lanes)) as at:
            x = casts.rounded(self.load(f, f.at("float", "%pairs", at.index)), BFLOAT16).as_int() >> 16
            half = x.convert("trunc", "i16")
            f.line(f"store <{self.lanes} x i16> {half.name}, ptr {f.at('i16', out, at.index)}, align 2")

    def values(self) -> None:
        """`(from, row_step, keys, features, pairs, to)`: pairs of keys below each other, then transposed."""
        f = Function()
        half, word = f"<{self.lanes} x i16>", f"<{self.lanes} x i32>"
        above = f.let(f"add i64 %keys, {LONG - 1}")
        rows = f.let(f"mul i64 {f.let(f'udiv i64 {above}, {LONG}')}, {SIDE}")
        zeros = self._zeros(f)
        with f.loop("0", rows, "1") as pair:
            lines = []
            for i in range(2):
                key = f.let(f"add i64 {f.let(f'shl i64 {pair.index}, 1')}, {i}")
                there = f.let(f"icmp slt i64 {key}, %keys")
                line = f.at("i16", "%from", f.let(f"mul i64 {key}, %row_step"))
                lines.append((there, line))
            to = f.at("float", "%pairs", f.let(f"mul i64 {pair.index}, %features"))
            with f.loop("0", "%features", str(self.lanes)) as at:
                both = []
                for there, line in lines:
                    place = f.let(f"select i1 {there}, ptr {f.at('i16', line, at.index)}, ptr {zeros}")
                    x = f.let(f"load {half}, ptr {place}, align 2")
                    both.append(f.let(f"zext {half} {x} to {word}"))
                high = f.let(f"shl {word} {both[1]}, splat (i32 16)")
                x = f.let(f"or {word} {both[0]}, {high}")
                f.line(f"store {word} {x}, ptr {f.at('float', to, at.index)}, align 4")
        f.line(f"call void @transpose(ptr %pairs, i64 %features, i64 %features, i64 {rows}, i64 {rows}, ptr %to)")
        f.line("ret void")
        params = "ptr %from, i64 %row_step, i64 %keys, i64 %features, ptr %pairs, ptr %to"
        self.add(f, f"define internal void @values({params}) nounwind noinline {{\nentry:\n{f.text()}\n}}")

    def _zeros(self, f: Function) -> str:
        """A vector of zeros on the stack."""
        zeros = f.let(f"alloca <{self.lanes} x i16>, align 32")
        f.line(f"store <{self.lanes} x i16> zeroinitializer, ptr {zeros}, align 32")
        return zeros

    def pair_transposes(self) -> None:
        self.transpose_of("transpose.pairs", Transposer(self.dtype, self.lanes, HALF, pairs=True), "i16")


@cache
def tiles_text(tile: Tile, mask: str, used: Sequence[int]) -> tuple[str, str]:
    """The module of attention of bfloat16 for a kind of mask and panels of so many vectors, and its name."""
    w = _Tiles(FLOAT32, tile, mask, tuple(used))
    w.texts.append(gemm_amx.whole_shape())
    for nv in used:
        w.step(nv)
    w.finish()
    w.transposes()
    w.pair_transposes()
    w.values()
    w.steps()
    w.driver("lazyt_attention")
    return w.module("lazyt_attention")
