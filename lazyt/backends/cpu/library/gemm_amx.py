"""Micro-kernels of AMX: a tile of C in registers of 16 x 16 float32, over pairs of bfloat16 along k.

The registers have the shapes of a configuration. A product gives all of them whole rows at the beginning of a unit, and
lets them go at its end. A micro-kernel for fewer rows or columns, or at the end of k, loads a configuration of its own,
and that one again behind it: to load one takes as long as some steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cpu.library.gemm_micro import Micro
from lazyt.backends.cpu.library.gemm_tile import Tile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyt.backends.cpu.codegen.looptext import Function

# Rows of a register, and elements of 4 bytes in one of them: sums of C, or pairs of A or B.
SIDE = 16
# Fewer rows, and shorter sums, take less time as float32.
ROWS, LENGTH = SIDE, 2 * SIDE
TILE = Tile((2 * SIDE, SIDE, 8, 4, 2, 1), 2, SIDE, True)
# The registers, and the first of them that have A and B; those of C come before.
# A configuration of 64 bytes: the number 1 first, and where the bytes of a row (in two) and the rows of registers are.
_COUNT, A, B = 8, 4, 6
_CONFIGURATION, _BYTES, _ROWS = 64, 16, 48
WHOLE = "micro.whole"


def begin(f: Function) -> None:
    """Give all registers whole rows."""
    do(f, "ldtilecfg", f"ptr @{WHOLE}.shape")


def end(f: Function) -> None:
    """Let the registers go: they need not be saved any more when another thread runs."""
    do(f, "tilerelease")


def whole_shape() -> str:
    """The constant that `begin` reads."""
    return _constant(WHOLE, dict.fromkeys(range(_COUNT), SIDE))


def do(f: Function, instruction: str, *operands: str) -> None:
    """Write one of the instructions."""
    name = f"@llvm.x86.{instruction}"
    f.body.declare(f"declare void {name}({', '.join(x.split()[0] for x in operands)})")
    f.line(f"call void {name}({', '.join(operands)})")


def multiply(f: Function, rows: list[str], a_step: str, columns: list[str], b_step: str) -> None:
    """Add the products of a register at each place of A by one at each of B, which rows are so many bytes apart."""
    for j, b in enumerate(columns):
        do(f, "tileloadd64", f"i8 {B + j}", f"ptr {b}", f"i64 {b_step}")
    for i, a in enumerate(rows):
        do(f, "tileloadd64", f"i8 {A + i}", f"ptr {a}", f"i64 {a_step}")
        for j in range(len(columns)):
            do(f, "tdpbf16ps", f"i8 {i * len(columns) + j}", f"i8 {A + i}", f"i8 {B + j}")


def configuration(shapes: Mapping[int, tuple[int, int]]) -> bytes:
    """A configuration: so many rows, and elements in each, by the register."""
    values = bytearray(_CONFIGURATION)
    values[0] = 1
    for register, (rows, elements) in shapes.items():
        values[_BYTES + 2 * register], values[_ROWS + register] = 4 * elements, rows
    return bytes(values)


def _constant(name: str, rows: dict[int, int]) -> str:
    """A configuration of so many rows of 64 bytes, by the register."""
    listed = ", ".join(f"i8 {x}" for x in configuration({r: (count, SIDE) for r, count in rows.items()}))
    return f"@{name}.shape = internal constant [{_CONFIGURATION} x i8] [{listed}], align 64"


class TileMicro(Micro):
    """Of at most two registers along the rows and two along the columns.

    A step multiplies 16 pairs of each row by those of each column: the first products of all pairs are one sum, the
    second ones another, and both together are added to C. It takes subnormal numbers as zeros, and makes none.
    """

    def text(self) -> str:
        """As `Micro.text`; k counts pairs."""
        f, e = self.f, self.element
        f.line(f"%shape = alloca [{_CONFIGURATION} x i8], align 64")
        self.a_step, self.b_step, self.c_step = (f.let(f"shl i64 {x}, 2") for x in ("%as", "%bs", "%cs"))
        self.c = [
            (self._sum(i, j), f.at(e, row, str(SIDE * j)))
            for i, row in enumerate(self._down("%c", "%cs"))
            for j in range(self.nv)
        ]
        whole, rest = f.let(f"udiv i64 %k, {SIDE}"), f.let(f"urem i64 %k, {SIDE}")
        some, more = f.let(f"icmp ne i64 {whole}, 0"), f.let(f"icmp ne i64 {rest}, 0")
        # NOTE: also where there is nothing to add, which makes zeros.
        with f.when(f.let(f"or i1 {some}, {f.let(f'xor i1 {more}, true')}")):
            self._configure("")
            self._load("%add")
            with f.loop("0", whole, "1", [("ptr", "%a"), ("ptr", "%b")]) as step:
                a, b = step.carried
                self._multiply(a, b)
                step.next = [f.at(e, a, str(SIDE)), f.at(e, b, f.let(f"mul i64 %bs, {SIDE}"))]
            self._store()
        with f.when(more):
            done = f.let(f"mul i64 {whole}, {SIDE}")
            self._configure(rest)
            self._load(f.let(f"or i1 %add, {some}"))
            self._multiply(f.at(e, "%a", done), f.at(e, "%b", f.let(f"mul i64 {done}, %bs")))
            self._store()
        with f.when("true" if self._is_narrow else more):
            begin(f)
        f.line("ret void")
        params = "i64 %k, ptr %a, i64 %as, ptr %b, i64 %bs, ptr %c, i64 %cs, i1 %add, i64 %last"
        return "\n".join([*([self._shape()] if self._is_narrow else []), self.function(params)])

    @property
    def _is_narrow(self) -> bool:
        """Whether a register has fewer rows, or shorter ones, than it could."""
        return self.tail or self.mr % SIDE != 0

    def _shape(self) -> str:
        rows = dict.fromkeys(range(B, B + self.nv), SIDE)
        for i in range(-(-self.mr // SIDE)):
            for register in (A + i, *(self._sum(i, j) for j in range(self.nv))):
                rows[register] = min(self.mr - SIDE * i, SIDE)
        return _constant(self.name, rows)

    def _sum(self, i: int, j: int) -> int:
        """The register of a part of C."""
        return i * self.nv + j

    def _down(self, first: str, stride: str) -> list[str]:
        """The first rows of the registers that lie below each other."""
        f = self.f
        return [
            f.at(self.element, first, f.let(f"mul i64 {stride}, {SIDE * i}")) if i else first
            for i in range(-(-self.mr // SIDE))
        ]

    def _configure(self, pairs: str) -> None:
        """Give the registers their shapes; `pairs`: how many a step has, if less than 16."""
        f = self.f
        constant = f"ptr @{self.name if self._is_narrow else WHOLE}.shape"
        if not pairs and not self.tail:
            if self._is_narrow:
                do(f, "ldtilecfg", constant)
            return
        kind = f"<{_CONFIGURATION} x i8>"
        f.line(f"store {kind} {f.let(f'load {kind}, {constant}, align 64')}, ptr %shape, align 64")
        shorter = []
        if self.tail:
            last = self.nv - 1
            shorter = [(B + last, "%last"), *((t, "%last") for t, _ in self.c if t % self.nv == last)]
        if pairs:
            shorter += [(A + i, pairs) for i in range(-(-self.mr // SIDE))]
            count = f.let(f"trunc i64 {pairs} to i8")
            for j in range(self.nv):
                f.line(f"store i8 {count}, ptr {f.at('i8', '%shape', str(_ROWS + B + j))}, align 1")
        for register, elements in shorter:
            size = f.let(f"trunc i64 {f.let(f'shl i64 {elements}, 2')} to i16")
            f.line(f"store i16 {size}, ptr {f.at('i8', '%shape', str(_BYTES + 2 * register))}, align 2")
        do(f, "ldtilecfg", "ptr %shape")

    def _load(self, add: str) -> None:
        """What is added to: C, or zeros."""
        f = self.f
        with f.when(add):
            for register, at in self.c:
                do(f, "tileloadd64", f"i8 {register}", f"ptr {at}", f"i64 {self.c_step}")
        with f.when(f.let(f"xor i1 {add}, true")):
            for register, _ in self.c:
                do(f, "tilezero", f"i8 {register}")

    def _multiply(self, a: str, b: str) -> None:
        """Add the products of a step."""
        columns = [self.f.at(self.element, b, str(SIDE * j)) for j in range(self.nv)]
        multiply(self.f, self._down(a, "%as"), self.a_step, columns, self.b_step)

    def _store(self) -> None:
        for register, at in self.c:
            do(self.f, "tilestored64", f"i8 {register}", f"ptr {at}", f"i64 {self.c_step}")
