"""Makes kernels with equal bodies equal: sources are placed before their first use, and arguments are numbered by use.

    %1 = arg0; %2 = load @3; %3 = add %2, %0    -->    %0 = load @0; %1 = ...; %3 = add %0, %1

A graph has each scalar and constant once, so they appear between the operations of an optimizer's first update and
before those of all others; inputs are in the order in which the program first reads them. Neither belongs to the body.
"""

from __future__ import annotations

from dataclasses import replace

from lazyt.ir import kernel as k
from lazyt.ir.records import dataclass


@dataclass(frozen=True, slots=True)
class Numbered:
    """A kernel, and the former number of each of its accesses, affines and scalars."""

    kernel: k.Kernel
    accesses: tuple[int, ...]
    affines: tuple[int, ...]
    scalars: tuple[int, ...]


def numbered(kernel: k.Kernel) -> Numbered:
    """The same kernel, ordered and numbered by its body alone; no result changes by a bit."""
    order = _order(kernel)
    number = {old: new for new, old in enumerate(order)}
    uses = _Uses()
    for old in order:
        uses.add(kernel.values[old])
    stores = [t.access for stage in kernel.stages for t in stage.stores]
    accesses = _by_use([*uses.accesses, *stores], len(kernel.accesses))
    affines = _by_use(uses.affines, len(kernel.affines))
    scalars = _by_use(uses.scalars, kernel.scalars)
    access, affine, scalar = ({old: new for new, old in enumerate(some)} for some in (accesses, affines, scalars))

    def renumbered(value: k.Value) -> k.Value:
        value = k.with_operands(value, number)
        match value:
            case k.Load():
                return replace(value, access=access[value.access])
            case k.Gather():
                indices = tuple((i, scalar[s]) for i, s in value.indices)
                return replace(value, access=access[value.access], indices=indices)
            case k.Index():
                return replace(value, affine=affine[value.affine])
            case k.Scalar():
                return replace(value, position=scalar[value.position])
            case k.Check():
                return replace(value, code=scalar[value.code])
            case k.Reduce():
                return replace(value, operand=number[value.operand])
            case _:
                return value

    def stage(s: k.Stage) -> k.Stage:
        reduces = tuple(sorted(number[r] for r in s.reduces))
        return k.Stage(s.loops, reduces, tuple(k.Store(access[t.access], number[t.value]) for t in s.stores))

    new = replace(
        kernel,
        accesses=tuple(kernel.accesses[i] for i in accesses),
        affines=tuple(kernel.affines[i] for i in affines),
        values=tuple(renumbered(kernel.values[i]) for i in order),
        stages=tuple(stage(s) for s in kernel.stages),
    )
    return Numbered(new, accesses, affines, scalars)


class _Uses:
    """The arguments that values refer to, in the order of their references."""

    def __init__(self) -> None:
        self.accesses: list[int] = []
        self.affines: list[int] = []
        self.scalars: list[int] = []

    def add(self, value: k.Value) -> None:
        match value:
            case k.Load():
                self.accesses.append(value.access)
            case k.Gather():
                self.accesses.append(value.access)
                self.scalars += [s for _, s in value.indices]
            case k.Index():
                self.affines.append(value.affine)
            case k.Scalar():
                self.scalars.append(value.position)
            case k.Check():
                self.scalars.append(value.code)
            case _:
                pass


def _by_use(used: list[int], count: int) -> tuple[int, ...]:
    """All numbers below `count`, the used ones in the order of their first use."""
    return tuple(dict.fromkeys([*used, *range(count)]))


def _order(kernel: k.Kernel) -> list[int]:
    """Operations in their order, each preceded by its operands that only read, or are the same at all points."""
    free = _free(kernel)
    order: dict[int, None] = {}

    def place(root: int) -> None:
        todo = [root]
        while todo:
            v = todo[-1]
            if v in order:
                todo.pop()
                continue
            value = kernel.values[v]
            below = (value.operand,) if isinstance(value, k.Reduce) else k.operands_of(value)
            # NOTE: an operation that is not free stands before what uses it already.
            missing = [o for o in below if o not in order]
            if missing:
                todo += reversed(missing)
            else:
                order[todo.pop()] = None

    for v in range(len(kernel.values)):
        if v not in free:
            place(v)
    for s in kernel.stages:
        for t in s.stores:
            place(t.value)
    for v in range(len(kernel.values)):
        place(v)
    return list(order)


def _free(kernel: k.Kernel) -> set[int]:
    """The values that are placed before their first use."""
    moves = k.moving_axes(kernel)
    free: set[int] = set()
    for v, value in enumerate(kernel.values):
        match value:
            case k.Const() | k.Scalar() | k.Index():
                free.add(v)
            case k.Load():
                if value.where is None or (not moves[v] and value.where in free):
                    free.add(v)
            case k.Op() | k.Cast():
                if not moves[v] and all(o in free for o in k.operands_of(value)):
                    free.add(v)
            case _:
                pass
    return free
