"""Running a schedule on a GPU: kernels mapped and compiled when it is bound to extents, then launched in order.

What an argument is and where a temporary lies is found as on the CPU (`backends/cpu/executor.py`). Launches are
enqueued; who reads a value waits. A plan that checks indices reads its status word before its results are given out.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.backends.cpu import executor as host
from lazyt.backends.cuda import library
from lazyt.backends.cuda.device import Device, DeviceBuffer, device
from lazyt.backends.cuda.emit import arguments, emit, program
from lazyt.backends.cuda.mapping import (
    Mapping,
    choose,
    chunks,
    extras,
    grid,
    is_divided,
    phases,
    scratch_words,
    shared_bytes,
)
from lazyt.backends.cuda.products import ByLibrary, Product
from lazyt.backends.cuda.scatter import Scatter
from lazyt.backends.cuda.switches import switches, variant
from lazyt.backends.cuda.text import Module
from lazyt.ir import graph as g
from lazyt.ir.extents import uses_offset
from lazyt.ir.kernelize import KernelCall
from lazyt.ir.schedule import LibraryCall, MatmulCall, ScatterCall
from lazyt.ir.split import Piece, Scratch, split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.cpu.receipt import Receipt
    from lazyt.ir import kernel as k
    from lazyt.ir.donate import Donation
    from lazyt.ir.graph import Node
    from lazyt.ir.schedule import Schedule

    Array = np.ndarray[Any, Any]

_lock = threading.Lock()
# Code lives as long as some plan uses it.
_functions: weakref.WeakValueDictionary[tuple[int, str, Mapping], Function] = weakref.WeakValueDictionary()


class Function:
    """A kernel under one mapping, loaded on a device."""

    __slots__ = ("__weakref__", "handle", "mapping", "shared")

    def __init__(self, handle: Any, kernel: k.Kernel, mapping: Mapping) -> None:
        self.handle = handle
        self.mapping = mapping
        self.shared = shared_bytes(kernel, mapping)


def functions(where: Device, wanted: Sequence[tuple[k.Kernel, Mapping]]) -> tuple[list[Function], int]:
    """Each kernel's code under its mapping, what is missing compiled as one program; and how many those were."""
    with _lock:
        key = id(where)
        found = {(key_of(w), m): f for w, m in wanted if (f := _functions.get((key, key_of(w), m))) is not None}
        missing = {(key_of(w), m): w for w, m in wanted if (key_of(w), m) not in found}
        names = {pair: symbol_of(kernel, pair[1]) for pair, kernel in missing.items()}
        if missing:
            source = program([(kernel, pair[1], names[pair]) for pair, kernel in missing.items()])
            sizes = {names[pair]: arguments(kernel, pair[1]) for pair, kernel in missing.items()}
            handles = where.driver.load(where.number, source, sizes)
            for pair, kernel in missing.items():
                f = found[pair] = _functions[key, *pair] = Function(handles[names[pair]], kernel, pair[1])
                assert f.mapping == pair[1]
    return [found[key_of(w), m] for w, m in wanted], len(missing)


def key_of(kernel: k.Kernel) -> str:
    """What tells the code of a kernel from others under one mapping."""
    return kernel.key + variant()


def symbol_of(kernel: k.Kernel, mapping: Mapping) -> str:
    """The name of a kernel's function under a mapping."""
    return f"lazyt_k_{key_of(kernel)}_{mapping.key}"


class Executable(host.Executable):
    """A schedule on one device."""

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


class Launch:
    """A kernel of a bound plan: where its arguments stand in the table, and how it is launched."""

    __slots__ = ("at", "blocks", "function")

    def __init__(self, function: Function, at: int, blocks: int) -> None:
        self.function = function
        self.at = at
        self.blocks = blocks


