"""The body of a function in OpenCL C, for one work-item: float16 and bfloat16 are bits, which the rules convert.

What has no operator in C is a function of `preamble.py`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.math.c_writer import CModule, CWriter, number
from lazyt.backends.math.vector import Vec, Vecs
from lazyt_opencl.codegen.preamble import helper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyt.backends.math.elements import Number

_TYPES = {"i1": "bool", "i8": "uchar", "i16": "ushort", "i32": "uint", "i64": "ulong"}
_TYPES |= {"half": "ushort", "float": "float", "double": "double"}


def type_of(element: str) -> str:
    """The C type of an element in a register."""
    return _TYPES[element]


@lru_cache(maxsize=4096)
def _literal(element: str, value: Number, _: str) -> str:
    text = number(_TYPES, element, value, "ul")
    if isinstance(text, str):
        return text
    word = int(text.view(np.uint32 if element == "float" else np.uint64))
    return f"as_float({word:#x}u)" if element == "float" else f"as_double({word:#x}ul)"


def literal(element: str, value: Number) -> str:
    """`value` rounded to `element`, as a C constant."""
    # repr tells 0.0 from -0.0, 1 from True and one NaN from none, where equality does not.
    return _literal(element, value, repr(value))


class Module(CModule):
    """The functions and tables of one program, those of the preamble when they are needed."""

    def need(self, name: str, element: str = "") -> str:
        """The C name of a function of the preamble for an element type, which the program then has."""
        symbol, text, below = helper(name, element)
        for lower, of in below:
            self.need(lower, of)
        self.entries.setdefault(symbol, text)
        return symbol


class Body(CWriter[Module]):
    """The lines of one function, and the `Writer` of lazyt's rules that appends them."""

    types = _TYPES
    helpers = frozenset(("shl", "lshr", "ashr", "fdiv", "sqrt", "maximum", "minimum", "fshl"))
    reference = "&"

    def new_module(self) -> Module:
        return Module()

    def literal(self, element: str, value: Number) -> str:
        return literal(element, value)

    def signed(self, element: str) -> str:
        return _TYPES[element][1:]

    def helper(self, name: str, element: str) -> str:
        return self.module.need(name, element)

    def is_nan(self, x: str) -> str:
        return f"{x} != {x}"

    def float_function(self, name: str, element: str) -> str:
        return name

    def bits(self, x: Vec, element: str) -> str:
        return f"as_{_TYPES[element]}({x.name})"

    def saturate(self, x: Vec, element: str, signed: bool) -> str:
        name = self.module.need(f"saturate_{x.element}_{'s' if signed else 'u'}", element)
        return self._let(element, f"{name}({x.name})")

    def count_ones(self, x: Vec) -> str:
        return f"popcount({x.name})"

    def multiply_high(self, x: Vec, other: str) -> str:
        return self._let("i64", f"mul_hi({x.name}, {other})")

    def identifier(self, symbol: str) -> str:
        # Not `lt_` alone: the preamble has functions such as lt_shl_i64.
        return symbol.replace("lazyt.", "lt_part_", 1).replace(".", "_")

    def words(self, name: str, words: Sequence[int]) -> str:
        entries = ", ".join(f"{w:#x}ul" for w in words)
        return f"__constant ulong {name}[{len(words)}] = {{{entries}}};\n"

    def function_text(
        self, name: str, results: Sequence[str], operands: Sequence[str], write: Callable[..., Vecs], cold: bool
    ) -> str:
        return function(name, results, operands, self.module, write)


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
