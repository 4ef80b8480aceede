"""C for a kernel's values, one level of the loops at a time: `const float v5 = ...`, numbered as in the kernel IR."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.cuda import elementwise
from lazyt.backends.cuda.emit_levels import KERNEL
from lazyt.backends.cuda.emit_memory import affine, from_memory, gather, load, open_pointers
from lazyt.backends.cuda.switches import switches
from lazyt.backends.cuda.text import literal, type_of
from lazyt.backends.rules.elements import BFLOAT16, reg_type
from lazyt.errors import LazytInternalError
from lazyt.ir.kernel import Cast, Check, Const, Gather, Index, Load, Op, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyt.backends.cuda.emit_scope import Scope

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
        case Op("div") if _is_shared_divisor(scope, v, value):
            a, b = (names[o] for o in value.operands)
            return elementwise.divide_by((a, b), f"1.0f / {b}", f"lt_is_usual({b})", module)
        case Op():
            in_dtype = scope.kernel.values[value.operands[-1]].dtype
            return elementwise.lower(value.name, [names[o] for o in value.operands], in_dtype, module)
        case Cast():
            source = scope.kernel.values[value.operand].dtype
            return elementwise.cast(names[value.operand], source, value.dtype, module)
        case Check():
            return _check(scope, value)
    raise LazytInternalError(f"%{v} is read before its stage:\n{scope.kernel.text}")


def _is_shared_divisor(scope: Scope, v: int, value: Op) -> bool:
    """Whether a float32 division has a divisor that is known further out, where its reciprocal is taken."""
    inside = scope.levels.of_value[v] > scope.levels.of_value[value.operands[1]]
    return inside and value.dtype == FLOAT32 and switches["native-math"]


def constant(value: Const) -> str:
    if value.dtype == BFLOAT16:
        return literal("i16", int(np.asarray(value.value, dtype=value.dtype).view(np.int16)))
    return literal(reg_type(value.dtype), value.value)


def _scalar(scope: Scope, value: Scalar) -> str:
    """A scalar argument: a float rounded once, an int without its high bits."""
    raw, dtype = scope.scalar(value.position), value.dtype
    if dtype == BFLOAT16 or dtype.kind == "f":
        return elementwise.cast(f"lt_bits_double((u64){raw})", FLOAT64, dtype, scope.body.module)
    return f"{raw} != 0" if dtype.kind == "b" else f"({type_of(reg_type(dtype))}){raw}"


def _check(scope: Scope, value: Check) -> str:
    where = "" if value.where is None else scope.names[value.where]
    operands = [scope.names[value.index], scope.names[value.bound], scope.scalar(value.code), scope.status()]
    return f"lt_check({', '.join(operands)}, {scope.both(scope.live, where) or 'true'})"
