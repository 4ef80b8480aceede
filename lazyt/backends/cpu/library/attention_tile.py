"""Sizes of generated attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lazyt.backends.cpu.library.gemm_tile import Family, Tile

# Keys that a panel of queries meets together: their scores stay in the first-level cache.
KEYS = 64
# Heights of micro-kernels beside the tallest: rows are features or a block of keys, so few are left over.
HEIGHTS = (4, 1)
# Bytes of working memory for transposed panels: of the forward function, and of the gradient's.
PANELS = 1 << 17
PANELS_BACK = 200 << 10
# ... and for the scores of a block of keys and a panel: four vectors of 64 bytes at most.
SCORES = KEYS * 256


# By AMX: bytes for keys that are no 16, and for values of a block of keys, transposed.
KEYS_PACKED = 16 * 256 * 2
VALUES = 256 * 256


def widths(tile: Tile) -> list[int]:
    """The vectors of a panel that there may be code for; what is left of queries takes the next more."""
    return sorted({1, 2, tile.vectors})


def panels(tile: Tile, queries: int) -> tuple[int, ...]:
    """The vectors of the panels that so many queries may make.

    Behind whole panels all are had: lengths that change should find their code, and a plan its binding.
    """
    if queries < tile.columns:
        return (next(w for w in widths(tile) if queries <= w * tile.lanes),)
    return tuple(widths(tile)) if queries % tile.columns else (tile.vectors,)


def parts(tile: Tile, features: int) -> tuple[Family, ...]:
    """The micro-kernels that so many features take along the columns of a product; masked ones only where they must."""
    whole, rest = ((tile.vectors, False),) if features >= tile.columns else (), features % tile.columns
    for v in range(1, tile.vectors + 1):
        if rest and rest <= v * tile.lanes:
            return (*whole, (v, v not in widths(tile) or rest != v * tile.lanes))
    return whole
