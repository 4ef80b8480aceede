"""C for a kernel's values, one level of the loops at a time: `const float v5 = ...`, numbered as in the kernel IR."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.cuda.codegen import elementwise
from lazyt.backends.cuda.codegen.emit_levels import KERNEL
from lazyt.backends.cuda.codegen.emit_memory import affine, from_memory, gather, load, open_pointers
from lazyt.backends.cuda.codegen.text import literal, type_of
from lazyt.backends.cuda.flags import switches
from lazyt.backends.math.elements import bits_of, reg_type
from lazyt.errors import LazytInternalError
from lazyt.ir import dtypes
from lazyt.ir.kernel import Cast, Check, Const, Gather, Index, Load, Op, Reduce, Scalar, operands_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyt.backends.cuda.codegen.emit_scope import Scope

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)


def open_level(scope: Scope, level: int, values: Iterable[int], accesses: Iterable[int]) -> None:
    """At the head of a level: addresses for inner levels, then the level's values."""
    if level not in (KERNEL, scope.levels.point):
        open_pointers(scope, level, accesses)
    for v in values:
        if scope.levels.of_value[v] == level and v not in scope.names:
            value = scope.kernel.values[v]
            rhs = compute(scope, v)
            if isinstance(value, Const):
                scope.names[v] = rhs
            else:
                scope.names[v] = scope.body.let(type_of(reg_type(value.dtype)), rhs, f"v{v}")


def compute(scope: Scope, v: int) -> str:
    """The expression of value `v` here; its operands have names already."""
    value = scope.kernel.values[v]
    names, module = scope.names, scope.body.module
    if v in scope.kept:
        return from_memory(value.dtype, scope.kept[v]) if isinstance(value, Load) else scope.kept[v]
    match value:
        case Const():
            return constant(value)
        case Scalar():
            return _scalar(scope, value)
        case Index():
            return f"(u64)({affine(scope, value.affine, scope.levels.of_value[v])})"
        case Load():
            return load(scope, v, value)
        case Gather():
            return gather(scope, v, value)
        case Op("div") if divides_by_shared(scope, v):
            return _quotient(scope, v, value)
        case Op("exp") if _is_below_zero(scope, value.operands[0]):
            return elementwise.exp_below(names[value.operands[0]], module)
        case Op():
            in_dtype = scope.kernel.values[value.operands[-1]].dtype
            return elementwise.lower(value.name, [names[o] for o in value.operands], in_dtype, module)
        case Cast():
            source = scope.kernel.values[value.operand].dtype
            return elementwise.cast(names[value.operand], source, value.dtype, module)
        case Check():
            return _check(scope, value)
    raise LazytInternalError(f"%{v} is read before its stage:\n{scope.kernel.text}")


def divides_by_shared(scope: Scope, v: int) -> bool:
    """Whether it is a float32 division by what is known further out, where the reciprocal is taken."""
    value = scope.kernel.values[v]
    if not isinstance(value, Op) or value.name != "div" or value.dtype != FLOAT32:
        return False
    return scope.levels.of_value[v] > scope.levels.of_value[value.operands[1]] and switches["native-math"]


def _quotient(scope: Scope, v: int, value: Op) -> str:
    a, b = (scope.names[o] for o in value.operands)
    module = scope.body.module
    if scope.division == "whole":
        return f"lt_divide({a}, {b})"
    if scope.division == "each":
        return elementwise.divide_by((a, b), f"1.0f / {b}", f"lt_is_usual({b})", module)
    near = _only_rounded(scope, v)
    scope.body.line(f"odd |= lt_is_near_odd({a});" if near else f"odd |= lt_is_odd({a}, {b} > 0.0f);")
    return elementwise.quotient((a, b), near, module)


def odd_divisor(scope: Scope, v: int) -> str:
    """Whether the divisor of division v is one for which `division = "noted"` would be wrong."""
    value = scope.kernel.values[v]
    assert isinstance(value, Op)
    b = scope.names[value.operands[1]]
    # Of a zero over what is below 0 the sign would be lost.
    return f"lt_is_odd_divisor({b})" + f" || {b} < 0.0f" * _only_rounded(scope, v)


def _only_rounded(scope: Scope, v: int) -> bool:
    """Whether all that becomes of a value is a half."""
    readers = [w for w in scope.kernel.values if v in (*operands_of(w), getattr(w, "operand", None))]
    stored = any(t.value == v for s in scope.kernel.stages for t in s.stores)
    return not stored and all(isinstance(w, Cast) and w.dtype in dtypes.HALVES for w in readers)


def _is_below_zero(scope: Scope, v: int) -> bool:
    """Whether it is a float32 less the greatest of its row."""
    values = scope.kernel.values
    value = values[v]
    if not isinstance(value, Op) or value.name != "sub" or value.dtype != FLOAT32 or not switches["native-math"]:
        return False
    x, most = value.operands
    top = values[most]
    return isinstance(top, Reduce) and top.name == "max" and top.operand == x


def constant(value: Const) -> str:
    if dtypes.of(value.dtype).raw:
        return literal(reg_type(value.dtype), bits_of(value.value, value.dtype))
    return literal(reg_type(value.dtype), value.value)


def _scalar(scope: Scope, value: Scalar) -> str:
    """A scalar argument: a float rounded once, an int without its high bits."""
    raw, dtype = scope.scalar(value.position), value.dtype
    if dtypes.kind(dtype) == "f":
        return elementwise.cast(f"lt_bits_double((u64){raw})", FLOAT64, dtype, scope.body.module)
    return f"{raw} != 0" if dtypes.kind(dtype) == "b" else f"({type_of(reg_type(dtype))}){raw}"


def _check(scope: Scope, value: Check) -> str:
    where = "" if value.where is None else scope.names[value.where]
    operands = [scope.names[value.index], scope.names[value.bound], scope.scalar(value.code), scope.status()]
    return f"lt_check({', '.join(operands)}, {scope.both(scope.live, where) or 'true'})"
