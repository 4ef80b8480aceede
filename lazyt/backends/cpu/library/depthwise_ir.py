"""The LLVM IR of depthwise convolutions: one channel and one feature a group, so each plane is convolved by itself.

'planes'  a plane of x is copied into working memory, with zeros around it and its columns apart by steps; then each
          vector of places is a sum over the window's elements, whose weights are in registers. Transposed, the elements
          of a window are those of a phase, and the phases along a row are interleaved as in phases_ir.py.
'filter'  the sums over all places of y times x, for each element of the window, over the planes of a channel.

A unit is some rows of some planes of an image; of 'filter', a channel. The window, its steps, dilation and padding are
part of the code. Sums are over the elements of a window in row-major order; of 'filter' over blocks of rows, which
depend on sizes alone, the images of a block one after another.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.looptext import Function, named
from lazyt.backends.cpu.codegen.text import mem_type
from lazyt.backends.cpu.library.gemm_epilogue import epilogue_text
from lazyt.backends.cpu.library.gemm_micro import Micro
from lazyt.backends.cpu.library.gemm_tile import FIELDS, HEAD
from lazyt.backends.cpu.library.phases_ir import rows_of_unit
from lazyt.backends.cpu.workspace import PARAMETERS, workspace_of
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    import numpy as np

    from lazyt.backends.cpu.library.gemm_tile import Tile

Pair = tuple[int, int]

# Entries after those of every product. 'high' and 'wide' are rows and columns of a phase of the result; 'line' is from
# row to row of a copied plane, 'column' from one step's columns to the next's; 'area' is its elements, 'part_at' the
# bytes before a finished part of the result.
PLANE_FIELDS = (
    "height", "width", "high", "wide", "x_height", "x_width", "line", "column", "area", "part_at", "images", "channels",
    "unit_channels",
)  # fmt: skip
PLANE_AT = {name: HEAD + i for i, name in enumerate(PLANE_FIELDS)}
PLANE_SIZE = HEAD + len(PLANE_FIELDS)
# Rows of the result that are summed up together, by how many weights there are for so many registers; and where these
# are more, so that each is read from memory by its sums.
TOGETHER, BEYOND = ((9, 4), (25, 2)), 4
# Bytes of a vector that is stored in part by a mask as fast as whole.
MASKED = 64
# Elements of a window whose sums 'filter' has in registers.
SUMS = 9


@dataclass(frozen=True)
class Tap:
    """An element of a window: its number, and where x lies for the first place: row, step and column."""

    number: int
    row: int
    step: int
    column: int


@dataclass(frozen=True)
class Window:
    """A depthwise convolution, forward or transposed, but for its sizes."""

    sizes: Pair
    strides: Pair
    dilations: Pair
    padding: Pair
    transposed: bool

    @property
    def read_by(self) -> Pair:
        """Elements of x from place to place."""
        return (1, 1) if self.transposed else self.strides

    @property
    def phases(self) -> Pair:
        """How many phases the result has."""
        return self.strides if self.transposed else (1, 1)

    @property
    def frame(self) -> Pair:
        """Rows and columns of zeros before x."""
        if not self.transposed:
            return self.padding
        axes = zip(self.sizes, self.strides, self.dilations, self.padding, strict=True)
        first, second = (max(((k - 1) * e - p) // s, 0) for k, s, e, p in axes)
        return first, second

    def _along(self, axis: int, phase: int) -> list[Pair]:
        k, e, s, p = self.sizes[axis], self.dilations[axis], self.strides[axis], self.padding[axis]
        if not self.transposed:
            return [(i, i * e) for i in range(k)]
        shift = self.frame[axis]
        return [(i, (phase + p - i * e) // s + shift) for i in range(k) if (phase + p - i * e) % s == 0]

    def taps(self, ry: int, rx: int) -> list[Tap]:
        """The elements of a window that places of a phase meet."""
        by = self.read_by[1]
        return [
            Tap(ky * self.sizes[1] + kx, y, x % by, x // by)
            for ky, y in self._along(0, ry)
            for kx, x in self._along(1, rx)
        ]

    @property
    def farthest(self) -> Pair:
        """The last row and column that a place meets, from its first ones on."""
        every = [t for ry in range(self.phases[0]) for rx in range(self.phases[1]) for t in self.taps(ry, rx)]
        return max((t.row for t in every), default=0), max((t.column for t in every), default=0)


class _Planes:
    """What both functions share: arguments, and copies of planes."""

    def __init__(self, dtype: np.dtype, tile: Tile, window: Window) -> None:
        self.element, self.size, self.lanes, self.window = mem_type(dtype), dtype.itemsize, tile.lanes, window
        self.micro = Micro(dtype, tile, "row", 1, 1, False)
        self.f: Function = self.micro.f
        f = self.f
        self.arg = {}
        for i, field in enumerate((*FIELDS, *PLANE_FIELDS)):
            kind = "ptr" if field in ("A", "B", "C", "epilogue", "workspace") else "i64"
            self.arg[field] = f.load(kind, f.at("i64", "%args", str(i)))
        self.plane = workspace_of(f, self.arg["workspace"])
        self.masked = tile.lanes * dtype.itemsize == MASKED

    def clear(self) -> None:
        """Zeros in all of a copied plane: copies leave those around it."""
        f = self.f
        f.body.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        count = f.let(f"mul i64 {self.arg['area']}, {self.size}")
        f.line(f"call void @llvm.memset.p0.i64(ptr {self.plane}, i8 0, i64 {count}, i1 false)")

    def copy(self, plane: str, y0: str, rows: str) -> None:
        """Copy the rows of plane number `plane` of x that so many rows of places from y0 on meet."""
        f, e, arg = self.f, self.element, self.arg
        (fy, fx), (by, bx) = self.window.frame, self.window.read_by
        first = f.let(f"sub i64 {f.let(f'mul i64 {y0}, {by}')}, {fy}")
        count = f.let(f"add i64 {f.let(f'mul i64 {rows}, {by}')}, {self.window.farthest[0] + 1 - by}")
        low = f.body.call("i64", "llvm.smax.i64", ("i64", first), ("i64", "0"))
        high = f.smin(f.let(f"add i64 {first}, {count}"), arg["x_height"])
        above = f.let(f"mul i64 {plane}, {arg['x_height']}")
        with f.loop(low, high, "1") as y:
            source = f.at(e, arg["B"], f.let(f"mul i64 {f.let(f'add i64 {above}, {y.index}')}, {arg['x_width']}"))
            down = f.let(f"sub i64 {y.index}, {first}")
            to = f.at(e, self.plane, f.let(f"mul i64 {down}, {arg['line']}"))
            if bx > 2:
                self._one_by_one(source, to, fx, bx)
            else:
                self._row(source, to, fx, bx)

    def _row(self, source: str, to: str, fx: int, bx: int) -> None:
        f, width, step = self.f, self.arg["x_width"], bx * self.lanes
        rest = f.let(f"srem i64 {width}, {step}")
        whole = f.let(f"sub i64 {width}, {rest}")
        with f.loop("0", whole, str(step)) as x:
            self._vectors(source, to, x.index, fx, bx, "")
        with f.when(f.let(f"icmp ne i64 {rest}, 0")):
            self._vectors(source, to, whole, fx, bx, rest)

    def _one_by_one(self, source: str, to: str, fx: int, bx: int) -> None:
        f, e = self.f, self.element
        with f.loop("0", self.arg["x_width"], "1") as x:
            there = f.let(f"add i64 {x.index}, {fx}")
            step, column = f.let(f"urem i64 {there}, {bx}"), f.let(f"udiv i64 {there}, {bx}")
            at = f.let(f"add i64 {f.let(f'mul i64 {step}, ' + self.arg['column'])}, {column}")
            value = f.load(e, f.at(e, source, x.index))
            f.line(f"store {e} {value}, ptr {f.at(e, to, at)}, align {self.size}")

    def _vectors(self, source: str, to: str, x: str, fx: int, bx: int, rest: str) -> None:
        """Copy a vector of each step from column x on; of the last columns only the rest, and zeros behind."""
        f, e, n, m = self.f, self.element, self.lanes, self.micro
        found = []
        for i in range(bx):
            left = f.let(f"sub i64 {rest}, {i * n}") if rest and i else rest
            if left and i:
                left = f.body.call("i64", "llvm.smax.i64", ("i64", left), ("i64", "0"))
            at = f.at(e, f.at(e, source, x), str(i * n))
            found.append(m.load(at, f.mask(n, left) if left else ""))
        if bx == 1:
            m.write(f.at(e, f.at(e, to, x), str(fx)), "", found[0])
            return
        half = f.let(f"lshr i64 {x}, 1")
        for i in range(2):
            order = ", ".join(f"i32 {2 * j + i}" for j in range(n))
            part = f.let(f"shufflevector {m.vector} {found[0]}, {m.vector} {found[1]}, <{n} x i32> <{order}>")
            step, column = (fx + i) % 2, (fx + i) // 2
            row = f.at(e, to, self.arg["column"]) if step else to
            m.write(f.at(e, f.at(e, row, half), str(column)), "", part)

    def at_tap(self, row: str, tap: Tap, x: str) -> str:
        """Where the vector of x lies that an element of the window meets, from a row of the copy on."""
        f, e = self.f, self.element
        if tap.step:
            row = f.at(e, row, f.let(f"mul i64 {self.arg['column']}, {tap.step}"))
        return f.at(e, f.at(e, row, x), str(tap.column))

    def row(self, place: str, row: int) -> str:
        """The row of the copy that is so many below that of a place."""
        return self.f.at(self.element, place, self.f.let(f"mul i64 {self.arg['line']}, {row}")) if row else place

    def function(self, name: str) -> str:
        self.f.line("ret void")
        return f"define void @{name}({PARAMETERS}) nounwind {{\nentry:\n{self.f.text()}\n}}"


class _Convolved(_Planes):
    def text(self, name: str) -> str:
        f, e, arg = self.f, self.element, self.arg
        py = self.window.phases[0]
        has_epilogue = f.let(f"icmp ne ptr {arg['epilogue']}, null")
        on_stack = f.let(f"icmp ne i64 {arg['scratch']}, 0")
        part = f.at("i8", self.plane, arg["part_at"])
        with f.loop("%begin", "%end", "1") as unit:
            block = f.let(f"urem i64 {unit.index}, {arg['row_blocks']}")
            number = f.let(f"udiv i64 {unit.index}, {arg['row_blocks']}")
            image = f.let(f"udiv i64 {number}, {arg['col_blocks']}")
            c0 = f.let(f"mul i64 {f.let(f'urem i64 {number}, ' + arg['col_blocks'])}, {arg['unit_channels']}")
            channels = f.smin(f.let(f"sub i64 {arg['channels']}, {c0}"), arg["unit_channels"])
            y0, rows, tall, j0, nu = rows_of_unit(f, arg, block, py)
            plane0 = f.let(f"add i64 {f.let(f'mul i64 {image}, ' + arg['channels'])}, {c0}")
            in_c = f.at(e, f.at(e, arg["C"], f.let(f"mul i64 {plane0}, {arg['c_row']}")), j0)
            c = f.let(f"select i1 {on_stack}, ptr {part}, ptr {in_c}")
            ldc = f.let(f"select i1 {on_stack}, i64 {arg['unit_cols']}, i64 {arg['c_row']}")
            self.clear()
            with f.loop("0", channels, "1") as channel:
                self.copy(f.let(f"add i64 {plane0}, {channel.index}"), y0, rows)
                number = f.let(f"add i64 {c0}, {channel.index}")
                filters = f.at(e, arg["A"], f.let(f"mul i64 {number}, {self._weights}"))
                out = f.at(e, c, f.let(f"mul i64 {channel.index}, {ldc}"))
                weights = [self.micro.broadcast(f.at(e, filters, str(k))) for k in range(self._weights)]
                self._rows(weights, out, rows, tall, nu)
            with f.when(has_epilogue):
                f.line(
                    f"call void @epilogue(ptr %args, i64 {image}, i64 {c0}, i64 {j0}, i64 {channels}, i64 {nu}, "
                    f"ptr {c}, i64 {ldc})"
                )
        return self.function(name)

    @property
    def _weights(self) -> int:
        return self.window.sizes[0] * self.window.sizes[1]

    def _rows(self, weights: list[str], out: str, rows: str, tall: str, nu: str) -> None:
        """All rows of a plane's part."""
        f = self.f
        if self.window.phases != (1, 1):
            with f.loop("0", rows, "1") as y:
                for ry in range(self.window.phases[0]):
                    line = f.let(f"add i64 {f.let(f'mul i64 {y.index}, {self.window.phases[0]}')}, {ry}")
                    with f.when(f.let(f"icmp slt i64 {line}, {tall}")):
                        self._places(weights, out, y.index, line, ry, 1, nu)
            return
        together = next((r for most, r in TOGETHER if len(weights) <= most), BEYOND)
        enough = f.let(f"icmp sge i64 {rows}, {together}")
        if not self.masked:
            # NOTE: a vector may reach into the next row, which must be stored after it.
            apart = f.let(f"icmp eq i64 {f.let('srem i64 ' + self.arg['width'] + f', {self.lanes}')}, 0")
            enough = f.let(f"and i1 {enough}, {apart}")
        several = f.let(f"select i1 {enough}, i64 {rows}, i64 0")
        last = f.let(f"sub i64 {rows}, {together}")
        with f.loop("0", several, str(together)) as y:
            # NOTE: the last ones may be computed twice: one row by itself takes as long as all of them.
            first = f.smin(y.index, last)
            self._places(weights, out, first, first, 0, together, nu)
        with f.loop(several, rows, "1") as y:
            self._places(weights, out, y.index, y.index, 0, 1, nu)

    def _places(self, weights: list[str], out: str, y: str, line: str, ry: int, count: int, nu: str) -> None:
        """The vectors of `count` rows of places from y on, which are rows of the result from `line` on."""
        f, e, arg, n = self.f, self.element, self.arg, self.lanes
        by, px = self.window.read_by[0], self.window.phases[1]
        first = f.at(e, self.plane, f.let(f"mul i64 {f.let(f'mul i64 {y}, {by}')}, {arg['line']}"))
        taps = [self.window.taps(ry, rx) for rx in range(px)]
        met = sorted({t.row + i * by for i in range(count) for some in taps for t in some})
        rows = {row: self.row(first, row) for row in met}
        begin = f.let(f"mul i64 {line}, {arg['width']}")
        with f.loop("0", arg["wide"], str(n)) as x:
            sums = [["" for _ in range(px)] for _ in range(count)]
            for row in met:
                read: dict[tuple[int, int], str] = {}
                for i in range(count):
                    for rx, some in enumerate(taps):
                        for t in some:
                            if t.row + i * by != row:
                                continue
                            if (t.step, t.column) not in read:
                                read[t.step, t.column] = self.micro.load(self.at_tap(rows[row], t, x.index))
                            old = sums[i][rx] or "zeroinitializer"
                            sums[i][rx] = self.micro.multiply_add(weights[t.number], read[t.step, t.column], old)
            for i, found in enumerate(sums):
                place = f.let(f"add i64 {begin}, {f.let(f'mul i64 {x.index}, {px}')}")
                if i:
                    place = f.let(f"add i64 {place}, {f.let('mul i64 ' + arg['width'] + f', {i}')}")
                if count > 1 and self.masked:
                    left = f.let(f"sub i64 {arg['width']}, {x.index}")
                    self.micro.write(f.at(e, out, place), f.mask(n, left), found[0] or "zeroinitializer")
                else:
                    self._store([s or "zeroinitializer" for s in found], out, place, x.index, nu)

    def _store(self, found: list[str], out: str, place: str, x: str, nu: str) -> None:
        """Store vectors of the phases from a place on: whole, where what comes after in the part is stored later."""
        f, e, n, m = self.f, self.element, self.lanes, self.micro
        to, px = f.at(e, out, place), len(found)
        if px > 2:
            for rx, v in enumerate(found):
                for i in range(n):
                    column = f.let(f"add i64 {f.let(f'mul i64 {x}, {px}')}, {i * px + rx}")
                    with f.when(f.let(f"icmp slt i64 {column}, {self.arg['width']}")):
                        one = f.let(f"extractelement {m.vector} {v}, i32 {i}")
                        f.line(f"store {e} {one}, ptr {f.at(e, to, str(i * px + rx))}, align {self.size}")
            return
        if px == 2:
            orders = [", ".join(f"i32 {(h * n + i) // 2 + (h * n + i) % 2 * n}" for i in range(n)) for h in range(2)]
            found = [
                f.let(f"shufflevector {m.vector} {found[0]}, {m.vector} {found[1]}, <{n} x i32> <{order}>")
                for order in orders
            ]
        left = f.let(f"sub i64 {nu}, {place}")
        for h, v in enumerate(found):
            at = f.at(e, to, str(h * n)) if h else to
            here = f.let(f"sub i64 {left}, {h * n}") if h else left
            with f.when(f.let(f"icmp sge i64 {here}, {n}")):
                m.write(at, "", v)
            with f.when(f.let(f"icmp ult i64 {here}, {n}")):
                m.write(at, f.mask(n, here), v)


