"""The parts common to all executables of a schedule: numbered expressions, scalars as words, outputs in order."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Any

from lazyt.backends.common.expressions import Expressions
from lazyt.backends.common.host_calls import extents_in
from lazyt.config import general as switches
from lazyt.ir.passes.call_operands import nbytes
from lazyt.ir.passes.in_place import in_place
from lazyt.ir.passes.kernelize import KernelCall
from lazyt.ir.passes.schedule import AttentionCall, MatmulCall, Schedule

if TYPE_CHECKING:
    from collections.abc import Sequence


class ScalarWords:
    """The bits of a plan's scalar arguments, as its kernels read them."""

    def __init__(self, scalars: Sequence[tuple[int, str, bool]]) -> None:
        self.scalars = scalars
        kinds = "".join("d" if floating else "q" for _, _, floating in scalars)
        self.pack = struct.Struct("=" + kinds).pack
        self.unpack = struct.Struct("=" + "q" * len(kinds)).unpack
        self.positions = [p for p, _, _ in scalars]
        self.plain = all(floating and not part for _, part, floating in scalars)
        self.all = len(scalars) if self.positions == list(range(len(scalars))) else -1

    def of(self, scalars: Sequence[Any]) -> list[int]:
        """The words for the scalars of a trace."""
        if self.plain:
            chosen = scalars if self.all == len(scalars) else map(scalars.__getitem__, self.positions)
            return array("q", array("d", chosen).tobytes()).tolist()
        values = []
        for position, part, floating in self.scalars:
            v = scalars[position]
            if part:
                v = getattr(v, part)
            values.append(v if floating else int(v) if v < 1 << 63 else int(v) - (1 << 64))
        return list(self.unpack(self.pack(*values)))


class ScheduleExecutable:
    """The arguments of a schedule's launches at any extents; a backend adds compiling, binding and running."""

    def __init__(self, sched: Schedule) -> None:
        self.schedule = sched
        for c in () if sched.arranged else sched.launches:
            if isinstance(c, KernelCall):
                self.arrange(c)
        sched.arranged = True
        if sched.in_place is None:
            sched.in_place = in_place(sched.regions, sched.lives) if switches["inplace"] else {}
        self.expressions = Expressions()
        readers: list[KernelCall | AttentionCall] = [
            *sched.kernels,
            *(c for c in sched.launches if isinstance(c, AttentionCall)),
        ]
        self.scalars = sorted(
            {(s.position, s.part, s.floating) for c in readers for s in c.scalars if s.extent is None}
        )  # fmt: skip
        self.words = ScalarWords(self.scalars)
        self.outputs = list(dict.fromkeys(n for n in sched.outputs if n.op != "input"))
        self._number_expressions()
        self.expressions.compile()
        self.bound: dict[tuple[int, ...], Any] = {}
        self.compiles, self.compile_time = 0, 0.0

    def begin(self) -> None:
        """A hint that it will be compiled next."""

    def arrange(self, call: KernelCall) -> None:
        """Change a kernel into the form that the backend's code generator takes, before anything is numbered."""

    def notes(self, bound: Any) -> list[tuple[str, str]]:
        """Further lines of `explain()` on a run as a whole: (word, text)."""
        return []

    def _number_expressions(self) -> None:
        add = self.expressions.add
        self.nbytes = {n: nbytes(n) for n in self.schedule.stored}
        for n, size in self.nbytes.items():
            add(size)
            for d in n.shape:
                add(d)
        for o in self.schedule.graph.outputs:
            for d in o.shape:
                add(d)
        for kernel in self.schedule.kernels:
            for e in kernel.extents:
                add(e)
            for a in kernel.accesses:
                add(a.offset)
                for e in a.strides:
                    add(e)
            for coefs, offset in kernel.affines:
                add(offset)
                for e in coefs:
                    add(e)
            for s in kernel.scalars:
                if s.extent is not None:
                    add(s.extent)
        for c in self.schedule.launches:
            if isinstance(c, MatmulCall):
                for x in c.node.operands:
                    for e in x.shape:
                        add(e)
                for base, strides, offset in c.operands:
                    add(offset)
                    for e in (*base.shape, *strides):
                        add(e)
            elif not isinstance(c, KernelCall):
                for x in c.operands:
                    for e in x.shape:
                        add(e)
                for base, strides, offset in c.views if isinstance(c, AttentionCall) else ():
                    for e in (offset, *base.shape, *strides):
                        add(e)
                for e in extents_in(getattr(c.node.attrs, "statics", ())):
                    add(e)
