"""The LLVM IR of the gradient of attention of bfloat16 by AMX: as attention_gradient_ir.py, with registers of 16 x 16.

    s[key, query] = sum over d of k[key, d] * q[query, d], w = exp(by * s - l)
    p[key, query] = sum over e of v[key, e] * ct[query, e], s' = w * (p - delta) * by
    dq[d, query] += k[key, d] * s'[key, query]                   k transposed by pairs of keys, s' by pairs of keys
    dk[key, d] += s' @ q;  dv[key, e] += w @ ct                  s' and w as rows, q and ct by pairs of queries

w and s' are rounded to bfloat16 for the last three. q and ct are packed twice, once a group of panels, k once a block
of keys. Keys that are no 16 are copied first, and what is added to their dk and dv is in working memory before: nothing
is read or written behind them. Queries that a panel does not have are zeros in both operands. Gradients are float32.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.looptext import Function
from lazyt.backends.cpu.library import gemm_amx
from lazyt.backends.cpu.library.attention_gradient_ir import Gradient
from lazyt.backends.cpu.library.attention_tile import KEYS, KEYS_PACKED, PANELS_BACK, SCORES, VALUES
from lazyt.backends.cpu.library.attention_tiles_writer import FLOAT32, LONG, Tiles
from lazyt.backends.cpu.library.gemm_amx import SIDE
from lazyt.backends.math.vector import Vec, where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.cpu.library.gemm_tile import Tile

# Registers side by side along features.
WIDE = 4


class _Gradient(Tiles, Gradient):
    # Pairs of s', rows of s' and w, keys that are no 16 and what is added to theirs, and k transposed by pairs.
    working = ", ptr %pairs.s, ptr %rows.s, ptr %rows.w, ptr %rest, ptr %sums, ptr %kt"

    @property
    def line_bytes(self) -> int:
        """Bytes from key to key of the rows of s' and w."""
        return 2 * self.panel

    def step(self, nv: int) -> None:
        """%rows has l and delta, %own.q and %own.g have q and ct by pairs of queries."""
        f = Function()
        f.line("%last.key = sub i64 %keys, 1")
        self.scores(f, nv, "%s", "%k", "%k_row", "%d", "%q")
        self.scores(f, nv, "%p", "%v", "%v_row", "%e", "%g")
        by = self.hide_scaled(f, nv)
        every = self.splat(f, "%by")
        logs = [self.load(f, a) for a in self.part(f, "%rows", 0, nv)]
        deltas = [self.load(f, a) for a in self.part(f, "%rows", 1, nv)]
        there = [Vec(f.body, self.taken(f, "%queries", v), "i1", self.lanes) for v in range(nv)]

        def slopes(key: str) -> list[Vec]:
            """Those of a key, rounded; they and its weights are rows."""
            found = []
            ats = zip(self.row(f, "%s", key, nv), self.row(f, "%p", key, nv), logs, deltas, strict=True)
            for v, (s, p, log, delta) in enumerate(ats):
                w = self.rules["exp"](self.load(f, s) * by - log)
                slope = self.rounded(w * (self.load(f, p) - delta) * every)
                self._give(f, "%rows.w", key, v, where(there[v], self.rounded(w), 0))
                self._give(f, "%rows.s", key, v, where(there[v], slope, 0))
                found.append(slope)
            for v in range(nv, self._whole(nv)):
                for rows in ("%rows.w", "%rows.s"):
                    self._give(f, rows, key, v, found[0] & 0)
            return found

        pairs, odd = f.let("lshr i64 %keys, 1"), f.let("and i64 %keys, 1")
        with f.loop("0", pairs, "1") as pair:
            first = f.let(f"shl i64 {pair.index}, 1")
            both = slopes(first), slopes(f.let(f"add i64 {first}, 1"))
            for a, x, y in zip(self.row(f, "%pairs.s", pair.index, nv), *both, strict=True):
                self.store(f, self.pair(x, y), a)
        with f.when(f.let(f"icmp ne i64 {odd}, 0")):
            for a, x in zip(self.row(f, "%pairs.s", pairs, nv), slopes("%last.key"), strict=True):
                self.store(f, self.pair(x, None), a)
        packed = self.zeros_behind(f, "%pairs.s", f.let(f"add i64 {pairs}, {odd}"), nv)
        self.results(f, nv, "%dq", "%d", "%kt", "%pairs.s", packed)
        for to, features, rows, own in (("%dk", "%d", "%rows.s", "%own.q"), ("%dv", "%e", "%rows.w", "%own.g")):
            with f.when(f.let(f"icmp ne ptr {to}, null")), f.loop("0", "%keys", str(SIDE)) as key:
                self._add_to_keys(f, nv, key.index, (to, features), rows, own)
        f.line("ret void")
        params = f"{self.PARAMS}float %by{self.working}"
        self.add(f, f"define internal void @step.{nv}({params}) nounwind noinline {{\nentry:\n{f.text()}\n}}")

    def _whole(self, nv: int) -> int:
        """The vectors of the registers that hold so many, of pairs along a row."""
        return -(-nv * self.lanes // LONG) * (LONG // self.lanes)

    def _give(self, f: Function, rows: str, key: str, v: int, x: Vec) -> None:
        """Store the rounded numbers x as a vector of a row."""
        half = f"<{self.lanes} x {self.stored}>"
        at = f.at("i8", rows, f.let(f"add i64 {f.let(f'mul i64 {key}, {self.line_bytes}')}, {2 * v * self.lanes}"))
        f.line(f"store {half} {(x >> 16).convert('trunc', self.stored).name}, ptr {at}, align 2")

    def _add_to_keys(self, f: Function, nv: int, key: str, gradient: tuple[str, str], rows: str, own: str) -> None:
        """Add rows of 16 keys times queries, by pairs in %own, to a gradient of so many features."""
        to, features = gradient
        left = f.let(f"sub i64 %keys, {key}")
        whole = f.let(f"icmp sge i64 {left}, {SIDE}")
        lines = f.at("i8", rows, f.let(f"mul i64 {key}, {self.line_bytes}"))
        here = f.at("float", to, f.let(f"mul i64 {key}, {features}"))
        first, step = f.let(f"select i1 {whole}, ptr {here}, ptr %sums"), f.let(f"shl i64 {features}, 2")
        rest = f.let(f"and i64 {features}, {SIDE * WIDE - 1}")
        even = f.let(f"sub i64 {features}, {rest}")
        for begin, end, wide in (("0", even, WIDE), (even, features, LONG // SIDE)):
            with f.loop(begin, end, str(SIDE * wide)) as column:
                there = f.at("float", first, column.index)
                with f.when(whole):
                    self.take(f, there, step, wide)
                with f.when(f.let(f"xor i1 {whole}, true")):
                    self.clear(f, wide)
                for part in range(self._whole(nv) * self.lanes // LONG):
                    a = f.at("i8", lines, str(2 * LONG * part))
                    b = f.at(
                        "float", own, f.let(f"add i64 {f.let(f'mul i64 {features}, {SIDE * part}')}, {column.index}")
                    )
                    self.multiply(f, a, str(self.line_bytes), b, step, wide)
                self.put(f, there, step, wide)
        with f.when(f.let(f"xor i1 {whole}, true")):
            count = f.let(f"mul i64 {left}, {features}")
            with f.loop("0", count, str(self.lanes)) as at:
                place = f.at("float", here, at.index)
                self.store(f, self.load(f, place) + self.load(f, f.at("float", "%sums", at.index)), place)

    # What the driver asks for

    def begin(self, f: Function, arg: dict[str, str]) -> None:
        areas = ("st", PANELS_BACK), ("s", SCORES), ("p", SCORES), ("t", SCORES), ("pairs.s", SCORES)
        rows = KEYS * self.line_bytes
        own = ("rows.s", rows), ("rows.w", rows), ("rest", KEYS_PACKED), ("sums", SCORES)
        self.areas(f, arg, (*areas, *own, ("pairs.k", SCORES * 2), ("kt", VALUES)))
        gemm_amx.begin(f)

    def layout(self, f: Function, arg: dict[str, str]) -> dict[str, str]:
        """q and ct by pairs of features, dq, then q and ct by pairs of queries."""
        half = {x: f.let(f"mul i64 {arg[x]}, {self.panel // 2}") for x in "de"}
        sizes = {"q": half["d"], "g": half["e"], "dq": f.let(f"mul i64 {arg['d']}, {self.panel}")}
        found, at = {}, str(2 * self.panel)
        for x, size in (sizes | {"own.q": half["d"], "own.g": half["e"]}).items():
            found[x], at = at, f.let(f"add i64 {at}, {size}")
        return {**found, "whole": at}

    def take_queries(
        self, f: Function, arg: dict[str, str], at: dict[str, str], sources: dict[str, str], left: str, width: str
    ) -> None:
        for x, features in (("q", arg["d"]), ("g", arg["e"])):
            row = arg[f"{x}_row"]
            f.line(f"call void @transpose.pairs(ptr {sources[x]}, i64 {row}, i64 {features}, i64 {left}, "
                   f"i64 {width}, ptr {at[x]})")  # fmt: skip
            f.let(f"call i64 @pairs(ptr {sources[x]}, i64 {row}, i64 {left}, i64 {features}, ptr {at[f'own.{x}']})")

    def take_keys(self, f: Function, arg: dict[str, str], source: str, keys: str) -> None:
        f.line(
            f"call void @turned(ptr {source}, i64 {arg['k_row']}, i64 {keys}, i64 {arg['d']}, ptr %pairs.k, ptr %kt)"
        )

    def own_rows(self, arg: dict[str, str], at: dict[str, str], sources: dict[str, str]) -> str:
        return f"ptr {at['own.q']}, i64 {arg['d']}, ptr {at['own.g']}, i64 {arg['e']}"


@cache
def tiles_gradient_text(tile: Tile, mask: str, used: Sequence[int]) -> tuple[str, str]:
    """The module of the gradient of attention of bfloat16 for a kind of mask and panels of so many vectors."""
    w = _Gradient(FLOAT32, tile, mask, tuple(used))
    w.shapes()
    for nv in used:
        w.step(nv)
    w.packing()
    w.steps()
    w.driver("lazyt_attention_gradient")
    return w.module("lazyt_attention_gradient")