class Bound(host.Bound):
    """An executable for given extents."""

    exe: Executable

    def build(self) -> None:
        """Argument tables, mappings and code of every launch."""
        table: list[int] = []
        patches: list[tuple[int, int, int]] = []
        steps: list[Any] = []
        self.scratch_size = 0
        properties = self.where.properties
        wanted: list[tuple[k.Kernel, Mapping]] = []
        for c in self.exe.schedule.launches:
            if not isinstance(c, KernelCall):
                product = self.products[c] if isinstance(c, MatmulCall) else None
                if isinstance(product, Product) and product.choice.how == "blas":
                    product.place(table, patches)
                    steps.append(product)
                elif isinstance(c, MatmulCall):
                    other = ByLibrary(self, c)
                    other.place(table, patches)
                    steps.append(other)
                elif isinstance(c, ScatterCall) and (scatter := Scatter(self, c)).on_device:
                    scatter.place(table, patches)
                    steps.append(scatter)
                elif isinstance(c, LibraryCall) and c.node.attrs.fn in library.FUNCTIONS:  # type: ignore[union-attr]
                    steps.append(_Library(self, c))
                else:
                    steps.append(_OnHost(self, c))
                continue
            for piece in self.pieces_of(c):
                at, first = len(table), len(patches)
                self._arguments(c, piece, table, patches)
                kernel, extents = piece.kernel, piece.extents
                if _is_empty(kernel, extents):
                    continue
                mapping = choose(kernel, self._placed(c, piece, table[at:], at, patches[first:]), properties.shared)
                launches = phases(kernel, mapping, extents)
                if len(launches) > 1:
                    # Behind the kernel's own arguments: scratch memory, which is the last of the bases, and chunks.
                    patches.append((len(table), -1, 0))
                    table.extend((0, chunks(extents)))
                    words = math.prod(extents[: kernel.outer]) * scratch_words(kernel) * chunks(extents)
                    self.scratch_size = max(self.scratch_size, 8 * words)
                table.extend(extras(kernel, mapping, extents))
                for m in launches:
                    wanted.append((kernel, m))
                    steps.append((at, grid(kernel, m, extents, properties.processors)))
        t0 = time.perf_counter()
        code, compiled = functions(self.where, wanted)
        self.exe.compiles += compiled
        self.exe.compile_time += time.perf_counter() - t0
        rest = iter(code)
        self.parts = [Launch(next(rest), *s) if isinstance(s, tuple) else s for s in steps]
        self.table = np.array(table or [0], np.int64)
        columns = np.array(patches, np.int64).reshape(-1, 3)
        self.slots, self.sources, self.offsets_of_slots = (np.ascontiguousarray(x) for x in columns.T)
        self.word = self.where.allocate(16) if self.checks else None
        if self.word is not None:
            self.where.write(self.word.address, np.zeros(2, np.int64))

    @property
    def where(self) -> Device:
        return self.exe.device

    def pieces_of(self, c: KernelCall) -> list[Piece]:
        """What a kernel is launched as: itself, or the parts of one with too few units of work for all processors."""
        extents, strides, coefs = self._shape(c)
        if switches["split"] and is_divided(c.kernel, extents, self.where.properties.processors):
            return split(c.kernel, extents, strides, coefs)
        return [host._whole(c.kernel, extents, strides, coefs)]

    def _placed(
        self, c: KernelCall, piece: Piece, entries: list[int], at: int, patches: list[tuple[int, int, int]]
    ) -> list[int]:
        """The entries with addresses that are aligned as those of every run: buffers begin at multiples of 256."""
        placed = list(entries)
        offsets = {slot - at: offset for slot, _, offset in patches}
        for x, where in zip(piece.operands, piece.kernel.layout.accesses, strict=True):
            moves = not isinstance(x.source, Scratch) and uses_offset(c.accesses[x.source].offset)
            placed[where] = 1 if moves else offsets[where]
        return placed

    def mappings_of(self, c: KernelCall) -> list[tuple[k.Kernel, Mapping]]:
        """The kernels of a call and how each is given to threads at these sizes."""
        found = []
        checks, arena, places = list(self.checks), self.arena_size, dict(self.scratch)
        for piece in self.pieces_of(c):
            patches: list[tuple[int, int, int]] = []
            table: list[int] = []
            self._arguments(c, piece, table, patches)
            placed = self._placed(c, piece, table, 0, patches)
            mapping = choose(piece.kernel, placed, self.where.properties.shared)
            found += [(piece.kernel, m) for m in phases(piece.kernel, mapping, piece.extents)]
        # Nothing is kept of what this asked.
        self.checks, self.arena_size, self.scratch = checks, arena, places
        return found

    def is_loaded(self, c: KernelCall) -> bool:
        """Whether the launch's code is on the device."""
        return all((id(self.where), key_of(kernel), m) in _functions for kernel, m in self.mappings_of(c))

    def source_of(self, c: KernelCall, notes: Sequence[str]) -> str:
        """The CUDA C of a launch, behind the functions that it calls; compiles nothing."""
        module = Module()
        texts = []
        for i, (kernel, mapping) in enumerate(self.mappings_of(c)):
            texts.append(emit(kernel, mapping, symbol_of(kernel, mapping), module, notes if i == 0 else ()))
        return "\n".join([module.text(), *texts])

    def _product(self, c: MatmulCall) -> Product:
        return Product(self, c)

    def run(
        self,
        scalars: Sequence[Any],
        leaves: Sequence[Any],
        donated: Sequence[Donation] = (),
        receipt: Receipt | None = None,
    ) -> list[Any]:
        """Take memory, fill the arguments in, enqueue."""
        where = self.where
        outs = [where.allocate(n) for n in self.sizes]
        arena = where.allocate(self.arena_size) if self.arena_size else None
        bases = [d.address for d in leaves[: self.n_leaves]]
        bases += [b.address for b in outs]
        bases.append(arena.address if arena is not None else 0)
        bases.append(self.word.address if self.word is not None else 0)
        if self.positions:
            bases += self._scalars(scalars)
        if self.moving:
            values = self.exe.expressions.evaluate(self.extents, scalars)
            for base, byte, number, itemsize in self.moving:
                bases.append(values[number] + byte if base < 0 else bases[base] + byte + values[number] * itemsize)
        scratch = where.allocate(self.scratch_size) if self.scratch_size else None
        bases.append(scratch.address if scratch is not None else 0)
        with self.lock:
            self.table[self.slots] = np.array(bases, np.int64)[self.sources] + self.offsets_of_slots
            start = self.table.ctypes.data
            for part in self.parts:
                if type(part) is Launch:
                    f, at = part.function, start + 8 * part.at
                    where.driver.launch(where.number, f.handle, part.blocks, f.mapping.threads, f.shared, at)
                else:
                    part.run(bases, outs, arena, leaves)
            if self.word is not None:
                self._check_word(self.word)
        return outs

    def _check_word(self, word: DeviceBuffer) -> None:
        """Raise for an index that was outside; waits for the run."""
        self.status[:] = self.where.read(word.address, self.status.dtype, (2,))
        if self.status[0]:
            self.where.write(word.address, np.zeros(2, np.int64))
            self._raise_check()

    def address_of(self, n: Node, bases: Sequence[int]) -> int:
        base, byte = self._base(n)
        return bases[base] + byte


