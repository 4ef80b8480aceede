"""How each reduction folds: a work-item's own elements, the 16 of a row, and what becomes of the result.

A float sum or product is *blocked*: it has the kernel IR's order, 16 chains by position that are flushed into float64
every 128 steps. All other reductions give the same whatever their order; each work-item folds what it meets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.math.elements import reg_type
from lazyt.backends.math.reduction import FLOAT64, Reduction, is_float
from lazyt.ir import dtypes
from lazyt.ir.kernel import LANES, Reduce
from lazyt.ir.records import dataclass
from lazyt_opencl.codegen import elementwise
from lazyt_opencl.codegen.text import type_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.ir.kernel import Kernel
    from lazyt_opencl.codegen.text import Body

# No element was better than the start yet; larger than every index, so it loses ties.
NO_INDEX = "0x7fffffffffffffffl"
_LIMITS = {
    ("max", "int"): "(-2147483647 - 1)", ("max", "uint"): "0u",
    ("max", "long"): "(-9223372036854775807l - 1l)", ("max", "ulong"): "0ul",
    ("max", "float"): "(-INFINITY)", ("max", "double"): "(-(double)INFINITY)",
    ("min", "int"): "2147483647", ("min", "uint"): "4294967295u",
    ("min", "long"): "9223372036854775807l", ("min", "ulong"): "18446744073709551615ul",
    ("min", "float"): "INFINITY", ("min", "double"): "((double)INFINITY)",
}  # fmt: skip
_INFIX = {"sum": "+", "prod": "*", "any": "|", "all": "&"}


@dataclass(frozen=True, slots=True)
class Fold(Reduction):
    """The Reduce of value `number`, which its variables are named by: `part5`, `wide5`, `total5`; `best5`, `at5`."""

    number: int

    @property
    def base(self) -> str:
        """The name without `arg`."""
        return self.name.removeprefix("arg")

    @property
    def kind(self) -> str:
        """The C type that is folded: an int of at least 32 bits, a float, or a float's key."""
        if is_float(self.source):
            if self.is_arg:
                return "long" if self.source == FLOAT64 else "int"
            return type_of(reg_type(self.float_dtype))
        sign = "" if dtypes.kind(self.source) == "i" and self.base in ("max", "min") else "u"
        return sign + ("long" if self.source.itemsize == 8 else "int")

    @property
    def start(self) -> str:
        """The value that changes nothing."""
        match self.base:
            case "sum" | "any":
                return "0"
            case "prod" | "all":
                return "1"
            case extreme:
                return _LIMITS[extreme, self.kind]

    def of(self, body: Body, a: str, b: str) -> str:
        """Two folded into one."""
        if (infix := _INFIX.get(self.base)) is not None:
            return f"{a} {infix} {b}"
        if self.kind in ("float", "double"):
            name = body.module.need("maximum" if self.base == "max" else "minimum", self.kind)
            return f"{name}({a}, {b})"
        return f"{a} {'>' if self.base == 'max' else '<'} {b} ? {a} : {b}"

    def value(self, body: Body, x: str) -> str:
        """The operand's value here, of the type that is folded."""
        if is_float(self.source):
            x = elementwise.cast(x, self.source, self.float_dtype, body.module)
            if not self.is_arg:
                return x
            key = body.module.need("key", "double" if self.source == FLOAT64 else "float")
            return f"{key}({x}, {'true' if self.name == 'argmax' else 'false'})"
        if dtypes.kind(self.source) == "i":
            # Through the signed type of its width, so that a narrow negative stays one.
            return f"({self.kind})({type_of(reg_type(self.source))[1:]}){x}"
        return f"({self.kind}){x}"

    def declare(self, body: Body) -> None:
        """The variables that live as long as the stage."""
        if self.blocked:
            body.line(f"double total{self.number} = {self.start};")
            return
        body.line(f"{self.kind} best{self.number} = {self.start};")
        if self.is_arg:
            body.line(f"long at{self.number} = {NO_INDEX};")

    def step(self, body: Body, x: str, index: str) -> None:
        """One element folded in."""
        n = self.number
        if self.blocked:
            body.line(f"part{n} = {self.of(body, f'part{n}', self.value(body, x))};")
            return
        own = body.let(self.kind, self.value(body, x))
        if self.is_arg:
            self._first(body, own, index)
        else:
            body.line(f"best{n} = {self.of(body, f'best{n}', own)};")

    def _first(self, body: Body, x: str, index: str) -> None:
        n = self.number
        better = f"{x} {'>' if self.base == 'max' else '<'} best{n}"
        with body.block(f"if ({better} || ({x} == best{n} && {index} < at{n}))"):
            body.line(f"best{n} = {x};")
            body.line(f"at{n} = {index};")

    def declare_shared(self, head: Body) -> None:
        """Local memory of a row's work-items."""
        n = self.number
        if self.blocked:
            head.line(f"__local double shared{n}[{LANES}];")
            return
        head.line(f"__local {self.kind} shared{n}[{LANES}];")
        if self.is_arg:
            head.line(f"__local long shared_at{n}[{LANES}];")

    def flush(self, body: Body, into: str) -> None:
        """A partial sum added to a float64."""
        n = self.number
        body.line(f"{into}{n} = {self.of(body, f'{into}{n}', f'(double)part{n}')};")

    def chunk_done(self, body: Body) -> None:
        """The chunk of a row added to the total, by the tree of its 16 work-items."""
        n = self.number
        tree = body.module.need(f"{self.base}_of_lanes")
        body.line(f"total{n} = {self.of(body, f'total{n}', f'{tree}(shared{n}, lane, wide{n})')};")

    def across_lanes(self, body: Body) -> None:
        """What the 16 work-items of a row hold, in each of them (not `blocked`)."""
        n = self.number
        body.line(f"shared{n}[lane] = best{n};")
        if self.is_arg:
            body.line(f"shared_at{n}[lane] = at{n};")
        body.line("barrier(CLK_LOCAL_MEM_FENCE);")
        with body.block(f"for (int w = 0; w < {LANES}; w++)"):
            if self.is_arg:
                self._first(body, f"shared{n}[w]", f"shared_at{n}[w]")
            else:
                # NOTE: `|`, `&` and extremes of what is folded in twice stay; sums and products are of the others.
                skip = "if (w != lane) " if self.base in ("sum", "prod") else ""
                body.line(f"{skip}best{n} = {self.of(body, f'best{n}', f'shared{n}[w]')};")
        body.line("barrier(CLK_LOCAL_MEM_FENCE);")

    def result(self, body: Body) -> str:
        """The expression of the finished value, rounded once."""
        n, module = self.number, body.module
        if self.is_arg:
            # Nothing was better than the start: the row is empty.
            return f"at{n} == {NO_INDEX} ? 0ul : (ulong)at{n}"
        if self.blocked:
            return elementwise.cast(f"total{n}", FLOAT64, self.dtype, module)
        if is_float(self.source):
            return elementwise.cast(f"best{n}", self.float_dtype, self.dtype, module)
        kind = type_of(reg_type(self.dtype))
        return f"best{n} != 0" if kind == "bool" else f"({kind})best{n}"


def folds_of(kernel: Kernel, reduces: Sequence[int]) -> list[Fold]:
    """The folds of a stage."""
    found = []
    for r in reduces:
        value = kernel.values[r]
        assert isinstance(value, Reduce), "a stage finishes reductions"
        found.append(Fold(value.name, value.dtype, kernel.values[value.operand].dtype, value.operand, r))
    return found
