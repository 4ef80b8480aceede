"""The body of a function in CUDA C, for one thread. What has no operator in C is a function of the `preamble`."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from lazyt.backends.math.c_writer import CModule, CWriter, number
from lazyt.backends.math.elements import FLOAT_BITS, Number
from lazyt.backends.math.vector import Vec, Vecs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TYPES = {"i1": "bool", "i8": "u8", "i16": "u16", "i32": "u32", "i64": "u64"}
_TYPES |= {"half": "u16", "float": "float", "double": "double"}
Module = CModule


def type_of(element: str) -> str:
    """The C type of an element in a register."""
    return _TYPES[element]


@lru_cache(maxsize=4096)
def _literal(element: str, value: Number, _: str) -> str:
    text = number(_TYPES, element, value, "ull")
    if isinstance(text, str):
        return text
    end = "f" if element == "float" else ""
    if np.isnan(text):
        return f"lt_nan{end}()"
    return f"(-lt_inf{end}())" if text < 0 else f"lt_inf{end}()"


def literal(element: str, value: Number) -> str:
    """`value` rounded to `element`, as a C constant."""
    # repr tells 0.0 from -0.0, 1 from True and one NaN from none, where equality does not.
    return _literal(element, value, repr(value))


class Body(CWriter[Module]):
    """The lines of one function, and the `rules.vector.Writer` that appends them."""

    types = _TYPES
    helpers = frozenset(("shl", "lshr", "ashr", "maximum", "minimum", "fshl"))
    native_half = True
    native_bfloat = True

    def new_module(self) -> Module:
        return Module()

    def literal(self, element: str, value: Number) -> str:
        return literal(element, value)

    def signed(self, element: str) -> str:
        return "s" + _TYPES[element][1:]

    def helper(self, name: str, element: str) -> str:
        return f"lt_{name}"

    def is_nan(self, x: str) -> str:
        return f"lt_isnan({x})"

    def float_function(self, name: str, element: str) -> str:
        return name + ("f" if element == "float" else "")

    def bits(self, x: Vec, element: str) -> str:
        return f"lt_bits_{element}({x.name})"

    def convert(self, opcode: str, x: Vec, element: str) -> str:
        if opcode in ("fpext", "fptrunc") and "half" in (x.element, element):
            return self._let(element, f"lt_{x.element}_to_{element}({x.name})")
        return super().convert(opcode, x, element)

    def saturate(self, x: Vec, element: str, signed: bool) -> str:
        return self._let(element, f"lt_saturate<{'s' if signed else 'u'}{_TYPES[element][1:]}>({x.name})")

    def count_ones(self, x: Vec) -> str:
        kind = _TYPES[x.element]
        return f"({kind})__popc{'ll' if kind == 'u64' else ''}({x.name})"

    def multiply_high(self, x: Vec, other: str) -> str:
        return self._let("i64", f"__umul64hi({x.name}, {other})")

    def round_bfloat(self, x: Vec) -> str:
        return self._let("i16", f"lt_float_to_bfloat({x.name})")

    def identifier(self, symbol: str) -> str:
        return symbol.replace("lazyt.", "lt_", 1).replace(".", "_")

    def words(self, name: str, words: Sequence[int]) -> str:
        entries = ", ".join(f"{w:#x}ull" for w in words)
        return f"static __device__ const u64 {name}[{len(words)}] = {{{entries}}};\n"

    def function_text(
        self, name: str, results: Sequence[str], operands: Sequence[str], write: Callable[..., Vecs], cold: bool
    ) -> str:
        return function(name, results, operands, self.module, write, inline=not cold)


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
