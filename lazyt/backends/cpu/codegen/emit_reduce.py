"""How each reduction folds: its lanes, one step, and what is done after blocks and at the end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.cpu.codegen import elementwise
from lazyt.backends.cpu.codegen.emit_memory import first_lane
from lazyt.backends.cpu.codegen.emit_scope import I64, MASK, constant, reg_vector
from lazyt.backends.cpu.codegen.text import literal, reg_type, vector
from lazyt.backends.math.reduction import FLOAT64, Reduction, is_float
from lazyt.ir import dtypes
from lazyt.ir.kernel import LANES, Cast, Const, Op
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.cpu.codegen.emit_scope import Scope
    from lazyt.ir.kernel import Kernel

INT32, FLOAT32 = np.dtype(np.int32), np.dtype(np.float32)
INT64 = np.dtype(np.int64)
WIDE = f"<{LANES} x double>"
# No element was better than the identity yet; larger than every index, so it loses ties.
NO_INDEX = (1 << 63) - 1


class Fold(Reduction):
    """One Reduce. Its lanes are one register, or (best, index) for argmax and argmin.

    Extremes of floats are `keyed`: folded as integers in the floats' order, NaN before all, which
    takes one instruction from step to step where a NaN-propagating maximum takes five.
    A `blocked` one (a float sum or product) flushes its lanes into float64 partials now and then;
    what is kept over the whole reduction is then a float64 total in place of the lanes.
    """

    __slots__ = ()

    @property
    def keyed(self) -> bool:
        return is_float(self.source) and self.name not in ("sum", "prod")

    @property
    def lowest(self) -> bool:
        """Whether the fold starts from the lowest value (max, argmax), not the highest."""
        return self.name.endswith("max")

    @property
    def lane_dtype(self) -> np.dtype:
        if self.keyed:
            return INT64 if self.source == FLOAT64 else INT32
        return self.float_dtype if is_float(self.source) else self.source

    @property
    def types(self) -> list[str]:
        """The types of the lanes."""
        best = reg_vector(self.lane_dtype)
        return [best, I64] if self.is_arg else [best]

    @property
    def start(self) -> list[str]:
        """What the lanes hold before the first element."""
        first = constant(self.lane_dtype, self.identity)
        return [first, f"splat (i64 {NO_INDEX})"] if self.is_arg else [first]

    @property
    def identity(self) -> bool | int | float:
        match self.name:
            case "sum" | "any":
                return 0
            case "prod" | "all":
                return 1
            case _ if dtypes.kind(self.lane_dtype) == "b":
                return not self.lowest
            case _:
                info = np.iinfo(self.lane_dtype)
                return int(info.min if self.lowest else info.max)

    @property
    def wide_start(self) -> str:
        """What float64 partials hold before the first flush (as one double: `wide_one`)."""
        return f"splat (double {self.wide_one})"

    @property
    def wide_one(self) -> str:
        return literal("double", float(self.identity))

    def operand_lanes(self, scope: Scope) -> str:
        x = scope.names[self.operand]
        if is_float(self.source) and self.float_dtype != self.source:
            x = elementwise.cast(x, self.source, self.float_dtype, scope.body, LANES)
        return self._key(scope, x) if self.keyed else x

    def _key(self, scope: Scope, x: str) -> str:
        """Floats -> integers in the same order, every NaN the same extreme one (see `_unkey`)."""
        body = scope.body
        kind, key = reg_vector(self.float_dtype), reg_vector(self.lane_dtype)
        if self.is_arg:
            # -0.0 and 0.0 are equal: the first of them wins.
            x = body.let(f"fadd {kind} {x}, zeroinitializer")
        nan = body.let(f"fcmp uno {kind} {x}, {x}")
        flipped = self._flip(scope, body.let(f"bitcast {kind} {x} to {key}"))
        top = (0x7FC << 20) if self.lane_dtype == INT32 else (0x7FF8 << 48)
        extreme = constant(self.lane_dtype, self._key_of_nan(top if self.lowest else ~top))
        return body.let(f"select {MASK} {nan}, {key} {extreme}, {key} {flipped}")

    def _key_of_nan(self, best: int) -> int:
        """`best` comes before the keys of all numbers."""
        return best

    def _flip(self, scope: Scope, bits: str) -> str:
        """The order of the magnitudes of negative floats turned round; its own inverse."""
        body, key = scope.body, reg_vector(self.lane_dtype)
        width = 8 * self.lane_dtype.itemsize
        sign = body.let(f"ashr {key} {bits}, {constant(self.lane_dtype, width - 1)}")
        rest = body.let(f"and {key} {sign}, {constant(self.lane_dtype, (1 << (width - 1)) - 1)}")
        return body.let(f"xor {key} {bits}, {rest}")

    def _unkey(self, scope: Scope, key: str) -> str:
        bits = self._flip(scope, key)
        return scope.body.let(f"bitcast {reg_vector(self.lane_dtype)} {bits} to {reg_vector(self.float_dtype)}")

    def step(self, scope: Scope, lanes: Sequence[str], index: str, masked: bool) -> list[str]:
        """The lanes after the operand's value here; `index` is its place along the row axis."""
        x = self.operand_lanes(scope)
        body = scope.body
        if not self.is_arg:
            new = self.combine(scope, lanes[0], x, LANES)
            if masked:
                new = body.let(f"select {MASK} {scope.mask}, {self.types[0]} {new}, {self.types[0]} {lanes[0]}")
            return [new]
        better = self._better(scope, x, lanes[0], LANES)
        if masked:
            better = body.let(f"and {MASK} {better}, {scope.mask}")
        chosen = zip(self.types, (x, index), lanes, strict=True)
        return [body.let(f"select {MASK} {better}, {t} {new}, {t} {old}") for t, new, old in chosen]

    def combine(self, scope: Scope, a: str, b: str, lanes: int) -> str:
        """Two partial results of a reduction that is not argmax or argmin -> one, lane by lane."""
        body, dtype = scope.body, self.lane_dtype
        kind = vector(reg_type(dtype), lanes)
        logical = dtypes.kind(dtype) == "b"
        match self.name:
            case "sum" | "prod":
                op = ("f" if self.blocked else "") + {"sum": "add", "prod": "mul"}[self.name]
            case "any" | "max" if logical:
                op = "or"
            case "all" | "min" if logical:
                op = "and"
            case _:
                name = f"llvm.{'u' if dtypes.kind(dtype) == 'u' else 's'}{self.name}.v{lanes}{reg_type(dtype)}"
                return body.call(kind, name, (kind, a), (kind, b))
        return body.let(f"{op} {kind} {a}, {b}")

    def _better(self, scope: Scope, x: str, best: str, lanes: int) -> str:
        """Lanes where x goes before best, whatever their indices."""
        dtype = self.lane_dtype
        sign = "s" if dtypes.kind(dtype) == "i" else "u"
        than = "gt" if self.lowest else "lt"
        return scope.body.let(f"icmp {sign}{than} {vector(reg_type(dtype), lanes)} {x}, {best}")

    def _first(self, scope: Scope, a: Sequence[str], b: Sequence[str], lanes: int) -> list[str]:
        """(best, index) pairs -> the better one, the earlier one of equals, lane by lane."""
        body = scope.body
        kind, mask = vector(reg_type(self.lane_dtype), lanes), f"<{lanes} x i1>"
        better = self._better(scope, b[0], a[0], lanes)
        equal = body.let(f"icmp eq {kind} {a[0]}, {b[0]}")
        earlier = body.let(f"icmp slt <{lanes} x i64> {b[1]}, {a[1]}")
        tie = body.let(f"and {mask} {equal}, {earlier}")
        take = body.let(f"or {mask} {better}, {tie}")
        kinds = (kind, f"<{lanes} x i64>")
        return [body.let(f"select {mask} {take}, {k} {q}, {k} {p}") for k, p, q in zip(kinds, a, b, strict=True)]

    def widen(self, scope: Scope, part: str, wide: str) -> str:
        """Flush: float64 partials with the lanes folded in."""
        body = scope.body
        if self.lane_dtype != FLOAT64:
            part = body.let(f"fpext {self.types[0]} {part} to {WIDE}")
        return body.let(f"{self.wide_op} {WIDE} {wide}, {part}")

    @property
    def wide_op(self) -> str:
        return "fadd" if self.name == "sum" else "fmul"

    def add_to_total(self, scope: Scope, wide: str, total: str) -> str:
        """The float64 total with the tree of the float64 partials folded in."""
        body, lanes = scope.body, LANES
        while lanes > 1:
            a, b = (halves(scope, "double", wide, lanes, high) for high in (False, True))
            lanes //= 2
            wide = body.let(f"{self.wide_op} <{lanes} x double> {a}, {b}")
        return body.let(f"{self.wide_op} double {total}, {first_lane(scope, '<1 x double>', wide)}")

    def narrow_one(self, scope: Scope, total: str) -> str:
        """The float64 total -> the result in all lanes, rounded once."""
        if self.dtype not in (FLOAT64, FLOAT32):
            return self.narrow(scope, scope.splat("double", total))
        kind = reg_type(self.dtype)
        return scope.splat(
            kind, total if self.dtype == FLOAT64 else scope.body.let(f"fptrunc double {total} to {kind}")
        )

    def narrow(self, scope: Scope, wide: str) -> str:
        """float64 lanes -> the result, rounded once."""
        if self.dtype == FLOAT64:
            return wide
        return elementwise.cast(wide, FLOAT64, self.dtype, scope.body, LANES)

    def result_of_lanes(self, scope: Scope, lanes: Sequence[str]) -> str:
        """The result, each lane of its own (not `blocked`)."""
        body = scope.body
        if self.is_arg:
            none = body.let(f"icmp eq {I64} {lanes[1]}, splat (i64 {NO_INDEX})")
            # Nothing was better than the identity: all were equal to it, so the first one wins.
            return body.let(f"select {MASK} {none}, {I64} zeroinitializer, {I64} {lanes[1]}")
        x, dtype = lanes[0], self.lane_dtype
        if self.keyed:
            x, dtype = self._unkey(scope, x), self.float_dtype
        return x if dtype == self.dtype else elementwise.cast(x, dtype, self.dtype, body, LANES)

    def result_across(self, scope: Scope, lanes: Sequence[str]) -> str:
        """The result of folding all lanes, in every lane (not `blocked`)."""
        return self.result_of_lanes(scope, self.across(scope, lanes))

    def across(self, scope: Scope, lanes: Sequence[str]) -> list[str]:
        """All lanes folded, in every lane."""
        state, count = list(lanes), LANES
        elements = [t.split(" x ")[1][:-1] for t in self.types]
        while count > 1:
            low = [halves(scope, e, s, count, False) for e, s in zip(elements, state, strict=True)]
            high = [halves(scope, e, s, count, True) for e, s in zip(elements, state, strict=True)]
            count //= 2
            if self.is_arg:
                state = self._first(scope, low, high, count)
            else:
                state = [self.combine(scope, low[0], high[0], count)]
        return [scope.splat(e, first_lane(scope, f"<1 x {e}>", s)) for e, s in zip(elements, state, strict=True)]


