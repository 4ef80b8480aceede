"""Running a schedule on the CPU: kernels compiled, arguments bound once a walk's extents, one native call a run.

A plan has a fallible part (memory is taken, kernels check indices) and no other: results always go to fresh memory,
so a sync that fails leaves everything as it was.
"""

from __future__ import annotations

import struct
import threading
import time
import weakref
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lazyt.backends.cpu import blas, memory, scan, scatter, sorting
from lazyt.backends.cpu.convolutions import Convolution, choose_convolution
from lazyt.backends.cpu.emit import emit
from lazyt.backends.cpu.engine import assembly, compile_module, counters, is_cached
from lazyt.backends.cpu.products import Product, choose
from lazyt.backends.cpu.threads import Program, get_num_threads
from lazyt.errors import IndexOutOfRange, OutOfMemory
from lazyt.ir import graph as g
from lazyt.ir import kernel as k
from lazyt.ir.extents import Dim, source, uses_offset
from lazyt.ir.graph import Node
from lazyt.ir.interpret import PRIMITIVES, Walk
from lazyt.ir.kernelize import KernelCall, ScalarArg
from lazyt.ir.opaque import FUNCTIONS
from lazyt.ir.schedule import LibraryCall, MatmulCall, ScatterCall, Schedule, nbytes

# Elements of work that a chunk should have at least, so that dividing it pays.
GRAIN = 16384
# A column reduction reads this many neighbouring units together (see emit_columns).
COLUMN_RUN = 16

# Machine code lives as long as some plan uses it.
_kernels: weakref.WeakValueDictionary[str, Compiled] = weakref.WeakValueDictionary()
_lock = threading.Lock()


class Compiled:
    """A kernel's machine code."""

    __slots__ = ("__weakref__", "address", "kernel", "module")

    def __init__(self, kernel: k.Kernel) -> None:
        self.kernel = kernel
        name = symbol_of(kernel)
        self.module = compile_module(source_of(kernel), [name])
        self.address = self.module.address(name)


def compiled(kernel: k.Kernel) -> Compiled:
    """The machine code of a kernel, made once a process (and kept on disk)."""
    c = _kernels.get(kernel.key)
    if c is None:
        with _lock:
            c = _kernels.get(kernel.key)
            if c is None:
                c = _kernels[kernel.key] = Compiled(kernel)
    return c


def code_at(kernel: k.Kernel) -> str:
    """Where a kernel's machine code is: 'memory', 'disk', or '' when it would have to be compiled."""
    if kernel.key in _kernels:
        return "memory"
    return "disk" if is_cached(source_of(kernel)) else ""


def source_of(kernel: k.Kernel) -> str:
    """A kernel's LLVM IR; compiles nothing."""
    return emit(kernel, symbol_of(kernel))


def assembly_of(kernel: k.Kernel) -> str:
    """A kernel's assembly for this host, generated for reading; loads nothing."""
    return assembly(source_of(kernel), [symbol_of(kernel)])


def symbol_of(kernel: k.Kernel) -> str:
    """The name of a kernel's function."""
    return f"lazyt_k_{kernel.key}"


# What has a place in a plan's arena: a temporary value, or an operand of a product packed.
Temporary = Node | tuple[MatmulCall, str]


