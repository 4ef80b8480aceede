"""Launches of depthwise convolutions: the arguments of the functions in depthwise_ir.py."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lazyt.backends.cpu.library.depthwise_ir import PLANE_AT, PLANE_SIZE, Window, depthwise_text
from lazyt.backends.cpu.library.gemm_tile import AT, KC, SCRATCH
from lazyt.backends.cpu.library.products import PRODUCT_GRAIN, Choice, Product, code_of, epilogue_alone, fill, tile_for
from lazyt.backends.cpu.thread_pool import get_num_threads
from lazyt.ir import graph as g
from lazyt.ir.passes.phases import is_depthwise

if TYPE_CHECKING:
    from lazyt.backends.common.products import Patches, Value
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import MatmulCall

# Bytes of a copied plane that stay in the first-level cache beside what is read and written.
NEAR = 1 << 14
# Bytes of a finished part of the result: of several planes where they are small.
PART = 1 << 15


def takes(n: Node) -> bool:
    """Whether a convolution is computed here: one channel and one feature a group."""
    a = n.attrs
    assert isinstance(a, g.Convolution)
    filters = (n.shape[-1], n.shape[0]) if n.op == "convolve_filter" else n.operands[1].shape
    return is_depthwise(a, filters)


def _window(n: Node) -> Window:
    a = n.attrs
    assert isinstance(a, g.Convolution)
    sizes, strides, dilations, padding = ((v[0], v[1]) for v in (a.sizes, a.strides, a.dilations, a.padding))
    return Window(sizes, strides, dilations, padding, n.op == "convolve_image")


def choose_depthwise(c: MatmulCall, value: Value) -> Choice:
    """How a depthwise convolution is computed: by generated code."""
    n = c.node
    tile = tile_for(n.dtype)
    assert tile is not None, f"no convolution of {n.dtype}"
    window = math.prod(_window(n).sizes)
    if n.op == "convolve_filter":
        y = n.operands[1]
        places = math.prod(value(d) for d in y.shape[2:])
        return Choice("generated", value(y.shape[1]), window, places, value(y.shape[0]), 0, 0, tile=tile)
    height, width = (value(d) for d in n.shape[2:])
    fits = width * _window(n).phases[0] * n.dtype.itemsize <= SCRATCH
    on_stack = epilogue_alone(c) and fits
    return Choice(
        "generated", value(n.shape[1]), height * width, window, value(n.shape[0]), 0, 0, on_stack, tile=tile
    )  # fmt: skip


class Depthwise(Product):
    """One depthwise convolution of a bound plan."""

    @property
    def extra(self) -> dict[str, int]:
        return {}

    @property
    def kept(self) -> None:
        return None

    @property
    def modules(self) -> list[tuple[str, str]]:
        n = self.call.node
        return [depthwise_text(n.dtype, self.tile, _window(n), n.op == "convolve_filter")]

    @property
    def workspace(self) -> int:
        return 2 * SCRATCH

    def rows(self, rows: list[list[int]], table: list[int], patches: Patches) -> None:
        b, c, ch = self.bound, self.call, self.choice
        n, tile, size = c.node, self.tile, c.node.dtype.itemsize
        window, by_filter = _window(n), n.op == "convolve_filter"
        x, y = n.operands[0], n.operands[1] if by_filter else n
        x_height, x_width = (b.value(d) for d in x.shape[2:])
        height, width = (b.value(d) for d in y.shape[2:])
        (py, px), (by, bx) = window.phases, window.read_by
        high, wide = -(-height // py), -(-width // px)
        far_y, far_x = window.farthest
        reach = max(-(-wide // tile.lanes) * tile.lanes + far_x, -(-(x_width + window.frame[1]) // bx))
        column = reach + 2 * tile.lanes
        line = column * bx
        unit = self._unit_rows(high, max(-(-wide // tile.lanes), 1), line * by * size, far_y * line * size)
        unit = max(min(unit, SCRATCH // max(py * width * size, 1)), 1)
        part = max(unit * py * width, 1)
        channels = 1 if by_filter else self._unit_channels(part * size)
        blocks, col_blocks = max(-(-high // unit), 1), max(-(-ch.m // channels), 1)
        values = {
            "m": ch.m, "n": ch.n, "k": ch.k, "c_row": height * width, "unit_rows": unit, "unit_cols": part,
            "row_blocks": blocks, "col_blocks": col_blocks, "scratch": int(ch.on_stack), "height": height,
            "width": width, "high": high, "wide": wide, "x_height": x_height, "x_width": x_width, "line": line,
            "column": column, "area": ((unit - 1) * by + far_y + 1) * line + 2 * tile.lanes, "part_at": SCRATCH,
            "images": ch.count, "channels": ch.m, "unit_channels": channels,
        }  # fmt: skip
        at = len(table)
        table.extend(fill(PLANE_SIZE, AT | PLANE_AT, values))
        for name, (base, _, offset) in zip("BA", c.operands, strict=True):
            b._address(base, offset, size, at + AT[name], patches)
        if not ch.on_stack:
            b._address(n, 0, size, at + AT["C"], patches)
        patches.append((at + AT["workspace"], b.arena_base, b.workspace_at))
        if by_filter:
            grain = max(PRODUCT_GRAIN // max(16 * ch.count * ch.k, 1), 1)
            rows.append([code_of(*self.modules[0]), at, ch.m, grain, 0])
            return
        units = blocks * col_blocks * ch.count if ch.m and height and width else 0
        grain = max(PRODUCT_GRAIN // (16 * channels * part), 1)
        self._launch(self.modules[0], at, units, grain, rows, table, patches)

    def _unit_rows(self, high: int, vectors: int, line: int, more: int) -> int:
        """Rows of a unit: of a copied plane in a cache; of 'filter' no more than a block of a sum has.

        NOTE: not by threads, for the sums of 'filter' are over these rows.
        """
        most = max((NEAR - more) // line, NEAR // (2 * line), 1)
        most = min(most, max((SCRATCH - more) // line - 1, 1))
        if self.call.node.op == "convolve_filter":
            most = min(most, max(KC // vectors, 1))
        return max(min(-(-high // -(-high // most)) if high else 1, most), 1)

    def _unit_channels(self, part: int) -> int:
        """Planes of a unit: small ones together, and enough units to share."""
        ch = self.choice
        wanted = -(-8 * get_num_threads() // max(ch.count, 1))
        together = max(min(PART // part, SCRATCH // part), 1)
        return max(min(together, -(-ch.m // wanted)), 1)
