"""Launches of convolutions of bfloat16 by AMX: see conv_tiles_ir.py, and conv_tiles_pack_ir.py for their copies."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lazyt.backends.cpu import pair_products
from lazyt.backends.cpu.codegen.source import source_of
from lazyt.backends.cpu.kept_panels import LEAST, Kept
from lazyt.backends.cpu.library import gemm_amx
from lazyt.backends.cpu.library.conv_features_ir import PLACE_AT
from lazyt.backends.cpu.library.conv_geometry import Geometry
from lazyt.backends.cpu.library.conv_tiles_ir import (
    ENTRY,
    RECORD,
    ROW_AT,
    ROW_SIZE,
    rows_text,
)
from lazyt.backends.cpu.library.conv_tiles_pack_ir import (
    CHANNELS,
    COLUMNS,
    FILTERS_AT,
    FILTERS_SIZE,
    IMAGES_AT,
    IMAGES_SIZE,
    PAIR_SIZE,
    TAP_BYTES,
    filters_text,
    images_text,
)
from lazyt.backends.cpu.library.gemm_amx import SIDE
from lazyt.backends.cpu.library.gemm_tile import AT, SCRATCH
from lazyt.backends.cpu.library.products import PRODUCT_GRAIN, Choice, Product, code_of, epilogue_alone, fill
from lazyt.backends.cpu.thread_pool import get_num_threads
from lazyt.backends.cpu.workspace import WORKSPACE
from lazyt.forking import cached_property
from lazyt.ir import graph as g
from lazyt.ir.dtypes import bfloat16
from lazyt.ir.symbolic import hint, uses_offset

if TYPE_CHECKING:
    from lazyt.backends.common.products import Patches, Value
    from lazyt.backends.cpu.codegen.source import Source
    from lazyt.backends.cpu.library.conv_geometry import Phase
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import MatmulCall

    Rows = list[list[int]]

# Elements that a chunk of units copies.
COPIED = 1 << 15
# Packed filters are worth keeping where at most so many places meet them.
MOST_PLACES = 8192
# Channels, and features, of a convolution at least; and places of a row at most.
LEAST_CHANNELS, WIDEST = 16, 1024
# Of a gradient by the filters (conv_filter_tiles.py): pairs of a register that are places of a row, at least; and
# images, at least, where registers are of these.
LONG, IMAGES = 12, 8
# Taps whose filters, or sums (conv_filter_tiles.py), fit the working memory of a unit.
MOST_TAPS = WORKSPACE // TAP_BYTES


def are_wanted(b: Builder, n: Node) -> bool:
    """Whether convolutions of bfloat16 such as n can be computed so here, and it is worth it: the plan is for such.

    Where there are few channels, or features, registers would be filled up with zeros.
    """
    a, x = n.attrs, n.operands[0]
    assert isinstance(a, g.Convolution)
    if pair_products.dot_products() != "tiles" or a.groups > 1 or math.prod(a.sizes) > MOST_TAPS:
        return False
    if n.op == "convolve_image" and {*a.dilations} != {1}:
        return False
    by_filter = n.op == "convolve_filter"
    features, places = (n.shape[-1], n.operands[1].shape) if by_filter else (n.shape[1], n.shape)
    if len(a.sizes) > 2 or b.at_least(places[-1], WIDEST + 1):
        return False
    if by_filter and not b.at_least(x.shape[0], IMAGES):
        # Registers are of the places of a row, or nearly empty.
        b.same(places[-1], hint(places[-1]))
        if a.strides[-1] > 1 or divisor(hint(places[-1])) < LONG:
            return False
    return bool(b.at_least(x.shape[1], LEAST_CHANNELS) and b.at_least(features, LEAST_CHANNELS))


def divisor(count: int) -> int:
    """The largest number of pairs of a register that divides so many; 1 if there are none."""
    return next(p for p in range(SIDE, 0, -1) if count % p == 0) if count else 1


def takes(n: Node) -> bool:
    """Whether a convolution is of bfloat16 itself, not of float32 copies."""
    return bool(n.operands[0].dtype == bfloat16 and n.dtype != bfloat16)


def choose_tiles(c: MatmulCall, value: Value) -> Choice:
    """How a convolution of bfloat16 is computed: by AMX."""
    n, (x, w) = c.node, c.node.operands
    a = n.attrs
    assert isinstance(a, g.Convolution)
    assert pair_products.dot_products() == "tiles", "such plans are made where the registers are granted"
    sources = source_of(x, c.operands[0][0], n.dtype), source_of(w, c.operands[1][0], n.dtype)
    taps, channels, images = math.prod(a.sizes), value(x.shape[1]), value(x.shape[0])
    if n.op == "convolve_filter":
        m, features, depth, alone = channels, value(w.shape[1]), math.prod(value(d) for d in w.shape[2:]), False
    else:
        m, features, alone = value(n.shape[1]), math.prod(value(d) for d in n.shape[2:]), epilogue_alone(c)
        depth = channels * -(-taps // (math.prod(a.strides) if n.op == "convolve_image" else 1))
    return Choice(
        "generated", m, features, depth, images, 0, 0, alone, tile=gemm_amx.TILE, form="tiles", sources=sources,
        dots="tiles",
    )  # fmt: skip


class _Unit(NamedTuple):
    """Features, images, and places in each."""

    features: int
    images: int
    part: int


class Tiles(Product):
    """One convolution of a bound plan, or its gradient by the filters: what both have in common."""

    @cached_property
    def _geometry(self) -> Geometry:
        return Geometry(self.call.node, self.bound.value)

    @property
    def _channels(self) -> int:
        return int(self.bound.value(self.call.node.operands[0].shape[1]))

    @property
    def _blocks(self) -> int:
        """Blocks of channels."""
        return -(-self._channels // CHANNELS)

    def _source(self, operand: int) -> Source:
        found: Source | None = self.choice.sources[operand]
        assert found is not None, "operands are of bfloat16"
        return found

    def _steps(self, operand: int) -> list[int]:
        """The strides of an operand, which is read where it lies."""
        return [self.bound.value(s) for s in self.call.operands[operand][1]]

    def _copy(
        self, operand: int, text: tuple[str, str], values: dict[str, int], units: int, rows: Rows, table: list[int],
        patches: Patches,
    ) -> None:  # fmt: skip
        """Append a copy of an operand in pairs."""
        b, (base, _, offset) = self.bound, self.call.operands[operand]
        at = len(table)
        table.extend(fill(IMAGES_SIZE, IMAGES_AT, values))
        b._address(base, offset, base.dtype.itemsize, at + IMAGES_AT["from"], patches)
        patches.append((at + IMAGES_AT["to"], b.arena_base, b.offsets[self.call, "XB"[operand]]))
        grain = max(COPIED // max(values["height"] * values["width"] * CHANNELS, 1), 1)
        rows.append([code_of(*text), at, units, grain, 0])

    def _frame(self) -> dict[str, int]:
        """What copies of the image have in common."""
        (height, width), around, steps = self._geometry.plane, self._geometry.around, self._steps(0)
        return {
            "height": height, "width": width, "from_row": steps[2] if len(steps) > 3 else width, "top": around.top,
            "left": around.left, "rows": around.tall, "wide": around.wide,
        }  # fmt: skip

    def _begin(self, values: list[int], table: list[int], patches: Patches) -> int:
        """Append the arguments, with what both operands are copied to and the result; where they begin."""
        b, c = self.bound, self.call
        first = len(table)
        table.extend(values)
        for name, operand in (("A", "X"), ("B", "B")):
            patches.append((first + AT[name], b.arena_base, b.offsets[c, operand]))
        if not self.choice.on_stack:
            b._address(c.node, 0, c.node.dtype.itemsize, first + AT["C"], patches)
        patches.append((first + AT["workspace"], b.arena_base, b.workspace_at))
        return first


class TileConvolution(Tiles):
    """One convolution of a bound plan, transposed or not."""

    @property
    def _panels(self) -> int:
        """Panels of features."""
        return -(-self.choice.m // COLUMNS)

    @property
    def _panel_pairs(self) -> int:
        """Pairs of a panel of filters."""
        return self._geometry.taps * self._blocks * SIDE * COLUMNS

    @property
    def _image_pairs(self) -> int:
        """Pairs of an image as it is copied."""
        return self._geometry.around.tall * self._geometry.around.wide * self._blocks * SIDE

    @property
    def extra(self) -> dict[str, int]:
        return {
            "X": self._image_pairs * self.choice.count * PAIR_SIZE,
            "B": self._panel_pairs * self._panels * PAIR_SIZE,
        }

    @property
    def kept(self) -> Kept | None:
        """The packed filters, which may stay so: where they are an input, and to pack them is a good part."""
        ch, (base, _, offset) = self.choice, self.call.operands[1]
        if not self.bound.keeps or base.op != "input" or uses_offset(offset):
            return None
        nbytes = self._panel_pairs * self._panels * PAIR_SIZE
        if nbytes < LEAST or ch.n * ch.count > MOST_PLACES:
            return None
        assert isinstance(base.attrs, g.Input)
        sizes = self.bound.value(offset), *self._steps(1), self._channels, ch.m
        # NOTE: of one filter there may be panels for a convolution, and for transposed ones of several steps.
        form = "tiles", ch.sources[1], self._geometry.transposed, self._geometry.order
        return Kept(base.attrs.index, sizes, form, nbytes)

    @property
    def modules(self) -> list[tuple[str, str]]:
        return [rows_text(), images_text(self._source(0)), filters_text(self._source(1))]

    @property
    def workspace(self) -> int:
        unit = self._unit_places
        found = max(self._unit_bytes(unit), self._geometry.taps * TAP_BYTES)
        assert found <= WORKSPACE, "a unit fits the working memory of a thread"
        return found

    def rows(self, rows: Rows, table: list[int], patches: Patches) -> None:
        b, c, ch, geometry = self.bound, self.call, self.choice, self._geometry
        if ch.m and ch.n and ch.count:
            self._copy_channels_last(rows, table, patches)
            self._pack_filters(rows, table, patches)
        unit, depth, width = self._unit_places, self._blocks * SIDE, geometry.places[1]
        finished = self._finished(unit)
        (down, right), beside = ((1, 1), geometry.strides[1])
        if geometry.transposed:
            (down, right), beside = geometry.strides, 1
        blocks, features = max(-(-ch.n // unit.part), 1), max(-(-ch.m // unit.features), 1)
        values = {
            "m": ch.m, "n": ch.n, "k": ch.k, "b_panel": self._panel_pairs, "c_row": ch.n, "unit_rows": unit.features,
            "row_blocks": features, "col_blocks": blocks, "c_batch": ch.m * ch.n, "scratch": int(ch.on_stack),
            "groups": 1, "count": ch.count, "images": unit.images, "part": unit.part,
            "line": -(-unit.features // SIDE) * SIDE, "transposed_at": finished,
            "rows_at": finished * (1 + int(ch.on_stack)), "out_width": max(width, 1), "x_batch": self._image_pairs,
            "blocks": self._blocks, "a_step": beside * depth * PAIR_SIZE, "apart": right, "down_phase": down,
            "phases": math.prod(map(len, geometry.phases)),
        }  # fmt: skip
        at = self._begin(fill(ROW_SIZE, AT | PLACE_AT | ROW_AT, values), table, patches)
        if c in b.kept_base:
            patches.append((at + AT["kept"], b.kept_base[c], 0))
        table[at + ROW_AT["shape"]] = len(table) - at
        table.extend(shape_of(max(self._register, 1), SIDE))
        self._records(at, table)
        units = self._units(unit) if ch.m and ch.n else 0
        grain = max(PRODUCT_GRAIN // max(unit.features * unit.images * unit.part * ch.k, 1), 1)
        self._launch(rows_text(), at, units, grain, rows, table, patches)

    @cached_property
    def _register(self) -> int:
        """Places of a register: as many as rows of all phases have whole registers of, about."""
        least = min((len(phase.places) for phase in self._geometry.phases[1] if phase.places), default=0)
        return -(-least // max(-(-least // SIDE), 1))

    def _segments(self, phase: Phase) -> int:
        return -(-len(phase.places) // max(self._register, 1))

    def _records(self, at: int, table: list[int]) -> None:
        """Append the records of the phases, and their tables; `at`: where the arguments begin."""
        geometry, depth, some = self._geometry, self._blocks * SIDE, self._register
        (down, right), width, pitch = geometry.phases, geometry.places[1], geometry.around.wide * depth
        first = len(table)
        table[at + ROW_AT["records"]] = first - at
        table.extend([0] * len(RECORD) * len(down) * len(right))
        filters = 0
        for i, (y, x) in enumerate((y, x) for y in down for x in right):
            taps, segments = len(y.taps) * len(x.taps), self._segments(x)
            offsets = len(table) - at
            table.extend(p * pitch + q * depth for p in y.offsets for q in x.offsets)
            places = len(table) - at
            for begin, row in zip(y.begins, y.places, strict=True):
                for s in range(segments):
                    own = min(s * some, len(x.places) - some)  # NOTE: the last one may have places of the one before
                    table += begin * pitch + x.begins[own] * depth, row * width + x.places[own]
            record = taps, offsets, filters, y.first, segments, places
            table[first + len(RECORD) * i : first + len(RECORD) * (i + 1)] = record
            filters += taps * self._blocks * SIDE * COLUMNS

    def _copy_channels_last(self, rows: Rows, table: list[int], patches: Patches) -> None:
        image, channel = self._steps(0)[:2]
        channels, depth = self._channels, self._blocks * SIDE
        values = {
            "inner": self._blocks, "there": self.choice.count, "from_outer": image, "from_inner": CHANNELS * channel,
            "to_outer": self._image_pairs, "to_inner": SIDE, "line": 2 * channel, "second": channel,
            "lines": -(-channels // 2), "seconds": channels // 2, "last_seconds": channels // 2, "stored": depth,
            "to_row": self._geometry.around.wide * depth, "to_place": depth,
        }  # fmt: skip
        units = self.choice.count * self._blocks
        self._copy(0, images_text(self._source(0)), values | self._frame(), units, rows, table, patches)

    def _pack_filters(self, rows: Rows, table: list[int], patches: Patches) -> None:
        b, c, (base, _, offset) = self.bound, self.call, self.call.operands[1]
        feature, channel, *along = self._steps(1)
        if self._geometry.transposed:
            feature, channel = channel, feature
        taps = self._geometry.taps
        # NOTE: of an axis with one tap, where a window does not lie along it, a stride says nothing.
        sizes = self._geometry.sizes[-len(along) :]
        backward = any(s < 0 for s, k in zip(along, sizes, strict=True) if k > 1)
        values = {
            "features": self.choice.m, "channels": self._channels, "taps": taps, "by_feature": feature,
            "by_channel": channel, "backward": int(backward), "blocks": self._blocks, "order": FILTERS_SIZE,
            "run": CHANNELS if channel == taps and not backward else 1,
        }  # fmt: skip
        at = len(table)
        table.extend(fill(FILTERS_SIZE, FILTERS_AT, values))
        table.extend(self._geometry.order)
        # NOTE: a run that lies backward begins with the last tap.
        b._address(base, offset, base.dtype.itemsize, at + FILTERS_AT["from"], patches, 1 - taps if backward else 0)
        patches.append((at + FILTERS_AT["to"], b.arena_base, b.offsets[c, "B"]))
        patches.append((at + FILTERS_AT["workspace"], b.arena_base, b.workspace_at))
        if c in b.kept_base:
            patches.append((at + FILTERS_AT["kept"], b.kept_base[c], 0))
        grain = max(COPIED // (taps * CHANNELS * COLUMNS), 1)
        rows.append([code_of(*filters_text(self._source(1))), at, self._panels * self._blocks, grain, 0])

    @cached_property
    def _unit_places(self) -> _Unit:
        """What a unit has: so much that little goes through a cache again, in as many units as can be shared."""
        ch = self.choice
        height, width = self._geometry.places
        if not (ch.m and ch.n and ch.count):
            return _Unit(COLUMNS, 1, max(ch.n, 1))
        found = []
        panels, threads = self._panels, get_num_threads()
        while True:
            features = min(panels * COLUMNS, ch.m)
            line = -(-features // SIDE) * SIDE * PAIR_SIZE * (1 + int(ch.on_stack))
            most = max(SCRATCH // line, SIDE)
            if threads > 1:
                worth = max(PRODUCT_GRAIN // max(features * ch.k, 1), COLUMNS)
                total = ch.n * ch.count * -(-ch.m // features)
                most = min(most, max(-(-total // (4 * threads)), worth))
            if ch.n <= most:
                found.append(_Unit(features, min(most // ch.n, ch.count), ch.n))
            else:
                rows = max(most // width, 1)
                found.append(_Unit(features, 1, -(-height // -(-height // rows)) * width))
            if panels == 1:
                break
            panels = -(-panels // 2)
        fits = [unit for unit in found if self._unit_bytes(unit) <= WORKSPACE]
        # NOTE: one panel fits, as rows have at most WIDEST places.
        enough = [unit for unit in fits if self._units(unit) >= threads] if self._is_worth_sharing else []
        return min(enough or fits, key=self._moved)

    @property
    def _is_worth_sharing(self) -> bool:
        ch = self.choice
        return bool(ch.m * ch.n * ch.count * ch.k >= 2 * PRODUCT_GRAIN)

    def _units(self, unit: _Unit) -> int:
        """How many units there are."""
        ch = self.choice
        return int(-(-ch.m // unit.features) * -(-ch.n // unit.part) * -(-ch.count // unit.images))

    def _moved(self, unit: _Unit) -> int:
        """Bytes that units read from beyond their cache."""
        ch = self.choice
        filters = self._panel_pairs * self._panels * -(-ch.count // unit.images) * -(-ch.n // unit.part)
        return PAIR_SIZE * (filters + self._image_pairs * ch.count * -(-ch.m // unit.features))

    def _unit_bytes(self, unit: _Unit) -> int:
        """Bytes of working memory that a unit takes."""
        return self._finished(unit) * (1 + int(self.choice.on_stack)) + self._entries(unit)

    def _finished(self, unit: _Unit) -> int:
        """Bytes of the sums of a unit."""
        return -(-unit.features // SIDE) * SIDE * unit.images * unit.part * PAIR_SIZE

    def _entries(self, unit: _Unit) -> int:
        """Bytes for the addresses of a unit's registers of places."""
        # NOTE: of one phase at a time.
        most = max((self._segments(phase) for phase in self._geometry.phases[1]), default=0)
        return unit.images * -(-unit.part // max(self._geometry.places[1], 1)) * most * ENTRY


def shape_of(rows: int, pairs: int) -> list[int]:
    """A configuration as arguments: so many rows of sums and of A, with so many pairs each."""
    shapes = dict.fromkeys(range(gemm_amx.A), (rows, SIDE)) | dict.fromkeys(
        range(gemm_amx.A, gemm_amx.B), (rows, pairs)
    )
    shapes |= dict.fromkeys(range(gemm_amx.B, gemm_amx.B + 2), (pairs, SIDE))
    words: list[int] = np.frombuffer(gemm_amx.configuration(shapes), np.int64).tolist()
    return words