class Count(Fold):
    """A sum of bools as integers along a row: the bits of the lanes are counted, and one number is kept."""

    __slots__ = ()

    @property
    def types(self) -> list[str]:
        return ["i64"]

    @property
    def start(self) -> list[str]:
        return ["0"]

    def step(self, scope: Scope, lanes: Sequence[str], index: str, masked: bool) -> list[str]:
        body, bits = scope.body, f"i{LANES}"
        x = scope.names[self.operand]
        if masked:
            x = body.let(f"and {MASK} {x}, {scope.mask}")
        count = body.call(bits, f"llvm.ctpop.{bits}", (bits, body.let(f"bitcast {MASK} {x} to {bits}")))
        return [body.let(f"add i64 {lanes[0]}, {body.let(f'zext {bits} {count} to i64')}")]

    def result_across(self, scope: Scope, lanes: Sequence[str]) -> str:
        return scope.splat("i64", lanes[0])


class Numbers(Fold):
    """An extreme of what is not NaN, along a row: the operand's keys, NaN's being what the lanes start from.

    max(select(isnan(x), -inf, x)), which asks each element twice whether it is NaN.
    """

    __slots__ = ()

    def _key_of_nan(self, best: int) -> int:
        return int(self.identity)

    def result_of_lanes(self, scope: Scope, lanes: Sequence[str]) -> str:
        """Infinity where there is no number."""
        positive = 0x7F8 << 20 if self.lane_dtype == INT32 else 0x7FF << 52
        infinity = constant(self.lane_dtype, ~positive if self.lowest else positive)
        kind = self.types[0]
        name = f"llvm.s{self.name}.v{LANES}{reg_type(self.lane_dtype)}"
        return super().result_of_lanes(scope, [scope.body.call(kind, name, (kind, lanes[0]), (kind, infinity))])


