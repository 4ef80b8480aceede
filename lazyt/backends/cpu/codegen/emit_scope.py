"""The function being written: its loops, its arguments, and the registers that hold its values."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.cpu.codegen.loops import Loop, counted
from lazyt.backends.cpu.codegen.text import literal, mem_type, reg_type, vector
from lazyt.backends.math.elements import bits_of
from lazyt.ir import dtypes
from lazyt.ir.kernel import LANES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lazyt.backends.cpu.codegen.emit_levels import Levels
    from lazyt.backends.cpu.codegen.text import Body
    from lazyt.ir.kernel import Kernel

# Of reductions, which always have LANES lanes.
I64 = f"<{LANES} x i64>"
MASK = f"<{LANES} x i1>"


@functools.cache
def iota(kind: str, lanes: int) -> str:
    """The constant 0, 1, 2, ... of integers."""
    return "<" + ", ".join(f"{kind} {i}" for i in range(lanes)) + ">"


IOTA64 = iota("i64", LANES)


def reg_vector(dtype: np.dtype) -> str:
    """The type of LANES values of `dtype` in registers."""
    return vector(reg_type(dtype), LANES)


class Scope:
    """What is known where the next line goes: the names of values, indices, addresses by level."""

    def __init__(self, kernel: Kernel, levels: Levels, body: Body, lanes: int = LANES, counter: str = "i32") -> None:
        self.kernel = kernel
        # The integers that lanes are counted with: as wide as what they hold, a mask is one comparison.
        self.counter = counter
        # How many points stand side by side, and the types of that many integers.
        self.lanes = lanes
        self.i1, self.i32, self.i64 = (vector(kind, lanes) for kind in ("i1", "i32", "i64"))
        self.levels = levels
        self.body = body
        self.names: dict[int, str] = {}
        self.index: dict[int, str] = {}
        self.extent: dict[int, str] = {}
        self.pointers: dict[tuple[int, int], str] = {}
        self.offsets: dict[tuple[int, int], str] = {}
        self.arguments: dict[tuple[int, str], str] = {}
        self.splats: dict[str, str] = {}
        self.slots: dict[int, str] = {}
        # Of a kernel with rows of lanes (column_slots.py): registers of LANES lanes in a run of columns, the bytes of a
        # slot for one of them, and where each slot is.
        self.groups = 0
        self.slot_sizes: tuple[int, ...] = ()
        self.slot_addresses: dict[int, str] = {}
        self.stack = 0  # bytes of all slots
        self.spares: dict[str, str] = {}  # by type, where the lanes of a register are accessed one by one
        # The active lanes, inside the lanes loop, and how far the slots are from their start there.
        self.mask = ""
        self.active = ""  # how many they are, an i64
        self.is_partial = False  # whether they are known to be fewer than all
        self.slot_at = ""
        # In the interior of a map (interior.py) all lanes are active, and each of these conditions is alike for them.
        self.holds: dict[int, str] | None = None
        # The slots of the current rows of accesses that are read in tiles, and the offset of the current row in them.
        self.tiles: dict[int, str] = {}
        self.tile_at = ""
        self.repeated: dict[int, str] = {}  # where what is periodic is repeated, by its access
        self.parts: dict[tuple[int, int], str] = {}  # what a stage has on the stack by number and size
        self.streams = ""  # whether results are too large for caches, an i1, once a store asked
        # Lines for the entry block: stack slots must not be in a loop.
        self.entry: list[str] = []

    def in_registers(self, dtype: np.dtype) -> str:
        """The type of a value's lanes in registers."""
        return vector(reg_type(dtype), self.lanes)

    def in_memory(self, dtype: np.dtype) -> str:
        """The type of a value's lanes in memory."""
        return vector(mem_type(dtype), self.lanes)

    # Arguments: each entry is loaded once, in the entry block.

    def argument(self, position: int, kind: str = "i64") -> str:
        key = (position, kind)
        if key not in self.arguments:
            name = f"%arg{position}.{kind}"
            self.entry.append(f"  {name}.p = getelementptr i64, ptr %args, i64 {position}")
            self.entry.append(f"  {name} = load {kind}, ptr {name}.p, align 8")
            self.arguments[key] = name
        return self.arguments[key]

    def scalar(self, position: int) -> str:
        """The int64 entry of scalar argument `position`."""
        return self.argument(self.kernel.layout.scalars + position)

    def stride(self, access: int, axis: int) -> str:
        """The stride in elements along an axis of class '1' or 'n'."""
        if self.kernel.accesses[access].classes[axis] == "1":
            return "1"
        return self.argument(self.kernel.layout.accesses[access] + 1 + axis)

    def coefficient(self, affine: int, axis: int) -> str:
        if self.kernel.affines[affine].classes[axis] == "1":
            return "1"
        return self.argument(self.kernel.layout.affines[affine] + axis)

    def alloca(self, nbytes: int) -> str:
        """The address of so many bytes on the stack, 64-byte aligned."""
        name = "%" + self.body.fresh("slot")
        self.entry.append(f"  {name} = alloca i8, i64 {nbytes}, align 64")
        self.stack += -(-nbytes // 64) * 64
        return name

    def slot(self, number: int) -> str:
        """The address of one of the kernel's column slots."""
        if number not in self.slot_addresses:
            self.slot_addresses[number] = self.alloca(self.slot_sizes[number] * self.groups)
        return self.slot_addresses[number]

    def in_stack(self, number: int, nbytes: int) -> str:
        """The address of memory of a number and size on the stack, for the current stage."""
        key = number, nbytes
        if key not in self.parts:
            self.parts[key] = self.alloca(nbytes)
        return self.parts[key]

    def spare(self, typ: str) -> str:
        """The stack's place for a register of a type, for the next few lines."""
        name = self.spares.get(typ)
        if name is None:
            name = self.spares[typ] = "%" + self.body.fresh("spare")
            self.entry.append(f"  {name} = alloca {typ}, align 64")
        return name

    # Arithmetic on i64 scalars that does not spell out what is known.

    def mul(self, a: str, b: str) -> str:
        if a == "1" or b == "1":
            return b if a == "1" else a
        return self.body.let(f"mul i64 {a}, {b}")

    def splat(self, kind: str, scalar: str) -> str:
        """A register with `scalar` (of element type `kind`) in every lane."""
        typ = vector(kind, self.lanes)
        one = self.body.let(f"insertelement {typ} poison, {kind} {scalar}, i64 0")
        return self.body.let(f"shufflevector {typ} {one}, {typ} poison, <{self.lanes} x i32> zeroinitializer")

    def splat_argument(self, name: str) -> str:
        """An i64 argument in every lane; made in the entry block."""
        if name not in self.splats:
            one = f"{name}.one"
            self.entry += [
                f"  {one} = insertelement {self.i64} poison, i64 {name}, i64 0",
                f"  {name}.all = shufflevector {self.i64} {one}, {self.i64} poison, {self.i32} zeroinitializer",
            ]
            self.splats[name] = f"{name}.all"
        return self.splats[name]

    def lane_offsets(self, stride: str) -> str:
        """lane * stride as i64 lanes; `stride` is '1' or an argument (made in the entry block)."""
        if stride == "1":
            return iota("i64", self.lanes)
        key = f"{stride}.lanes"
        if key not in self.splats:
            self.entry.append(f"  {key} = mul {self.i64} {self.splat_argument(stride)}, {iota('i64', self.lanes)}")
            self.splats[key] = key
        return self.splats[key]

    # Control flow.

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Forget at the end what was named inside: it does not dominate what follows."""
        saved = self.names, self.pointers, self.offsets, self.index
        lanes = self.mask, self.active, self.is_partial, self.holds, self.slot_at
        self.names, self.pointers = dict(self.names), dict(self.pointers)
        self.offsets, self.index = dict(self.offsets), dict(self.index)
        try:
            yield
        finally:
            self.names, self.pointers, self.offsets, self.index = saved
            self.mask, self.active, self.is_partial, self.holds, self.slot_at = lanes

    @contextmanager
    def loop(self, start: str, stop: str, step: int, carried: Sequence[tuple[str, str]] = ()) -> Iterator[Loop]:
        """for index in range(start, stop, step); `carried` are (type, initial value) pairs.

        The user reads `loop.carried` inside, sets `loop.next`, and reads `loop.results` afterwards.
        """
        with counted(self.body, start, stop, str(step), carried) as loop, self.inside():
            yield loop

    def set_mask(self, index: str, stop: str) -> None:
        """Make active the lanes whose index + lane < stop."""
        body = self.body
        left = body.let(f"sub i64 {stop}, {index}")
        few = body.call("i64", "llvm.umin.i64", ("i64", left), ("i64", str(self.lanes)))
        kind = self.counter
        count = self.splat(kind, body.let(f"trunc i64 {few} to {kind}"))
        self.active = few
        self.mask = body.let(f"icmp ugt {vector(kind, self.lanes)} {count}, {iota(kind, self.lanes)}")

    def set_rest(self, extent: str) -> None:
        """Make active the lanes of an axis's last vector, which is not whole; the mask is made in the entry block."""
        kind, rest = vector(self.counter, self.lanes), f"{extent}.rest"
        if rest not in self.splats:
            self.entry += [
                f"  {rest} = and i64 {extent}, {self.lanes - 1}",
                f"  {rest}.count = trunc i64 {rest} to {self.counter}",
                f"  {rest}.one = insertelement {kind} poison, {self.counter} {rest}.count, i64 0",
                f"  {rest}.all = shufflevector {kind} {rest}.one, {kind} poison, {self.i32} zeroinitializer",
                f"  {rest}.mask = icmp ugt {kind} {rest}.all, {iota(self.counter, self.lanes)}",
            ]
            self.splats[rest] = f"{rest}.mask"
        self.mask, self.active, self.is_partial = self.splats[rest], rest, True

    def set_whole(self) -> None:
        """Make all lanes active: no access has a mask (`holds`), and no fold needs one."""
        self.mask, self.active, self.holds = "splat (i1 true)", str(self.lanes), {}

    def doubled_mask(self, every_other: bool, behind: bool = False) -> str:
        """For twice as many lanes: those up to the last active one's, or only the even ones of them.

        behind: and what lies behind the last one.
        """
        body, lanes = self.body, 2 * self.lanes
        kind = vector("i32", lanes)
        count = body.let(f"trunc i64 {body.let(f'mul i64 {self.active}, 2')} to i32")
        if not (every_other or behind):
            # NOTE: what lies behind the last element may not be there to read.
            count = body.let(f"sub i32 {count}, 1")
        one = body.let(f"insertelement {kind} poison, i32 {count}, i64 0")
        all_lanes = body.let(f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer")
        places = ", ".join(f"i32 {-1 if every_other and i % 2 else i}" for i in range(lanes))
        return body.let(f"icmp ugt {kind} {all_lanes}, <{places}>")


def constant(dtype: np.dtype, value: bool | float) -> str:
    """The operand that holds `value` of `dtype` in every lane."""
    element = reg_type(dtype)
    if dtypes.of(dtype).raw:
        value = bits_of(value, dtype)
    elif element[0] == "i" and element != "i1":
        bits = 8 * dtype.itemsize
        value = int(value) % (1 << bits)
    return f"splat ({element} {literal(element, value)})"
