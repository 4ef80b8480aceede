"""Launches of gradients of convolutions by their filters, of bfloat16 by AMX: see conv_filter_tiles_ir.py.

Along what is summed, a register has neighbours in memory. These are images, which lie last, at one place or several;
or, where rows are long enough and strides are 1, the places of a row, one pair of images after another: then planes are
copied as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lazyt.backends.cpu.library.conv_filter_tiles_ir import FILTER_AT, FILTER_SIZE, TAP_SUMS, filter_text
from lazyt.backends.cpu.library.conv_tiles import LONG, Tiles, divisor, shape_of
from lazyt.backends.cpu.library.conv_tiles_pack_ir import CHANNELS, COLUMNS, PAIR_SIZE, images_text, planes_text
from lazyt.backends.cpu.library.gemm_amx import SIDE
from lazyt.backends.cpu.library.gemm_tile import AT
from lazyt.backends.cpu.library.products import code_of, fill
from lazyt.backends.cpu.thread_pool import get_num_threads
from lazyt.forking import cached_property

if TYPE_CHECKING:
    from lazyt.backends.common.products import Patches
    from lazyt.backends.cpu.library.conv_tiles import Rows

# Bytes of each operand that a unit reads for all taps before it goes on.
TOGETHER = 1 << 17
# Channels at multiples of so many bytes would fall into the same sets of a cache: so many pairs more lie between them.
CROWDED, APART = 4096, 16
# Units of each thread, at least, where there are so many taps.
UNITS = 2
# Pairs of images are filled up with zeros by at most so many.
FILLED = SIDE


class _Along(NamedTuple):
    """What is summed: planes of rows of `runs` times `steps` registers of `pairs` pairs; and `images`, in pairs.

    apart: from a place of x to its neighbour, in pairs; 1 where registers are of a row.
    """

    images: int
    pairs: int
    runs: int
    steps: int
    apart: int
    planes: int


class TileFilter(Tiles):
    """The gradient of a convolution by its filters, of a bound plan."""

    @property
    def _panels(self) -> int:
        """Panels of features."""
        return -(-self.choice.n // COLUMNS)

    @cached_property
    def _along(self) -> _Along:
        """As few registers as possible, and then as few zeros, where they are of images."""
        least, width = max(-(-self.choice.count // 2), 1), self._geometry.places[1]
        plain = self._geometry.strides[1] == 1
        if plain and (pairs := divisor(width)) >= LONG:
            return _Along(least, pairs, 1, width // pairs, 1, least)

        def divided(images: int) -> _Along:
            run = images * width if plain else images
            pairs = divisor(run)
            return _Along(images, pairs, 1 if plain else width, run // pairs, images, 1)

        return min(map(divided, range(least, least + FILLED)), key=lambda a: (a.runs * a.steps, a.images))

    @property
    def _plane_pairs(self) -> int:
        """Pairs of a plane of x, of one pair of images or of all."""
        return self._geometry.around.tall * self._geometry.around.wide * self._along.apart

    @property
    def _channel_pairs(self) -> int:
        """Pairs from channel to channel of x."""
        size = self._plane_pairs * self._along.planes
        return size + APART * (size * PAIR_SIZE % CROWDED == 0)

    @property
    def extra(self) -> dict[str, int]:
        x = self._channel_pairs * self._blocks * CHANNELS
        y = self.choice.k * self._along.images * self._panels * COLUMNS
        return {"X": x * PAIR_SIZE, "B": y * PAIR_SIZE}

    @property
    def kept(self) -> None:
        return None

    @property
    def modules(self) -> list[tuple[str, str]]:
        return [filter_text(), self._copied, images_text(self._source(1))]

    @property
    def _copied(self) -> tuple[str, str]:
        """The module that copies x."""
        return (planes_text if self._along.apart == 1 else images_text)(self._source(0))

    @property
    def workspace(self) -> int:
        return self._own_taps * TAP_SUMS

    @property
    def _own_taps(self) -> int:
        """Taps of a unit: all, or so many that there are enough units to share."""
        wanted = -(-UNITS * get_num_threads() // max(self._blocks * self._panels, 1)) if get_num_threads() > 1 else 1
        return -(-self._geometry.taps // wanted)

    def rows(self, rows: Rows, table: list[int], patches: Patches) -> None:
        ch, along, geometry = self.choice, self._along, self._geometry
        if ch.m and ch.n:
            self._copy_x(rows, table, patches)
            self._copy_y(rows, table, patches)
        (down, right), (height, width) = geometry.strides, geometry.places
        pitch = geometry.around.wide * along.apart
        row = max(width * along.apart * COLUMNS * PAIR_SIZE, 1)
        values = {
            "m": ch.m, "n": ch.n, "col_blocks": max(self._panels, 1), "a_row": self._channel_pairs,
            "b_row": self._panels * COLUMNS, "taps": geometry.taps, "own": self._own_taps, "planes": along.planes,
            "height": height if ch.count else 0, "chunk": max(TOGETHER // row, 1), "runs": along.runs,
            "steps": along.steps, "pairs": along.pairs, "by_run": right * along.apart, "by_row": down * pitch,
            "by_plane": self._plane_pairs,
        }  # fmt: skip
        at = self._begin(fill(FILTER_SIZE, AT | FILTER_AT, values), table, patches)
        table[at + FILTER_AT["shape"]] = len(table) - at
        table.extend(shape_of(SIDE, along.pairs))
        table[at + FILTER_AT["offsets"]] = len(table) - at
        (y,), (x,) = geometry.phases
        table.extend(p * pitch + q * along.apart for p in y.offsets for q in x.offsets)
        parts = -(-geometry.taps // self._own_taps)
        units = self._blocks * self._panels * parts if ch.m and ch.n else 0
        rows.append([code_of(*filter_text()), at, units, 1, 0])

    def _copy_x(self, rows: Rows, table: list[int], patches: Patches) -> None:
        ch, along, (image, channel) = self.choice, self._along, self._steps(0)[:2]
        wide, last = self._geometry.around.wide, along.apart > 1
        inner = -(-along.images // SIDE) if last else along.images
        values = {
            "inner": inner, "there": ch.m, "from_outer": channel, "from_inner": (CHANNELS if last else 2) * image,
            "to_outer": self._channel_pairs, "to_inner": SIDE if last else self._plane_pairs, "line": 2 * image,
            "second": image, "lines": -(-ch.count // 2), "seconds": ch.count // 2, "last_seconds": ch.count // 2,
            "stored": along.images, "to_row": wide * along.apart, "to_place": along.apart,
        }  # fmt: skip
        self._copy(0, self._copied, values | self._frame(), ch.m * inner, rows, table, patches)

    def _copy_y(self, rows: Rows, table: list[int], patches: Patches) -> None:
        ch, along, (image, feature) = self.choice, self._along, self._steps(1)[:2]
        width = self._panels * COLUMNS
        by_image, by_place = (width, along.images * width) if along.apart > 1 else (ch.k * width, width)
        values = {
            "inner": width // SIDE, "there": -(-ch.count // 2), "from_outer": 2 * image, "from_inner": SIDE * feature,
            "to_outer": by_image, "to_inner": SIDE, "line": feature, "second": image, "lines": ch.n, "seconds": ch.n,
            "last_seconds": 0 if ch.count % 2 else ch.n, "stored": width, "height": 1, "width": ch.k, "from_row": ch.k,
            "rows": 1, "wide": ch.k, "to_place": by_place,
        }  # fmt: skip
        units = along.images * width // SIDE
        self._copy(1, images_text(self._source(1)), values, units, rows, table, patches)
