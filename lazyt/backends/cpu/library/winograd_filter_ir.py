"""The LLVM IR of the sums over tiles of Winograd's derivative by filters.

A unit is one chunk of the rows of tiles. It reads some tiles of the image and of the derivative by the places into its
thread's working memory, and adds their products, of all planes, to the chunk's sums; then the next tiles. Only the sums
are in memory. Each sum runs over the tiles of its chunk in order, whoever computes it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from lazyt.backends.cpu.library.winograd_ir import Image, Planes, Writer
from lazyt.backends.cpu.library.winograd_products_ir import Matrix, micros, multiply
from lazyt.ir.winograd import PLANES

if TYPE_CHECKING:
    from lazyt.backends.cpu.library.gemm_tile import Tile


@cache
def sums_text(tile: Tile) -> tuple[str, str]:
    """The module, and its name. `tile` is of the form that reads its left operand along columns."""
    u = Writer(tile.lanes)
    f, arg = u.f, u.arg
    slopes = f.at("i8", u.workspace, arg["sums_at"])
    between = f.at("i8", u.workspace, arg["between_at"])
    channels, features = arg["channels"], arg["features"]
    read = Planes(u.workspace, u.mul(arg["tiles"], channels), channels)
    seen = Planes(slopes, u.mul(arg["tiles"], features), features)
    size = u.mul(u.mul(channels, features), str(PLANES))
    image = Image(arg["from"], channels, arg["channel"], arg["height"], arg["width"], arg["top"], arg["left"])
    slope = Image(arg["panels"], features, arg["plane"], arg["out_height"], arg["out_width"])
    with f.loop("%begin", "%end", "1") as unit:
        sums = u.at(arg["to"], u.mul(unit.index, size))
        begin = u.mul(unit.index, arg["group"])
        end = f.smin(u.add(begin, arg["group"]), arg["total"])
        with f.when(f.let(f"icmp sge i64 {begin}, {end}")):
            u.zeros(sums, f.let(f"udiv i64 {size}, {u.lanes}"))
        with f.loop(begin, end, arg["rows"]) as some:
            stop = f.smin(u.add(some.index, arg["rows"]), end)
            with f.loop(some.index, stop, "1") as row:
                number, within = u.parts(row.index, arg["down"])
                own = u.mul(u.sub(row.index, some.index), arg["right"])
                for kind, images, planes in (("image", image, read), ("slope", slope, seen)):
                    to = planes._replace(at=u.at(planes.at, u.mul(own, planes.tile)))
                    _read(u, kind, images, (number, within), to, between)
            count = u.mul(u.sub(stop, some.index), arg["right"])
            more = f.let(f"icmp ne i64 {some.index}, {begin}")
            with f.loop("0", str(PLANES), "1") as k:
                a = Matrix(u.at(read.at, u.mul(k.index, read.plane)), channels)
                b = Matrix(u.at(seen.at, u.mul(k.index, seen.plane)), features)
                c = Matrix(u.at(sums, u.mul(k.index, u.mul(channels, features))), features)
                multiply(u, tile, (channels, features, count), a, "1", b, c, more)
    texts, declared = micros(tile, "col")
    return u.text("lazyt_winograd_sums", *texts, declared=declared)


def _read(u: Writer, kind: str, images: Image, place: tuple[str, str], planes: Planes, work: str) -> None:
    """A row of tiles, all its channels. place: the number of its image, and of the row in that."""
    f, (number, row) = u.f, place
    first = u.at(images.at, u.mul(u.mul(number, images.channel), images.channels))
    with f.loop("0", images.channels, str(u.lanes)) as c:
        left = f.smin(u.sub(images.channels, c.index), str(u.lanes))
        own = images._replace(at=u.at(first, u.mul(c.index, images.channel)), channels=left)
        u.read(kind, own, row, planes._replace(at=u.at(planes.at, c.index)), work)
