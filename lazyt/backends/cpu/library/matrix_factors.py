"""Factors of groups of matrices: `cholesky`, and `qr` by Householder's reflections.

    cholesky    for k:  l_kk = sqrt(a_kk);  l_ik = a_ik / l_kk;  a_ij -= l_ik * l_jk  for k < j <= i
    qr          for k:  H_k = 1 - tau * v * v'  takes what is below a_kk to 0;  R is what is left of A
                Q = H_0 H_1 ...  applied to the identity, the last one first

Both go as LAPACK does (`potrf` of the lower triangle; `geqrf` and `orgqr`), so signs are its signs too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cpu.library.matrix_lanes import A, K, Lanes, M, N, X, Y, muladd
from lazyt.backends.math.vector import copysign, fabs, sqrt, where

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from lazyt.backends.cpu.codegen.routine import Routine
    from lazyt.backends.math.vector import Vec


def cholesky(r: Routine, dtype: np.dtype, wanted: Sequence[bool]) -> None:
    """Refused where a pivot is not above 0."""
    w = Lanes(r, dtype, wanted)
    n = r.argument(N)
    size = w.mul(n, n)
    matrix, column = w.area(size), w.area(n)
    with w.groups():
        w.turn_in(A, size, matrix)
        with w.each("0", n) as (k, _, _):
            after = w.add(k, 1)
            pivot = w.get(matrix, w.add(w.mul(k, n), k))
            w.refuse(pivot.compare("ule", 0.0))
            root = sqrt(pivot)
            inverse = 1.0 / root
            w.put(matrix, w.add(w.mul(k, n), k), root)
            with w.each(after, n) as (i, _, _):
                row = w.mul(i, n)
                by = w.get(matrix, w.add(row, k)) * inverse
                w.put(matrix, w.add(row, k), by)
                w.put(column, i, by)
                w.subtract(by, w.row(column, after), w.row(matrix, w.add(row, after)), w.sub(i, k))
        with w.each("0", n) as (i, _, _):
            after = w.add(i, 1)
            w.fill(w.row(matrix, w.add(w.mul(i, n), after)), w.sub(n, after), 0.0)
        w.turn_out(X, size, matrix)


class Reflections:
    """Writes a factorization of a matrix in the workspace."""

    def __init__(self, w: Lanes, matrix: str, m: str, n: str, columns: str, q: str = "") -> None:
        """matrix: of m rows and n columns; q: the area of the first factor, of so many columns, if it is wanted."""
        self.w, self.matrix, self.q = w, matrix, q
        self.m, self.n, self.columns = m, n, columns
        self.least = w.min(self.m, self.n)
        self.factors = w.area(self.least)
        self.sums = w.area(w.max(n, columns))

    def at(self, i: str, j: str) -> str:
        return self.w.row(self.matrix, self.w.add(self.w.mul(i, self.n), j))

    def reduce(self) -> None:
        """A becomes R, with the vectors of the reflections below its diagonal."""
        w = self.w
        with w.each("0", self.least) as (k, _, _):
            after = w.add(k, 1)
            alpha = w.get(self.at(k, k), "0")
            with w.each(after, self.m, w.constant(0.0)) as (i, found, following):
                following.append(_largest(found[0], fabs(w.get(self.at(i, k), "0"))))
            none = following[0].eq(0.0)
            most = _largest(following[0], fabs(alpha))
            # What is squared is scaled, so that neither large numbers nor small ones leave the range.
            scale = w.scale_of(most)
            with w.each(after, self.m, w.constant(0.0)) as (i, found, following):
                x = w.get(self.at(i, k), "0") * scale
                following.append(muladd(x, x, found[0]))
            rest, head = following[0], alpha * scale
            beta = -copysign(sqrt(muladd(head, head, rest)), head)
            by = where(none, 0.0, 1.0 / (head - beta))
            w.put(self.factors, k, where(none, 0.0, (beta - head) / beta))
            length = where(most.eq(float("inf")), -copysign(most, alpha), beta * (1.0 / scale))
            w.put(self.at(k, k), "0", where(none, alpha, length))
            with w.each(after, self.m) as (i, _, _):
                at = self.at(i, k)
                w.put(at, "0", w.get(at, "0") * scale * by)
            self.reflect(k, self.matrix, self.n, after)

    def reflect(self, k: str, area: str, length: str, first: str) -> None:
        """Apply a reflection to columns of an array from `first` on."""
        w = self.w
        after, count = w.add(k, 1), w.sub(length, first)
        head = w.row(area, w.add(w.mul(k, length), first))
        w.copy(head, self.sums, count)
        with w.each(after, self.m) as (i, _, _):
            w.accumulate(w.get(self.at(i, k), "0"), w.row(area, w.add(w.mul(i, length), first)), self.sums, count)
        factor = w.get(self.factors, k)
        # What is nothing but 1 is not applied, as in LAPACK: infinities stay infinities.
        none = factor.eq(0.0)
        with w.each("0", count) as (j, _, _):
            total = where(none, 0.0, w.get(self.sums, j) * factor)
            w.put(self.sums, j, total)
            w.put(head, j, w.get(head, j) - total)
        with w.each(after, self.m) as (i, _, _):
            w.subtract(w.get(self.at(i, k), "0"), self.sums, w.row(area, w.add(w.mul(i, length), first)), count)

    def form(self) -> None:
        """The first factor."""
        w = self.w
        w.identity(self.q, self.m, self.columns)
        with w.each("0", self.least) as (step, _, _):
            k = w.sub(w.sub(self.least, 1), step)
            self.reflect(k, self.q, self.columns, k)

    def clear(self) -> None:
        """Zeros below the diagonal of R."""
        w = self.w
        with w.each("0", self.m) as (i, _, _):
            w.fill(self.at(i, "0"), w.min(i, self.n), 0.0)


def _largest(a: Vec, b: Vec) -> Vec:
    """The greater one; NaN where one is NaN."""
    return where(a.compare("uno", a), a, where(b.compare("ugt", a), b, a))


def qr(r: Routine, dtype: np.dtype, wanted: Sequence[bool]) -> None:
    """Q of K columns, and as many rows of R."""
    w = Lanes(r, dtype, wanted)
    m, n, k = (r.argument(slot) for slot in (M, N, K))
    size, of_q = w.mul(m, n), w.mul(m, k)
    matrix = w.area(size)
    q = w.area(of_q) if wanted[0] else ""
    reflections = Reflections(w, matrix, m, n, k, q)
    with w.groups():
        w.turn_in(A, size, matrix)
        reflections.reduce()
        if q:
            reflections.form()
            w.turn_out(X, of_q, q)
        if wanted[1]:
            reflections.clear()
            of_r = w.mul(k, n)
            w.turn_out(Y, of_r, matrix)
