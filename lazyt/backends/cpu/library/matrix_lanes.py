"""Stacks of small matrices in machine code: lanes are matrices, so that every step is one of whole registers.

A unit is a group of LANES matrices. Their elements are turned round into a workspace, where element (i, j) of all of
them is one vector; algorithms run on vectors, with loops over the size of the matrices at run time; what comes out is
turned back.

    memory      a00 a01 a10 a11 | b00 b01 b10 b11 | ...         workspace   (a00 b00 ..) (a01 b01 ..) (a10 b10 ..) ...

The lanes behind the last matrix have that one again: they compute the same, and write it to the same place.

NOTE: float32 is computed in float64, as by NumPy, which has LAPACK do so.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.cpu.codegen.routine import size_of
from lazyt.backends.cpu.codegen.text import mem_type, type_of
from lazyt.backends.math.vector import Vec, where

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lazyt.backends.cpu.codegen.routine import Routine

# Arguments: up to two stacks that go in and three that come out; matrices in a stack; their rows and columns (M, N);
# columns of the right-hand sides (K); the number of the call among what may fail.
A, B, X, Y, Z, WORK, STATUS, COUNT, M, N, K, CODE = range(12)
SIZE = CODE + 1
# Matrices in a group, and bytes of a vector: of an element of all of them.
LANES, VECTOR = 8, 64
# Elements of a row of the squares that are turned round in registers.
SQUARE = 4
KIND, PART = f"<{LANES} x double>", f"<{SQUARE} x double>"
EPSILON = 2.0**-53


class Lanes:
    """Writes a routine over groups of matrices: arithmetic of indices, vectors in memory, and the turning."""

    def __init__(self, r: Routine, dtype: np.dtype, wanted: Sequence[bool]) -> None:
        """wanted: which of the results are read."""
        self.r, self.body = r, r.body
        self.wanted = wanted
        self.stored = mem_type(dtype)
        # What a result's error is measured by.
        self.epsilon = float(np.finfo(dtype).eps) / 2
        self.work = r.workspace(WORK)
        self.top = "0"  # vectors of the workspace that have been given out
        self.places = r.slot("i64", LANES)

    # Indices

    def add(self, a: str, b: str | int) -> str:
        return self.body.let(f"add i64 {a}, {b}")

    def sub(self, a: str, b: str | int) -> str:
        return self.body.let(f"sub i64 {a}, {b}")

    def mul(self, a: str, b: str | int) -> str:
        return self.body.let(f"mul i64 {a}, {b}")

    def min(self, a: str, b: str) -> str:
        return self.body.call("i64", "llvm.smin.i64", ("i64", a), ("i64", b))

    def max(self, a: str, b: str) -> str:
        return self.body.call("i64", "llvm.smax.i64", ("i64", a), ("i64", b))

    # Vectors of the workspace

    def area(self, count: str) -> str:
        """The address of so many vectors."""
        found = self.row(self.work, self.top)
        self.top = self.add(self.top, count)
        return found

    def row(self, area: str, index: str) -> str:
        """The address of a vector."""
        return self.body.let(f"getelementptr {KIND}, ptr {area}, i64 {index}")

    def get(self, area: str, index: str) -> Vec:
        return self.vec(self.body.let(f"load {KIND}, ptr {self.row(area, index)}, align {VECTOR}"))

    def put(self, area: str, index: str, x: Vec) -> None:
        self.body.line(f"store {KIND} {x.name}, ptr {self.row(area, index)}, align {VECTOR}")

    def vec(self, name: str) -> Vec:
        return Vec(self.body, name, "double", LANES)

    def constant(self, value: float) -> Vec:
        return self.vec(self.body.splat("double", value, LANES))

    def numbers(self, index: str) -> Vec:
        """An index in every lane."""
        return Vec(self.body, self.r.splat("i64", index, LANES), "i64", LANES)

    @contextmanager
    def each(self, start: str, stop: str, *carried: Vec) -> Iterator[tuple[str, list[Vec], list[Vec]]]:
        """for index in range(start, stop); vectors that are carried, and the list for their next values.

        After the loop that list has the last values.
        """
        kinds = [(type_of(x), x.name) for x in carried]
        with self.r.loop(start, stop, 1, kinds) as loop:
            following: list[Vec] = []
            yield loop.index, [x.renamed(name) for x, name in zip(carried, loop.carried, strict=True)], following
            loop.next = [x.name for x in following]
        following[:] = [x.renamed(name) for x, name in zip(carried, loop.results, strict=True)]

    def copy(self, source: str, to: str, count: str) -> None:
        with self.each("0", count) as (i, _, _):
            self.put(to, i, self.get(source, i))

    def fill(self, to: str, count: str, value: float) -> None:
        with self.each("0", count) as (i, _, _):
            self.put(to, i, self.constant(value))

    def identity(self, to: str, rows: str, columns: str) -> None:
        """Ones on the diagonal, zeros elsewhere."""
        self.fill(to, self.mul(rows, columns), 0.0)
        with self.each("0", self.min(rows, columns)) as (i, _, _):
            self.put(to, self.mul(i, self.add(columns, 1)), self.constant(1.0))

    def subtract(self, by: Vec, source: str, to: str, count: str) -> None:
        """to -= by * source."""
        self.accumulate(-by, source, to, count)

    def accumulate(self, by: Vec, source: str, to: str, count: str) -> None:
        """to += by * source."""
        with self.each("0", count) as (i, _, _):
            self.put(to, i, muladd(by, self.get(source, i), self.get(to, i)))

    # Groups

    @contextmanager
    def groups(self) -> Iterator[None]:
        """Each unit."""
        with self.r.loop("%begin", "%end") as unit:
            first, last = self.mul(unit.index, LANES), self.sub(self.r.argument(COUNT), 1)
            for lane in range(LANES):
                self.r.put("i64", self.places, str(lane), self.min(self.add(first, lane), last))
            yield

    def _lines(self, slot: int, size: str) -> list[str]:
        """Where the elements of each matrix begin."""
        base = self.r.argument(slot, "ptr")
        places = [self.r.get("i64", self.places, str(lane)) for lane in range(LANES)]
        return [self.r.at(self.stored, base, self.mul(place, size)) for place in places]

    def turn_in(self, slot: int, count: str, area: str) -> None:
        """The elements of each matrix, so many, to vectors."""
        self._turn(slot, count, area, self._in_squares, self._in_ones)

    def turn_out(self, slot: int, count: str, area: str) -> None:
        """And back, if that result is wanted."""
        if self.wanted[slot - X]:
            self._turn(slot, count, area, self._out_squares, self._out_ones)

    def _turn(
        self, slot: int, count: str, area: str, by_squares: Callable[[list[str], str, str], None],
        by_ones: Callable[[list[str], str, str], None],
    ) -> None:  # fmt: skip
        lines = self._lines(slot, count)
        enough = self.body.let(f"icmp sge i64 {count}, {SQUARE}")
        with self.r.when(enough):
            # The last square ends with the last element: some elements are turned twice.
            last = self.sub(count, SQUARE)
            with self.r.loop("0", count, SQUARE) as c:
                by_squares(lines, self.min(c.index, last), area)
        with self.r.loop("0", self.body.let(f"select i1 {enough}, i64 0, i64 {count}")) as c:
            by_ones(lines, c.index, area)

    def _in_squares(self, lines: list[str], at: str, area: str) -> None:
        parts = []
        for i in range(0, LANES, SQUARE):
            rows = [self._load(self.r.at(self.stored, line, at)) for line in lines[i : i + SQUARE]]
            parts.append(self._turned(rows))
        for j, (a, b) in enumerate(zip(*parts, strict=True)):
            self.put(area, self.add(at, j), self.vec(self._shuffle(SQUARE, a, b, range(LANES))))

    def _out_squares(self, lines: list[str], at: str, area: str) -> None:
        columns = [self.get(area, self.add(at, j)).name for j in range(SQUARE)]
        for i in range(0, LANES, SQUARE):
            rows = self._turned([self._shuffle(LANES, x, x, range(i, i + SQUARE)) for x in columns])
            for line, row in zip(lines[i : i + SQUARE], rows, strict=True):
                self._store(row, self.r.at(self.stored, line, at))

    def _load(self, at: str) -> str:
        """SQUARE neighbours, as float64."""
        x = self.body.let(f"load <{SQUARE} x {self.stored}>, ptr {at}, align {size_of(self.stored)}")
        return x if self.stored == "double" else self.body.let(f"fpext <{SQUARE} x float> {x} to {PART}")

    def _store(self, x: str, at: str) -> None:
        if self.stored == "float":
            x = self.body.let(f"fptrunc {PART} {x} to <{SQUARE} x float>")
        self.body.line(f"store <{SQUARE} x {self.stored}> {x}, ptr {at}, align {size_of(self.stored)}")

    def _in_ones(self, lines: list[str], at: str, area: str) -> None:
        kind, x = f"<{LANES} x {self.stored}>", "poison"
        for lane, line in enumerate(lines):
            one = self.r.get(self.stored, line, at)
            x = self.body.let(f"insertelement {kind} {x}, {self.stored} {one}, i64 {lane}")
        self.put(area, at, self.vec(x if self.stored == "double" else self.body.let(f"fpext {kind} {x} to {KIND}")))

    def _out_ones(self, lines: list[str], at: str, area: str) -> None:
        kind, x = f"<{LANES} x {self.stored}>", self.get(area, at).name
        if self.stored == "float":
            x = self.body.let(f"fptrunc {KIND} {x} to {kind}")
        for lane, line in enumerate(lines):
            self.r.put(self.stored, line, at, self.body.let(f"extractelement {kind} {x}, i64 {lane}"))

    def _shuffle(self, lanes: int, a: str, b: str, places: Sequence[int]) -> str:
        kind = f"<{lanes} x double>"
        mask = ", ".join(f"i32 {p}" for p in places)
        return self.body.let(f"shufflevector {kind} {a}, {kind} {b}, <{len(places)} x i32> <{mask}>")

    def _turned(self, rows: list[str]) -> list[str]:
        """A square of registers, transposed: within their halves first, as unpacking instructions do."""
        within = [self._shuffle(SQUARE, rows[i], rows[i + 1], (h, 4 + h, 2 + h, 6 + h)) for i in (0, 2) for h in (0, 1)]
        return [
            self._shuffle(SQUARE, within[h], within[2 + h], (s, s + 1, 4 + s, 5 + s)) for s in (0, 2) for h in (0, 1)
        ]

    # Numbers

    def scale_of(self, x: Vec) -> Vec:
        """A power of two s, for a finite x, so that s * |x| is near 1; finite, and not 0, for every x."""
        bits = x.as_int() & (2047 << 52)
        scale = (2046 << 52) - bits
        least = 1 << 52
        return where(scale < least, scale.renamed(scale.operand(least)), scale).as_float()

    def refuse(self, which: Vec, reason: int = 0) -> None:
        """Write to the status word that the call fails, where that holds for some lane."""
        self.refuse_if(which.any(), reason)

    def refuse_if(self, condition: str, reason: int = 0) -> None:
        """The same for an i1. What failed before stays."""
        r, body = self.r, self.body
        with r.when(condition):
            status = r.argument(STATUS, "ptr")
            claim = body.let(f"cmpxchg ptr {status}, i64 0, i64 {r.argument(CODE)} monotonic monotonic")
            with r.when(body.let(f"extractvalue {{ i64, i1 }} {claim}, 1")):
                r.put("i64", status, "1", str(reason))

    # Orders

    def ranks(self, values: str, count: str, to: str, descending: bool) -> None:
        """How many come before each value, lane by lane, as integers; they stay as they are where all are NaN."""
        same, other = ("uge", "ogt") if descending else ("ule", "olt")
        with self.each("0", count) as (i, _, _):
            x, rank = self.get(values, i), self.numbers("0")
            for start, stop, predicate in (("0", i, same), (self.add(i, 1), count, other)):
                with self.each(start, stop, rank) as (j, found, following):
                    before = self.get(values, j).compare(predicate, x)
                    following.append(where(before, found[0] + 1, found[0]))
                rank = following[0]
            self.body.line(f"store <{LANES} x i64> {rank.name}, ptr {self.row(to, i)}, align {VECTOR}")

    def rearrange(
        self, ranks: str, count: str, source: str, length: str, to: str, steps: tuple[str | int, str | int]
    ) -> None:
        """Rows of an array, `count` of them, to the places of their ranks, which differ in each lane.

        steps: from place to place, and from element to element there.
        """
        r = self.r
        with self.each("0", count) as (i, _, _):
            own = self.row(source, self.mul(i, length))
            for lane in range(LANES):
                rank = r.get("i64", self.row(ranks, i), str(lane))
                there = r.at("double", self.row(to, self.mul(rank, steps[0])), str(lane))
                with r.loop("0", length) as j:
                    one = r.get("double", self.row(own, j.index), str(lane))
                    r.put("double", self.row(there, self.mul(j.index, steps[1])), "0", one)


def muladd(a: Vec, b: Vec, c: Vec) -> Vec:
    """a * b + c, rounded once where the processor can do that."""
    return a.intrinsic("fmuladd", b, c)


def larger(a: Vec, b: Vec) -> Vec:
    """The greater one; a where one is NaN."""
    return where(b > a, b, a)
