"""The resources of a kernel's code, computed from the kernel alone: bytes of stack, and length.

    frame = slots (column_slots.py; exactly those) + what is alive at a time + arguments and addresses + temporaries
    code  = instructions of all stages: a value counts in each stage that evaluates it

*Alive* is counted in the order in which code is written: a value from where it is computed to its last reader in a
stage, what is read from memory from the stage's beginning on (LLVM reads early), and what is the same for all points,
or was reduced, all the time. Registers are not taken off, so a frame is never more than this;
`tests/backends/cpu/test_kernel_needs.py` compares it with the assembly. A kernel whose needs exceed `FRAME` or `CODE`
is not written: `ir/passes/divide_kernels.py` divides it before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.column_slots import column_slots
from lazyt.backends.cpu.codegen.emit import lanes_of
from lazyt.backends.cpu.codegen.emit_levels import UNIT, Levels
from lazyt.backends.cpu.codegen.emit_pairs import over_pairs, pair_slots
from lazyt.backends.cpu.codegen.emit_reduce import folds_along
from lazyt.backends.cpu.codegen.emit_row import part_bytes
from lazyt.backends.cpu.codegen.interior import interior_of
from lazyt.backends.cpu.codegen.lane_by_lane import has_masks
from lazyt.backends.cpu.codegen.peel import peeled
from lazyt.backends.cpu.engine import host_features
from lazyt.backends.cpu.flags import variant
from lazyt.ir import dtypes
from lazyt.ir.kernel import Access, Cast, Check, Const, Gather, Index, Load, Op, Reduce, Scalar, operands_of
from lazyt.ir.prims import ELEMENTWISE
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyt.ir.kernel import Kernel, Stage
    from lazyt.ir.passes.kernelize import KernelCall

# Bytes of stack: a kernel may run on a user's own thread, which may have as little as 128 KB.
FRAME = 1 << 16
# ... and of library kernels' functions together, which may call a kernel as their epilogue: what is large lies in their
# workspace (workspace.py).
LIBRARY_FRAME = 1 << 14
# Instructions of a CPU with registers of 32 bytes: some 60 to 100 us each to compile, on one of 2020.
CODE = 10_000
# Instructions for a value that takes 64 bytes: operations by kind, ...
CHEAP, DIVIDES, COSTLY = 10, 300, 250
# ... reads and writes of memory: neighbours, at a stride, of elements that few processors mask, through a tile.
ACCESS, STRIDED, NARROW, TILE = 12, 60, 200, 420
# ... and what a stage and a reduction have around their loops.
AROUND, FOLD = 60, 150
REGISTER = 64
# What an elementary function has at hand: so many registers of its kind, and some more at each place (LLVM takes
# constants of every block out of loops, and keeps them on the stack); what others have, and what every kernel has.
TEMPORARIES, PLACE, FEW, FIXED = 16, 4, 8, 1024

_DIVIDES = frozenset({"floordiv", "rem", "fmod", "nextafter", "div"})


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes of stack, and instructions."""

    frame: int
    code: int


# By a kernel's key: most plans have kernels that others have, and a divided one's pieces are alike.
_known: dict[str, Needs] = {}
MAX_KNOWN = 1 << 14


def needs_of(kernel: Kernel) -> Needs:
    """What the code of a kernel needs."""
    key = kernel.key + variant()
    found = _known.get(key)
    if found is None:
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        found = _known[key] = _Counter(kernel).run()
    return found


def share_of(call: KernelCall) -> float:
    """How much of what a kernel may need its code does: above 1 it must be divided."""
    needs = needs_of(call.kernel)
    # NOTE: where a register has 64 bytes, half the instructions do.
    code = CODE * (2 if "avx512f" in host_features() else 1)
    return max(needs.frame / FRAME, needs.code / code)


