"""One elementwise primitive -> an expression in CUDA C, by the rules that all backends share.

A rule of one instruction is written out where it is used, a longer one is a device function that the program has
once: `lt_exp_f32(v3)`. So a kernel reads as one line a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cuda.codegen import native_math
from lazyt.backends.cuda.codegen.text import Body, Module
from lazyt.backends.cuda.flags import switches
from lazyt.backends.math.c_expressions import Expressions
from lazyt.backends.math.table import RULES
from lazyt.errors import LazytInternalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


_expressions = Expressions(Body)
cast = _expressions.cast


def lower(op: str, operands: Sequence[str], in_dtype: np.dtype, module: Module) -> str:
    """The expression of `op`; all operands are of `in_dtype`, but for the exceptions that the CPU's `lower` names."""
    own = native_math.RULES.get(in_dtype, {}) if switches["native-math"] else {}
    rule = own.get(op) or RULES.get(in_dtype, {}).get(op)
    if rule is None:
        raise LazytInternalError(f"the CUDA backend has no rule for {op} on {in_dtype}")
    return _expressions.lower(op, rule, operands, in_dtype, module)


def divide_by(operands: Sequence[str], reciprocal: str, usual: str, module: Module) -> str:
    """The float32 quotient of two operands, the second with its reciprocal at hand."""
    module.include(native_math.DIVIDE_BY)
    return f"lt_divide_by({', '.join(operands)}, {reciprocal}, {usual})"


def quotient(operands: Sequence[str], near: bool, module: Module) -> str:
    """The same where no operand is odd; `near` where it will be rounded to a half."""
    module.include(native_math.QUOTIENTS)
    return f"lt_{'near_' * near}quotient({', '.join(operands)}, 1.0f / {operands[1]})"


def exp_below(x: str, module: Module) -> str:
    """exp of a float32 that is not above 0."""
    module.include(native_math.EXP_BELOW)
    return f"lt_exp_below_f32({x})"
