"""Running a schedule on a GPU: kernels mapped and compiled when it is bound to extents, then launched in order.

What an argument is and where a temporary lies is found as on the CPU (`backends/cpu/executor.py`). Launches are
enqueued, from the second run on as graphs (`replay.py`); who reads a value waits, and hears of a wrong index.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.cpu import executor as host
from lazyt.backends.cpu.callbacks import Callback
from lazyt.backends.cpu.switches import switches
from lazyt.backends.cuda.checks import WORD, Check, unsettled
from lazyt.backends.cuda.device import Device, device
from lazyt.backends.cuda.emit import arguments, emit, program
from lazyt.backends.cuda.mapping import Mapping, choose, chunks, grid, phases, scratch_words, shared_bytes
from lazyt.backends.cuda.products import Product, Zeros
from lazyt.backends.cuda.replay import Launch, Segment
from lazyt.backends.cuda.text import Module
from lazyt.ir.extents import uses_offset
from lazyt.ir.kernelize import KernelCall
from lazyt.ir.schedule import LibraryCall, MatmulCall, ScatterCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.cpu.receipt import Receipt
    from lazyt.ir import kernel as k
    from lazyt.ir.graph import Node
    from lazyt.ir.schedule import Schedule

    Array = np.ndarray[Any, Any]

_lock = threading.Lock()
# Code lives as long as some plan uses it.
_functions: weakref.WeakValueDictionary[tuple[int, str, Mapping], Function] = weakref.WeakValueDictionary()


class Function:
    """A kernel under one mapping, loaded on a device."""

    __slots__ = ("__weakref__", "entries", "handle", "mapping", "shared")

    def __init__(self, handle: Any, kernel: k.Kernel, mapping: Mapping) -> None:
        self.handle = handle
        self.mapping = mapping
        self.entries = arguments(kernel, mapping)
        self.shared = shared_bytes(kernel, mapping)


def functions(where: Device, wanted: Sequence[tuple[k.Kernel, Mapping]]) -> tuple[list[Function], int]:
    """Each kernel's code under its mapping, what is missing compiled as one program; and how many those were."""
    with _lock:
        key = id(where)
        found = {(w.key, m): f for w, m in wanted if (f := _functions.get((key, w.key, m))) is not None}
        missing = {(w.key, m): w for w, m in wanted if (w.key, m) not in found}
        names = {pair: symbol_of(kernel, pair[1]) for pair, kernel in missing.items()}
        if missing:
            source = program([(kernel, pair[1], names[pair]) for pair, kernel in missing.items()])
            sizes = {names[pair]: arguments(kernel, pair[1]) for pair, kernel in missing.items()}
            with where.work():
                handles = where.driver.load(where.number, source, sizes)
            for pair, kernel in missing.items():
                f = found[pair] = _functions[key, *pair] = Function(handles[names[pair]], kernel, pair[1])
                assert f.mapping == pair[1]
    return [found[w.key, m] for w, m in wanted], len(missing)


def symbol_of(kernel: k.Kernel, mapping: Mapping) -> str:
    """The name of a kernel's function under a mapping."""
    return f"lazyt_k_{kernel.key}_{mapping.key}"


