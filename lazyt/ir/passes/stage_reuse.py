"""Computes costly values once that several stages of a row kernel need: kept in the memory of the row's result.

    stage: finish sum(exp(x - m))                      stage: finish sum(exp(x - m)); out <- exp(x - m)
    stage: out <- exp(x - m) / s             -->       stage: out <- load(out) / s

Each point of a row reads back what it wrote itself, and writes its result after that, so no other memory is needed.
The bits are the same: the value is stored in its own dtype.
"""

from __future__ import annotations

from dataclasses import replace

from lazyt.ir import kernel as k
from lazyt.ir.passes.kernelize import AccessArg, KernelCall
from lazyt.ir.prims import ELEMENTWISE


def reuse_costly(call: KernelCall) -> KernelCall:
    """The same call with costly values of several stages computed once; itself where there are none."""
    kernel = call.kernel
    loops = [i for i, s in enumerate(kernel.stages) if s.loops]
    if len(loops) < 2:
        return call
    needs = {i: evaluated(kernel, kernel.stages[i]) for i in loops}
    moves = k.moving_axes(kernel)
    taken: set[int] = set()
    plan: dict[int, tuple[int, int]] = {}  # value -> (the stage that computes it, the store access that keeps it)
    for v, value in enumerate(kernel.values):
        if not (isinstance(value, k.Op) and value.name in ELEMENTWISE and ELEMENTWISE[value.name].costly):
            continue
        users = [i for i in loops if v in needs[i]]
        if len(users) < 2 or not any(a >= kernel.outer for a in moves[v]):
            continue
        access = _store_to_reuse(call, v, users, taken)
        if access is not None:
            taken.add(access)
            plan[v] = (users[0], access)
    return _Rewriter(call, plan).run() if plan else call


def evaluated(kernel: k.Kernel, stage: k.Stage) -> set[int]:
    """The values that a stage evaluates at each point."""
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
            todo.extend(k.operands_of(kernel.values[v]))
    return seen


def _store_to_reuse(call: KernelCall, v: int, users: list[int], taken: set[int]) -> int | None:
    """A store of the last stage that uses v, of its dtype and one-to-one with the kernel's points, to keep v in."""
    kernel = call.kernel
    for s in kernel.stages[users[-1]].stores:
        a = kernel.accesses[s.access]
        own = all(c != "0" or (isinstance(e, int) and e == 1) for c, e in zip(a.classes, call.extents, strict=True))
        if a.dtype == kernel.values[v].dtype and own and s.access not in taken and s.value != v:
            return s.access
    return None


class _Rewriter:
    """Builds the kernel anew, stage by stage; after the stage that computes a kept value it is read back."""

    def __init__(self, call: KernelCall, plan: dict[int, tuple[int, int]]) -> None:
        self.call = call
        self.old = call.kernel
        self.plan = plan
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
                k.Store(access, self.build(v, kept)) for v, (first, access) in self.plan.items() if first == i
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
        call.strategies += ("costly values of a row stand in its result until that is known",)
        return call
