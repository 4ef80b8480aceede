"""One elementwise primitive -> an expression in OpenCL C, by the rules that all backends of lazyt share.

A rule of one instruction is written out where it is used, a longer one is a function that the program has once:
`lt_exp_f32(v3)`. So a kernel reads as one line a value.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from lazyt.backends.math import casts
from lazyt.backends.math.elements import BFLOAT16, reg_type
from lazyt.backends.math.table import RULES
from lazyt.backends.math.vector import Vec
from lazyt.errors import LazytInternalError
from lazyt_opencl.codegen.text import Body, Module, function

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from lazyt.backends.math.vector import Rule


def short_name(dtype: np.dtype) -> str:
    """f32, bf16, i64, u8, b1: how functions spell a dtype."""
    if dtype == BFLOAT16:
        return "bf16"
    return f"{dtype.kind}{1 if dtype.kind == 'b' else 8 * dtype.itemsize}"


def lower(op: str, operands: Sequence[str], in_dtype: np.dtype, module: Module) -> str:
    """The expression of `op`; all operands are of `in_dtype`, but for the condition of a select."""
    rule = RULES.get(in_dtype, {}).get(op)
    if rule is None:
        raise LazytInternalError(f"the OpenCL backend has no rule for {op} on {in_dtype}")
    elements = [reg_type(in_dtype)] * len(operands)
    if op == "select":
        elements[0] = "i1"
    return _expression(f"lt_{op}_{short_name(in_dtype)}", rule, tuple(elements), operands, module)


def cast(x: str, source: np.dtype, target: np.dtype, module: Module) -> str:
    """The expression that converts `x`."""
    if source == target:
        return x
    symbol = f"lt_{short_name(source)}_to_{short_name(target)}"
    return _expression(symbol, _caster(source, target), (reg_type(source),), [x], module)


@cache
def _caster(source: np.dtype, target: np.dtype) -> Rule:
    return lambda x: casts.convert(x, source, target)


def _expression(symbol: str, rule: Rule, elements: tuple[str, ...], operands: Sequence[str], module: Module) -> str:
    if _is_long(rule, elements):
        module.include(_function(symbol, rule, elements))
        return f"{symbol}({', '.join(operands)})"
    body = Body(module)
    r = rule(*(Vec(body, x, e, 0) for x, e in zip(operands, elements, strict=True)))
    return body.lines[0].split(" = ", 1)[1].removesuffix(";") if body.lines else r.name


@cache
def _is_long(rule: Rule, elements: tuple[str, ...]) -> bool:
    body = Body()
    rule(*(Vec(body, f"x{i}", e, 0) for i, e in enumerate(elements)))
    return len(body.lines) > 1


@cache
def _function(symbol: str, rule: Rule, elements: tuple[str, ...]) -> dict[str, str]:
    """The function of a rule, behind those that it calls."""
    module = Module()
    probe = Body()
    result = rule(*(Vec(probe, f"x{i}", e, 0) for i, e in enumerate(elements))).element
    module.define(symbol, lambda: function(symbol, (result,), elements, module, lambda *xs: (rule(*xs),)))
    return module.entries