class Expressions:
    """The integer expressions of a plan, evaluated together."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.dynamic: list[bool] = []
        self.evaluate: Any = None

    def add(self, e: int | Dim) -> int:
        """The number of an expression."""
        text = source(e)
        n = self.numbers.get(text)
        if n is None:
            n = self.numbers[text] = len(self.numbers)
            self.dynamic.append(uses_offset(e))
        return n

    def compile(self) -> None:
        body = ",".join(self.numbers)
        self.evaluate = eval(compile(f"lambda s, o: [{body}]", "<lazyt extents>", "eval"), {"max": max})


@dataclass(slots=True)
class _Slot:
    """An argument entry to be filled: at `slot`, from expression `e`."""

    slot: int
    e: int


class Executable:
    """A schedule with its kernels; `bind` makes what runs it for given extents."""

    def __init__(self, sched: Schedule, native: bool = True, gemm: bool = True, library: bool = True) -> None:
        self.schedule = sched
        self.native = native  # off: scatters and scans are calls of NumPy
        self.gemm, self.library = gemm, library  # whether products may be by generated code, by BLAS
        self.expressions = Expressions()
        self.scalars = sorted(
            {(s.position, s.part, s.floating) for c in sched.kernels for s in c.scalars if s.extent is None}
        )  # fmt: skip
        self.outputs = list(dict.fromkeys(n for n in sched.outputs if n.op != "leaf"))
        self._number_expressions()
        self.expressions.compile()
        self.bound: dict[tuple[int, ...], Bound] = {}
        self.compiles, self.compile_time = 0, 0.0

    def compile(self) -> None:
        """Have the machine code of every kernel at hand."""
        before, t0 = counters.compiles, time.perf_counter()
        self.kernels = [compiled(c.kernel) for c in self.schedule.kernels]
        for c in self.schedule.launches:
            if isinstance(c, ScatterCall) and self.native:
                scatter.of(c)
            elif isinstance(c, LibraryCall) and self.native and scan.native(c):
                scan.prepare(c)
        self.compiles = counters.compiles - before
        self.compile_time = time.perf_counter() - t0

    def _number_expressions(self) -> None:
        add = self.expressions.add
        for n in self.schedule.stored:
            add(nbytes(n))
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
                for e in _extents_in(getattr(c.node.attrs, "statics", ())):
                    add(e)

    def run(self, extents: tuple[int, ...], scalars: Sequence[Any], leaves: Sequence[Any]) -> list[memory.Buffer]:
        """Run for these extents; the buffers of `outputs`. Raises with nothing changed."""
        bound = self.bound.get(extents)
        if bound is None:
            if len(self.bound) > 256:
                self.bound.clear()
            bound = Bound(self, extents, scalars)
            bound.build()
            self.bound[extents] = bound
        return bound.run(scalars, leaves)


class Bound:
    """An executable for given extents: argument tables filled but for addresses and scalars."""

    def __init__(self, exe: Executable, extents: tuple[int, ...], scalars: Sequence[Any]) -> None:
        self.exe = exe
        self.lock = threading.Lock()
        self.extents = extents
        sched = exe.schedule
        self.values: list[int] = exe.expressions.evaluate(extents, scalars)
        self.n_leaves = max((n.attrs.index for n in sched.graph.nodes if isinstance(n.attrs, g.Leaf)), default=-1) + 1
        # Bases, in order: leaves, outputs, the arena, the status word, scalars, then addresses that move every run.
        self.output_base = {n: self.n_leaves + i for i, n in enumerate(exe.outputs)}
        self.arena_base = self.n_leaves + len(exe.outputs)
        self.status_base = self.arena_base + 1
        self.scalar_base = {s: self.status_base + 1 + i for i, s in enumerate(exe.scalars)}
        self.moving: list[tuple[int, int, int, int]] = []  # base index, byte offset, expression, itemsize
        self.n_fixed = self.status_base + 1 + len(exe.scalars)
        self.sizes = [max(self.value(nbytes(n)), 1) for n in exe.outputs]
        self.products: dict[MatmulCall, Product] = {}
        for c in sched.launches:
            if isinstance(c, MatmulCall) and c.node.op == "matmul":
                self.products[c] = Product(self, c, choose(c, self.value, exe.gemm, exe.library))
            elif isinstance(c, MatmulCall):
                self.products[c] = Convolution(self, c, choose_convolution(c, self.value))
        self.arena_size = self._plan_memory()
        self.status = np.zeros(2, np.int64)
        # Products that lie on the stack while their epilogue reads them.
        self.nowhere = {c.node for c, p in self.products.items() if p.choice.on_stack}
        self.checks: list[Node] = []
        self.parts: list[Any] = []
        self.uses_blas = any(p.choice.how == "blas" for p in self.products.values())
        self._scalar_format()

    def value(self, e: int | Dim) -> int:
        return e if isinstance(e, int) else self.values[self.exe.expressions.numbers[source(e)]]

    def _plan_memory(self) -> int:
        """Offsets of temporaries in the arena: the largest first, each at the lowest place free while it lives."""
        lives: dict[Temporary, tuple[int, int]] = {}
        sizes: dict[Temporary, int] = {}
        for n, span in self.exe.schedule.lives.items():
            lives[n], sizes[n] = span, max(self.value(nbytes(n)), 1)
        for i, region in enumerate(self.exe.schedule.regions):
            for c in region:
                if isinstance(c, MatmulCall):
                    for name, size in self.products[c].extra.items():
                        lives[c, name], sizes[c, name] = (i, i), size
                    if self.products[c].choice.on_stack:
                        del sizes[c.node]
        self.offsets: dict[Temporary, int] = {}
        placed: list[tuple[int, int, int, int]] = []  # start, end, first, last
        top = 0

        def order(temporary: Temporary) -> tuple[int, int, str]:
            node, name = (temporary, "") if isinstance(temporary, Node) else (temporary[0].node, temporary[1])
            return -sizes[temporary], node.serial, name

        for temporary in sorted(sizes, key=order):
            size = -(-sizes[temporary] // 64) * 64
            first, last = lives[temporary]
            at = 0
            for start, end, f, t in sorted(placed):
                if f <= last and t >= first:
                    if start - at >= size:
                        break
                    at = max(at, end)
            self.offsets[temporary] = at
            placed.append((at, at + size, first, last))
            top = max(top, at + size)
        return top

    def _base(self, n: Node) -> tuple[int, int]:
        """Base index and byte offset of a buffer."""
        if isinstance(n.attrs, g.Leaf):
            return n.attrs.index, 0
        if n in self.output_base:
            return self.output_base[n], 0
        return self.arena_base, self.offsets[n]

    def _address(
        self, n: Node, offset: int | Dim, itemsize: int, slot: int, patches: list[tuple[int, int, int]]
    ) -> None:
        base, byte = self._base(n)
        if uses_offset(offset):
            e = self.exe.expressions.numbers[source(offset)]
            self.moving.append((base, byte, e, itemsize))
            patches.append((slot, self.n_fixed + len(self.moving) - 1, 0))
        else:
            patches.append((slot, base, byte + self.value(offset) * itemsize))

    def _scalar_format(self) -> None:
        kinds = "".join("d" if floating else "q" for _, _, floating in self.exe.scalars)
        self.pack = struct.Struct("=" + kinds).pack
        self.unpack = struct.Struct("=" + "q" * len(kinds)).unpack
        self.positions = [p for p, _, _ in self.exe.scalars]
        self.plain = all(floating and not part for _, part, floating in self.exe.scalars)
        self.all_scalars = len(self.positions) if self.positions == list(range(len(self.positions))) else -1

    def build(self) -> None:
        """Divide the regions into native programs and library calls."""
        rows: list[list[int]] = []
        table: list[int] = []
        patches: list[tuple[int, int, int]] = []

        def flush() -> None:
            if rows:
                self.parts.append((rows[:], table[:], patches[:]))
                rows.clear()
                table.clear()
                patches.clear()

        for region in self.exe.schedule.regions:
            for i, c in enumerate(region):
                if isinstance(c, KernelCall):
                    self._kernel(c, rows, table, patches, i + 1 < len(region))
                elif isinstance(c, MatmulCall) and self.products[c].choice.how != "numpy":
                    self.products[c].rows(rows, table, patches)
                elif isinstance(c, ScatterCall) and self.exe.native:
                    scatter.launch(self, c, rows, table, patches)
                elif isinstance(c, LibraryCall) and self.exe.native and scan.native(c):
                    scan.launch(self, c, rows, table, patches)
                else:
                    flush()
                    self.parts.append(c)
                    if isinstance(c, MatmulCall) and c.epilogue is not None:
                        self._kernel(c.epilogue, rows, table, patches, False)
        flush()
        n = self.n_fixed + len(self.moving)
        self.parts = [Program(p[0], p[1], p[2], n) if isinstance(p, tuple) else _Callback(self, p) for p in self.parts]

    def _kernel(
        self, c: KernelCall, rows: list[list[int]], table: list[int], patches: list[tuple[int, int, int]], joins: bool
    ) -> None:
        kernel = c.kernel
        extents = [self.value(e) for e in c.extents]
        at = self._arguments(c, table, patches)
        units = kernel.units(extents)
        total = 1
        for e in extents:
            total *= e
        if total == 0 and not (kernel.rows and all(extents[: kernel.outer])):
            units = 0
        work = max(total // max(units, 1), 1)
        grain = max(GRAIN // work, 1)
        if kernel.rows and kernel.vector == "outer":
            grain = max(grain, min(COLUMN_RUN, -(-units // get_num_threads())))
        rows.append([self._compiled(kernel), at, units, grain, int(joins)])

    def _compiled(self, kernel: k.Kernel) -> int:
        """The address of a kernel's code."""
        return compiled(kernel).address

    def _arguments(self, c: KernelCall, table: list[int], patches: list[tuple[int, int, int]]) -> int:
        """Append a kernel's arguments to the table; where they begin."""
        lay, at = c.kernel.layout, len(table)
        args = [0] * max(lay.size, 1)
        args[: len(c.extents)] = [self.value(e) for e in c.extents]
        for a, where in zip(c.accesses, lay.accesses, strict=True):
            if a.buffer not in self.nowhere:
                self._address(a.buffer, a.offset, a.itemsize, at + where, patches)
            args[where + 1 : where + 1 + len(a.strides)] = [self.value(s) for s in a.strides]
        for (coefs, offset), where in zip(c.affines, lay.affines, strict=True):
            args[where : where + len(coefs)] = [self.value(e) for e in coefs]
            self._number(offset, args, where + len(coefs), at, patches)
        codes = (
            {s.extent: len(self.checks) + s.extent for s in c.scalars if isinstance(s.extent, int)} if c.checks else {}
        )
        for i, s in enumerate(c.scalars):
            self._scalar(s, args, lay.scalars + i, at, patches)
        if c.checks:
            self._codes(c, args, lay, codes)
            self.checks.extend(c.checks)
            patches.append((at + lay.status, self.status_base, 0))
        table.extend(args)
        return at

    def _codes(self, c: KernelCall, args: list[int], lay: k.Layout, codes: dict[Any, int]) -> None:
        positions = {v.code for v in c.kernel.values if isinstance(v, k.Check)}
        for i in positions:
            args[lay.scalars + i] = codes[c.scalars[i].extent]

    def _number(self, e: int | Dim, args: list[int], slot: int, at: int, patches: list[tuple[int, int, int]]) -> None:
        """An integer argument, fixed or moving every run."""
        if uses_offset(e):
            self.moving.append((-1, 0, self.exe.expressions.numbers[source(e)], 1))
            patches.append((at + slot, self.n_fixed + len(self.moving) - 1, 0))
        else:
            args[slot] = self.value(e)

    def _scalar(self, s: ScalarArg, args: list[int], slot: int, at: int, patches: list[tuple[int, int, int]]) -> None:
        if s.extent is not None:
            self._number(s.extent, args, slot, at, patches)
        else:
            patches.append((at + slot, self.scalar_base[s.position, s.part, s.floating], 0))

    def run(self, scalars: Sequence[Any], leaves: Sequence[Any]) -> list[memory.Buffer]:
        """Take memory, fill the bases, run; the outputs' buffers."""
        exe = self.exe
        try:
            outs = [memory.allocate(n) for n in self.sizes]
            arena = memory.allocate(self.arena_size) if self.arena_size else None
        except MemoryError as e:
            raise OutOfMemory(f"sync: {e}") from None
        bases = [d.address for d in leaves[: self.n_leaves]]
        bases += [b.address for b in outs]
        bases.append(arena.address if arena is not None else 0)
        bases.append(self.status.ctypes.data if self.checks else 0)
        if self.positions:
            bases += self._scalars(scalars)
        if self.moving:
            values = exe.expressions.evaluate(self.extents, scalars)
            for base, byte, number, itemsize in self.moving:
                bases.append(values[number] if base < 0 else bases[base] + byte + values[number] * itemsize)
        with self.lock:
            if self.uses_blas:
                with blas.OneThread():
                    self._launch(bases, outs, arena, leaves)
            else:
                self._launch(bases, outs, arena, leaves)
            if self.checks and self.status[0]:
                self._raise_check()
        return outs

    def _launch(self, bases: list[int], outs: Sequence[Any], arena: Any, leaves: Sequence[Any]) -> None:
        for part in self.parts:
            if type(part) is Program:
                part.launch(bases)
            else:
                part.run(bases, outs, arena, leaves)

    def _scalars(self, scalars: Sequence[Any]) -> list[int]:
        """The bits of the scalar arguments, as the kernels read them."""
        if self.plain:
            chosen = scalars if self.all_scalars == len(scalars) else map(scalars.__getitem__, self.positions)
            return array("q", array("d", chosen).tobytes()).tolist()
        values = []
        for position, part, floating in self.exe.scalars:
            v = scalars[position]
            if part:
                v = getattr(v, part)
            values.append(v if floating else int(v) if v < 1 << 63 else int(v) - (1 << 64))
        return list(self.unpack(self.pack(*values)))

    def _raise_check(self) -> None:
        code, index = int(self.status[0]), int(self.status[1])
        self.status[:] = 0
        n = self.checks[code - 1]
        if isinstance(n.attrs, g.Sizes):
            sizes = n.attrs.sizes
        else:
            assert isinstance(n.attrs, g.Axes)
            sizes = tuple(n.operands[0].shape[a] for a in n.attrs.axes)
        raise index_error(n, index, [self.value(d) for d in sizes])