class Executable(host.Executable):
    """A schedule on one device."""

    widens = False  # neighbouring threads read what lies side by side

    def __init__(self, sched: Schedule, name: str) -> None:
        super().__init__(sched, native=False)
        self.donations = []
        self.device = device(name)

    def compile(self) -> None:
        """Nothing yet: a kernel's mapping follows from its extents."""

    def draft(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> Bound:
        return Bound(self, extents, scalars)

    def run(
        self, extents: tuple[int, ...], scalars: Sequence[Any], leaves: Sequence[Any], receipt: Receipt | None = None
    ) -> list[Any]:
        """As on the CPU, but for memory of leaves: results do not take it."""
        bound = self.bound.get(extents)
        if bound is None:
            if len(self.bound) > 256:
                self.bound.clear()
            bound = Bound(self, extents, scalars)
            bound.build()
            self.bound[extents] = bound
        return bound.run(scalars, leaves)


class Run:
    """One run of a bound plan: its stream, the bases of addresses, and what holds memory."""

    __slots__ = ("bases", "leaves", "outs", "stream")

    def __init__(self, stream: Any, bases: Sequence[int], outs: Sequence[Any], leaves: Sequence[Any]) -> None:
        self.stream, self.bases, self.outs, self.leaves = stream, bases, outs, leaves


class Bound(host.Bound):
    """An executable for given extents."""

    exe: Executable

    def build(self) -> None:
        """Argument tables, mappings and code of every launch."""
        table: list[int] = []
        patches: list[tuple[int, int, int]] = []
        steps: list[Any] = []
        self.scratch_size = 0
        wanted: list[tuple[k.Kernel, Mapping]] = []
        level = 0
        for region in self.exe.schedule.regions:
            level += 1
            for c in region:
                if isinstance(c, KernelCall):
                    launches = self._kernel_launches(c, table, patches)
                    # Launches that share scratch memory do not run beside others.
                    level += len(launches) > 1
                    for at, mapping, blocks in launches:
                        wanted.append((c.kernel, mapping))
                        steps.append((at, blocks, level))
                        level += len(launches) > 1
                else:
                    steps.append(self._call(c, table, patches, level))
        t0 = time.perf_counter()
        code, compiled = functions(self.where, wanted)
        self.exe.compiles += compiled
        self.exe.compile_time += time.perf_counter() - t0
        rest = iter(code)
        parts = [Launch(next(rest), *s) if isinstance(s, tuple) else s for s in steps]
        self.table = np.array(table or [0], np.int64)
        for part in parts:
            if isinstance(part, Launch):
                part.place(self.table)
        self.parts = self._segments(parts)
        columns = np.array(patches, np.int64).reshape(-1, 3)
        self.slots, self.sources, self.offsets_of_slots = (np.ascontiguousarray(x) for x in columns.T)
        self.word = self.where.allocate(WORD) if self.checks else None

    def _kernel_launches(
        self, c: KernelCall, table: list[int], patches: list[tuple[int, int, int]]
    ) -> list[tuple[int, Mapping, int]]:
        """Append a kernel's arguments; where they begin, the mapping and the blocks of each launch."""
        at, first = len(table), len(patches)
        entries = self._entries(c, at, patches)
        table.extend(entries)
        extents = entries[: c.kernel.axes]
        if _is_empty(c.kernel, extents):
            return []
        properties = self.where.properties
        mapping = choose(c.kernel, self._placed(c, entries, at, patches[first:]), properties.shared)
        launches = phases(c.kernel, mapping, extents)
        if len(launches) > 1:
            # Behind the kernel's own arguments: scratch memory, which is the last of the bases, and chunks.
            patches.append((len(table), -1, 0))
            table.extend((0, chunks(extents)))
            words = math.prod(extents[: c.kernel.outer]) * scratch_words(c.kernel) * chunks(extents)
            self.scratch_size = max(self.scratch_size, 8 * words)
        return [(at, m, grid(c.kernel, m, extents, properties.processors)) for m in launches]

    def _call(self, c: Any, table: list[int], patches: list[tuple[int, int, int]], level: int) -> Any:
        """What does a call that is not a kernel."""
        product = self.products[c] if isinstance(c, MatmulCall) else None
        if isinstance(product, Product) and product.choice.how == "blas":
            product.place(table, patches, level)
            return product if product.choice.k else Zeros(product)
        return _OnHost(self, c)

    def _segments(self, parts: Sequence[Any]) -> list[Any]:
        """What a graph can hold, taken together."""
        found: list[Any] = []
        for capturable, group in groupby(parts, lambda p: isinstance(p, Launch | Product)):
            some = list(group)
            found += [Segment(self.where, some)] if capturable else some
        return found

    @property
    def where(self) -> Device:
        return self.exe.device

    def _entries(self, c: KernelCall, at: int, patches: list[tuple[int, int, int]]) -> list[int]:
        """The argument entries of a launch; what a run knows goes to `patches`."""
        lay = c.kernel.layout
        args = [0] * max(lay.size, 1)
        args[: len(c.extents)] = [self.value(e) for e in c.extents]
        for a, where in zip(c.accesses, lay.accesses, strict=True):
            self._address(a.buffer, a.offset, a.itemsize, at + where, patches)
            args[where + 1 : where + 1 + len(a.strides)] = [self.value(s) for s in a.strides]
        for (coefs, offset), where in zip(c.affines, lay.affines, strict=True):
            args[where : where + len(coefs)] = [self.value(e) for e in coefs]
            self._number(offset, args, where + len(coefs), at, patches)
        codes = {s.extent: len(self.checks) + s.extent for s in c.scalars if isinstance(s.extent, int)}
        for i, s in enumerate(c.scalars):
            self._scalar(s, args, lay.scalars + i, at, patches)
        if c.checks:
            self._codes(c, args, lay, codes)
            self.checks.extend(c.checks)
            patches.append((at + lay.status, self.status_base, 0))
        return args

    def _placed(self, c: KernelCall, entries: list[int], at: int, patches: list[tuple[int, int, int]]) -> list[int]:
        """The entries with addresses that are aligned as those of every run: buffers begin at multiples of 256."""
        placed = list(entries)
        offsets = {slot - at: offset for slot, _, offset in patches}
        for a, where in zip(c.accesses, c.kernel.layout.accesses, strict=True):
            placed[where] = 1 if uses_offset(a.offset) else offsets[where]
        return placed

    def mapping_of(self, c: KernelCall) -> Mapping:
        """How the kernel is given to threads at these sizes."""
        patches: list[tuple[int, int, int]] = []
        checks = list(self.checks)
        entries = self._entries(c, 0, patches)
        self.checks = checks
        return choose(c.kernel, self._placed(c, entries, 0, patches), self.where.properties.shared)

    def is_loaded(self, c: KernelCall) -> bool:
        """Whether the launch's code is on the device."""
        return (id(self.where), c.kernel.key, self.mapping_of(c)) in _functions

    def source_of(self, c: KernelCall, notes: Sequence[str]) -> str:
        """The CUDA C of a launch, behind the functions that it calls; compiles nothing."""
        mapping, module = self.mapping_of(c), Module()
        text = emit(c.kernel, mapping, symbol_of(c.kernel, mapping), module, notes)
        return f"{module.text()}\n{text}"

    def _product(self, c: MatmulCall) -> Product:
        return Product(self, c)

    def run(
        self,
        scalars: Sequence[Any],
        leaves: Sequence[Any],
        places: Sequence[int] = (),
        receipt: Receipt | None = None,
    ) -> list[Any]:
        """Take memory, fill the arguments in, enqueue. Waits for nothing but what is done on the host."""
        where = self.where
        with self.lock, where.work() as stream:
            outs = [where.take(n) for n in self.sizes]
            arena = where.take(self.arena_size) if self.arena_size else None
            scratch = where.take(self.scratch_size) if self.scratch_size else None
            bases = [d.address for d in leaves[: self.n_leaves]]
            bases += [b.address for b in outs]
            bases.append(arena.address if arena is not None else 0)
            bases.append(self.word.address if self.word is not None else 0)
            if self.positions:
                bases += self.scalar_words(scalars)
            if self.moving:
                values = self.exe.expressions.evaluate(self.extents, scalars)
                for base, byte, number, itemsize in self.moving:
                    bases.append(values[number] + byte if base < 0 else bases[base] + byte + values[number] * itemsize)
            bases.append(scratch.address if scratch is not None else 0)
            self.table[self.slots] = np.array(bases, np.int64)[self.sources] + self.offsets_of_slots
            if self.word is not None:
                where.driver.clear(stream, self.word.address, WORD)
            run = Run(stream, bases, outs, leaves)
            for part in self.parts:
                if type(part) is Segment:
                    part.run(stream, self.table)
                else:
                    part.run(run)
            checks = unsettled(d.buffer for d in leaves[: self.n_leaves])
            if self.word is not None:
                checks = (Check(where, stream, self.word.address, self.error_of), *checks)
            for b in outs:
                b.checks = checks
        return outs

    def address_of(self, n: Node, bases: Sequence[int]) -> int:
        base, byte = self._base(n)
        return bases[base] + byte


def replay_of(exe: host.Executable, bound: host.Bound) -> str:
    """How a plan's launches at these sizes are enqueued from the second run on; '' on the CPU."""
    if not isinstance(exe, Executable):
        return ""
    if not switches["graphs"]:
        return "launch by launch: graphs are switched off"
    ran = exe.bound.get(bound.extents)
    segments = [p for p in ran.parts if isinstance(p, Segment)] if ran is not None else []
    graphs = [g for p in segments for g in p.graphs]
    refused = "".join(dict.fromkeys(f"; not all of it: {p.refused}" for p in segments if p.refused))
    if graphs:
        return f"{len(graphs)} CUDA graph{'s' * (len(graphs) > 1)}, launched {graphs[0].replays} times{refused}"
    return f"launch by launch{refused}" if refused else "launch by launch the first time, then as CUDA graphs"


def _is_empty(kernel: k.Kernel, extents: Sequence[int]) -> bool:
    """Whether there is nothing to do: no outer index, or no point and nothing that an empty reduction would give."""
    return not all(extents[: kernel.outer]) or (not kernel.rows and not all(extents))


class _OnHost(Callback):
    """A call that has no GPU form: its operands are copied to the host and its results back; counted."""

    def __init__(self, bound: Bound, call: LibraryCall | MatmulCall | ScatterCall) -> None:
        super().__init__(bound, call)
        self.bases: Sequence[int] = ()
        self.written: list[tuple[int, Array]] = []

    def _view(self, n: Node, outs: Sequence[Any], arena: Any, leaves: Sequence[Any], writable: bool) -> Array:
        bound = self.bound
        assert isinstance(bound, Bound)
        base = n
        while base.op == "reshape":
            base = base.operands[0]
        shape, address = [bound.value(d) for d in n.shape], bound.address_of(base, self.bases)
        if not writable:
            return bound.where.read(address, n.dtype, shape)
        array = np.empty(shape, n.dtype)
        self.written.append((address, array))
        return array

    def _adopt(self, n: Node, results: list[Any], bases: list[int], outs: list[Any]) -> bool:
        return False  # the host's memory is not the device's

    def run(self, run: Run) -> None:  # type: ignore[override]
        bound = self.bound
        assert isinstance(bound, Bound)
        self.bases, self.written = run.bases, []
        super().run(list(run.bases), list(run.outs), None, run.leaves)
        for address, array in self.written:
            bound.where.write(address, array)
        self.bases, self.written = (), []
        bound.where.fallbacks += 1
