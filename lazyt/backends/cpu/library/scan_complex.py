"""Running products of complex numbers: one element after another, in complex128, as NumPy multiplies them.

Such a product waits for the one before it, eight cycles an element, so there is nothing to gain from blocks. `row` is
for the innermost axis, a unit a row; `columns` for other axes: a unit goes down some neighbours, in registers of
NARROW of them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.routine import Routine, Routines
from lazyt.backends.cpu.codegen.text import body_of, mem_type, type_of, vector
from lazyt.backends.math.vector import Vec

if TYPE_CHECKING:
    import numpy as np

# Arguments.
X, Y, LENGTH, INNER, WIDTH = range(5)
SIZE = WIDTH + 1
# Neighbours that a unit of `columns` goes down together, at most (a row of them is a page to look up) and at least.
COLUMNS = 128
NARROW = 8

# Real and imaginary parts.
Complex = tuple[Vec, Vec]


@lru_cache(maxsize=4)
def routines(dtype: np.dtype, innermost: bool) -> Routines:
    """The machine code for complex numbers whose parts have this dtype, along the innermost axis or another."""
    w = _Writer(mem_type(dtype))
    return Routines({"row": w.row} if innermost else {"columns": w.columns})


def _times(a: Complex, b: Complex) -> Complex:
    """Each operation rounds: NumPy's product, also of infinities."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


class _Writer:
    """The text of the routines for parts of one element type."""

    def __init__(self, element: str) -> None:
        self.element = element

    def _wide(self, x: Vec) -> Vec:
        return x if self.element == "double" else x.convert("fpext", "double")

    def _near(self, x: Vec) -> Vec:
        return x if self.element == "double" else x.convert("fptrunc", self.element)

    # Along the innermost axis

    def row(self, r: Routine) -> None:
        body, n = r.body, r.argument(LENGTH)
        with r.loop("%begin", "%end") as unit:
            start = body.let(f"mul i64 {unit.index}, {body.let(f'shl i64 {n}, 1')}")
            x, y = (r.at(self.element, r.argument(a, "ptr"), start) for a in (X, Y))
            before = self._one(r, x, "0")
            self._put_one(r, y, "0", before)
            with r.loop("1", n, 1, [("double", p.name) for p in before]) as i:
                re, im = (Vec(body, c, "double", 0) for c in i.carried)
                product = _times((re, im), self._one(r, x, i.index))
                self._put_one(r, y, i.index, product)
                i.next = [p.name for p in product]

    def _one(self, r: Routine, base: str, index: str) -> Complex:
        at = r.body.let(f"shl i64 {index}, 1")
        re, im = (r.get(self.element, base, a) for a in (at, r.body.let(f"or i64 {at}, 1")))
        return self._wide(Vec(r.body, re, self.element, 0)), self._wide(Vec(r.body, im, self.element, 0))

    def _put_one(self, r: Routine, base: str, index: str, z: Complex) -> None:
        at = r.body.let(f"shl i64 {index}, 1")
        for a, part in zip((at, r.body.let(f"or i64 {at}, 1")), z, strict=True):
            r.put(self.element, base, a, self._near(part).name)

    # Along other axes

    def columns(self, r: Routine) -> None:
        body, inner, n, width = r.body, r.argument(INNER), r.argument(LENGTH), r.argument(WIDTH)
        above = body.let(f"add i64 {inner}, {body.let(f'sub i64 {width}, 1')}")
        parts = body.let(f"udiv i64 {above}, {width}")
        slots = r.slot(vector("double", NARROW), COLUMNS // NARROW * 2)
        with r.loop("%begin", "%end") as unit:
            row, part = (body.let(f"{op} i64 {unit.index}, {parts}") for op in ("udiv", "urem"))
            column = body.let(f"mul i64 {part}, {width}")
            start = body.let(f"mul i64 {body.let(f'mul i64 {row}, {n}')}, {inner}")
            first = body.let(f"add i64 {start}, {column}")
            left = body.let(f"sub i64 {inner}, {column}")
            wide = body.call("i64", "llvm.smin.i64", ("i64", left), ("i64", width))
            strips = body.let(f"udiv i64 {body.let(f'add i64 {wide}, {NARROW - 1}')}, {NARROW}")
            with r.loop("0", strips) as s:
                self._strip(r, slots, s.index, first, wide, first=True)
            with r.loop("1", n) as i:
                at = body.let(f"add i64 {first}, {body.let(f'mul i64 {i.index}, {inner}')}")
                with r.loop("0", strips) as s:
                    self._strip(r, slots, s.index, at, wide, first=False)

    def _strip(self, r: Routine, slots: str, strip: str, row: str, wide: str, first: bool) -> None:
        """NARROW neighbours of a row, whose products so far are in two slots."""
        body, kind, lanes = r.body, vector("double", NARROW), 2 * NARROW
        column = body.let(f"mul i64 {strip}, {NARROW}")
        mask = r.lanes(body.let(f"shl i64 {body.let(f'sub i64 {wide}, {column}')}, 1"), lanes)
        at = body.let(f"shl i64 {body.let(f'add i64 {row}, {column}')}, 1")
        both = self._wide(r.load(self.element, r.at(self.element, r.argument(X, "ptr"), at), mask, lanes=lanes))
        own = body.let(f"getelementptr [2 x {kind}], ptr {slots}, i64 {strip}")
        places = [body.let(f"getelementptr {kind}, ptr {own}, i64 {k}") for k in (0, 1)]
        z = tuple(self._picked(both, both, range(k, lanes, 2)) for k in (0, 1))
        if not first:
            re, im = (Vec(body, body.let(f"load {kind}, ptr {p}, align 64"), "double", NARROW) for p in places)
            z = _times((re, im), (z[0], z[1]))
        for p, part in zip(places, z, strict=True):
            body.line(f"store {kind} {part.name}, ptr {p}, align 64")
        woven = self._picked(z[0], z[1], [i // 2 + NARROW * (i % 2) for i in range(lanes)])
        r.store(self._near(woven), r.at(self.element, r.argument(Y, "ptr"), at), mask)

    def _picked(self, a: Vec, b: Vec, lanes: range | list[int]) -> Vec:
        """Lanes of two registers."""
        order = ", ".join(f"i32 {i}" for i in lanes)
        text = f"shufflevector {type_of(a)} {a.name}, {type_of(b)} {b.name}, <{len(lanes)} x i32> <{order}>"
        return Vec(a.body, body_of(a).let(text), a.element, len(lanes))
