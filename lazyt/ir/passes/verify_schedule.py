"""The rules of a valid schedule: no launch reads what was not written before, or no longer is.

    written   all of a buffer is written in earlier regions of launches than those that read it, or return it
    once      nothing writes into a buffer beside a reader, or after it; launches beside each other do not overlap
    own       what a kernel reads of its own buffers is what the same point stored in an earlier stage
    bounds    accesses stay inside their buffers
    alive     the memory of a temporary is its own from its first use to its last

What is written is proved for all extents of the plan, by its guards. Where symbols are not enough (a concatenation of
forty parts has named sums as offsets), the sizes in the trace being planned decide. Bounds are those of these sizes.
The cost is linear in the number of launches and accesses.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lazyt.errors import LazytInternalError
from lazyt.ir import graph as g, kernel as k
from lazyt.ir.passes.call_operands import nbytes
from lazyt.ir.passes.index_maps import strides_of
from lazyt.ir.passes.kernelize import KernelCall
from lazyt.ir.passes.regions import Region, united
from lazyt.ir.passes.schedule import AttentionCall, MatmulCall
from lazyt.ir.passes.stage_reuse import evaluated
from lazyt.ir.symbolic import guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lazyt.ir.graph import Node
    from lazyt.ir.passes.fusion_result import AccessArg
    from lazyt.ir.passes.schedule import Launch, Schedule
    from lazyt.ir.symbolic import Dim, Scope


def verify_schedule(
    sched: Schedule, scope: Scope | None, at: Callable[[int | Dim], int] = guarded
) -> list[Node]:  # fmt: skip
    """Raise LazytInternalError at the first rule that a schedule breaks.

    at: the sizes that decide; without a scope they alone do. Returns the buffers that these say are written whole, and
    no proof for all sizes.
    """
    return _Verifier(sched, scope, at).run()


class _Verifier:
    def __init__(self, sched: Schedule, scope: Scope | None, at: Callable[[int | Dim], int]) -> None:
        self.sched = sched
        self.scope = scope
        self.at = at
        self.outputs = set(sched.outputs)
        self.written: dict[Node, list[Region]] = {}
        self.whole: dict[Node, int] = {}  # buffer -> the first region that reads all of it
        self.filled: dict[tuple[Node, int], int] = {}  # how many bytes a region of launches writes of a buffer
        self.unproved: list[Node] = []

    def run(self) -> list[Node]:
        for number, region in enumerate(self.sched.regions):
            for c in region:
                self.reads(number, c)
            for c in region:
                self.writes(number, c)
        for n in self.outputs:
            self.need_whole(len(self.sched.regions), n, "it is returned")
        return self.unproved

    def need(self, cond: bool, why: str, n: Node, c: Launch | None = None) -> None:
        if not cond:
            kernel = c.epilogue if isinstance(c, MatmulCall) else c
            text = kernel.kernel.text if isinstance(kernel, KernelCall) else ""
            extents = f" over {list(kernel.extents)}" if isinstance(kernel, KernelCall) else ""
            raise LazytInternalError(f"invalid schedule: {why}\n  {g.node_line(n)}\n{text}{extents}")

    def number(self, a: int | Dim) -> int | Dim:
        """A size as it is compared: by the scope, or at the sizes that decide."""
        return self.at(a) if self.scope is None else self.scope.normal(a)

    def nbytes(self, n: Node) -> int:
        """Bytes of a buffer at the sizes that decide."""
        return math.prod(map(self.at, n.shape)) * n.dtype.itemsize

    # What is read

    def reads(self, number: int, c: Launch) -> None:
        kernel = c.epilogue if isinstance(c, MatmulCall) else c
        for n in c.reads:
            self.need_whole(number, n, "it is read", c)
        for n in c.reads | c.writes:
            self.alive(number, n, c)
        if isinstance(kernel, KernelCall):
            self.kernel(kernel, c)
        views = c.views if isinstance(c, AttentionCall) else c.operands if isinstance(c, MatmulCall) else ()
        for x, view in zip(c.node.operands, views, strict=False) if not isinstance(c, KernelCall) else ():
            base, strides, offset = view
            self.inside(base, strides, offset, x.shape, base.dtype.itemsize, c)

    def need_whole(self, number: int, n: Node, why: str, c: Launch | None = None) -> None:
        if n.op == "input" or n in self.whole or self.nbytes(n) == 0:
            return
        self.whole[n] = number
        made = self.written.get(n, [])
        self.need(bool(made), f"{why}, but nothing writes it before", n, c)
        if self.scope is not None:
            steps = [self.scope.normal(s * n.dtype.itemsize) for s in strides_of(n.shape)]
            if _cover(self.scope, self.scope.normal(nbytes(n)), made, steps):
                return
            self.unproved.append(n)
            made = [r.at_hints() for r in made]
        shape = tuple(map(self.at, n.shape))
        missing = (
            f"{why}, but of its {nbytes(n)} bytes these are written before: {', '.join(map(str, self.written[n]))}"
        )
        steps = [s * n.dtype.itemsize for s in strides_of(shape)]
        self.need(_cover(None, self.nbytes(n), made, steps), missing, n, c)

    def alive(self, number: int, n: Node, c: Launch) -> None:
        if n.op == "input" or n in self.outputs:
            return
        lives = self.sched.lives.get(n) or self.sched.on_host.get(n)
        self.need(lives is not None and lives[0] <= number <= lives[1], "its memory is another's by then", n, c)

    # Kernels

    def kernel(self, call: KernelCall, c: Launch) -> None:
        kernel = call.kernel
        stored: dict[Node, set[int]] = {}  # buffer -> the accesses that earlier stages stored at each point
        product = c.node if isinstance(c, MatmulCall) else None
        for stage in kernel.stages:
            for v in evaluated(kernel, stage):
                value = kernel.values[v]
                if not isinstance(value, k.Load | k.Gather):
                    continue
                a = call.accesses[value.access]
                if a.buffer in call.writes and a.buffer is not product:
                    same = any(self.same_place(a, call.accesses[s]) for s in stored.get(a.buffer, ()))
                    self.need(same, "a kernel reads of it what it did not store at this point before", a.buffer, c)
                # NOTE: what a backend reads in periods, or several times each, reaches less far than strides say.
                own = kernel.accesses[value.access]
                if value.where is None and isinstance(value, k.Load) and not (own.period or own.spread):
                    self.inside(a.buffer, a.strides, a.offset, call.extents, a.itemsize, c)
            for s in stage.stores if stage.loops else ():
                stored.setdefault(call.accesses[s.access].buffer, set()).add(s.access)

    def same_place(self, a: AccessArg, b: AccessArg) -> bool:
        pairs = zip((a.offset, *a.strides), (b.offset, *b.strides), strict=True)
        return a.itemsize == b.itemsize and all(self.number(x) == self.number(y) for x, y in pairs)

    def inside(
        self, n: Node, strides: Sequence[int | Dim], offset: int | Dim, extents: Sequence[int | Dim], itemsize: int,
        c: Launch,
    ) -> None:  # fmt: skip
        """Whether elements at these strides are all in a buffer, at the sizes of this trace."""
        low = high = guarded(offset)
        for stride, extent in zip(strides, extents, strict=True):
            if guarded(extent) == 0:
                return
            span = guarded(stride) * (guarded(extent) - 1)
            low, high = low + min(span, 0), high + max(span, 0)
        size = guarded(nbytes(n))
        self.need(low >= 0 and (high + 1) * itemsize <= size, f"elements {low} to {high} are outside of it", n, c)

    # What is written

    def writes(self, number: int, c: Launch) -> None:
        for n, found in self.stores(c):
            self.need(self.whole.get(n, number + 1) > number, "it is written beside a reader, or after one", n, c)
            self.need(found is not None, "elements are written twice by one launch", n, c)
            assert found is not None
            made, size = self.written.setdefault(n, []), self.nbytes(n)
            # NOTE: an update may be of all elements, over a copy; a copy over the update is a fault.
            over = bool(made) and found.at_hints().is_first(None, size)
            lost = over and not any(r.at_hints().is_first(None, size) for r in made)
            self.need(not lost, "all of it is written over before anything reads it", n, c)
            made.append(found)
            self.filled[n, number] = filled = self.filled.get((n, number), 0) + found.size
            self.need(filled <= size, "launches beside each other write the same elements", n, c)

    def stores(self, c: Launch) -> Iterator[tuple[Node, Region | None]]:
        """The buffers that a launch writes, and where."""
        scope = self.scope
        kernel = c.epilogue if isinstance(c, MatmulCall) else c
        if not isinstance(c, KernelCall):
            for n in c.writes if kernel is c else (c.node,):
                yield n, Region.all_of(scope, self.nbytes(n) if scope is None else nbytes(n))
        if not isinstance(kernel, KernelCall):
            return
        found: dict[tuple[int, int], None] = {}  # a store access, over how many axes: each once
        for stage in kernel.kernel.stages:
            count = len(kernel.extents) if stage.loops else kernel.kernel.outer
            found |= {(s.access, count): None for s in stage.stores}
        for access, count in found:
            a, extents = kernel.accesses[access], kernel.extents[:count]
            if all(map(self.at, extents)):
                self.inside(a.buffer, a.strides[:count], a.offset, extents, a.itemsize, c)
                yield a.buffer, self.region(a, extents)

    def region(self, a: AccessArg, extents: Sequence[int | Dim]) -> Region | None:
        """The region that an access stores; None where it stores an element twice.

        NOTE: two axes may have one stride for some sizes, where one of them has one element.
        """
        parts = a.offset, *a.strides[: len(extents)], *extents
        for scope, number in ((self.scope, self.number), (None, self.at)):
            offset, *rest = map(number, parts)
            found = Region.of(scope, offset, rest[: len(extents)], rest[len(extents) :], a.itemsize)
            if found is not None:
                return found
        return None


def _cover(scope: Scope | None, size: int | Dim, made: Sequence[Region], steps: Sequence[int | Dim]) -> bool:
    """Whether these regions are all of a buffer of so many bytes."""
    whole = any(r.is_first(scope, size) for r in made)
    return whole or any(r.is_first(scope, size) for r in united(scope, made, steps))