class _Filters(_Planes):
    def text(self, name: str) -> str:
        f, e, arg, n, m = self.f, self.element, self.arg, self.lanes, self.micro
        taps = self.window.taps(0, 0)
        f.line(f"%sums = alloca {e}, i64 {len(taps) * n}, align 64")
        with f.loop("%begin", "%end", "1") as channel:
            for i in range(len(taps)):
                m.write(f.at(e, "%sums", str(i * n)), "", "zeroinitializer")
            with f.loop("0", arg["row_blocks"], "1") as block:
                y0 = f.let(f"mul i64 {block.index}, {arg['unit_rows']}")
                rows = f.smin(f.let(f"sub i64 {arg['high']}, {y0}"), arg["unit_rows"])
                self.clear()
                with f.loop("0", arg["images"], "1") as image:
                    number = f.let(f"mul i64 {image.index}, {arg['channels']}")
                    plane = f.let(f"add i64 {number}, {channel.index}")
                    self.copy(plane, y0, rows)
                    above = f.let(f"mul i64 {y0}, {arg['width']}")
                    of_plane = f.at(e, arg["A"], f.let(f"mul i64 {plane}, {arg['c_row']}"))
                    y = f.at(e, of_plane, above)
                    for i in range(0, len(taps), SUMS):
                        self._sums(taps[i : i + SUMS], y, rows, i)
            for i in range(len(taps)):
                self._total(i, channel.index)
        return self.function(name)

    def _sums(self, taps: list[Tap], y: str, rows: str, first: int) -> None:
        """Add the sums of some elements of the window over some rows of a plane."""
        f, e, arg, n, m = self.f, self.element, self.arg, self.lanes, self.micro
        by = self.window.read_by[0]
        zeros = [(m.vector, "zeroinitializer") for _ in taps]
        with f.loop("0", rows, "1", zeros) as row:
            line = f.at(e, y, f.let(f"mul i64 {row.index}, {arg['width']}"))
            place = f.at(e, self.plane, f.let(f"mul i64 {f.let(f'mul i64 {row.index}, {by}')}, {arg['line']}"))
            met = {t.row: self.row(place, t.row) for t in taps}
            with f.loop("0", arg["width"], str(n), [(m.vector, s) for s in row.carried]) as x:
                left = f.let(f"sub i64 {arg['width']}, {x.index}")
                ct = m.load(f.at(e, line, x.index), f.mask(n, left))
                x.next = [
                    m.multiply_add(ct, m.load(self.at_tap(met[t.row], t, x.index)), s)
                    for t, s in zip(taps, x.carried, strict=True)
                ]
            row.next = x.carried
        for i, s in enumerate(row.carried):
            at = f.at(e, "%sums", str((first + i) * n))
            m.write(at, "", f.let(f"{'fadd' if m.float else 'add'} {m.vector} {m.load(at)}, {s}"))

    def _total(self, i: int, channel: str) -> None:
        """The sum over lanes, where it belongs."""
        f, e, n = self.f, self.element, self.lanes
        parts = [f.load(e, f.at(e, "%sums", str(i * n + j))) for j in range(n)]
        while len(parts) > 1:
            half = len(parts) // 2
            pairs = zip(parts[:half], parts[half:], strict=True)
            parts = [f.let(f"{'fadd' if self.micro.float else 'add'} {e} {p}, {q}") for p, q in pairs]
        place = f.let(f"add i64 {f.let('mul i64 ' + self.arg['channels'] + f', {i}')}, {channel}")
        f.line(f"store {e} {parts[0]}, ptr {f.at(e, self.arg['C'], place)}, align {self.size}")


@cache
def depthwise_text(dtype: np.dtype, tile: Tile, window: Window, by_filter: bool) -> tuple[str, str]:
    """The module of a depthwise convolution, or of its gradient by the filters, and its name."""
    name = "lazyt_depthwise"
    writer = _Filters(dtype, tile, window) if by_filter else _Convolved(dtype, tile, window)
    body = writer.text(name)
    declared = {line for line in writer.f.body.module.text().splitlines() if line}
    return named("\n".join([*sorted(declared), epilogue_text(), body]), name)
