"""Binding a schedule to extents on a GPU: how its kernels are divided, mapped to threads, and launched together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lazyt.backends.common.binding import ScheduleBinding
from lazyt.backends.cuda import engine
from lazyt.backends.cuda.code_cache import is_loaded, symbol_of
from lazyt.backends.cuda.codegen.emit import emit, program
from lazyt.backends.cuda.codegen.mapping import Mapping, choose, phases, pieces_of
from lazyt.backends.cuda.codegen.text import Module
from lazyt.backends.cuda.flags import switches as own
from lazyt.backends.cuda.horizontal_fusion import FEWEST, groups
from lazyt.forking import cached_property
from lazyt.ir.extents import is_multiple
from lazyt.ir.passes.kernelize import KernelCall
from lazyt.ir.passes.split_reduction import Piece, Scratch
from lazyt.ir.symbolic import uses_offset

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from lazyt.backends.cuda.device import Device
    from lazyt.ir import kernel as k
    from lazyt.ir.passes.kernelize import AccessArg

    Array = np.ndarray[Any, Any]


class Run:
    """One run of a bound plan: its stream, the bases of addresses, and the owners of its memory."""

    __slots__ = ("bases", "inputs", "outs", "stream")

    def __init__(self, stream: Any, bases: Sequence[int], outs: Sequence[Any], inputs: Sequence[Any]) -> None:
        self.stream, self.bases, self.outs, self.inputs = stream, bases, outs, inputs


class Binding(ScheduleBinding):
    """A schedule at given extents, on one device. `table` has the arguments of all launches."""

    table: Array
    parts: list[Any]  # what a run does, in order: graphs, and what no graph can hold
    ends_in_graph: bool  # whether a graph is the last of them, with no copy to or from the host beside it
    read: list[int]  # the inputs that it reads, among those of the trace

    def __init__(self, exe: Any, extents: tuple[int, ...], scalars: Sequence[Any]) -> None:
        super().__init__(exe, exe.expressions.evaluate(extents, scalars))
        self.extents = extents

    @property
    def where(self) -> Device:
        found: Device = self.exe.device
        return found

    def pieces_of(self, c: KernelCall) -> list[Piece]:
        """What a kernel is launched as: itself, or the parts of one with too few units of work for all processors."""
        extents, strides, coefs = self._shape(c)
        return self.checked(c, pieces_of(c.kernel, extents, strides, coefs, self.where.properties.processors))

    def _placed(
        self, c: KernelCall, piece: Piece, entries: list[int], at: int, patches: list[tuple[int, int, int]]
    ) -> list[int]:
        """The entries with addresses that are aligned as those of every run: buffers begin at multiples of 256."""
        placed = list(entries)
        offsets = {slot - at: offset for slot, _, offset in patches}
        for x, where in zip(piece.operands, piece.kernel.layout.accesses, strict=True):
            a = None if isinstance(x.source, Scratch) else c.accesses[x.source]
            moves = a is not None and uses_offset(a.offset)
            placed[where] = self._alignment(a, x.shift) if a is not None and moves else offsets[where]
        return placed

    def _alignment(self, a: AccessArg, shift: int) -> int:
        """What the address of an access that begins elsewhere in every run is a multiple of, up to 16 bytes."""
        byte = self._base(a.buffer)[1] + shift * a.itemsize
        for n in (16, 8, 4, 2):
            if byte % n == 0 and is_multiple(a.offset, max(n // a.itemsize, 1), self.extents):
                return n
        return 1

    def mappings_of(self, c: KernelCall) -> list[tuple[k.Kernel, Mapping]]:
        """The kernels of a call and how each is given to threads at these sizes."""
        found = self._mappings_of(c)
        return [(kernel, replace(m, many=True)) for kernel, m in found] if id(c) in self.together else found

    @cached_property
    def together(self) -> dict[int, int]:
        """By the id of a call that is launched with others: the number of that launch among such."""
        found: dict[int, int] = {}
        for region in self.exe.schedule.regions if own["many"] else ():
            calls = [c for c in region if isinstance(c, KernelCall)]
            if len(calls) < FEWEST:
                continue
            alone = [(c, m[0]) for c in calls if len(m := self._mappings_of(c)) == 1]
            for key in sorted(groups(kernel_and_mapping for _, kernel_and_mapping in alone), key=str):
                number = len(set(found.values()))
                found.update({id(c): number for c, (kernel, m) in alone if (kernel.key, m) == key})
        return found

    def _mappings_of(self, c: KernelCall) -> list[tuple[k.Kernel, Mapping]]:
        """As `mappings_of`, each call launched alone."""
        found = []
        checks, places = list(self.checks), dict(self.scratch)
        arena, scratch_at = self.arena_size, self.scratch_at
        for piece in self.pieces_of(c):
            patches: list[tuple[int, int, int]] = []
            table: list[int] = []
            self._arguments(c, piece, table, patches)
            placed = self._placed(c, piece, table, 0, patches)
            mapping = choose(piece.kernel, placed, self.where.properties.shared)
            processors = self.where.properties.processors
            found += [(piece.kernel, m) for m in phases(piece.kernel, mapping, piece.extents, processors)]
        # Nothing is kept of what this asked.
        self.checks, self.scratch = checks, places
        self.arena_size, self.scratch_at = arena, scratch_at
        return found

    def strategies_of(self, c: KernelCall) -> list[str]:
        """What `explain()` says of how a kernel is given to blocks."""
        launches = [m for _, m in self._mappings_of(c)]
        if not any(m.phase for m in launches) and len(launches) == 1:
            return []
        what = "few long rows" if c.kernel.vector == "row" else "tall columns"
        by = "segments" if any(m.segments for m in launches) else "chunks"
        return [f"{what}, divided between blocks by {by}, in {len(launches)} launches"]

    def is_loaded(self, c: KernelCall) -> bool:
        """Whether the launch's code is on the device."""
        return all(is_loaded(self.where, kernel, m) for kernel, m in self.mappings_of(c))

    def source_of(self, c: KernelCall, notes: Sequence[str]) -> str:
        """The CUDA C of a launch, behind the functions that it calls; compiles nothing."""
        module = Module()
        texts = []
        for i, (kernel, mapping) in enumerate(self.mappings_of(c)):
            texts.append(emit(kernel, mapping, symbol_of(kernel, mapping), module, notes if i == 0 else ()))
        return "\n".join([module.text(), *texts])

    def sass_of(self, c: KernelCall) -> str:
        """The machine code of a launch for this device; compiles it, if only to be read."""
        named = [(kernel, mapping, symbol_of(kernel, mapping)) for kernel, mapping in self.mappings_of(c)]
        capability = self.where.properties.capability
        return engine.disassembled(engine.compile_program(program(named), capability).cubin)
