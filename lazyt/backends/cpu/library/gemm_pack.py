"""Packing: copies of a product's operands in a layout that micro-kernels read efficiently.

'panel'  a unit is a panel of columns:     to[unit][k][j] = from[k * row_step + unit * columns + j]
'rows'   rows as they are:     to[k * to_row + j] = from[k * row_step + j]; an A that is converted
'across' lines of the source across those of the copy: to[unit * to_unit + k * to_row + j] =
         from[(unit * columns + j) * row_step + k]; panels of a transposed B, or rows of a transposed A

As launches they run before a product (`pack_text`: its A); as functions of its module it calls them for the part of B
(and of an A that is converted) that it needs next. What is not read as it is (`Source`) is converted on the way.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.looptext import Function, named
from lazyt.backends.cpu.codegen.source import PairReader, Reader, RowPairReader
from lazyt.backends.cpu.codegen.text import mem_type
from lazyt.backends.cpu.codegen.transpose import Transposer
from lazyt.backends.cpu.library.gemm_tile import FILL, PACK_FIELDS, PACK_HEAD

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from lazyt.backends.cpu.codegen.source import Source
    from lazyt.backends.cpu.library.gemm_tile import Tile


# Panels that a unit packs in pairs beforehand.
PANELS = 4
# Vectors of a row that are converted together.
UNROLLED = 4
# Rows that packing asks for ahead of their use: each may be on a page of its own, where nothing foresees it.
AHEAD = 8


@cache
def pack_text(dtype: np.dtype, tile: Tile, kind: str, source: Source | None = None) -> tuple[str, str]:
    """The module of a packing, and its name."""
    return Packing(dtype, tile, source).text(kind)


@cache
def pack_pairs_text(dtype: np.dtype, tile: Tile, kind: str, source: Source) -> tuple[str, str]:
    """The module that packs all panels of a right operand in pairs, a unit some of them, and its name."""
    packing = Packing(dtype, tile, source, pairs=True)
    body = packing.function(kind, "pack.panels")
    f = Function()
    arg = _arguments(f)
    with f.loop("%begin", "%end", "1") as unit:
        first = f.let(f"mul i64 {unit.index}, {PANELS * tile.columns}")
        count = f.smin(f.let(f"sub i64 {arg['cols']}, {first}"), str(PANELS * tile.columns))
        start = f.at(mem_type(source.stored), arg["from"], f.let(f"mul i64 {first}, {arg['col_step']}"))
        panels = f.let(f"mul i64 {unit.index}, {PANELS}")
        to = f.at(mem_type(dtype), arg["to"], f.let(f"mul i64 {panels}, {arg['to_unit']}"))
        f.line(
            f"call void @pack.panels(ptr {start}, i64 {arg['row_step']}, i64 {arg['rows']}, i64 {count}, ptr {to}, "
            f"i64 {arg['to_unit']}, i64 {arg['to_row']})"
        )
    f.line("ret void")
    transposer, more = packing.transposer.text()
    declared = packing.declared | more | set(f.body.module.text().splitlines())
    head = "define void @lazyt_pack_pairs(ptr %args, i64 %begin, i64 %end) nounwind {\nentry:"
    text = "\n".join([*sorted(x for x in declared if x), transposer, body, head, f.text(), "}"])
    return named(text, "lazyt_pack_pairs")


def _arguments(f: Function) -> dict[str, str]:
    """A packing's arguments, by their names."""
    return {
        field: f.load("ptr" if field in ("from", "to") else "i64", f.at("i64", "%args", str(i)))
        for i, field in enumerate(PACK_FIELDS)
    }


def panels_that_stay(f: Function, kept: str) -> tuple[str, str, str]:
    """Of the argument `kept`: whether panels stay, where, and whether they are to be packed now."""
    filling = f.let(f"and i64 {kept}, {FILL}")
    address = f.let(f"sub i64 {kept}, {filling}")
    return (
        f.let(f"icmp ne i64 {kept}, 0"),
        f.let(f"inttoptr i64 {address} to ptr"),
        f.let(f"icmp ne i64 {filling}, 0"),
    )