def index_error(n: Node, index: int, sizes: Sequence[int]) -> IndexOutOfRange:
    """The error of an index that came from data, into axes of these sizes, with the line that recorded it."""
    size = next((s for s in sizes if not 0 <= index < s), sizes[0])
    # A negative index had the size added to it when it was recorded.
    return IndexOutOfRange(
        f"index {index if index >= 0 else index - size} is out of bounds for an axis of size {size} "
        f"(indexing recorded at {n.site}; found at the sync)"
    )


class _Callback:
    """A library call on NumPy views of the plan's buffers."""

    def __init__(self, bound: Bound, call: LibraryCall | MatmulCall | ScatterCall) -> None:
        self.bound = bound
        self.call = call

    def _view(
        self, n: Node, outs: Sequence[Any], arena: Any, leaves: Sequence[Any], writable: bool
    ) -> np.ndarray[Any, Any]:
        b = self.bound
        shape = [b.value(d) for d in n.shape]
        base = n
        while base.op == "reshape":
            base = base.operands[0]
        if isinstance(base.attrs, g.Leaf):
            return memory.as_ndarray(leaves[base.attrs.index].buffer, n.dtype, shape)
        if base in b.output_base:
            return memory.as_ndarray(outs[b.exe.outputs.index(base)], n.dtype, shape, writable=writable)
        return memory.as_ndarray(arena, n.dtype, shape, offset=b.offsets[base], writable=writable)

    def run(self, bases: Sequence[int], outs: Sequence[Any], arena: Any, leaves: Sequence[Any]) -> None:
        c = self.call
        n = c.node

        def get(x: Node, writable: bool = False) -> np.ndarray[Any, Any]:
            return self._view(x, outs, arena, leaves, writable)

        if isinstance(c, MatmulCall):
            views = []
            for x, (base, strides, offset) in zip(n.operands, c.operands, strict=True):
                flat = self._view(base, outs, arena, leaves, False).reshape(-1)
                b, size = self.bound, n.dtype.itemsize
                shape = [b.value(d) for d in x.shape]
                start = flat[b.value(offset) :] if flat.size else flat
                views.append(np.lib.stride_tricks.as_strided(start, shape, [b.value(s) * size for s in strides]))
            np.matmul(views[0], views[1], out=get(n, True))
        elif isinstance(c, ScatterCall):
            out = get(n, True)
            out[...] = c.fill.attrs.value if c.fill is not None else get(c.x)  # type: ignore[arg-type,union-attr]
            updates = np.broadcast_to(get(c.v), [self.bound.value(d) for d in n.operands[1].shape])
            out[...] = PRIMITIVES["scatter"](n, [out, updates, get(c.at)], Walk((), (), None))
        else:
            assert isinstance(n.attrs, g.Opaque)
            statics = _evaluated(n.attrs.statics, self.bound)
            if self.bound.exe.native and sorting.takes(n.attrs.fn, get(c.operands[0]).shape, statics):
                if c.results[0] is not None:
                    sorting.FUNCTIONS[n.attrs.fn](get(c.results[0], True), get(c.operands[0]), *statics)
                return
            got = FUNCTIONS[n.attrs.fn](*(get(x) for x in c.operands), *statics)
            results = got if isinstance(got, tuple) else (got,)
            for r, value in zip(c.results, results, strict=True):
                if r is not None:
                    get(r, True)[...] = value


def _extents_in(static: Any) -> Iterator[Dim]:
    """The symbolic extents among static arguments (the length of a transform)."""
    if isinstance(static, Dim):
        yield static
    elif isinstance(static, tuple):
        for s in static:
            yield from _extents_in(s)


def _evaluated(static: Any, bound: Bound) -> Any:
    """Static arguments with the extents in them evaluated."""
    if isinstance(static, tuple):
        return tuple(_evaluated(s, bound) for s in static)
    return bound.value(static) if isinstance(static, Dim) else static