def _is_empty(kernel: k.Kernel, extents: Sequence[int]) -> bool:
    """Whether there is nothing to do: no outer index, or no point and nothing that an empty reduction would give."""
    return not all(extents[: kernel.outer]) or (not kernel.rows and not all(extents))


class _OnHost(host._Callback):
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

    def run(self, bases: Sequence[int], outs: Sequence[Any], arena: Any, leaves: Sequence[Any]) -> None:
        bound = self.bound
        assert isinstance(bound, Bound)
        self.bases, self.written = bases, []
        super().run(bases, outs, arena, leaves)
        for address, array in self.written:
            bound.where.write(address, array)
        bound.where.fallbacks += 1


class _Library(_OnHost):
    """A call of CuPy's own routines on the plan's memory."""

    capturable = False  # they take memory and wait as they like

    def run(self, bases: Sequence[int], outs: Sequence[Any], arena: Any, leaves: Sequence[Any]) -> None:
        bound, c = self.bound, self.call
        assert isinstance(bound, Bound)
        assert isinstance(c, LibraryCall)
        assert isinstance(c.node.attrs, g.Opaque)
        self.bases = bases
        with bound.where.driver.library(bound.where.number) as xp:
            operands = [(self._array(x), x.dtype) for x in c.operands]
            got = library.call(xp, c.node.attrs.fn, operands, host._evaluated(c.node.attrs.statics, bound))
            for r, value in zip(c.results, got, strict=True):
                if r is not None:
                    library.put(xp, self._array(r), r.dtype, value)

    def _array(self, n: Node) -> Any:
        bound = self.bound
        assert isinstance(bound, Bound)
        base = n
        while base.op == "reshape":
            base = base.operands[0]
        where, shape = bound.where, [bound.value(d) for d in n.shape]
        address = bound.address_of(base, self.bases)
        return where.driver.array(where.number, address, library.memory_dtype(n.dtype), shape)
