"""Registers for a kernel's values, one level of the loop nest at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.cpu.codegen import elementwise
from lazyt.backends.cpu.codegen.emit_memory import any_lane, gather, index_value, load, pointer
from lazyt.backends.cpu.codegen.emit_scope import constant, iota
from lazyt.backends.cpu.codegen.text import reg_type
from lazyt.errors import LazytInternalError
from lazyt.ir import dtypes
from lazyt.ir.kernel import Cast, Check, Const, Gather, Index, Load, Op, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyt.backends.cpu.codegen.emit_scope import Scope

BOOL = np.dtype(np.bool_)
FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)


def open_level(scope: Scope, level: int, values: Iterable[int], accesses: Iterable[int]) -> None:
    """At the head of a level's loop body: addresses for inner levels, the level's values."""
    if level != scope.levels.lanes:
        for access in sorted(accesses):
            pointer(scope, access, level)
    for v in values:
        if scope.levels.of_value[v] == level and v not in scope.names:
            scope.names[v] = compute(scope, v)


def compute(scope: Scope, v: int) -> str:
    """The register that holds value `v` here; its operands are there already."""
    value = scope.kernel.values[v]
    body, names = scope.body, scope.names
    if v in scope.slots:
        return read_slot(scope, scope.slots[v], scope.in_registers(value.dtype))
    match value:
        case Const():
            return constant(value.dtype, value.value)
        case Scalar():
            return _scalar(scope, value)
        case Index():
            return index_value(scope, value.affine, scope.levels.of_value[v])
        case Load():
            return load(scope, v, value)
        case Gather():
            return gather(scope, v, value)
        case Op():
            in_dtype = scope.kernel.values[value.operands[-1]].dtype
            if value.name == "select" and scope.holds is not None and value.operands[0] in scope.holds:
                return _one_side(scope, value, scope.holds[value.operands[0]])
            operands = [names[o] for o in value.operands]
            if value.name == "add" and dtypes.kind(value.dtype) in "iu" and (found := _counted(scope, value)):
                return _count(scope, value.dtype, *found)
            return elementwise.lower(value.name, operands, in_dtype, body, scope.lanes)
        case Cast():
            source = scope.kernel.values[value.operand].dtype
            return elementwise.cast(names[value.operand], source, value.dtype, body, scope.lanes)
        case Check():
            return _check(scope, value)
    raise LazytInternalError(f"%{v} is read before its stage:\n{scope.kernel.text}")


def _counted(scope: Scope, value: Op) -> tuple[str, str] | None:
    """(number, bool) of a sum of the two: the bool's register, if there is one."""
    values, names = scope.kernel.values, scope.names
    for one, other in (value.operands, value.operands[::-1]):
        cast = values[other]
        if isinstance(cast, Cast) and values[cast.operand].dtype == BOOL and cast.operand in names:
            return names[one], names[cast.operand]
    return None


def _count(scope: Scope, dtype: np.dtype, number: str, flag: str) -> str:
    """One more where a bool is set: an addition under a mask, where the bool as a number would be made first."""
    body, typ = scope.body, scope.in_registers(dtype)
    more = body.let(f"add {typ} {number}, {constant(dtype, 1)}")
    return body.let(f"select {scope.i1} {flag}, {typ} {more}, {typ} {number}")


def _one_side(scope: Scope, value: Op, holds: str) -> str:
    """A select by a condition that all lanes have alike."""
    _, x, y = value.operands
    if holds in ("true", "false"):
        return scope.names[x if holds == "true" else y]
    typ = scope.in_registers(value.dtype)
    return scope.body.let(f"select i1 {holds}, {typ} {scope.names[x]}, {typ} {scope.names[y]}")


def slot_address(scope: Scope, slot: str, kind: str) -> str:
    """Where the current lanes keep their value of type `kind`."""
    return scope.body.let(f"getelementptr {kind}, ptr {slot}, i64 {scope.slot_at}")


def read_slot(scope: Scope, slot: str, kind: str) -> str:
    return scope.body.let(f"load {kind}, ptr {slot_address(scope, slot, kind)}")


def write_slot(scope: Scope, slot: str, kind: str, x: str) -> None:
    scope.body.line(f"store {kind} {x}, ptr {slot_address(scope, slot, kind)}")


def _scalar(scope: Scope, value: Scalar) -> str:
    """A scalar argument in every lane: a float rounded once, an int without its high bits."""
    body, dtype = scope.body, value.dtype
    raw = scope.scalar(value.position)
    if dtypes.kind(dtype) == "f":
        one = body.let(f"bitcast i64 {raw} to double")
        if dtype == FLOAT32:
            return scope.splat("float", body.let(f"fptrunc double {one} to float"))
        lanes = scope.splat("double", one)
        return lanes if dtype == FLOAT64 else elementwise.cast(lanes, FLOAT64, dtype, body, scope.lanes)
    kind = reg_type(dtype)
    if kind == "i1":
        raw = body.let(f"icmp ne i64 {raw}, 0")
    elif kind != "i64":
        raw = body.let(f"trunc i64 {raw} to {kind}")
    return scope.splat(kind, raw)


def _check(scope: Scope, value: Check) -> str:
    """The index clamped into [0, bound); the first lane outside tries to write the status."""
    body = scope.body
    index, bound = scope.names[value.index], scope.names[value.bound]
    outside = body.let(f"icmp uge {scope.i64} {index}, {bound}")
    active = outside
    for mask in (scope.mask, "" if value.where is None else scope.names[value.where]):
        if mask:
            active = body.let(f"and {scope.i1} {active}, {mask}")
    tag = body.fresh("check")
    body.line(f"br i1 {any_lane(scope, active)}, label %{tag}, label %{tag}.end")
    body.label(tag)
    status = scope.argument(scope.kernel.layout.status, "ptr")
    code = scope.scalar(value.code)
    claim = body.let(f"cmpxchg ptr {status}, i64 0, i64 {code} monotonic monotonic")
    claimed = body.let(f"extractvalue {{ i64, i1 }} {claim}, 1")
    body.line(f"br i1 {claimed}, label %{tag}.write, label %{tag}.end")
    body.label(f"{tag}.write")
    i32 = scope.i32
    lanes = body.let(f"select {scope.i1} {active}, {i32} {iota('i32', scope.lanes)}, {i32} splat (i32 {scope.lanes})")
    first = body.call("i32", f"llvm.vector.reduce.umin.v{scope.lanes}i32", (i32, lanes))
    wrong = body.let(f"extractelement {scope.i64} {index}, i32 {first}")
    at = body.let(f"getelementptr i64, ptr {status}, i64 1")
    body.line(f"store i64 {wrong}, ptr {at}, align 8")
    body.line(f"br label %{tag}.end")
    body.label(f"{tag}.end")
    top = body.let(f"sub {scope.i64} {bound}, splat (i64 1)")
    low = body.call(scope.i64, f"llvm.smin.v{scope.lanes}i64", (scope.i64, index), (scope.i64, top))
    return body.call(scope.i64, f"llvm.smax.v{scope.lanes}i64", (scope.i64, low), (scope.i64, "zeroinitializer"))