@dataclass(frozen=True, slots=True)
class NoNumbers(Fold):
    """Whether all of a row is NaN, as the lanes of the same row's `Numbers` tell: it has none of its own."""

    numbers: Numbers

    @property
    def types(self) -> list[str]:
        return []

    @property
    def start(self) -> list[str]:
        return []

    def step(self, scope: Scope, lanes: Sequence[str], index: str, masked: bool) -> list[str]:
        return []

    def result_across(self, scope: Scope, lanes: Sequence[str]) -> str:
        """Of the lanes of `numbers`."""
        (key,) = self.numbers.across(scope, lanes)
        nothing = constant(self.numbers.lane_dtype, self.numbers.identity)
        return scope.body.let(f"icmp eq {self.numbers.types[0]} {key}, {nothing}")


def halves(scope: Scope, element: str, x: str, lanes: int, high: bool) -> str:
    """The lower or upper half of a register's lanes."""
    half = lanes // 2
    picks = ", ".join(f"i32 {i + half * high}" for i in range(half))
    kind = f"<{lanes} x {element}>"
    return scope.body.let(f"shufflevector {kind} {x}, {kind} poison, <{half} x i32> <{picks}>")


def folds_along(kernel: Kernel, reduces: Sequence[int]) -> list[Fold]:
    """The folds of a stage whose lanes go along the row: some are had for less than each by itself."""
    folds = [_counted(kernel, fold) or _of_numbers(kernel, fold) or fold for fold in folds_of(kernel, reduces)]
    known = {f.operand: f for f in folds if isinstance(f, Numbers)}
    for i, fold in enumerate(folds):
        match kernel.values[fold.operand]:
            case Op("isnan", (x,)) if fold.name == "all" and x in known:
                folds[i] = NoNumbers(fold.name, fold.dtype, fold.source, fold.operand, known[x])
    return folds


