"""Gaussian elimination of groups of matrices with partial pivoting: `solve`, `inv`, `det`, `slogdet`.

    for k:  the row of the greatest |a_ik|, i >= k, is another one in each lane: it is gathered, and row k put there
            a_i -= a_ik / a_kk * a_k  for all rows i > k, right-hand sides too
    for k downwards:  b_k /= a_kk;  b_i -= a_ik * b_k  for all rows i < k

That is what LAPACK's `gesv` does, so the errors are as large. A column with no pivot but 0 makes the call fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.text import type_of
from lazyt.backends.cpu.library.matrix_lanes import KIND, LANES, A, B, K, Lanes, N, X, Y, muladd
from lazyt.backends.math.explog_f64 import log
from lazyt.backends.math.vector import Vec, fabs, where

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from lazyt.backends.cpu.codegen.routine import Routine

# Pivots beyond these are scaled before their reciprocal is taken, so that this has all its digits: a power of two in
# whose range it is exact, and by how much.
_RANGE, _BY = 2.0**1000, 2.0**128
# A number is another one in [1, 2) times a power of two.
_ONE, _FIELD, _BIAS, _MANTISSA = 1023 << 52, 2047, 1023, (1 << 52) - 1
# What lifts a subnormal number, and powers of two that any float64 stands multiplying by thrice.
_LIFT, _THIRD = 64, 1000
LN2 = 0.6931471805599453


class _Elimination(Lanes):
    """Writes the elimination: of a matrix, and of right-hand sides beside it."""

    def __init__(self, r: Routine, dtype: np.dtype, wanted: Sequence[bool], columns: str = "0") -> None:
        super().__init__(r, dtype, wanted)
        self.n = r.argument(N)
        self.columns = columns  # of the right-hand sides, at most
        self.matrix = self.area(self.mul(self.n, self.n))
        self.sides = self.area(self.mul(self.n, columns))
        self.spares = self.area(self.n), self.area(columns)
        # By how much a pivot is scaled, and the reciprocal of what comes out.
        self.scales, self.inverses = self.area(self.n), self.area(self.n)
        self.offsets = r.slot("i64", LANES)

    def line(self, k: str, column: str = "0") -> str:
        """The address of an element of the matrix."""
        return self.row(self.matrix, self.add(self.mul(k, self.n), column))

    def pivot(self, k: str) -> Vec:
        """The row of the greatest element of column k from row k on."""
        start = self.get(self.line(k, k), "0")
        with self.each(self.add(k, 1), self.n, fabs(start), self.numbers(k), self.numbers(k)) as (i, found, after):
            best, place, number = found
            number = number + 1
            size = fabs(self.get(self.line(i, k), "0"))
            better = size > best
            after += [where(better, size, best), where(better, number, place), number]
        return after[1]

    def fetch(self, k: str, place: Vec, parts: Sequence[tuple[str, str, str]]) -> None:
        """The row of each lane as row k, which is put by.

        parts: arrays, the length of their rows, and the first column that is read.
        """
        body, r = self.body, self.r
        with r.when(place.ne(self.numbers(k)).any()):
            for (area, length, first), spare in zip(parts, self.spares, strict=False):
                step = self.mul(length, LANES)
                for lane in range(LANES):
                    at = body.let(f"extractelement {type_of(place)} {place.name}, i64 {lane}")
                    r.put("i64", self.offsets, str(lane), self.add(self.mul(at, step), lane))
                own = self.row(area, self.mul(k, length))
                with self.each(first, length) as (j, _, _):
                    self.put(spare, j, self.get(own, j))
                    x, column = "poison", self.row(area, j)
                    for lane in range(LANES):
                        one = r.get("double", column, r.get("i64", self.offsets, str(lane)))
                        x = body.let(f"insertelement {KIND} {x}, double {one}, i64 {lane}")
                    self.put(own, j, self.vec(x))

    def reciprocal(self, x: Vec) -> tuple[Vec, Vec]:
        """s and 1 / (s * x), with s a power of two: y / x is nearly y * s * that."""
        size = fabs(x)
        s = where(size < 1 / _RANGE, _BY, where(size > _RANGE, 1 / _BY, self.constant(1.0)))
        return s, 1.0 / (x * s)

    def below(self, k: str, place: Vec, pivot: Vec, width: str = "0") -> None:
        """Subtract multiples of row k from all rows behind it, one of which, in each lane, becomes what was put by."""
        s, inverse = self.reciprocal(pivot)
        self.put(self.scales, k, s)
        self.put(self.inverses, k, inverse)
        after, r = self.add(k, 1), self.r
        rest = self.sub(self.n, after)
        parts = [(self.matrix, self.n, self.line(k, after), self.row(self.spares[0], after), after, rest)]
        if width != "0":
            side = self.row(self.sides, self.mul(k, width))
            parts.append((self.sides, width, side, self.spares[1], "0", width))
        with self.each(after, self.n) as (i, _, _):
            here = place.eq(self.numbers(i))
            some = here.any()
            first = self.get(self.line(i, k), "0")
            with r.when(some):
                by = where(here, self.get(self.spares[0], k), first) * s * inverse
                for area, length, source, spare, column, count in parts:
                    to = self.row(area, self.add(self.mul(i, length), column))
                    with self.each("0", count) as (j, _, _):
                        x = where(here, self.get(spare, j), self.get(to, j))
                        self.put(to, j, muladd(-by, self.get(source, j), x))
            with r.when(self.body.let(f"xor i1 {some}, true")):
                by = first * s * inverse
                for area, length, source, _, column, count in parts:
                    self.subtract(by, source, self.row(area, self.add(self.mul(i, length), column)), count)

    def upwards(self, width: str) -> None:
        """Solve for the right-hand sides, from the last row to the first."""
        with self.each("0", self.n) as (step, _, _):
            k = self.sub(self.sub(self.n, 1), step)
            s, inverse = self.get(self.scales, k), self.get(self.inverses, k)
            side = self.row(self.sides, self.mul(k, width))
            with self.each("0", width) as (c, _, _):
                self.put(side, c, self.get(side, c) * s * inverse)
            with self.each("0", k) as (i, _, _):
                by = self.get(self.line(i, k), "0")
                self.subtract(by, side, self.row(self.sides, self.mul(i, width)), width)

    def run(self, width: str) -> None:
        """Solve for `width` right-hand sides; refused where a pivot is 0."""
        with self.each("0", self.n) as (k, _, _):
            place = self.pivot(k)
            self.fetch(k, place, ((self.matrix, self.n, k), (self.sides, width, "0")))
            pivot = self.get(self.line(k, k), "0")
            self.refuse(pivot.eq(0.0))
            self.below(k, place, pivot, width)
        self.upwards(width)


def solve(r: Routine, dtype: np.dtype, wanted: Sequence[bool]) -> None:
    """For K right-hand sides."""
    columns = r.argument(K)
    w = _Elimination(r, dtype, wanted, columns)
    size, of_side = w.mul(w.n, w.n), w.mul(w.n, columns)
    with w.groups():
        w.turn_in(A, size, w.matrix)
        w.turn_in(B, of_side, w.sides)
        w.run(columns)
        w.turn_out(X, of_side, w.sides)


def inverse(r: Routine, dtype: np.dtype, wanted: Sequence[bool]) -> None:
    """The solution for the identity."""
    w = _Elimination(r, dtype, wanted, r.argument(N))
    size = w.mul(w.n, w.n)
    with w.groups():
        w.turn_in(A, size, w.matrix)
        w.identity(w.sides, w.n, w.n)
        w.run(w.n)
        w.turn_out(X, size, w.sides)


class _Determinant(_Elimination):
    """Writes the product of the pivots as sign * m * 2**e, m in [1, 2), 0, infinite or NaN."""

    def product(self) -> tuple[Vec, Vec, Vec]:
        """The sign, m and e."""
        one = self.constant(1.0)
        with self.each("0", self.n, one, one, self.constant(0.0), self.constant(0.0)) as (k, found, after):
            sign, m, e, singular = found
            place = self.pivot(k)
            self.fetch(k, place, ((self.matrix, self.n, k),))
            sign = where(place.ne(self.numbers(k)), -sign, sign)
            pivot = self.get(self.line(k, k), "0")
            self.below(k, place, pivot)
            sign = where(pivot < 0.0, -sign, sign)
            singular = where(pivot.eq(0.0), 1.0, singular)
            part, power = _split(fabs(pivot))
            after += [sign, m * part, e + power, singular]
        sign, m, e, singular = after
        m, power = _split(m)
        none = singular.ne(0.0)
        return where(none, 0.0, sign), where(none, 0.0, m), e + power


def _split(x: Vec) -> tuple[Vec, Vec]:
    """m in [1, 2) and e: m * 2**e is x, which is positive; of 0, what is infinite and NaN, x and 0."""
    small = x < 2.0**-1000
    lifted = where(small, x * 2.0**_LIFT, x)
    bits = lifted.as_int()
    field = bits >> 52
    plain = field.compare("ne", _FIELD) & field.compare("ne", 0)
    e = (field - _BIAS).convert("sitofp", "double")
    e = where(small, e - float(_LIFT), e)
    return where(plain, ((bits & _MANTISSA) | _ONE).as_float(), x), where(plain, e, 0.0)


def determinant(r: Routine, dtype: np.dtype, wanted: Sequence[bool]) -> None:
    """m * 2**e by three powers of two, each in range."""
    w = _Determinant(r, dtype, wanted)
    size, out = w.mul(w.n, w.n), w.area("1")
    with w.groups():
        w.turn_in(A, size, w.matrix)
        sign, m, e = w.product()
        x = where(sign.eq(0.0), 0.0, sign * m)
        for _ in range(3):
            part = e.intrinsic("maxnum", float(-_THIRD)).intrinsic("minnum", float(_THIRD))
            x = x * ((part.convert("fptosi", "i64") + _BIAS) << 52).as_float()
            e = e - part
        w.put(out, "0", x)
        w.turn_out(X, "1", out)


def sign_and_logarithm(r: Routine, dtype: np.dtype, wanted: Sequence[bool]) -> None:
    """log(m) + e * log(2), with m near 1."""
    w = _Determinant(r, dtype, wanted)
    size, out = w.mul(w.n, w.n), w.area("1")
    with w.groups():
        w.turn_in(A, size, w.matrix)
        sign, m, e = w.product()
        high = m > 2.0**0.5
        m, e = where(high, m * 0.5, m), where(high, e + 1.0, e)
        w.put(out, "0", sign)
        w.turn_out(X, "1", out)
        w.put(out, "0", muladd(e, w.constant(LN2), log(m)))
        w.turn_out(Y, "1", out)
