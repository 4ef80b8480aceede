"""The LLVM IR of convolutions whose result is in phases: transposed ones and input gradients with strides, and groups.

Element r + s * i of an axis of the result is a sum of the elements x[i + ..] that the taps of its phase r meet, so each
phase is a product of its own filters by places of x, which are neighbours:

    y[n, c, s * i + r] = sum over d of a[r][c, d] * x[n][offsets[r][d] + place(i)]           d = (features, taps of r)

The filters are packed first, by phase and by panels of the rows of a tile. A unit is some rows of one image of one
group, and all its channels. A tile is computed for each phase along a row in turn and written out interleaved, so
nothing but the result is in memory. Where rows have one phase (a convolution in groups) it is written where it belongs.
Blocks of KC along d are added up in their order, as in conv_ir.py.
"""

from __future__ import annotations

import dataclasses
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

# Entries after those of every product. 'phases' says where their records begin, 'high' is rows of a phase;
# a vector of places from 'within' on is not read whole: there would be none of x behind it.
PHASE_FIELDS = ("phases", "height", "width", "high", "pitch", "groups", "x_batch", "a_group", "within")
PHASE_AT = {name: HEAD + i for i, name in enumerate(PHASE_FIELDS)}
PHASE_SIZE = HEAD + len(PHASE_FIELDS)
# Micro-kernels, by whether they mask what they read, and what they write: into tiles of their own, and the result.
FAMILIES = {True: ((True, False), (False, False)), False: ((True, True), (False, True), (False, False))}
# Of a phase: how many steps a sum has, where its table of offsets in x begins, and its filters among those packed.
RECORD = 3
# Bytes of stack for the tiles of all phases along a row.
TILES = 1 << 13
# Entries of a packing's arguments; then of each phase (steps, where its offsets in the filters begin, target).
PACKED_FIELDS = ("from", "to", "rows", "panels", "row_step", "group_step", "a_group")
PACKED_AT = {name: i for i, name in enumerate(PACKED_FIELDS)}


class _Places(Micro):
    """`(k, packed A, x, offsets, vectors, C, C stride, add)`; a vector: offset in x, offset in C, active lanes.

    One without a tail reads whole vectors of x, for masks would take registers; one that is `full` stores such.
    """

    def __init__(self, dtype: np.dtype, tile: Tile, mr: int, tail: bool, full: bool) -> None:
        super().__init__(dtype, tile, "row", mr, tile.vectors, tail)
        self.full = full

    @property
    def name(self) -> str:
        return f"{super().name}{'.full' if self.full else ''}"

    def text(self) -> str:
        f, e = self.f, self.element
        at = [[f.at("i64", "%vectors", str(3 * v + i)) for i in range(3)] for v in range(self.nv)]
        froms = [f.at(e, "%b", f.load("i64", p)) for p, _, _ in at]
        masks = [f.mask(self.lanes, f.load("i64", p)) if self.tail else "" for _, _, p in at]

        def step(index: str, pointers: list[str], sums: list[str]) -> tuple[list[str], list[str]]:
            offset = f.load("i64", f.at("i64", "%offsets", index))
            vectors = [self.load(f.at(e, p, offset), mask) for p, mask in zip(froms, masks, strict=True)]
            out = []
            for r in range(self.mr):
                a = self.broadcast(f.at(e, pointers[0], str(r)))
                out += [self.multiply_add(a, x, sums[r * self.nv + v]) for v, x in enumerate(vectors)]
            return out, [f.at(e, pointers[0], str(self.tile.rows[0]))]

        sums = self.sums(["%a"], step)
        tos = [f.load("i64", p) for _, p, _ in at]
        if not self.full and not self.tail:
            masks = [f.mask(self.lanes, f.load("i64", p)) for _, _, p in at]
        self.store(sums, tos, [""] * self.nv if self.full else masks)
        return self.function("i64 %k, ptr %a, ptr %b, ptr %offsets, ptr %vectors, ptr %c, i64 %cs, i1 %add")


def tile_of_phases(tile: Tile, dtype: np.dtype, steps: int) -> Tile:
    """The tile of which one for each phase along a row lies in `TILES` bytes of stack."""
    rows = tuple(h for h in tile.rows if h == 1 or h * tile.columns * steps * dtype.itemsize <= TILES)
    used: Tile = dataclasses.replace(tile, rows=rows)
    return used


