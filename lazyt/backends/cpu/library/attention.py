"""Attention by generated code (attention_ir.py): which calls have it, its arguments, and its launches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.common.attention import AT, attends, is_gradient, is_gradient_node, place, sizes
from lazyt.backends.cpu.library.attention_gradient_ir import gradient_text
from lazyt.backends.cpu.library.attention_ir import attention_text
from lazyt.backends.cpu.library.attention_tile import PANELS, PANELS_BACK, panels, parts
from lazyt.backends.cpu.library.gemm_tile import Tile
from lazyt.backends.cpu.library.products import code_of, tile_for
from lazyt.backends.cpu.thread_pool import get_num_threads
from lazyt.backends.cpu.workspace import ATTENTION, ATTENTION_GRADIENT
from lazyt.ir import dtypes
from lazyt.ir.attention import as_call, mask_of
from lazyt.ir.symbolic import hint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.common.binding import ScheduleBinding
    from lazyt.backends.common.products import Patches
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import AttentionCall

# Units that a thread should find, at least.
SHARES = 4


def calls(b: Builder, n: Node, operands: Sequence[Node]) -> tuple[Node, ...] | None:
    """The results of attention as a call, if there is code for it."""
    return as_call(b, n, operands) if attends(b, n) else None


def modules(b: ScheduleBinding, c: AttentionCall) -> list[tuple[str, str]]:
    """The code that a call needs (text, name of the function)."""
    count, queries, _, d, e = sizes(b, c)
    return [_text(c.node, queries, d, e)] if count else []


def text_of(n: Node) -> tuple[str, str]:
    """The code that a call will need (text, name of the function), at the extents that it was recorded with."""
    q, _, v = n.operands[:3]
    return _text(n, hint(q.shape[-2]), hint(q.shape[-1]), hint(v.shape[-1]))


def _text(n: Node, queries: int, d: int, e: int) -> tuple[str, str]:
    dtype, at = n.operands[0].dtype, mask_of(n)
    tile = tile_for(dtype)
    assert tile is not None
    mask = "" if at is None else "bool" if n.operands[at].dtype == dtypes.bool_ else "add"
    used = panels(tile, queries)
    if not is_gradient_node(n):
        return attention_text(dtype, tile, mask, used)
    families = sorted({*parts(tile, d), *parts(tile, e)})
    return gradient_text(dtype, tile, mask, used, tuple(families))


def launch(b: ScheduleBinding, c: AttentionCall, rows: list[list[int]], table: list[int], patches: Patches) -> None:
    """Write the row of a program for one call."""
    q = c.node.operands[0]
    tile = tile_for(q.dtype)
    assert tile is not None
    count, queries, _, d, e = sizes(b, c)
    if not count:
        return
    back = is_gradient(c)
    unit = _unit_rows(tile, q.dtype.itemsize, queries, count, d, e, back)
    blocks = 1 if back else -(-queries // unit)
    at = place(b, c, {"unit_rows": unit, "blocks": blocks}, table, patches)
    patches.append((at + AT["workspace"], b.arena_base, b.workspace_at))
    rows.append([code_of(*_text(c.node, queries, d, e)), at, blocks * count, 1, 0])


def workspace(c: AttentionCall) -> int:
    """Bytes of working memory that a thread needs for a call."""
    return ATTENTION_GRADIENT if is_gradient(c) else ATTENTION


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
