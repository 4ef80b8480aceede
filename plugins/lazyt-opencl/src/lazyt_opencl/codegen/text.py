"""The body of a function in OpenCL C, for one work-item: emits the instructions and control flow of lazyt's rules.

Integers are unsigned in registers, so that overflow wraps, and cast where an instruction means them signed; float16
and bfloat16 are their bits, which the rules convert. What has no operator in C is a function of `preamble.py`.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.math.vector import Vec, Vecs
from lazyt_opencl.codegen.preamble import helper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lazyt.backends.math.elements import Number

_TYPES = {"i1": "bool", "i8": "uchar", "i16": "ushort", "i32": "uint", "i64": "ulong"}
_TYPES |= {"half": "ushort", "float": "float", "double": "double"}
_INFIX = {
    "fadd": "+", "fsub": "-", "fmul": "*",
    "add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FLOAT_FUNCTIONS = {
    "fma": "fma", "fabs": "fabs", "copysign": "copysign", "floor": "floor", "ceil": "ceil", "trunc": "trunc",
    "roundeven": "rint",
}  # fmt: skip


def type_of(element: str) -> str:
    """The C type of an element in a register."""
    return _TYPES[element]


def signed(element: str) -> str:
    """The C type of an integer element with a sign."""
    return _TYPES[element][1:]


@lru_cache(maxsize=4096)
def _literal(element: str, value: Number, _: str) -> str:
    if element == "i1":
        return "true" if value else "false"
    if element[0] == "i":
        bits = int(element[1:])
        number = int(value) % (1 << bits)
        if bits < 32:
            return f"({_TYPES[element]}){number}"
        return (str(number) if number < 1 << 20 else hex(number)) + {32: "u", 64: "ul"}[bits]
    if element == "half":
        return f"(ushort){np.float16(value).view(np.uint16):#06x}"
    with np.errstate(over="ignore"):
        x = np.float32(value) if element == "float" else np.float64(value)
    if not np.isfinite(x):
        word = int(x.view(np.uint32 if element == "float" else np.uint64))
        return f"as_float({word:#x}u)" if element == "float" else f"as_double({word:#x}ul)"
    # The shortest decimal number that rounds to x: exact in a correctly rounding compiler.
    text = np.format_float_scientific(x, unique=True, trim="0").replace("e+00", "")
    text += "f" if element == "float" else ""
    return f"({text})" if text[0] == "-" else text


def literal(element: str, value: Number) -> str:
    """`value` rounded to `element`, as a C constant."""
    # repr tells 0.0 from -0.0, 1 from True and one NaN from none, where equality does not.
    return _literal(element, value, repr(value))


def identifier(symbol: str) -> str:
    """The C name of a rule's helper, such as lt_part_pow_i32 for lazyt.pow.i32."""
    return symbol.replace("lazyt.", "lt_part_", 1).replace(".", "_")


