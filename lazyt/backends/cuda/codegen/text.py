"""The body of a function in CUDA C, for one thread: emits `Vec`'s instructions and control flow.

Integers are unsigned in registers, so that overflow wraps, and cast where an instruction means them signed; float16
and bfloat16 are their bits. What has no operator in C is a function of the `preamble`.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.math.elements import FLOAT_BITS, Number
from lazyt.backends.math.vector import Vec, Vecs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_TYPES = {"i1": "bool", "i8": "u8", "i16": "u16", "i32": "u32", "i64": "u64"}
_TYPES |= {"half": "u16", "float": "float", "double": "double"}
_INFIX = {
    "fadd": "+", "fsub": "-", "fmul": "*", "fdiv": "/",
    "add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# Intrinsics that C has for float and double; the float one has an f behind its name.
_FLOAT_FUNCTIONS = {
    "fma": "fma", "fabs": "fabs", "copysign": "copysign", "sqrt": "sqrt",
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "roundeven": "rint",
}  # fmt: skip


def type_of(element: str) -> str:
    """The C type of an element in a register."""
    return _TYPES[element]


def signed(element: str) -> str:
    return "s" + _TYPES[element][1:]


@lru_cache(maxsize=4096)
def _literal(element: str, value: Number, _: str) -> str:
    if element == "i1":
        return "true" if value else "false"
    if element[0] == "i":
        bits = int(element[1:])
        number = int(value) % (1 << bits)
        if bits < 32:
            return f"({_TYPES[element]}){number}"
        text = str(number) if number < 1 << 20 else hex(number)
        return text + {32: "u", 64: "ull"}[bits]
    if element == "half":
        return f"(u16){np.float16(value).view(np.uint16):#06x}"
    with np.errstate(over="ignore"):
        x = np.float32(value) if element == "float" else np.float64(value)
    end = "f" if element == "float" else ""
    if np.isnan(x):
        return f"lt_nan{end}()"
    if np.isinf(x):
        return f"(-lt_inf{end}())" if x < 0 else f"lt_inf{end}()"
    # The shortest decimal number that rounds to x: exact in a correctly rounding compiler.
    text = np.format_float_scientific(x, unique=True, trim="0").replace("e+00", "") + end
    return f"({text})" if text[0] == "-" else text


def literal(element: str, value: Number) -> str:
    """`value` rounded to `element`, as a C constant."""
    # repr tells 0.0 from -0.0, 1 from True and one NaN from none, where equality does not.
    return _literal(element, value, repr(value))


def identifier(symbol: str) -> str:
    """The C name of a rule's helper, such as lt_pow_i32 for lazyt.pow.i32."""
    return symbol.replace("lazyt.", "lt_", 1).replace(".", "_")


