"""Launches of convolutions whose result is in phases: the arguments and tables of the functions in phases_ir.py."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lazyt.backends.cpu.library.conv_geometry import two
from lazyt.backends.cpu.library.gemm_tile import AT, SCRATCH
from lazyt.backends.cpu.library.phases_ir import (
    PACKED_AT,
    PACKED_FIELDS,
    PHASE_AT,
    PHASE_SIZE,
    RECORD,
    packed_filters_text,
    phases_text,
    tile_of_phases,
)
from lazyt.backends.cpu.library.products import PRODUCT_GRAIN, Choice, Product, code_of, epilogue_alone, fill, tile_for
from lazyt.ir import graph as g
from lazyt.ir.passes.phases import in_phases
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    from lazyt.backends.common.products import Patches, Value
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import MatmulCall


@dataclass(frozen=True)
class Phase:
    """The sum of one phase: for each of its steps, the offset in x and the offset in the filters of its first row."""

    image: list[int]
    filters: list[int]


@dataclass(frozen=True)
class Places:
    """A convolution in phases at given sizes; one along one axis has images of one row."""

    channels: int  # rows of a product: channels of the result, of one group
    features: int  # channels of x, of one group
    extents: tuple[int, int]  # of the result
    x_extents: tuple[int, int]
    sizes: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    padding: tuple[int, int]
    images: int
    groups: int
    transposed: bool

    @property
    def high(self) -> int:
        """Rows of a phase."""
        return -(-self.extents[0] // self.strides[0])

    @property
    def steps(self) -> int:
        """Of the sums of all phases together."""
        return self.features * math.prod(self.sizes)

    @property
    def row_step(self) -> int:
        """From row to row of the filters."""
        return math.prod(self.sizes) * (1 if self.transposed else self.features)

    def _along(self, axis: int, phase: int) -> list[tuple[int, int]]:
        """Which elements of a window such places of the result meet, and how far from the place in x."""
        k, e, s, p = self.sizes[axis], self.dilations[axis], self.strides[axis], self.padding[axis]
        if not self.transposed:
            return [(i, i * e) for i in range(k)]
        return [(i, (phase + p - i * e) // s) for i in range(k) if (phase + p - i * e) % s == 0]

    def phases(self) -> list[Phase]:
        """The phases, row by row."""
        plane, pitch = math.prod(self.x_extents), self.x_extents[1]
        window = math.prod(self.sizes)
        to_feature = window * (self.channels if self.transposed else 1)
        found = []
        for ry in range(self.strides[0]):
            for rx in range(self.strides[1]):
                taps = [
                    (dy * pitch + dx, ky * self.sizes[1] + kx)
                    for ky, dy in self._along(0, ry)
                    for kx, dx in self._along(1, rx)
                ]
                features = range(self.features)
                image = [o * plane + at for o in features for at, _ in taps]
                found.append(Phase(image, [o * to_feature + at for o in features for _, at in taps]))
        return found


def takes(n: Node) -> bool:
    """Whether a convolution is computed here: a transposed one, or one in groups (not depthwise) with stride 1."""
    return in_phases(n)


def places_of(n: Node, value: Value) -> Places:
    """The sizes of a transposed convolution, or of one in groups with stride 1."""
    a, (x, _) = n.attrs, n.operands
    assert isinstance(a, g.Convolution)
    transposed = n.op == "convolve_image"
    extents, x_extents = (two(tuple(value(d) for d in v.shape[2:]), 1) for v in (n, x))
    return Places(
        value(n.shape[1]) // a.groups, value(x.shape[1]) // a.groups, extents, x_extents, two(a.sizes, 1),
        two(a.strides, 1), two(a.dilations, 1), two(a.padding, 0), value(n.shape[0]), a.groups, transposed,
    )  # fmt: skip


def choose_phases(c: MatmulCall, value: Value) -> Choice:
    """How a convolution in phases is computed: by generated code."""
    p = places_of(c.node, value)
    tile = tile_for(c.node.dtype)
    assert tile is not None, f"no convolution of {c.node.dtype}"
    row = p.channels * p.extents[1] * p.strides[0] * c.node.dtype.itemsize
    on_stack = epilogue_alone(c) and row <= SCRATCH
    depth = -(-p.steps // math.prod(p.strides))
    return Choice(
        "generated", p.channels, math.prod(p.extents), depth, p.images * p.groups, 0, 0, on_stack,
        tile=tile_of_phases(tile, c.node.dtype, p.strides[1]),
    )  # fmt: skip


class PhasedConvolution(Product):
    """One convolution in phases of a bound plan."""

    @property
    def extra(self) -> dict[str, int]:
        p = places_of(self.call.node, self.bound.value)
        return {"A": p.groups * self._of_group(p) * self.call.node.dtype.itemsize}

    @property
    def kept(self) -> None:
        return None

    @property
    def modules(self) -> list[tuple[str, str]]:
        a, tile, dtype = self.call.node.attrs, self.tile, self.call.node.dtype
        assert isinstance(a, g.Convolution)
        sy, sx = (1, *a.strides)[-2:]
        return [phases_text(dtype, tile, (sy, sx)), packed_filters_text(dtype, tile, sy * sx)]

    @property
    def workspace(self) -> int:
        return SCRATCH if self.choice.on_stack else 0

    def _of_group(self, p: Places) -> int:
        """Elements of the packed filters of a group."""
        high = self.tile.rows[0]
        return -(-p.channels // high) * high * p.steps

    def rows(self, rows: list[list[int]], table: list[int], patches: Patches) -> None:
        b, c, ch = self.bound, self.call, self.choice
        p = places_of(c.node, b.value)
        phases = p.phases()
        self._pack_filters(p, phases, rows, table, patches)
        (height, width), size = p.extents, c.node.dtype.itemsize
        unit = self._unit_height(p.high, ch.m * width * p.strides[0])
        blocks = max(-(-p.high // unit), 1)
        image = p.features * math.prod(p.x_extents)
        farthest = max((d for phase in phases for d in phase.image), default=0)
        at = len(table)
        values = {
            "m": ch.m, "n": ch.n, "k": ch.k, "c_row": ch.n, "unit_rows": unit, "row_blocks": blocks,
            "unit_cols": unit * p.strides[0] * width, "c_batch": ch.m * ch.n, "scratch": int(ch.on_stack),
            "height": height, "width": width, "high": p.high, "pitch": p.x_extents[1], "groups": p.groups,
            "x_batch": image, "a_group": self._of_group(p), "within": ch.count * image - farthest - self.tile.lanes + 1,
            "phases": PHASE_SIZE,
        }  # fmt: skip
        table.extend(fill(PHASE_SIZE, AT | PHASE_AT, values))
        self._records(PHASE_SIZE, [phase.image for phase in phases], table)
        base, _, offset = c.operands[0]
        b._address(base, offset, size, at + AT["B"], patches)
        if not ch.on_stack:
            b._address(c.node, 0, size, at + AT["C"], patches)
        patches.append((at + AT["A"], b.arena_base, b.offsets[c, "A"]))
        patches.append((at + AT["workspace"], b.arena_base, b.workspace_at))
        units = blocks * ch.count if ch.m and ch.n else 0
        grain = max(PRODUCT_GRAIN // max(ch.m * unit * width * p.strides[0] * ch.k, 1), 1)
        self._launch(self.modules[0], at, units, grain, rows, table, patches)

    def _records(self, head: int, tables: list[list[int]], table: list[int]) -> None:
        """Append a record of each phase, then their tables; `head`: entries before them."""
        high = self.tile.rows[0]
        panels = -(-self.choice.m // high) * high
        entry, target = head + RECORD * len(tables), 0
        for found in tables:
            table.extend((len(found), entry, target))
            entry += len(found)
            target += panels * len(found)
        for found in tables:
            table.extend(found)

    def _pack_filters(
        self, p: Places, phases: list[Phase], rows: list[list[int]], table: list[int], patches: Patches
    ) -> None:
        b, c, tile = self.bound, self.call, self.tile
        at = len(table)
        panels = -(-p.channels // tile.rows[0])
        values = {
            "rows": p.channels, "panels": max(panels, 1), "row_step": p.row_step,
            "group_step": p.channels * p.steps, "a_group": self._of_group(p),
        }  # fmt: skip
        table.extend(fill(len(PACKED_FIELDS), PACKED_AT, values))
        self._records(len(PACKED_FIELDS), [phase.filters for phase in phases], table)
        base, _, offset = c.operands[1]
        b._address(base, offset, c.node.dtype.itemsize, at + PACKED_AT["from"], patches)
        patches.append((at + PACKED_AT["to"], b.arena_base, b.offsets[c, "A"]))
        grain = max(16384 // max(tile.rows[0] * p.steps, 1), 1)
        rows.append([code_of(*self.modules[1]), at, panels * p.groups, grain, 0])
