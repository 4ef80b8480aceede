"""The rule of each elementwise primitive for each dtype.

float16 and bfloat16 are computed in float32 and rounded after each op, but for what only reads or
moves bits. Rules live beside their family: `floating`, `integer`, `mathlib_f32`, `mathlib_f64`, ...
"""

from __future__ import annotations

import numpy as np

from lazyt.backends.math import casts, floating, integer, mathlib_f32, mathlib_f64, remainder, single_f32
from lazyt.backends.math.control import outlined
from lazyt.backends.math.philox import random_bits
from lazyt.backends.math.vector import Rule, Rules, Vec, where
from lazyt.ir import dtypes

# Functions of many instructions: kernels call them.
_LONG = {
    "float": {"digamma", "erfinv", "lgamma", "logaddexp", "pow"},
    "double": {
        "acosh",
        "asinh",
        "atanh",
        "digamma",
        "erf",
        "erfc",
        "erfinv",
        "lgamma",
        "logaddexp",
        "pow",
        "tan",
    },
}


def _called(name: str, rule: Rule, element: str) -> Rule:
    """`rule`, or a call of a function that holds it when it is long."""
    if name not in _LONG[element]:
        return rule
    symbol = f"lazyt.{name}.{element}"
    return lambda *operands: outlined(symbol, (element,), operands, lambda *xs: (rule(*xs),))[0]


def _wide_rules(element: str, functions: Rules) -> Rules:
    called = {name: _called(name, rule, element) for name, rule in functions.items()}
    return {**floating.ARITHMETIC, **remainder.RULES, **called}


def _in_double(rule: Rule) -> Rule:
    """A float64 rule for float32: exact on the way in, one rounding on the way out."""
    return lambda *operands: mathlib_f32.down(rule(*map(mathlib_f32.up, operands)))


# NOTE: logaddexp in full double, because near a sum of 1 its two terms cancel.
_IN_DOUBLE = {name: _in_double(rule) for name, rule in mathlib_f64.RULES.items()}
_FLOAT32 = _wide_rules("float", _IN_DOUBLE | mathlib_f32.RULES | single_f32.RULES)
_FLOAT64 = _wide_rules("double", mathlib_f64.RULES)


def _on_bits(rule: Rule) -> Rule:
    """A rule on the bits of IEEE floats, taking and giving the floats."""

    def apply(*operands: Vec) -> Vec:
        r = rule(*(x.as_int() if x.is_float else x for x in operands))
        return r.as_float() if operands[0].is_float and r.element != "i1" else r

    return apply


def in_float32(rule: Rule, dtype: np.dtype) -> Rule:
    """A float32 rule for a narrower float: exact on the way in, one rounding on the way out."""

    def apply(*operands: Vec) -> Vec:
        r = rule(*(casts.widen(x, dtype) for x in operands))
        return casts.narrow(r, dtype) if r.is_float else r

    return apply


def _float_rules(dtype: np.dtype) -> Rules:
    if dtypes.of(dtype).stored:
        return {name: in_float32(rule, dtype) for name, rule in _float_rules(dtypes.computed_in(dtype)).items()}
    bits = floating.BITS[dtype.name]
    if not dtypes.of(dtype).narrow:
        rules = dict(_FLOAT32 if dtype.itemsize == 4 else _FLOAT64)
        names: tuple[str, ...] = floating.BIT_RULES
    else:
        rules = {name: in_float32(rule, dtype) for name, rule in _FLOAT32.items()}
        names = floating.NARROW_BIT_RULES
    return rules | {name: _on_bits(getattr(bits, name)) for name in names}


def _tables() -> dict[np.dtype, Rules]:
    alike: dict[str, Rules] = {"b": integer.BOOL, "i": integer.SIGNED, "u": integer.UNSIGNED}
    real = [d for d in dtypes.ALL if dtypes.kind(d) != "c"]
    tables = {d: _float_rules(d) if dtypes.kind(d) == "f" else alike[dtypes.kind(d)] for d in real}
    tables = {d: {**rules, "select": where} for d, rules in tables.items()}
    tables[np.dtype("i8")]["random_bits"] = random_bits
    return tables


RULES = _tables()
_KINDS = {"b": np.dtype(bool), "i": np.dtype("i8"), "u": np.dtype("u8"), "f": np.dtype("f8")}

# Each op and the kinds of dtype it is defined for: b(ool), i(nt), u(int), f(loat). Whatever a kind
# has, all its dtypes have, but for `random_bits` (int64).
OPS: dict[str, str] = {
    op: "".join(k for k, d in _KINDS.items() if op in RULES[d])
    for op in sorted({op for rules in RULES.values() for op in rules})
}
