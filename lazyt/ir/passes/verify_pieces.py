"""The rules of the pieces that a kernel is launched as: partial results are written before they are read, and all of
what the kernel stores is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.errors import LazytInternalError
from lazyt.ir import kernel as k
from lazyt.ir.passes.regions import Region, united
from lazyt.ir.passes.split_reduction import Scratch
from lazyt.ir.passes.stage_reuse import evaluated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lazyt.ir.passes.split_reduction import Operand, Piece

    Source = int | Scratch


def verify_pieces(
    kernel: k.Kernel, extents: Sequence[int], strides: Sequence[Sequence[int]], pieces: Sequence[Piece]
) -> None:
    """Raise LazytInternalError at the first rule that the pieces of `kernel` break; strides as in `split`."""
    written: dict[Source, list[Region]] = {}
    beside: list[tuple[Source, Region]] = []  # of this piece and those that it may run beside
    for piece in pieces:
        for x in _reads(piece):
            if isinstance(x.source, Scratch):
                _need_whole(kernel, x, piece, written.get(x.source, []))
        beside += _stores(piece)
        if not piece.joins:
            for source, region in beside:
                written.setdefault(source, []).append(region)
            beside.clear()
    for stage in kernel.stages:
        count = len(extents) if stage.loops else kernel.outer
        for s in stage.stores:
            whole = Region.of(None, 0, strides[s.access][:count], extents[:count], 1)
            made = united(None, written.get(s.access, []), strides[s.access][:count])
            _need(kernel, [whole] == made, f"@{s.access} stores {_text([whole])}, the pieces {_text(made)}")


def _need(kernel: k.Kernel, cond: bool, why: str) -> None:
    if not cond:
        raise LazytInternalError(f"invalid pieces: {why}\n{kernel.text}")


def _need_whole(kernel: k.Kernel, x: Operand, piece: Piece, made: Sequence[Region]) -> None:
    """Require that a piece reads scratch memory inside its bounds, and that all of it was written."""
    assert isinstance(x.source, Scratch)
    count = x.source.count
    steps = {s for region in made for s, _ in region.axes if isinstance(s, int)}
    whole = any(r.is_first(None, count) for r in united(None, made, [*steps]))
    _need(kernel, whole, f"of {count} partial results these are written before they are read: {_text(made)}")
    last = x.shift + sum(s * (n - 1) for s, n in zip(x.strides, piece.extents, strict=True))
    _need(kernel, 0 <= x.shift <= last < count, f"partial results {x.shift} to {last} of {count} are read")


def _reads(piece: Piece) -> Iterator[Operand]:
    for stage in piece.kernel.stages:
        for v in evaluated(piece.kernel, stage):
            value = piece.kernel.values[v]
            if isinstance(value, k.Load | k.Gather):
                yield piece.operands[value.access]


def _stores(piece: Piece) -> Iterator[tuple[Source, Region]]:
    for stage in piece.kernel.stages:
        count = len(piece.extents) if stage.loops else piece.kernel.outer
        for s in stage.stores:
            x = piece.operands[s.access]
            region = Region.of(None, x.shift, x.strides[:count], piece.extents[:count], 1)
            _need(piece.kernel, region is not None, f"@{s.access} is stored twice")
            assert region is not None
            yield x.source, region


def _text(regions: Sequence[Region | None]) -> str:
    return ", ".join(map(str, regions)) or "nothing"
