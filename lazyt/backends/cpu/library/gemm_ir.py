"""The LLVM IR of generated matrix products: register-tile micro-kernels, packing, and the loops over tiles.

    C[m, n] = sum over k of A[m, k] * B[k, n], one *unit* a block of rows and columns of one product of a batch

A micro-kernel keeps `rows x vectors` registers of C, and for each k broadcasts one element of every row of A against
one row of B. It reads A either along its rows (form 'row': any row stride, unit k stride) or along its columns (form
'col': unit row stride, any k stride); B is read by vectors along n, `bs` elements from one k to the next. So operands
are read where they lie whenever that is cheap, and *packed* otherwise. B is packed by the unit that needs it, in
its thread's working memory: a group of panels of `columns` columns, which stay in the second-level cache while all the
unit's rows meet them (those of A stay there too). A large transposed A is copied beforehand, into rows a little apart
(rows at multiples of 4 KiB fall into the same cache sets). To copy an A whose rows are so from the start does not pay.

Order of the sum: KC products are added up in order (fused multiply-add where the host has it), and these blocks are
added up in order. That depends on k alone: bits do not depend on the division among threads, on tiles or on packing.
A tile of C meets several blocks (DEPTH) in one go, so that its part of A and what the hardware fetches ahead go on.

An *epilogue* is a kernel over the product's elements. It is called for a chunk of them when that is finished and still
in the cache; its arguments are copied and moved to that part (gemm_epilogue.py). If nobody else reads a
product of at most DEPTH along k, its part lives in the thread's working memory and the product is never stored.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from lazyt.backends.cpu.codegen.looptext import Function, named
from lazyt.backends.cpu.codegen.text import mem_type
from lazyt.backends.cpu.codegen.transpose import Transposer
from lazyt.backends.cpu.library import gemm_amx
from lazyt.backends.cpu.library.gemm_epilogue import epilogue_text
from lazyt.backends.cpu.library.gemm_micro import DotMicro, Micro
from lazyt.backends.cpu.library.gemm_pack import Packing, panels_that_stay
from lazyt.backends.cpu.library.gemm_tile import DEPTH, FIELDS, FINISHED, HEAD, KC, PACK_B
from lazyt.backends.cpu.workspace import PARAMETERS, workspace_of
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    import numpy as np

    from lazyt.backends.cpu.codegen.source import Source
    from lazyt.backends.cpu.library.gemm_tile import Family, Tile


@dataclass(frozen=True)
class Reads:
    """How the operands lie in memory, where they are converted (see codegen/source.py); whether B is then packed."""

    a: Source | None = None
    b: Source | None = None
    packed: bool = True
    # '', or how pairs of bfloat16 are multiplied: by AMX ('tiles'), by AVX-512 ('native'), or as that does ('portable',
    # for tests).
    dots: str = ""

    @property
    def b_in_place(self) -> Source | None:
        """What the micro-kernels convert."""
        return None if self.packed else self.b


AS_THEY_ARE = Reads()


def load_arguments(f: Function) -> dict[str, str]:
    """A product's arguments, by their names."""
    arg = {}
    for i, field in enumerate(FIELDS):
        kind = "ptr" if field in ("A", "B", "C", "epilogue", "workspace") else "i64"
        arg[field] = f.load(kind, f.at("i64", "%args", str(i)))
    return arg


def batch_offsets(f: Function, arg: dict[str, str], number: str) -> tuple[str, str]:
    """The offsets of product `number` of the batch in A and B."""
    with f.loop("0", arg["batch"], "1", [("i64", number), ("i64", "0"), ("i64", "0")]) as axis:
        back = f.let(f"sub i64 {arg['batch']}, {axis.index}")
        at = f.at("i64", "%args", f.let(f"add i64 {f.let(f'mul i64 {back}, 3')}, {HEAD - 3}"))
        extent, sa, sb = (f.load("i64", f.at("i64", at, str(i))) for i in range(3))
        rest, ao, bo = axis.carried
        digit = f.let(f"urem i64 {rest}, {extent}")
        axis.next = [
            f.let(f"udiv i64 {rest}, {extent}"),
            f.let(f"add i64 {ao}, {f.let(f'mul i64 {digit}, {sa}')}"),
            f.let(f"add i64 {bo}, {f.let(f'mul i64 {digit}, {sb}')}"),
        ]
    return axis.carried[1], axis.carried[2]


