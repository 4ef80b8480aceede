"""The body of a function in LLVM IR: emits `Vec`'s instructions and control flow.

NOTE: lowering one op may open new blocks (`rarely`, `repeat` and `each_lane` do), so a loop's back edge is taken from
`block`, or from a latch block of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.cpu import engine
from lazyt.backends.cpu.codegen.lines import Lines, Module as Module, literal as literal, vector as vector
from lazyt.backends.math.elements import mem_type as mem_type, reg_type as reg_type
from lazyt.backends.math.vector import Vec, Vecs, constant, where

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}


def body_of(x: Vec) -> Body:
    """The body of a value that this backend writes."""
    assert isinstance(x.body, Body), "a value of another backend"
    return x.body


def type_of(x: Vec) -> str:
    return vector(x.element, x.lanes)


def _suffix(element: str, lanes: int) -> str:
    """How intrinsics spell a type."""
    return (f"v{lanes}" if lanes else "") + _SUFFIX.get(element, element)


def function(result: str, symbol: str, parameters: Sequence[str], body: Body) -> str:
    """The text of a function private to its module; `parameters` are spelled `type %name`."""
    head = f"define internal {result} @{symbol}({', '.join(parameters)})"
    return f"{head} {{\n{body.first}:\n{body.text()}\n}}"


class Body(Lines):
    """The lines of one function, and the `rules.vector.Writer` that appends them."""

    native_bfloat = False

    @property
    def native_half(self) -> bool:
        return engine.host().native_half

    @property
    def native_scale(self) -> bool:
        # Elsewhere LLVM would call the C library for each lane.
        return "avx512f" in engine.host().features

    def binary(self, opcode: str, like: Vec, a: str, b: str) -> str:
        return self.let(f"{opcode} {type_of(like)} {a}, {b}")

    def negate(self, x: Vec) -> str:
        return self.let(f"fneg {type_of(x)} {x.name}")

    def compare(self, predicate: str, x: Vec, other: str) -> str:
        opcode = "fcmp" if x.is_float else "icmp"
        return self.let(f"{opcode} {predicate} {type_of(x)} {x.name}, {other}")

    def convert(self, opcode: str, x: Vec, element: str) -> str:
        return self.let(f"{opcode} {type_of(x)} {x.name} to {vector(element, x.lanes)}")

    def saturate(self, x: Vec, element: str, signed: bool) -> str:
        # LLVM's own saturating conversions go lane by lane where the result is narrower.
        bits = int(element[1:])
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        float_type = np.float32 if x.element == "float" else np.float64
        top = float_type(high)
        if int(top) > high:
            top = np.nextafter(top, float_type(0))
        inside = where(x.compare("ord", x), x, 0.0)
        inside = where(inside < float(low), constant(x, float(low)), inside)
        over = x > float(top)
        inside = where(over, constant(x, float(top)), inside)
        # Narrow integers by way of 32 bits: every processor converts to those.
        wide = inside.convert("fptosi" if signed or bits < 32 else "fptoui", f"i{max(bits, 32)}")
        if bits < 32:
            return wide.convert("trunc", element).name
        return (wide if int(top) == high else where(over, constant(wide, high), wide)).name

    def intrinsic(self, name: str, x: Vec, others: Sequence[str]) -> str:
        kind = type_of(x)
        operands = [(kind, x.name), *((kind, o) for o in others)]
        return self.call(kind, f"llvm.{name}.{_suffix(x.element, x.lanes)}", *operands)

    def multiply_high(self, x: Vec, other: str) -> str:
        narrow, wide = type_of(x), vector("i128", x.lanes)
        a, b = (self.let(f"zext {narrow} {name} to {wide}") for name in (x.name, other))
        product = self.let(f"mul {wide} {a}, {b}")
        high = self.let(f"lshr {wide} {product}, {self.splat('i128', 64, x.lanes)}")
        return self.let(f"trunc {wide} {high} to {narrow}")

    def round_bfloat(self, x: Vec) -> str:
        raise AssertionError("a rule rounds to bfloat16 in integers")

    def scale(self, x: Vec, exponent: str) -> str:
        """x * 2**exponent, an i32; rounded once."""
        kind, number = type_of(x), vector("i32", x.lanes)
        name = f"llvm.ldexp.{_suffix(x.element, x.lanes)}.{_suffix('i32', x.lanes)}"
        return self.call(kind, name, (kind, x.name), (number, exponent))

    def select(self, condition: Vec, like: Vec, a: str, b: str) -> str:
        kind = type_of(like)
        return self.let(f"select {type_of(condition)} {condition.name}, {kind} {a}, {kind} {b}")

    def any(self, x: Vec) -> str:
        if not x.lanes:
            return x.name
        return self.call("i1", f"llvm.vector.reduce.or.v{x.lanes}i1", (type_of(x), x.name))

    def table(self, symbol: str, words: Sequence[int], index: Vec) -> str:
        """One i64 of a constant table, by a scalar index."""
        entries = ", ".join(f"i64 {w}" for w in words)
        self.declare(f"@{symbol} = internal constant [{len(words)} x i64] [{entries}]")
        address = self.let(f"getelementptr i64, ptr @{symbol}, i64 {index.name}")
        return self.let(f"load i64, ptr {address}")

    def rarely(self, condition: Vec, usual: Vecs, write: Callable[[], Vecs]) -> Vecs:
        rare, join, before = self.fresh("rare"), self.fresh("join"), self.block
        self.line(f"br i1 {condition.any()}, label %{rare}, label %{join}")
        self.label(rare)
        chosen = [where(condition, x, u) for x, u in zip(write(), usual, strict=True)]
        after = self.block
        self.line(f"br label %{join}")
        self.label(join)
        return tuple(
            u.renamed(self.let(f"phi {type_of(u)} [{u.name}, %{before}], [{c.name}, %{after}]"))
            for u, c in zip(usual, chosen, strict=True)
        )

    def repeat(self, start: Vecs, step: Callable[..., tuple[Vecs, Vec]], times: int) -> Vecs:
        loop, done, before = self.fresh("loop"), self.fresh("done"), self.block
        self.line(f"br label %{loop}")
        self.label(loop)
        head = len(self.lines)
        state = tuple(x.renamed(f"%{self.fresh('state')}") for x in start)
        count, following = f"%{self.fresh('count')}", f"%{self.fresh('count')}"
        end, more = step(*state)
        if times:
            self.line(f"{following} = add i32 {count}, 1")
            again = self.let(f"icmp ult i32 {following}, {times}")
        else:
            again = more.any()
        after = self.block
        self.line(f"br i1 {again}, label %{loop}, label %{done}")
        phis = [
            f"  {s.name} = phi {type_of(s)} [{x.name}, %{before}], [{e.name}, %{after}]"
            for s, x, e in zip(state, start, end, strict=True)
        ]
        if times:
            phis.append(f"  {count} = phi i32 [0, %{before}], [{following}, %{after}]")
        self.lines[head:head] = phis
        self.label(done)
        return end

    def each_lane(self, x: Vec, results: Sequence[str], write: Callable[[Vec], Vecs]) -> Vecs:
        """One lane after the other, through memory."""
        types = [vector(element, x.lanes) for element in results]
        source, *places = (self.let(f"alloca {kind}") for kind in (type_of(x), *types))
        self.line(f"store {type_of(x)} {x.name}, ptr {source}")

        def step(i: Vec) -> tuple[Vecs, Vec]:
            at = self.let(f"getelementptr {x.element}, ptr {source}, i64 {i.name}")
            parts = write(Vec(self, self.let(f"load {x.element}, ptr {at}"), x.element, 0))
            for part, place in zip(parts, places, strict=True):
                to = self.let(f"getelementptr {part.element}, ptr {place}, i64 {i.name}")
                self.line(f"store {part.element} {part.name}, ptr {to}")
            following = i + 1
            return (following,), following.compare("ult", x.lanes)

        self.repeat((Vec(self, "0", "i64", 0),), step, 0)
        return tuple(
            Vec(self, self.let(f"load {kind}, ptr {place}"), element, x.lanes)
            for kind, place, element in zip(types, places, results, strict=True)
        )

    def outlined(
        self, symbol: str, results: Sequence[str], operands: Vecs, write: Callable[..., Vecs], cold: bool
    ) -> Vecs:
        lanes = operands[0].lanes
        types = [vector(element, lanes) for element in results]
        result = types[0] if len(types) == 1 else f"{{ {', '.join(types)} }}"
        symbol = f"{symbol}.v{lanes}"
        parameters = [f"{type_of(x)} %x{i}" for i, x in enumerate(operands)]

        def text(module: Module) -> str:
            inner = type(self)(module)
            values = write(*(Vec(inner, f"%x{i}", x.element, lanes) for i, x in enumerate(operands)))
            value = values[0].name
            if len(types) > 1:
                value = "poison"
                for i, x in enumerate(values):
                    value = inner.let(f"insertvalue {result} {value}, {type_of(x)} {x.name}, {i}")
            inner.line(f"ret {result} {value}")
            return function(result, symbol, parameters, inner)

        self.module.define(symbol, text)
        arguments = ", ".join(f"{type_of(x)} {x.name}" for x in operands)
        call = self.let(f"call {result} @{symbol}({arguments}){' cold' if cold else ''}")
        if len(types) == 1:
            return (Vec(self, call, results[0], lanes),)
        return tuple(
            Vec(self, self.let(f"extractvalue {result} {call}, {i}"), element, lanes)
            for i, element in enumerate(results)
        )
