"""Binding a plan to extents: products chosen, temporaries laid into an arena, argument tables of launches written.

Tables are complete but for addresses and scalars, which a run fills in by patches: (slot, base, byte offset).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lazyt.backends.cpu.arena import MANY_BLOCKS, by_size, by_time
from lazyt.backends.cpu.code_cache import Compiled, compiled
from lazyt.backends.cpu.codegen.emit_pairs import PAIR_ROWS, over_pairs
from lazyt.backends.cpu.flags import switches
from lazyt.backends.cpu.library import attention, scatter
from lazyt.backends.cpu.library.convolutions import Convolution, choose_convolution
from lazyt.backends.cpu.library.products import Product, choose
from lazyt.backends.cpu.library.registry import bound_room_of
from lazyt.backends.cpu.library.tuning import tuned
from lazyt.backends.cpu.receipt import WRITTEN
from lazyt.backends.cpu.thread_pool import get_num_threads
from lazyt.ir import graph as g, kernel as k
from lazyt.ir.graph import Node
from lazyt.ir.passes.kernelize import KernelCall, ScalarArg
from lazyt.ir.passes.schedule import AttentionCall, Launch, LibraryCall, MatmulCall, ScatterCall
from lazyt.ir.passes.split_reduction import Piece, Scratch, split, whole, worth_splitting
from lazyt.ir.symbolic import Dim, uses_offset

if TYPE_CHECKING:
    from lazyt.backends.cpu.executor import Executable
    from lazyt.ir.passes.donate import Donation

# Elements of work that a chunk should have at least, so that dividing it pays: so many of 4 bytes and more, and as
# many bytes of narrower ones. (Measured: of a megabyte of bytes threads that take turns with less take each other's
# lines, and two take longer than one.)
GRAIN, GRAIN_BYTES = 16384, 4
# A column reduction reads this many neighbouring units together (see emit_columns).
COLUMN_RUN = 16

# Results of fewer bytes do not take the memory of leaves: to find out would cost as much as to copy.
DONATED = 1 << 14
MANY = 4  # ... unless there are so many


# What has a place in a plan's arena: a temporary value, or an operand of a product packed.
Temporary = Node | tuple[MatmulCall, str]
# The rows, the table and the patches of a native program.
Written = tuple[list[list[int]], list[int], list[tuple[int, int, int]]]


class Binding:
    """What running an executable for given extents takes, by the values of all its expressions there."""

    def __init__(
        self, exe: Executable, values: list[int], left_out: frozenset[int] | None = None, measure: bool = False
    ) -> None:
        self.exe = exe
        # For a run that overwrites leaves: the ids of copies that are not needed then.
        self.left_out = left_out
        self.measure = measure  # whether products may be timed to choose how they are computed
        self.overwrites_from = 0  # the part before which everything that can fail is over
        sched = exe.schedule
        self._numbers = exe.expressions.known
        self.values = values
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
        self.shapes = [tuple(map(self.value, n.shape)) for n in sched.graph.outputs]
        self.products: dict[MatmulCall, Product] = {}
        for c in sched.launches:
            if isinstance(c, MatmulCall):
                self.products[c] = self._product(c)
        # Products that lie on the stack while their epilogue reads them.
        self.nowhere = {c.node for c, p in self.products.items() if p.choice.on_stack}
        self.uses_blas = any(p.choice.how == "blas" for p in self.products.values())
        self.arena_size = self._plan_memory()
        self.checks: list[Node] = []
        self.donations: list[Donation] = []

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

    def modules(self) -> list[tuple[str, str]]:
        """The code of products and attention that its launches call (text, name of the function), each once."""
        found: dict[tuple[str, str], None] = {}
        for c in self.exe.schedule.launches:
            if isinstance(c, MatmulCall):
                found.update(dict.fromkeys(self.products[c].modules))
            elif isinstance(c, AttentionCall):
                found.update(dict.fromkeys(attention.modules(self, c)))
        return list(found)

    def _plan_memory(self) -> int:
        """Offsets of temporaries in the arena, and its size: see arena.py."""
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

        def order(temporary: Temporary) -> tuple[int, int, str]:
            node, name = (temporary, "") if isinstance(temporary, Node) else (temporary[0].node, temporary[1])
            return -sizes[temporary], node.serial, name

        largest_first = sorted(sizes, key=order)
        blocks = [(-(-sizes[t] // 64) * 64, *lives[t]) for t in largest_first]
        found, top = (by_size if len(blocks) <= MANY_BLOCKS else by_time)(blocks)
        self.offsets: dict[Temporary, int] = dict(zip(largest_first, found, strict=True))
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

    def divide(self, flag: int) -> list[Written | LibraryCall | MatmulCall | ScatterCall]:
        """The regions as native programs and calls from Python. flag: the address of the flag of a receipt."""
        parts: list[Written | LibraryCall | MatmulCall | ScatterCall] = []
        rows: list[list[int]] = []
        table: list[int] = []
        patches: list[tuple[int, int, int]] = []

        def flush() -> None:
            if rows:
                parts.append((rows[:], table[:], patches[:]))
                rows.clear()
                table.clear()
                patches.clear()

        left_out = self.left_out or ()
        safe = self._safe_region()
        for number, launches in enumerate(self.exe.schedule.regions):
            if number == safe and self.left_out is not None:
                flush()
                self.overwrites_from = len(parts)
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
                        room = bound_room_of(self, c)
                        assert room is not None, "asked for in `_native`"
                        room.launch(self, c, rows, table, patches)
                else:
                    flush()
                    parts.append(c)
                    if isinstance(c, MatmulCall) and c.epilogue is not None:
                        self._kernel(c.epilogue, rows, table, patches, False)
        if self.left_out is not None:
            code = compiled(WRITTEN)
            self.codes.append(code)
            rows.append([code.address, len(table), 1, 0, 0])
            table.extend([1, flag, 1])
        flush()

        found = [d for d in self.exe.donations if d.region >= safe]
        outputs = {d.output for d in found}
        if len(outputs) >= MANY or sum(self.value(self.exe.nbytes[n]) for n in outputs) >= DONATED:
            self.donations = found
        return parts

    def _native(self, c: Launch) -> bool:
        """Whether a launch is a row of a native program, not a call from Python."""
        if isinstance(c, MatmulCall):
            return self.products[c].choice.how != "numpy"
        if isinstance(c, LibraryCall) and not isinstance(c, AttentionCall):
            return self.exe.native and bound_room_of(self, c) is not None
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
        narrow = max(GRAIN_BYTES // max((a.itemsize for a in c.accesses), default=GRAIN_BYTES), 1)
        grain = max(GRAIN * narrow // work, 1)
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