def rows_of_unit(f: Function, arg: dict[str, str], block: str, step: int) -> tuple[str, str, str, str, str]:
    """The rows of unit number `block` of an image: the first of a phase and how many; of the result, how many rows,
    its first element and how many elements."""
    first = f.let(f"mul i64 {block}, {arg['unit_rows']}")
    rows = f.smin(f.let(f"sub i64 {arg['high']}, {first}"), arg["unit_rows"])
    top = f.let(f"mul i64 {first}, {step}")
    tall = f.smin(f.let(f"sub i64 {arg['height']}, {top}"), f.let(f"mul i64 {rows}, {step}"))
    return first, rows, tall, f.let(f"mul i64 {top}, {arg['width']}"), f.let(f"mul i64 {tall}, {arg['width']}")


class _Driver:
    """The units of a convolution whose result has `steps` phases along its last two axes."""

    def __init__(self, dtype: np.dtype, tile: Tile, steps: tuple[int, int]) -> None:
        self.tile, self.element, self.size = tile, mem_type(dtype), dtype.itemsize
        self.steps = steps
        self.area = tile.rows[0] * tile.columns  # of a tile
        self.f = Function()
        f, e = self.f, self.element
        # Of each phase along a row three entries a vector; then the vector's place in the result, its elements there.
        f.line(f"%vectors = alloca i64, i64 {(3 * steps[1] + 2) * tile.vectors}, align 64")
        f.line(f"%tiles = alloca {e}, i64 {self.area * steps[1]}, align 64")
        self.arg = {}
        for i, field in enumerate((*FIELDS, *PHASE_FIELDS)):
            kind = "ptr" if field in ("A", "B", "C", "epilogue", "workspace") else "i64"
            self.arg[field] = f.load(kind, f.at("i64", "%args", str(i)))
        self.part_at = workspace_of(f, self.arg["workspace"])
        self.phases = f.at("i64", "%args", self.arg["phases"])

    def _up(self, x: str, by: int) -> str:
        """x / by, rounded up."""
        f = self.f
        return x if by == 1 else f.let(f"sdiv i64 {f.let(f'add i64 {x}, {by - 1}')}, {by}")

    def text(self, name: str) -> str:
        f, e, arg = self.f, self.element, self.arg
        sy, sx = self.steps
        has_epilogue = f.let(f"icmp ne ptr {arg['epilogue']}, null")
        on_stack = f.let(f"icmp ne i64 {arg['scratch']}, 0")
        parts = self._up(self._up(arg["width"], sx), self.tile.lanes)
        wide = [self._up(f.let(f"sub i64 {arg['width']}, {r}"), sx) for r in range(sx)]
        with f.loop("%begin", "%end", "1") as unit:
            block = f.let(f"urem i64 {unit.index}, {arg['row_blocks']}")
            number = f.let(f"udiv i64 {unit.index}, {arg['row_blocks']}")
            image = f.let(f"udiv i64 {number}, {arg['groups']}")
            group = f.let(f"urem i64 {number}, {arg['groups']}")
            y0, _, tall, j0, nu = rows_of_unit(f, arg, block, sy)
            first = f.let(f"mul i64 {y0}, {arg['pitch']}")
            first = f.let(f"add i64 {f.let(f'mul i64 {number}, ' + arg['x_batch'])}, {first}")
            within = f.let(f"sub i64 {arg['within']}, {first}")
            x = f.at(e, arg["B"], first)
            c_at = f.at(e, f.at(e, arg["C"], f.let(f"mul i64 {number}, {arg['c_batch']}")), j0)
            c = f.let(f"select i1 {on_stack}, ptr {self.part_at}, ptr {c_at}")
            ldc = f.let(f"select i1 {on_stack}, i64 {arg['unit_cols']}, i64 {arg['c_row']}")
            a = f.at(e, arg["A"], f.let(f"mul i64 {group}, {arg['a_group']}"))
            with f.loop("0", str(sy), "1") as ry:
                count = f.let(f"mul i64 {self._up(f.let(f'sub i64 {tall}, {ry.index}'), sy)}, {parts}")
                with f.loop("0", count, str(self.tile.vectors)) as at:
                    whole = self._vectors(at.index, count, parts, ry.index, wide, within)
                    with f.loop("0", arg["m"], "1") as row:
                        row.step = self._tile(row.index, ry.index, a, x, c, ldc, whole)
            with f.when(has_epilogue):
                i0 = f.let(f"mul i64 {group}, {arg['m']}")
                f.line(
                    f"call void @epilogue(ptr %args, i64 {image}, i64 {i0}, i64 {j0}, i64 {arg['m']}, i64 {nu}, "
                    f"ptr {c}, i64 {ldc})"
                )
        f.line("ret void")
        return f"define void @{name}({PARAMETERS}) nounwind {{\nentry:\n{f.text()}\n}}"

    def _vectors(self, first: str, count: str, parts: str, ry: str, wide: list[str], within: str) -> str:
        """Where the vectors from number `first` on are, for each phase; those past the last one have no lanes.

        Gives the number of the micro-kernels that they may have: see FAMILIES.
        """
        whole = full = "true"
        f, arg, lanes, nv = self.f, self.arg, self.tile.lanes, self.tile.vectors
        sy, sx = self.steps

        def put(at: int, value: str) -> None:
            f.line(f"store i64 {value}, ptr {f.at('i64', '%vectors', str(at))}")

        def clamped(left: str, most: int, there: str) -> str:
            some = f.body.call("i64", "llvm.smax.i64", ("i64", f.smin(left, str(most))), ("i64", "0"))
            return f.let(f"select i1 {there}, i64 {some}, i64 0")

        for v in range(nv):
            q = f.let(f"add i64 {first}, {v}")
            y, part = f.let(f"udiv i64 {q}, {parts}"), f.let(f"urem i64 {q}, {parts}")
            x = f.let(f"mul i64 {part}, {lanes}")
            there = f.let(f"icmp slt i64 {q}, {count}")
            pitch, width = arg["pitch"], arg["width"]
            source = f.let(f"add i64 {f.let(f'mul i64 {y}, {pitch}')}, {x}")
            source = f.let(f"select i1 {there}, i64 {source}, i64 0")
            whole = f.let(f"and i1 {whole}, {f.let(f'icmp slt i64 {source}, {within}')}")
            line = f.let(f"add i64 {f.let(f'mul i64 {y}, {sy}')}, {ry}")
            across = f.let(f"mul i64 {x}, {sx}")
            target = f.let(f"add i64 {f.let(f'mul i64 {line}, {width}')}, {across}")
            target = f.let(f"select i1 {there}, i64 {target}, i64 0")
            for rx in range(sx):
                at = 3 * (rx * nv + v)
                put(at, source)
                put(at + 1, target if sx == 1 else str(v * lanes))
                put(at + 2, clamped(f.let(f"sub i64 {wide[rx]}, {x}"), lanes, there))
            put(3 * sx * nv + 2 * v, target)
            count_there = clamped(f.let(f"sub i64 {width}, {across}"), lanes * sx, there)
            put(3 * sx * nv + 2 * v + 1, count_there)
            full = f.let(f"and i1 {full}, {f.let(f'icmp eq i64 {count_there}, {lanes * sx}')}")
        number = f.let(f"zext i1 {whole} to i64")
        if sx > 1:
            return number
        both = f.let(f"and i1 {whole}, {full}")
        return f.let(f"add i64 {number}, {f.let(f'zext i1 {both} to i64')}")

    def _tile(self, row: str, ry: str, a: str, x: str, c: str, ldc: str, whole: str) -> str:
        """The tile that begins at a row: its phases, then where they belong; gives its height."""
        f, e, arg, t = self.f, self.element, self.arg, self.tile
        sx, panel = self.steps[1], t.rows[0]
        left = f.let(f"sub i64 {arg['m']}, {row}")
        which, height = str(len(t.rows) - 1), str(t.rows[-1])
        for i in range(len(t.rows) - 2, -1, -1):
            fits = f.let(f"icmp sge i64 {left}, {t.rows[i]}")
            which = f.let(f"select i1 {fits}, i64 {i}, i64 {which}")
            height = f.let(f"select i1 {fits}, i64 {t.rows[i]}, i64 {height}")
        family = f.let(f"mul i64 {whole}, {len(t.rows)}")
        micro = f.load("ptr", f.at("ptr", "@micros", f.let(f"add i64 {family}, {which}")))
        inside = f.let(f"urem i64 {row}, {panel}")
        before = f.let(f"sub i64 {row}, {inside}")
        cr = f.at(e, c, f.let(f"mul i64 {row}, {ldc}"))
        for rx in range(sx):
            record = f.at("i64", self.phases, f.let(f"mul i64 {ry}, {RECORD * sx}"))
            steps, table, filters = (f.load("i64", f.at("i64", record, str(RECORD * rx + i))) for i in range(RECORD))
            offsets = f.at("i64", "%args", table)
            to_panel = f.let(f"add i64 {f.let(f'mul i64 {before}, {steps}')}, {inside}")
            ar = f.at(e, f.at(e, a, filters), to_panel)
            into = cr if sx == 1 else f.at(e, "%tiles", str(rx * self.area))
            by = ldc if sx == 1 else str(t.columns)
            vectors = f.at("i64", "%vectors", str(3 * rx * t.vectors))
            # NOTE: one trip even if there is nothing to add, which makes zeros.
            last = f.body.call("i64", "llvm.smax.i64", ("i64", steps), ("i64", "1"))
            with f.loop("0", last, str(KC)) as k:
                kk = f.smin(f.let(f"sub i64 {steps}, {k.index}"), str(KC))
                add = f.let(f"icmp ne i64 {k.index}, 0")
                f.line(
                    f"call void {micro}(i64 {kk}, ptr {f.at(e, ar, f.let(f'mul i64 {k.index}, {panel}'))}, ptr {x}, "
                    f"ptr {f.at('i64', offsets, k.index)}, ptr {vectors}, ptr {into}, i64 {by}, i1 {add})"
                )
        if sx > 1:
            f.line(f"call void @interleave(ptr %tiles, ptr %vectors, ptr {cr}, i64 {ldc}, i64 {height})")
        return height


