"""Working memory of library kernels: what products, convolutions and attention need beside their arrays.

A kernel that packs operands needs more than a thread's stack is sure to hold (a user's own thread may have 128 KB). It
takes a fourth parameter: the workspace of the worker that runs it, or null on the calling thread, whose workspace lies
in the plan's arena at the address in the arguments.

    void kernel(ptr args, i64 begin, i64 end, ptr workspace)

Kernels without a workspace leave the parameter out: in C's calling conventions an argument more does no harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cpu.library.attention_tile import KEYS_PACKED, PANELS, PANELS_BACK, SCORES, VALUES
from lazyt.backends.cpu.library.gemm_tile import FINISHED, PACKED_A, PACKED_B, SCRATCH

if TYPE_CHECKING:
    from lazyt.backends.cpu.codegen.lines import Lines
    from lazyt.backends.cpu.codegen.looptext import Function

# Bytes, at most: of products, convolutions, attention and its gradient (of bfloat16 by AMX, too).
PRODUCT = FINISHED + PACKED_B + PACKED_A
CONVOLUTION = 2 * SCRATCH
ATTENTION = 2 * PANELS + 2 * SCORES
ATTENTION_TILES = ATTENTION + 5 * SCORES + KEYS_PACKED + VALUES
ATTENTION_GRADIENT = PANELS_BACK + 3 * SCORES
ATTENTION_GRADIENT_TILES = PANELS_BACK + 8 * SCORES + KEYS_PACKED + VALUES
# What a worker has: enough for each of them.
WORKSPACE = max(PRODUCT, CONVOLUTION, ATTENTION_TILES, ATTENTION_GRADIENT, ATTENTION_GRADIENT_TILES)

PARAMETERS = "ptr %args, i64 %begin, i64 %end, ptr %workspace"


def workspace_of(f: Function | Lines, own: str) -> str:
    """The workspace of the thread that runs a kernel; `own`: the caller's, from the arguments."""
    by_caller = f.let("icmp eq ptr %workspace, null")
    return f.let(f"select i1 {by_caller}, ptr {own}, ptr %workspace")
