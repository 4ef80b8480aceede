"""Has stages of a row kernel read back what an earlier one knew: what it stores, and costly values.

    stage: finish sum(x - m); out <- x - m             stage: finish sum(x - m); out <- x - m
    stage: finish sum((x - m) ** 2)          -->       stage: finish sum(load(out) ** 2)

    stage: finish sum(exp(x - m))                      stage: finish sum(exp(x - m)); out <- exp(x - m)
    stage: out <- exp(x - m) / s             -->       stage: out <- load(out) / s

A stored value is read back where that takes no more loads than to compute it again; what it was made of may then lie in
the same memory (see in_place.py). A costly value is kept in the memory of the row's result. Each point of a row reads
back what it wrote itself, and writes its result after that, so no other memory is needed. The bits are the same: a
value is stored in its own dtype.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from lazyt.ir import kernel as k
from lazyt.ir.passes.kernelize import AccessArg, KernelCall
from lazyt.ir.prims import ELEMENTWISE

if TYPE_CHECKING:
    from collections.abc import Collection

# Value -> the stage that computes it, and the store access that keeps it.
Plan = dict[int, tuple[int, int]]


def reuse_in_stages(call: KernelCall) -> KernelCall:
    """The same call with values of several stages computed once; itself where there are none."""
    kernel = call.kernel
    loops = [i for i, s in enumerate(kernel.stages) if s.loops]
    if len(loops) < 2:
        return call
    stored = _stored(call, loops)
    costly = _costly(call, loops, stored)
    return _Rewriter(call, stored, costly).run() if stored or costly else call


def _stored(call: KernelCall, loops: list[int]) -> Plan:
    """What stages store and later ones read back with no more loads than before."""
    kernel = call.kernel
    moves = k.moving_axes(kernel)
    written = Counter(a.buffer for a, x in zip(call.accesses, kernel.accesses, strict=True) if x.writes)
    found = {
        s.value: (i, s.access)
        for i in loops[:-1]
        for s in kernel.stages[i].stores
        if isinstance(kernel.values[s.value], k.Op | k.Cast)
        and any(axis >= kernel.outer for axis in moves[s.value])
        and _keeps(call, s.access, s.value)
        and written[call.accesses[s.access].buffer] == 1
    }

    def loads(i: int, plan: Plan) -> int:
        back = {v for v, (first, _) in plan.items() if first < i}
        needed = evaluated(kernel, kernel.stages[i], back)
        return sum(bool(moves[v]) and (v in back or isinstance(kernel.values[v], k.Load | k.Gather)) for v in needed)

    plan: Plan = {}
    for v in sorted(found, reverse=True):
        more = {**plan, v: found[v]}
        later = [i for i in loops if i > found[v][0] and v in evaluated(kernel, kernel.stages[i], set(plan))]
        if later and all(loads(i, more) <= loads(i, plan) for i in later):
            plan = more
    return plan


def _costly(call: KernelCall, loops: list[int], stored: Plan) -> Plan:
    """Costly values that several stages need, and that none stores."""
    kernel = call.kernel
    moves = k.moving_axes(kernel)
    needs = {
        i: evaluated(kernel, kernel.stages[i], {v for v, (first, _) in stored.items() if first < i}) for i in loops
    }
    taken: set[int] = set()
    plan: Plan = {}
    for v, value in enumerate(kernel.values):
        if not (isinstance(value, k.Op) and value.name in ELEMENTWISE and ELEMENTWISE[value.name].costly):
            continue
        users = [i for i in loops if v in needs[i]]
        if v in stored or len(users) < 2 or not any(a >= kernel.outer for a in moves[v]):
            continue
        access = _store_to_reuse(call, v, users, taken)
        if access is not None:
            taken.add(access)
            plan[v] = (users[0], access)
    return plan


def evaluated(kernel: k.Kernel, stage: k.Stage, back: Collection[int] = ()) -> set[int]:
    """The values that a stage evaluates at each point, or reads `back`."""
    seen: set[int] = set()
    todo = [s.value for s in stage.stores]
    for r in stage.reduces:
        reduce = kernel.values[r]
        assert isinstance(reduce, k.Reduce)
        todo.append(reduce.operand)
    while todo:
        v = todo.pop()
        if v not in seen and not isinstance(kernel.values[v], k.Reduce):
            seen.add(v)
            todo.extend(() if v in back else k.operands_of(kernel.values[v]))
    return seen


def _store_to_reuse(call: KernelCall, v: int, users: list[int], taken: set[int]) -> int | None:
    """A store of the last stage that uses v, of its dtype and one-to-one with the kernel's points, to keep v in."""
    for s in call.kernel.stages[users[-1]].stores:
        if _keeps(call, s.access, v) and s.access not in taken and s.value != v:
            return s.access
    return None


