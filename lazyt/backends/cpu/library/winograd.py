"""Launches of Winograd's convolutions: see winograd_ir.py and winograd_convolve_ir.py for their machine code."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.backends.cpu.engine import host_features
from lazyt.backends.cpu.library import winograd_ir as ir
from lazyt.backends.cpu.library.products import code_of, tile_for
from lazyt.backends.cpu.library.winograd_convolve_ir import convolve_text
from lazyt.backends.cpu.library.winograd_filter_ir import sums_text
from lazyt.backends.cpu.thread_pool import get_num_threads
from lazyt.backends.cpu.workspace import WORKSPACE
from lazyt.config import cpu as switches
from lazyt.ir import graph as g
from lazyt.ir.passes.call_operands import buffer_of
from lazyt.ir.winograd import CHUNKS, PANEL, PLANES

if TYPE_CHECKING:
    from lazyt.backends.common.binding import ScheduleBinding
    from lazyt.backends.cpu.library.gemm_tile import Tile
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import LibraryCall

    Rows = list[list[int]]
    Patches = list[tuple[int, int, int]]

# Vectors of planes that a chunk should have at least.
GRAIN = 4096
# Tiles of a unit of a convolution: so many meet a panel of filters that is read from beyond the second-level cache.
TILES = 32
# Results of so many bytes are written past the caches.
STREAMED = 8 << 20
# Units of each thread, at least, where there is so much to do.
UNITS = 4


def native(c: LibraryCall) -> bool:
    """Whether there is machine code for this call."""
    return c.operands[0].dtype == ir.DTYPE and None not in c.results


def suits(b: ScheduleBinding, c: LibraryCall) -> bool:
    """Where what a unit works on fits the working memory."""
    return workspace(b, c) <= WORKSPACE


def prepare(c: LibraryCall) -> None:
    """Nothing: which machine code a call needs depends on its extents (see `module`)."""


def workspace(b: ScheduleBinding, c: LibraryCall) -> int:
    """Bytes of working memory of a unit."""
    lanes, statics = _tile().lanes, _statics(c)
    match _name(c):
        case "winograd_tiles":
            return ir.read_bytes(statics[0], statics[2][1], lanes)
        case "winograd_convolve":
            *_, end = _areas(_rows(b, c), b.value(c.operands[0].shape[1]), PANEL, statics[1][1])
            return end
        case "winograd_filter_sums":
            channels, features = (b.value(x.shape[1]) for x in c.operands)
            *_, end = _areas(_sum_rows(b, c), channels, features, statics[1][1])
            return end
        case _:
            return ir.filter_bytes(lanes)


def launch(b: ScheduleBinding, c: LibraryCall, rows: Rows, table: list[int], patches: Patches) -> None:
    """Write the row of a program for one call."""
    units, grain, values = _LAUNCHES[_name(c)](b, c)
    if not units:
        return
    at, (result,) = len(table), c.results
    assert result is not None, "asked for in `native`"
    for field, node in zip(("from", "panels", "to"), (c.operands[0], c.operands[-1], result), strict=True):
        b._address(buffer_of(node), 0, node.dtype.itemsize, at + ir.AT[field], patches)
    patches.append((at + ir.AT["workspace"], b.arena_base, b.workspace_at))
    table.extend(values.get(field, 0) for field in ir.FIELDS)
    rows.append([code_of(*module(b, c)), at, units, max(grain, 1), 0])


def _tile(form: str = "row") -> Tile:
    tile = tile_for(ir.DTYPE, form)
    assert tile is not None, "there is one for float32"
    return tile


def _name(c: LibraryCall) -> str:
    assert isinstance(c.node.attrs, g.Opaque)
    return c.node.attrs.fn


def _statics(c: LibraryCall) -> tuple[Any, ...]:
    assert isinstance(c.node.attrs, g.Opaque)
    return c.node.attrs.statics


def module(b: ScheduleBinding, c: LibraryCall) -> tuple[str, str]:
    """The text of the machine code of a call, and the name of its function."""
    tile = _tile()
    match _name(c):
        case "winograd_tiles":
            return ir.tiles_text(_statics(c)[0], tile.lanes, _streams(b, c))
        case "winograd_filters":
            return ir.filters_text(tile.lanes, _streams(b, c))
        case "winograd_filter_sums":
            return sums_text(_tile("col"))
        case "winograd_filter_slope":
            return ir.slope_text(tile.lanes)
        case _:
            return convolve_text(tile)


def _streams(b: ScheduleBinding, c: LibraryCall) -> bool:
    """Whether a result is written past the caches: in whole vectors, where it is larger than those."""
    (result,) = c.results
    assert result is not None, "asked for in `native`"
    shape = [b.value(d) for d in result.shape]
    whole = not shape[-1] % _tile().lanes and math.prod(shape) * ir.BYTES >= STREAMED
    return whole and switches["stream"] and "avx" in host_features()


Launched = tuple[int, int, dict[str, int]]  # units, units of a chunk, arguments


def _image(b: ScheduleBinding, x: Node) -> dict[str, int]:
    channels, height, width = (b.value(d) for d in x.shape[1:])
    area = height * width
    return {"channels": channels, "channel": area, "image": channels * area, "height": height, "width": width}


def _tiles(b: ScheduleBinding, c: LibraryCall) -> Launched:
    x, (_, (top, left), (down, right)) = c.operands[0], _statics(c)
    values = _image(b, x) | {"top": top, "left": left, "down": down, "right": right}
    n, channels = b.value(x.shape[0]), values["channels"]
    values["plane"] = n * down * right * channels
    units = n * down * -(-channels // _tile().lanes)
    return units, GRAIN // (right * PLANES), values


def _filters(b: ScheduleBinding, c: LibraryCall) -> Launched:
    features, channels = (b.value(d) for d in c.operands[0].shape[:2])
    units = -(-features // _tile().lanes) * -(-channels // ir.CHANNELS)
    return units, GRAIN // (ir.CHANNELS * PLANES), {"channels": channels, "features": features}


def _filter_slope(b: ScheduleBinding, c: LibraryCall) -> Launched:
    channels, features = (b.value(d) for d in c.operands[0].shape[1:])
    units = channels * -(-features // _tile().lanes)
    return units, GRAIN // PLANES, {"features": features, "plane": channels * features}


def _rows(b: ScheduleBinding, c: LibraryCall) -> int:
    """Rows of tiles of a unit of a convolution."""
    x, (_, (down, right), _) = c.operands[0], _statics(c)
    n, channels = b.value(x.shape[0]), b.value(x.shape[1])
    wanted = max(TILES // right, 1)
    most = min(wanted, max(-(-n * down // (UNITS * get_num_threads())), -(-wanted // 2)), max(n * down, 1))
    return _fitting(most, channels, PANEL, right)


def _sum_rows(b: ScheduleBinding, c: LibraryCall) -> int:
    """Rows of tiles that a unit of sums has at a time. NOTE: the order of its sums must not depend on threads."""
    channels, features = (b.value(x.shape[1]) for x in c.operands)
    right = _statics(c)[1][1]
    return _fitting(max(TILES // right, 1), channels, features, right)


def _fitting(rows: int, channels: int, features: int, right: int) -> int:
    """So many rows, or as many as fit the working memory."""
    while rows > 1 and _areas(rows, channels, features, right)[-1] > WORKSPACE:
        rows -= 1
    return rows


def _areas(rows: int, channels: int, features: int, right: int) -> tuple[int, int, int]:
    """Where the second planes of a unit and what is between two matrices lie in the working memory, and its size."""
    lanes = _tile().lanes
    sums = PLANES * rows * right * channels * ir.BYTES
    between = sums + PLANES * rows * right * features * ir.BYTES
    return sums, between, between + max(ir.read_bytes("image", right, lanes), ir.written_bytes(right, lanes))


def _convolve(b: ScheduleBinding, c: LibraryCall) -> Launched:
    x, ((top, left), (down, right), (features, height, width)) = c.operands[0], _statics(c)
    values = _image(b, x) | {"top": top, "left": left, "down": down, "right": right, "features": features}
    rows, total = _rows(b, c), b.value(x.shape[0]) * down
    sums, between, _ = _areas(rows, values["channels"], PANEL, right)
    blocks, count = -(-total // rows), -(-features // PANEL)
    # Where there are few rows, threads have panels of their own.
    group = max(-(-count * blocks // (2 * get_num_threads())), 1) if blocks < 2 * get_num_threads() else count
    group = min(group, count)
    values |= {
        "tiles": rows * right, "rows": rows, "total": total, "groups": -(-count // group), "group": group,
        "count": count, "sums_at": sums, "between_at": between, "out_height": height, "out_width": width,
    }  # fmt: skip
    return blocks * values["groups"], 1, values


def _filter_sums(b: ScheduleBinding, c: LibraryCall) -> Launched:
    (x, y), ((top, left), (down, right)) = c.operands, _statics(c)
    seen = _image(b, y)
    values = _image(b, x) | {"top": top, "left": left, "down": down, "right": right}
    rows, total = _sum_rows(b, c), b.value(x.shape[0]) * down
    sums, between, _ = _areas(rows, values["channels"], seen["channels"], right)
    values |= {
        "features": seen["channels"], "plane": seen["channel"], "out_height": seen["height"],
        "out_width": seen["width"], "tiles": rows * right, "rows": rows, "total": total,
        "group": -(-total // CHUNKS), "sums_at": sums, "between_at": between,
    }  # fmt: skip
    return CHUNKS, 1, values


_LAUNCHES = {
    "winograd_tiles": _tiles, "winograd_filters": _filters, "winograd_filter_slope": _filter_slope,
    "winograd_convolve": _convolve, "winograd_filter_sums": _filter_sums,
}  # fmt: skip