class _Driver:
    """The loops over units, blocks of k, groups of columns, chunks of rows, panels of columns and tiles."""

    def __init__(self, dtype: np.dtype, tile: Tile, form: str, reads: Reads) -> None:
        self.dtype, self.tile, self.form = dtype, tile, form
        self.element = mem_type(dtype)
        self.converts, self.dots, self.tiles = reads.a is not None, bool(reads.dots), reads.dots == "tiles"
        self.a, self.b = (self.element if s is None else mem_type(s.stored) for s in (reads.a, reads.b))
        # The elements of B that the micro-kernels read. NOTE: a converted B is packed by all units or by none.
        self.inner = self.b if reads.b_in_place is not None else self.element
        self.f = Function()

    def text(self, name: str) -> tuple[str, set[str]]:
        f, t, e = self.f, self.tile, self.element
        arg = load_arguments(f)
        has_epilogue = f.let(f"icmp ne ptr {arg['epilogue']}, null")
        on_stack = f.let(f"icmp ne i64 {arg['scratch']}, 0")
        elsewhere = f.let(f"xor i1 {on_stack}, true")
        tile = workspace_of(f, arg["workspace"])
        packed = f.at("i8", tile, f.let(f"select i1 {on_stack}, i64 {FINISHED}, i64 0"))
        in_place = f.let(f"icmp eq i64 {arg['pack_b']}, 0")
        is_kept, kept, fills = panels_that_stay(f, arg["kept"])
        packs = f.let(f"select i1 {is_kept}, i1 {fills}, i1 {f.let(f'xor i1 {in_place}, true')}")
        panels = f.let(f"or i1 {packs}, {is_kept}")
        across = f.let(f"icmp eq i64 {arg['pack_b']}, {PACK_B.index('across')}")
        row_major = self.form == "row"
        a_line = arg["a_row"] if row_major else arg["a_col"]
        a_inner = arg["a_line"] if self.converts else a_line
        a_step = a_inner if row_major else "1"
        b_row = f.let(f"select i1 {panels}, i64 {t.columns}, i64 {arg['b_row']}")
        panel_size = f.let(f"mul i64 {self._deep(f.smin(arg['k'], str(DEPTH)))}, {t.columns}")
        # Kept panels have all of k.
        kept_deep = self._deep(arg["k"])
        kept_panel = f.let(f"mul i64 {kept_deep}, {t.columns}")
        b_panel = f.let(f"select i1 {packs}, i64 {panel_size}, i64 {t.columns}")
        b_panel = f.let(f"select i1 {is_kept}, i64 {kept_panel}, i64 {b_panel}")
        b_col = f.let(f"select i1 {across}, i64 {arg['b_row']}, i64 1")
        b_deep = f.let(f"select i1 {across}, i64 1, i64 {arg['b_row']}")
        with f.loop("%begin", "%end", "1") as unit:
            ib = f.let(f"urem i64 {unit.index}, {arg['row_blocks']}")
            rest = f.let(f"udiv i64 {unit.index}, {arg['row_blocks']}")
            jb = f.let(f"urem i64 {rest}, {arg['col_blocks']}")
            number = f.let(f"udiv i64 {rest}, {arg['col_blocks']}")
            i0, j0 = f.let(f"mul i64 {ib}, {arg['unit_rows']}"), f.let(f"mul i64 {jb}, {arg['unit_cols']}")
            mu = f.smin(f.let(f"sub i64 {arg['m']}, {i0}"), arg["unit_rows"])
            nu = f.smin(f.let(f"sub i64 {arg['n']}, {j0}"), arg["unit_cols"])
            ao, bo = batch_offsets(f, arg, number)
            a0 = f.at(self.a, f.at(self.a, arg["A"], ao), f.let(f"mul i64 {i0}, {a_line if row_major else 1}"))
            b0 = f.at(self.b, f.at(self.b, arg["B"], bo), f.let(f"mul i64 {j0}, {b_col}"))
            co = f.let(f"mul i64 {number}, {arg['c_batch']}")
            c_at = f.at(e, f.at(e, f.at(e, arg["C"], co), f.let(f"mul i64 {i0}, {arg['c_row']}")), j0)
            c0 = f.let(f"select i1 {on_stack}, ptr {tile}, ptr {c_at}")
            ldc = f.let(f"select i1 {on_stack}, i64 {arg['group']}, i64 {arg['c_row']}")
            if self.tiles:
                gemm_amx.begin(f)
            # NOTE: one trip even if k is 0, which makes zeros.
            last_k = f.body.call("i64", "llvm.smax.i64", ("i64", arg["k"]), ("i64", "1"))
            with f.loop("0", last_k, str(DEPTH)) as block:
                kk = f.smin(f.let(f"sub i64 {arg['k']}, {block.index}"), str(DEPTH))
                add = f.let(f"icmp ne i64 {block.index}, 0")
                after = f.let(f"add i64 {block.index}, {DEPTH}")
                is_last = f.let(f"icmp sge i64 {after}, {arg['k']}")
                finished = f.let(f"and i1 {has_epilogue}, {is_last}")
                a1 = f.at(self.a, a0, block.index if row_major else f.let(f"mul i64 {block.index}, {arg['a_col']}"))
                b1 = f.at(self.b, b0, f.let(f"mul i64 {block.index}, {b_deep}"))
                if self.converts:
                    lines, along = (mu, kk) if row_major else (kk, mu)
                    converted = f.at("i8", tile, arg["a_at"])
                    f.line(
                        f"call void @convert.rows(ptr {a1}, i64 {a_line}, i64 {lines}, i64 {along}, ptr {converted}, "
                        f"i64 0, i64 {a_inner})"
                    )
                    a1 = converted
                deep = self._pairs(kk)
                with f.loop("0", nu, arg["group"]) as group:
                    ng = f.smin(f.let(f"sub i64 {nu}, {group.index}"), arg["group"])
                    j1 = f.let(f"add i64 {j0}, {group.index}")
                    b2 = f.at(self.b, b1, f.let(f"mul i64 {group.index}, {b_col}"))
                    kept_at = f.at(e, kept, f.let(f"mul i64 {j1}, {kept_deep}"))
                    above = f.let(f"lshr i64 {block.index}, 1") if self.dots else block.index
                    kept_at = f.at(e, kept_at, f.let(f"mul i64 {above}, {t.columns}"))
                    to = f.let(f"select i1 {is_kept}, ptr {kept_at}, ptr {packed}")
                    with f.when(packs):
                        which = f.let(f"select i1 {across}, ptr @pack.across, ptr @pack.panel")
                        f.line(
                            f"call void {which}(ptr {b2}, i64 {arg['b_row']}, i64 {kk}, i64 {ng}, ptr {to}, "
                            f"i64 {b_panel}, i64 {t.columns})"
                        )
                    b3 = f.let(f"select i1 {panels}, ptr {to}, ptr {b2}")
                    c1 = f.at(e, c0, f.let(f"select i1 {on_stack}, i64 0, i64 {group.index}"))
                    with f.loop("0", mu, arg["chunk"]) as part:
                        rows = f.smin(f.let(f"sub i64 {mu}, {part.index}"), arg["chunk"])
                        a2 = f.at(e, a1, f.let(f"mul i64 {part.index}, {a_step}"))
                        done = f.let(f"select i1 {on_stack}, i64 0, i64 {part.index}")
                        c2 = f.at(e, c1, f.let(f"mul i64 {done}, {ldc}"))
                        with f.loop("0", ng, str(t.columns), [("ptr", b3)]) as panel:
                            nr = f.smin(f.let(f"sub i64 {ng}, {panel.index}"), str(t.columns))
                            c3 = f.at(e, c2, panel.index)
                            self._rows(deep, a2, a_step, a_inner, panel.carried[0], b_row, c3, ldc, rows, nr, add)
                            panel.next = [f.at(self.inner, panel.carried[0], b_panel)]
                        with f.when(f.let(f"and i1 {finished}, {on_stack}")):
                            i1 = f.let(f"add i64 {i0}, {part.index}")
                            f.line(
                                f"call void @epilogue(ptr %args, i64 {number}, i64 {i1}, i64 {j1}, i64 {rows}, "
                                f"i64 {ng}, ptr {c2}, i64 {ldc})"
                            )
            if self.tiles:
                gemm_amx.end(f)
            with f.when(f.let(f"and i1 {has_epilogue}, {elsewhere}")):
                f.line(
                    f"call void @epilogue(ptr %args, i64 {number}, i64 {i0}, i64 {j0}, i64 {mu}, i64 {nu}, ptr {c0}, "
                    f"i64 {ldc})"
                )
        f.line("ret void")
        head = f"define void @{name}({PARAMETERS}) nounwind {{\nentry:"
        return f"{head}\n{f.text()}\n}}", set(f.body.module.text().splitlines())

    def _pairs(self, k: str) -> str:
        """What so many elements along k are, converted or packed: as many, or half as many pairs."""
        f = self.f
        return f.let(f"lshr i64 {f.let(f'add i64 {k}, 1')}, 1") if self.dots else k

    def _deep(self, k: str) -> str:
        """Rows of a packed panel for so many elements along k: whole squares, as they are transposed."""
        f, lanes = self.f, self.tile.lanes
        return f.let(f"and i64 {f.let(f'add i64 {self._pairs(k)}, {lanes - 1}')}, {-lanes}")

    def _rows(
        self, kk: str, a: str, a_step: str, a_inner: str, b: str, b_row: str, c: str, ldc: str, mu: str, nr: str,
        add: str,
    ) -> None:  # fmt: skip
        """All tiles of one panel of columns. kk: elements along k, or pairs."""
        block = KC // 2 if self.dots else KC
        f, t, e = self.f, self.tile, self.element
        full = f.let(f"icmp eq i64 {nr}, {t.columns}")
        vectors = f.let(f"udiv i64 {f.let(f'add i64 {nr}, {t.lanes - 1}')}, {t.lanes}")
        kind = f.let(f"select i1 {full}, i64 0, i64 {vectors}")
        before = f.let(f"mul i64 {f.let(f'sub i64 {vectors}, 1')}, {t.lanes}")
        last = f.let(f"sub i64 {nr}, {before}")
        first = f.let(f"mul i64 {kind}, {t.tallest + 1}")
        with f.loop("0", mu, "1") as row:
            left = f.smin(f.let(f"sub i64 {mu}, {row.index}"), str(t.tallest))
            which = f.let(f"add i64 {first}, {left}")
            micro = f.load("ptr", f.at("ptr", "@micros", which))
            row.step = f.load("i64", f.at("i64", "@heights", which))
            ar = f.at(e, a, f.let(f"mul i64 {row.index}, {a_step}"))
            cr = f.at(e, c, f.let(f"mul i64 {row.index}, {ldc}"))
            deepest = f.body.call("i64", "llvm.smax.i64", ("i64", kk), ("i64", "1"))
            with f.loop("0", deepest, str(block)) as part:
                k1 = f.smin(f.let(f"sub i64 {kk}, {part.index}"), str(block))
                along = part.index if self.form == "row" else f.let(f"mul i64 {part.index}, {a_inner}")
                ak, bk = f.at(e, ar, along), f.at(self.inner, b, f.let(f"mul i64 {part.index}, {b_row}"))
                more = f.let(f"or i1 {add}, {f.let(f'icmp ne i64 {part.index}, 0')}")
                f.line(
                    f"call void {micro}(i64 {k1}, ptr {ak}, i64 {a_inner}, ptr {bk}, i64 {b_row}, ptr {cr}, "
                    f"i64 {ldc}, i1 {more}, i64 {last})"
                )