def _counted(kernel: Kernel, fold: Fold) -> Fold | None:
    """A sum of bools, which are made integers of first, as a count."""
    match kernel.values[fold.operand]:
        case Cast(x) if fold.name == "sum" and fold.source == INT64 and kernel.values[x].dtype == dtypes.bool_:
            return Count(fold.name, fold.dtype, kernel.values[x].dtype, x)
    return None


def _of_numbers(kernel: Kernel, fold: Fold) -> Fold | None:
    """An extreme in which NaN has been replaced by what loses to every number."""
    worst = {"max": -math.inf, "min": math.inf}.get(fold.name)
    match kernel.values[fold.operand]:
        case Op("select", (nan, other, x)) if worst is not None and is_float(fold.source):
            replaced = isinstance(c := kernel.values[other], Const) and c.value == worst
            asked = isinstance(q := kernel.values[nan], Op) and (q.name, q.operands) == ("isnan", (x,))
            return Numbers(fold.name, fold.dtype, fold.source, x) if replaced and asked else None
    return None


def folds_of(kernel: Kernel, reduces: Sequence[int]) -> list[Fold]:
    found = []
    for r in reduces:
        value = kernel.values[r]
        source = kernel.values[value.operand].dtype  # type: ignore[union-attr]
        found.append(Fold(value.name, value.dtype, source, value.operand))  # type: ignore[union-attr]
    return found
