"""Maps with conditions on places: a text of the lanes' loop for points that no border of a condition divides.

    load @0 where 0 <= j + a < n    -->    [lo, hi) of j, once a unit; of 16 points:
                                           all inside: whole vectors are read, and a select takes its first side
                                           all outside: nothing is read, and a select takes its second side
                                           else: masks, lane by lane

Several conditions have one text for lanes that are all inside or all outside of each: whole vectors are read, or zeros.

A condition on places is an interval of the vector axis: comparisons of an index with what is the same for all lanes,
and conjunctions of such. As lanes of 64-bit numbers they cost more than a stencil's own arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.emit_levels import UNIT
from lazyt.backends.cpu.codegen.emit_memory import affine, first_lane
from lazyt.backends.cpu.codegen.peel import has_costly
from lazyt.backends.cpu.flags import switches
from lazyt.ir.kernel import Index, Load, Op, operands_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.cpu.codegen.emit_levels import Levels
    from lazyt.backends.cpu.codegen.emit_scope import Scope
    from lazyt.ir.kernel import Kernel

    Intervals = dict[int, tuple[str, str]]

# A body of more values is not written twice, nor one with costly functions: masks are a small part of it.
SHORT = 64
# More conditions take longer to ask about than to compute.
FEW = 6
# Beyond any index.
LOW, HIGH = -(1 << 61), 1 << 61


class Interior:
    """The conditions on places of a map: `divided` ones are intervals of the lanes, `even` ones alike for all lanes."""

    def __init__(self, kernel: Kernel, levels: Levels) -> None:
        self.kernel, self.levels = kernel, levels
        stage = kernel.stages[0]
        needed = levels.needed(levels.roots(stage))
        self.intervals = _intervals(kernel, levels).intersection(needed)
        read = [(v, o) for v in needed if v not in self.intervals for o in operands_of(kernel.values[v])]
        used = {o for _, o in read} | {t.value for t in stage.stores}
        self.divided = sorted(self.intervals & used)
        wheres = {value.where for v in needed if isinstance(value := kernel.values[v], Load) and levels.is_vector(v)}
        self.even = sorted(w for w in wheres if w is not None and not levels.is_vector(w))
        self.body = [v for v in needed if levels.is_vector(v) and v not in self.intervals]

    @property
    def pays(self) -> bool:
        """Whether it is written: the body is short, and most of its time would go into masks."""
        few = bool(self.divided) and len(self.divided) <= FEW and len(self.body) <= SHORT
        return few and not has_costly(self.kernel, self.body)

    def open(self, scope: Scope) -> Intervals:
        """Once a unit: the interval [lo, hi) of each divided condition along the vector axis."""
        found: Intervals = {}
        for v in sorted(self.intervals):
            value = self.kernel.values[v]
            assert isinstance(value, Op), "an interval is a comparison or a conjunction"
            if value.name == "and":
                found[v] = self._both(scope, value, found)
            else:
                index, bound = value.operands
                place = self.kernel.values[index]
                assert isinstance(place, Index), "an index is compared"
                at = scope.body.let(
                    f"sub i64 {first_lane(scope, scope.i64, scope.names[bound])}, {affine(scope, place.affine, UNIT)}"
                )
                found[v] = (at, str(HIGH)) if value.name == "ge" else (str(LOW), at)
        return {v: found[v] for v in self.divided}

    def _both(self, scope: Scope, value: Op, found: Intervals) -> tuple[str, str]:
        low, high = str(LOW), str(HIGH)
        for o in value.operands:
            if o in found:
                low = scope.body.call("i64", "llvm.smax.i64", ("i64", low), ("i64", found[o][0]))
                high = scope.body.call("i64", "llvm.smin.i64", ("i64", high), ("i64", found[o][1]))
            else:
                holds = first_lane(scope, scope.i1, scope.names[o])
                high = scope.body.let(f"select i1 {holds}, i64 {high}, i64 {LOW}")
        return low, high

    def cases(self, scope: Scope, intervals: Intervals, index: str) -> list[tuple[str, dict[int, str]]]:
        """The cases in which no condition divides the lanes from `index` on, and all are active: an i1, and what each
        condition is then.
        """
        body = scope.body
        full = body.let(f"icmp eq i64 {scope.active}, {scope.lanes}")
        after = body.let(f"add i64 {index}, {scope.lanes}")
        inside: dict[int, str] = {}
        outside: dict[int, str] = {}
        for v, (low, high) in intervals.items():
            begun, lasts = body.let(f"icmp sle i64 {low}, {index}"), body.let(f"icmp sle i64 {after}, {high}")
            inside[v] = body.let(f"and i1 {begun}, {lasts}")
            before, behind = body.let(f"icmp sle i64 {after}, {low}"), body.let(f"icmp sle i64 {high}, {index}")
            outside[v] = body.let(f"or i1 {before}, {behind}")
        if len(intervals) == 1:
            ((v, all_of),) = inside.items()
            cases = [(all_of, "true"), (outside[v], "false")]
            return [(body.let(f"and i1 {full}, {case}"), {v: holds}) for case, holds in cases]
        for v, all_of in inside.items():
            undivided = body.let(f"or i1 {all_of}, {outside[v]}")
            full = body.let(f"and i1 {full}, {undivided}")
        return [(full, inside)]

    def needed(self, holds: dict[int, str]) -> list[int]:
        """The values that are computed where the conditions are so, in order."""
        found: set[int] = set()
        todo = self.levels.roots(self.kernel.stages[0])
        while todo:
            v = todo.pop()
            if v in found or v in holds:
                continue
            found.add(v)
            side = side_of(self.kernel, v, holds)
            todo.extend(operands_of(self.kernel.values[v]) if side is None else [side])
        return sorted(found)


def side_of(kernel: Kernel, v: int, holds: dict[int, str]) -> int | None:
    """The operand that a select takes, if that is known when code is written."""
    value = kernel.values[v]
    if not isinstance(value, Op) or value.name != "select":
        return None
    return {"true": value.operands[1], "false": value.operands[2]}.get(holds.get(value.operands[0], ""))


def _intervals(kernel: Kernel, levels: Levels) -> set[int]:
    """The values that hold for one run of neighbours along the vector axis."""
    found: set[int] = set()
    for v, value in enumerate(kernel.values):
        if not isinstance(value, Op) or not levels.is_vector(v):
            continue
        if value.name in ("ge", "lt"):
            place, bound = kernel.values[value.operands[0]], value.operands[1]
            steps = isinstance(place, Index) and kernel.affines[place.affine].classes[kernel.vector_axis] == "1"
            if steps and not levels.is_vector(bound):
                found.add(v)
        elif value.name == "and" and all(o in found or not levels.is_vector(o) for o in value.operands):
            found.add(v)  # NOTE: of bools, as one operand is an interval
    return found


def interior_of(kernel: Kernel, levels: Levels) -> Interior | None:
    """The interior of a map for which it is written."""
    if kernel.rows or len(kernel.stages) != 1 or not switches["interior"]:
        return None
    found = Interior(kernel, levels)
    return found if found.pays else None


def opened(scope: Scope, conditions: Sequence[int]) -> dict[int, str]:
    """Of conditions that are alike for all lanes, whether each holds."""
    return {v: first_lane(scope, scope.i1, scope.names[v]) for v in conditions}


def alike(scope: Scope, holds: str) -> str:
    """All lanes of a condition."""
    return f"splat (i1 {holds})" if holds in ("true", "false") else scope.splat("i1", holds)