@cache
def product_text(
    dtype: np.dtype, tile: Tile, form: str, families: tuple[Family, ...], reads: Reads = AS_THEY_ARE
) -> tuple[str, str]:
    """The module of a product kernel (`form`: how A is read; for columns of these families), and its name.

    NOTE: all families together take three times as long to compile as the one that most sizes need.
    """
    micro: Any = Micro
    if reads.dots:
        micro = gemm_amx.TileMicro if reads.dots == "tiles" else partial(DotMicro, native=reads.dots == "native")
    micros = {
        (family, mr): micro(dtype, tile, form, mr, *family, reads.b_in_place)
        for family in families
        for mr in tile.heights(family[0])
    }
    driver, declared = _Driver(dtype, tile, form, reads).text("lazyt_gemm")
    bodies = []
    for one in micros.values():
        bodies.append(one.text())
        declared |= set(one.f.body.module.text().splitlines())
    packings = [(f"pack.{kind}", kind, reads.b) for kind in ("panel", "across")]
    if reads.a is not None:
        packings.append(("convert.rows", "rows", reads.a))
    for name, kind, source in packings:
        packing = Packing(dtype, tile, source, bool(reads.dots))
        bodies.append(packing.function(kind, name))
        declared |= packing.declared
    transposer, more = Transposer(dtype, tile.lanes, reads.b, bool(reads.dots)).text()
    bodies.append(transposer)
    declared |= more
    # By family, then by how many rows are left: the tallest that fits.
    names, heights = [], []
    for family in ((tile.vectors, False), *((v + 1, True) for v in range(tile.vectors))):
        for left in range(tile.tallest + 1):
            height = max(h for h in tile.heights(family[0]) if h <= left or h == 1)
            names.append(f"ptr @{micros[family, height].name}" if family in families else "ptr null")
            heights.append(f"i64 {height}")
    parts = [
        *sorted(line for line in declared if line), *([gemm_amx.whole_shape()] if reads.dots == "tiles" else []),
        f"@micros = internal constant [{len(names)} x ptr] [{', '.join(names)}]",
        f"@heights = internal constant [{len(names)} x i64] [{', '.join(heights)}]", *bodies, epilogue_text(), driver,
    ]  # fmt: skip
    return named("\n".join(parts), "lazyt_gemm")
