"""One elementwise primitive -> an expression in a dialect of C, by the rules that all backends share.

A rule of one instruction is written out where it is used, a longer one is a function that the program has once:
`lt_exp_f32(v3)`. So a kernel reads as one line a value.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Generic

from lazyt.backends.math import casts
from lazyt.backends.math.c_writer import CWriter, M
from lazyt.backends.math.elements import reg_type
from lazyt.backends.math.vector import Vec
from lazyt.ir import dtypes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from lazyt.backends.math.vector import Rule

    Elements = tuple[str, ...]


def short_name(dtype: np.dtype) -> str:
    """f32, bf16, i64, u8, b1: how functions spell a dtype."""
    return dtypes.of(dtype).code


@cache
def _caster(source: np.dtype, target: np.dtype) -> Rule:
    return lambda x: casts.convert(x, source, target)


class Expressions(Generic[M]):
    """Expressions of rules in the dialect of a writer."""

    def __init__(self, writer: type[CWriter[M]]) -> None:
        self.writer = writer
        self._long: dict[tuple[Rule, Elements], bool] = {}
        self._functions: dict[tuple[str, Rule, Elements], dict[str, str]] = {}

    def lower(self, op: str, rule: Rule, operands: Sequence[str], in_dtype: np.dtype, module: M) -> str:
        """The expression of `op` by its rule; all operands are of `in_dtype`, but for the condition of a select."""
        elements = [reg_type(in_dtype)] * len(operands)
        if op == "select":
            elements[0] = "i1"
        return self._expression(f"lt_{op}_{short_name(in_dtype)}", rule, tuple(elements), operands, module)

    def cast(self, x: str, source: np.dtype, target: np.dtype, module: M) -> str:
        """The expression that converts `x`."""
        if source == target:
            return x
        symbol = f"lt_{short_name(source)}_to_{short_name(target)}"
        return self._expression(symbol, _caster(source, target), (reg_type(source),), [x], module)

    def _expression(self, symbol: str, rule: Rule, elements: Elements, operands: Sequence[str], module: M) -> str:
        if self._is_long(rule, elements):
            module.include(self._function(symbol, rule, elements))
            return f"{symbol}({', '.join(operands)})"
        body = self.writer(module)
        r = rule(*(Vec(body, x, e, 0) for x, e in zip(operands, elements, strict=True)))
        return body.lines[0].split(" = ", 1)[1].removesuffix(";") if body.lines else r.name

    def _is_long(self, rule: Rule, elements: Elements) -> bool:
        found = self._long.get((rule, elements))
        if found is None:
            body = self.writer()
            rule(*(Vec(body, f"x{i}", e, 0) for i, e in enumerate(elements)))
            found = self._long[rule, elements] = len(body.lines) > 1
        return found

    def _function(self, symbol: str, rule: Rule, elements: Elements) -> dict[str, str]:
        """The function of a rule, behind those that it calls."""
        found = self._functions.get((symbol, rule, elements))
        if found is None:
            probe, own = self.writer(), self.writer()
            result = rule(*(Vec(probe, f"x{i}", e, 0) for i, e in enumerate(elements))).element
            own.module.define(
                symbol, lambda: own.function_text(symbol, (result,), elements, lambda *xs: (rule(*xs),), cold=False)
            )
            found = self._functions[symbol, rule, elements] = own.module.entries
        return found
