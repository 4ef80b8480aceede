"""The body of a function in a dialect of C, for one thread: emits `Vec`'s instructions and control flow.

Integers are unsigned in registers, so that overflow wraps, and cast where an instruction means them signed; float16
and bfloat16 are their bits. A dialect (CUDA C, OpenCL C) says how it spells types, and what has no operator in C.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from lazyt.backends.math.vector import Vec, Vecs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lazyt.backends.math.elements import Number

_INFIX = {
    "fadd": "+", "fsub": "-", "fmul": "*", "fdiv": "/",
    "add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# Intrinsics that C has for float and double.
_FLOAT_FUNCTIONS = {
    "fma": "fma", "fabs": "fabs", "copysign": "copysign", "sqrt": "sqrt",
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "roundeven": "rint",
}  # fmt: skip


def number(types: Mapping[str, str], element: str, value: Number, long: str) -> str | np.floating[Any]:
    """`value` rounded to `element`, as a C constant; what is not finite as itself, for each dialect has its own way.

    `long` stands behind 64-bit integers.
    """
    if element == "i1":
        return "true" if value else "false"
    if element[0] == "i":
        bits = int(element[1:])
        n = int(value) % (1 << bits)
        if bits < 32:
            return f"({types[element]}){n}"
        return (str(n) if n < 1 << 20 else hex(n)) + {32: "u", 64: long}[bits]
    if element == "half":
        return f"({types[element]}){np.float16(value).view(np.uint16):#06x}"
    with np.errstate(over="ignore"):
        x = np.float32(value) if element == "float" else np.float64(value)
    if not np.isfinite(x):
        return x
    # The shortest decimal number that rounds to x: exact in a correctly rounding compiler.
    text = np.format_float_scientific(x, unique=True, trim="0").replace("e+00", "")
    text += "f" if element == "float" else ""
    return f"({text})" if text[0] == "-" else text


class CModule:
    """The functions and tables of one program, each symbol once, before those that use it."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    def define(self, symbol: str, write: Callable[[], str]) -> None:
        """Have `symbol`; `write` gives its text, and defines what that needs before."""
        if symbol not in self.entries:
            text = write()
            # A function that calls one of its own name would call itself.
            assert symbol not in self.entries, f"two functions are named {symbol}"
            self.entries[symbol] = text

    def include(self, entries: dict[str, str]) -> None:
        """Have all of another module."""
        for symbol, text in entries.items():
            assert self.entries.setdefault(symbol, text) == text, f"two functions are named {symbol}"

    def text(self) -> str:
        """All of it, in order."""
        return "\n".join(self.entries.values())


M = TypeVar("M", bound=CModule)


