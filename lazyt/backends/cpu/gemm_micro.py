"""Micro-kernels: a tile of C in registers, summed over one block of k."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cpu.gemm_tile import PREFETCH
from lazyt.backends.cpu.looptext import Function, suffix_of
from lazyt.backends.cpu.text import mem_type

if TYPE_CHECKING:
    import numpy as np

    from lazyt.backends.cpu.gemm_tile import Tile


class Micro:
    """One micro-kernel: `mr` rows, `nv` vectors, the last of them masked if `tail`."""

    def __init__(self, dtype: np.dtype, tile: Tile, form: str, mr: int, nv: int, tail: bool) -> None:
        self.tile, self.form, self.mr, self.nv, self.tail = tile, form, mr, nv, tail
        self.element = mem_type(dtype)
        self.lanes = tile.lanes
        self.vector = f"<{tile.lanes} x {self.element}>"
        self.suffix = f"v{tile.lanes}{suffix_of(dtype)}"
        self.size = dtype.itemsize
        self.float = dtype.kind == "f"
        self.f = Function()

    @property
    def name(self) -> str:
        return f"micro.{self.mr}.{self.nv}{'.tail' if self.tail else ''}"

    def read(self, pointer: str, v: int, mask: str) -> str:
        f = self.f
        at = f.at(self.element, pointer, str(v * self.lanes))
        if self.tail and v == self.nv - 1:
            return f.body.call(
                self.vector, f"llvm.masked.load.{self.suffix}.p0", ("ptr", f"align {self.size} {at}"),
                (f"<{self.lanes} x i1>", mask), (self.vector, "zeroinitializer"),
            )  # fmt: skip
        return f.let(f"load {self.vector}, ptr {at}, align {self.size}")

    def write(self, pointer: str, v: int, mask: str, x: str) -> None:
        f = self.f
        at = f.at(self.element, pointer, str(v * self.lanes))
        if self.tail and v == self.nv - 1:
            name = f"llvm.masked.store.{self.suffix}.p0"
            f.body.declare(f"declare void @{name}({self.vector}, ptr, <{self.lanes} x i1>)")
            f.line(f"call void @{name}({self.vector} {x}, ptr align {self.size} {at}, <{self.lanes} x i1> {mask})")
        else:
            f.line(f"store {self.vector} {x}, ptr {at}, align {self.size}")

    def multiply_add(self, a: str, b: str, c: str) -> str:
        f, v = self.f, self.vector
        if self.float and self.tile.fused:
            return f.body.call(v, f"llvm.fma.{self.suffix}", (v, a), (v, b), (v, c))
        mul, add = ("fmul", "fadd") if self.float else ("mul", "add")
        return f.let(f"{add} {v} {c}, {f.let(f'{mul} {v} {a}, {b}')}")

    def broadcast(self, pointer: str) -> str:
        f = self.f
        one = f.let(f"insertelement {self.vector} poison, {self.element} {f.load(self.element, pointer)}, i32 0")
        zero = f"<{self.lanes} x i32> zeroinitializer"
        return f.let(f"shufflevector {self.vector} {one}, {self.vector} poison, {zero}")

    def step(self, bases: list[str], b: str, strides: tuple[str, str], k: int, sums: list[str], mask: str) -> list[str]:
        """One k: `k` elements along a row from the bases, or at them (form 'col')."""
        f = self.f
        vectors = [self.read(b, v, mask) for v in range(self.nv)]
        if self.mr == self.tile.rows[0]:
            f.body.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
            ahead = f.at(self.element, b, f.let(f"mul i64 %bs, {PREFETCH}"))
            for v in range(self.nv):
                line = f.at(self.element, ahead, str(v * self.lanes))
                f.line(f"call void @llvm.prefetch.p0(ptr {line}, i32 0, i32 3, i32 1)")
        out = []
        for r in range(self.mr):
            if self.form == "col":
                at = f.at(self.element, bases[0], str(r)) if r else bases[0]
            else:
                at = bases[r // 3]
                if r % 3:
                    at = f.at(self.element, at, strides[r % 3 - 1])
                if k:
                    at = f.at(self.element, at, str(k))
            a = self.broadcast(at)
            out += [self.multiply_add(a, vectors[v], sums[r * self.nv + v]) for v in range(self.nv)]
        return out

    def text(self) -> str:
        """`(k, A, A stride, B, B stride, C, C stride, add to C, active lanes of the last vector)`"""
        f, e = self.f, self.element
        mask = f.mask(self.lanes, "%last") if self.tail else ""
        twice = f.let("shl i64 %as, 1")
        if self.form == "row":
            triple = f.let(f"add i64 {twice}, %as")
            bases = ["%a"]
            for _ in range(3, self.mr, 3):
                bases.append(f.at(e, bases[-1], triple))
        else:
            bases = ["%a"]
        strides = ("%as", twice)
        count = self.mr * self.nv
        state = [(self.vector, "zeroinitializer")] * count
        pointers = [("ptr", p) for p in bases] + [("ptr", "%b")]
        # NOTE: tested at its end and not unrolled: LLVM then keeps the sums in registers.
        before = f.body.block
        some = f.let("icmp sgt i64 %k, 0")
        f.line("br i1 %some.k, label %loop, label %end".replace("%some.k", some))
        f.label("loop")
        names = [f"%s{i}" for i in range(count + len(pointers))]
        first = len(f.body.lines)
        f.body.lines.extend([""] * (1 + len(names)))
        sums, bases, b = names[:count], names[count:-1], names[-1]
        sums = self.step(bases, b, strides, 0, sums, mask)
        by = "%as" if self.form == "col" else "1"
        after = [*sums, *(f.at(e, p, by) for p in bases), f.at(e, b, "%bs")]
        i1 = f.let("add nsw i64 %i, 1")
        f.body.lines[first] = f"  %i = phi i64 [ 0, %{before} ], [ {i1}, %loop ]"
        for j, ((kind, init), name, nxt) in enumerate(zip(state + pointers, names, after, strict=True)):
            f.body.lines[first + 1 + j] = f"  {name} = phi {kind} [ {init}, %{before} ], [ {nxt}, %loop ]"
        more = f.let(f"icmp slt i64 {i1}, %k")
        f.line(f"br i1 {more}, label %loop, label %end")
        f.label("end")
        sums = [f.let(f"phi {self.vector} [ zeroinitializer, %{before} ], [ {x}, %loop ]") for x in sums]
        f.line("br i1 %add, label %more, label %fresh")
        self._store("more", sums, mask, add=True)
        self._store("fresh", sums, mask, add=False)
        params = "i64 %k, ptr %a, i64 %as, ptr %b, i64 %bs, ptr %c, i64 %cs, i1 %add, i64 %last"
        return f"define internal void @{self.name}({params}) nounwind noinline {{\nentry:\n{f.text()}\n}}"

    def _store(self, label: str, sums: list[str], mask: str, add: bool) -> None:
        f = self.f
        f.label(label)
        row = "%c"
        for r in range(self.mr):
            for v in range(self.nv):
                x = sums[r * self.nv + v]
                if add:
                    x = f.let(f"{'fadd' if self.float else 'add'} {self.vector} {self.read(row, v, mask)}, {x}")
                self.write(row, v, mask, x)
            if r + 1 < self.mr:
                row = f.at(self.element, row, "%cs")
        f.line("ret void")
