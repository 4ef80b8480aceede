"""What attention and its gradient are written with: products, transposed matrices, units, masks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.common.attention import FIELDS, HEAD, OPERANDS, POINTERS, STEP
from lazyt.backends.cpu.codegen.looptext import Function, named, suffix_of
from lazyt.backends.cpu.codegen.text import mem_type
from lazyt.backends.cpu.codegen.transpose import Transposer
from lazyt.backends.cpu.library.attention_tile import HEIGHTS, KEYS, SCORES, widths
from lazyt.backends.cpu.library.gemm_micro import Micro
from lazyt.backends.cpu.workspace import PARAMETERS, workspace_of
from lazyt.backends.math.table import RULES
from lazyt.backends.math.vector import Vec, constant, where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.cpu.library.gemm_tile import Tile

# How many queries ahead of the keys a panel is where all are seen.
FAR = 1 << 62


class _Micro(Micro):
    """A micro-kernel of a product; both forms are in one module."""

    @property
    def name(self) -> str:
        return f"{self.form}.{super().name}"


class _Transpose:
    """Transposes matrices, group by group of as many lines as a vector has lanes."""

    def __init__(self, transposer: Transposer, tile: Tile, stored: str) -> None:
        """stored: an element of the lines."""
        self.tile, self.stored, self.element = tile, stored, transposer.element
        self.f = Function()
        self.transposer = transposer
        self.workspace = self.transposer.allocate(self.f)

    def inward(self, name: str) -> str:
        """`(from, row_step, depth, lines, width, to)`: to[k][j] = from[j][k], the last line up to `width` times."""
        f, e = self.f, self.element
        with f.loop("0", "%width", str(self.tile.lanes)) as group:
            lines = self._lines(group.index, "%lines", "%row_step")
            out = f.at(e, "%to", group.index)
            self.transposer.call(f, lines, "%depth", str(self.tile.lanes), out, str(self.tile.columns), self.workspace)
        return self._function(name, "ptr %from, i64 %row_step, i64 %depth, i64 %lines, i64 %width, ptr %to")

    def outward(self, name: str) -> str:
        """`(from, queries, features, to, to_row)`: to[query][feature] = from[feature][query]"""
        f, e = self.f, self.element
        with f.loop("0", "%features", str(self.tile.lanes)) as group:
            lines = self._lines(group.index, "%features", str(self.tile.columns))
            left = f.let(f"sub i64 %features, {group.index}")
            self.transposer.call(f, lines, "%queries", left, f.at(e, "%to", group.index), "%to_row", self.workspace)
        return self._function(name, "ptr %from, i64 %queries, i64 %features, ptr %to, i64 %to_row")

    def _lines(self, first: str, count: str, step: str) -> list[str]:
        f = self.f
        end = f.let(f"sub i64 {count}, 1")
        numbers = [f.smin(f.let(f"add i64 {first}, {r}"), end) for r in range(self.tile.lanes)]
        return [f.at(self.stored, "%from", f.let(f"mul i64 {n}, {step}")) for n in numbers]

    def _function(self, name: str, params: str) -> str:
        self.f.line("ret void")
        return f"define internal void @{name}({params}) nounwind noinline {{\nentry:\n{self.f.text()}\n}}"


class Writer:
    """The functions of one module: for a dtype, a mask that is 'bool', 'add' or '', and panels of `used` vectors."""

    def __init__(self, dtype: np.dtype, tile: Tile, mask: str, used: tuple[int, ...]) -> None:
        self.dtype, self.tile, self.mask, self.used = dtype, tile, mask, used
        self.element, self.lanes, self.panel = mem_type(dtype), tile.lanes, tile.columns
        self.vector = f"<{tile.lanes} x {self.element}>"
        self.rules = RULES[dtype]
        self.texts: list[str] = []
        self.declared: set[str] = set()

    @property
    def widths(self) -> list[int]:
        """The vectors of a panel that there may be code for."""
        return widths(self.tile)

    def add(self, f: Function, text: str) -> None:
        self.texts.append(text)
        self.declared |= set(f.body.module.text().splitlines())

    # Products

    def product(self, form: str, nv: int, tail: bool = False) -> None:
        """`@form.nv(k, a, a stride, b, b stride, c, c stride, rows, add, last)`: all rows of a panel."""
        tallest, *others = self.tile.heights(nv)
        heights = (tallest, *(h for h in others if h in HEIGHTS))
        micros = {h: _Micro(self.dtype, self.tile, form, h, nv, tail) for h in heights}
        for m in micros.values():
            self.add(m.f, m.text())
        name = f"{form}.{nv}{'.tail' if tail else ''}"
        fitting = [max(h for h in heights if h <= left or h == 1) for left in range(heights[0] + 1)]
        names = ", ".join(f"ptr @{micros[h].name}" for h in fitting)
        steps = ", ".join(f"i64 {h}" for h in fitting)
        self.texts.append(f"@micros.{name} = internal constant [{len(fitting)} x ptr] [{names}]")
        self.texts.append(f"@heights.{name} = internal constant [{len(fitting)} x i64] [{steps}]")
        f, e = Function(), self.element
        with f.loop("0", "%m", "1") as row:
            left = f.smin(f.let(f"sub i64 %m, {row.index}"), str(heights[0]))
            micro = f.load("ptr", f.at("ptr", f"@micros.{name}", left))
            row.step = f.load("i64", f.at("i64", f"@heights.{name}", left))
            a = f.at(e, "%a", f.let(f"mul i64 {row.index}, %as") if form == "row" else row.index)
            c = f.at(e, "%c", f.let(f"mul i64 {row.index}, %cs"))
            f.line(
                f"call void {micro}(i64 %k, ptr {a}, i64 %as, ptr %b, i64 %bs, ptr {c}, i64 %cs, i1 %add, i64 %last)"
            )
        f.line("ret void")
        params = "i64 %k, ptr %a, i64 %as, ptr %b, i64 %bs, ptr %c, i64 %cs, i64 %m, i1 %add, i64 %last"
        self.add(f, f"define internal void @{name}({params}) nounwind noinline {{\nentry:\n{f.text()}\n}}")

    # Elements

    def load(self, f: Function, at: str) -> Vec:
        x = f.let(f"load {self.vector}, ptr {at}, align {self.dtype.itemsize}")
        return Vec(f.body, x, self.element, self.lanes)

    def store(self, f: Function, x: Vec, at: str) -> None:
        f.line(f"store {self.vector} {x.name}, ptr {at}, align {self.dtype.itemsize}")

    def row(self, f: Function, base: str, index: str, nv: int) -> list[str]:
        """The addresses of the vectors of a row of a panel."""
        at = f.at(self.element, base, f.let(f"mul i64 {index}, {self.panel}"))
        return self.part(f, at, 0, nv)

    def part(self, f: Function, base: str, which: int, nv: int) -> list[str]:
        return [f.at(self.element, base, str(which * self.panel + v * self.lanes)) for v in range(nv)]

    def vec(self, f: Function, name: str) -> Vec:
        return Vec(f.body, name, self.element, self.lanes)

    def splat(self, f: Function, x: str) -> Vec:
        """A number in every lane."""
        one = f.let(f"insertelement {self.vector} poison, {self.element} {x}, i32 0")
        zero = f"<{self.lanes} x i32> zeroinitializer"
        return self.vec(f, f.let(f"shufflevector {self.vector} {one}, {self.vector} poison, {zero}"))

    def hide(self, f: Function, nv: int) -> None:
        """What is not seen of %s goes to -inf: keys behind a query, then what the mask %t says."""
        low = constant(self.vec(f, ""), -math.inf)
        hidden = f.let("icmp slt i64 %ahead, %last.key")
        with f.when(hidden):
            number = f.let("trunc i64 %ahead to i32")
            own = []
            for v in range(nv):
                lanes = ", ".join(f"i32 {v * self.lanes + i}" for i in range(self.lanes))
                first = self._splat32(f, number)
                own.append(f.let(f"add <{self.lanes} x i32> {first}, <{lanes}>"))
            with f.loop("0", "%keys", "1") as key:
                at = self._splat32(f, f.let(f"trunc i64 {key.index} to i32"))
                for v, a in enumerate(self.row(f, "%s", key.index, nv)):
                    seen = f.let(f"icmp sge <{self.lanes} x i32> {own[v]}, {at}")
                    self.store(f, where(Vec(f.body, seen, "i1", self.lanes), self.load(f, a), low), a)
        if not self.mask:
            return
        kind = "i8" if self.mask == "bool" else self.element
        with f.loop("0", "%keys", "1") as key:
            base = f.let(f"mul i64 {key.index}, {self.panel}")
            for v, a in enumerate(self.row(f, "%s", key.index, nv)):
                at = f.at(kind, "%t", f.let(f"add i64 {base}, {v * self.lanes}"))
                if self.mask == "add":
                    self.store(f, self.load(f, a) + self.load(f, at), a)
                else:
                    said = f.let(f"load <{self.lanes} x i8>, ptr {at}, align 1")
                    seen = f.let(f"icmp ne <{self.lanes} x i8> {said}, zeroinitializer")
                    self.store(f, where(Vec(f.body, seen, "i1", self.lanes), self.load(f, a), low), a)

    def _splat32(self, f: Function, x: str) -> str:
        one = f.let(f"insertelement <{self.lanes} x i32> poison, i32 {x}, i32 0")
        zero = f"<{self.lanes} x i32> zeroinitializer"
        return f.let(f"shufflevector <{self.lanes} x i32> {one}, <{self.lanes} x i32> poison, {zero}")

    # Units

    @property
    def stored(self) -> str:
        """An element of q, k, v, o and ct in memory."""
        return self.element

    def end(self, f: Function) -> None:
        """After the last unit."""

    def close(self, f: Function, name: str) -> None:
        f.line("ret void")
        head = f"define void @{name}({PARAMETERS}) nounwind {{\nentry:"
        self.add(f, f"{head}\n{f.text()}\n}}")

    def arguments(self, f: Function) -> dict[str, str]:
        arg = {
            field: f.load("ptr" if field in POINTERS else "i64", f.at("i64", "%args", str(i)))
            for i, field in enumerate(FIELDS)
        }
        by = f.let(f"bitcast i64 {arg['by']} to double")
        arg["by"] = by if self.element == "double" else f.let(f"fptrunc double {by} to float")
        arg["is.causal"] = f.let(f"icmp ne i64 {arg['causal']}, 0")
        return arg

    def areas(self, f: Function, arg: dict[str, str], areas: Sequence[tuple[str, int]]) -> None:
        """Divide the workspace into named areas of so many bytes."""
        assert KEYS * self.panel * self.dtype.itemsize <= SCORES, "the scores of a block fit"
        base, at = workspace_of(f, arg["workspace"]), 0
        for name, size in areas:
            f.line(f"%{name} = getelementptr i8, ptr {base}, i64 {at}")
            at += size

    def sizes(self, f: Function, arg: dict[str, str]) -> tuple[str, str, str]:
        """Features of a query in whole squares; elements of a transposed panel of q, and of o with its state."""
        deep = f.let(f"and i64 {f.let('add i64 ' + arg['d'] + f', {self.lanes - 1}')}, {-self.lanes}")
        o_size = f.let(f"mul i64 {f.let('add i64 ' + arg['e'] + ', 2')}, {self.panel}")
        return deep, f.let(f"mul i64 {deep}, {self.panel}"), o_size

    def state(self, f: Function, which: str, o_size: str) -> str:
        return f.at(self.element, "%st", f.let(f"mul i64 {which}, {o_size}"))

    def batch(self, f: Function, arg: dict[str, str], number: str) -> dict[str, str]:
        """The offsets of matrix `number` in the operands."""
        with f.loop("0", arg["batch"], "1", [("i64", number), *(("i64", "0") for _ in OPERANDS)]) as axis:
            back = f.let(f"sub i64 {arg['batch']}, {axis.index}")
            at = f.at("i64", "%args", f.let(f"add i64 {f.let(f'mul i64 {back}, {STEP}')}, {HEAD - STEP}"))
            extent, *steps = (f.load("i64", f.at("i64", at, str(i))) for i in range(STEP))
            rest, *sums = axis.carried
            digit = f.let(f"urem i64 {rest}, {extent}")
            moved = [f.let(f"add i64 {x}, {f.let(f'mul i64 {digit}, {s}')}") for x, s in zip(sums, steps, strict=True)]
            axis.next = [f.let(f"udiv i64 {rest}, {extent}"), *moved]
        return dict(zip(OPERANDS, axis.carried[1:], strict=True))

    def width(self, f: Function, rows: str, p: str) -> tuple[str, str, str]:
        """Queries of a panel, the lanes that they take, and the vectors of these."""
        left = f.smin(f.let(f"sub i64 {rows}, {p}"), str(self.panel))
        vectors = f.let(f"udiv i64 {f.let(f'add i64 {left}, {self.lanes - 1}')}, {self.lanes}")
        taken = vectors
        for few, more in zip(self.widths, self.widths[1:], strict=False):
            over = f.let(f"icmp sgt i64 {vectors}, {few}")
            taken = f.let(f"select i1 {over}, i64 {more}, i64 {taken}")
        return left, f.let(f"mul i64 {taken}, {self.lanes}"), taken

    def seen(self, f: Function, arg: dict[str, str], q: str, left: str, k0: str, keys: str) -> tuple[str, str]:
        """Of a block of keys how many a panel of queries needs, and how far its first query is ahead of the first."""
        ahead = f.let(f"sub i64 {q}, {k0}")
        own = f.smin(keys, f.let(f"add i64 {ahead}, {left}"))
        causal = arg["is.causal"]
        return f.let(f"select i1 {causal}, i64 {own}, i64 {keys}"), f.let(f"select i1 {causal}, i64 {ahead}, i64 {FAR}")

    def turn_mask(
        self, f: Function, arg: dict[str, str], offset: dict[str, str], q: str, k0: str, keys: str, left: str,
        width: str,
    ) -> None:  # fmt: skip
        if not self.mask:
            return
        kind = "i8" if self.mask == "bool" else self.element
        at = f.at(kind, f.at(kind, arg["mask"], offset["mask"]), f.let(f"mul i64 {q}, {arg['mask_row']}"))
        f.line(
            f"call void @transpose.mask(ptr {f.at(kind, at, k0)}, i64 {arg['mask_row']}, i64 {keys}, i64 {left}, "
            f"i64 {width}, ptr %t)"
        )

    def copy(self, f: Function, source: str, to: str, left: str) -> None:
        """The first `left` elements of a panel's row."""
        name = f"llvm.masked.store.v{self.lanes}{suffix_of(self.dtype)}.p0"
        bits = f"<{self.lanes} x i1>"
        f.body.declare(f"declare void @{name}({self.vector}, ptr, {bits})")
        with f.loop("0", left, str(self.lanes)) as at:
            mask = f.mask(self.lanes, f.smin(f.let(f"sub i64 {left}, {at.index}"), str(self.lanes)))
            x = self.load(f, f.at(self.element, source, at.index))
            f.line(
                f"call void @{name}({self.vector} {x.name}, ptr align {self.dtype.itemsize} "
                f"{f.at(self.element, to, at.index)}, {bits} {mask})"
            )

    def transposes(self) -> None:
        mask = np.dtype(np.int8) if self.mask == "bool" else self.dtype
        for name, dtype in (
            ("transpose", self.dtype),
            ("transpose.back", self.dtype),
            *([("transpose.mask", mask)] * bool(self.mask)),
        ):
            writer = _Transpose(Transposer(dtype, self.lanes), self.tile, mem_type(dtype))
            self.add(writer.f, writer.outward(name) if name == "transpose.back" else writer.inward(name))
        for dtype in dict.fromkeys((self.dtype, mask)):
            text, declared = Transposer(dtype, self.lanes).text()
            self.texts.append(text)
            self.declared |= declared

    def transpose_of(self, name: str, transposer: Transposer, stored: str) -> None:
        """A transposition by a transposer of its own."""
        writer = _Transpose(transposer, self.tile, stored)
        self.add(writer.f, writer.inward(name))
        text, declared = transposer.text()
        self.texts.append(text)
        self.declared |= declared

    def scale(self, f: Function, panel: str, rows: str, width: str, by: str) -> None:
        """The first `width` elements of so many rows of a panel times a number."""
        all_ = self.splat(f, by)
        with f.loop("0", rows, "1") as row, f.loop("0", width, str(self.lanes)) as at:
            (here,) = self.row(f, f.at(self.element, panel, at.index), row.index, 1)
            self.store(f, self.load(f, here) * all_, here)

    def steps(self) -> None:
        """The steps by the vectors of a panel."""
        fitting = [min(w for w in self.widths if w >= v) for v in range(self.tile.vectors + 1)]
        names = ", ".join(f"ptr @step.{w}" if w in self.used else "ptr null" for w in fitting)
        self.texts.append(f"@steps = internal constant [{len(fitting)} x ptr] [{names}]")

    def module(self, name: str) -> tuple[str, str]:
        return named("\n".join([*sorted(x for x in self.declared if x), *self.texts]), name)
