"""The LLVM IR of attention of bfloat16 by AMX: as attention_ir.py, its products by registers of 16 x 16 sums.

    scores   s[key, query] = sum over d of k[key, d] * q[query, d]      16 keys of k, where they lie, by pairs of q
    weights  m, l, w as there, of by * s; w is rounded to bfloat16, and two neighbours along the keys are a pair
    result   o[e, query] = o * exp(old m - m) + sum over keys of v[key, e] * w[key, query]    v transposed by pairs

q is transposed by pairs once a unit, and v once a block of keys. Keys that are no 16 are copied first, so nothing is
read behind them; what is behind the last pairs of w and v are zeros. Sums of weights are of those that are not rounded.
o is rounded at its end, and l is float32.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.looptext import Function
from lazyt.backends.cpu.library import gemm_amx
from lazyt.backends.cpu.library.attention_ir import Forward
from lazyt.backends.cpu.library.attention_tile import KEYS_PACKED, PANELS, SCORES, VALUES
from lazyt.backends.cpu.library.attention_tiles_writer import FLOAT32, Tiles
from lazyt.backends.math.vector import Vec, where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.cpu.library.gemm_tile import Tile


class _Forward(Tiles, Forward):
    PARAMS = (
        "ptr %q, ptr %o, ptr %state, ptr %s, ptr %t, ptr %k, i64 %k_row, ptr %v, ptr %w, ptr %rest, "
        "i64 %keys, i64 %d, i64 %e, i1 %more, i64 %ahead, float %by"
    )

    def step(self, nv: int) -> None:
        f = Function()
        exp = self.rules["exp"]
        f.line("%last.key = sub i64 %keys, 1")
        self.scores(f, nv, "%s", "%k", "%k_row", "%d", "%q")
        by = self.hide_scaled(f, nv)
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
                self.store(f, self.pair(self.rounded(x), self.rounded(y)), a)
                pair.next.append((self.vec(f, held) + x + y).name)
        odd = f.let("and i64 %keys, 1")
        end = f.let(f"add i64 {pairs}, {odd}")
        with f.loop(pairs, end, "1", [(self.vector, x) for x in pair.carried]) as last:
            for a, x, held in zip(self.row(f, "%w", last.index, nv), weights("%last.key"), last.carried, strict=True):
                self.store(f, self.pair(self.rounded(x), None), a)
                last.next.append((self.vec(f, held) + x).name)
        packed = self.zeros_behind(f, "%w", end, nv)
        for at, x in zip(self.part(f, "%state", 0, nv), found, strict=True):
            self.store(f, x, at)
        for at, scale, part in zip(self.part(f, "%state", 1, nv), scales, last.carried, strict=True):
            self.store(f, self.load(f, at) * scale + self.vec(f, part), at)
        with f.when(f.let("icmp ne ptr %o, null")):
            with f.when("%more"):
                self.scaled(f, scales, nv)
            self.results(f, nv, "%o", "%e", "%v", "%w", packed)
        f.line("ret void")
        self.add(f, f"define internal void @step.{nv}({self.PARAMS}) nounwind noinline {{\nentry:\n{f.text()}\n}}")

    # What the driver asks for

    def begin(self, f: Function, arg: dict[str, str]) -> None:
        areas = ("qt", PANELS), ("s", SCORES), ("t", SCORES), ("st", PANELS), ("w", SCORES), ("rest", KEYS_PACKED)
        self.areas(f, arg, (*areas, ("pairs", SCORES * 4), ("vt", VALUES)))
        gemm_amx.begin(f)

    def take_queries(self, f: Function, arg: dict[str, str], source: str, left: str, width: str, target: str) -> None:
        f.line(f"call void @transpose.pairs(ptr {source}, i64 {arg['q_row']}, i64 {arg['d']}, i64 {left}, "
               f"i64 {width}, ptr {target})")  # fmt: skip

    def take_values(self, f: Function, arg: dict[str, str], source: str, keys: str) -> None:
        f.line(f"call void @turned(ptr {source}, i64 {arg['v_row']}, i64 {keys}, i64 {arg['e']}, ptr %pairs, ptr %vt)")

    def own_arguments(self, arg: dict[str, str], v: str) -> tuple[str, str]:
        return "ptr %vt, ptr %w, ptr %rest", f", float {arg['by']}"

    def give_results(self, f: Function, arg: dict[str, str], ot: str, left: str, out: str) -> None:
        # NOTE: no values are packed any more, so where their pairs were is free.
        e = arg["e"]
        f.line(f"call void @transpose.back(ptr {ot}, i64 {left}, i64 {e}, ptr %pairs, i64 {e})")
        count = f.let(f"mul i64 {left}, {e}")
        with f.loop("0", count, str(self.lanes)) as at:
            x = self.rounded(self.load(f, f.at("float", "%pairs", at.index))) >> 16
            half = x.convert("trunc", self.stored)
            f.line(f"store <{self.lanes} x i16> {half.name}, ptr {f.at('i16', out, at.index)}, align 2")


@cache
def tiles_text(tile: Tile, mask: str, used: Sequence[int]) -> tuple[str, str]:
    """The module of attention of bfloat16 for a kind of mask and panels of so many vectors, and its name."""
    w = _Forward(FLOAT32, tile, mask, tuple(used))
    w.shapes()
    for nv in used:
        w.step(nv)
    w.finish()
    w.packing()
    w.steps()
    w.driver("lazyt_attention")
    return w.module("lazyt_attention")
