"""Eigenvalues and singular values of groups of matrices, by Jacobi's rotations.

    eigh, eigvalsh    rows and columns p and q are turned by the angle that takes a_pq to 0; V collects the rotations
    svd, svdvals      columns p and q of A are turned until they are orthogonal (Hestenes): A * V = U * S

A sweep has every pair once, in rounds of pairs that share no index: all angles of a round are found first, none waiting
for another. Sweeps go on until what is left in every lane is below the error of the result (some 6 to 10 of them; the
last halve its exponent). Then values are sorted in each lane. U is what Householder's reflections make of U * S, so it
is orthogonal for zero singular values too.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lazyt.backends.cpu.library.matrix_factors import Reflections
from lazyt.backends.cpu.library.matrix_lanes import A, K, Lanes, M, N, X, Y, Z, larger, muladd
from lazyt.backends.math.vector import Vec, copysign, fabs, sqrt, where

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

    from lazyt.backends.cpu.codegen.routine import Routine

# What a refusal for infinities is known by, in the status word.
INFINITE = 1
# More sweeps than any matrix takes.
SWEEPS = 40
# Of the error of a result, what may be left beside the diagonal of a matrix, and of the product of two columns.
BESIDE, TURNED = 2.0**-6, 2.0**-5
# Of the error of a result, what is 0 beside two elements of the diagonal, relative to them.
ROUNDING = 2.0**-2
# Rounding alone leaves so much of the product of two columns.
LEAST = 2.0**-49
# The square of a column that is only what rounding left, where the largest element is near 1.
NONE = 2.0**-132


class _Rotations(Lanes):
    """Writes sweeps over the pairs of `count` rows, and what is around them."""

    def __init__(self, r: Routine, dtype: np.dtype, wanted: Sequence[bool], count: str) -> None:
        super().__init__(r, dtype, wanted)
        self.count = count
        self.even = self.body.let(f"and i64 {self.add(count, 1)}, -2")
        self.half = self.body.let(f"lshr i64 {self.even}, 1")
        # Of an even number of rows one stays where it is; of an odd number it would be one that there is not.
        self.first_pair = self.sub(self.even, count)
        self.sines, self.halves, self.moved = (self.area(self.half) for _ in range(3))

    @contextmanager
    def pairs(self, turn: str) -> Iterator[tuple[str, str, str]]:
        """The pairs of a round: their number, p and q, p < q."""
        last = self.sub(self.even, 1)
        with self.r.loop(self.first_pair, self.half) as t:
            fixed = self.body.let(f"icmp eq i64 {t.index}, 0")
            p, q = self.add(turn, t.index), self.sub(self.add(turn, last), t.index)
            p, q = (self.body.let(f"urem i64 {x}, {last}") for x in (p, q))
            p = self.body.let(f"select i1 {fixed}, i64 {last}, i64 {p}")
            yield t.index, self.min(p, q), self.max(p, q)

    @contextmanager
    def rounds(self) -> Iterator[str]:
        with self.r.loop("0", self.sub(self.even, 1)) as turn:
            yield turn.index

    def angle(self, t: str, difference: Vec, twice: Vec) -> Vec:
        """Keep the sine for a pair, and the tangent of half the angle; the tangent.

        twice: of what is to become 0, over the difference of what that couples.
        """
        ratio = difference / twice
        length = sqrt(muladd(ratio, ratio, self.constant(1.0)))
        tangent = copysign(1.0 / (fabs(ratio) + length), ratio)
        tangent = where(ratio.isnan(), 0.0, tangent)
        cosine = 1.0 / sqrt(muladd(tangent, tangent, self.constant(1.0)))
        sine = tangent * cosine
        self.put(self.sines, t, sine)
        self.put(self.halves, t, sine / (cosine + 1.0))
        return tangent

    def turned(self, x: Vec, y: Vec, sine: Vec, half: Vec) -> tuple[Vec, Vec]:
        """Both rotated; a small angle, such as those of the last sweeps, adds a small error (Rutishauser)."""
        return muladd(-sine, muladd(half, x, y), x), muladd(sine, muladd(-half, y, x), y)

    def turn_rows(self, t: str, area: str, p: str, q: str, length: str) -> None:
        """Rotate two rows of an array."""
        sine, half = self.get(self.sines, t), self.get(self.halves, t)
        one, other = (self.row(area, self.mul(k, length)) for k in (p, q))
        with self.each("0", length) as (i, _, _):
            x, y = self.turned(self.get(one, i), self.get(other, i), sine, half)
            self.put(one, i, x)
            self.put(other, i, y)

    def scaled(self, area: str, count: str) -> tuple[Vec, Vec]:
        """Scale an array to 1; the power of two that this took, and zeros, or NaN where something was not finite."""
        with self.each("0", count, self.constant(0.0), self.constant(0.0)) as (i, found, following):
            x = fabs(self.get(area, i))
            following += [larger(found[0], x), muladd(x, self.constant(0.0), found[1])]
        greatest, nothing = following
        scale = self.scale_of(greatest)
        with self.each("0", count) as (i, _, _):
            self.put(area, i, self.get(area, i) * scale)
        return scale, nothing

    @contextmanager
    def sweeps(self) -> Iterator[list[str]]:
        """Over and over, while the i1 that is put into the list holds."""
        body = self.body
        with self.r.repeat([("i64", "0"), ("i1", "true")]) as loop:
            number, more = loop.carried
            self.r.go_on(loop, more)
            again: list[str] = []
            yield again
            following = self.add(number, 1)
            within = body.let(f"icmp slt i64 {following}, {SWEEPS}")
            loop.next = [following, body.let(f"and i1 {again[0]}, {within}")]
        self.refuse_if(body.let(f"icmp sge i64 {number}, {SWEEPS}"))


class _Symmetric(_Rotations):
    """Writes the diagonalization of a symmetric matrix, of which the lower triangle is kept."""

    def __init__(self, r: Routine, dtype: np.dtype, wanted: Sequence[bool]) -> None:
        super().__init__(r, dtype, wanted, r.argument(N))
        self.size = self.mul(self.count, self.count)
        # Rows have an odd length, so that not all elements of a column meet in few sets of a cache.
        self.length = self.body.let(f"or i64 {self.count}, 1")
        self.matrix, self.square = self.area(self.mul(self.count, self.length)), self.area(self.size)
        self.values, self.sorted, self.ranked = (self.area(self.count) for _ in range(3))
        self.vectors = self.area(self.size) if len(wanted) > 1 and wanted[1] else ""

    def at(self, i: str, j: str) -> str:
        return self.row(self.matrix, self.add(self.mul(i, self.length), j))

    def lay(self) -> None:
        """Take the lower triangle of `square`."""
        self.fill(self.matrix, self.mul(self.count, self.length), 0.0)
        with self.each("0", self.count) as (i, _, _):
            self.copy(self.row(self.square, self.mul(i, self.count)), self.at(i, "0"), self.add(i, 1))

    def rotate(self, t: str, p: str, q: str) -> None:
        """Turn two rows and the same columns, p < q; those before, between and behind them."""
        sine, half, moved = (self.get(area, t) for area in (self.sines, self.halves, self.moved))
        for start, stop, of_p, of_q in (
            ("0", p, False, False), (self.add(p, 1), q, True, False), (self.add(q, 1), self.count, True, True)
        ):  # fmt: skip
            with self.each(start, stop) as (i, _, _):
                places = [self.at(i, k) if down else self.at(k, i) for k, down in ((p, of_p), (q, of_q))]
                x, y = (self.get(place, "0") for place in places)
                turned = self.turned(x, y, sine, half)
                for place, v in zip(places, turned, strict=True):
                    self.put(place, "0", v)
        self.put(self.at(p, p), "0", self.get(self.at(p, p), "0") - moved)
        self.put(self.at(q, q), "0", self.get(self.at(q, q), "0") + moved)
        self.put(self.at(q, p), "0", self.constant(0.0))

    def left(self) -> str:
        """Whether too much is left beside the diagonal in some lane."""
        zero = self.constant(0.0)
        with self.each("0", self.count, zero, zero) as (i, outer, after):
            with self.each("0", i, outer[0]) as (j, found, following):
                x = self.get(self.at(i, j), "0")
                following.append(muladd(x, x, found[0]))
            x = self.get(self.at(i, i), "0")
            after += [following[0], muladd(x, x, outer[1])]
        beside, along = after
        limit = (BESIDE * self.epsilon) ** 2
        return (beside > along * limit).any()

    def run(self) -> None:
        self.lay()
        scale, nothing = self.scaled(self.matrix, self.mul(self.count, self.length))
        if self.vectors:
            self.identity(self.vectors, self.count, self.count)
        with self.sweeps() as again:
            with self.rounds() as turn:
                with self.pairs(turn) as (t, p, q):
                    x, of_p, of_q = (self.get(self.at(i, j), "0") for i, j in ((q, p), (p, p), (q, q)))
                    # NOTE: rounding may leave so much beside equal eigenvalues. It would turn them by some angle, for
                    # ever: their difference is rounding too. `rotate` puts 0 there.
                    x = where(x * x <= fabs(of_p * of_q) * (ROUNDING * self.epsilon) ** 2, 0.0, x)
                    tangent = self.angle(t, of_q - of_p, x + x)
                    self.put(self.moved, t, tangent * x)
                with self.pairs(turn) as (t, p, q):
                    self.rotate(t, p, q)
                    if self.vectors:
                        self.turn_rows(t, self.vectors, p, q, self.count)
            again.append(self.left())
        back = 1.0 / scale
        with self.each("0", self.count) as (i, _, _):
            self.put(self.values, i, muladd(self.get(self.at(i, i), "0"), back, nothing))
        self.ranks(self.values, self.count, self.ranked, descending=False)
        self.rearrange(self.ranked, self.count, self.values, "1", self.sorted, (1, 1))
        self.turn_out(X, self.count, self.sorted)
        if self.vectors:
            self.rearrange(self.ranked, self.count, self.vectors, self.count, self.square, (1, self.count))
            with self.each("0", self.size) as (i, _, _):
                self.put(self.square, i, self.get(self.square, i) + nothing)
            self.turn_out(Y, self.size, self.square)


def symmetric(r: Routine, dtype: np.dtype, wanted: Sequence[bool]) -> None:
    """Eigenvalues, and eigenvectors if there is a second result that is wanted."""
    w = _Symmetric(r, dtype, wanted)
    with w.groups():
        w.turn_in(A, w.size, w.square)
        w.run()


class _Singular(_Rotations):
    """Writes the orthogonalization of the columns of a matrix, or of its rows if there are fewer."""

    def __init__(self, r: Routine, dtype: np.dtype, wanted: Sequence[bool], slot: int) -> None:
        """slot: that of the singular values among the arguments."""
        m, n = r.argument(M), r.argument(N)
        count = r.body.call("i64", "llvm.smin.i64", ("i64", m), ("i64", n))
        super().__init__(r, dtype, wanted, count)
        self.m, self.n, self.slot = m, n, slot
        self.length = self.max(m, n)
        self.tall = self.body.let(f"icmp sge i64 {m}, {n}")
        self.size = self.mul(m, n)
        self.matrix, self.lines = self.area(self.size), self.area(self.size)
        self.values, self.sorted, self.ranked = (self.area(count) for _ in range(3))
        self.vectors, self.strict = "", slot == Y
        if self.strict and (wanted[0] or wanted[2]):
            self.columns = r.argument(K)
            squares = self.mul(count, count), self.mul(self.length, self.columns)
            self.vectors, self.right = self.area(squares[0]), self.area(squares[0])
            self.q, self.turned_q = self.area(squares[1]), self.area(squares[1])
            self.reflections = Reflections(self, self.matrix, self.length, count, self.columns, self.q)

    def lay(self) -> None:
        """The rows of `lines` are what is turned: the columns of a matrix with more rows than columns."""
        with self.r.when(self.tall):
            self.transpose(self.matrix, self.m, self.n, self.lines)
        with self.r.when(self.body.let(f"xor i1 {self.tall}, true")):
            self.copy(self.matrix, self.lines, self.size)

    def transpose(self, source: str, rows: str, columns: str, to: str) -> None:
        with self.each("0", rows) as (i, _, _), self.each("0", columns) as (j, _, _):
            x = self.get(source, self.add(self.mul(i, columns), j))
            self.put(to, self.add(self.mul(j, rows), i), x)

    def products(self, p: str, q: str) -> list[Vec]:
        """The squares of two rows, and their product."""
        one, other = (self.row(self.lines, self.mul(k, self.length)) for k in (p, q))
        zero = self.constant(0.0)
        with self.each("0", self.length, zero, zero, zero) as (i, found, following):
            x, y = self.get(one, i), self.get(other, i)
            following += [muladd(x, x, found[0]), muladd(y, y, found[1]), muladd(x, y, found[2])]
        return following

    def run(self) -> None:
        self.lay()
        scale, nothing = self.scaled(self.lines, self.size)
        self.refuse_what_is_not_finite()
        limit = max(TURNED * self.epsilon, LEAST) ** 2
        if self.vectors:
            self.identity(self.vectors, self.count, self.count)
        left = self.r.slot("i1")
        with self.sweeps() as again:
            self.body.line(f"store i1 false, ptr {left}")
            with self.rounds() as turn:
                with self.pairs(turn) as (t, p, q):
                    x, y, product = self.products(p, q)
                    self.angle(t, y - x, product + product)
                    there = (x > NONE) & (y > NONE)
                    some = ((product * product > x * y * limit) & there).any()
                    before = self.body.let(f"load i1, ptr {left}")
                    self.body.line(f"store i1 {self.body.let(f'or i1 {before}, {some}')}, ptr {left}")
                with self.pairs(turn) as (t, p, q):
                    self.turn_rows(t, self.lines, p, q, self.length)
                    if self.vectors:
                        self.turn_rows(t, self.vectors, p, q, self.count)
            again.append(self.body.let(f"load i1, ptr {left}"))
        back = 1.0 / scale
        with self.each("0", self.count) as (i, _, _):
            line = self.row(self.lines, self.mul(i, self.length))
            with self.each("0", self.length, self.constant(0.0)) as (j, found, following):
                x = self.get(line, j)
                following.append(muladd(x, x, found[0]))
            self.put(self.values, i, muladd(sqrt(following[0]), back, nothing))
        self.ranks(self.values, self.count, self.ranked, descending=True)
        self.rearrange(self.ranked, self.count, self.values, "1", self.sorted, (1, 1))
        self.turn_out(self.slot, self.count, self.sorted)
        if self.vectors:
            self.form()

    def refuse_what_is_not_finite(self) -> None:
        """NaN, and, where bases are asked for, infinities too (see `svd` in library_calls.py)."""
        zero = self.constant(0.0)
        with self.each("0", self.size, zero, zero) as (i, found, following):
            x = self.get(self.lines, i)
            following += [
                where(fabs(x).eq(float("inf")), 1.0, found[0]), where(x.isnan(), 1.0, found[1])
            ]  # fmt: skip
        infinite, undefined = following
        if self.strict:
            self.refuse(infinite.ne(0.0), INFINITE)
        self.refuse(undefined.ne(0.0))

    def form(self) -> None:
        """Both bases."""
        self.rearrange(self.ranked, self.count, self.vectors, self.count, self.right, (self.count, 1))
        self.rearrange(self.ranked, self.count, self.lines, self.length, self.matrix, (1, self.count))
        self.reflections.reduce()
        self.reflections.form()
        # The diagonal of R is made positive.
        with self.each("0", self.count) as (j, _, _):
            sign = copysign(self.constant(1.0), self.get(self.matrix, self.mul(j, self.add(self.count, 1))))
            with self.each("0", self.length) as (i, _, _):
                at = self.row(self.q, self.add(self.mul(i, self.columns), j))
                self.put(at, "0", self.get(at, "0") * sign)
        of_q, square = self.mul(self.length, self.columns), self.mul(self.count, self.count)
        with self.r.when(self.tall):
            self.turn_out(X, of_q, self.q)
            self.turn_out(Z, square, self.right)
        with self.r.when(self.body.let(f"xor i1 {self.tall}, true")):
            self.transpose(self.right, self.count, self.count, self.vectors)
            self.turn_out(X, square, self.vectors)
            self.transpose(self.q, self.length, self.columns, self.turned_q)
            self.turn_out(Z, of_q, self.turned_q)


def singular(r: Routine, dtype: np.dtype, wanted: Sequence[bool]) -> None:
    """Singular values, the second of three results or the only one, and both bases if one is wanted."""
    w = _Singular(r, dtype, wanted, Y if len(wanted) > 1 else X)
    with w.groups():
        w.turn_in(A, w.size, w.matrix)
        w.run()
