"""Products of few rows by a matrix that is stored transposed: dot products by gemv_ir.py, and when."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from lazyt.backends.cpu.library.gemm_tile import AT, FINISHED, HEAD, SIZE
from lazyt.backends.cpu.library.gemv_ir import LANES_SIZE, gemv_text, together
from lazyt.backends.cpu.library.products import Choice, Product, epilogue_alone, fill
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from lazyt.backends.common.products import Patches
    from lazyt.ir.passes.schedule import MatmulCall

# Rows of A, at most, and lengths of several, at least: more rows are worth packing B for, and so are some that have no
# whole vectors. The same everywhere: whether a product is computed so decides on the order of its sums.
MOST_ROWS = 8
SHORTEST = 2 * LANES_SIZE  # bytes
# Elements of B that a unit reads, and units that a thread takes at least.
UNIT = 1 << 15
GRAIN = 2


def preferred(c: MatmulCall, choice: Choice) -> Choice:
    """The choice of dot products where they are faster than what was chosen; else that."""
    dtype = c.node.dtype
    if choice.tile is None or choice.form != "row" or choice.pack_a or choice.pack_b != "across":
        return choice
    if dtypes.kind(dtype) != "f":
        return choice
    if choice.sources != (None, None) or choice.m > MOST_ROWS or choice.k < 1:
        return choice
    if choice.m > 1 and choice.k * dtype.itemsize < SHORTEST:
        return choice
    chosen: Choice = dataclasses.replace(choice, how="generated", on_stack=epilogue_alone(c), by_dots=True)
    return chosen


class Gemv(Product):
    """One such product of a bound plan."""

    @property
    def extra(self) -> dict[str, int]:
        return {}

    @property
    def kept(self) -> None:
        return None

    @property
    def workspace(self) -> int:
        return FINISHED if self.choice.on_stack else 0

    @property
    def modules(self) -> list[tuple[str, str]]:
        return [gemv_text(self.call.node.dtype, self.tile)]

    def rows(self, rows: list[list[int]], table: list[int], patches: Patches) -> None:
        b, c, ch = self.bound, self.call, self.choice
        dtype = c.node.dtype
        batch = [b.value(d) for d in c.node.operands[0].shape[:-2]]
        cols = self._unit_columns()
        blocks = -(-ch.n // cols)
        values = {
            "m": ch.m, "n": ch.n, "k": ch.k, "a_row": ch.leading[0][1], "b_row": ch.leading[1][1], "c_row": ch.n,
            "unit_cols": cols, "col_blocks": max(blocks, 1), "c_batch": ch.m * ch.n, "batch": len(batch),
            "scratch": int(ch.on_stack),
        }  # fmt: skip
        args = fill(SIZE, AT, values)
        for i, (e, *steps) in enumerate(zip(batch, self._strides(0), self._strides(1), strict=True)):
            args[HEAD + 3 * i : HEAD + 3 * i + 3] = [e, *steps]
        at = len(table)
        table.extend(args)
        for name, (base, _, offset) in zip("AB", c.operands, strict=True):
            b._address(base, offset, dtype.itemsize, at + AT[name], patches)
        if not ch.on_stack:
            b._address(c.node, 0, dtype.itemsize, at + AT["C"], patches)
        patches.append((at + AT["workspace"], b.arena_base, b.workspace_at))
        units = blocks * ch.count if ch.m else 0
        self._launch(self.modules[0], at, units, GRAIN, rows, table, patches)

    def _unit_columns(self) -> int:
        """Columns of a unit: not by threads, and few enough for the part of the result to fit the working memory."""
        ch, dtype = self.choice, self.call.node.dtype
        step = together(self.tile, dtype)
        most = FINISHED // (max(ch.m, 1) * dtype.itemsize) if ch.on_stack else ch.n
        cols = min(UNIT // max(ch.k, 1), most, ch.n) // step * step
        return max(cols, step)