def _keeps(call: KernelCall, access: int, v: int) -> bool:
    """Whether a store has v's dtype, and a place of its own for each of the kernel's points."""
    a = call.kernel.accesses[access]
    own = all(c != "0" or (isinstance(e, int) and e == 1) for c, e in zip(a.classes, call.extents, strict=True))
    return own and a.dtype == call.kernel.values[v].dtype


class _Rewriter:
    """Builds the kernel anew, stage by stage; after the stage that computes a kept value it is read back."""

    def __init__(self, call: KernelCall, stored: Plan, costly: Plan) -> None:
        self.call = call
        self.old = call.kernel
        self.costly = costly
        self.plan = plan = stored | costly
        self.values: list[k.Value] = []
        self.numbers: dict[k.Value, int] = {}
        self.made: dict[tuple[int, frozenset[int]], int] = {}
        self.reduces: dict[int, int] = {}
        self.accesses = list(self.old.accesses)
        self.args = list(call.accesses)
        self.readers: dict[int, int] = {}
        for _, access in plan.values():
            self.readers[access] = len(self.accesses)
            arg = call.accesses[access]
            self.accesses.append(replace(self.old.accesses[access], writes=False))
            self.args.append(AccessArg(arg.buffer, arg.offset, arg.strides, arg.itemsize))

    def number(self, value: k.Value) -> int:
        n = self.numbers.get(value)
        if n is None:
            n = self.numbers[value] = len(self.values)
            self.values.append(value)
        return n

    def build(self, v: int, kept: frozenset[int]) -> int:
        """Value v of the old kernel, with the values in `kept` read back."""
        todo = [v]
        while todo:
            n = todo[-1]
            if (n, kept) in self.made:
                todo.pop()
                continue
            value = self.old.values[n]
            if n in kept:
                access = self.readers[self.plan[n][1]]
                self.made[n, kept] = self.number(k.Load(access, value.dtype))
            elif isinstance(value, k.Reduce):
                self.made[n, kept] = self.reduces[n]
            else:
                missing = [o for o in k.operands_of(value) if (o, kept) not in self.made]
                if missing:
                    todo.extend(missing)
                    continue
                new = {o: self.made[o, kept] for o in k.operands_of(value)}
                self.made[n, kept] = self.number(k.with_operands(value, new))
            todo.pop()
        return self.made[v, kept]

    def run(self) -> KernelCall:
        stages = []
        for i, stage in enumerate(self.old.stages):
            kept = frozenset(v for v, (first, _) in self.plan.items() if first < i) if stage.loops else frozenset()
            keeps = tuple(
                k.Store(access, self.build(v, kept)) for v, (first, access) in self.costly.items() if first == i
            )
            reduces = []
            for r in stage.reduces:
                reduce = self.old.values[r]
                assert isinstance(reduce, k.Reduce)
                self.reduces[r] = self.number(replace(reduce, operand=self.build(reduce.operand, kept)))
                reduces.append(self.reduces[r])
            stores = tuple(k.Store(s.access, self.build(s.value, kept)) for s in stage.stores)
            stages.append(k.Stage(stage.loops, tuple(reduces), keeps + stores))
        kernel = replace(self.old, accesses=tuple(self.accesses), values=tuple(self.values), stages=tuple(stages))
        call = self.call
        call.kernel, call.accesses = kernel, self.args
        if self.costly:
            call.strategies += ("costly values of a row stand in its result until that is known",)
        if len(self.plan) > len(self.costly):
            call.strategies += ("stages read back what earlier ones stored",)
        return call
