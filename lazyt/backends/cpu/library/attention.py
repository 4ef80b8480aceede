"""Attention by generated code (attention_ir.py): which calls have it, its arguments, and its launches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.cpu.engine import compile_early
from lazyt.backends.cpu.library.attention_gradient_ir import gradient_text
from lazyt.backends.cpu.library.attention_ir import attention_text
from lazyt.backends.cpu.library.attention_tile import (
    AT,
    FEATURES,
    HEAD,
    OPERANDS,
    PANELS,
    PANELS_BACK,
    SIZE,
    STEP,
    panels,
    parts,
)
from lazyt.backends.cpu.library.gemm_tile import MAX_BATCH, Tile
from lazyt.backends.cpu.library.products import code_of, tile_for
from lazyt.backends.cpu.thread_pool import get_num_threads
from lazyt.ir import dtypes, graph as g
from lazyt.ir.attention import as_call, causal_of, is_attention, mask_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.cpu.binding import Binding
    from lazyt.backends.cpu.library.products import Patches
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Graph, Node
    from lazyt.ir.passes.schedule import AttentionCall

# Fewer queries leave most lanes of a panel empty; and their weights are no square.
QUERIES = 8
# Units that a thread should find, at least.
SHARES = 4


def calls(b: Builder, n: Node, operands: Sequence[Node]) -> tuple[Node, ...] | None:
    """The results of attention as a call, if there is code for it."""
    return as_call(b, n, operands) if attends(b, n) else None


def attends(b: Builder, n: Node) -> bool:
    """Whether a call has generated code; others are products. A plan made so holds only where it is so."""
    assert is_attention(n), "attention or its gradient"
    q, k, v = n.operands[:3]
    if (
        n.operands[-1].op not in ("scalar", "constant")
        or q.dtype not in (dtypes.float32, dtypes.float64)
        or q.ndim - 2 > MAX_BATCH
    ):
        return False
    wanted = ((q.shape[-2], QUERIES), (k.shape[-2], 1), (q.shape[-1], 1), (v.shape[-1], 1))
    if not all(b.at_least(d, least) for d, least in wanted):
        return False
    return not any(b.at_least(d, FEATURES + 1) for d in (q.shape[-1], v.shape[-1]))


def modules(b: Binding, c: AttentionCall) -> list[tuple[str, str]]:
    """The code that a call needs (text, name of the function)."""
    count, queries, _, d, e = sizes(b, c)
    return [_text(c.node, queries, d, e)] if count else []


def begin(graph: Graph) -> None:
    """Begin to compile what the calls in a graph will need, for the extents that it was recorded with."""
    found: dict[tuple[str, str], None] = {}
    for n in graph.nodes:
        if isinstance(n.attrs, g.Opaque) and is_attention(n):
            q, _, v = n.operands[:3]
            sides = (q.shape[-2], q.shape[-1], v.shape[-1])
            # NOTE: a hint, as nothing but time depends on it.
            found[_text(n, *(x if isinstance(x, int) else x.hint for x in sides))] = None
    if found:
        compile_early(list(found), get_num_threads())


def _text(n: Node, queries: int, d: int, e: int) -> tuple[str, str]:
    dtype, at = n.operands[0].dtype, mask_of(n)
    tile = tile_for(dtype)
    assert tile is not None
    mask = "" if at is None else "bool" if n.operands[at].dtype == dtypes.bool_ else "add"
    used = panels(tile, queries)
    if not _is_gradient(n):
        return attention_text(dtype, tile, mask, used)
    families = sorted({*parts(tile, d), *parts(tile, e)})
    return gradient_text(dtype, tile, mask, used, tuple(families))


def launch(b: Binding, c: AttentionCall, rows: list[list[int]], table: list[int], patches: Patches) -> None:
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
    rows.append([code_of(*_text(c.node, queries, d, e)), at, blocks * count, 1, 0])


def is_gradient(c: AttentionCall) -> bool:
    return _is_gradient(c.node)


def _is_gradient(n: Node) -> bool:
    assert isinstance(n.attrs, g.Opaque)
    return n.attrs.fn == "attention_gradient"


def sizes(b: Binding, c: AttentionCall) -> tuple[int, int, int, int, int]:
    """How many matrices, queries, keys, and features of these and of values."""
    q, k, v = c.node.operands[:3]
    count = math.prod(b.value(x) for x in q.shape[:-2])
    return count, b.value(q.shape[-2]), b.value(k.shape[-2]), b.value(k.shape[-1]), b.value(v.shape[-1])


def positions(c: AttentionCall) -> dict[str, int]:
    """Where the arrays that are read stand among the operands."""
    found = {"q": 0, "k": 1, "v": 2}
    if (mask := mask_of(c.node)) is not None:
        found["mask"] = mask
    if is_gradient(c):
        first = len(c.node.operands) - 4
        found |= {"l": first, "delta": first + 1, "g": first + 2}
    return found


def place(b: Binding, c: AttentionCall, own: dict[str, int], table: list[int], patches: Patches) -> int:
    """Write the arguments of a call at the end of the table, a backend's own too; where they begin."""
    n, at, position = c.node, len(table), positions(c)
    names = ("dq", "dk", "dv") if is_gradient(c) else ("o", "l")
    steps = {name: [b.value(s) for s in c.views[i][1]] for name, i in position.items()}
    if "mask" in position:
        # A mask's own extents may be 1 where there are several.
        shape = [b.value(x) for x in n.operands[position["mask"]].shape]
        steps["mask"] = [0 if x == 1 else s for x, s in zip(shape, steps["mask"], strict=True)]
    leading = [b.value(x) for x in n.operands[0].shape[:-2]]
    _, queries, keys, d, e = sizes(b, c)
    args = [0] * SIZE
    values = {"queries": queries, "keys": keys, "d": d, "e": e, "causal": int(causal_of(n)), "batch": len(leading)}
    for name in steps.keys() & set(OPERANDS):
        values[f"{name}_row"] = steps[name][-2]
    for name, x in (values | own).items():
        args[AT[name]] = x
    for i, extent in enumerate(leading):
        here = HEAD + STEP * i
        args[here : here + STEP] = [extent, *(steps[name][i] if name in steps else 0 for name in OPERANDS)]
    table.extend(args)
    for name, i in position.items():
        base, _, offset = c.views[i]
        b._address(base, offset, base.dtype.itemsize, at + AT[name], patches)
    for name, result in zip(names, c.results, strict=True):
        if result is not None:
            b._address(result, 0, result.dtype.itemsize, at + AT[name], patches)
    by = n.operands[-1]
    if isinstance(by.attrs, g.Constant):
        table[at + AT["by"]] = int(np.array(by.attrs.value, np.float64).view(np.int64))
    for s in c.scalars:
        patches.append((at + AT["by"], b.scalar_base[s.position, s.part, s.floating], 0))
    return at


def _unit_rows(tile: Tile, size: int, queries: int, count: int, d: int, e: int, back: bool) -> int:
    """Queries that are turned around together: as many panels as lie on the stack, but enough units to share."""
    panel = tile.columns
    deep, wide = (-(-x // tile.lanes) * tile.lanes for x in (d, e))
    if back:
        return max(PANELS_BACK // ((2 * deep + wide + 2) * panel * size), 1) * panel
    most = max(PANELS // (max(deep, e + 2) * panel * size), 1)
    panels = -(-queries // panel)
    wanted = -(-SHARES * get_num_threads() // count)
    return max(min(most, panels // wanted), 1) * panel
