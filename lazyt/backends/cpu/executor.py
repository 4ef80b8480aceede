"""Running a schedule on the CPU: kernels compiled, arguments bound once a walk's extents, one native call a run.

A plan has a fallible part (memory is taken, kernels check indices, libraries are called) that writes fresh memory only,
so a sync that fails leaves everything as it was. Behind it results may go where leaves were (see `Bound.donating`).
"""

from __future__ import annotations

import math
import struct
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lazyt.backends.cpu import attention, blas, memory, scan, scatter
from lazyt.backends.cpu.callbacks import Callback, extents_in
from lazyt.backends.cpu.code import Compiled, compile_all, compiled
from lazyt.backends.cpu.convolutions import Convolution, choose_convolution
from lazyt.backends.cpu.emit_pairs import PAIR_ROWS, over_pairs
from lazyt.backends.cpu.engine import compile_ahead, counters
from lazyt.backends.cpu.expressions import Expressions
from lazyt.backends.cpu.lanes import arrange
from lazyt.backends.cpu.products import Product, choose
from lazyt.backends.cpu.receipt import WRITTEN, Receipt, chosen
from lazyt.backends.cpu.refusals import index_error
from lazyt.backends.cpu.switches import switches
from lazyt.backends.cpu.threads import Program, get_num_threads
from lazyt.backends.cpu.tuning import tuned
from lazyt.errors import LazytError, OutOfMemory
from lazyt.ir import graph as g
from lazyt.ir import kernel as k
from lazyt.ir.donate import Donation, donations
from lazyt.ir.extents import Dim, uses_offset
from lazyt.ir.graph import Node
from lazyt.ir.kernelize import KernelCall, ScalarArg
from lazyt.ir.schedule import AttentionCall, Launch, LibraryCall, MatmulCall, ScatterCall, Schedule, nbytes
from lazyt.ir.split import Piece, Scratch, split, whole, worth_splitting

# Elements of work that a chunk should have at least, so that dividing it pays.
GRAIN = 16384
# A column reduction reads this many neighbouring units together (see emit_columns).
COLUMN_RUN = 16

# Results of fewer bytes do not take the memory of leaves: to find out would cost as much as to copy.
DONATED = 1 << 14
MANY = 4  # ... unless there are so many
MAX_VARIANTS = 8  # combinations of copies left out that a plan keeps tables for


# What has a place in a plan's arena: a temporary value, or an operand of a product packed.
Temporary = Node | tuple[MatmulCall, str]


