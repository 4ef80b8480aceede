"""Sizes of generated attention, and the arguments of its native functions."""

from __future__ import annotations

from lazyt.backends.cpu.gemm_tile import MAX_BATCH

# Keys that a panel of queries meets together: their scores stay in the first-level cache.
KEYS = 64
# Features of a query, a key or a value, at most: what a panel of queries needs of them lies on the stack.
FEATURES = 256
# Heights of micro-kernels beside the tallest: rows are features or a block of keys, so few are left over.
HEIGHTS = (4, 1)
# Bytes of the stack for panels turned around: of the forward function, and of the gradient's.
PANELS = 1 << 17
PANELS_BACK = 200 << 10

# Entries of the int64 arguments; after HEAD, MAX_BATCH times (extent, then the strides of q, k, v, mask and ct).
FIELDS = (
    "queries", "keys", "d", "e", "q_row", "k_row", "v_row", "g_row", "mask_row", "causal", "unit_rows", "blocks",
    "batch", "by", "q", "k", "v", "mask", "o", "l",
    # Of the gradient: the cotangent, what is taken from its products, and the results.
    "g", "delta", "dq", "dk", "dv",
)  # fmt: skip
POINTERS = ("q", "k", "v", "mask", "o", "l", "g", "delta", "dq", "dk", "dv")
AT = {name: i for i, name in enumerate(FIELDS)}
HEAD = len(FIELDS)
OPERANDS = ("q", "k", "v", "mask", "g")
STEP = 1 + len(OPERANDS)
SIZE = HEAD + STEP * MAX_BATCH
