"""The LLVM IR of Winograd's convolutions with filters that have been read: tiles, 36 products and places in one unit.

A unit has rows of tiles, of one image or of several, and some panels of features. Its tiles are read once, into the
thread's working memory. For each panel the products of all planes, and then the places, are computed there: nothing
but x and the result is in memory. Each sum runs over the channels in order, whatever the units are.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from lazyt.backends.cpu.library.winograd_ir import Image, Planes, Writer
from lazyt.backends.cpu.library.winograd_products_ir import Matrix, micros, multiply
from lazyt.ir.winograd import PANEL, PLANES

if TYPE_CHECKING:
    from lazyt.backends.cpu.library.gemm_tile import Tile


@cache
def convolve_text(tile: Tile) -> tuple[str, str]:
    """The module, and its name."""
    u = Writer(tile.lanes)
    f, arg = u.f, u.arg
    sums = f.at("i8", u.workspace, arg["sums_at"])
    between = f.at("i8", u.workspace, arg["between_at"])
    planes = Planes(u.workspace, u.mul(arg["tiles"], arg["channels"]), arg["channels"])
    with f.loop("%begin", "%end", "1") as unit:
        number, group = u.parts(unit.index, arg["groups"])
        begin = u.mul(number, arg["rows"])
        end = f.smin(u.add(begin, arg["rows"]), arg["total"])
        with f.loop(begin, end, "1") as row:
            _read(u, row.index, u.sub(row.index, begin), planes, between)
        first = u.mul(group, arg["group"])
        last = f.smin(u.add(first, arg["group"]), arg["count"])
        count = u.mul(u.sub(end, begin), arg["right"])
        with f.loop(first, last, "1") as panel:
            features = f.smin(u.sub(arg["features"], u.mul(panel.index, str(PANEL))), str(PANEL))
            _products(u, tile, panel.index, features, count, sums)
            with f.loop(begin, end, "1") as row:
                _write(u, row.index, u.sub(row.index, begin), (panel.index, features), sums, between)
    texts, declared = micros(tile, "row")
    return u.text("lazyt_winograd_convolve", *texts, declared=declared)


def _read(u: Writer, row: str, own: str, planes: Planes, work: str) -> None:
    """A row of tiles, all its channels."""
    f, arg = u.f, u.arg
    number, within = u.parts(row, arg["down"])
    image = u.at(arg["from"], u.mul(number, arg["image"]))
    to = u.at(planes.at, u.mul(u.mul(own, arg["right"]), arg["channels"]))
    with f.loop("0", arg["channels"], str(u.lanes)) as c:
        left = f.smin(u.sub(arg["channels"], c.index), str(u.lanes))
        own_channels = u.at(image, u.mul(c.index, arg["channel"]))
        source = Image(
            own_channels, left, arg["channel"], arg["height"], arg["width"], arg["top"], arg["left"]
        )  # fmt: skip
        u.read("image", source, within, planes._replace(at=u.at(to, c.index)), work)


def _products(u: Writer, tile: Tile, panel: str, features: str, count: str, sums: str) -> None:
    """The sums of one panel of features, of all planes."""
    f, arg = u.f, u.arg
    channels, plane = arg["channels"], u.mul(arg["channels"], str(PANEL))
    filters = u.at(arg["panels"], u.mul(u.mul(panel, plane), str(PLANES)))
    with f.loop("0", str(PLANES), "1") as k:
        a = Matrix(u.at(u.workspace, u.mul(k.index, u.mul(arg["tiles"], channels))), channels)
        b = Matrix(u.at(filters, u.mul(k.index, plane)), str(PANEL))
        c = Matrix(u.at(sums, u.mul(k.index, u.mul(arg["tiles"], str(PANEL)))), str(PANEL))
        multiply(u, tile, (count, features, channels), a, channels, b, c, "false")


def _write(u: Writer, row: str, own: str, panel: tuple[str, str], sums: str, work: str) -> None:
    """A row of tiles of the result, one panel of its features."""
    f, arg = u.f, u.arg
    index, features = panel
    number, within = u.parts(row, arg["down"])
    area = u.mul(arg["out_height"], arg["out_width"])
    first = u.add(u.mul(number, arg["features"]), u.mul(index, str(PANEL)))
    image = u.at(arg["to"], u.mul(first, area))
    source = u.at(sums, u.mul(u.mul(own, arg["right"]), str(PANEL)))
    planes = Planes(source, u.mul(arg["tiles"], str(PANEL)), str(PANEL))
    with f.loop("0", features, str(u.lanes)) as c:
        left = f.smin(u.sub(features, c.index), str(u.lanes))
        target = Image(u.at(image, u.mul(c.index, area)), left, area, arg["out_height"], arg["out_width"])
        u.write(planes._replace(at=u.at(source, c.index)), target, within, work)