class CWriter(Generic[M]):
    """The lines of one function, and the `vector.Writer` that appends them; a dialect fills in what raises here."""

    types: ClassVar[dict[str, str]]  # the C type of an element in a register
    helpers: ClassVar[frozenset[str]]  # instructions and intrinsics that are functions of the dialect's preamble
    reference = ""  # stands before a result that a function writes, where it is called

    native_half = False
    native_bfloat = False
    native_scale = False

    def __init__(self, module: M | None = None, depth: int = 1) -> None:
        self.module: M = module if module is not None else self.new_module()
        self.lines: list[str] = []
        self.depth = depth
        self._count = 0

    def new_module(self) -> M:
        """An empty module of the dialect."""
        raise NotImplementedError

    def literal(self, element: str, value: Number) -> str:
        """`value` rounded to `element`, as a constant."""
        raise NotImplementedError

    def helper(self, name: str, element: str) -> str:
        """The name of one of `helpers` for an element type."""
        raise NotImplementedError

    def is_nan(self, x: str) -> str:
        """Whether a float is NaN."""
        raise NotImplementedError

    def float_function(self, name: str, element: str) -> str:
        """The name of a function of C for float or double."""
        raise NotImplementedError

    def count_ones(self, x: Vec) -> str:
        """The number of bits that are set."""
        raise NotImplementedError

    def words(self, name: str, words: Sequence[int]) -> str:
        """The text of a table of 64-bit words."""
        raise NotImplementedError

    def identifier(self, symbol: str) -> str:
        """The C name of a rule's helper."""
        raise NotImplementedError

    def function_text(
        self, name: str, results: Sequence[str], operands: Sequence[str], write: Callable[..., Vecs], cold: bool
    ) -> str:
        """The text of a function of this module."""
        raise NotImplementedError

    def signed(self, element: str) -> str:
        """The C type of an integer element with a sign."""
        raise NotImplementedError

    # --- lines ------------------------------------------------------------------------------------------------------

    def fresh(self, prefix: str) -> str:
        """A name that no other call gave."""
        self._count += 1
        return f"{prefix}{self._count}"

    def line(self, text: str) -> None:
        """Append a line."""
        self.lines.append("    " * self.depth + text if text else "")

    @contextmanager
    def block(self, head: str, tail: str = "") -> Iterator[None]:
        """`head { ... } tail`."""
        self.line(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self.line(f"}}{tail}")

    def let(self, kind: str, rhs: str, name: str = "") -> str:
        """Append `const kind name = rhs;`, and give the name."""
        name = name or self.fresh("t")
        self.line(f"const {kind} {name} = {rhs};")
        return name

    def text(self) -> str:
        """The lines."""
        return "\n".join(self.lines)

    # --- instructions -----------------------------------------------------------------------------------------------

    def splat(self, element: str, value: Number, lanes: int) -> str:
        return self.literal(element, value)

    def _let(self, element: str, rhs: str) -> str:
        return self.let(self.types[element], rhs)

    def binary(self, opcode: str, like: Vec, a: str, b: str) -> str:
        element, kind = like.element, self.types[like.element]
        if opcode in self.helpers:
            rhs = f"{self.helper(opcode, element)}({a}, {b})"
        elif kind in (self.types["i8"], self.types["i16"]):
            # C would compute in int, whose overflow is undefined.
            wide = self.types["i32"]
            rhs = f"({kind})(({wide}){a} {_INFIX[opcode]} ({wide}){b})"
        else:
            rhs = f"{a} {_INFIX[opcode]} {b}"
        return self._let(element, rhs)

    def negate(self, x: Vec) -> str:
        return self._let(x.element, f"-{x.name}")

    def compare(self, predicate: str, x: Vec, other: str) -> str:
        a, b = x.name, other
        if x.is_float:
            match predicate:
                case "uno":
                    return self._let("i1", f"{self.is_nan(a)} || {self.is_nan(b)}" if a != b else self.is_nan(a))
                case "one":
                    return self._let("i1", f"{a} < {b} || {a} > {b}")
                case "uge":
                    return self._let("i1", f"!({a} < {b})")
            assert predicate[0] == "o" or predicate == "une", f"no C for {predicate}"
            return self._let("i1", f"{a} {_COMPARE[predicate[1:]]} {b}")
        if predicate[0] == "s":
            a, b = f"({self.signed(x.element)}){a}", f"({self.signed(x.element)}){b}"
        return self._let("i1", f"{a} {_COMPARE[predicate[-2:]]} {b}")

    def bits(self, x: Vec, element: str) -> str:
        """The bits of a value as one of another type."""
        raise NotImplementedError

    def convert(self, opcode: str, x: Vec, element: str) -> str:
        a, to = x.name, self.types[element]
        match opcode:
            case "bitcast":
                rhs = a if self.types[x.element] == to else self.bits(x, element)
            case "sext" | "sitofp":
                rhs = f"({to})({self.signed(x.element)}){a}"
            case "fptosi":
                rhs = f"({to})({self.signed(element)}){a}"
            case _:
                rhs = f"({to}){a}"
        return self._let(element, rhs)

    def intrinsic(self, name: str, x: Vec, others: Sequence[str]) -> str:
        operands = ", ".join((x.name, *others))
        match name:
            case _ if name in self.helpers:
                rhs = f"{self.helper(name, x.element)}({operands})"
            case _ if name in _FLOAT_FUNCTIONS:
                rhs = f"{self.float_function(_FLOAT_FUNCTIONS[name], x.element)}({operands})"
            case "smin" | "smax":
                a, b = (f"({self.signed(x.element)}){o}" for o in (x.name, others[0]))
                rhs = f"{a} {'<' if name == 'smin' else '>'} {b} ? {x.name} : {others[0]}"
            case "umin" | "umax":
                rhs = f"{x.name} {'<' if name == 'umin' else '>'} {others[0]} ? {x.name} : {others[0]}"
            case "ctpop":
                rhs = self.count_ones(x)
            case _:
                raise AssertionError(f"no C for {name}")
        return self._let(x.element, rhs)

    def saturate(self, x: Vec, element: str, signed: bool) -> str:
        raise NotImplementedError

    def multiply_high(self, x: Vec, other: str) -> str:
        raise NotImplementedError

    def round_bfloat(self, x: Vec) -> str:
        raise AssertionError("a rule rounds to bfloat16 by its bits where there is no instruction")

    def scale(self, x: Vec, exponent: str) -> str:
        raise AssertionError("a rule has two factors where there is no native scale")

    def select(self, condition: Vec, like: Vec, a: str, b: str) -> str:
        return self._let(like.element, f"{condition.name} ? {a} : {b}")

    def any(self, x: Vec) -> str:
        return x.name

    def table(self, symbol: str, words: Sequence[int], index: Vec) -> str:
        name = self.identifier(symbol)
        self.module.define(name, lambda: self.words(name, words))
        return self._let("i64", f"{name}[{index.name}]")

    # --- control flow -----------------------------------------------------------------------------------------------

    def _variables(self, start: Vecs) -> Vecs:
        """Variables that begin as `start`."""
        found = tuple(x.renamed(self.fresh("s")) for x in start)
        for variable, x in zip(found, start, strict=True):
            self.line(f"{self.types[x.element]} {variable.name} = {x.name};")
        return found

    def _assign(self, variables: Vecs, values: Vecs) -> None:
        """All at once: a value may be another of the variables."""
        own = {v.name for v in variables}
        rhs = [self._let(x.element, x.name) if x.name in own else x.name for x in values]
        for variable, x in zip(variables, rhs, strict=True):
            self.line(f"{variable.name} = {x};")

    def rarely(self, condition: Vec, usual: Vecs, write: Callable[[], Vecs]) -> Vecs:
        variables = self._variables(usual)
        with self.block(f"if ({condition.name})"):
            self._assign(variables, write())
        return variables

    def repeat(self, start: Vecs, step: Callable[..., tuple[Vecs, Vec]], times: int) -> Vecs:
        variables = self._variables(start)
        if times:
            count = self.fresh("k")
            with self.block(f"for (int {count} = 0; {count} < {times}; {count}++)"):
                self._assign(variables, step(*variables)[0])
            return variables
        more = self.fresh("more")
        self.line(f"bool {more};")
        with self.block("do", f" while ({more});"):
            values, again = step(*variables)
            self.line(f"{more} = {again.name};")
            self._assign(variables, values)
        return variables

    def each_lane(self, x: Vec, results: Sequence[str], write: Callable[[Vec], Vecs]) -> Vecs:
        return write(x)

    def outlined(
        self, symbol: str, results: Sequence[str], operands: Vecs, write: Callable[..., Vecs], cold: bool
    ) -> Vecs:
        name = self.identifier(symbol)
        elements = tuple(x.element for x in operands)
        self.module.define(name, lambda: self.function_text(name, results, elements, write, cold))
        arguments = ", ".join(x.name for x in operands)
        if len(results) == 1:
            return (Vec(self, self._let(results[0], f"{name}({arguments})"), results[0], 0),)
        found = tuple(Vec(self, self.fresh("t"), element, 0) for element in results)
        for x in found:
            self.line(f"{self.types[x.element]} {x.name};")
        self.line(f"{name}({arguments}, {', '.join(f'{self.reference}{x.name}' for x in found)});")
        return found
