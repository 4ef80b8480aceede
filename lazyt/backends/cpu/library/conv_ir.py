"""The LLVM IR of convolutions at stride 1: products whose one operand is read through a window, never copied.

'convolve'   y[n, o, i] = sum over d of w[o, d] * x[n][offsets[d] + place(i)]      d = (c, k..) in row-major order
             A tile is some filters by some vectors of places; a vector lies in one row of the result, so that its
             lanes are neighbours in x. A unit is some rows of one image, and all filters.
'filter'     w[d, o] = sum over n, i of x[n][offsets[d] + places[i]] * y[n, o, i]
             A tile is some d by vectors along o (y is packed, transposed). A unit is some d of a group; chunks of
             images follow one another in it, in which places of small images are one sum.

`offsets` and `places` are tables of element offsets that follow the arguments. Order of the sums, tiles and epilogues
are as in gemm_ir.py: blocks of KC along d, or along the places of each chunk of images in turn.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.looptext import Function, named
from lazyt.backends.cpu.codegen.text import mem_type
from lazyt.backends.cpu.library.gemm_epilogue import epilogue_text
from lazyt.backends.cpu.library.gemm_micro import Micro
from lazyt.backends.cpu.library.gemm_tile import FIELDS, HEAD, KC
from lazyt.backends.cpu.workspace import PARAMETERS, workspace_of

if TYPE_CHECKING:
    import numpy as np

    from lazyt.backends.cpu.library.gemm_tile import Tile

# Entries after those of every product. 'b_row' is from row to row of x, 'n' the places of an image; of filters
# 'k' the places of a chunk of images, 'total' those of all, and batches are chunks; C has the sums of images before
# these if some have 'begun'; and from group to group of x and the packed y.
CONV_FIELDS = (
    "offsets", "places", "height", "width", "x_batch", "y_batch", "chunks", "total", "begun", "x_group", "y_group",
)  # fmt: skip
CONV_AT = {name: HEAD + i for i, name in enumerate(CONV_FIELDS)}
CONV_SIZE = HEAD + len(CONV_FIELDS)


class _Places(Micro):
    """`(k, A, A stride, x, offsets, vectors, C, C stride, add)`; a vector: offset in x, offset in C, active lanes."""

    def text(self) -> str:
        f, e = self.f, self.element
        froms, tos, masks = [], [], []
        for v in range(self.nv):
            at = [f.at("i64", "%vectors", str(3 * v + i)) for i in range(3)]
            froms.append(f.at(e, "%b", f.load("i64", at[0])))
            tos.append(f.load("i64", at[1]))
            masks.append(f.mask(self.lanes, f.load("i64", at[2])))
        bases, strides = self.row_bases()

        def step(index: str, pointers: list[str], sums: list[str]) -> tuple[list[str], list[str]]:
            offset = f.load("i64", f.at("i64", "%offsets", index))
            vectors = [self.load(f.at(e, p, offset), mask) for p, mask in zip(froms, masks, strict=True)]
            out = []
            for r in range(self.mr):
                a = self.broadcast(self.row_at(pointers, strides, r))
                out += [self.multiply_add(a, x, sums[r * self.nv + v]) for v, x in enumerate(vectors)]
            return out, [f.at(e, p, "1") for p in pointers]

        self.store(self.sums(bases, step), tos, masks)
        return self.function("i64 %k, ptr %a, i64 %as, ptr %b, ptr %offsets, ptr %vectors, ptr %c, i64 %cs, i1 %add")


class _Filter(Micro):
    """`(k, x, offsets of the rows, places, y, y stride, C, C stride, add, active lanes of the last vector)`"""

    def text(self) -> str:
        f, e = self.f, self.element
        last = f.mask(self.lanes, "%last")
        masks = [""] * (self.nv - 1) + [last]
        rows = [f.at(e, "%x", f.load("i64", f.at("i64", "%offsets", str(r)))) for r in range(self.mr)]

        def step(index: str, pointers: list[str], sums: list[str]) -> tuple[list[str], list[str]]:
            place = f.load("i64", f.at("i64", "%places", index))
            vectors = [self.load(f.at(e, pointers[0], str(v * self.lanes))) for v in range(self.nv)]
            out = []
            for r, row in enumerate(rows):
                a = self.broadcast(f.at(e, row, place))
                out += [self.multiply_add(a, x, sums[r * self.nv + v]) for v, x in enumerate(vectors)]
            return out, [f.at(e, pointers[0], "%bs")]

        self.store(self.sums(["%b"], step), [str(v * self.lanes) for v in range(self.nv)], masks)
        params = "i64 %k, ptr %x, ptr %offsets, ptr %places, ptr %b, i64 %bs, ptr %c, i64 %cs, i1 %add, i64 %last"
        return self.function(params)


class _Driver:
    def __init__(self, dtype: np.dtype, tile: Tile) -> None:
        self.tile, self.element = tile, mem_type(dtype)
        self.f = Function()
        f = self.f
        f.line(f"%vectors = alloca i64, i64 {3 * tile.vectors}, align 64")
        self.arg = {}
        for i, field in enumerate((*FIELDS, *CONV_FIELDS)):
            kind = "ptr" if field in ("A", "B", "C", "epilogue", "workspace") else "i64"
            self.arg[field] = f.load(kind, f.at("i64", "%args", str(i)))
        self.tile_at = workspace_of(f, self.arg["workspace"])
        self.offsets = f.at("i64", "%args", self.arg["offsets"])
        self.places = f.at("i64", "%args", self.arg["places"])

    def heights(self, left: str) -> tuple[str, str]:
        """Which micro-kernel of a family is the tallest for so many rows, and its height."""
        f, sizes = self.f, self.tile.rows
        which, height = str(len(sizes) - 1), str(sizes[-1])
        for i in range(len(sizes) - 2, -1, -1):
            fits = f.let(f"icmp sge i64 {left}, {sizes[i]}")
            which = f.let(f"select i1 {fits}, i64 {i}, i64 {which}")
            height = f.let(f"select i1 {fits}, i64 {sizes[i]}, i64 {height}")
        return which, height

    def function(self, name: str) -> str:
        self.f.line("ret void")
        head = f"define void @{name}({PARAMETERS}) nounwind {{\nentry:"
        return f"{head}\n{self.f.text()}\n}}"

    def convolve(self, name: str) -> str:
        f, e, arg, lanes = self.f, self.element, self.arg, self.tile.lanes
        has_epilogue = f.let(f"icmp ne ptr {arg['epilogue']}, null")
        on_stack = f.let(f"icmp ne i64 {arg['scratch']}, 0")
        wide = f.let(f"add i64 {arg['width']}, {lanes - 1}")
        parts = f.let(f"udiv i64 {wide}, {lanes}")
        with f.loop("%begin", "%end", "1") as unit:
            block = f.let(f"urem i64 {unit.index}, {arg['row_blocks']}")
            number = f.let(f"udiv i64 {unit.index}, {arg['row_blocks']}")
            y0 = f.let(f"mul i64 {block}, {arg['unit_rows']}")
            rows = f.smin(f.let(f"sub i64 {arg['height']}, {y0}"), arg["unit_rows"])
            j0, nu = f.let(f"mul i64 {y0}, {arg['width']}"), f.let(f"mul i64 {rows}, {arg['width']}")
            image = f.at(e, arg["B"], f.let(f"mul i64 {number}, {arg['x_batch']}"))
            b0 = f.at(e, image, f.let(f"mul i64 {y0}, {arg['b_row']}"))
            c_at = f.at(e, f.at(e, arg["C"], f.let(f"mul i64 {number}, {arg['c_batch']}")), j0)
            c0 = f.let(f"select i1 {on_stack}, ptr {self.tile_at}, ptr {c_at}")
            ldc = f.let(f"select i1 {on_stack}, i64 {arg['unit_cols']}, i64 {arg['c_row']}")
            count = f.let(f"mul i64 {rows}, {parts}")
            # NOTE: one trip even if there is nothing to add, which makes zeros.
            last_k = f.body.call("i64", "llvm.smax.i64", ("i64", arg["k"]), ("i64", "1"))
            with f.loop("0", last_k, str(KC)) as k:
                kk = f.smin(f.let(f"sub i64 {arg['k']}, {k.index}"), str(KC))
                add = f.let(f"icmp ne i64 {k.index}, 0")
                offsets = f.at("i64", self.offsets, k.index)
                a1 = f.at(e, arg["A"], k.index)
                with f.loop("0", count, str(self.tile.vectors)) as at:
                    self._vectors(at.index, count, parts)
                    with f.loop("0", arg["m"], "1") as row:
                        which, row.step = self.heights(f.let(f"sub i64 {arg['m']}, {row.index}"))
                        micro = f.load("ptr", f.at("ptr", "@micros", which))
                        ar = f.at(e, a1, f.let(f"mul i64 {row.index}, {arg['a_row']}"))
                        cr = f.at(e, c0, f.let(f"mul i64 {row.index}, {ldc}"))
                        f.line(
                            f"call void {micro}(i64 {kk}, ptr {ar}, i64 {arg['a_row']}, ptr {b0}, ptr {offsets}, "
                            f"ptr %vectors, ptr {cr}, i64 {ldc}, i1 {add})"
                        )
            with f.when(has_epilogue):
                f.line(
                    f"call void @epilogue(ptr %args, i64 {number}, i64 0, i64 {j0}, i64 {arg['m']}, i64 {nu}, "
                    f"ptr {c0}, i64 {ldc})"
                )
        return self.function(name)

    def _vectors(self, first: str, count: str, parts: str) -> None:
        """Where the vectors from number `first` on are; those past the last one have no lanes."""
        f, arg, lanes = self.f, self.arg, self.tile.lanes
        for v in range(self.tile.vectors):
            q = f.let(f"add i64 {first}, {v}")
            y, part = f.let(f"udiv i64 {q}, {parts}"), f.let(f"urem i64 {q}, {parts}")
            x = f.let(f"mul i64 {part}, {lanes}")
            there = f.let(f"icmp slt i64 {q}, {count}")
            left = f.smin(f.let(f"sub i64 {arg['width']}, {x}"), str(lanes))
            pitch, width = arg["b_row"], arg["width"]
            source = f.let(f"add i64 {f.let(f'mul i64 {y}, {pitch}')}, {x}")
            target = f.let(f"add i64 {f.let(f'mul i64 {y}, {width}')}, {x}")
            for i, value in enumerate((source, target, left)):
                kept = f.let(f"select i1 {there}, i64 {value}, i64 0")
                f.line(f"store i64 {kept}, ptr {f.at('i64', '%vectors', str(3 * v + i))}")

    def filter(self, name: str) -> str:
        f, e, arg, t = self.f, self.element, self.arg, self.tile
        with f.loop("%begin", "%end", "1") as unit:
            blocks = arg["row_blocks"]
            d0 = f.let(f"mul i64 {f.let(f'urem i64 {unit.index}, {blocks}')}, {arg['unit_rows']}")
            group = f.let(f"udiv i64 {unit.index}, {blocks}")
            own_x = f.at(e, arg["A"], f.let(f"mul i64 {group}, {arg['x_group']}"))
            own_y = f.at(e, arg["B"], f.let(f"mul i64 {group}, {arg['y_group']}"))
            rows = f.smin(f.let(f"sub i64 {arg['m']}, {d0}"), arg["unit_rows"])
            offsets = f.at("i64", self.offsets, d0)
            own_c = f.at(e, arg["C"], f.let(f"mul i64 {group}, {arg['n']}"))
            c0 = f.at(e, own_c, f.let(f"mul i64 {d0}, {arg['c_row']}"))
            with f.loop("0", arg["chunks"], "1") as chunk:
                x = f.at(e, own_x, f.let(f"mul i64 {chunk.index}, {arg['x_batch']}"))
                y = f.at(e, own_y, f.let(f"mul i64 {chunk.index}, {arg['y_batch']}"))
                before = f.let(f"mul i64 {chunk.index}, {arg['k']}")
                own = f.smin(f.let(f"sub i64 {arg['total']}, {before}"), arg["k"])
                # NOTE: one trip even if there is nothing to add, which makes zeros.
                last_k = f.body.call("i64", "llvm.smax.i64", ("i64", own), ("i64", "1"))
                with f.loop("0", last_k, str(KC)) as k:
                    kk = f.smin(f.let(f"sub i64 {own}, {k.index}"), str(KC))
                    before_these = f.let(f"or i64 {arg['begun']}, {f.let(f'or i64 {chunk.index}, {k.index}')}")
                    add = f.let(f"icmp ne i64 {before_these}, 0")
                    places = f.at("i64", self.places, k.index)
                    b1 = f.at(e, y, f.let(f"mul i64 {k.index}, {t.columns}"))
                    with f.loop("0", arg["n"], str(t.columns), [("ptr", b1)]) as panel:
                        nr = f.smin(f.let(f"sub i64 {arg['n']}, {panel.index}"), str(t.columns))
                        vectors = f.let(f"udiv i64 {f.let(f'add i64 {nr}, {t.lanes - 1}')}, {t.lanes}")
                        family = f.let(f"sub i64 {vectors}, 1")
                        last = f.let(f"sub i64 {nr}, {f.let(f'mul i64 {family}, {t.lanes}')}")
                        table = f.at("ptr", "@micros", f.let(f"mul i64 {family}, {len(t.rows)}"))
                        c1 = f.at(e, c0, panel.index)
                        with f.loop("0", rows, "1") as row:
                            which, row.step = self.heights(f.let(f"sub i64 {rows}, {row.index}"))
                            micro = f.load("ptr", f.at("ptr", table, which))
                            ro = f.at("i64", offsets, row.index)
                            cr = f.at(e, c1, f.let(f"mul i64 {row.index}, {arg['c_row']}"))
                            f.line(
                                f"call void {micro}(i64 {kk}, ptr {x}, ptr {ro}, ptr {places}, "
                                f"ptr {panel.carried[0]}, i64 {t.columns}, ptr {cr}, i64 {arg['c_row']}, i1 {add}, "
                                f"i64 {last})"
                            )
                        panel.next = [f.at(e, panel.carried[0], arg["b_panel"])]
        return self.function(name)


@cache
def convolution_text(dtype: np.dtype, tile: Tile, op: str, widths: tuple[int, ...] = ()) -> tuple[str, str]:
    """The module of 'convolve' or 'filter' for a dtype, and its name.

    widths: vectors of the tiles that a filter's features take.
    """
    driver = _Driver(dtype, tile)
    name = f"lazyt_{op}"
    if op == "convolve":
        families: list[list[Micro]] = [[_Places(dtype, tile, "row", mr, tile.vectors, True) for mr in tile.rows]]
        body = driver.convolve(name)
    else:
        families = [
            [_Filter(dtype, tile, "row", mr, nv, True) for mr in tile.rows] if nv in widths else []
            for nv in range(1, tile.vectors + 1)
        ]
        body = driver.filter(name)
    micros = [m for family in families for m in family]
    texts = [m.text() for m in micros]
    functions = [driver.f, *(m.f for m in micros)]
    declared = {line for f in functions for line in f.body.module.text().splitlines() if line}
    nobody = ["ptr null"] * len(tile.rows)
    table = ", ".join(p for family in families for p in [f"ptr @{m.name}" for m in family] or nobody)
    parts = [
        *sorted(declared),
        f"@micros = internal constant [{len(families) * len(tile.rows)} x ptr] [{table}]",
        *texts,
        epilogue_text(),
        body,
    ]
    return named("\n".join(parts), name)