class Packing:
    def __init__(self, dtype: np.dtype, tile: Tile, source: Source | None = None, pairs: bool = False) -> None:
        self.tile, self.pairs = tile, pairs
        self.element, self.size = mem_type(dtype), dtype.itemsize
        self.vector = f"<{tile.lanes} x {self.element}>"
        self.f = Function()
        self.reader = Reader(self.f, dtype, tile.lanes, source)
        self.below = RowPairReader(self.f, dtype, tile.lanes, source)
        self.arg: dict[str, str] = {}
        self.transposer = Transposer(dtype, tile.lanes, source, pairs)
        self.workspace = self.transposer.allocate(self.f)

    def text(self, kind: str) -> tuple[str, str]:
        f, e = self.f, self.element
        self.arg = arg = _arguments(f)
        stays, there, fills = panels_that_stay(f, arg["kept"])
        to = f.let(f"select i1 {stays}, ptr {there}, ptr {arg['to']}")
        is_done = f.let(f"and i1 {stays}, {f.let(f'xor i1 {fills}, true')}")
        with f.loop("%begin", f.let(f"select i1 {is_done}, i64 %begin, i64 %end"), "1") as unit:
            inside = f.let(f"urem i64 {unit.index}, {arg['units']}")
            number = f.let(f"udiv i64 {unit.index}, {arg['units']}")
            source = f.at(self.reader.element, arg["from"], self._batch(number))
            target = f.at(e, to, f.let(f"mul i64 {number}, {arg['to_batch']}"))
            target = f.at(e, target, f.let(f"mul i64 {inside}, {arg['to_unit']}"))
            self._kinds[kind](inside, source, target)
        f.line("ret void")
        head = "define void @lazyt_pack(ptr %args, i64 %begin, i64 %end) nounwind {\nentry:"
        transposer, declared = self.transposer.text()
        text = "\n".join([*sorted(x for x in self.declared | declared if x), transposer, head, f.text(), "}"])
        return named(text, "lazyt_pack")

    @property
    def _kinds(self) -> dict[str, Callable[[str, str, str], None]]:
        return {"panel": self._panel, "across": self._across}

    def function(self, kind: str, name: str) -> str:
        """`@name(from, row_step, rows, cols, to, to_unit, to_row)`"""
        f = self.f
        self.arg = {name: f"%{name}" for name in ("row_step", "rows", "cols", "to_unit", "to_row")}
        if kind == "panel" and self.pairs:
            self._pair_panels()
        elif kind == "panel":
            self._panels()
        elif kind == "rows":
            self._rows()
        else:
            add = f.let(f"add i64 %cols, {self.tile.columns - 1}")
            with f.loop("0", f.let(f"udiv i64 {add}, {self.tile.columns}"), "1") as panel:
                target = f.at(self.element, "%to", f.let(f"mul i64 {panel.index}, %to_unit"))
                self._kinds[kind](panel.index, "%from", target)
        f.line("ret void")
        params = "ptr %from, i64 %row_step, i64 %rows, i64 %cols, ptr %to, i64 %to_unit, i64 %to_row"
        return f"define internal void @{name}({params}) nounwind noinline {{\nentry:\n{f.text()}\n}}"

    @property
    def declared(self) -> set[str]:
        return set(self.f.body.module.text().splitlines())

    def _batch(self, number: str) -> str:
        """The offset of matrix `number` of the batch."""
        f, arg = self.f, self.arg
        with f.loop("0", arg["batch"], "1", [("i64", number), ("i64", "0")]) as axis:
            back = f.let(f"sub i64 {arg['batch']}, {axis.index}")
            at = f.at("i64", "%args", f.let(f"add i64 {f.let(f'shl i64 {back}, 1')}, {PACK_HEAD - 2}"))
            extent, stride = f.load("i64", at), f.load("i64", f.at("i64", at, "1"))
            digit = f.let(f"urem i64 {axis.carried[0]}, {extent}")
            axis.next = [
                f.let(f"udiv i64 {axis.carried[0]}, {extent}"),
                f.let(f"add i64 {axis.carried[1]}, {f.let(f'mul i64 {digit}, {stride}')}"),
            ]
        return axis.carried[1]

    def _put(self, x: str, at: str) -> None:
        self.f.line(f"store {self.vector} {x}, ptr {at}, align {self.size}")

    def _panel(self, inside: str, source: str, target: str) -> None:
        f, e, lanes, arg = self.f, self.element, self.tile.lanes, self.arg
        read = self.reader
        first = f.let(f"mul i64 {inside}, {self.tile.columns}")
        source = f.at(read.element, source, first)
        left = f.let(f"sub i64 {arg['cols']}, {first}")
        parts = []
        for v in range(self.tile.vectors):
            n = f.body.call("i64", "llvm.smax.i64", ("i64", f.let(f"sub i64 {left}, {v * lanes}")), ("i64", "0"))
            parts.append(read.part(f.smin(n, str(lanes)), source))
        with f.loop("0", arg["rows"], "1") as row:
            s = f.at(read.element, source, f.let(f"mul i64 {row.index}, {arg['row_step']}"))
            t = f.at(e, target, f.let(f"mul i64 {row.index}, {self.tile.columns}"))
            for v, part in enumerate(parts):
                self._put(read.some(f.at(read.element, s, str(v * lanes)), part), f.at(e, t, str(v * lanes)))

    def _rows(self) -> None:
        """Rows as they are. NOTE: the last vector of a row is stored whole, so there must be room behind it."""
        f, e, read = self.f, self.element, self.reader
        if self.pairs:
            assert read.source is not None, "pairs are of halves"
            read = PairReader(f, self.tile.lanes, read.source)
        span = read.lanes
        whole = f.let(f"and i64 %cols, {-span}")
        left = f.let(f"sub i64 %cols, {whole}")
        several = f.let(f"and i64 %cols, {-span * UNROLLED}")
        part = read.part(left, "%from")
        ragged = f.let(f"icmp ne i64 {left}, 0")

        def to(t: str, at: str) -> str:
            return f.at(e, t, f.let(f"lshr i64 {at}, 1") if self.pairs else at)

        def copied(s: str, t: str, at: str) -> None:
            self._put(read.read(f.at(read.element, s, at)), to(t, at))

        with f.loop("0", "%rows", "1", [("ptr", "%from"), ("ptr", "%to")]) as row:
            s, t = row.carried
            with f.loop("0", several, str(span * UNROLLED)) as group:
                for v in range(UNROLLED):
                    copied(s, t, f.let(f"add i64 {group.index}, {v * span}"))
            with f.loop(several, whole, str(span)) as one:
                copied(s, t, one.index)
            with f.when(ragged):
                self._put(read.some(f.at(read.element, s, whole), part), to(t, whole))
            row.next = [f.at(read.element, s, "%row_step"), f.at(e, t, "%to_row")]

    def _panels(self) -> None:
        """All whole panels row by row, so that what is read lies together; then what is left."""
        f, e, lanes, columns, read = self.f, self.element, self.tile.lanes, self.tile.columns, self.reader
        whole = f.let(f"udiv i64 %cols, {columns}")
        f.body.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        ahead = f.let(f"mul i64 %row_step, {AHEAD}")
        with f.loop("0", "%rows", "1", [("ptr", "%from"), ("ptr", "%to")]) as row:
            s, t = row.carried
            with f.loop("0", whole, "1", [("ptr", s), ("ptr", t)]) as panel:
                source, target = panel.carried
                later = f.at(read.element, source, ahead)
                for v in range(self.tile.vectors):
                    line = f.at(read.element, later, str(v * lanes))
                    f.line(f"call void @llvm.prefetch.p0(ptr {line}, i32 0, i32 3, i32 1)")
                    x = read.read(f.at(read.element, source, str(v * lanes)))
                    self._put(x, f.at(e, target, str(v * lanes)))
                panel.next = [f.at(read.element, source, str(columns)), f.at(e, target, "%to_unit")]
            row.next = [f.at(read.element, s, "%row_step"), f.at(e, t, str(columns))]
        done = f.let(f"mul i64 {whole}, {columns}")
        with f.when(f.let(f"icmp slt i64 {done}, %cols")):
            self._panel(whole, "%from", f.at(e, "%to", f.let(f"mul i64 {whole}, %to_unit")))

    def _pair_panels(self) -> None:
        """All panels, two rows at a time; an odd last one with zeros below it."""
        f, e, lanes, columns, read = self.f, self.element, self.tile.lanes, self.tile.columns, self.below
        whole = f.let(f"mul i64 {f.let(f'udiv i64 %cols, {columns}')}, {columns}")
        parts = []
        for v in range(self.tile.vectors):
            left = f.let(f"sub i64 {f.let(f'sub i64 %cols, {whole}')}, {v * lanes}")
            least = f.body.call("i64", "llvm.smax.i64", ("i64", left), ("i64", "0"))
            parts.append(read.part(f.smin(least, str(lanes)), "%from"))
        ragged = f.let(f"icmp slt i64 {whole}, %cols")
        by = f.let("shl i64 %row_step, 1")
        with f.loop("0", "%rows", "2", [("ptr", "%from"), ("ptr", "%to")]) as row:
            upper, t = row.carried
            more = f.let(f"icmp slt i64 {f.let(f'add i64 {row.index}, 1')}, %rows")
            lower = f.at(read.element, upper, f.let(f"select i1 {more}, i64 %row_step, i64 0"))
            keep = f.let(f"sext i1 {more} to i32")
            with f.loop("0", whole, str(columns), [("ptr", t)]) as panel:
                for v in range(self.tile.vectors):
                    at = f.let(f"add i64 {panel.index}, {v * lanes}")
                    above, beneath = (read.read(f.at(read.element, line, at)) for line in (upper, lower))
                    self._put(read.pair(above, beneath, keep), f.at(e, panel.carried[0], str(v * lanes)))
                panel.next = [f.at(e, panel.carried[0], "%to_unit")]
            with f.when(ragged):
                for v, part in enumerate(parts):
                    at = f.let(f"add i64 {whole}, {v * lanes}")
                    above, beneath = (read.some(f.at(read.element, line, at), part) for line in (upper, lower))
                    self._put(read.pair(above, beneath, keep), f.at(e, panel.carried[0], str(v * lanes)))
            row.next = [f.at(read.element, upper, by), f.at(e, t, str(columns))]

    def _across(self, inside: str, source: str, target: str) -> None:
        """Group by group of as many lines as a vector has lanes."""
        f, e, lanes, columns, arg = self.f, self.element, self.tile.lanes, self.tile.columns, self.arg
        end = f.let(f"sub i64 {arg['cols']}, 1")
        before = f.let(f"mul i64 {inside}, {columns}")
        count = f.smin(f.let(f"sub i64 {arg['cols']}, {before}"), str(columns))
        with f.loop("0", count, str(lanes)) as group:
            first = f.let(f"add i64 {before}, {group.index}")
            lines = []
            for r in range(lanes):
                # Lines past the last one repeat it: nothing reads what comes of them.
                line = f.smin(f.let(f"add i64 {first}, {r}"), end)
                lines.append(f.at(self.reader.element, source, f.let(f"mul i64 {line}, {arg['row_step']}")))
            self.transposer.call(
                f, lines, arg["rows"], str(lanes), f.at(e, target, group.index), arg["to_row"], self.workspace
            )
