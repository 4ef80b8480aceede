"""Micro-kernels: a tile of C in registers, summed over one block of k."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.backends.cpu.codegen.looptext import Function, suffix_of
from lazyt.backends.cpu.codegen.source import Reader
from lazyt.backends.cpu.codegen.text import mem_type
from lazyt.backends.cpu.library.gemm_tile import PREFETCH
from lazyt.backends.math.vector import Vec
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from lazyt.backends.cpu.codegen.source import Part, Source
    from lazyt.backends.cpu.library.gemm_tile import Tile

    Step = Callable[[str, list[str], list[str]], tuple[list[str], list[str]]]


# A sum over so many elements leaves time to ask for the tile of C.
LONG = 128


class Micro:
    """One micro-kernel: `mr` rows, `nv` vectors, the last of them masked if `tail`. It reads B as `source` says."""

    def __init__(
        self, dtype: np.dtype, tile: Tile, form: str, mr: int, nv: int, tail: bool, source: Source | None = None
    ) -> None:
        self.tile, self.form, self.mr, self.nv, self.tail = tile, form, mr, nv, tail
        self.element = mem_type(dtype)
        self.lanes = tile.lanes
        self.vector = f"<{tile.lanes} x {self.element}>"
        self.suffix = f"v{tile.lanes}{suffix_of(dtype)}"
        self.size = dtype.itemsize
        self.float = dtypes.kind(dtype) == "f"
        self.f = Function()
        self.b = Reader(self.f, dtype, tile.lanes, source)
        self.part: Part | None = None  # the lanes of the last vector of B, if it is masked

    @property
    def name(self) -> str:
        return f"micro.{self.mr}.{self.nv}{'.tail' if self.tail else ''}"

    def read(self, pointer: str, v: int) -> str:
        """Vector v of B, of those from a pointer on."""
        at = self.f.at(self.b.element, pointer, str(v * self.lanes))
        return self.b.some(at, self.part) if self.part is not None and v == self.nv - 1 else self.b.read(at)

    def load(self, at: str, mask: str = "") -> str:
        f = self.f
        if not mask:
            return f.let(f"load {self.vector}, ptr {at}, align {self.size}")
        return f.body.call(
            self.vector, f"llvm.masked.load.{self.suffix}.p0", ("ptr", f"align {self.size} {at}"),
            (f"<{self.lanes} x i1>", mask), (self.vector, "zeroinitializer"),
        )  # fmt: skip

    def write(self, at: str, mask: str, x: str) -> None:
        f = self.f
        if not mask:
            f.line(f"store {self.vector} {x}, ptr {at}, align {self.size}")
            return
        name = f"llvm.masked.store.{self.suffix}.p0"
        f.body.declare(f"declare void @{name}({self.vector}, ptr, <{self.lanes} x i1>)")
        f.line(f"call void @{name}({self.vector} {x}, ptr align {self.size} {at}, <{self.lanes} x i1> {mask})")

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

    def sums(self, pointers: list[str], step: Step, twice: bool = False) -> list[str]:
        """The sums over %k steps; `step` gets the step's number, the pointers and the sums, and gives their next ones.

        NOTE: tested at its end and not unrolled further than `twice`: LLVM then keeps the sums in registers.
        """
        f, count = self.f, self.mr * self.nv
        trips = f.let("lshr i64 %k, 1") if twice else "%k"
        before = f.body.block
        some = f.let(f"icmp sgt i64 {trips}, 0")
        f.line(f"br i1 {some}, label %loop, label %end")
        f.label("loop")
        kinds = [self.vector] * count + ["ptr"] * len(pointers)
        starts = ["zeroinitializer"] * count + pointers
        names = [f"%s{i}" for i in range(len(kinds))]
        first = len(f.body.lines)
        f.body.lines.extend([""] * (1 + len(names)))  # the phis, once the next values are known
        sums, after = step("%i", names[count:], names[:count])
        if twice:
            sums, after = step("%i", after, sums)
        i1 = f.let("add nsw i64 %i, 1")
        f.body.lines[first] = f"  %i = phi i64 [ 0, %{before} ], [ {i1}, %loop ]"
        for j, (kind, start, name, x) in enumerate(zip(kinds, starts, names, [*sums, *after], strict=True)):
            f.body.lines[first + 1 + j] = f"  {name} = phi {kind} [ {start}, %{before} ], [ {x}, %loop ]"
        more = f.let(f"icmp slt i64 {i1}, {trips}")
        f.line(f"br i1 {more}, label %loop, label %end")
        f.label("end")
        ends = zip(kinds, starts, [*sums, *after], strict=True)
        found = [f.let(f"phi {kind} [ {start}, %{before} ], [ {x}, %loop ]") for kind, start, x in ends]
        if not twice:
            return found[:count]
        odd = f.let(f"icmp ne i64 {f.let('and i64 %k, 1')}, 0")
        f.line(f"br i1 {odd}, label %odd, label %all")
        f.label("odd")
        sums, _ = step("%i", found[count:], found[:count])
        f.line("br label %all")
        f.label("all")
        both = zip(found[:count], sums, strict=True)
        return [f.let(f"phi {self.vector} [ {x}, %end ], [ {y}, %odd ]") for x, y in both]

    def row_bases(self) -> tuple[list[str], tuple[str, str]]:
        """Pointers to every third row of A, and the steps to the two rows after each: so few registers are enough."""
        f = self.f
        twice = f.let("shl i64 %as, 1")
        triple = f.let(f"add i64 {twice}, %as")
        bases = ["%a"]
        for _ in range(3, self.mr, 3):
            bases.append(f.at(self.element, bases[-1], triple))
        return bases, ("%as", twice)

    def row_at(self, bases: list[str], strides: tuple[str, str], r: int) -> str:
        return self.f.at(self.element, bases[r // 3], strides[r % 3 - 1]) if r % 3 else bases[r // 3]

    def step(self, bases: list[str], b: str, strides: tuple[str, str], sums: list[str]) -> list[str]:
        f = self.f
        vectors = [self.read(b, v) for v in range(self.nv)]
        # NOTE: a short one that converts has too many instructions in flight to meet several rows of B at once.
        if self.mr == self.tile.heights(self.nv)[0] or self.b.source is not None:
            f.body.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
            ahead = f.at(self.b.element, b, f.let(f"mul i64 %bs, {PREFETCH}"))
            for v in range(self.nv):
                line = f.at(self.b.element, ahead, str(v * self.lanes))
                f.line(f"call void @llvm.prefetch.p0(ptr {line}, i32 0, i32 3, i32 1)")
        out = []
        for r in range(self.mr):
            if self.form == "row":
                at = self.row_at(bases, strides, r)
            else:
                at = f.at(self.element, bases[0], str(r)) if r else bases[0]
            a = self.broadcast(at)
            out += [self.multiply_add(a, vectors[v], sums[r * self.nv + v]) for v in range(self.nv)]
        return out

    def text(self) -> str:
        """`(k, A, A stride, B, B stride, C, C stride, add to C, active lanes of the last vector)`"""
        f, e = self.f, self.element
        mask = f.mask(self.lanes, "%last") if self.tail else ""
        self.part = self.b.part("%last", often_whole=False) if self.tail else None
        bases, strides = self.row_bases() if self.form == "row" else (["%a"], ("%as", ""))
        main = not self.tail and self.mr == self.tile.rows[0]
        if main:
            self.prefetch_sums()

        def step(index: str, pointers: list[str], sums: list[str]) -> tuple[list[str], list[str]]:
            *bases, b = pointers
            by = "%as" if self.form == "col" else "1"
            after = [*(f.at(e, p, by) for p in bases), f.at(self.b.element, b, "%bs")]
            return self.step(bases, b, strides, sums), after

        # The loop's own instructions cost as much as those of the sums leave free; only where registers are left, too.
        twice = main and (self.form == "col" or self.nv > 2)
        sums = self.sums([*bases, "%b"], step, twice)
        masks = [mask if self.tail and v == self.nv - 1 else "" for v in range(self.nv)]
        self.store(sums, [str(v * self.lanes) for v in range(self.nv)], masks)
        params = "i64 %k, ptr %a, i64 %as, ptr %b, i64 %bs, ptr %c, i64 %cs, i1 %add, i64 %last"
        return self.function(params)

    def prefetch_sums(self) -> None:
        """Ask for the tile of C before it is needed: its rows are apart, nothing else foresees them."""
        f = self.f
        f.body.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        with f.when(f.let(f"icmp sge i64 %k, {LONG}")):
            row = "%c"
            for r in range(self.mr):
                for v in range(self.nv):
                    at = f.at(self.element, row, str(v * self.lanes))
                    f.line(f"call void @llvm.prefetch.p0(ptr {at}, i32 1, i32 3, i32 1)")
                if r + 1 < self.mr:
                    row = f.at(self.element, row, "%cs")

    def function(self, params: str) -> str:
        return f"define internal void @{self.name}({params}) nounwind noinline {{\nentry:\n{self.f.text()}\n}}"

    def store(self, sums: list[str], offsets: list[str], masks: list[str]) -> None:
        """Put the sums into rows of C from %c on, or add them to what is there, each vector at its offset."""
        f = self.f
        f.line("br i1 %add, label %more, label %fresh")
        for label in ("more", "fresh"):
            f.label(label)
            row = "%c"
            for r in range(self.mr):
                for v, (offset, mask) in enumerate(zip(offsets, masks, strict=True)):
                    x, at = sums[r * self.nv + v], f.at(self.element, row, offset)
                    if label == "more":
                        x = f.let(f"{'fadd' if self.float else 'add'} {self.vector} {self.load(at, mask)}, {x}")
                    self.write(at, mask, x)
                if r + 1 < self.mr:
                    row = f.at(self.element, row, "%cs")
            f.line("ret void")


def tables(tile: Tile, widths: tuple[int, ...], make: Callable[[int, int], Micro]) -> tuple[list[Micro], list[str]]:
    """The micro-kernels of a tile, and two constants: names and heights, by vectors and by rows that are left.

    widths: the numbers of vectors that there are some for; make(rows, vectors) is one of them.
    """
    micros: list[Micro] = []
    names, heights = [], []
    for vectors in range(1, tile.vectors + 1):
        family = {mr: make(mr, vectors) for mr in tile.heights(vectors)} if vectors in widths else {}
        micros += family.values()
        for left in range(tile.tallest + 1):
            height = max(h for h in tile.heights(vectors) if h <= left or h == 1)
            names.append(f"ptr @{family[height].name}" if family else "ptr null")
            heights.append(f"i64 {height}")
    return micros, [
        f"@micros = internal constant [{len(names)} x ptr] [{', '.join(names)}]",
        f"@heights = internal constant [{len(heights)} x i64] [{', '.join(heights)}]",
    ]


class DotMicro(Micro):
    """A micro-kernel over pairs of bfloat16 along k, packed so: each sum gets the second product, then the first.

    `vdpbf16ps` takes one instruction for both; it treats subnormal numbers as zeros. `native` off is the same in
    float32's instructions, with subnormal numbers: for tests.
    """

    def __init__(self, *shape: Any, native: bool) -> None:
        super().__init__(*shape)
        self.native = native

    def multiply_add(self, a: str, b: str, c: str) -> str:
        f, v, lanes = self.f, self.vector, self.lanes
        if self.native:
            pairs = f"<{2 * lanes} x bfloat>"
            x, y = (f.let(f"bitcast {v} {z} to {pairs}") for z in (a, b))
            return f.body.call(v, f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}", (v, c), (pairs, x), (pairs, y))
        p, q = (Vec(f.body, z, "float", lanes).as_int() for z in (a, b))
        second = super().multiply_add((p & -0x10000).as_float().name, (q & -0x10000).as_float().name, c)
        return super().multiply_add((p << 16).as_float().name, (q << 16).as_float().name, second)
