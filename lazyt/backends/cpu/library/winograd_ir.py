"""The LLVM IR of what Winograd's convolutions compute beside their products (`ir/winograd.py` says what that means).

A vector has neighbouring channels of a place, which lie apart in an image: a row of it is transposed on its way to or
from the thread's working memory. There a matrix is applied to columns, then to rows, of a row of tiles at a time.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lazyt.backends.cpu.codegen.looptext import Function, named
from lazyt.backends.cpu.codegen.text import mem_type
from lazyt.backends.cpu.codegen.transpose import Transposer
from lazyt.backends.cpu.workspace import PARAMETERS, workspace_of
from lazyt.ir.winograd import PANEL, PLACES, PLANES, READ, SIZE, WINDOW, WRITTEN, G

if TYPE_CHECKING:
    from lazyt.ir.winograd import Matrix

DTYPE = np.dtype(np.float32)
ELEMENT, BYTES = mem_type(DTYPE), DTYPE.itemsize
POINTERS = ("from", "to", "panels", "workspace")
# Entries of the arguments. Of images: channels, elements from a channel and from an image to the next, extents, zeros
# before them, and tiles along each axis. Elements from a plane to the next, and features. Of a unit of a convolution:
# tiles, rows of them, rows of all images, units that divide the panels, panels of each, panels in all; and where sums
# and what is between the two matrices lie in the working memory (bytes).
FIELDS = (
    *POINTERS, "channels", "channel", "image", "height", "width", "top", "left", "down", "right", "plane", "features",
    "tiles", "rows", "total", "groups", "group", "count", "sums_at", "between_at", "out_height", "out_width",
)  # fmt: skip
AT = {name: i for i, name in enumerate(FIELDS)}
# Channels of a unit that reads filters: their windows lie next to each other.
CHANNELS = 8


def read_bytes(kind: str, right: int, lanes: int) -> int:
    """Working memory to read a row of so many tiles."""
    window = len(READ[kind][0])
    return (window + SIZE) * ((right - 1) * PLACES + window) * lanes * BYTES


def written_bytes(right: int, lanes: int) -> int:
    """Working memory to write a row of so many tiles."""
    return PLACES * right * (SIZE + PLACES) * lanes * BYTES


def filter_bytes(lanes: int) -> int:
    """Working memory to read the filters of a unit, or to write one."""
    return (CHANNELS * WINDOW * WINDOW + SIZE * WINDOW) * lanes * BYTES


class Planes(NamedTuple):
    """Where a row of tiles lies in the planes: the first tile in the first one, and elements to the next of each."""

    at: str
    plane: str
    tile: str


class Image(NamedTuple):
    """Where some channels of an image lie, how many there are, up to those of a vector; extents, and zeros before."""

    at: str
    channels: str
    channel: str
    height: str
    width: str
    top: str = "0"
    left: str = "0"


class Writer:
    """A function in the making, of vectors of channels."""

    def __init__(self, lanes: int) -> None:
        self.f, self.lanes = Function(), lanes
        f = self.f
        self.vector = f"<{lanes} x {ELEMENT}>"
        self.transposer = Transposer(DTYPE, lanes)
        self.lines = self.transposer.allocate(f)
        self.arg: dict[str, str] = {}
        for field, i in AT.items():
            self.arg[field] = f.load("ptr" if field in POINTERS else "i64", f.at("i64", "%args", str(i)))
        self.workspace = workspace_of(f, self.arg["workspace"])
        self.streams = False  # whether anything is written past the caches

    def mul(self, a: str, b: str) -> str:
        return self.f.let(f"mul i64 {a}, {b}")

    def add(self, a: str, b: str) -> str:
        return self.f.let(f"add i64 {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        return self.f.let(f"sub i64 {a}, {b}")

    def parts(self, index: str, count: str) -> tuple[str, str]:
        """The quotient and the rest of an index."""
        return self.f.let(f"udiv i64 {index}, {count}"), self.f.let(f"urem i64 {index}, {count}")

    def at(self, base: str, index: str) -> str:
        """The address of an element."""
        return self.f.at(ELEMENT, base, index)

    def at_vector(self, base: str, index: str) -> str:
        """The address of a vector of the working memory."""
        return self.f.at(self.vector, base, index)

    def load(self, at: str) -> str:
        return self.f.let(f"load {self.vector}, ptr {at}, align {BYTES}")

    def store(self, x: str, at: str) -> None:
        self.f.line(f"store {self.vector} {x}, ptr {at}, align {BYTES}")

    def store_as(self, x: str, at: str, mask: str, streams: bool) -> None:
        """Those lanes that there are, where there is a mask; else all, past the caches or not."""
        if mask:
            self.store_some(x, at, mask)
        elif streams:
            self.store_past(x, at)
        else:
            self.store(x, at)

    def store_some(self, x: str, at: str, mask: str) -> None:
        """Those lanes that there are."""
        bits, name = f"<{self.lanes} x i1>", f"llvm.masked.store.v{self.lanes}f32.p0"
        self.f.body.declare(f"declare void @{name}({self.vector}, ptr, {bits})")
        self.f.line(f"call void @{name}({self.vector} {x}, ptr align {BYTES} {at}, {bits} {mask})")

    def store_past(self, x: str, at: str) -> None:
        """Past the caches: else a line is read to be written."""
        self.f.body.declare("!0 = !{i32 1}")
        self.streams = True
        size = self.lanes * BYTES
        self.f.line(f"store {self.vector} {x}, ptr {at}, align {size}, !nontemporal !0")

    def zeros(self, at: str, count: str) -> None:
        """So many vectors of zeros."""
        self.f.body.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        size = self.mul(count, str(self.lanes * BYTES))
        self.f.line(f"call void @llvm.memset.p0.i64(ptr {at}, i8 0, i64 {size}, i1 false)")

    def transposed_in(self, lines: list[str], depth: str, to: str) -> None:
        """A vector for each of the elements of as many lines as it has lanes."""
        self.transposer.call(self.f, lines, depth, str(self.lanes), to, str(self.lanes), self.lines)

    def spaced(self, base: str, step: str, count: str) -> list[str]:
        """Addresses for all lanes; those past the last one, which nobody stores, repeat it."""
        last = self.sub(count, "1")
        return [self.at(base, self.mul(self.f.smin(str(k), last), step)) for k in range(self.lanes)]

    def applied(self, matrix: Matrix, xs: list[str]) -> list[str]:
        """A matrix by a column of vectors; rows that differ in some signs alone share their sums."""
        found: list[str] = [""] * len(matrix)
        for i, row in enumerate(matrix):
            if found[i]:
                continue
            twin = next((k for k in range(i + 1, len(matrix)) if not found[k] and _are_twins(row, matrix[k])), None)
            if twin is None:
                found[i] = self._sum(row, xs)
                continue
            pairs = list(zip(row, matrix[twin], strict=True))
            same = self._sum(tuple(c if c == d else 0.0 for c, d in pairs), xs)
            apart = self._sum(tuple(c if c != d else 0.0 for c, d in pairs), xs)
            found[i] = self.f.let(f"fadd {self.vector} {same}, {apart}")
            found[twin] = self.f.let(f"fsub {self.vector} {same}, {apart}")
        return found

    def _sum(self, row: tuple[float, ...], xs: list[str]) -> str:
        f, v, total = self.f, self.vector, ""
        for c, x in zip(row, xs, strict=True):
            if not c:
                continue
            if not total:
                total = x if c == 1 else f.let(f"fmul {v} {x}, {self._splat(c)}")
            elif abs(c) == 1:
                total = f.let(f"{'fadd' if c > 0 else 'fsub'} {v} {total}, {x}")
            else:
                name = f"llvm.fmuladd.v{self.lanes}f32"
                total = f.body.call(v, name, (v, x), (v, self._splat(c)), (v, total))
        return total

    def _splat(self, c: float) -> str:
        number = f"0x{np.float64(np.float32(c)).view(np.uint64):016X}"
        return f"<{', '.join([f'{ELEMENT} {number}'] * self.lanes)}>"

    # Rows of tiles

    def read(self, kind: str, image: Image, row: str, to: Planes, work: str, streams: bool = False) -> None:
        """A row of tiles of an image to the planes; `streams`: past the caches, where channels are whole vectors."""
        f, matrix, right = self.f, READ[kind], self.arg["right"]
        window = len(matrix[0])
        wide = self.add(self.mul(right, str(PLACES)), str(window - PLACES))
        columns = self.at_vector(work, self.mul(wide, str(window)))
        filled = self.add(image.left, image.width)
        behind = self.sub(wide, filled)
        above = self.sub(self.mul(row, str(PLACES)), image.top)
        with f.loop("0", str(window), "1") as i:
            y = self.add(above, i.index)
            line = self.at_vector(work, self.mul(i.index, wide))
            inside = f.let(f"icmp ult i64 {y}, {image.height}")
            with f.when(inside):
                self.zeros(line, image.left)
                self.zeros(self.at_vector(line, filled), behind)
                lines = self.spaced(self.at(image.at, self.mul(y, image.width)), image.channel, image.channels)
                self.transposed_in(lines, image.width, self.at_vector(line, image.left))
            with f.when(f.let(f"xor i1 {inside}, true")):
                self.zeros(line, wide)
        with f.loop("0", wide, "1") as x:
            steps = [x.index, *(self.add(x.index, self.mul(wide, str(i))) for i in range(1, window))]
            xs = [self.load(self.at_vector(work, step)) for step in steps]
            at = self.at_vector(columns, self.mul(x.index, str(SIZE)))
            for a, value in enumerate(self.applied(matrix, xs)):
                self.store(value, self.at_vector(at, str(a)))
        mask = f.mask(self.lanes, image.channels)
        whole = f.let(f"icmp eq i64 {image.channels}, {self.lanes}")
        for some, condition in (("", whole), (mask, f.let(f"xor i1 {whole}, true"))):
            with f.when(condition), f.loop("0", right, "1", [("ptr", to.at)]) as tile:
                first = self.at_vector(columns, self.mul(tile.index, str(PLACES * SIZE)))
                at = tile.carried[0]
                for a in range(SIZE):
                    xs = [self.load(self.at_vector(first, str(j * SIZE + a))) for j in range(window)]
                    for value in self.applied(matrix, xs):
                        self.store_as(value, at, some, streams)
                        at = self.at(at, to.plane)
                tile.next = [self.at(tile.carried[0], to.tile)]

    def write(self, planes: Planes, image: Image, row: str, work: str) -> None:
        """A row of tiles of the planes of sums to an image, as far as it reaches."""
        f, matrix, right = self.f, WRITTEN["image"], self.arg["right"]
        pitch = self.mul(right, str(PLACES))
        rows = self.at_vector(work, self.mul(right, str(PLACES * SIZE)))
        with f.loop("0", right, "1", [("ptr", planes.at)]) as tile:
            at = self.at_vector(work, self.mul(tile.index, str(PLACES * SIZE)))
            sources = [tile.carried[0]]
            for _ in range(PLANES - 1):
                sources.append(self.at(sources[-1], planes.plane))
            for b in range(SIZE):
                found = self.applied(matrix, [self.load(sources[a * SIZE + b]) for a in range(SIZE)])
                for y, value in enumerate(found):
                    self.store(value, self.at_vector(at, str(y * SIZE + b)))
            tile.next = [self.at(tile.carried[0], planes.tile)]
        with f.loop("0", right, "1") as tile:
            at = self.at_vector(work, self.mul(tile.index, str(PLACES * SIZE)))
            first = self.mul(tile.index, str(PLACES))
            for y in range(PLACES):
                found = self.applied(matrix, [self.load(self.at_vector(at, str(y * SIZE + b))) for b in range(SIZE)])
                line = self.at_vector(rows, self.add(self.mul(pitch, str(y)), first))
                for j, value in enumerate(found):
                    self.store(value, self.at_vector(line, str(j)))
        above = self.mul(row, str(PLACES))
        there = f.smin(self.sub(image.height, above), str(PLACES))
        own, end = self.at(image.at, self.mul(above, image.width)), self.sub(image.width, "1")
        with f.loop("0", there, "1") as i:
            line = self.at_vector(rows, self.mul(i.index, pitch))
            to = self.at(own, self.mul(i.index, image.width))
            with f.loop("0", image.width, str(self.lanes)) as group:
                # Places past the last one repeat it: they are not stored.
                places = [f.smin(self.add(group.index, str(k)), end) for k in range(self.lanes)]
                lines = [self.at_vector(line, place) for place in places]
                count = self.sub(image.width, group.index)
                self.transposer.call(
                    f, lines, image.channels, count, self.at(to, group.index), image.channel, self.lines
                )  # fmt: skip

    def text(self, name: str, *more: str, declared: frozenset[str] = frozenset()) -> tuple[str, str]:
        """The module, and its name."""
        f = self.f
        if self.streams:
            # Other threads see what was written past the caches only behind a fence.
            f.body.declare("declare void @llvm.x86.sse.sfence()")
            f.line("call void @llvm.x86.sse.sfence()")
        f.line("ret void")
        transposer, lines = self.transposer.text()
        lines |= declared | set(f.body.module.text().splitlines())
        head = f"define void @{name}({PARAMETERS}) nounwind {{\nentry:"
        parts = [*sorted(line for line in lines if line), *more, transposer, f"{head}\n{f.text()}\n}}"]
        return named("\n".join(parts), name)


def _are_twins(row: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Whether two rows have the same numbers, some with another sign and some, that are not 0, with the same."""
    pairs = list(zip(row, other, strict=True))
    return all(abs(c) == abs(d) for c, d in pairs) and any(c == d != 0 for c, d in pairs) and row != other


