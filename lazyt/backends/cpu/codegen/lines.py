"""LLVM IR as text: the lines of one function, and the declarations that its module needs."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import cache, lru_cache

import numpy as np

from lazyt.backends.math.elements import Number

_SYMBOL = re.compile(r"[@!]([\w.$-]+)")


@lru_cache(maxsize=4096)
def _literal(element: str, value: Number, _: str) -> str:
    if element == "i1":
        return "true" if value else "false"
    if element[0] == "i":
        return str(int(value))
    if element == "half":
        return f"0xH{np.float16(value).view(np.uint16):04X}"
    with np.errstate(over="ignore"):
        exact = float(np.float32(value)) if element == "float" else float(value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', exact))[0]:016X}"


def literal(element: str, value: Number) -> str:
    """`value` rounded to `element` and spelled exactly, as LLVM's parser wants it."""
    # repr tells 0.0 from -0.0, 1 from True and one NaN from none, where equality does not.
    return _literal(element, value, repr(value))


@cache
def vector(element: str, lanes: int) -> str:
    """The type of `lanes` elements in a register; the scalar type when `lanes` is 0."""
    return f"<{lanes} x {element}>" if lanes else element


class Module:
    """Globals, declarations and helper functions of one LLVM module, each symbol once."""

    def __init__(self) -> None:
        self._entries: dict[str, str] = {}
        self.strategies: dict[str, None] = {}  # what was chosen in writing it, in words, for `explain()`

    def declare(self, text: str) -> None:
        """Add a declaration or a global; the first text under a symbol wins."""
        found = _SYMBOL.search(text)
        assert found, f"no symbol in {text!r}"
        self._entries.setdefault(found[1], text)

    def define(self, symbol: str, write: Callable[[Module], str]) -> None:
        """Have the function that `write` spells for the module it is given."""
        if symbol in self._entries:
            return
        self._entries[symbol] = ""  # before what it calls
        self._entries[symbol] = write(self)

    def text(self) -> str:
        return "\n".join(self._entries.values())


class Lines:
    """The lines of one function. `block` is the label of the block being written.

    NOTE: lowering one op may open new blocks, so a loop's back edge is taken from `block`, or from
    a latch block of its own.
    """

    def __init__(self, module: Module | None = None, block: str = "entry") -> None:
        self.module = module if module is not None else Module()
        self.lines: list[str] = []
        self.first = self.block = block
        self._count = 0

    def fresh(self, prefix: str) -> str:
        """A name that no other call gave, without its sigil."""
        self._count += 1
        return f"{prefix}{self._count}"

    def let(self, rhs: str) -> str:
        """Append `%tN = rhs`; return `%tN`."""
        self._count += 1
        name = f"%t{self._count}"
        self.lines.append(f"  {name} = {rhs}")
        return name

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        """Open the block `name`; the block before it must have ended in a branch."""
        self.lines.append(f"{name}:")
        self.block = name

    def declare(self, line: str) -> None:
        """Ask the module for a declaration or a global, once a symbol."""
        self.module.declare(line)

    def splat(self, element: str, value: Number, lanes: int) -> str:
        """The operand (without its type) that holds `value` in every lane."""
        text = literal(element, value)
        return f"splat ({element} {text})" if lanes else text

    def call(self, result: str, symbol: str, *operands: tuple[str, str]) -> str:
        """Call `symbol` with (type, operand) pairs and declare it; the result's name."""
        types = ", ".join(kind for kind, _ in operands)
        self.declare(f"declare {result} @{symbol}({types})")
        values = ", ".join(f"{kind} {value}" for kind, value in operands)
        return self.let(f"call {result} @{symbol}({values})")

    def text(self) -> str:
        return "\n".join(self.lines)
