"""Binding a schedule to extents: temporaries laid into an arena, the arguments of launches as a table with patches.

Tables are complete except for addresses and scalars, which a run fills in by patches: (slot, base, byte offset). A
backend subclasses `ScheduleBinding` to define its launches and how products are computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.backends.common.arena import MANY_BLOCKS, by_size, by_time
from lazyt.backends.common.data_errors import index_error, matrix_error
from lazyt.backends.common.products import Choice, Product
from lazyt.config import general
from lazyt.ir import graph as g, kernel as k
from lazyt.ir.graph import Node
from lazyt.ir.passes.schedule import MatmulCall
from lazyt.ir.passes.split_reduction import Piece, Scratch
from lazyt.ir.passes.verify_pieces import verify_pieces
from lazyt.ir.passes.verify_schedule import verify_schedule
from lazyt.ir.symbolic import Dim, uses_offset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.passes.kernelize import KernelCall, ScalarArg

# A key of a plan's arena: a temporary value, or a packed operand of a product.
Temporary = Node | tuple[MatmulCall, str]


class ScheduleBinding:
    """The data for running an executable at given extents, from the values of all its expressions there."""

    products: dict[MatmulCall, Any]

    def __init__(self, exe: Any, values: list[int]) -> None:
        self.exe = exe
        sched = exe.schedule
        self._numbers = exe.expressions.known
        self.values = values
        self.n_inputs = max((n.attrs.index for n in sched.graph.nodes if isinstance(n.attrs, g.Input)), default=-1) + 1
        # Bases, in order: inputs, outputs, the arena, the status word, scalars, then addresses that move every run.
        self.output_base = {n: self.n_inputs + i for i, n in enumerate(exe.outputs)}
        self.arena_base = self.n_inputs + len(exe.outputs)
        self.status_base = self.arena_base + 1
        self.scalar_base = {s: self.status_base + 1 + i for i, s in enumerate(exe.scalars)}
        # Base index, byte offset, expression, itemsize; a base of -1: a number, the expression plus the offset.
        self.moving: list[tuple[int, int, int, int]] = []
        self.scratch: dict[Scratch, int] = {}
        self.n_fixed = self.status_base + 1 + len(exe.scalars)
        self.sizes = [max(self.value(exe.nbytes[n]), 1) for n in exe.outputs]
        self.shapes = [tuple(map(self.value, n.shape)) for n in sched.graph.outputs]
        self.products = {c: self._product(c) for c in sched.launches if isinstance(c, MatmulCall)}
        # Products that lie on the stack while their epilogue reads them.
        self.nowhere = {c.node for c, p in self.products.items() if p.choice.on_stack}
        if general["verify"] or (general["strict"] and not sched.proved):
            self._verify()
        self.arena_size = self.scratch_at = self._plan_memory()
        self.checks: list[Node] = []

    def _product(self, c: MatmulCall) -> Any:
        """How a product is computed at these sizes."""
        return Product(self, c, Choice("numpy", 0, 0, 0, 0, 0, 0))

    def _verify(self) -> None:
        """Check the schedule at these extents. NOTE: not where they are what a function of extents is made with."""
        if all(type(v) is int for v in self.values):
            verify_schedule(self.exe.schedule, None, self.value)

    def checked(self, c: KernelCall, pieces: list[Piece]) -> list[Piece]:
        """The pieces that a kernel is launched as, checked where schedules are."""
        if len(pieces) > 1 and (general["verify"] or general["strict"]):
            extents, strides, _ = self._shape(c)
            if all(type(e) is int for e in extents):
                verify_pieces(c.kernel, extents, strides, pieces)
        return pieces

    def value(self, e: int | Dim) -> int:
        return e if isinstance(e, int) else self.values[self._numbers[e]]

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
        over = self._in_place(lives, sizes)

        def order(temporary: Temporary) -> tuple[int, int, str]:
            node, name = (temporary, "") if isinstance(temporary, Node) else (temporary[0].node, temporary[1])
            return -sizes[temporary], node.serial, name

        largest_first = sorted(sizes, key=order)
        blocks = [(self.aligned(sizes[t]), *lives[t]) for t in largest_first]
        found, top = (by_size if len(blocks) <= MANY_BLOCKS else by_time)(blocks)
        self.offsets: dict[Temporary, int] = dict(zip(largest_first, found, strict=True))
        self.offsets |= {n: self.offsets[x] for n, x in over.items()}
        # Behind them the calling thread's workspace: its launches run one after another.
        self.workspace_at = top
        return top + self.aligned(self._workspace())

    def _in_place(self, lives: dict[Temporary, tuple[int, int]], sizes: dict[Temporary, int]) -> dict[Node, Node]:
        """Temporaries that lie in the memory of others, each with the first that lay there, which lives on for them."""
        over: dict[Node, Node] = {}
        for n, x in (self.exe.schedule.in_place or {}).items():
            if n in sizes and (first := over.get(x, x)) in sizes and sizes[n] <= sizes[first]:
                over[n] = first
                lives[first] = lives[first][0], max(lives[first][1], lives[n][1])
                del sizes[n]
        return over

    def _workspace(self) -> int:
        """Bytes of working memory that launches need in the arena beside their arrays, one launch at a time."""
        return 0

    def temporaries(self) -> int:
        """Bytes of the arena of a run, with what writing the launches adds to it."""
        return self.arena_size

    def spared(self, inputs: Sequence[Any] | None = None) -> int:
        """What results that take the memory of inputs do not allocate, in whole blocks (see interface.Bound)."""
        return 0

    def to_stay(self, inputs: Sequence[Any]) -> int:
        """Bytes that a run with these inputs allocates beside results and temporaries, and that stay."""
        return 0

    @staticmethod
    def aligned(size: int) -> int:
        """So many bytes rounded up to whole cache lines."""
        return -(-size // 64) * 64

    def _base(self, n: Node) -> tuple[int, int]:
        """Base index and byte offset of a buffer."""
        if isinstance(n.attrs, g.Input):
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

    def _shape(self, c: KernelCall) -> tuple[tuple[int, ...], list[tuple[int, ...]], list[tuple[int, ...]]]:
        """The extents of a kernel's axes, the strides of its accesses, the coefficients of its affines."""
        return (
            tuple(self.value(e) for e in c.extents),
            [tuple(self.value(s) for s in a.strides) for a in c.accesses],
            [tuple(self.value(e) for e in steps) for steps, _ in c.affines],
        )

    def _arguments(self, c: KernelCall, piece: Piece, table: list[int], patches: list[tuple[int, int, int]]) -> int:
        """Append the arguments of a piece of a kernel to the table; gives their start."""
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
        """The offset in the arena of memory that the pieces of a kernel share, for the whole run."""
        place = self.scratch.get(scratch)
        if place is None:
            place = self.scratch[scratch] = self.scratch_at
            self.scratch_at += self.aligned(max(scratch.count * scratch.dtype.itemsize, 1))
            self.arena_size = max(self.arena_size, self.scratch_at)
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

    def error_of(self, code: int, index: int) -> Exception:
        """The error for an index, or a matrix, that failed the check with this number, from 1."""
        n = self.checks[code - 1]
        if isinstance(n.attrs, g.Opaque):
            return matrix_error(n, index)
        if isinstance(n.attrs, g.Sizes):
            sizes = n.attrs.sizes
        else:
            assert isinstance(n.attrs, g.Axes)
            sizes = tuple(n.operands[0].shape[a] for a in n.attrs.axes)
        return index_error(n, index, [self.value(d) for d in sizes])