@cache
def tiles_text(kind: str, lanes: int, streams: bool) -> tuple[str, str]:
    """The module that writes planes of what tiles read, and its name. A unit: a row of tiles, a vector of channels.

    streams: whether they are written past the caches; then all vectors are whole.
    """
    u = Writer(lanes)
    f, arg = u.f, u.arg
    with f.loop("%begin", "%end", "1") as unit:
        rows, block = u.parts(unit.index, f.let(f"udiv i64 {u.add(arg['channels'], str(lanes - 1))}, {lanes}"))
        number, row = u.parts(rows, arg["down"])
        first = u.mul(block, str(lanes))
        left = f.smin(u.sub(arg["channels"], first), str(lanes))
        source = u.at(u.at(arg["from"], u.mul(number, arg["image"])), u.mul(first, arg["channel"]))
        target = u.at(u.at(arg["to"], u.mul(u.mul(rows, arg["right"]), arg["channels"])), first)
        image = Image(source, left, arg["channel"], arg["height"], arg["width"], arg["top"], arg["left"])
        u.read(kind, image, row, Planes(target, arg["plane"], arg["channels"]), u.workspace, streams)
    return u.text("lazyt_winograd_tiles")


@cache
def filters_text(lanes: int, streams: bool) -> tuple[str, str]:
    """The module that writes panels of filters, and its name. A unit: a vector of features, some channels.

    streams: whether they are written past the caches.
    """
    u = Writer(lanes)
    f, arg = u.f, u.arg
    window = WINDOW * WINDOW
    line = u.mul(arg["channels"], str(window))
    columns = u.at_vector(u.workspace, str(CHANNELS * window))
    panel = u.mul(arg["channels"], str(PLANES * PANEL))
    plane = u.mul(arg["channels"], str(PANEL))
    with f.loop("%begin", "%end", "1") as unit:
        some, block = u.parts(unit.index, f.let(f"udiv i64 {u.add(arg['features'], str(lanes - 1))}, {lanes}"))
        first, channel = u.mul(block, str(lanes)), u.mul(some, str(CHANNELS))
        count = f.smin(u.sub(arg["channels"], channel), str(CHANNELS))
        own = u.at(u.at(arg["from"], u.mul(first, line)), u.mul(channel, str(window)))
        u.transposed_in(u.spaced(own, line, u.sub(arg["features"], first)), u.mul(count, str(window)), u.workspace)
        whole, inside = u.parts(first, str(PANEL))
        target = u.at(u.at(arg["to"], u.mul(whole, panel)), u.add(u.mul(channel, str(PANEL)), inside))
        with f.loop("0", count, "1") as c:
            base = u.at_vector(u.workspace, u.mul(c.index, str(window)))
            for j in range(WINDOW):
                xs = [u.load(u.at_vector(base, str(i * WINDOW + j))) for i in range(WINDOW)]
                for a, value in enumerate(u.applied(G, xs)):
                    u.store(value, u.at_vector(columns, str(a * WINDOW + j)))
            at = u.at(target, u.mul(c.index, str(PANEL)))
            for a in range(SIZE):
                xs = [u.load(u.at_vector(columns, str(a * WINDOW + j))) for j in range(WINDOW)]
                for value in u.applied(G, xs):
                    u.store_as(value, at, "", streams)
                    at = u.at(at, plane)
    return u.text("lazyt_winograd_filters")


