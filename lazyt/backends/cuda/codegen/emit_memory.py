"""Addresses, loads, gathers and stores of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cuda.codegen.emit_levels import KERNEL, UNIT
from lazyt.backends.cuda.codegen.emit_scope import memory_type
from lazyt.ir import dtypes
from lazyt.ir.kernel import bounds_below

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np

    from lazyt.backends.cuda.codegen.emit_scope import Scope
    from lazyt.ir.kernel import Gather, Load, Store


def pointer(scope: Scope, access: int, level: int) -> str:
    """The address of `access` with the indices of all axes up to `level` applied."""
    if level == KERNEL:
        return scope.base(access)
    key = (access, level)
    if key not in scope.pointers:
        at = pointer(scope, access, level - 1)
        steps = offset(scope, access, level)
        if steps:
            kind = memory_type(scope.kernel.accesses[access].dtype)
            const = "" if scope.kernel.accesses[access].writes else "const "
            suffix = "u" if level == UNIT else f"r{level - UNIT}"
            scope.body.line(f"{const}{kind} *const p{access}{suffix} = {at} + {steps};")
            at = f"p{access}{suffix}"
        scope.pointers[key] = at
    return scope.pointers[key]


def offset(scope: Scope, access: int, level: int) -> str:
    """How far the axes of one level move an access; "" if they do not."""
    classes = scope.kernel.accesses[access].classes
    axes = [a for a, at in enumerate(scope.levels.of_axis) if at == level and classes[a] != "0"]
    return " + ".join(scope.times(scope.index[a], scope.stride(access, a)) for a in axes)


def open_pointers(scope: Scope, level: int, accesses: Iterable[int]) -> None:
    for access in sorted(accesses):
        pointer(scope, access, level)


def affine(scope: Scope, number: int, level: int) -> str:
    """The value of an affine with the indices of all axes up to `level` applied."""
    if level == KERNEL:
        layout = scope.kernel.layout
        return scope.argument("s64", f"a{number}", layout.affines[number] + scope.kernel.axes)
    at = affine(scope, number, level - 1)
    classes = scope.kernel.affines[number].classes
    axes = [a for a, where in enumerate(scope.levels.of_axis) if where == level and classes[a] != "0"]
    terms = [f"(s64){scope.times(scope.index[a], scope.coefficient(number, a))}" for a in axes]
    return " + ".join([at, *terms])


def from_memory(dtype: np.dtype, x: str) -> str:
    return f"{x} != 0" if dtypes.kind(dtype) == "b" else x


def _address(scope: Scope, access: int, level: int) -> str:
    """The element of `access` at the indices up to `level`."""
    if level != scope.levels.point:
        return f"*{pointer(scope, access, level)}"
    steps = offset(scope, access, level)
    return f"{pointer(scope, access, level - 1)}[{steps or 0}]"


def load(scope: Scope, v: int, value: Load) -> str:
    what = scope.kernel.accesses[value.access]
    level = scope.levels.of_value[v]
    where = "" if value.where is None else scope.names[value.where]
    live = scope.live if level == scope.levels.point else ""
    return _guarded(scope, what.dtype, _address(scope, value.access, level), scope.both(live, where))


def gather(scope: Scope, v: int, value: Gather) -> str:
    """A Gather; out of a table without elements it reads nothing, whatever its indices are."""
    what = scope.kernel.accesses[value.access]
    level = scope.levels.of_value[v]
    where = "" if value.where is None else scope.names[value.where]
    some = [f"(s64){scope.names[b]} > 0" for b in sorted(bounds_below(scope.kernel, [i for i, _ in value.indices]))]
    live = scope.live if level == scope.levels.point else ""
    at = pointer(scope, value.access, min(level, scope.levels.point - 1))
    own = offset(scope, value.access, level) if level == scope.levels.point else ""
    steps = [f"(s64){scope.names[i]} * {scope.scalar(s)}" for i, s in value.indices]
    element = f"{at}[{' + '.join([*([own] if own else []), *steps]) or 0}]"
    return _guarded(scope, what.dtype, element, scope.both(live, where, *some))


def _guarded(scope: Scope, dtype: np.dtype, element: str, condition: str) -> str:
    if not condition:
        return from_memory(dtype, element)
    if dtypes.kind(dtype) == "b":
        return f"{condition} && {element} != 0"
    return f"{condition} ? {element} : ({memory_type(dtype)})0"


def store(scope: Scope, what: Store, level: int, condition: str = "") -> None:
    """Write one element, where `condition` holds."""
    element = _address(scope, what.access, level)
    kind = memory_type(scope.kernel.accesses[what.access].dtype)
    x = scope.names[what.value]
    cast = f"({kind})" if kind != "float" and kind != "double" else ""
    guard = f"if ({condition}) " if condition else ""
    scope.body.line(f"{guard}{element} = {cast}{x};")
