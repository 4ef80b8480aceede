"""Launches of convolutions: the arguments and tables of the native functions in conv_ir.py."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.cpu.library.conv_ir import CONV_AT, CONV_SIZE, convolution_text
from lazyt.backends.cpu.library.gemm_pack import pack_text
from lazyt.backends.cpu.library.gemm_tile import AT, MAX_ARGUMENTS, SCRATCH, Tile
from lazyt.backends.cpu.library.products import PRODUCT_GRAIN, Choice, Product, code_of, tile_for
from lazyt.backends.cpu.thread_pool import get_num_threads
from lazyt.ir import graph as g

if TYPE_CHECKING:
    from lazyt.backends.common.products import Patches, Value
    from lazyt.ir.passes.schedule import MatmulCall


def choose_convolution(c: MatmulCall, value: Value) -> Choice:
    """How a convolution is computed: by generated code."""
    n, (x, w) = c.node, c.node.operands
    a = n.attrs
    assert isinstance(a, g.Convolution)
    depth = value(x.shape[1]) * math.prod(a.sizes)
    tile = tile_for(n.dtype)
    assert tile is not None, f"no convolution of {n.dtype}"
    if n.op == "convolve":
        places = [value(d) for d in n.shape[2:]]
        m, area = value(n.shape[1]), math.prod(places)
        fits = m * places[-1] * n.dtype.itemsize <= SCRATCH
        on_stack = c.epilogue is not None and not c.kept and c.epilogue.kernel.layout.size <= MAX_ARGUMENTS and fits
        return Choice("generated", m, area, depth, value(x.shape[0]), 0, 0, on_stack, tile=tile)
    features = value(w.shape[1])
    vectors = min(max(-(-features // tile.lanes), 1), tile.vectors)
    narrow: Tile = dataclasses.replace(tile, vectors=vectors)
    area = math.prod(value(d) for d in w.shape[2:])
    return Choice("generated", depth, features, area, value(x.shape[0]), 0, 0, tile=narrow, pack_b="across")


class Convolution(Product):
    """One convolution of a bound plan."""

    @property
    def extra(self) -> dict[str, int]:
        if self.call.node.op == "convolve":
            return {}
        ch = self.choice
        assert ch.tile is not None
        return {"B": self._panel() * -(-ch.n // ch.tile.columns) * ch.count * self.call.node.dtype.itemsize}

    @property
    def modules(self) -> list[tuple[str, str]]:
        node, tile = self.call.node, self.choice.tile
        assert tile is not None
        if node.op == "convolve":
            return [convolution_text(node.dtype, tile, "convolve")]
        return [convolution_text(node.dtype, tile, "filter"), pack_text(node.dtype, tile, "across")]

    @property
    def workspace(self) -> int:
        return SCRATCH if self.choice.on_stack else 0

    def rows(self, rows: list[list[int]], table: list[int], patches: Patches) -> None:
        (self._convolve if self.call.node.op == "convolve" else self._filter)(rows, table, patches)

    def _tables(self) -> tuple[list[int], list[int], int]:
        """Element offsets in x of every (c, k..), and of every place; from row to row of x."""
        b, n = self.bound, self.call.node
        a, x = n.attrs, n.operands[0]
        assert isinstance(a, g.Convolution)
        channels, *extents = (b.value(d) for d in x.shape[1:])
        steps = [math.prod(extents[i + 1 :]) for i in range(len(extents))]

        def grid(sizes: list[int], by: list[int]) -> np.ndarray:
            out = np.zeros(1, np.int64)
            for size, step in zip(sizes, by, strict=True):
                out = (out[:, None] + np.arange(size, dtype=np.int64) * step).reshape(-1)
            return out

        dilated = [s * e for s, e in zip(steps, a.dilations, strict=True)]
        depth = grid([channels, *a.sizes], [math.prod(extents), *dilated])
        counts = [d - (k - 1) * e for d, k, e in zip(extents, a.sizes, a.dilations, strict=True)]
        places = grid(counts, steps)
        return depth.tolist(), places.tolist(), steps[-2] if len(steps) > 1 else 0

    def _begin(self, values: dict[str, int], table: list[int], patches: Patches) -> int:
        """Append the arguments; where they begin. The addresses: x is operand 0."""
        b, c = self.bound, self.call
        at = len(table)
        args = [0] * CONV_SIZE
        for name, v in values.items():
            args[AT[name] if name in AT else CONV_AT[name]] = v
        table.extend(args)
        names = "BA" if c.node.op == "convolve" else "A"
        for name, (base, _, offset) in zip(names, c.operands, strict=False):
            b._address(base, offset, c.node.dtype.itemsize, at + AT[name], patches)
        if not self.choice.on_stack:
            b._address(c.node, 0, c.node.dtype.itemsize, at + AT["C"], patches)
        patches.append((at + AT["workspace"], b.arena_base, b.workspace_at))
        return at

    def _convolve(self, rows: list[list[int]], table: list[int], patches: Patches) -> None:
        b, c, ch = self.bound, self.call, self.choice
        x, node = c.node.operands[0], c.node
        tile = ch.tile
        assert tile is not None
        offsets, _, pitch = self._tables()
        *heights, width = (b.value(d) for d in node.shape[2:])
        height = heights[-1] if heights else 1
        unit = self._unit_rows(height, width)
        blocks = max(-(-height // unit), 1)
        at = self._begin(
            {
                "m": ch.m, "n": ch.n, "k": ch.k, "a_row": ch.k, "b_row": pitch, "c_row": ch.n, "unit_rows": unit,
                "unit_cols": unit * width, "row_blocks": blocks, "c_batch": ch.m * ch.n, "scratch": int(ch.on_stack),
                "height": height, "width": width, "x_batch": math.prod(b.value(d) for d in x.shape[1:]),
            },
            table, patches,
        )  # fmt: skip
        table[at + CONV_AT["offsets"]] = len(table) - at
        table.extend(offsets)
        own = c.epilogue is None or self._epilogue(at, table, patches)
        units = blocks * ch.count if ch.m and ch.n else 0
        grain = max(PRODUCT_GRAIN // max(ch.m * unit * width * ch.k, 1), 1)
        rows.append([code_of(*convolution_text(node.dtype, tile, "convolve")), at, units, grain, 0])
        if not own:
            assert c.epilogue is not None
            b._kernel(c.epilogue, rows, table, patches, False)

    def _unit_rows(self, height: int, width: int) -> int:
        """Rows of the result in a unit: a part that stays in the cache, and enough units to share."""
        ch = self.choice
        line = max(ch.m * width, 1)
        most = max(SCRATCH // self.call.node.dtype.itemsize // line, 1)
        wanted = -(-4 * get_num_threads() // max(ch.count, 1))
        worth = max(PRODUCT_GRAIN // max(line * ch.k, 1), 1)
        return max(min(most, max(-(-height // wanted), worth), height), 1)

    def _filter(self, rows: list[list[int]], table: list[int], patches: Patches) -> None:
        b, c, ch = self.bound, self.call, self.choice
        x = c.node.operands[0]
        tile = ch.tile
        assert tile is not None
        offsets, places, _ = self._tables()
        panels = -(-ch.n // tile.columns)
        whole = panels * self._panel()
        head = {"rows": ch.k, "cols": ch.n, "row_step": ch.k, "to_unit": self._panel(), "to_row": tile.columns}
        base, _, offset = c.operands[1]
        self._pack_from(
            (base, offset), "across", head, panels, whole, "B", [(ch.count, ch.n * ch.k)], rows, table, patches
        )
        tall = tile.rows[0]
        threads = get_num_threads()
        unit = max(-(-ch.m // (2 * threads) // tall) * tall, tall)
        blocks = -(-ch.m // unit)
        empty = not ch.count
        at = self._begin(
            {
                "m": ch.m, "n": ch.n, "k": 0 if empty else ch.k, "b_panel": self._panel(), "c_row": ch.n,
                "unit_rows": unit, "x_batch": math.prod(b.value(d) for d in x.shape[1:]), "y_batch": whole,
                "images": max(ch.count, 1),
            },
            table, patches,
        )  # fmt: skip
        patches.append((at + AT["B"], b.arena_base, b.offsets[c, "B"]))
        for name, entries in (("offsets", offsets), ("places", places)):
            table[at + CONV_AT[name]] = len(table) - at
            table.extend(entries)
        units = blocks if ch.m and ch.n else 0
        rows.append([code_of(*convolution_text(c.node.dtype, tile, "filter")), at, units, 1, 0])
