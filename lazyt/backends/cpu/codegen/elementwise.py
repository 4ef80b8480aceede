"""One elementwise primitive -> LLVM IR on vectors, by the rules that all backends share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.math import casts
from lazyt.backends.math.elements import reg_type
from lazyt.backends.math.table import OPS as OPS, RULES
from lazyt.backends.math.vector import Vec
from lazyt.errors import LazytInternalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from lazyt.backends.cpu.codegen.text import Body


def lower(op: str, operands: Sequence[str], in_dtype: np.dtype, body: Body, lanes: int) -> str:
    """Append the IR of `op`; the name of its result.

    All operands are of `in_dtype`, but for the condition of `select`, which is bool, and the first
    two of `random_bits` (uint64 seed and counter, then an int64 index).
    """
    rule = RULES.get(in_dtype, {}).get(op)
    if rule is None:
        raise LazytInternalError(f"the CPU backend has no rule for {op} on {in_dtype}")
    types = [reg_type(in_dtype)] * len(operands)
    if op == "select":
        types[0] = "i1"
    return rule(*(Vec(body, x, t, lanes) for x, t in zip(operands, types, strict=True))).name


def cast(x: str, from_dtype: np.dtype, to_dtype: np.dtype, body: Body, lanes: int) -> str:
    """Append the IR that converts `x`; the name of its result."""
    return casts.convert(Vec(body, x, reg_type(from_dtype), lanes), from_dtype, to_dtype).name
