"""How each reduction folds: a thread's own elements, a team's lanes, and what is done in between and at the end.

A float sum or product is *blocked*: it has the kernel IR's order, 16 chains by position that are flushed into float64
every 128 steps. A warp reads 32 neighbours at once, so lanes 16 to 31 hand theirs to the 16 that keep the chains.
All other reductions give the same whatever their order; each lane folds what it meets.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from lazyt.backends.cuda.codegen import elementwise
from lazyt.backends.cuda.codegen.mapping import SEGMENT
from lazyt.backends.cuda.codegen.text import type_of
from lazyt.backends.math.elements import reg_type
from lazyt.backends.math.reduction import FLOAT64, Reduction, is_float
from lazyt.ir import dtypes
from lazyt.ir.kernel import CHUNK, LANES
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.cuda.codegen.emit_scope import Scope
    from lazyt.ir.kernel import Kernel

# No element was better than the start yet; larger than every index, so it loses ties.
NO_INDEX = "0x7fffffffffffffffll"
_OPS = {"sum": "lt_add", "prod": "lt_mul", "any": "lt_or", "all": "lt_and", "max": "lt_max", "min": "lt_min"}
_LIMITS = {
    ("max", "s32"): "(-2147483647 - 1)", ("max", "u32"): "0u",
    ("max", "s64"): "(-9223372036854775807ll - 1)", ("max", "u64"): "0ull",
    ("max", "float"): "(-lt_inff())", ("max", "double"): "(-lt_inf())",
    ("min", "s32"): "2147483647", ("min", "u32"): "4294967295u",
    ("min", "s64"): "9223372036854775807ll", ("min", "u64"): "18446744073709551615ull",
    ("min", "float"): "lt_inff()", ("min", "double"): "lt_inf()",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fold(Reduction):
    """The Reduce of value `number`, which its variables are named by: `part5`, `wide5`, `total5`; `best5`, `at5`."""

    number: int

    @property
    def op(self) -> str:
        return _OPS[self.name.removeprefix("arg")]

    @property
    def kind(self) -> str:
        """The C type that is folded: an int of at least 32 bits, a float, or a float's key."""
        if is_float(self.source):
            if self.is_arg:
                return "s64" if self.source == FLOAT64 else "s32"
            return type_of(reg_type(self.float_dtype))
        ordered = self.name.removeprefix("arg") in ("max", "min")
        sign = "s" if dtypes.kind(self.source) == "i" and ordered else "u"
        return sign + ("64" if self.source.itemsize == 8 else "32")

    @property
    def start(self) -> str:
        match self.name.removeprefix("arg"):
            case "sum" | "any":
                return "0"
            case "prod" | "all":
                return "1"
            case extreme:
                return _LIMITS[extreme, self.kind]

    def value(self, scope: Scope) -> str:
        """The operand's value here, of the type that is folded."""
        x = scope.names[self.operand]
        if is_float(self.source):
            x = elementwise.cast(x, self.source, self.float_dtype, scope.body.module)
            return f"lt_key({x}, {'true' if self.name == 'argmax' else 'false'})" if self.is_arg else x
        if dtypes.kind(self.source) == "i":
            # Through the signed type of its width, so that a narrow negative stays one.
            return f"({self.kind})(s{8 * self.source.itemsize}){x}"
        return f"({self.kind}){x}"

    def declare(self, scope: Scope) -> None:
        """The variables that live as long as the stage."""
        if self.blocked:
            scope.body.line(f"double total{self.number} = {self.start};")
            return
        scope.body.line(f"{self.kind} best{self.number} = {self.start};")
        if self.is_arg:
            scope.body.line(f"s64 at{self.number} = {NO_INDEX};")

    def restart(self, scope: Scope) -> None:
        """As before the first element (not `blocked`)."""
        scope.body.line(f"best{self.number} = {self.start};")
        if self.is_arg:
            scope.body.line(f"at{self.number} = {NO_INDEX};")

    def begin(self, scope: Scope, name: str, kind: str = "") -> None:
        """A fresh `part` or `wide` of a blocked fold."""
        scope.body.line(f"{kind or self.kind} {name}{self.number} = {self.start};")

    def step(self, scope: Scope, index: str, paired: bool) -> None:
        """One element folded in; `paired` lanes share chains, and all of them must come here."""
        x, n = self.value(scope), self.number
        if self.blocked:
            if scope.live:
                x = f"{scope.live} ? {x} : ({self.kind}){self.start}"
            rhs = f"lt_step<{self.op}>(part{n}, {x})" if paired else f"{self.op}::of(part{n}, {x})"
            scope.body.line(f"part{n} = {rhs};")
            return
        guard = f"if ({scope.live}) " if scope.live else ""
        if self.is_arg:
            scope.body.line(f"{guard}lt_first<{self.op}>(best{n}, at{n}, {x}, (s64){index});")
        else:
            scope.body.line(f"{guard}best{n} = {self.op}::of(best{n}, {x});")

    def across_lanes(self, scope: Scope) -> None:
        """What the lanes of a warp hold, in each of them (not `blocked`)."""
        n = self.number
        if self.is_arg:
            scope.body.line(f"lt_fold_first<{self.op}>(best{n}, at{n});")
        else:
            scope.body.line(f"best{n} = lt_fold<{self.op}>(best{n});")

    def across_shared(self, scope: Scope, own: str, other: str, count: int, owner: str = "") -> None:
        """What `count` threads hold, in all threads of the block: by shared memory (not `blocked`).

        Each puts its own into slot `own`, where the condition `owner` holds, and all fold the slots `other` over w.
        """
        body, n = scope.body, self.number
        with body.block(f"if ({owner})") if owner else nullcontext():
            body.line(f"shared_best{n}{own} = best{n};")
            if self.is_arg:
                body.line(f"shared_at{n}{own} = at{n};")
        body.line("__syncthreads();")
        self.restart(scope)
        with body.block(f"for (int w = 0; w < {count}; w++)"):
            if self.is_arg:
                body.line(f"lt_first<{self.op}>(best{n}, at{n}, shared_best{n}{other}, shared_at{n}{other});")
            else:
                body.line(f"best{n} = {self.op}::of(best{n}, shared_best{n}{other});")
        body.line("__syncthreads();")

    def declare_shared(self, scope: Scope, shape: str) -> None:
        n = self.number
        if self.blocked:
            scope.body.line(f"__shared__ double shared_part{n}{shape};")
            return
        scope.body.line(f"__shared__ {self.kind} shared_best{n}{shape};")
        if self.is_arg:
            scope.body.line(f"__shared__ s64 shared_at{n}{shape};")

    def put(self, scope: Scope, slot: int) -> None:
        """What a portion of a row comes to, into scratch memory: of a sum a chunk's total, or a segment's lanes."""
        n, body, segments = self.number, scope.body, scope.mapping.segments
        if self.blocked and segments:
            with body.block(f"if (lane < {LANES})"):
                body.line(f"scratch[{_place(slot, f'portion * {LANES} + lane')}] = lt_bits_i64((double)part{n});")
            return
        if self.blocked:
            body.line(f"scratch[{_place(slot)}] = lt_bits_i64(lt_tree<{self.op}>(wide{n}));")
            return
        floating = self.kind in ("float", "double")
        body.line(f"scratch[{_place(slot)}] = {f'lt_bits_i64((double)best{n})' if floating else f'(u64)best{n}'};")
        if self.is_arg:
            body.line(f"scratch[{_place(slot + 1)}] = (u64)at{n};")

    def get(self, scope: Scope, slot: int) -> None:
        """What all portions of a row came to: a sum in order, of others what this thread's portions did."""
        n, body = self.number, scope.body
        if self.blocked and scope.mapping.segments:
            self._get_segments(scope, slot)
            return
        if self.blocked:
            body.line(f"total{n} = lt_in_order<{self.op}>(total{n}, scratch + {_place(slot, '0')}, portions);")
            return
        with body.block(f"for (index portion = threadIdx.x; portion < portions; portion += {scope.mapping.threads})"):
            body.let("u64", f"scratch[{_place(slot)}]", "word")
            x = f"({self.kind})lt_bits_double(word)" if self.kind in ("float", "double") else f"({self.kind})word"
            if self.is_arg:
                body.line(f"lt_first<{self.op}>(best{n}, at{n}, {x}, (s64)scratch[{_place(slot + 1)}]);")
            else:
                body.line(f"best{n} = {self.op}::of(best{n}, {x});")

    def _get_segments(self, scope: Scope, slot: int) -> None:
        """A warp adds up a chunk's segments, and all add up the chunks, both in order."""
        n, body, of = self.number, scope.body, f"{self.op}::of"
        per, warps = CHUNK // SEGMENT, scope.mapping.warps
        total = f"shared_part{n}[chunk / {LANES}][chunk % {LANES}]"
        body.let("int", f"(int)((portions + {per - 1}) / {per})", f"chunks{n}")
        with body.block(f"for (int chunk = warp; chunk < chunks{n}; chunk += {warps})"):
            body.line(f"double wide = {self.start};")
            body.let("int", f"(int)lt_min_index(portions - (index)chunk * {per}, (index){per})", "some")
            at = _place(slot, f"((index)chunk * {per} + s) * {LANES} + (lane & {LANES - 1})")
            body.line("#pragma unroll 8")
            with body.block("for (int s = 0; s < some; s++)"):
                body.line(f"wide = {of}(wide, lt_bits_double(scratch[{at}]));")
            body.line(f"wide = lt_tree<{self.op}>(wide);")
            body.line(f"if (lane == 0) {total} = wide;")
        body.line("__syncthreads();")
        with body.block(f"for (int chunk = 0; chunk < chunks{n}; chunk++)"):
            body.line(f"total{n} = {of}(total{n}, {total});")
        body.line("__syncthreads();")

    def result(self, scope: Scope) -> str:
        """The expression of the finished value, rounded once."""
        n, module = self.number, scope.body.module
        if self.is_arg:
            # Nothing was better than the start: all were equal to it, so the first one wins.
            return f"at{n} == {NO_INDEX} ? 0ull : (u64)at{n}"
        if self.blocked:
            return elementwise.cast(f"total{n}", FLOAT64, self.dtype, module)
        if is_float(self.source):
            return elementwise.cast(f"best{n}", self.float_dtype, self.dtype, module)
        kind = type_of(reg_type(self.dtype))
        return f"best{n} != 0" if kind == "bool" else f"({kind})best{n}"


def _place(slot: int, portion: str = "portion") -> str:
    """Where a word of one of a row's portions stands in scratch memory."""
    return f"((row * words + {slot}) * portions + {portion})"


def folds_of(kernel: Kernel, reduces: Sequence[int]) -> list[Fold]:
    found = []
    for r in reduces:
        value = kernel.values[r]
        source = kernel.values[value.operand].dtype  # type: ignore[union-attr]
        found.append(Fold(value.name, value.dtype, source, value.operand, r))  # type: ignore[union-attr]
    return found
