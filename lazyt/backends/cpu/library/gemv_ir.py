"""The LLVM IR of products of few rows by a matrix that is stored transposed: a dot product for each element (GEMV).

    C[m, n] = sum over k of A[m, k] * B[n, k], one *unit* a block of columns of C, with all its rows

Both operands are read along k, where they lie: nothing is packed, and B is read once from memory, by a few rows at a
time. So the rate of memory decides, where packing B and adding to a tile would take several times as long.

Order of a sum: lane l of LANES adds up the products at l, l + LANES, ... in order, then the lanes are added in halves.
That depends on k alone, not on threads, units, the number of rows, or the width of registers.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.looptext import Function, named
from lazyt.backends.cpu.library.gemm_epilogue import epilogue_text
from lazyt.backends.cpu.library.gemm_ir import batch_offsets, load_arguments
from lazyt.backends.cpu.library.gemm_micro import Micro
from lazyt.backends.cpu.library.gemm_tile import Tile
from lazyt.backends.cpu.workspace import PARAMETERS, workspace_of

if TYPE_CHECKING:
    import numpy as np

# Bytes of the lanes of a sum: one register or several.
LANES_SIZE = 64
# Rows of B that are read together, for registers of so many bytes: as many sums as hide the latency of a multiply-add.
TOGETHER = {64: 8, 32: 4, 16: 2}


class _Dots(Micro):
    """`count` dot products: a row of A by rows of B, into neighbours of C; rows behind the last are the last again."""

    def __init__(self, dtype: np.dtype, count: int, fused: bool) -> None:
        lanes = LANES_SIZE // dtype.itemsize
        super().__init__(dtype, Tile((1,), count, lanes, fused), "row", 1, count, False)

    def text(self) -> str:
        f, e, lanes = self.f, self.element, self.lanes
        places = [f.smin(str(r), "%last") for r in range(self.nv)]
        rows = [f.at(e, "%b", f.let(f"mul i64 {place}, %bs")) for place in places]
        pointers = ["%a", *rows]

        def step(_: str, at: list[str], sums: list[str]) -> tuple[list[str], list[str]]:
            a = self.load(at[0])
            found = [self.multiply_add(a, self.load(row), s) for row, s in zip(at[1:], sums, strict=True)]
            return found, [f.at(e, p, str(lanes)) for p in at]

        sums = self.sums(pointers, step)
        whole = f.body.block
        left = f.let(f"and i64 %length, {lanes - 1}")
        f.line(f"br i1 {f.let(f'icmp ne i64 {left}, 0')}, label %part, label %fold")
        f.label("part")
        mask, done = f.mask(lanes, left), f.let(f"sub i64 %length, {left}")
        a, *ends = (self.load(f.at(e, p, done), mask) for p in pointers)
        partial = [self.multiply_add(a, b, s) for b, s in zip(ends, sums, strict=True)]
        f.line("br label %fold")
        f.label("fold")
        totals = [
            f.let(f"phi {self.vector} [ {x}, %{whole} ], [ {y}, %part ]") for x, y in zip(sums, partial, strict=True)
        ]
        self._store(totals)
        f.line("ret void")
        head = "i64 %length, i64 %k, ptr %a, ptr %b, i64 %bs, i64 %last, ptr %c"
        return f"define internal void @dots({head}) nounwind {{\nentry:\n{f.text()}\n}}"

    def _store(self, totals: list[str]) -> None:
        """Store the sums of the lanes of each, but for those behind the last."""
        f, kind, bits = self.f, f"<{self.nv} x {self.element}>", f"<{self.nv} x i1>"
        name = f"llvm.masked.store.v{self.nv}{self.suffix.removeprefix(f'v{self.lanes}')}.p0"
        f.body.declare(f"declare void @{name}({kind}, ptr, {bits})")
        mask = f.mask(self.nv, f.let("add i64 %last, 1"))
        f.line(f"call void @{name}({kind} {self._folded(totals)}, ptr align {self.size} %c, {bits} {mask})")

    def _folded(self, parts: list[str]) -> str:
        """The sum of the lanes of each part, side by side: upper halves are added to lower ones until one is left.

        Two parts are folded at once, into the halves of one vector, then two of these into quarters, and so on.
        """
        width, lanes = self.lanes, self.lanes
        while width > 1:
            width //= 2
            pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
            parts = [self._halved(pair, lanes, width) for pair in pairs]
            lanes = lanes * len(pairs[0]) // 2
        (sums,) = parts
        return sums

    def _halved(self, parts: list[str], lanes: int, width: int) -> str:
        """Groups of twice `width` lanes, of one vector or two, folded into groups of `width`."""
        f, kind = self.f, f"<{lanes} x {self.element}>"
        first, second = parts[0], parts[1] if len(parts) > 1 else "poison"
        lower = [i for i in range(lanes * len(parts)) if i // width % 2 == 0]
        halves = []
        for shift in (0, width):
            picks = ", ".join(f"i32 {i + shift}" for i in lower)
            halves.append(f.let(f"shufflevector {kind} {first}, {kind} {second}, <{len(lower)} x i32> <{picks}>"))
        return f.let(f"fadd <{len(lower)} x {self.element}> {halves[0]}, {halves[1]}")


def _driver(dtype: np.dtype, dots: _Dots, name: str) -> tuple[str, set[str]]:
    """The loops over units, rows of B and rows of A."""
    f, e = Function(), dots.element
    arg = load_arguments(f)
    has_epilogue = f.let(f"icmp ne ptr {arg['epilogue']}, null")
    on_stack = f.let(f"icmp ne i64 {arg['scratch']}, 0")
    trips = f.let(f"sdiv i64 {arg['k']}, {dots.lanes}")
    with f.loop("%begin", "%end", "1") as unit:
        jb = f.let(f"urem i64 {unit.index}, {arg['col_blocks']}")
        number = f.let(f"udiv i64 {unit.index}, {arg['col_blocks']}")
        j0 = f.let(f"mul i64 {jb}, {arg['unit_cols']}")
        nu = f.smin(f.let(f"sub i64 {arg['n']}, {j0}"), arg["unit_cols"])
        ao, bo = batch_offsets(f, arg, number)
        a0, b0 = f.at(e, arg["A"], ao), f.at(e, f.at(e, arg["B"], bo), f.let(f"mul i64 {j0}, {arg['b_row']}"))
        c_at = f.at(e, f.at(e, arg["C"], f.let(f"mul i64 {number}, {arg['c_batch']}")), j0)
        c0 = f.let(f"select i1 {on_stack}, ptr {workspace_of(f, arg['workspace'])}, ptr {c_at}")
        ldc = f.let(f"select i1 {on_stack}, i64 {arg['unit_cols']}, i64 {arg['c_row']}")
        with f.loop("0", nu, str(dots.nv)) as column:
            last = f.let(f"sub i64 {f.let(f'sub i64 {nu}, {column.index}')}, 1")
            b1 = f.at(e, b0, f.let(f"mul i64 {column.index}, {arg['b_row']}"))
            with f.loop("0", arg["m"], "1") as row:
                a1 = f.at(e, a0, f.let(f"mul i64 {row.index}, {arg['a_row']}"))
                c1 = f.at(e, f.at(e, c0, f.let(f"mul i64 {row.index}, {ldc}")), column.index)
                f.line(
                    f"call void @dots(i64 {arg['k']}, i64 {trips}, ptr {a1}, ptr {b1}, i64 {arg['b_row']}, "
                    f"i64 {last}, ptr {c1})"
                )
        with f.when(has_epilogue):
            f.line(
                f"call void @epilogue(ptr %args, i64 {number}, i64 0, i64 {j0}, i64 {arg['m']}, i64 {nu}, ptr {c0}, "
                f"i64 {ldc})"
            )
    f.line("ret void")
    head = f"define void @{name}({PARAMETERS}) nounwind {{\nentry:"
    return f"{head}\n{f.text()}\n}}", set(f.body.module.text().splitlines())


def together(tile: Tile, dtype: np.dtype) -> int:
    """Rows of B that meet a row of A at once."""
    return TOGETHER.get(tile.lanes * dtype.itemsize, 2)


@cache
def gemv_text(dtype: np.dtype, tile: Tile) -> tuple[str, str]:
    """The module, and the name of its function."""
    dots = _Dots(dtype, together(tile, dtype), tile.fused)
    body = dots.text()
    driver, declared = _driver(dtype, dots, "lazyt_gemv")
    declared |= set(dots.f.body.module.text().splitlines())
    parts = [*sorted(line for line in declared if line), body, epilogue_text(), driver]
    return named("\n".join(parts), "lazyt_gemv")
