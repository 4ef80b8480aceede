"""The LLVM IR of copies for convolutions of bfloat16 by AMX: in pairs of what is summed (see conv_tiles_ir.py).

'images'   Planes are copied with zeros around them, and what lies planes apart becomes neighbours: channels, images, or
           features beside images. Sixteen lines that are a plane, or more, apart are read at sixteen places, each with
           its pair, and transposed: to[place][line] = (from[line][place], from[line + second][place]).
'planes'   The same of one line: a plane of pairs.
'filters'  Panels of COLUMNS features, the taps in an order: to[panel][i][channel / 2][feature] = a pair of channels.

Pairs are read as bfloat16, or rounded to it from float32 (`Source`). Those without a second have a zero.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.cpu.codegen.looptext import Function, named, suffix_of
from lazyt.backends.cpu.codegen.source import RowPairReader
from lazyt.backends.cpu.codegen.transpose import Transposer
from lazyt.backends.cpu.library.gemm_amx import SIDE
from lazyt.backends.cpu.library.gemm_pack import panels_that_stay
from lazyt.backends.cpu.workspace import PARAMETERS, workspace_of

if TYPE_CHECKING:
    from lazyt.backends.cpu.codegen.source import Source

PAIRS = np.dtype(np.float32)  # what a pair is moved as
PAIR = "float"
PAIR_SIZE = 4
# Features of a panel: two registers.
COLUMNS = 2 * SIDE
# Channels of a block of filters: the pairs of a register.
CHANNELS = 2 * SIDE

# Unit i * inner + j begins `from_outer` * i + `from_inner` * j elements on, and `to_outer` * i + `to_inner` * j pairs.
# It has 16 of `lines`, `line` elements apart, of which the first `seconds` have a second, `second` elements on (of the
# last i that is there, `last_seconds`). i from `there` on has zeros. `stored` are the pairs of a place in all. Of
# 'planes' a unit is a line, and it has a second if j is less than `seconds`. Rows are
# `from_row` elements apart; with the zeros there are `rows` of `wide` places, and planes begin at (top, left).
IMAGES_FIELDS = (
    "from", "to", "inner", "there", "from_outer", "from_inner", "to_outer", "to_inner", "line", "second", "lines",
    "seconds", "last_seconds", "stored", "height", "width", "from_row", "top", "left", "rows", "wide", "to_row",
    "to_place",
)  # fmt: skip
IMAGES_AT = {name: i for i, name in enumerate(IMAGES_FIELDS)}
IMAGES_SIZE = len(IMAGES_FIELDS)

# Features and channels are `by_feature` and `by_channel` elements apart, the taps neighbours, `backward` or not. `run`
# channels lie one after another, each with its taps. A panel has so many `blocks` of CHANNELS. `kept` is as in
# gemm_pack.py; `order` is a table of all taps that follows the arguments.
FILTERS_FIELDS = (
    "from", "to", "workspace", "kept", "features", "channels", "taps", "by_feature", "by_channel", "backward", "run",
    "blocks", "order",
)  # fmt: skip
FILTERS_AT = {name: i for i, name in enumerate(FILTERS_FIELDS)}
FILTERS_SIZE = len(FILTERS_FIELDS)
# Bytes of working memory that packing takes for each tap.
TAP_BYTES = CHANNELS * COLUMNS * PAIR_SIZE


class _Images:
    """The loops over rows and sixteen places of them."""

    name = "lazyt_pairs"

    def __init__(self, source: Source) -> None:
        self.f = f = Function()
        self.read = RowPairReader(f, source.stored, SIDE, source)
        self.transposer = Transposer(PAIRS, SIDE)
        self.lines = self.transposer.allocate(f)
        self.vector = f"<{SIDE} x {PAIR}>"
        self.block = f.let(f"alloca {self.vector}, i64 {SIDE}, align 64")
        self.bits = f"<{SIDE} x i1>"
        self.element = self.read.element
        self.loads = f"llvm.masked.load.v{SIDE}{suffix_of(source.stored)}.p0"
        self.stores = f"llvm.masked.store.v{SIDE}{suffix_of(PAIRS)}.p0"
        f.body.declare(f"declare void @{self.stores}({self.vector}, ptr, {self.bits})")
        self.arg = {}
        for i, field in enumerate(IMAGES_FIELDS):
            self.arg[field] = f.load("ptr" if field in ("from", "to") else "i64", f.at("i64", "%args", str(i)))

    def text(self) -> tuple[str, str]:
        f, arg = self.f, self.arg
        with f.loop("%begin", "%end", "1") as unit:
            i, j = (f.let(f"{op} i64 {unit.index}, {arg['inner']}") for op in ("udiv", "urem"))
            source, target = (
                f.at(kind, arg[name], self._sum((i, arg[f"{name}_outer"]), (j, arg[f"{name}_inner"])))
                for kind, name in ((self.element, "from"), (PAIR, "to"))
            )
            self._plane(source, target, *self._counts(i, j))
        f.line("ret void")
        transposer, declared = self.transposer.text()
        declared |= set(f.body.module.text().splitlines())
        head = f"define void @{self.name}(ptr %args, i64 %begin, i64 %end) nounwind {{\nentry:"
        return named("\n".join([*sorted(x for x in declared if x), transposer, head, f.text(), "}"]), self.name)

    def _counts(self, i: str, j: str) -> tuple[str, str, str]:
        """Of a unit: lines, those with a second, and pairs of a place."""
        f, arg = self.f, self.arg
        before = f.let(f"mul i64 {j}, {SIDE}")
        there = f.let(f"icmp slt i64 {i}, {arg['there']}")
        last = f.let(f"icmp eq i64 {f.let(f'add i64 {i}, 1')}, {arg['there']}")
        seconds = f.let(f"select i1 {last}, i64 {arg['last_seconds']}, i64 {arg['seconds']}")
        lines, seconds = (
            self._left(f.let(f"select i1 {there}, i64 {n}, i64 0"), before) for n in (arg["lines"], seconds)
        )  # fmt: skip
        return lines, seconds, self._left(arg["stored"], before)

    def _sum(self, *products: tuple[str, str]) -> str:
        f = self.f
        a, b = (f.let(f"mul i64 {x}, {y}") for x, y in products)
        return f.let(f"add i64 {a}, {b}")

    def _left(self, count: str, before: str) -> str:
        """How many of 16 there are behind those before."""
        left = self.f.let(f"sub i64 {count}, {before}")
        return self.f.smin(self.f.body.call("i64", "llvm.smax.i64", ("i64", left), ("i64", "0")), str(SIDE))

    def _plane(self, source: str, target: str, lines: str, seconds: str, stored: str) -> None:
        f, arg = self.f, self.arg
        some = f.mask(SIDE, stored)
        right = f.let(f"add i64 {arg['left']}, {arg['width']}")
        with f.loop("0", arg["rows"], "1") as row:
            to = f.at(PAIR, target, f.let(f"mul i64 {row.index}, {arg['to_row']}"))
            y = f.let(f"sub i64 {row.index}, {arg['top']}")
            # NOTE: rows before the plane are large numbers.
            inside = f.let(f"icmp ult i64 {y}, {arg['height']}")
            first = f.let(f"select i1 {inside}, i64 {arg['left']}, i64 {arg['wide']}")
            self._zeros(to, "0", first, some)
            with f.when(inside):
                self._zeros(to, right, arg["wide"], some)
                own = f.at(self.element, source, f.let(f"mul i64 {y}, {arg['from_row']}"))
                with f.loop("0", arg["width"], str(SIDE)) as x:
                    count = f.smin(f.let(f"sub i64 {arg['width']}, {x.index}"), str(SIDE))
                    place = f.let(f"add i64 {arg['left']}, {x.index}")
                    self._square(
                        f.at(self.element, own, x.index),
                        f.at(PAIR, to, f.let(f"mul i64 {place}, {arg['to_place']}")), (lines, seconds, stored), count,
                    )  # fmt: skip

    def _zeros(self, to: str, first: str, end: str, mask: str) -> None:
        f = self.f
        with f.loop(first, end, "1") as place:
            at = f.at(PAIR, to, f.let(f"mul i64 {place.index}, {self.arg['to_place']}"))
            value = f"{self.vector} zeroinitializer"
            f.line(f"call void @{self.stores}({value}, ptr align {PAIR_SIZE} {at}, {self.bits} {mask})")

    def _square(self, source: str, target: str, counts: tuple[str, str, str], places: str) -> None:
        """Sixteen lines at so many places, at most sixteen."""
        f, arg, read = self.f, self.arg, self.read
        lines, seconds, stored = counts
        mask = f.mask(SIDE, places)
        # NOTE: a loop, because sixteen lines at once take long to compile.
        with f.loop("0", str(SIDE), "1", [("ptr", source)]) as line:
            own = line.carried[0]
            upper, lower = (
                self._some(at, mask, f.let(f"icmp slt i64 {line.index}, {count}"))
                for at, count in ((own, lines), (f.at(self.element, own, arg["second"]), seconds))
            )
            pair = read.pair(upper, lower, "-1")
            at = f.at(self.vector, self.block, line.index)
            f.line(f"store {self.vector} {pair}, ptr {at}, align 64")
            line.next = [f.at(self.element, own, arg["line"])]
        rows = [f.at(self.vector, self.block, str(i)) for i in range(SIDE)]
        self.transposer.call(f, rows, places, stored, target, arg["to_place"], self.lines)

    def _some(self, at: str, mask: str, there: str) -> str:
        """What is read at so many places of a line; zeros where it is not there."""
        f = self.f
        one = f.let(f"insertelement {self.bits} poison, i1 {there}, i32 0")
        every = f.let(f"shufflevector {self.bits} {one}, {self.bits} poison, <{SIDE} x i32> zeroinitializer")
        own = f.let(f"and {self.bits} {mask}, {every}")
        vector = self.read.vector
        return f.body.call(
            vector, self.loads, ("ptr", f"align {self.read.size} {at}"), (self.bits, own), (vector, "zeroinitializer")
        )


class _Planes(_Images):
    """The same of units of one line, j of them with a second: nothing is transposed."""

    name = "lazyt_plane_pairs"

    def _counts(self, i: str, j: str) -> tuple[str, str, str]:
        f = self.f
        second = f.let(f"icmp slt i64 {j}, {self.arg['seconds']}")
        return "1", f.let(f"zext i1 {second} to i64"), "1"

    def _zeros(self, to: str, first: str, end: str, mask: str) -> None:
        f = self.f
        f.body.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        nbytes = f.let(f"mul i64 {f.let(f'sub i64 {end}, {first}')}, {PAIR_SIZE}")
        f.line(f"call void @llvm.memset.p0.i64(ptr {f.at(PAIR, to, first)}, i8 0, i64 {nbytes}, i1 false)")

    def _square(self, source: str, target: str, counts: tuple[str, str, str], places: str) -> None:
        f, mask = self.f, self.f.mask(SIDE, places)
        upper = self._some(source, mask, "true")
        beyond = f.at(self.element, source, self.arg["second"])
        lower = self._some(beyond, mask, f.let(f"icmp ne i64 {counts[1]}, 0"))
        pair = f"{self.vector} {self.read.pair(upper, lower, '-1')}"
        f.line(f"call void @{self.stores}({pair}, ptr align {PAIR_SIZE} {target}, {self.bits} {mask})")


@cache
def planes_text(source: Source) -> tuple[str, str]:
    """The module that copies planes of pairs, and its name."""
    return _Planes(source).text()


@cache
def images_text(source: Source) -> tuple[str, str]:
    """The module that copies images, and its name."""
    return _Images(source).text()


class _Filters:
    """The loops over panels and blocks of channels; a block is first put together in the thread's working memory."""

    def __init__(self, source: Source) -> None:
        self.f = f = Function()
        self.transposer = Transposer(PAIRS, SIDE, source)
        self.lines = self.transposer.allocate(f)
        self.element = RowPairReader(f, source.stored, SIDE, source).element
        self.arg: dict[str, str] = {}
        for i, field in enumerate(FILTERS_FIELDS):
            kind = "ptr" if field in ("from", "to", "workspace") else "i64"
            self.arg[field] = f.load(kind, f.at("i64", "%args", str(i)))
        f.body.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")

    def text(self) -> tuple[str, str]:
        f, arg = self.f, self.arg
        stays, kept, fills = panels_that_stay(f, arg["kept"])
        to = f.let(f"select i1 {stays}, ptr {kept}, ptr {arg['to']}")
        is_done = f.let(f"and i1 {stays}, {f.let(f'xor i1 {fills}, true')}")
        block = workspace_of(f, arg["workspace"])
        with f.loop("%begin", f.let(f"select i1 {is_done}, i64 %begin, i64 %end"), "1") as unit:
            panel, part = (f.let(f"{op} i64 {unit.index}, {arg['blocks']}") for op in ("udiv", "urem"))
            channels = self._gathered(panel, part, block)
            self._zeros(channels, block)
            self._put(panel, part, block, to)
        f.line("ret void")
        body, declared = self.transposer.text()
        declared |= set(f.body.module.text().splitlines())
        head = f"define void @lazyt_filter_pairs({PARAMETERS}) nounwind {{\nentry:"
        return named("\n".join([*sorted(x for x in declared if x), body, head, f.text(), "}"]), "lazyt_filter_pairs")

    def _gathered(self, panel: str, part: str, block: str) -> str:
        """Copy the filters of a block: of each channel and tap those of all features; how many channels it has."""
        f, arg, e, taps = self.f, self.arg, self.element, self.arg["taps"]
        backward = f.let(f"icmp ne i64 {arg['backward']}, 0")
        last = f.let(f"mul i64 {f.let(f'sub i64 {taps}, 1')}, {COLUMNS}")
        first = f.let(f"select i1 {backward}, i64 {last}, i64 0")
        step = f.let(f"select i1 {backward}, i64 {-COLUMNS}, i64 {COLUMNS}")
        f0, c0 = f.let(f"mul i64 {panel}, {COLUMNS}"), f.let(f"mul i64 {part}, {CHANNELS}")
        features = f.smin(f.let(f"sub i64 {arg['features']}, {f0}"), str(COLUMNS))
        channels = f.smin(f.let(f"sub i64 {arg['channels']}, {c0}"), str(CHANNELS))
        end = f.let(f"sub i64 {features}, 1")
        own = f.at(e, arg["from"], f.let(f"mul i64 {f0}, {arg['by_feature']}"))
        own = f.at(e, own, f.let(f"mul i64 {c0}, {arg['by_channel']}"))
        with f.loop("0", channels, arg["run"]) as run:
            some = f.smin(f.let(f"sub i64 {channels}, {run.index}"), arg["run"])
            depth = f.let(f"mul i64 {some}, {taps}")
            source = f.at(e, own, f.let(f"mul i64 {run.index}, {arg['by_channel']}"))
            row = f.let(f"mul i64 {f.let(f'mul i64 {run.index}, {taps}')}, {COLUMNS}")
            target = f.at(PAIR, block, f.let(f"add i64 {row}, {first}"))
            with f.loop("0", features, str(SIDE)) as group:
                found = []
                for r in range(SIDE):
                    # Lines past the last one repeat it: nothing reads what comes of them.
                    line = f.smin(f.let(f"add i64 {group.index}, {r}"), end)
                    found.append(f.at(e, source, f.let(f"mul i64 {line}, {arg['by_feature']}")))
                to = f.at(PAIR, target, group.index)
                self.transposer.call(f, found, depth, str(SIDE), to, step, self.lines)
        return channels

    def _zeros(self, channels: str, block: str) -> None:
        """Fill a block up where it has fewer channels."""
        f, taps = self.f, self.arg["taps"]
        there = f.let(f"mul i64 {channels}, {taps}")
        missing = f.let(f"sub i64 {f.let(f'mul i64 {taps}, {CHANNELS}')}, {there}")
        rest = f.at(PAIR, block, f.let(f"mul i64 {there}, {COLUMNS}"))
        nbytes = f.let(f"mul i64 {missing}, {COLUMNS * PAIR_SIZE}")
        f.line(f"call void @llvm.memset.p0.i64(ptr {rest}, i8 0, i64 {nbytes}, i1 false)")

    def _put(self, panel: str, part: str, block: str, to: str) -> None:
        """Write a block's pairs of channels, tap by tap in their order."""
        f, arg, taps = self.f, self.arg, self.arg["taps"]
        order = f.at("i64", "%args", arg["order"])
        before = f.let(f"mul i64 {panel}, {taps}")
        by = f.let(f"mul i64 {taps}, {COLUMNS}")
        kind = f"<{SIDE} x i32>"
        sixteen, upper_half = (f"<{', '.join([f'i32 {n}'] * SIDE)}>" for n in (16, -65536))
        with f.loop("0", taps, "1") as tap:
            number = f.let(f"mul i64 {f.let(f'add i64 {before}, {tap.index}')}, {arg['blocks']}")
            place = f.let(f"mul i64 {f.let(f'add i64 {number}, {part}')}, {SIDE * COLUMNS}")
            own = f.load("i64", f.at("i64", order, tap.index))
            start = f.at(PAIR, block, f.let(f"mul i64 {own}, {COLUMNS}"))
            with f.loop("0", str(SIDE), "1", [("ptr", start), ("ptr", f.at(PAIR, to, place))]) as pair:
                upper, out = pair.carried
                lower = f.at(PAIR, upper, by)
                for v in range(0, COLUMNS, SIDE):
                    a, b = (f.let(f"load {kind}, ptr {f.at(PAIR, x, str(v))}, align 4") for x in (upper, lower))
                    low, high = f.let(f"lshr {kind} {a}, {sixteen}"), f.let(f"and {kind} {b}, {upper_half}")
                    both = f.let(f"or {kind} {low}, {high}")
                    f.line(f"store {kind} {both}, ptr {f.at(PAIR, out, str(v))}, align 4")
                pair.next = [f.at(PAIR, lower, by), f.at(PAIR, out, str(COLUMNS))]


@cache
def filters_text(source: Source) -> tuple[str, str]:
    """The module that packs filters, and its name."""
    return _Filters(source).text()