class _Interleaved(Micro):
    """`(tiles, vectors, C, C stride, rows)`: the tiles of the phases along a row, element by element in turn."""

    def __init__(self, dtype: np.dtype, tile: Tile, phases: int) -> None:
        super().__init__(dtype, tile, "row", tile.rows[0], tile.vectors, True)
        self.phases, self.area = phases, tile.rows[0] * tile.columns

    def text(self) -> str:
        f = self.f
        with f.loop("0", "%rows", "1") as r:
            to_row = f.at(self.element, "%c", f.let(f"mul i64 {r.index}, %cs"))
            line = f.let(f"mul i64 {r.index}, {self.tile.columns}")
            for v in range(self.nv):
                at = 3 * self.phases * self.nv + 2 * v
                target, count = (f.load("i64", f.at("i64", "%vectors", str(at + i))) for i in range(2))
                to = f.at(self.element, to_row, target)
                mine = f.let(f"add i64 {line}, {v * self.lanes}")
                tiles = [f.at(self.element, "%tiles", str(p * self.area)) for p in range(self.phases)]
                froms = [f.at(self.element, tile, mine) for tile in tiles]
                (self._pair if self.phases == 2 else self._one_by_one)(froms, to, count, v)
        f.line("ret void")
        params = "ptr %tiles, ptr %vectors, ptr %c, i64 %cs, i64 %rows"
        return f"define internal void @interleave({params}) nounwind noinline {{\nentry:\n{f.text()}\n}}"

    def _pair(self, froms: list[str], to: str, count: str, v: int) -> None:
        f, n = self.f, self.lanes
        x, y = (self.load(p) for p in froms)
        for half in range(2):
            order = ", ".join(f"i32 {(half * n + i) // 2 + (i + half * n) % 2 * n}" for i in range(n))
            both = f.let(f"shufflevector {self.vector} {x}, {self.vector} {y}, <{n} x i32> <{order}>")
            left = f.let(f"sub i64 {count}, {half * n}") if half else count
            at = f.at(self.element, to, str(half * n))
            # NOTE: stores with masks take some processors ten times as long.
            with f.when(f.let(f"icmp sge i64 {left}, {n}")):
                self.write(at, "", both)
            with f.when(f.let(f"icmp ult i64 {left}, {n}")):
                self.write(at, f.mask(n, left), both)

    def _one_by_one(self, froms: list[str], to: str, count: str, v: int) -> None:
        f, e = self.f, self.element
        for p, source in enumerate(froms):
            lanes = f.load("i64", f.at("i64", "%vectors", str(3 * (p * self.nv + v) + 2)))
            with f.loop("0", lanes, "1") as i:
                x = f.load(e, f.at(e, source, i.index))
                place = f.let(f"add i64 {f.let(f'mul i64 {i.index}, {self.phases}')}, {p}")
                f.line(f"store {e} {x}, ptr {f.at(e, to, place)}, align {self.size}")