class Module:
    """The functions and tables of one program, each symbol once, before those that use it."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    def define(self, symbol: str, write: Callable[[], str]) -> None:
        """Have `symbol`; `write` gives its text, and defines what that needs before."""
        if symbol not in self.entries:
            text = write()
            self.entries[symbol] = text

    def include(self, entries: dict[str, str]) -> None:
        """Have all of another module."""
        for symbol, text in entries.items():
            self.entries.setdefault(symbol, text)

    def need(self, name: str, element: str = "") -> str:
        """The C name of a function of the preamble for an element type, which the program then has."""
        symbol, text, below = helper(name, element)
        for lower, of in below:
            self.need(lower, of)
        self.entries.setdefault(symbol, text)
        return symbol

    def text(self) -> str:
        """All of it, in order."""
        return "\n".join(self.entries.values())


class Body:
    """The lines of one function, and the `Writer` of lazyt's rules that appends them."""

    native_half = False
    native_bfloat = False
    native_scale = False

    def __init__(self, module: Module | None = None, depth: int = 1) -> None:
        self.module = module if module is not None else Module()
        self.lines: list[str] = []
        self.depth = depth
        self._count = 0

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

    def splat(self, element: str, value: Number, lanes: int) -> str:
        return literal(element, value)

    def _let(self, element: str, rhs: str) -> str:
        return self.let(_TYPES[element], rhs)

    def binary(self, opcode: str, like: Vec, a: str, b: str) -> str:
        element, kind = like.element, _TYPES[like.element]
        match opcode:
            case "shl" | "lshr" | "ashr" | "fdiv":
                rhs = f"{self.module.need(opcode, element)}({a}, {b})"
            case _ if kind in ("uchar", "ushort"):
                # C would compute in int, whose overflow is undefined.
                rhs = f"({kind})((uint){a} {_INFIX[opcode]} (uint){b})"
            case _:
                rhs = f"{a} {_INFIX[opcode]} {b}"
        return self._let(element, rhs)

    def negate(self, x: Vec) -> str:
        return self._let(x.element, f"-{x.name}")

    def compare(self, predicate: str, x: Vec, other: str) -> str:
        a, b = x.name, other
        if x.is_float:
            match predicate:
                case "uno":
                    return self._let("i1", f"{a} != {a} || {b} != {b}" if a != b else f"{a} != {a}")
                case "one":
                    return self._let("i1", f"{a} < {b} || {a} > {b}")
            assert predicate[0] == "o" or predicate == "une", f"no C for {predicate}"
            return self._let("i1", f"{a} {_COMPARE[predicate[1:]]} {b}")
        if predicate[0] == "s":
            a, b = f"({signed(x.element)}){a}", f"({signed(x.element)}){b}"
        return self._let("i1", f"{a} {_COMPARE[predicate[-2:]]} {b}")

    def convert(self, opcode: str, x: Vec, element: str) -> str:
        a, to = x.name, _TYPES[element]
        match opcode:
            case "bitcast":
                return self._let(element, a if _TYPES[x.element] == to else f"as_{to}({a})")
            case "sext" | "sitofp":
                rhs = f"({to})({signed(x.element)}){a}"
            case "fptosi":
                rhs = f"({to})({signed(element)}){a}"
            case _:
                rhs = f"({to}){a}"
        return self._let(element, rhs)

    def saturate(self, x: Vec, element: str, signed: bool) -> str:
        name = self.module.need(f"saturate_{x.element}_{'s' if signed else 'u'}", element)
        return self._let(element, f"{name}({x.name})")

    def intrinsic(self, name: str, x: Vec, others: Sequence[str]) -> str:
        operands = ", ".join((x.name, *others))
        match name:
            case _ if name in _FLOAT_FUNCTIONS:
                rhs = f"{_FLOAT_FUNCTIONS[name]}({operands})"
            case "smin" | "smax":
                a, b = (f"({signed(x.element)}){o}" for o in (x.name, others[0]))
                rhs = f"{a} {'<' if name == 'smin' else '>'} {b} ? {x.name} : {others[0]}"
            case "umin" | "umax":
                rhs = f"{x.name} {'<' if name == 'umin' else '>'} {others[0]} ? {x.name} : {others[0]}"
            case "ctpop":
                rhs = f"popcount({x.name})"
            case "sqrt" | "maximum" | "minimum" | "fshl":
                rhs = f"{self.module.need(name, x.element)}({operands})"
            case _:
                raise AssertionError(f"no C for {name}")
        return self._let(x.element, rhs)

    def multiply_high(self, x: Vec, other: str) -> str:
        return self._let("i64", f"mul_hi({x.name}, {other})")

    def round_bfloat(self, x: Vec) -> str:
        raise AssertionError("a rule rounds to bfloat16 by an instruction where there is none")

    def scale(self, x: Vec, exponent: str) -> str:
        raise AssertionError("a rule has two factors where there is no native scale")

    def select(self, condition: Vec, like: Vec, a: str, b: str) -> str:
        return self._let(like.element, f"{condition.name} ? {a} : {b}")

    def any(self, x: Vec) -> str:
        return x.name

    def table(self, symbol: str, words: Sequence[int], index: Vec) -> str:
        name = identifier(symbol)
        entries = ", ".join(f"{w:#x}ul" for w in words)
        self.module.define(name, lambda: f"__constant ulong {name}[{len(words)}] = {{{entries}}};\n")
        return self._let("i64", f"{name}[{index.name}]")

    def _variables(self, start: Vecs) -> Vecs:
        """Variables that begin as `start`."""
        found = tuple(x.renamed(self.fresh("s")) for x in start)
        for variable, x in zip(found, start, strict=True):
            self.line(f"{_TYPES[x.element]} {variable.name} = {x.name};")
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
        name = identifier(symbol)
        elements = tuple(x.element for x in operands)
        self.module.define(name, lambda: function(name, results, elements, self.module, write))
        arguments = ", ".join(x.name for x in operands)
        if len(results) == 1:
            return (Vec(self, self._let(results[0], f"{name}({arguments})"), results[0], 0),)
        found = tuple(Vec(self, self.fresh("t"), element, 0) for element in results)
        for x in found:
            self.line(f"{_TYPES[x.element]} {x.name};")
        self.line(f"{name}({arguments}, {', '.join(f'&{x.name}' for x in found)});")
        return found


def function(
    name: str, results: Sequence[str], operands: Sequence[str], module: Module, write: Callable[..., Vecs]
) -> str:
    """The text of a function; more than one result goes to pointers behind the operands."""
    body = Body(module)
    parameters = [f"{_TYPES[e]} x{i}" for i, e in enumerate(operands)]
    values = write(*(Vec(body, p.split()[1], e, 0) for p, e in zip(parameters, operands, strict=True)))
    if len(results) == 1:
        body.line(f"return {values[0].name};")
        result = _TYPES[results[0]]
    else:
        for i, x in enumerate(values):
            body.line(f"*r{i} = {x.name};")
        parameters += [f"{_TYPES[e]} *r{i}" for i, e in enumerate(results)]
        result = "void"
    return f"{result} {name}({', '.join(parameters)}) {{\n{body.text()}\n}}\n"
