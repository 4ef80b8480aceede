"""Divides a reduction of few long rows into kernels that several threads can share.

    sum over 16M elements    -->    partial sums of 256 chunks (a unit each); their total, in order

The order of a sum (see `kernel.py`) adds float64 totals of chunks one after the other, so partial totals in memory,
added in that order by a second kernel, give the same bits. Every stage over rows becomes such a pair, and later
stages load its results. The backend decides by sizes whether a kernel is divided.

    argmax over 16M elements    -->    maximum and place in each chunk; the first chunk of the highest, and its place

`by_stages` only separates the stages, each over whole rows, for backends that divide a single stage differently.

    softmax of 4 rows of 16M elements    -->    maximum of a row; sum of its exponentials; quotients
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lazyt.ir import dtypes, kernel as k
from lazyt.ir.records import dataclass

FLOAT64, INT64, BOOL = np.dtype(np.float64), np.dtype(np.int64), np.dtype(bool)
# Rows shorter than this, several of them to an output, are not worth a partial total each.
SHORT = 512
# The least number of elements of a kernel that is divided.
SMALL = 1 << 18
# ... if its rows end early: as many as one thread reads while another is woken a few times.
DECIDED = 1 << 22


@dataclass(eq=False)
class Scratch:
    """Memory between the pieces."""

    dtype: np.dtype
    count: int


@dataclass(frozen=True)
class Operand:
    """The array of an access of a piece: an access of the whole kernel or scratch, `shift` elements on."""

    source: int | Scratch
    shift: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """One launch; the affines are (number in the whole kernel, or None, coefficients, shift)."""

    kernel: k.Kernel
    extents: tuple[int, ...]
    operands: tuple[Operand, ...]
    affines: tuple[tuple[int | None, tuple[int, ...], int], ...]
    joins: bool = False  # whether the next piece may run beside it


def whole(kernel: k.Kernel, extents: tuple[int, ...], strides: Sequence[Any], coefs: Sequence[Any]) -> Piece:
    """A kernel as its only piece."""
    operands = tuple(Operand(i, 0, s) for i, s in enumerate(strides))
    return Piece(kernel, extents, operands, tuple((i, steps, 0) for i, steps in enumerate(coefs)))


def worth_splitting(kernel: k.Kernel, extents: Sequence[int], threads: int, early: bool = False) -> bool:
    """Whether a kernel has fewer units of work than threads can share, and enough work in them.

    `early`: rows end where they are decided, which pieces would not hear of from each other.
    """
    if not kernel.rows or kernel.has_check or threads < 2 or math.prod(extents) < SMALL:
        return False
    if kernel.units(extents) >= 4 * threads:
        return False
    if early and math.prod(extents) < DECIDED and all(kernel.asks(s) for s in kernel.stages if s.loops):
        return False
    if kernel.vector == "rows":
        return False  # NOTE: join_axes.py leaves such reductions as they are
    if kernel.vector == "outer" and any(_of_place(v) for v in kernel.values):
        return False
    inner = extents[-1]
    if kernel.vector == "outer":
        return inner >= 2 * k.FLUSH
    return inner > k.CHUNK or (inner >= SHORT and math.prod(extents[kernel.outer : -1]) > 1)


def split(
    kernel: k.Kernel, extents: Sequence[int], strides: Sequence[Sequence[int]], coefs: Sequence[Sequence[int]]
) -> list[Piece]:
    """The launches that do what `kernel` does; strides and coefs an axis for each access and affine."""
    return _Splitter(kernel, extents, strides, coefs).run()


def by_stages(
    kernel: k.Kernel, extents: Sequence[int], strides: Sequence[Sequence[int]], coefs: Sequence[Sequence[int]]
) -> list[Piece]:
    """A kernel for each stage over rows, with what is done once behind it; what a later one reads goes by memory."""
    return _Splitter(kernel, extents, strides, coefs, chunked=False).stages()


def _of_place(value: k.Value) -> bool:
    return isinstance(value, k.Reduce) and value.name in ("argmax", "argmin")


def _row_major(extents: Sequence[int], inner: int = 1) -> tuple[int, ...]:
    """Strides of a contiguous array whose elements are `inner` apart."""
    out = []
    for e in reversed(extents):
        out.append(inner)
        inner *= e
    return tuple(reversed(out))


class _Splitter:
    def __init__(
        self,
        kernel: k.Kernel,
        extents: Sequence[int],
        strides: Sequence[Sequence[int]],
        coefs: Sequence[Sequence[int]],
        chunked: bool = True,
    ) -> None:
        self.kernel = kernel
        self.chunked = chunked
        self.extents = tuple(extents)
        self.strides = strides
        self.coefs = coefs
        self.columns = kernel.vector == "outer"
        inner = extents[-1]
        self.block = k.FLUSH if self.columns else min(k.CHUNK, inner)
        self.full, self.tail = divmod(inner, self.block)
        self.chunks = self.full + bool(self.tail)
        outer = self.extents[: kernel.outer]
        self.outer = outer
        # Partial totals an output, and how they lie: the vector axis innermost when it is an outer one.
        self.count = math.prod(extents[kernel.outer : -1]) * self.chunks
        self.results: dict[int, Scratch] = {}

    def run(self) -> list[Piece]:
        pieces: list[Piece] = []
        for stage in self.kernel.stages:
            if not stage.loops:
                pieces.append(self._once(stage))
                continue
            count = math.prod(self.outer) * self.count
            partials = {r: Scratch(self._partial_dtype(r), count) for r in stage.reduces}
            # Of places, the extreme elements that they are of.
            best = {
                r: Scratch(self._operand_dtype(r), count) for r in stage.reduces if _of_place(self.kernel.values[r])
            }
            if self.full:
                pieces.append(self._walk(stage, partials, best, 0, self.full, self.block, bool(self.tail)))
            if self.tail:
                pieces.append(self._walk(stage, partials, best, self.full, 1, self.tail, False))
            if plain := {r: scratch for r, scratch in partials.items() if r not in best}:
                pieces.append(self._finish(plain))
            pieces += [self._finish_place(r, partials[r], scratch) for r, scratch in best.items()]
        return pieces

    def stages(self) -> list[Piece]:
        """As pieces of whole rows (see `by_stages`)."""
        groups: list[list[k.Stage]] = []
        for stage in self.kernel.stages:
            if stage.loops or not groups:
                groups.append([])
            groups[-1].append(stage)
        return [self._group(first, rest, i + 1 == len(groups)) for i, (first, *rest) in enumerate(groups)]

    def _group(self, first: k.Stage, rest: Sequence[k.Stage], last: bool) -> Piece:
        if not first.loops:
            return self._once(replace(first, stores=tuple(s for stage in (first, *rest) for s in stage.stores)))
        n = self.kernel.outer
        copy = _Copy(self, True, 0)
        found, kept = {}, []
        for r in first.reduces:
            value = self.reduce(r)
            found[r] = copy.add(replace(value, operand=copy.value(value.operand)))
        walked = copy.stores(first)
        copy.made.update(found)
        for r, number in () if last else found.items():
            result = self.results[r] = Scratch(self.kernel.values[r].dtype, math.prod(self.outer))
            where = Operand(result, 0, (*_row_major(self.outer), *(0 for _ in range(self.kernel.rows))))
            classes = "n" * (n - 1) + "1" + "0" * self.kernel.rows
            kept.append(k.Store(copy.access(k.Access(result.dtype, classes, True), where), number))
        once = (*kept, *(s for stage in rest for s in copy.stores(stage)))
        stages = (k.Stage(True, tuple(found.values()), walked), *([k.Stage(False, (), once)] if once else []))
        return copy.piece(n, self.kernel.rows, self.kernel.vector, stages, self.extents, False)

    def _operand_dtype(self, r: int) -> np.dtype:
        return self.kernel.values[self.reduce(r).operand].dtype

    def reduce(self, r: int) -> k.Reduce:
        value = self.kernel.values[r]
        assert isinstance(value, k.Reduce)
        return value

    def _partial_dtype(self, r: int) -> np.dtype:
        value = self.kernel.values[r]
        floating = value.name in ("sum", "prod") and dtypes.kind(value.dtype) == "f"  # type: ignore[union-attr]
        return FLOAT64 if floating else value.dtype

    def _axes(self, own: Sequence[Any], chunk: Any) -> list[Any]:
        """What belongs to the old axes, by the new ones: a chunk axis, and row axes but the last outside it."""
        if not self.chunked:
            return list(own)
        n = self.kernel.outer
        if self.columns:
            return [*own[: n - 1], *own[n:-1], chunk, own[n - 1], own[-1]]
        return [*own[:n], *own[n:-1], chunk, own[-1]]

    def _classes(self, classes: str) -> str:
        return "".join(self._axes(classes, "0" if classes[-1] == "0" else "n"))

    def _steps(self, steps: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._axes(steps, steps[-1] * self.block))  # of whole rows: as they are

    def _walk(
        self, stage: k.Stage, partials: dict[int, Scratch], best: dict[int, Scratch], first: int, chunks: int,
        block: int, joins: bool,
    ) -> Piece:  # fmt: skip
        """The stage over `chunks` chunks of `block` elements, from number `first` on."""
        extents = tuple(self._axes((*self.extents[:-1], block), chunks))
        whole = tuple(self._axes((*self.extents[:-1], 1), self.chunks))
        layout = (*_row_major(whole[:-1]), 0)
        at = len(whole) - (3 if self.columns else 2)  # the chunk axis
        copy = _Copy(self, True, first * self.block)
        reduces, stores = [], []
        wanted = [(self.reduce(r), scratch) for r, scratch in partials.items()]
        for r, scratch in best.items():
            place = self.reduce(r)
            wanted.append((replace(place, name=place.name.removeprefix("arg")), scratch))
        for value, scratch in wanted:
            operand = copy.value(value.operand)
            reduces.append(copy.add(replace(value, operand=operand, dtype=scratch.dtype)))
            classes = "n" * (len(whole) - 2) + "10"
            access = copy.access(k.Access(scratch.dtype, classes, True), Operand(scratch, first * layout[at], layout))
            stores.append(k.Store(access, reduces[-1]))
        loop = k.Stage(True, tuple(reduces), copy.stores(stage))
        once = (k.Stage(False, (), tuple(stores)),) if stores else ()
        return copy.piece(len(whole) - 1, 1, self.kernel.vector, (loop, *once), extents, joins)

    def _finish(self, partials: dict[int, Scratch]) -> Piece:
        """The totals of the partial ones, one after the other: each a row of one element, which is flushed alone."""
        outer = self.outer
        if self.columns:
            last = outer[-1]
            steps = (*_row_major(outer[:-1], self.count * last), 1, last, 0)
        else:
            steps = (*_row_major(outer, self.count), 1, 0)
        copy = _Copy(self, False, 0)
        reduces, stores = [], []
        n = len(outer)
        for r, scratch in partials.items():
            value = self.kernel.values[r]
            assert isinstance(value, k.Reduce)
            classes = "n" * (n - 1) + ("1n" if self.columns else "n1") + "0"
            load = copy.add(
                k.Load(copy.access(k.Access(scratch.dtype, classes), Operand(scratch, 0, steps)), scratch.dtype)
            )
            reduces.append(copy.add(k.Reduce(value.name, load, value.dtype)))
            result = self.results[r] = Scratch(value.dtype, math.prod(outer))
            where = Operand(result, 0, (*_row_major(outer), 0, 0))
            stores.append(k.Store(copy.access(k.Access(value.dtype, "n" * (n - 1) + "100", True), where), reduces[-1]))
        stages = (k.Stage(True, tuple(reduces), ()), k.Stage(False, (), tuple(stores)))
        return copy.piece(n, 2, "outer", stages, (*outer, self.count, 1), False)

    def _finish_place(self, r: int, places: Scratch, best: Scratch) -> Piece:
        """The place of the first of the extreme elements: in the first chunk that has one.

        argmax(best), and then the only one of `chunk * block + place` that is of that chunk.
        """
        value, outer, n = self.reduce(r), self.outer, len(self.outer)
        copy = _Copy(self, False, 0)
        classes, steps = "n" * n + "1", (*_row_major(outer, self.count), 1)

        def load(scratch: Scratch) -> int:
            access = copy.access(k.Access(scratch.dtype, classes), Operand(scratch, 0, steps))
            return copy.add(k.Load(access, scratch.dtype))

        chunk = copy.add(k.Reduce(value.name, load(best), INT64))
        here = copy.add(k.Op("eq", (copy.along_row(n, 1), chunk), BOOL))
        place = copy.add(k.Op("add", (load(places), copy.along_row(n, self.block)), INT64))
        never = copy.add(k.Const(np.iinfo(np.int64).max, INT64))
        found = copy.add(k.Reduce("min", copy.add(k.Op("select", (here, place, never), INT64)), INT64))
        result = self.results[r] = Scratch(INT64, math.prod(outer))
        where = Operand(result, 0, (*_row_major(outer), 0))
        store = k.Store(copy.access(k.Access(INT64, "n" * (n - 1) + "10", True), where), found)
        stages = (k.Stage(True, (chunk,), ()), k.Stage(True, (found,), ()), k.Stage(False, (), (store,)))
        return copy.piece(n, 1, "outer", stages, (*outer, self.count), False)

    def _once(self, stage: k.Stage) -> Piece:
        """A stage outside the rows: a map over the outer axes."""
        copy = _Copy(self, False, 0)
        stores = copy.stores(stage)
        return copy.piece(len(self.outer), 0, "outer", (k.Stage(False, (), stores),), self.outer, False)


class _Copy:
    """Values of the whole kernel in a piece, over the chunks' axes or over the outer ones alone."""

    def __init__(self, whole: _Splitter, chunked: bool, start: int) -> None:
        self.whole = whole
        self.chunked = chunked
        self.start = start  # the first element of the innermost row axis
        self.values: list[k.Value] = []
        self.numbers: dict[object, int] = {}
        self.made: dict[int, int] = {}
        self.accesses: list[k.Access] = []
        self.operands: list[Operand] = []
        self.access_numbers: dict[tuple[k.Access, Operand], int] = {}
        self.affines: list[k.Affine] = []
        self.affine_numbers: dict[int, int] = {}
        self.affine_args: list[tuple[int | None, tuple[int, ...], int]] = []

    def add(self, value: k.Value) -> int:
        key = k.key_of(value)
        n = self.numbers.get(key)
        if n is None:
            n = self.numbers[key] = len(self.values)
            self.values.append(value)
        return n

    def access(self, access: k.Access, operand: Operand) -> int:
        key = (access, operand)
        n = self.access_numbers.get(key)
        if n is None:
            n = self.access_numbers[key] = len(self.accesses)
            self.accesses.append(access)
            self.operands.append(operand)
        return n

    def _old(self, number: int) -> int:
        """The piece's access for an access of the whole kernel."""
        whole, old = self.whole, self.whole.kernel.accesses[number]
        steps = whole.strides[number]
        if self.chunked:
            shift = steps[-1] * self.start if old.classes[-1] != "0" else 0
            return self.access(
                replace(old, classes=whole._classes(old.classes)), Operand(number, shift, whole._steps(steps))
            )
        n = whole.kernel.outer
        return self.access(replace(old, classes=old.classes[:n]), Operand(number, 0, tuple(steps[:n])))

    def _affine(self, number: int) -> int:
        n = self.affine_numbers.get(number)
        if n is None:
            whole, classes, steps = self.whole, self.whole.kernel.affines[number].classes, self.whole.coefs[number]
            n = self.affine_numbers[number] = len(self.affines)
            if self.chunked:
                self.affines.append(k.Affine(whole._classes(classes)))
                self.affine_args.append((number, whole._steps(steps), steps[-1] * self.start))
            else:
                outer = whole.kernel.outer
                self.affines.append(k.Affine(classes[:outer]))
                self.affine_args.append((number, tuple(steps[:outer]), 0))
        return n

    def along_row(self, outer: int, step: int) -> int:
        """The index along the only row axis times `step`."""
        self.affines.append(k.Affine("0" * outer + ("1" if step == 1 else "n")))
        self.affine_args.append((None, (*(0 for _ in range(outer)), step), 0))
        return self.add(k.Index(len(self.affines) - 1, INT64))

    def _result(self, r: int) -> int:
        """Loads the result that an earlier stage finished."""
        whole = self.whole
        scratch = whole.results[r]
        outer = list(_row_major(whole.outer))
        n = len(outer)
        if self.chunked:
            steps = tuple(whole._axes([*outer, *(0 for _ in range(whole.kernel.rows))], 0))
            classes = whole._axes(["n"] * (n - 1) + ["1"] + ["0"] * whole.kernel.rows, "0")
            operand = Operand(scratch, 0, steps)
            return self.add(k.Load(self.access(k.Access(scratch.dtype, "".join(classes)), operand), scratch.dtype))
        operand = Operand(scratch, 0, tuple(outer))
        return self.add(k.Load(self.access(k.Access(scratch.dtype, "n" * (n - 1) + "1"), operand), scratch.dtype))

    def value(self, v: int) -> int:
        """The value v of the whole kernel, with the values that it needs."""
        todo = [v]
        values = self.whole.kernel.values
        while todo:
            n = todo[-1]
            if n in self.made:
                todo.pop()
                continue
            value = values[n]
            if isinstance(value, k.Reduce):
                self.made[n] = self._result(n)
            else:
                missing = [o for o in k.operands_of(value) if o not in self.made]
                if missing:
                    todo.extend(missing)
                    continue
                self.made[n] = self.add(self._mapped(value))
            todo.pop()
        return self.made[v]

    def _mapped(self, value: k.Value) -> k.Value:
        new = k.with_operands(value, self.made)
        match new:
            case k.Load() | k.Gather():
                return replace(new, access=self._old(new.access))
            case k.Index():
                return replace(new, affine=self._affine(new.affine))
            case _:
                return new

    def stores(self, stage: k.Stage) -> tuple[k.Store, ...]:
        return tuple(k.Store(self._old(s.access), self.value(s.value)) for s in stage.stores)

    def piece(
        self,
        outer: int,
        rows: int,
        vector: k.Vector,
        stages: tuple[k.Stage, ...],
        extents: tuple[int, ...],
        joins: bool,
    ) -> Piece:
        old = self.whole.kernel
        kernel = k.Kernel(
            outer, rows, vector, tuple(self.accesses), tuple(self.affines), old.scalars, tuple(self.values), stages,
            old.title,
        )  # fmt: skip
        return Piece(kernel, extents, tuple(self.operands), tuple(self.affine_args), joins)
