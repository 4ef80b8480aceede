"""Attention by generated code (attention_ir.py): which calls have it, its arguments, and its launches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.common.attention import AT, attends, is_gradient, is_gradient_node, place, sizes
from lazyt.backends.cpu import pair_products
from lazyt.backends.cpu.library.attention_gradient_ir import gradient_text
from lazyt.backends.cpu.library.attention_ir import attention_text
from lazyt.backends.cpu.library.attention_tile import PANELS, PANELS_BACK, panels, parts
from lazyt.backends.cpu.library.attention_tiles_gradient_ir import tiles_gradient_text
from lazyt.backends.cpu.library.attention_tiles_ir import tiles_text
from lazyt.backends.cpu.library.attention_tiles_writer import LONG
from lazyt.backends.cpu.library.gemm_amx import SIDE
from lazyt.backends.cpu.library.gemm_tile import Tile
from lazyt.backends.cpu.library.products import code_of, tile_for
from lazyt.backends.cpu.thread_pool import get_num_threads
from lazyt.backends.cpu.workspace import (
    ATTENTION,
    ATTENTION_GRADIENT,
    ATTENTION_GRADIENT_TILES,
    ATTENTION_TILES,
)
from lazyt.ir import dtypes
from lazyt.ir.attention import as_call, before_cast, mask_of, of_halves, on_halves
from lazyt.ir.symbolic import hint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.common.binding import ScheduleBinding
    from lazyt.backends.common.products import Patches
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import AttentionCall

# By AMX.
TILE = Tile((1,), 4, SIDE, True)
# Units that a thread should find, at least.
SHARES = 4


def calls(b: Builder, n: Node, operands: Sequence[Node]) -> tuple[Node, ...] | None:
    """The results of attention as a call, if there is code for it: by AMX where it is recorded of bfloat16.

    NOTE: its weights are rounded then, which who multiplies float32 copies of bfloat16 may not want.
    """
    if not attends(b, n):
        return None
    found = on_halves(b, n, operands, wide=True) if _has_tiles(b, n, operands) else None
    return as_call(b, n, operands) if found is None else found


def _has_tiles(b: Builder, n: Node, operands: Sequence[Node]) -> bool:
    """Whether queries are float32 copies of bfloat16, of whole registers of features: the plan holds for these."""
    q, _, v = operands[:3]
    if not of_halves(n) or q.dtype != dtypes.float32 or pair_products.dot_products() != "tiles":
        return False
    # NOTE: `on_halves` asks whether the others were cast from the same.
    found = before_cast(b, q)
    if found is None or found.dtype != dtypes.bfloat16:
        return False
    # The gradient multiplies features of v by those of ct.
    if any(hint(x.shape[-1]) % part for x, part in ((q, LONG), (v, LONG if is_gradient_node(n) else SIDE))):
        return False
    for x in (q, v):
        b.same(x.shape[-1], hint(x.shape[-1]))
    return True


def modules(b: ScheduleBinding, c: AttentionCall) -> list[tuple[str, str]]:
    """The code that a call needs (text, name of the function)."""
    count, queries, _, d, e = sizes(b, c)
    return [_text(c.node, queries, d, e)] if count else []


def text_of(n: Node) -> tuple[str, str]:
    """The code that a call will need (text, name of the function), at the extents that it was recorded with."""
    q, _, v = n.operands[:3]
    return _text(n, hint(q.shape[-2]), hint(q.shape[-1]), hint(v.shape[-1]))


def _text(n: Node, queries: int, d: int, e: int) -> tuple[str, str]:
    dtype, at, tile = n.operands[0].dtype, mask_of(n), _tile(n)
    mask = "" if at is None else "bool" if n.operands[at].dtype == dtypes.bool_ else "add"
    used = panels(tile, queries)
    back = is_gradient_node(n)
    if dtype == dtypes.bfloat16:
        return tiles_gradient_text(tile, mask, used) if back else tiles_text(tile, mask, used)
    if not back:
        return attention_text(dtype, tile, mask, used)
    families = sorted({*parts(tile, d), *parts(tile, e)})
    return gradient_text(dtype, tile, mask, used, tuple(families))


def launch(b: ScheduleBinding, c: AttentionCall, rows: list[list[int]], table: list[int], patches: Patches) -> None:
    """Write the row of a program for one call."""
    tile = _tile(c.node)
    count, queries, _, d, e = sizes(b, c)
    if not count:
        return
    back = is_gradient(c)
    # NOTE: panels of bfloat16 have pairs in place of q, and floats in place of o.
    size = max(c.node.operands[0].dtype.itemsize, 4)
    unit = _unit_rows(tile, size, queries, count, d, e, back)
    blocks = 1 if back else -(-queries // unit)
    at = place(b, c, {"unit_rows": unit, "blocks": blocks}, table, patches)
    patches.append((at + AT["workspace"], b.arena_base, b.workspace_at))
    rows.append([code_of(*_text(c.node, queries, d, e)), at, blocks * count, 1, 0])


def workspace(c: AttentionCall) -> int:
    """Bytes of working memory that a thread needs for a call."""
    tiles = c.node.operands[0].dtype == dtypes.bfloat16
    if is_gradient(c):
        return ATTENTION_GRADIENT_TILES if tiles else ATTENTION_GRADIENT
    return ATTENTION_TILES if tiles else ATTENTION


def _tile(n: Node) -> Tile:
    """The panels of a call: by AMX they are as wide as four registers."""
    dtype = n.operands[0].dtype
    if dtype == dtypes.bfloat16:
        return TILE
    tile = tile_for(dtype)
    assert tile is not None
    return tile


def _unit_rows(tile: Tile, size: int, queries: int, count: int, d: int, e: int, back: bool) -> int:
    """Queries that are transposed together: as many panels as working memory holds, but enough units to share."""
    panel = tile.columns
    deep, wide = (-(-x // tile.lanes) * tile.lanes for x in (d, e))
    if back:
        return max(PANELS_BACK // ((2 * deep + wide + 2) * panel * size), 1) * panel
    most = max(PANELS // (max(deep, e + 2) * panel * size), 1)
    panels = -(-queries // panel)
    wanted = -(-SHARES * get_num_threads() // count)
    return max(min(most, panels // wanted), 1) * panel
