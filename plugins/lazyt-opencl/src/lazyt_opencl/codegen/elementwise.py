"""One elementwise primitive -> an expression in OpenCL C, by the rules that all backends of lazyt share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.math.c_expressions import Expressions
from lazyt.backends.math.table import RULES
from lazyt.errors import LazytInternalError
from lazyt_opencl.codegen.text import Body, Module

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

_expressions = Expressions(Body)
cast = _expressions.cast


def lower(op: str, operands: Sequence[str], in_dtype: np.dtype, module: Module) -> str:
    """The expression of `op`; all operands are of `in_dtype`, but for the condition of a select."""
    rule = RULES.get(in_dtype, {}).get(op)
    if rule is None:
        raise LazytInternalError(f"the OpenCL backend has no rule for {op} on {in_dtype}")
    return _expressions.lower(op, rule, operands, in_dtype, module)
