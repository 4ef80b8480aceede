"""The LLVM IR of convolutions whose vectors lie along the features: any stride, images of any size, no copies.

    y[n, o, i] = sum over d of x[n][places[i] + offsets[d]] * w[o, d]          d = (c, k..) in row-major order

A tile is some places by vectors of features. An element of x is read through the window where it lies, and broadcast;
w is packed beforehand, in panels of features. A unit is some places of one image, or of several whole images, and some
of the features of a group. Its sums lie in the thread's working memory, a line of features for each place, and are
transposed at the end, as the result has its places along its rows.

Order of the sums and epilogues are as in conv_ir.py, whose vectors lie along the places: both give the same bits.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.looptext import Function, named
from lazyt.backends.cpu.codegen.text import mem_type
from lazyt.backends.cpu.codegen.transpose import Transposer
from lazyt.backends.cpu.library.conv_pad_ir import framing
from lazyt.backends.cpu.library.gemm_epilogue import epilogue_text
from lazyt.backends.cpu.library.gemm_micro import Micro, tables
from lazyt.backends.cpu.library.gemm_pack import panels_that_stay
from lazyt.backends.cpu.library.gemm_tile import FIELDS, HEAD, KC, PREFETCH
from lazyt.backends.cpu.workspace import PARAMETERS, workspace_of

if TYPE_CHECKING:
    import numpy as np

    from lazyt.backends.cpu.library.gemm_tile import Tile

# Entries after those of every product: tables, images in all, images of a unit, places of a unit in each of them,
# elements of a line of sums, where the addresses of the places and a finished part are in the working memory (bytes).
# From group to group of x and the packed w; 'm' features and 'channels' are those of a group.
# 'unit_rows' are the features of a unit, 'row_blocks' such units, 'col_blocks' units that divide an image.
# A unit of an image with zeros around it copies 'window_rows' rows of it, 'wide' elements with their zeros, to
# 'window_at', and reads them there; 'down' are the rows from a row of the result to the next.
PLACE_FIELDS = (
    "offsets", "places", "x_batch", "count", "images", "part", "line", "rows_at", "transposed_at",
    "window_rows", "window_at", "channels", "height", "width", "top", "left", "wide", "down", "out_width",
    "groups", "x_group", "b_group",
)  # fmt: skip
PLACE_AT = {name: HEAD + i for i, name in enumerate(PLACE_FIELDS)}
PLACE_SIZE = HEAD + len(PLACE_FIELDS)
# Bytes of a line of the cache.
LINE = 64
# Neighbours in a row of the result, of which one has an address of its own: so tall tiles have registers for those.
RUN = 4


class _Features(Micro):
    """`(k, addresses of the places, offsets, w, w stride, C, C stride, add)`

    step: from a place to its neighbour in x, where places come in runs; 0 where they do not.
    """

    def __init__(self, dtype: np.dtype, tile: Tile, mr: int, nv: int, step: int) -> None:
        super().__init__(dtype, tile, "row", mr, nv, False)
        self.apart = step if mr % RUN == 0 else 0

    def text(self) -> str:
        f, e = self.f, self.element
        run = RUN if self.apart else 1
        firsts = [f.load("ptr", f.at("ptr", "%rows", str(r))) for r in range(0, self.mr, run)]
        tall = self.mr == self.tile.heights(self.nv)[0]

        def step(index: str, pointers: list[str], sums: list[str]) -> tuple[list[str], list[str]]:
            offset = f.load("i64", f.at("i64", "%offsets", index))
            vectors = [self.load(f.at(e, pointers[0], str(v * self.lanes))) for v in range(self.nv)]
            if tall:
                f.body.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
                ahead = f.at(e, pointers[0], f.let(f"mul i64 %bs, {PREFETCH}"))
                for v in range(0, self.nv, max(LINE // (self.lanes * self.size), 1)):
                    line = f.at(e, ahead, str(v * self.lanes))
                    f.line(f"call void @llvm.prefetch.p0(ptr {line}, i32 0, i32 3, i32 1)")
            out = []
            for r in range(self.mr):
                at = f.at(e, firsts[r // run], offset)
                a = self.broadcast(f.at(e, at, str(r % run * self.apart)) if r % run else at)
                out += [self.multiply_add(a, x, sums[r * self.nv + v]) for v, x in enumerate(vectors)]
            return out, [f.at(e, pointers[0], "%bs")]

        self.store(self.sums(["%b"], step), [str(v * self.lanes) for v in range(self.nv)], [""] * self.nv)
        return self.function("i64 %k, ptr %rows, ptr %offsets, ptr %b, i64 %bs, ptr %c, i64 %cs, i1 %add")


class Driver:
    """The loops over units, blocks of k, panels of features and tiles; then transposes, image by image."""

    fields: tuple[str, ...] = (*FIELDS, *PLACE_FIELDS)

    def __init__(self, dtype: np.dtype, tile: Tile) -> None:
        self.tile, self.element, self.size = tile, mem_type(dtype), dtype.itemsize
        self.f = Function()
        f = self.f
        self.transposer = Transposer(dtype, tile.lanes)
        self.lines = self.transposer.allocate(f)
        self.arg: dict[str, str] = {}
        for i, field in enumerate(self.fields):
            kind = "ptr" if field in ("A", "B", "C", "epilogue", "workspace") else "i64"
            self.arg[field] = f.load(kind, f.at("i64", "%args", str(i)))

    def text(self, name: str) -> str:
        f, e, arg = self.f, self.element, self.arg
        sums = workspace_of(f, arg["workspace"])
        stays, there, _ = panels_that_stay(f, arg["kept"])
        panels = f.let(f"select i1 {stays}, ptr {there}, ptr {arg['B']}")
        with f.loop("%begin", "%end", "1") as unit:
            row_blocks, col_blocks = arg["row_blocks"], arg["col_blocks"]
            f0 = f.let(f"mul i64 {f.let(f'urem i64 {unit.index}, {row_blocks}')}, {arg['unit_rows']}")
            features = f.smin(f.let(f"sub i64 {arg['m']}, {f0}"), arg["unit_rows"])
            rest = f.let(f"udiv i64 {unit.index}, {row_blocks}")
            i0 = f.let(f"mul i64 {f.let(f'urem i64 {rest}, {col_blocks}')}, {arg['part']}")
            rest = f.let(f"udiv i64 {rest}, {col_blocks}")
            groups = arg["groups"]
            group = f.let(f"urem i64 {rest}, {groups}")
            n0 = f.let(f"mul i64 {f.let(f'udiv i64 {rest}, {groups}')}, {arg['images']}")
            # NOTE: units have whole panels, unless they have all features.
            first = f.let(f"mul i64 {f.let(f'udiv i64 {f0}, {self.tile.columns}')}, {arg['b_panel']}")
            w = f.at(e, f.at(e, panels, f.let(f"mul i64 {group}, {arg['b_group']}")), first)
            images = f.smin(f.let(f"sub i64 {arg['count']}, {n0}"), arg["images"])
            part = f.smin(f.let(f"sub i64 {arg['n']}, {i0}"), arg["part"])
            self._sums(self._image(sums, group, n0, i0, images), images, i0, part, features, w, sums)
            before = f.let(f"mul i64 {group}, {arg['m']}")
            self._transposed(sums, (f.let(f"add i64 {before}, {f0}"), features), n0, i0, images, part)
        self._end()
        f.line("ret void")
        head = f"define void @{name}({PARAMETERS}) nounwind {{\nentry:"
        return f"{head}\n{f.text()}\n}}"

    def _end(self) -> None:
        """What follows the last unit."""

    def _sums(
        self, image: tuple[str, str, str], images: str, i0: str, part: str, features: str, w: str, sums: str
    ) -> None:  # fmt: skip
        """A line of sums for each place of the unit."""
        f, e, arg = self.f, self.element, self.arg
        rows = f.at("i8", sums, arg["rows_at"])
        offsets = f.at("i64", "%args", arg["offsets"])
        self._addresses(rows, image, images, part)
        count = f.let(f"mul i64 {images}, {part}")
        # NOTE: one trip even if there is nothing to add, which makes zeros.
        last_k = f.body.call("i64", "llvm.smax.i64", ("i64", arg["k"]), ("i64", "1"))
        with f.loop("0", last_k, str(KC)) as k:
            kk = f.smin(f.let(f"sub i64 {arg['k']}, {k.index}"), str(KC))
            add = f.let(f"icmp ne i64 {k.index}, 0")
            along = f.at("i64", offsets, k.index)
            b = f.at(e, w, f.let(f"mul i64 {k.index}, {self.tile.columns}"))
            with f.loop("0", features, str(self.tile.columns), [("ptr", b)]) as panel:
                self._tiles(panel.index, panel.carried[0], kk, rows, count, along, sums, add)
                panel.next = [f.at(e, panel.carried[0], arg["b_panel"])]

    def _image(self, workspace: str, group: str, n0: str, i0: str, images: str) -> tuple[str, str, str]:
        """Where the unit's first image is, elements to the next one, and its first entry of `places`."""
        f, e, arg = self.f, self.element, self.arg
        copies = f.let(f"icmp ne i64 {arg['window_rows']}, 0")
        window = f.at("i8", workspace, arg["window_at"])
        x = f.at(e, arg["A"], f.let(f"mul i64 {group}, {arg['x_group']}"))
        x = f.at(e, x, f.let(f"mul i64 {n0}, {arg['x_batch']}"))
        with f.when(copies):
            planes = f.let(f"mul i64 {images}, {arg['channels']}")
            above = f.let(f"udiv i64 {i0}, {arg['out_width']}")
            first = f.let(f"mul i64 {above}, {arg['down']}")
            f.line(
                f"call void @framed(ptr {x}, ptr {window}, i64 {planes}, i64 {arg['height']}, i64 {arg['width']}, "
                f"i64 {arg['top']}, i64 {arg['left']}, i64 {first}, i64 {arg['window_rows']}, i64 {arg['wide']})"
            )
        plane = f.let(f"mul i64 {arg['window_rows']}, {arg['wide']}")
        size = f.let(f"mul i64 {plane}, {arg['channels']}")
        return (
            f.let(f"select i1 {copies}, ptr {window}, ptr {x}"),
            f.let(f"select i1 {copies}, i64 {size}, i64 {arg['x_batch']}"),
            f.let(f"select i1 {copies}, i64 0, i64 {i0}"),
        )

    def _addresses(self, rows: str, image: tuple[str, str, str], images: str, part: str) -> None:
        """The address of every place of the unit."""
        f, e, arg = self.f, self.element, self.arg
        x, step, first = image
        places = f.at("i64", f.at("i64", "%args", arg["places"]), first)
        with f.loop("0", images, "1") as number:
            own = f.at(e, x, f.let(f"mul i64 {number.index}, {step}"))
            to = f.at("ptr", rows, f.let(f"mul i64 {number.index}, {part}"))
            with f.loop("0", part, "1") as place:
                at = f.at(e, own, f.load("i64", f.at("i64", places, place.index)))
                f.line(f"store ptr {at}, ptr {f.at('ptr', to, place.index)}")

    def _tiles(
        self, first: str, b: str, kk: str, rows: str, count: str, offsets: str, sums: str, add: str
    ) -> None:  # fmt: skip
        """All tiles of one panel of features."""
        f, e, t, arg = self.f, self.element, self.tile, self.arg
        wide = f.smin(f.let(f"sub i64 {arg['line']}, {first}"), str(t.columns))
        family = f.let(f"sub i64 {f.let(f'udiv i64 {wide}, {t.lanes}')}, 1")
        tallest = t.tallest
        table = f.let(f"mul i64 {family}, {tallest + 1}")
        c = f.at(e, sums, first)
        with f.loop("0", count, "1") as row:
            left = f.smin(f.let(f"sub i64 {count}, {row.index}"), str(tallest))
            which = f.let(f"add i64 {table}, {left}")
            micro = f.load("ptr", f.at("ptr", "@micros", which))
            row.step = f.load("i64", f.at("i64", "@heights", which))
            own = f.at("ptr", rows, row.index)
            cr = f.at(e, c, f.let(f"mul i64 {row.index}, {arg['line']}"))
            f.line(
                f"call void {micro}(i64 {kk}, ptr {own}, ptr {offsets}, ptr {b}, i64 {t.columns}, ptr {cr}, "
                f"i64 {arg['line']}, i1 {add})"
            )

    def _transposed(self, sums: str, features: tuple[str, str], n0: str, i0: str, images: str, part: str) -> None:
        """Each image's sums to where they belong, and what is computed of them."""
        f, e, arg, lanes = self.f, self.element, self.arg, self.tile.lanes
        f0, count = features
        has_epilogue = f.let(f"icmp ne ptr {arg['epilogue']}, null")
        on_stack = f.let(f"icmp ne i64 {arg['scratch']}, 0")
        ldc = f.let(f"select i1 {on_stack}, i64 {arg['part']}, i64 {arg['c_row']}")
        with f.loop("0", images, "1") as image:
            number = f.let(f"add i64 {n0}, {image.index}")
            own = f.at(e, f.at(e, arg["C"], f.let(f"mul i64 {number}, {arg['c_batch']}")), i0)
            own = f.at(e, own, f.let(f"mul i64 {f0}, {arg['c_row']}"))
            c = f.let(f"select i1 {on_stack}, ptr {f.at('i8', sums, arg['transposed_at'])}, ptr {own}")
            size = f.let(f"mul i64 {f.let(f'mul i64 {image.index}, {part}')}, {arg['line']}")
            source = f.at(e, sums, size)
            end = f.let(f"sub i64 {part}, 1")
            # NOTE: a few features at a time, so that lines of the result that are far apart are written whole.
            with f.loop("0", count, str(lanes)) as few:
                deep = f.smin(f.let(f"sub i64 {count}, {few.index}"), str(lanes))
                target = f.at(e, c, f.let(f"mul i64 {few.index}, {ldc}"))
                first = f.at(e, source, few.index)
                with f.loop("0", part, str(lanes)) as group:
                    lines = []
                    for r in range(lanes):
                        # Lines past the last one repeat it: they are not stored.
                        line = f.smin(f.let(f"add i64 {group.index}, {r}"), end)
                        lines.append(f.at(e, first, f.let(f"mul i64 {line}, {arg['line']}")))
                    left = f.let(f"sub i64 {part}, {group.index}")
                    self.transposer.call(f, lines, deep, left, f.at(e, target, group.index), ldc, self.lines)
            with f.when(has_epilogue):
                f.line(
                    f"call void @epilogue(ptr %args, i64 {number}, i64 {f0}, i64 {i0}, i64 {count}, i64 {part}, "
                    f"ptr {c}, i64 {ldc})"
                )


@cache
def features_text(dtype: np.dtype, tile: Tile, step: int, widths: tuple[int, ...]) -> tuple[str, str]:
    """The module of convolutions with vectors along the features, and its name.

    step: see `_Features`; widths: vectors of the tiles that the features take, as all would take twice as long to
    compile.
    """
    driver = Driver(dtype, tile)
    body = driver.text("lazyt_features")
    micros, constants = tables(tile, widths, lambda rows, vectors: _Features(dtype, tile, rows, vectors, step))
    texts = [m.text() for m in micros]
    transposer, declared = driver.transposer.text()
    frames, more = framing(dtype, tile.lanes)
    declared |= more
    for f in (driver.f, *(m.f for m in micros)):
        declared |= set(f.body.module.text().splitlines())
    parts = [
        *sorted(line for line in declared if line),
        *constants,
        *texts,
        transposer,
        frames,
        epilogue_text(),
        body,
    ]
    return named("\n".join(parts), "lazyt_features")
