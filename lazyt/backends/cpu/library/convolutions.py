"""Launches of convolutions: the arguments and tables of the native functions in conv_ir.py and conv_features_ir.py."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lazyt.backends.cpu.kept_panels import LEAST, Kept
from lazyt.backends.cpu.library.conv_features_ir import PLACE_AT, PLACE_SIZE, RUN, features_text
from lazyt.backends.cpu.library.conv_ir import CONV_AT, CONV_SIZE, convolution_text
from lazyt.backends.cpu.library.conv_pad_ir import PAD_AT, PAD_SIZE, pad_text
from lazyt.backends.cpu.library.gemm_pack import pack_text
from lazyt.backends.cpu.library.gemm_tile import AT, KC, SCRATCH, Tile
from lazyt.backends.cpu.library.products import PRODUCT_GRAIN, Choice, Product, code_of, epilogue_alone, fill, tile_for
from lazyt.backends.cpu.thread_pool import get_num_threads
from lazyt.forking import cached_property
from lazyt.ir import graph as g
from lazyt.ir.symbolic import uses_offset

if TYPE_CHECKING:
    from lazyt.backends.common.products import Patches, Value
    from lazyt.ir.passes.schedule import MatmulCall


# Places of a unit, at least: so many meet a panel of features while it is in the first-level cache.
PLACES = 48
# Filters of at most so many bytes stay in the cache from unit to unit.
STAYS = 3 << 18
# What a copy of x before all units costs, in reads of it: it is read and written while nothing is computed.
FRAMES = 6
# A unit copies at most so many bytes of x, with zeros around it.
WINDOW = 1 << 18
# A chunk of images that are copied with zeros around them has so many elements.
FRAMED = 1 << 16
# The images whose filter's gradient is computed together have about so many bytes, as they are copied: some caches'.
TOGETHER = 1 << 24
# Packed filters are worth keeping where at most so many places meet them: for more, packing is a thirtieth of the time.
MOST_PLACES = 2048
# Heights of tiles of fewer vectors than there may be, with 32 registers, of places in runs.
WIDEST, IN_RUNS = 4, ((16, 8, 4, 2, 1), (12, 8, 4, 2, 1), (8, 4, 2, 1))
# Bytes of an address of a place.
ADDRESS = 8

# The cost model, in cycles (see products.py).
ALONG_PLACES = 0.8  # of the peak: vectors of x lie across lines of the cache, and are masked
ALONG_FEATURES = 0.95
PACKED = 0.6  # of an element of w
TRANSPOSED = 0.3  # of an element of the result


def choose_convolution(c: MatmulCall, value: Value) -> Choice:
    """How a convolution is computed: by generated code, its vectors along the places or the features."""
    n, (x, w) = c.node, c.node.operands
    a = n.attrs
    assert isinstance(a, g.Convolution)
    depth = value(x.shape[1]) // a.groups * math.prod(a.sizes)
    tile = tile_for(n.dtype)
    assert tile is not None, f"no convolution of {n.dtype}"
    if n.op == "convolve":
        *outer, width = (value(d) for d in n.shape[2:])
        m, area, count = value(n.shape[1]) // a.groups, math.prod(outer) * width, value(x.shape[0])
        alone = epilogue_alone(c)
        by_features = _along_features(tile, m, area, depth, count)
        in_order = _lies_in_order(c, value)
        if (
            not in_order
            or a.groups > 1
            or set(a.strides) != {1}
            or by_features < _along_places(tile, m, math.prod(outer), width, depth, count)
        ):
            tile = _features_tile(tile, m, width % RUN == 0)
            return Choice(
                "generated", m, area, depth, count, 0, 0, alone, tile=tile, families=tile.families(m), form="features",
                pack_b="across",
            )  # fmt: skip
        fits = m * width * n.dtype.itemsize <= SCRATCH
        return Choice("generated", m, area, depth, count, 0, 0, alone and fits, tile=tile)
    features = value(w.shape[1]) // a.groups
    vectors = min(max(-(-features // tile.lanes), 1), tile.vectors)
    narrow: Tile = dataclasses.replace(tile, vectors=vectors)
    area = math.prod(value(d) for d in w.shape[2:])
    return Choice(
        "generated", depth, features, area, value(x.shape[0]), 0, 0, tile=narrow, families=narrow.families(features),
        pack_b="across",
    )  # fmt: skip


def _lies_in_order(c: MatmulCall, value: Value) -> bool:
    """Whether the filters are an array of their own; otherwise a view of one: see `operands_of_call`."""
    strides = [value(s) for s in c.operands[1][1]]
    step = 1
    for d, s in zip(reversed([value(d) for d in c.node.operands[1].shape]), reversed(strides), strict=True):
        if s != step and d > 1:
            return False
        step *= d
    return True


def _features_tile(tile: Tile, m: int, in_runs: bool) -> Tile:
    """One of at most so many features. NOTE: each row, or run of rows, takes a register for its address."""
    vectors = min(max(-(-m // tile.lanes), 1), tile.vectors)
    wide = tile.vectors == WIDEST and in_runs
    return dataclasses.replace(tile, vectors=vectors, narrow=IN_RUNS if wide else ((8, 4, 2, 1),))


def _along_places(tile: Tile, m: int, height: int, width: int, depth: int, count: int) -> float:
    """Cycles of one core: vectors lie within a row of places."""
    vectors = -(-height * -(-width // tile.lanes) // tile.vectors) * tile.vectors
    return count * vectors * m * depth / 2 / ALONG_PLACES


def _along_features(tile: Tile, m: int, area: int, depth: int, count: int) -> float:
    """Cycles of one core."""
    vectors = -(-m // tile.lanes)
    return count * area * (vectors * depth / 2 / ALONG_FEATURES + m * TRANSPOSED) + m * depth * PACKED


class _Unit(NamedTuple):
    """Of vectors along the features: features, images, places in each, and rows of x that it copies; 0 if none."""

    features: int
    images: int
    part: int
    rows: int


class Convolution(Product):
    """One convolution of a bound plan."""

    @property
    def extra(self) -> dict[str, int]:
        ch, columns, size = self.choice, self.tile.columns, self.call.node.dtype.itemsize
        filters = self.call.node.op != "convolve"
        images = min(self._together, ch.count) if filters else ch.count
        out = {"X": math.prod(self._image) * images * size} if self._is_framed_before else {}
        if ch.form == "features":
            out["B"] = self._attrs.groups * self._panel() * -(-ch.m // columns) * size
        elif filters:
            out["B"] = images * self._attrs.groups * self._gradients * size
        return out

    @property
    def _gradients(self) -> int:
        """Elements of the packed gradients of an image, of a group of a filter's gradient."""
        return -(-self.choice.n // self.tile.columns) * self.choice.k * self.tile.columns

    @property
    def _chunk(self) -> int:
        """Images whose places are one sum, of a filter's gradient."""
        return max(min(KC // max(self.choice.k, 1), self.choice.count), 1)

    @property
    def _together(self) -> int:
        """Images that are copied and packed together, of a filter's gradient: some chunks."""
        copied = math.prod(self._image) * int(self._is_framed_before) + self._attrs.groups * self._gradients
        chunk = self._chunk
        return max(TOGETHER // max(copied * chunk * self.call.node.dtype.itemsize, 1), 1) * chunk

    @property
    def _attrs(self) -> g.Convolution:
        a = self.call.node.attrs
        assert isinstance(a, g.Convolution)
        return a

    @property
    def _image(self) -> list[int]:
        """The extents of an image, its channels first, with the zeros around it."""
        channels, *extents = (self.bound.value(d) for d in self.call.node.operands[0].shape[1:])
        return [channels, *(d + 2 * p for d, p in zip(extents, self._attrs.padding, strict=True))]

    @property
    def _channels(self) -> int:
        """Of a group."""
        return self._image[0] // self._attrs.groups

    @property
    def _steps(self) -> list[int]:
        """The strides of x, which is read where it lies: images, channels, and the axes of a plane."""
        return [self.bound.value(s) for s in self.call.operands[0][1]]

    @property
    def _x_group(self) -> int:
        """From group to group of an image."""
        return self._channels * (math.prod(self._image[1:]) if self._is_framed_before else self._steps[1])

    @property
    def _is_framed_before(self) -> bool:
        """Whether whole images are copied, with zeros around them."""
        if not any(self._attrs.padding):
            return False
        return self.choice.form != "features" or not self._unit_places.rows

    @property
    def kept(self) -> Kept | None:
        """The packed filters, which may stay so: where they are an input, and to pack them is a good part."""
        ch, node, (base, _, offset) = self.choice, self.call.node, self.call.operands[1]
        if not self.bound.keeps or ch.form != "features" or base.op != "input" or uses_offset(offset):
            return None
        groups = self._attrs.groups
        nbytes = groups * self._panel() * -(-ch.m // self.tile.columns) * node.dtype.itemsize
        if nbytes < LEAST or ch.n * ch.count > MOST_PLACES or not _lies_in_order(self.call, self.bound.value):
            return None
        assert isinstance(base.attrs, g.Input)
        form = "filters", node.dtype, self.tile.columns, self.tile.lanes
        return Kept(base.attrs.index, (self.bound.value(offset), groups, ch.k, ch.m), form, nbytes)

    @property
    def modules(self) -> list[tuple[str, str]]:
        node, tile = self.call.node, self.tile
        frames = [pad_text(node.dtype, tile.lanes)] if self._is_framed_before else []
        packs = self.choice.form == "features" or node.op != "convolve"
        return [*frames, self._text, *([pack_text(node.dtype, tile, "across")] if packs else [])]

    @property
    def _text(self) -> tuple[str, str]:
        """The module of the convolution itself, and its name."""
        dtype, widths = self.call.node.dtype, tuple(sorted({vectors for vectors, _ in self.choice.families}))
        if self.choice.form == "features":
            return features_text(dtype, self.tile, self._step, widths)
        return convolution_text(dtype, self.tile, "convolve" if self.call.node.op == "convolve" else "filter", widths)

    @property
    def workspace(self) -> int:
        if self.choice.form == "features":
            return SCRATCH + (WINDOW if self._unit_places.rows else 0)
        return SCRATCH if self.choice.on_stack else 0

    def rows(self, rows: list[list[int]], table: list[int], patches: Patches) -> None:
        if self.call.node.op != "convolve":
            self._filter(rows, table, patches)
            return
        if self._is_framed_before:
            self._frame(0, self.choice.count, rows, table, patches)
        if self.choice.form == "features":
            self._features(rows, table, patches)
        else:
            self._convolve(rows, table, patches)

    def _frame(self, first: int, count: int, rows: list[list[int]], table: list[int], patches: Patches) -> None:
        """Append the launch that copies so many whole images."""
        b, c = self.bound, self.call
        at = len(table)
        height, width, top, left = self._plane()
        *_, wide = self._image
        values = {
            "height": height, "width": width, "top": top, "left": left, "pad_height": height + 2 * top,
            "pad_width": wide,
        }  # fmt: skip
        table.extend(fill(PAD_SIZE, PAD_AT, values))
        dtype = c.node.dtype
        base, _, offset = c.operands[0]
        channels, *extents = self._image
        shift = first * channels * height * width
        b._address(base, offset, dtype.itemsize, at + PAD_AT["from"], patches, shift)
        patches.append((at + PAD_AT["to"], b.arena_base, b.offsets[c, "X"]))
        grain = max(FRAMED // max(math.prod(extents), 1), 1)
        rows.append([code_of(*pad_text(dtype, self.tile.lanes)), at, channels * count, grain, 0])

    def _plane(self) -> tuple[int, int, int, int]:
        """Rows and columns of a plane of x, and the zeros before each; one row if it has one axis."""
        extents = [self.bound.value(d) for d in self.call.node.operands[0].shape[2:]]
        *heights, width = extents
        *tops, left = self._attrs.padding
        return (heights[-1] if heights else 1), width, (tops[-1] if tops else 0), left

    def _tables(self, rows: int = 0) -> tuple[list[int], list[int], int]:
        """Element offsets in x of every (c, k..) of a group, and of every place; from row to row of x.

        With `rows`, planes have so many rows only.
        """
        a = self._attrs
        extents = self._image[1:]
        if any(a.padding):
            planes = [rows, *extents[1:]] if rows and len(extents) > 1 else extents
            plane, *steps = [math.prod(planes[i:]) for i in range(len(planes) + 1)]
        else:
            _, plane, *steps = self._steps

        def grid(sizes: list[int], by: list[int]) -> np.ndarray:
            out = np.zeros(1, np.int64)
            for size, step in zip(sizes, by, strict=True):
                out = (out[:, None] + np.arange(size, dtype=np.int64) * step).reshape(-1)
            return out

        dilated = [s * e for s, e in zip(steps, a.dilations, strict=True)]
        depth = grid([self._channels, *a.sizes], [plane, *dilated])
        counts = [(d - r - 1) // s + 1 for d, r, s in zip(extents, a.reach, a.strides, strict=True)]
        places = grid(counts, [s * e for s, e in zip(steps, a.strides, strict=True)])
        return depth.tolist(), places.tolist(), steps[-2] if len(steps) > 1 else 0

    def _begin(self, values: dict[str, int], table: list[int], patches: Patches, shift: int = 0) -> int:
        """Append the arguments; where they begin. The addresses: x is operand 0, read from element `shift` on."""
        b, c = self.bound, self.call
        at = len(table)
        by_features = self.choice.form == "features"
        size, own = (PLACE_SIZE, PLACE_AT) if by_features else (CONV_SIZE, CONV_AT)
        table.extend(fill(size, AT | own, values))
        names = "BA" if c.node.op == "convolve" and not by_features else "A"
        for name, (base, _, offset) in zip(names, c.operands, strict=False):
            if name == names[0] and self._is_framed_before:
                patches.append((at + AT[name], b.arena_base, b.offsets[c, "X"]))
            else:
                moved = shift if name == names[0] else 0
                b._address(base, offset, c.node.dtype.itemsize, at + AT[name], patches, moved)
        if not self.choice.on_stack:
            b._address(c.node, 0, c.node.dtype.itemsize, at + AT["C"], patches)
        patches.append((at + AT["workspace"], b.arena_base, b.workspace_at))
        return at

    def _convolve(self, rows: list[list[int]], table: list[int], patches: Patches) -> None:
        b, c, ch = self.bound, self.call, self.choice
        node = c.node
        offsets, _, pitch = self._tables()
        *heights, width = (b.value(d) for d in node.shape[2:])
        height = heights[-1] if heights else 1
        unit = self._unit_height(height, ch.m * width)
        blocks = max(-(-height // unit), 1)
        at = self._begin(
            {
                "m": ch.m, "n": ch.n, "k": ch.k, "a_row": ch.k, "b_row": pitch, "c_row": ch.n, "unit_rows": unit,
                "unit_cols": unit * width, "row_blocks": blocks, "c_batch": ch.m * ch.n, "scratch": int(ch.on_stack),
                "height": height, "width": width,
                "x_batch": math.prod(self._image) if self._is_framed_before else self._steps[0],
            },
            table, patches,
        )  # fmt: skip
        table[at + CONV_AT["offsets"]] = len(table) - at
        table.extend(offsets)
        units = blocks * ch.count if ch.m and ch.n else 0
        grain = max(PRODUCT_GRAIN // max(ch.m * unit * width * ch.k, 1), 1)
        self._launch(self._text, at, units, grain, rows, table, patches)

    def _features(self, rows: list[list[int]], table: list[int], patches: Patches) -> None:
        b, c, ch = self.bound, self.call, self.choice
        node, tile, size = c.node, self.tile, c.node.dtype.itemsize
        features, images, part, window = self._unit_places
        groups = self._attrs.groups
        offsets, places, _ = self._tables(window)
        if window:
            places = places[:part]
        panels = -(-ch.m // tile.columns)
        self._pack_filters(panels, rows, table, patches)
        line = -(-features // tile.lanes) * tile.lanes
        blocks = max(-(-ch.n // part), 1)
        row_blocks = max(-(-ch.m // features), 1) if features else 1
        channels, wide = self._channels, self._image[-1]
        height, width, top, left = self._plane()
        finished = images * part * line * size
        at = self._begin(
            {
                "m": ch.m, "n": ch.n, "k": ch.k, "b_panel": self._panel(), "c_row": ch.n, "unit_rows": features,
                "row_blocks": row_blocks, "col_blocks": blocks, "c_batch": groups * ch.m * ch.n,
                "scratch": int(ch.on_stack), "groups": groups, "x_group": self._x_group,
                "b_group": panels * self._panel(),
                "count": ch.count, "images": images, "part": part, "line": line, "transposed_at": finished,
                "rows_at": finished + int(ch.on_stack) * features * part * size, "window_rows": window,
                "window_at": SCRATCH, "channels": channels, "height": height, "width": width, "top": top, "left": left,
                "wide": wide, "down": self._attrs.strides[0],
                "out_width": max(b.value(node.shape[-1]), 1),
                "x_batch": math.prod(self._image) if self._is_framed_before else self._steps[0],
            },
            table, patches,
        )  # fmt: skip
        patches.append((at + AT["B"], b.arena_base, b.offsets[c, "B"]))
        if c in b.kept_base:
            patches.append((at + AT["kept"], b.kept_base[c], 0))
        for name, entries in (("offsets", offsets), ("places", places)):
            table[at + PLACE_AT[name]] = len(table) - at
            table.extend(entries)
        units = row_blocks * blocks * groups * -(-ch.count // images) if ch.m and ch.n else 0
        grain = max(PRODUCT_GRAIN // max(features * images * part * ch.k, 1), 1)
        self._launch(self._text, at, units, grain, rows, table, patches)

    @property
    def _step(self) -> int:
        """From a place to its neighbour in x, where places come in runs; else 0."""
        if self.tile.narrow != IN_RUNS:
            return 0
        return self._attrs.strides[-1] * (1 if any(self._attrs.padding) else self._steps[-1])

    def _pack_filters(self, panels: int, rows: list[list[int]], table: list[int], patches: Patches) -> None:
        """Append the packing of the filters; of a view of others, channel by channel, each window a run."""
        ch, columns, value = self.choice, self.tile.columns, self.bound.value
        base, strides, offset = self.call.operands[1]
        head = {"rows": ch.k, "cols": ch.m, "row_step": ch.k, "to_unit": self._panel(), "to_row": columns}
        size = panels * self._panel()
        if _lies_in_order(self.call, value):
            groups = self._attrs.groups
            batch = [(groups, ch.m * ch.k)] if groups > 1 else []
            self._pack_from((base, offset), "across", head, panels, size, "B", batch, rows, table, patches)
            return
        features, channels, *along = map(value, strides)
        taps = math.prod(self._attrs.sizes)
        last = taps - 1 if any(s < 0 for s in along) else 0  # the place of the run's first element in the window
        head |= {
            "rows": taps,
            "row_step": features,
            "to_row": -columns if last else columns,
            "to_batch": taps * columns,
        }
        batch = [(value(self.call.node.operands[1].shape[1]), channels)]
        self._pack_from(
            (base, offset), "across", head, panels, size, "B", batch, rows, table, patches, -last, last * columns
        )  # fmt: skip

    @cached_property
    def _unit_places(self) -> _Unit:
        """What a unit has: whole images, or parts of one; all of it fits a cache, and little is read again."""
        ch, tile = self.choice, self.tile
        # NOTE: whole panels, unless all features.
        widest = SCRATCH // (PLACES * self._place_bytes(tile.columns)) * tile.columns
        features = min(ch.m, max(widest, tile.columns))
        units = [self._unit_of(features, window=True)]
        if ch.m * ch.k * self.call.node.dtype.itemsize <= STAYS:
            return units[0]
        while True:
            if units[-1].rows:
                units.append(self._unit_of(features, window=False))
            if features <= tile.columns:
                return min(units, key=self._moved)
            features = max(-(-features // (2 * tile.columns)) * tile.columns, tile.columns)
            units.append(self._unit_of(features, window=True))

    def _place_bytes(self, features: int) -> int:
        """Working memory that a place takes: its sums, its address, and its part of a finished result."""
        lanes, on_stack = self.tile.lanes, int(self.choice.on_stack)
        line = -(-features // lanes) * lanes
        return (line + features * on_stack) * self.call.node.dtype.itemsize + ADDRESS

    def _unit_of(self, features: int, window: bool) -> _Unit:
        """One of so many features; it copies what it reads only if it may."""
        ch, tile = self.choice, self.tile
        most = max(SCRATCH // self._place_bytes(features), tile.rows[0])
        places, threads = max(ch.n * ch.count, 1) * self._attrs.groups, get_num_threads()
        total = places * -(-ch.m // max(features, 1))
        if threads > 1:
            worth = max(PRODUCT_GRAIN // max(features * ch.k, 1), PLACES)
            most = min(most, max(-(-total // (4 * threads)), worth))
        if self._step:
            most = max(most // RUN, 1) * RUN  # NOTE: no run is divided
        if window and any(self._attrs.padding):
            windows = self._windows(most, self.call.node.dtype.itemsize)
            if windows is not None:
                return _Unit(features, *windows)
        if ch.n <= most:
            return _Unit(features, min(max(most // max(ch.n, 1), 1), max(ch.count, 1)), max(ch.n, 1), 0)
        parts = -(-ch.n // most)
        part = -(-ch.n // parts)
        return _Unit(features, 1, min(-(-part // tile.lanes) * tile.lanes, most), 0)

    def _moved(self, unit: _Unit) -> int:
        """Bytes that go through a unit's cache, of filters that do not stay there."""
        ch, size = self.choice, self.call.node.dtype.itemsize
        times = -(-ch.count // unit.images) * -(-ch.n // unit.part)
        images = math.prod(self._image) * ch.count
        blocks = -(-ch.m // unit.features)
        copies = 2 * blocks if unit.rows else blocks + FRAMES * any(self._attrs.padding)
        return (self._attrs.groups * ch.m * ch.k * times + images * copies) * size

    def _windows(self, most: int, itemsize: int) -> tuple[int, int, int] | None:
        """Images, places and rows of x of a unit that copies what it reads; None if that is too much.

        It has whole rows of the result, of `most` places.
        """
        ch, a = self.choice, self._attrs
        *heights, width = (self.bound.value(d) for d in self.call.node.shape[2:])
        height = heights[-1] if heights else 1
        channels, extents = self._channels, self._image[1:]
        if not (ch.n and ch.count and channels):
            return None
        whole = channels * math.prod(extents) * itemsize
        images = ch.count if a.groups == 1 else 1  # NOTE: the planes of a group are one after another in an image
        tall = extents[0] if heights else 1
        if ch.n <= most and whole <= WINDOW:
            return min(most // ch.n, WINDOW // whole, images), ch.n, tall
        down, reach = (a.strides[0], a.reach[0]) if heights else (1, 0)
        fit = WINDOW // (channels * extents[-1] * itemsize) - reach - 1
        if fit < 0 or width > most:
            return None
        rows = min(fit // down + 1, most // width, height)
        rows = -(-height // -(-height // rows))
        return 1, rows * width, (rows - 1) * down + reach + 1

    def _filter(self, rows: list[list[int]], table: list[int], patches: Patches) -> None:
        """Some chunks of images after another: each adds its places to the sums of those before."""
        ch, together = self.choice, self._together
        offsets, places, _ = self._tables()
        chunk = np.arange(self._chunk, dtype=np.int64)[:, None] * math.prod(self._image) + np.array(places, np.int64)
        entries = {"offsets": len(table), "places": len(table) + len(offsets)}
        table.extend(offsets)
        table.extend(chunk.reshape(-1).tolist())
        for first in range(0, max(ch.count, 1), together):
            self._add_filters(first, min(together, ch.count - first), entries, rows, table, patches)

    def _add_filters(
        self, first: int, count: int, entries: dict[str, int], rows: list[list[int]], table: list[int], patches: Patches
    ) -> None:
        """Append the launches for so many images; `entries`: where the tables of places begin."""
        b, c, ch, tile = self.bound, self.call, self.choice, self.tile
        if self._is_framed_before:
            self._frame(first, count, rows, table, patches)
        columns, panels, images = tile.columns, -(-ch.n // tile.columns), self._chunk
        groups = self._attrs.groups
        # A panel has the places of all these images, one after another; first panels of all groups come first.
        panel = count * ch.k * columns
        head = {
            "rows": ch.k, "cols": ch.n, "row_step": ch.k, "to_unit": groups * panel, "to_row": columns,
            "to_batch": ch.k * columns,
        }  # fmt: skip
        base, _, offset = c.operands[1]
        whole = groups * ch.n * ch.k
        batch = [(groups, ch.n * ch.k), (count, whole)] if groups > 1 else [(count, whole)]
        source, shift = (base, offset), first * whole
        self._pack_from(
            source, "across", head, panels, panels * ch.k * columns, "B", batch, rows, table, patches, shift
        )  # fmt: skip
        x_batch = math.prod(self._image)
        tall = tile.rows[0]
        unit = max(-(-ch.m // max(2 * get_num_threads() // groups, 1) // tall) * tall, tall)
        blocks = max(-(-ch.m // unit), 1)
        at = self._begin(
            {
                "m": ch.m, "n": ch.n, "k": images * ch.k, "total": count * ch.k, "b_panel": groups * panel,
                "c_row": groups * ch.n, "unit_rows": unit, "row_blocks": blocks, "x_batch": images * x_batch,
                "y_batch": images * ch.k * columns, "chunks": max(-(-count // images), 1), "begun": first,
                "x_group": self._x_group, "y_group": panel,
            },
            table, patches, first * x_batch,
        )  # fmt: skip
        patches.append((at + AT["B"], b.arena_base, b.offsets[c, "B"]))
        for name, entry in entries.items():
            table[at + CONV_AT[name]] = entry - at
        units = blocks * groups if ch.m and ch.n else 0
        rows.append([code_of(*self._text), at, units, 1, 0])
