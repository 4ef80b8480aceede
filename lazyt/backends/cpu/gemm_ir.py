"""The LLVM IR of generated matrix products: register-tile micro-kernels, packing, and the walk over tiles.

    C[m, n] = sum over k of A[m, k] * B[k, n], one *unit* a block of rows and columns of one product of a batch

A micro-kernel keeps `rows x vectors` registers of C, and for each k broadcasts one element of every row of A against
one row of B. It reads A either along its rows (form 'row': any row stride, unit k stride) or along its columns (form
'col': unit row stride, any k stride); B is read by vectors along n, `bs` elements from one k to the next. So operands
are read where they lie whenever that is cheap, and *packed* otherwise: B into panels of `columns` columns, A into rows
a little apart (rows at multiples of 4 KiB fall into the same cache sets).

Order of the sum: KC products are added up in order (fused multiply-add where the host has it), and these blocks are
added up in order. That depends on k alone: bits do not depend on the division among threads, on tiles or on packing.

An *epilogue* is a kernel over the product's elements. It is called for a unit's part of them when that is finished
and still in the cache; its arguments are copied and moved to that part (gemm_epilogue.py). If nobody else reads the
product, its part lives on the stack and no memory is written.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from lazyt.backends.cpu.gemm_epilogue import epilogue_text
from lazyt.backends.cpu.gemm_micro import Micro
from lazyt.backends.cpu.gemm_tile import FIELDS, HEAD, KC, SCRATCH
from lazyt.backends.cpu.looptext import Function, named
from lazyt.backends.cpu.text import mem_type

if TYPE_CHECKING:
    import numpy as np

    from lazyt.backends.cpu.gemm_tile import Tile


class _Driver:
    """The walk over units, blocks of k, panels of columns and tiles of rows."""

    def __init__(self, dtype: np.dtype, tile: Tile, form: str) -> None:
        self.dtype, self.tile, self.form = dtype, tile, form
        self.element = mem_type(dtype)
        self.f = Function()
        self.arg: dict[str, str] = {}

    def text(self, name: str) -> tuple[str, set[str]]:
        f, t, e = self.f, self.tile, self.element
        f.line(f"%tile = alloca i8, i64 {SCRATCH}, align 64")
        for i, field in enumerate(FIELDS):
            kind = "ptr" if field in ("A", "B", "C", "epilogue") else "i64"
            self.arg[field] = f.load(kind, f.at("i64", "%args", str(i)))
        arg = self.arg
        has_epilogue = f.let(f"icmp ne ptr {arg['epilogue']}, null")
        on_stack = f.let(f"icmp ne i64 {arg['scratch']}, 0")
        row_major = self.form == "row"
        a_step = arg["a_row"] if row_major else "1"
        a_inner = arg["a_row"] if row_major else arg["a_col"]
        with f.loop("%begin", "%end", "1") as unit:
            ib = f.let(f"urem i64 {unit.index}, {arg['row_blocks']}")
            rest = f.let(f"udiv i64 {unit.index}, {arg['row_blocks']}")
            jb = f.let(f"urem i64 {rest}, {arg['col_blocks']}")
            number = f.let(f"udiv i64 {rest}, {arg['col_blocks']}")
            i0, j0 = f.let(f"mul i64 {ib}, {arg['unit_rows']}"), f.let(f"mul i64 {jb}, {arg['unit_cols']}")
            mu = f.smin(f.let(f"sub i64 {arg['m']}, {i0}"), arg["unit_rows"])
            nu = f.smin(f.let(f"sub i64 {arg['n']}, {j0}"), arg["unit_cols"])
            ao, bo = self._batch(number)
            a0 = f.at(e, f.at(e, arg["A"], ao), f.let(f"mul i64 {i0}, {a_step}"))
            panel0 = f.let(f"udiv i64 {j0}, {t.columns}")
            b0 = f.at(e, f.at(e, arg["B"], bo), f.let(f"mul i64 {panel0}, {arg['b_panel']}"))
            co = f.let(f"mul i64 {number}, {arg['c_batch']}")
            c_at = f.at(e, f.at(e, f.at(e, arg["C"], co), f.let(f"mul i64 {i0}, {arg['c_row']}")), j0)
            c0 = f.let(f"select i1 {on_stack}, ptr %tile, ptr {c_at}")
            ldc = f.let(f"select i1 {on_stack}, i64 {arg['unit_cols']}, i64 {arg['c_row']}")
            # NOTE: one trip even if k is 0, which makes zeros.
            last_k = f.body.call("i64", "llvm.smax.i64", ("i64", arg["k"]), ("i64", "1"))
            with f.loop("0", last_k, str(KC)) as block:
                kk = f.smin(f.let(f"sub i64 {arg['k']}, {block.index}"), str(KC))
                add = f.let(f"icmp ne i64 {block.index}, 0")
                a1 = f.at(e, a0, block.index if row_major else f.let(f"mul i64 {block.index}, {arg['a_col']}"))
                b1 = f.at(e, b0, f.let(f"mul i64 {block.index}, {arg['b_row']}"))
                with f.loop("0", nu, str(t.columns), [("ptr", b1)]) as panel:
                    nr = f.smin(f.let(f"sub i64 {nu}, {panel.index}"), str(t.columns))
                    self._rows(kk, a1, a_step, a_inner, panel.carried[0], f.at(e, c0, panel.index), ldc, mu, nr, add)
                    panel.next = [f.at(e, panel.carried[0], arg["b_panel"])]
            with f.when(has_epilogue):
                f.line(
                    f"call void @epilogue(ptr %args, i64 {number}, i64 {i0}, i64 {j0}, i64 {mu}, i64 {nu}, "
                    f"ptr {c0}, i64 {ldc})"
                )
        f.line("ret void")
        head = f"define void @{name}(ptr %args, i64 %begin, i64 %end) nounwind {{\nentry:"
        return f"{head}\n{f.text()}\n}}", set(f.body.module.text().splitlines())

    def _batch(self, number: str) -> tuple[str, str]:
        """The offsets of product `number` of the batch in A and B."""
        f = self.f
        with f.loop("0", self.arg["batch"], "1", [("i64", number), ("i64", "0"), ("i64", "0")]) as axis:
            back = f.let(f"sub i64 {self.arg['batch']}, {axis.index}")
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

    def _rows(
        self, kk: str, a: str, a_step: str, a_inner: str, b: str, c: str, ldc: str, mu: str, nr: str, add: str
    ) -> None:
        """All tiles of one panel of columns."""
        f, t, e = self.f, self.tile, self.element
        sizes = t.rows
        full = f.let(f"icmp eq i64 {nr}, {t.columns}")
        vectors = f.let(f"udiv i64 {f.let(f'add i64 {nr}, {t.lanes - 1}')}, {t.lanes}")
        kind = f.let(f"select i1 {full}, i64 0, i64 {vectors}")
        before = f.let(f"mul i64 {f.let(f'sub i64 {vectors}, 1')}, {t.lanes}")
        last = f.let(f"sub i64 {nr}, {before}")
        table = f.at("ptr", "@micros", f.let(f"mul i64 {kind}, {len(sizes)}"))
        with f.loop("0", mu, "1") as row:
            left = f.let(f"sub i64 {mu}, {row.index}")
            which, height = str(len(sizes) - 1), str(sizes[-1])
            for i in range(len(sizes) - 2, -1, -1):
                fits = f.let(f"icmp sge i64 {left}, {sizes[i]}")
                which = f.let(f"select i1 {fits}, i64 {i}, i64 {which}")
                height = f.let(f"select i1 {fits}, i64 {sizes[i]}, i64 {height}")
            micro = f.load("ptr", f.at("ptr", table, which))
            ar = f.at(e, a, f.let(f"mul i64 {row.index}, {a_step}"))
            cr = f.at(e, c, f.let(f"mul i64 {row.index}, {ldc}"))
            f.line(
                f"call void {micro}(i64 {kk}, ptr {ar}, i64 {a_inner}, ptr {b}, i64 {self.arg['b_row']}, ptr {cr}, "
                f"i64 {ldc}, i1 {add}, i64 {last})"
            )
            row.step = height


@cache
def product_text(dtype: np.dtype, tile: Tile, form: str) -> tuple[str, str]:
    """The module of a product kernel (`form`: how A is read), and its name."""
    micros = [[Micro(dtype, tile, form, mr, tile.vectors, False) for mr in tile.rows]]
    micros += [[Micro(dtype, tile, form, mr, nv + 1, True) for mr in tile.rows] for nv in range(tile.vectors)]
    driver, declared = _Driver(dtype, tile, form).text("lazyt_gemm")
    bodies = []
    for family in micros:
        for micro in family:
            bodies.append(micro.text())
            declared |= set(micro.f.body.module.text().splitlines())
    table = ", ".join(f"ptr @{m.name}" for family in micros for m in family)
    count = sum(len(family) for family in micros)
    parts = [
        *sorted(line for line in declared if line), f"@micros = internal constant [{count} x ptr] [{table}]",
        *bodies, epilogue_text(), driver,
    ]  # fmt: skip
    return named("\n".join(parts), "lazyt_gemm")