class Executable:
    """A schedule with its kernels; `bind` makes what runs it for given extents."""

    widens = True  # whether narrow maps have lanes along another axis (see narrow.py)

    def __init__(self, sched: Schedule, native: bool = True, gemm: bool = True, library: bool = True) -> None:
        self.schedule = sched
        self.gemm, self.library = gemm, library  # whether products may be by generated code, by BLAS
        self.native = native  # off: scatters and scans are calls of NumPy
        for c in sched.launches:
            if isinstance(c, KernelCall):
                arrange(c, self.widens)
        self.expressions = Expressions()
        readers: list[KernelCall | AttentionCall] = [
            *sched.kernels,
            *(c for c in sched.launches if isinstance(c, AttentionCall)),
        ]
        self.scalars = sorted(
            {(s.position, s.part, s.floating) for c in readers for s in c.scalars if s.extent is None}
        )  # fmt: skip
        self.outputs = list(dict.fromkeys(n for n in sched.outputs if n.op != "leaf"))
        self._number_expressions()
        self.expressions.compile()
        self.bound: dict[tuple[int, ...], Bound] = {}
        self.last: Any = None, None  # the extents met last (a walk has the same object each time), and theirs
        self.compiles, self.compile_time = 0, 0.0
        self.donations = donations(sched) if switches["donate"] else []

    def compile(self) -> None:
        """Have the machine code of every kernel at hand."""
        before, t0 = counters.compiles, time.perf_counter()
        self.kernels = compile_all([c.kernel for c in self.schedule.kernels], get_num_threads())
        for c in self.schedule.launches:
            if isinstance(c, ScatterCall) and self.native:
                scatter.of(c)
            elif isinstance(c, AttentionCall):
                attention.prepare(c)
            elif isinstance(c, LibraryCall) and self.native and scan.native(c):
                scan.prepare(c)
        self.compiles = counters.compiles - before
        self.compile_time = time.perf_counter() - t0

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

    def draft(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> Bound:
        """The sizes of a run for these extents, for looking at; nothing is compiled or kept."""
        return Bound(self, extents, scalars)

    def run(
        self, extents: tuple[int, ...], scalars: Sequence[Any], leaves: Sequence[Any], receipt: Receipt | None = None
    ) -> list[Any]:
        """Run for these extents; the buffers of `outputs` (see `Bound.run`). Raises with nothing changed.

        With a `receipt`, results may take the memory of leaves that nobody else holds. What is raised then (an
        interrupt) leaves everything as it was only if the receipt does not say `written`.
        """
        known, found = self.last
        bound: Bound = found if known is extents else self._bind(extents, scalars)
        if receipt is None or not bound.donations:
            return bound.run(scalars, leaves)
        variant, places = bound.donating(leaves, scalars)
        return variant.run(scalars, leaves, places, receipt)

    def _bind(self, extents: tuple[int, ...], scalars: Sequence[Any]) -> Bound:
        """What runs for these extents, made when there is none."""
        bound = self.bound.get(extents)
        if bound is None:
            if len(self.bound) > 256:
                self.bound.clear()
            bound = Bound(self, extents, scalars, measure=True)
            bound.build()
            self.bound[extents] = bound
        self.last = extents, bound
        return bound


class Bound:
    """An executable for given extents: argument tables filled but for addresses and scalars."""

    def __init__(
        self, exe: Executable, extents: tuple[int, ...], scalars: Sequence[Any],
        left_out: frozenset[int] | None = None, measure: bool = False,
    ) -> None:  # fmt: skip
        self.exe = exe
        # For a run that overwrites leaves: the ids of copies that are not needed then.
        self.left_out = left_out
        self.met = False  # whether the last sync of these extents left it for the next (see repeating.py)
        self.measure = measure  # whether products may be timed to choose how they are computed
        self.flag = np.zeros(1, np.int64)
        self.variants: dict[frozenset[int], Bound] = {}
        # The references of leaves met last, and what was chosen for them: see `donating`.
        self.chosen: tuple[memory.References | None, Bound, Sequence[int]] = None, self, ()
        self.overwrites_from = 0  # the part before which everything that can fail is over
        self.lock = threading.Lock()
        self.extents = extents
        sched = exe.schedule
        self._numbers = exe.expressions.known
        self.values: list[int] = exe.expressions.evaluate(extents, scalars)
        self.n_leaves = max((n.attrs.index for n in sched.graph.nodes if isinstance(n.attrs, g.Leaf)), default=-1) + 1
        # Bases, in order: leaves, outputs, the arena, the status word, scalars, then addresses that move every run.
        self.output_base = {n: self.n_leaves + i for i, n in enumerate(exe.outputs)}
        self.arena_base = self.n_leaves + len(exe.outputs)
        self.status_base = self.arena_base + 1
        self.scalar_base = {s: self.status_base + 1 + i for i, s in enumerate(exe.scalars)}
        # Base index, byte offset, expression, itemsize; a base of -1: a number, the expression plus the offset.
        self.moving: list[tuple[int, int, int, int]] = []
        self.scratch: dict[Scratch, int] = {}
        self.codes: list[Compiled] = []
        self.n_fixed = self.status_base + 1 + len(exe.scalars)
        self.sizes = [max(self.value(exe.nbytes[n]), 1) for n in exe.outputs]
        self.products: dict[MatmulCall, Product] = {}
        for c in sched.launches:
            if isinstance(c, MatmulCall):
                self.products[c] = self._product(c)
        # Products that lie on the stack while their epilogue reads them.
        self.nowhere = {c.node for c, p in self.products.items() if p.choice.on_stack}
        self.uses_blas = any(p.choice.how == "blas" for p in self.products.values())
        self.arena_size = self._plan_memory()
        self.status = np.zeros(2, np.int64)
        self.status_address: int = self.status.ctypes.data
        self.checks: list[Node] = []
        self.parts: list[Any] = []
        self.donations: list[Donation] = []
        self._scalar_format()

    def value(self, e: int | Dim) -> int:
        return e if isinstance(e, int) else self.values[self._numbers[e]]

    def _product(self, c: MatmulCall) -> Product:
        if c.node.op == "matmul":
            exe = self.exe
            choice = choose(c, self.value, exe.gemm, exe.library)
            if switches["autotune"] and exe.gemm and exe.library:
                choice = tuned(c, choice, self.value, self.measure)
            return Product(self, c, choice)
        return Convolution(self, c, choose_convolution(c, self.value))

    def _plan_memory(self) -> int:
        """Offsets of temporaries in the arena: the largest first, each at the lowest place free while it lives."""
        lives: dict[Temporary, tuple[int, int]] = {}
        sizes: dict[Temporary, int] = {}
        for n, span in self.exe.schedule.lives.items():
            lives[n], sizes[n] = span, max(self.value(self.exe.nbytes[n]), 1)
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
        self, n: Node, offset: int | Dim, itemsize: int, slot: int, patches: list[tuple[int, int, int]], shift: int = 0
    ) -> None:
        base, byte = self._base(n)
        byte += shift * itemsize
        if uses_offset(offset):
            e = self._numbers[offset]
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

        compile_ahead([x for p in self.products.values() for x in p.modules], get_num_threads())
        left_out = self.left_out or ()
        safe = self._safe_region()
        for number, launches in enumerate(self.exe.schedule.regions):
            if number == safe and self.left_out is not None:
                flush()
                self.overwrites_from = len(self.parts)
            region = [c for c in launches if id(c) not in left_out]
            for i, c in enumerate(region):
                if isinstance(c, KernelCall):
                    self._kernel(c, rows, table, patches, i + 1 < len(region))
                elif self._native(c):
                    if isinstance(c, MatmulCall):
                        self.products[c].rows(rows, table, patches)
                    elif isinstance(c, ScatterCall):
                        scatter.launch(self, c, rows, table, patches)
                    elif isinstance(c, AttentionCall):
                        attention.launch(self, c, rows, table, patches)
                    else:
                        scan.launch(self, c, rows, table, patches)
                else:
                    flush()
                    self.parts.append(c)
                    if isinstance(c, MatmulCall) and c.epilogue is not None:
                        self._kernel(c.epilogue, rows, table, patches, False)
        if self.left_out is not None:
            code = compiled(WRITTEN)
            self.codes.append(code)
            rows.append([code.address, len(table), 1, 0, 0])
            table.extend([1, self.flag.ctypes.data, 1])
        flush()
        n = self.n_fixed + len(self.moving)
        self.parts = [Program(p[0], p[1], p[2], n) if isinstance(p, tuple) else Callback(self, p) for p in self.parts]

        found = [d for d in self.exe.donations if d.region >= safe]
        outputs = {d.output for d in found}
        if len(outputs) >= MANY or sum(self.value(self.exe.nbytes[n]) for n in outputs) >= DONATED:
            self.donations = found

    def launch_only(self) -> Callable[[list[int]], None] | None:
        """The native call that a run is, given its bases; None if it is more than that."""
        part = self.parts[0] if len(self.parts) == 1 and not self.uses_blas else None
        return part.launch if type(part) is Program else None

    def _native(self, c: Launch) -> bool:
        """Whether a launch is a row of a native program, not a call from Python."""
        if isinstance(c, MatmulCall):
            return self.products[c].choice.how != "numpy"
        if isinstance(c, LibraryCall) and not isinstance(c, AttentionCall):
            return self.exe.native and scan.native(c)
        return isinstance(c, KernelCall | AttentionCall) or self.exe.native

    def _safe_region(self) -> int:
        """From this region on nothing can fail: no index is checked, and all is one native program."""
        safe = 0
        for i, region in enumerate(self.exe.schedule.regions):
            for c in region:
                checks = getattr(c, "checks", None) or getattr(getattr(c, "epilogue", None), "checks", None)
                if checks or not self._native(c):
                    safe = i + 1
        return safe

    def donating(self, leaves: Sequence[Any], scalars: Sequence[Any]) -> tuple[Bound, Sequence[int]]:
        """What runs when results take the memory of leaves that nobody else holds, and for each output the leaf.

        That is -1 for one that goes to fresh memory; this itself and nothing if no result takes any.
        """
        found = memory.references(leaves)
        last, bound, places = self.chosen
        if found != last:
            donated = chosen(self.donations, found)
            bound, places = self, []
            if donated:
                bound = self._variant(frozenset(id(d.copy) for d in donated if d.copy is not None), scalars)
                of = {d.output: d.leaf for d in donated}
                places = [of.get(n, -1) for n in self.exe.outputs]
            self.chosen = found, bound, places
        return bound, places

    def _variant(self, left_out: frozenset[int], scalars: Sequence[Any]) -> Bound:
        """This for a run that overwrites leaves and does without these copies."""
        found = self.variants.get(left_out)
        if found is None:
            if len(self.variants) >= MAX_VARIANTS:
                self.variants.clear()
            found = self.variants[left_out] = Bound(self.exe, self.extents, scalars, left_out, measure=True)
            found.build()
        return found

    def _kernel(
        self, c: KernelCall, rows: list[list[int]], table: list[int], patches: list[tuple[int, int, int]], joins: bool
    ) -> None:
        extents, strides, coefs = self._shape(c)
        pieces = [whole(c.kernel, extents, strides, coefs)]
        if switches["split"] and worth_splitting(c.kernel, extents, get_num_threads(), switches["early"]):
            pieces = split(c.kernel, extents, strides, coefs)
        for i, piece in enumerate(pieces):
            self._piece(c, piece, rows, table, patches, piece.joins or (joins and i + 1 == len(pieces)))

    def _shape(self, c: KernelCall) -> tuple[tuple[int, ...], list[tuple[int, ...]], list[tuple[int, ...]]]:
        """The extents of a kernel's axes, the strides of its accesses, the coefficients of its affines."""
        return (
            tuple(self.value(e) for e in c.extents),
            [tuple(self.value(s) for s in a.strides) for a in c.accesses],
            [tuple(self.value(e) for e in steps) for steps, _ in c.affines],
        )

    def epilogue(self, c: KernelCall, table: list[int], patches: list[tuple[int, int, int]]) -> tuple[int, int]:
        """Append the arguments of a kernel that a product runs: where they begin, and the address of its code."""
        return self._arguments(c, whole(c.kernel, *self._shape(c)), table, patches), self._code(c.kernel)

    def _code(self, kernel: k.Kernel) -> int:
        code = compiled(kernel)
        self.codes.append(code)
        return code.address

    def _piece(
        self, c: KernelCall, piece: Piece, rows: list[list[int]], table: list[int],
        patches: list[tuple[int, int, int]], joins: bool,
    ) -> None:  # fmt: skip
        """One launch: of a kernel as it stands, or of a part of it."""
        kernel, extents = piece.kernel, piece.extents
        at = self._arguments(c, piece, table, patches)
        units = kernel.units(extents)
        total = math.prod(extents)
        if total == 0 and not (kernel.rows and all(extents[: kernel.outer])):
            units = 0
        work = max(total // max(units, 1), 1)
        grain = max(GRAIN // work, 1)
        if kernel.rows and kernel.vector == "outer":
            grain = max(grain, min(COLUMN_RUN, -(-units // get_num_threads())))
        elif over_pairs(kernel):
            width = max(extents[1], 1)
            grain = max(grain, width * min(PAIR_ROWS, -(-extents[0] // (2 * get_num_threads()))))
        rows.append([self._code(kernel), at, units, grain, int(joins)])

    def _arguments(self, c: KernelCall, piece: Piece, table: list[int], patches: list[tuple[int, int, int]]) -> int:
        """Append the arguments of a piece of a kernel to the table; where they begin."""
        lay, at = piece.kernel.layout, len(table)
        args = [0] * max(lay.size, 1)
        args[: len(piece.extents)] = piece.extents
        for x, where in zip(piece.operands, lay.accesses, strict=True):
            if isinstance(x.source, Scratch):
                byte = self._scratch(x.source) + x.shift * x.source.dtype.itemsize
                patches.append((at + where, self.arena_base, byte))
            else:
                a = c.accesses[x.source]
                if a.buffer not in self.nowhere:
                    self._address(a.buffer, a.offset, a.itemsize, at + where, patches, x.shift)
            args[where + 1 : where + 1 + len(x.strides)] = x.strides
        for (number, coefs, shift), where in zip(piece.affines, lay.affines, strict=True):
            args[where : where + len(coefs)] = coefs
            if number is None:
                args[where + len(coefs)] = shift
            else:
                self._number(c.affines[number][1], args, where + len(coefs), at, patches, shift)
        codes = (
            {s.extent: len(self.checks) + s.extent for s in c.scalars if isinstance(s.extent, int)} if c.checks else {}
        )
        for i, s in enumerate(c.scalars):
            self._scalar(s, args, lay.scalars + i, at, patches)
        if c.checks and piece.kernel.has_check:
            self._codes(c, args, lay, codes)
            self.checks.extend(c.checks)
            patches.append((at + lay.status, self.status_base, 0))
        table.extend(args)
        return at

    def _scratch(self, scratch: Scratch) -> int:
        """The place in the arena of memory that the pieces of a kernel share, for the whole run."""
        place = self.scratch.get(scratch)
        if place is None:
            place = self.scratch[scratch] = self.arena_size
            self.arena_size += -(-max(scratch.count * scratch.dtype.itemsize, 1) // 64) * 64
        return place

    def _codes(self, c: KernelCall, args: list[int], lay: k.Layout, codes: dict[Any, int]) -> None:
        positions = {v.code for v in c.kernel.values if isinstance(v, k.Check)}
        for i in positions:
            args[lay.scalars + i] = codes[c.scalars[i].extent]

    def _number(
        self, e: int | Dim, args: list[int], slot: int, at: int, patches: list[tuple[int, int, int]], shift: int = 0
    ) -> None:
        """An integer argument, `shift` more than an expression, fixed or moving every run."""
        if uses_offset(e):
            self.moving.append((-1, shift, self._numbers[e], 1))
            patches.append((at + slot, self.n_fixed + len(self.moving) - 1, 0))
        else:
            args[slot] = self.value(e) + shift

    def _scalar(self, s: ScalarArg, args: list[int], slot: int, at: int, patches: list[tuple[int, int, int]]) -> None:
        if s.extent is not None:
            self._number(s.extent, args, slot, at, patches)
        else:
            patches.append((at + slot, self.scalar_base[s.position, s.part, s.floating], 0))

    def run(
        self, scalars: Sequence[Any], leaves: Sequence[Any], places: Sequence[int] = (),
        receipt: Receipt | None = None,
    ) -> list[Any]:  # fmt: skip
        """Take memory, fill the bases, run; the outputs' buffers, or the leaf (see `donating`) whose memory one has."""
        exe = self.exe
        outs: list[Any]
        try:
            if places:
                outs = [
                    memory.allocate(n) if at < 0 else leaves[at] for at, n in zip(places, self.sizes, strict=True)
                ]  # fmt: skip
            else:
                outs = list(map(memory.allocate, self.sizes))
            arena = memory.allocate(self.arena_size) if self.arena_size else None
        except MemoryError as e:
            raise OutOfMemory(f"sync: {e}") from None
        bases = [d.address for d in leaves]
        if len(bases) > self.n_leaves:
            del bases[self.n_leaves :]
        bases += [b.address for b in outs]
        bases.append(arena.address if arena is not None else 0)
        bases.append(self.status_address)
        if self.positions:
            bases += self.scalar_words(scalars)
        if self.moving:
            bases += self.moved(bases, exe.expressions.evaluate(self.extents, scalars))
        if receipt is not None:
            self.flag[0] = 0
            receipt.flag, receipt.buffers = self.flag, outs
            receipt.donated = len(places) - places.count(-1)
        with self.lock:
            self.launch(bases, outs, arena, leaves)
            if self.checks and self.status[0]:
                self._raise_check()
        return outs

    def moved(self, bases: Sequence[int], values: Sequence[int]) -> list[int]:
        """The bases that move every run, from the others and the values of all expressions."""
        return [
            values[number] + byte if base < 0 else bases[base] + byte + values[number] * itemsize
            for base, byte, number, itemsize in self.moving
        ]

    def launch(self, bases: list[int], outs: list[Any], arena: Any, leaves: Sequence[Any]) -> None:
        """Run every part."""
        if self.uses_blas:
            with blas.OneThread():
                self._launch(bases, outs, arena, leaves)
        else:
            self._launch(bases, outs, arena, leaves)

    def _launch(self, bases: list[int], outs: list[Any], arena: Any, leaves: Sequence[Any]) -> None:
        for i, part in enumerate(self.parts):
            if i == self.overwrites_from and self.checks and self.status[0]:
                return
            if type(part) is Program:
                part.launch(bases)
            else:
                part.run(bases, outs, arena, leaves)

    def scalar_words(self, scalars: Sequence[Any]) -> list[int]:
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
        raise self.error_of(code, index)

    def error_of(self, code: int, index: int) -> LazytError:
        """The error of the check with a number, from 1, that this index failed."""
        n = self.checks[code - 1]
        if isinstance(n.attrs, g.Sizes):
            sizes = n.attrs.sizes
        else:
            assert isinstance(n.attrs, g.Axes)
            sizes = tuple(n.operands[0].shape[a] for a in n.attrs.axes)
        return index_error(n, index, [self.value(d) for d in sizes])
