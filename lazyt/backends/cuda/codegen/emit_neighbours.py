"""`wide` neighbours of one thread: loaded and stored as one, computed one after the other."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from lazyt.backends.cuda.codegen.emit_memory import pointer, store
from lazyt.backends.cuda.codegen.emit_scope import memory_type
from lazyt.backends.cuda.codegen.emit_values import divides_by_shared, odd_divisor, open_level
from lazyt.backends.cuda.codegen.native_math import QUOTIENTS
from lazyt.backends.cuda.codegen.text import type_of
from lazyt.backends.math.elements import reg_type
from lazyt.ir import dtypes
from lazyt.ir.kernel import Cast, Check, Load, operands_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lazyt.backends.cuda.codegen.emit_reduce import Fold
    from lazyt.backends.cuda.codegen.emit_scope import Scope
    from lazyt.ir.kernel import Store, Value


def neighbours(
    scope: Scope,
    needed: list[int],
    stores: tuple[Store, ...],
    start: str,
    live: str,
    folds: Iterable[Fold] = (),
    keeps: Iterable[int] = (),
    known: Mapping[int, str] = MappingProxyType({}),
) -> None:
    """The points from index `start` of the last axis on, `live` of them inside the domain ("" if all always are).

    What the row keeps is read from there, and of the values that it `keeps` from now on all are put there. `known`
    are those that are at hand, of neighbour k.
    """
    kernel, body, wide, axis = scope.kernel, scope.body, scope.mapping.wide, scope.kernel.vector_axis
    at_hand = dict(scope.kept)
    for v in needed:
        value = kernel.values[v]
        if v in known:
            scope.kept[v] = known[v]
            continue
        if v in scope.kept:
            _array(scope, f"w{v}", kept_type(value))
            body.line(f"lt_load(w{v}, row{v} + {start});")
        elif is_packed(scope, v):
            assert isinstance(value, Load)
            kind, at = (
                memory_type(kernel.accesses[value.access].dtype),
                pointer(scope, value.access, scope.levels.point - 1),
            )
            load = f"lt_load(w{v}, {at} + {start}{_and(live)});"
            if value.where is None:
                _array(scope, f"w{v}", kind)
                body.line(load)
            else:
                body.line(f"{kind} w{v}[{wide}] = {{}};")
                body.line(f"if ({scope.names[value.where]}) {load}")
        else:
            continue
        scope.kept[v] = f"w{v}[k]"
    packed = [t for t in stores if kernel.accesses[t.access].classes[axis] == "1"]
    for t in packed:
        _array(scope, f"w{t.access}_out", memory_type(kernel.accesses[t.access].dtype))
    for v in keeps:
        _array(scope, f"w{v}_kept", kept_type(kernel.values[v]))

    def points() -> None:
        body.line("#pragma unroll")
        with scope.loop(f"for (int k = 0; k < {wide}; k++)"):
            scope.index[axis] = f"({start} + k)"
            scope.live = f"k < {live}" if live else ""
            open_level(scope, scope.levels.point, [v for v in needed if v not in unread], ())
            for fold in single:
                fold.step(scope, scope.index[axis], paired=False)
            for v in keeps:
                body.line(f"w{v}_kept[k] = {scope.names[v]};")
            for t in stores:
                kind = memory_type(kernel.accesses[t.access].dtype)
                if t in packed:
                    body.line(f"w{t.access}_out[k] = ({kind}){scope.names[t.value]};")
                else:
                    store(scope, t, scope.levels.point, scope.live)

    single, unread = _folded_as_pairs(scope, needed, stores, live, folds, keeps)
    divisions = [v for v in needed if divides_by_shared(scope, v) and scope.levels.of_value[v] == scope.levels.point]
    again = not single and len(packed) == len(stores) and not any(isinstance(kernel.values[v], Check) for v in needed)
    if divisions and again:
        # Nothing is done that cannot be done again, so no dividend is looked at by itself.
        body.line(f"bool odd = {' || '.join(dict.fromkeys(odd_divisor(scope, v) for v in divisions))};")
        body.module.include(QUOTIENTS)
        scope.division = "noted"
        points()
        scope.division = "whole"
        with body.block("if (odd)"):
            points()
        scope.division = "each"
    elif single or stores or keeps:
        points()
    for v in keeps:
        body.line(f"lt_store(row{v} + {start}, w{v}_kept);")
    for t in packed:
        at = pointer(scope, t.access, scope.levels.point - 1)
        body.line(f"lt_store({at} + {start}, w{t.access}_out{_and(live)});")
    scope.kept = at_hand


def is_plain(scope: Scope, v: int) -> bool:
    """Whether a value is a load at each point, wherever it is."""
    value = scope.kernel.values[v]
    return isinstance(value, Load) and value.where is None and scope.levels.of_value[v] == scope.levels.point


def is_packed(scope: Scope, v: int) -> bool:
    """Whether a value is a load of neighbours in memory."""
    value, accesses = scope.kernel.values[v], scope.kernel.accesses
    if not isinstance(value, Load):
        return False
    if value.where is not None and scope.levels.of_value[value.where] >= scope.levels.point:
        return False  # some neighbours are read, and others are not
    return accesses[value.access].classes[scope.kernel.vector_axis] == "1"


def _folded_as_pairs(
    scope: Scope, needed: list[int], stores: tuple[Store, ...], live: str, folds: Iterable[Fold], keeps: Iterable[int]
) -> tuple[list[Fold], set[int]]:
    """Fold the extremes of halves that are at hand two at a time; the folds that are left, and what only those read.

    The greatest of halves is the greatest of them as float32, so their widening waits until one is left.
    """
    values, left = scope.kernel.values, []
    read = {o for v in needed for o in operands_of(values[v])} | {t.value for t in stores} | set(keeps)
    unread: set[int] = set()
    for fold in folds:
        value = values[fold.operand]
        source = values[value.operand] if isinstance(value, Cast) else value
        number = value.operand if isinstance(value, Cast) else fold.operand
        half = isinstance(source, Load) and source.dtype in dtypes.HALVES
        is_half = half and scope.kept.get(number) == f"w{number}[k]"
        apart = live and scope.mapping.even % scope.mapping.wide  # some of them may be outside
        if apart or scope.mapping.wide < 2 or fold.name not in ("max", "min") or not is_half:
            left.append(fold)
            continue
        kind = "true" if source.dtype == dtypes.bfloat16 else "false"
        found = f"lt_extreme<{fold.op}, {kind}>(w{number})"
        scope.body.line(
            f"{f'if ({live}) ' if live else ''}best{fold.number} = {fold.op}::of(best{fold.number}, {found});"
        )
        unread.add(fold.operand)
    unread -= read | {f.operand for f in left}
    return left, unread


def kept_type(value: Value) -> str:
    """A load is kept as it lies in memory."""
    return memory_type(value.dtype) if isinstance(value, Load) else type_of(reg_type(value.dtype))


def _array(scope: Scope, name: str, kind: str) -> None:
    scope.body.line(f"{kind} {name}[{scope.mapping.wide}];")


def _and(live: str) -> str:
    return f", {live}" if live else ""