class Module:
    """The device functions and tables of one program, each symbol once, before those that use it."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    def define(self, symbol: str, write: Callable[[], str]) -> None:
        """Have `symbol`; `write` gives its text, and defines what that needs before."""
        if symbol not in self.entries:
            text = write()
            self.entries[symbol] = text

    def include(self, entries: dict[str, str]) -> None:
        for symbol, text in entries.items():
            self.entries.setdefault(symbol, text)

    def text(self) -> str:
        return "\n".join(self.entries.values())


class Body:
    """The lines of one function, and the `rules.vector.Writer` that appends them."""

    native_half = True
    native_bfloat = True
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
        return "\n".join(self.lines)

    def splat(self, element: str, value: Number, lanes: int) -> str:
        return literal(element, value)

    def _let(self, element: str, rhs: str) -> str:
        return self.let(_TYPES[element], rhs)

    def binary(self, opcode: str, like: Vec, a: str, b: str) -> str:
        element, kind = like.element, _TYPES[like.element]
        match opcode:
            case "shl" | "lshr" | "ashr":
                rhs = f"lt_{opcode}({a}, {b})"
            case _ if kind in ("u8", "u16"):
                # C would compute in int, whose overflow is undefined.
                rhs = f"({kind})((u32){a} {_INFIX[opcode]} (u32){b})"
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
                    return self._let("i1", f"lt_isnan({a}) || lt_isnan({b})" if a != b else f"lt_isnan({a})")
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
                same = _TYPES[x.element] == to
                return self._let(element, a if same else f"lt_bits_{element}({a})")
            case "fpext" | "fptrunc" if "half" in (x.element, element):
                rhs = f"lt_{x.element}_to_{element}({a})"
            case "sext" | "sitofp":
                rhs = f"({to})({signed(x.element)}){a}"
            case "fptosi":
                rhs = f"({to})({signed(element)}){a}"
            case _:
                rhs = f"({to}){a}"
        return self._let(element, rhs)

    def saturate(self, x: Vec, element: str, signed: bool) -> str:
        kind = _TYPES[element]
        return self._let(element, f"lt_saturate<{'s' if signed else 'u'}{kind[1:]}>({x.name})")

    def intrinsic(self, name: str, x: Vec, others: Sequence[str]) -> str:
        operands = ", ".join((x.name, *others))
        kind = _TYPES[x.element]
        match name:
            case _ if name in _FLOAT_FUNCTIONS:
                rhs = f"{_FLOAT_FUNCTIONS[name]}{'f' if x.element == 'float' else ''}({operands})"
            case "smin" | "smax":
                a, b = (f"({signed(x.element)}){o}" for o in (x.name, others[0]))
                rhs = f"{a} {'<' if name == 'smin' else '>'} {b} ? {x.name} : {others[0]}"
            case "umin" | "umax":
                rhs = f"{x.name} {'<' if name == 'umin' else '>'} {others[0]} ? {x.name} : {others[0]}"
            case "ctpop":
                rhs = f"({kind})__popc{'ll' if kind == 'u64' else ''}({x.name})"
            case "maximum" | "minimum" | "fshl":
                rhs = f"lt_{name}({operands})"
            case _:
                raise AssertionError(f"no C for {name}")
        return self._let(x.element, rhs)

    def multiply_high(self, x: Vec, other: str) -> str:
        return self._let("i64", f"__umul64hi({x.name}, {other})")

    def round_bfloat(self, x: Vec) -> str:
        return self._let("i16", f"lt_float_to_bfloat({x.name})")

    def scale(self, x: Vec, exponent: str) -> str:
        raise AssertionError("a rule has two factors where there is no native scale")

    def select(self, condition: Vec, like: Vec, a: str, b: str) -> str:
        return self._let(like.element, f"{condition.name} ? {a} : {b}")

    def any(self, x: Vec) -> str:
        return x.name

    def table(self, symbol: str, words: Sequence[int], index: Vec) -> str:
        name = identifier(symbol)
        entries = ", ".join(f"{w:#x}ull" for w in words)
        self.module.define(name, lambda: f"static __device__ const u64 {name}[{len(words)}] = {{{entries}}};\n")
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
        self.module.define(name, lambda: function(name, results, elements, self.module, write, inline=not cold))
        arguments = ", ".join(x.name for x in operands)
        if len(results) == 1:
            return (Vec(self, self._let(results[0], f"{name}({arguments})"), results[0], 0),)
        found = tuple(Vec(self, self.fresh("t"), element, 0) for element in results)
        for x in found:
            self.line(f"{_TYPES[x.element]} {x.name};")
        self.line(f"{name}({arguments}, {', '.join(x.name for x in found)});")
        return found


def function(
    name: str,
    results: Sequence[str],
    operands: Sequence[str],
    module: Module,
    write: Callable[..., Vecs],
    inline: bool = True,
) -> str:
    """The text of a device function; more than one result goes to references behind the operands."""
    body = Body(module)
    parameters = [f"{_TYPES[e]} {'xyz'[i] if len(operands) < 4 else f'x{i}'}" for i, e in enumerate(operands)]
    values = write(*(Vec(body, p.split()[1], e, 0) for p, e in zip(parameters, operands, strict=True)))
    kind = "__forceinline__" if inline else "__noinline__"
    if len(results) == 1:
        body.line(f"return {values[0].name};")
        result = _TYPES[results[0]]
    else:
        for i, x in enumerate(values):
            body.line(f"r{i} = {x.name};")
        parameters += [f"{_TYPES[e]} &r{i}" for i, e in enumerate(results)]
        result = "void"
    return f"static __device__ {kind} {result} {name}({', '.join(parameters)}) {{\n{body.text()}\n}}\n"


def is_float(element: str) -> bool:
    return element in FLOAT_BITS
