"""Operands of generated products that do not lie in memory as the product's elements.

    float16, bfloat16                         -->  float32, exactly
    float32 that the program casts to a half  -->  float32 rounded to the half: the half itself is never in memory

They are converted where they are read: while A or B is packed, or by the micro-kernels where B is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.looptext import suffix_of
from lazyt.backends.cpu.codegen.text import mem_type
from lazyt.backends.math import casts
from lazyt.backends.math.vector import Vec
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    import numpy as np

    from lazyt.backends.cpu.codegen.looptext import Function
    from lazyt.ir.graph import Node


@dataclass(frozen=True)
class Source:
    """How an operand lies in memory, and the half that it is rounded to, if it lies there as float32."""

    stored: np.dtype
    half: np.dtype

    @property
    def rounds(self) -> bool:
        return self.stored != self.half

    def __str__(self) -> str:
        return f"{self.stored} rounded to {self.half}" if self.rounds else str(self.half)


def source_of(x: Node, base: Node, dtype: np.dtype) -> Source | None:
    """How the operand x of a product of this dtype is read from the buffer of `base`; None: as it is."""
    return None if x.dtype == base.dtype == dtype else Source(base.dtype, x.dtype)


class Part:
    """Some of the lanes of a vector, the first ones: what reads of as many share."""

    def __init__(self, mask: str, whole: str = "", last: str = "", odd: str = "", spare: str = "") -> None:
        self.mask, self.whole, self.last, self.odd, self.spare = mask, whole, last, odd, spare


class Reader:
    """Writes reads of vectors of an operand, as the product's elements."""

    def __init__(self, f: Function, dtype: np.dtype, lanes: int, source: Source | None) -> None:
        self.f, self.lanes, self.source = f, lanes, source
        self.stored = dtype if source is None else source.stored
        self.element, self.size = mem_type(self.stored), self.stored.itemsize
        self.vector = f"<{lanes} x {self.element}>"

    def read(self, at: str) -> str:
        """A whole vector."""
        return self._converted(self.f.let(f"load {self.vector}, ptr {at}, align {self.size}"))

    def part(self, count: str, spare: str = "", often_whole: bool = True) -> Part:
        """The first `count` lanes; `spare`: where an element can be read if there may be none.

        often_whole: a branch may read a whole vector as such.
        """
        f, lanes = self.f, self.lanes
        if self.source is None or self.source.rounds:
            return Part(f.mask(lanes, count))
        # Processors without AVX-512 read some of the 32-bit lanes, but not of the 16-bit ones: pairs, then the last.
        last = f.let(f"sub i64 {count}, 1")
        low = f.let(f"trunc i64 {last} to i32")
        one = f.let(f"insertelement <{lanes} x i32> poison, i32 {low}, i32 0")
        every = f.let(f"shufflevector <{lanes} x i32> {one}, <{lanes} x i32> poison, <{lanes} x i32> zeroinitializer")
        iota = ", ".join(f"i32 {i}" for i in range(lanes))
        odd = f.let(f"icmp eq <{lanes} x i32> {every}, <{iota}>")
        whole = f.let(f"icmp eq i64 {count}, {lanes}") if often_whole else ""
        return Part(f.mask(lanes // 2, f.let(f"lshr i64 {count}, 1")), whole, last, odd, spare)

    def some(self, at: str, part: Part) -> str:
        """The lanes of a part; zeros in the others."""
        f, lanes = self.f, self.lanes
        if not part.odd:
            name = f"llvm.masked.load.v{lanes}{suffix_of(self.stored)}.p0"
            none = (self.vector, "zeroinitializer")
            read = f.body.call(
                self.vector, name, ("ptr", f"align {self.size} {at}"), (f"<{lanes} x i1>", part.mask), none
            )
            return self._converted(read)
        if not part.whole:
            return self._converted(self._pairs(at, part))
        some, whole, join = (f.body.fresh(name) for name in ("some", "whole", "join"))
        f.line(f"br i1 {part.whole}, label %{whole}, label %{some}")
        f.label(whole)
        every = f.let(f"load {self.vector}, ptr {at}, align {self.size}")
        f.line(f"br label %{join}")
        f.label(some)
        chosen = self._pairs(at, part)
        f.line(f"br label %{join}")
        f.label(join)
        return self._converted(f.let(f"phi {self.vector} [{every}, %{whole}], [{chosen}, %{some}]"))

    def _pairs(self, at: str, part: Part) -> str:
        """The lanes of a part of 16-bit elements, as they lie in memory: pairs of them, then the last one."""
        f, lanes = self.f, self.lanes
        pairs = f"<{lanes // 2} x i32>"
        words = f.body.call(
            pairs, f"llvm.masked.load.v{lanes // 2}i32.p0", ("ptr", f"align {self.size} {at}"),
            (f"<{lanes // 2} x i1>", part.mask), (pairs, "zeroinitializer"),
        )  # fmt: skip
        end = f.at(self.element, at, part.last)
        if part.spare:
            end = f.let(f"select i1 {f.let(f'icmp slt i64 {part.last}, 0')}, ptr {part.spare}, ptr {end}")
        last = f.let(f"insertelement {self.vector} poison, {self.element} {f.load(self.element, end)}, i32 0")
        every = f.let(f"shufflevector {self.vector} {last}, {self.vector} poison, <{lanes} x i32> zeroinitializer")
        read = f.let(f"bitcast {pairs} {words} to {self.vector}")
        return f.let(f"select <{lanes} x i1> {part.odd}, {self.vector} {every}, {self.vector} {read}")

    def _converted(self, x: str) -> str:
        """What was read, as the product's elements."""
        if self.source is None:
            return x
        read = Vec(self.f.body, x, self.element, self.lanes)
        found = casts.rounded(read, self.source.half) if self.source.rounds else casts.widen(read, self.source.half)
        return found.name

    def bits(self, x: str) -> Vec:
        """What was read as a bfloat16: its bits in the upper half of an i32."""
        assert self.source is not None, "elements are converted"
        read = Vec(self.f.body, x, self.element, self.lanes)
        if self.source.rounds:
            return casts.rounded(read, self.source.half).as_int()
        return read.convert("zext", "i32") << 16


class PairReader(Reader):
    """Writes reads of pairs of neighbours of bfloat16, each as the bits of one float32: the first in the lower half."""

    def __init__(self, f: Function, lanes: int, source: Source) -> None:
        super().__init__(f, source.stored, 2 * lanes, source)

    def _converted(self, x: str) -> str:
        assert self.source is not None, "elements are converted"
        if self.source.rounds:
            x = (self.bits(x) >> 16).convert("trunc", "i16").name
        return self.f.let(f"bitcast <{self.lanes} x i16> {x} to <{self.lanes // 2} x float>")


class RowPairReader(Reader):
    """Writes reads of pairs of bfloat16 that lie below each other in two rows, the upper one first."""

    def pair(self, upper: str, lower: str, keep: str) -> str:
        """Of two vectors as they were read; `keep`: an i32 of ones, or of zeros where there is no lower row."""
        kind = f"<{self.lanes} x i32>"
        one = self.f.let(f"insertelement {kind} poison, i32 {keep}, i32 0")
        every = self.f.let(f"shufflevector {kind} {one}, {kind} poison, {kind} zeroinitializer")
        low = self.bits(lower) & Vec(self.f.body, every, "i32", self.lanes)
        return ((self.bits(upper) >> 16) | low).as_float().name

    def _converted(self, x: str) -> str:
        return x