@cache
def slope_text(lanes: int) -> tuple[str, str]:
    """The module that writes derivatives by filters, and its name. A unit: a channel, a vector of features."""
    u = Writer(lanes)
    f, arg, matrix = u.f, u.arg, WRITTEN["filter"]
    with f.loop("%begin", "%end", "1") as unit:
        channel, block = u.parts(unit.index, f.let(f"udiv i64 {u.add(arg['features'], str(lanes - 1))}, {lanes}"))
        first = u.mul(block, str(lanes))
        mask = f.mask(lanes, f.smin(u.sub(arg["features"], first), str(lanes)))
        at = u.at(arg["from"], u.add(u.mul(channel, arg["features"]), first))
        bits = f"<{lanes} x i1>"
        for a in range(SIZE):
            xs = []
            for _ in range(SIZE):
                xs.append(
                    f.body.call(
                        u.vector, f"llvm.masked.load.v{lanes}f32.p0", ("ptr", f"align {BYTES} {at}"), (bits, mask),
                        (u.vector, "zeroinitializer"),
                    )
                )  # fmt: skip
                at = u.at(at, arg["plane"])
            for j, value in enumerate(u.applied(matrix, xs)):
                u.store(value, u.at_vector(u.workspace, str(j * SIZE + a)))
        to = u.at(arg["to"], u.add(u.mul(u.mul(channel, arg["features"]), str(WINDOW * WINDOW)), first))
        columns = [[u.load(u.at_vector(u.workspace, str(j * SIZE + a))) for a in range(SIZE)] for j in range(WINDOW)]
        found = [u.applied(matrix, xs) for xs in columns]
        for i in range(WINDOW):
            for j in range(WINDOW):
                u.store_some(found[j][i], to, mask)
                to = u.at(to, arg["features"])
    return u.text("lazyt_winograd_slope")