class _Counter:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.levels = Levels(kernel)
        self.columns = column_slots(kernel, self.levels) if kernel.rows and kernel.vector == "outer" else None
        self.lanes = lanes_of(kernel, self.levels)
        self.full = "avx512f" in host_features()
        self.code = 0
        self.peak = 0  # of bytes that a stage has alive
        # Of elementary functions: bytes of a value by name, and at all places together.
        self.costly: dict[str, int] = {}
        self.places = 0
        # Instructions and places of values by whether they are read through a tile: they are alike in every stage.
        self.known: dict[tuple[int, bool], tuple[int, int]] = {}

    def run(self) -> Needs:
        kernel = self.kernel
        known: set[int] = set()
        held: set[int] = set()
        for i, stage in enumerate(kernel.stages):
            tiles = self.columns.stages[i].tiles if self.columns is not None else {}
            kept = self.columns.stages[i].kept if self.columns is not None else {}
            roots = self.levels.roots(stage)
            for own, at in ((list(kept), held), (roots, held | kept.keys())):
                values = self.levels.needed(own, known, at)
                self.code += sum(REGISTER // 8 if v in at else self._instructions(v, tiles) for v in values)
                self.peak = max(self.peak, self._alive(values, at, own))
                known |= {v for v in values if self.levels.of_value[v] <= UNIT}
            held |= {*kept, *(stage.reduces if self.columns is not None else ())}
            if self.columns is None:
                known |= {*stage.reduces}
                if (stage.loops or not kernel.rows) and peeled(kernel, self.levels, values):
                    self.code += sum(self._instructions(v, {}) for v in values) + AROUND
            self.code += AROUND + self._around(stage)
        interior = interior_of(kernel, self.levels)
        if interior is not None:
            # The text for lanes that no condition divides, and what is left of it where one never holds.
            self.code += 2 * (sum(self._instructions(v, {}) for v in interior.body) + AROUND)
            self.code += 2 * self._around(kernel.stages[0])
        return Needs(self._frame(known), self.code)

    def _frame(self, known: set[int]) -> int:
        kernel = self.kernel
        slots = self.columns.nbytes + 64 * len(self.columns.sizes) if self.columns is not None else 0
        if over_pairs(kernel):
            slots = max(slots, pair_slots(kernel))
        if kernel.vector == "rows":
            folds = [enumerate(folds_along(kernel, stage.reduces)) for stage in kernel.stages]
            slots += sum(nbytes for _, nbytes in {(i, part_bytes(f)) for own in folds for i, f in own if f.blocked})
        still = sum(self._bytes(v) for v in known if not isinstance(kernel.values[v], Const))
        classes = [a.classes for a in kernel.accesses] + [f.classes for f in kernel.affines]
        strides = 8 * self.lanes * sum(c[kernel.vector_axis] == "n" for c in classes)
        addresses = 8 * (kernel.layout.size + len(kernel.accesses) * (self.levels.lanes + 1))
        widest = max((self._bytes(v) for v in range(len(kernel.values))), default=0)
        temporaries = FEW * widest + PLACE * self.places + TEMPORARIES * sum(self.costly.values()) + FIXED
        return slots + still + self.peak + strides + addresses + temporaries + self._spare()

    def _spare(self) -> int:
        """What is accessed lane by lane goes through the stack, and so do its addresses."""
        some = {a.dtype for a in self.kernel.accesses if not has_masks(a.dtype)}
        return sum(max(self.lanes * n, REGISTER) for n in [*(d.itemsize for d in some), *([8] if some else [])])

    def _bytes(self, v: int) -> int:
        if isinstance(self.kernel.values[v], Scalar):
            return REGISTER  # however many lanes, they are all the same
        return max(self.kernel.values[v].dtype.itemsize, 1) * self.lanes

    def _units(self, v: int) -> int:
        """Registers of 64 bytes that a value takes; halves are computed as float32."""
        return max(self._bytes(v) // REGISTER, 1)

    def _instructions(self, v: int, tiles: Iterable[int]) -> int:
        """Of a value in a stage; `places` are counted in each."""
        value = self.kernel.values[v]
        key = v, isinstance(value, Load) and value.access in tiles
        known = self.known.get(key)
        if known is None:
            before = self.places
            known = self.known[key] = self._instructions_of(v, tiles), self.places - before
            return known[0]
        self.places += known[1]
        return known[0]

    def _instructions_of(self, v: int, tiles: Iterable[int]) -> int:
        value, kernel = self.kernel.values[v], self.kernel
        units = self._units(v)
        match value:
            case Op():
                if ELEMENTWISE[value.name].costly or value.name in _DIVIDES:
                    held = REGISTER * units * (2 if value.dtype.itemsize == 2 else 1)
                    self.places += held
                    self.costly[value.name] = max(self.costly.get(value.name, 0), held)
                source = kernel.values[value.operands[-1]]
                units = max(units, self._units(value.operands[-1]))
                if ELEMENTWISE[value.name].costly:
                    # NOTE: as it is with registers of 64 bytes, which halve these more than once.
                    return COSTLY * ((units + 1) // 2 if self.full else units)
                if value.name in _DIVIDES and (dtypes.kind(source.dtype) != "f" or value.name != "div"):
                    return DIVIDES * units
                return CHEAP * units * (4 if value.dtype.itemsize == 2 else 1)
            case Cast():
                return 2 * CHEAP * max(units, self._units(value.operand))
            case Load():
                return self._access(kernel.accesses[value.access], value.access in tiles)
            case Gather():
                return 2 * STRIDED * units + CHEAP * len(value.indices)
            case Check():
                return 6 * CHEAP
            case Index() | Scalar() | Const():
                return CHEAP // 2
            case Reduce():
                return 0

    def _access(self, access: Access, tiled: bool) -> int:
        units = max(access.dtype.itemsize * self.lanes // REGISTER, 1)
        klass = access.classes[self.kernel.vector_axis]
        if tiled:
            return (TILE if access.dtype.itemsize >= 4 else 16 * NARROW) * units
        if klass == "0":
            return CHEAP
        if klass == "n":
            return STRIDED * units
        return NARROW if access.dtype.itemsize < 4 else ACCESS * units * (4 if klass in "2=" else 1)

    def _around(self, stage: Stage) -> int:
        """Of a stage's reductions and stores."""
        folds = 0
        for r in stage.reduces:
            reduce = self.kernel.values[r]
            assert isinstance(reduce, Reduce)
            folds += FOLD * self._units(reduce.operand) + AROUND * (self.kernel.vector == "rows")
        return folds + sum(self._access(self.kernel.accesses[t.access], False) for t in stage.stores)

    def _alive(self, values: list[int], held: Iterable[int], roots: list[int]) -> int:
        """The most bytes that the values of a stage have alive at a time."""
        last = dict.fromkeys(roots, len(self.kernel.values))
        for v in reversed(values):
            if v not in held:
                for o in operands_of(self.kernel.values[v]):
                    last.setdefault(o, v)
        ends: dict[int, int] = {}
        early = {v for v in values if v in held or isinstance(self.kernel.values[v], Load | Gather)}
        alive = peak = sum(map(self._bytes, early))
        for v in values:
            alive += 0 if v in early else self._bytes(v)
            peak = max(peak, alive)
            end = last.get(v, v)
            ends[end] = ends.get(end, 0) + self._bytes(v)
            alive -= ends.pop(v, 0)
        return peak
