"""Attention calls that a backend computes itself: which ones qualify, and the arguments of their functions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.common.products import MAX_BATCH
from lazyt.ir import dtypes, graph as g
from lazyt.ir.attention import causal_of, is_attention, mask_of

if TYPE_CHECKING:
    from lazyt.backends.common.binding import ScheduleBinding
    from lazyt.backends.common.products import Patches
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import AttentionCall

# Fewer queries leave most lanes of a panel empty, and their weights are not quadratic in the length.
QUERIES = 8
# Features of a query, a key or a value, at most: what a panel of queries needs of them lies in working memory.
FEATURES = 256

# Entries of the int64 arguments; after HEAD, MAX_BATCH times (extent, then the strides of q, k, v, mask and ct).
FIELDS = (
    "queries", "keys", "d", "e", "q_row", "k_row", "v_row", "g_row", "mask_row", "causal", "unit_rows", "blocks",
    "batch", "by", "q", "k", "v", "mask", "o", "l",
    # Of the gradient: the cotangent, what is taken from its products, and the results.
    "g", "delta", "dq", "dk", "dv",
    # Working memory of the calling thread, where a backend's code needs it.
    "workspace",
)  # fmt: skip
POINTERS = ("workspace", "q", "k", "v", "mask", "o", "l", "g", "delta", "dq", "dk", "dv")
AT = {name: i for i, name in enumerate(FIELDS)}
HEAD = len(FIELDS)
OPERANDS = ("q", "k", "v", "mask", "g")
STEP = 1 + len(OPERANDS)
SIZE = HEAD + STEP * MAX_BATCH


def attends(b: Builder, n: Node) -> bool:
    """Whether a call has generated code; others are products. The plan then holds only where the answer is the same."""
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


def is_gradient(c: AttentionCall) -> bool:
    return is_gradient_node(c.node)


def is_gradient_node(n: Node) -> bool:
    assert isinstance(n.attrs, g.Opaque)
    return n.attrs.fn == "attention_gradient"


def sizes(b: ScheduleBinding, c: AttentionCall) -> tuple[int, int, int, int, int]:
    """The numbers of matrices, queries, keys, features of these, and features of values."""
    q, k, v = c.node.operands[:3]
    count = math.prod(b.value(x) for x in q.shape[:-2])
    return count, b.value(q.shape[-2]), b.value(k.shape[-2]), b.value(k.shape[-1]), b.value(v.shape[-1])


def positions(c: AttentionCall) -> dict[str, int]:
    """The positions of the arrays that are read among the operands."""
    found = {"q": 0, "k": 1, "v": 2}
    if (mask := mask_of(c.node)) is not None:
        found["mask"] = mask
    if is_gradient(c):
        first = len(c.node.operands) - 4
        found |= {"l": first, "delta": first + 1, "g": first + 2}
    return found


def place(b: ScheduleBinding, c: AttentionCall, own: dict[str, int], table: list[int], patches: Patches) -> int:
    """Append the arguments of a call to the table, with a backend's own; gives their start."""
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
