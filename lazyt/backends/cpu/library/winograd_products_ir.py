"""The products within Winograd's convolutions: loops over the micro-kernels of usual products."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lazyt.backends.cpu.library.gemm_micro import Micro, tables
from lazyt.backends.cpu.library.winograd_ir import DTYPE

if TYPE_CHECKING:
    from lazyt.backends.cpu.library.gemm_tile import Tile
    from lazyt.backends.cpu.library.winograd_ir import Writer


class Matrix(NamedTuple):
    """An operand or a result: its first element, and the stride that a micro-kernel is told (see gemm_micro.py)."""

    at: str
    stride: str


def multiply(
    u: Writer, tile: Tile, sizes: tuple[str, str, str], a: Matrix, step: str, b: Matrix, c: Matrix, add: str
) -> None:
    """c = a @ b, or c + a @ b where the i1 `add` holds.

    sizes: rows, columns, and the length of a sum; step: elements from a row of `a` to the next.
    Columns are whole vectors in memory.
    """
    f, (rows, columns, depth) = u.f, sizes
    with f.loop("0", columns, str(tile.columns)) as wide:
        left = f.smin(u.sub(columns, wide.index), str(tile.columns))
        family = f.let(f"udiv i64 {u.sub(left, '1')}, {tile.lanes}")
        table = u.mul(family, str(tile.tallest + 1))
        own = u.at(b.at, wide.index)
        with f.loop("0", rows, "1") as row:
            which = u.add(table, f.smin(u.sub(rows, row.index), str(tile.tallest)))
            micro = f.load("ptr", f.at("ptr", "@micros", which))
            row.step = f.load("i64", f.at("i64", "@heights", which))
            of = u.at(a.at, u.mul(row.index, step))
            to = u.at(u.at(c.at, u.mul(row.index, c.stride)), wide.index)
            f.line(
                f"call void {micro}(i64 {depth}, ptr {of}, i64 {a.stride}, ptr {own}, i64 {b.stride}, ptr {to}, "
                f"i64 {c.stride}, i1 {add}, i64 0)"
            )


def micros(tile: Tile, form: str) -> tuple[list[str], frozenset[str]]:
    """The micro-kernels, with tables of them by vectors and by rows that are left; and what they declare."""
    widths = tuple(range(1, tile.vectors + 1))
    found, constants = tables(tile, widths, lambda rows, vectors: Micro(DTYPE, tile, form, rows, vectors, False))
    texts = [m.text() for m in found]
    declared = frozenset(line for m in found for line in m.f.body.module.text().splitlines())
    return [*constants, *texts], declared