@cache
def phases_text(dtype: np.dtype, tile: Tile, steps: tuple[int, int]) -> tuple[str, str]:
    """The module of a convolution whose result has so many phases along its last two axes, and its name."""
    name = "lazyt_phases"
    driver = _Driver(dtype, tile, steps)
    families = FAMILIES[steps[1] > 1]
    micros = [_Places(dtype, tile, mr, reads, not writes) for reads, writes in families for mr in tile.rows]
    texts = [m.text() for m in micros]
    functions = [driver.f, *(m.f for m in micros)]
    if steps[1] > 1:
        between = _Interleaved(dtype, tile, steps[1])
        texts.append(between.text())
        functions.append(between.f)
    body = driver.text(name)
    declared = {line for f in functions for line in f.body.module.text().splitlines() if line}
    table = ", ".join(f"ptr @{m.name}" for m in micros)
    lines = [*sorted(declared), f"@micros = internal constant [{len(micros)} x ptr] [{table}]"]
    return named("\n".join([*lines, *texts, epilogue_text(), body]), name)


@cache
def packed_filters_text(dtype: np.dtype, tile: Tile, phases: int) -> tuple[str, str]:
    """The module that packs filters for `phases_text`, and its name. A unit is a panel of rows of a group."""
    name, e, panel = "lazyt_pack_phases", mem_type(dtype), tile.rows[0]
    f = Function()
    arg = {}
    for i, field in enumerate(PACKED_FIELDS):
        arg[field] = f.load("ptr" if field in ("from", "to") else "i64", f.at("i64", "%args", str(i)))
    with f.loop("%begin", "%end", "1") as unit:
        group = f.let(f"udiv i64 {unit.index}, {arg['panels']}")
        first = f.let(f"mul i64 {f.let(f'urem i64 {unit.index}, ' + arg['panels'])}, {panel}")
        own = f.at(e, arg["from"], f.let(f"mul i64 {group}, {arg['group_step']}"))
        last = f.let(f"sub i64 {arg['rows']}, 1")
        rows = []
        for r in range(panel):
            # NOTE: nothing reads the rows behind the last one; they need some value.
            row = f.smin(f.let(f"add i64 {first}, {r}"), last)
            rows.append(f.at(e, own, f.let(f"mul i64 {row}, {arg['row_step']}")))
        into = f.at(e, arg["to"], f.let(f"mul i64 {group}, {arg['a_group']}"))
        with f.loop("0", str(phases), "1") as phase:
            record = f.at("i64", "%args", f.let(f"mul i64 {phase.index}, {RECORD}"))
            at = [f.at("i64", record, str(len(PACKED_FIELDS) + i)) for i in range(RECORD)]
            steps, table, target = (f.load("i64", p) for p in at)
            offsets = f.at("i64", "%args", table)
            to = f.at(e, f.at(e, into, target), f.let(f"mul i64 {first}, {steps}"))
            with f.loop("0", steps, "1", [("ptr", to)]) as d:
                offset = f.load("i64", f.at("i64", offsets, d.index))
                for r, row in enumerate(rows):
                    x = f.load(e, f.at(e, row, offset))
                    f.line(f"store {e} {x}, ptr {f.at(e, d.carried[0], str(r))}, align {dtype.itemsize}")
                d.next = [f.at(e, d.carried[0], str(panel))]
    f.line("ret void")
    declared = {line for line in f.body.module.text().splitlines() if line}
    body = f"define void @{name}({PARAMETERS}) nounwind {{\nentry:\n{f.text()}\n}}"
    return named("\n".join([*sorted(declared), body]), name)
