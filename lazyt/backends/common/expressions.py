"""The integer expressions of a plan, as one function of a trace's extents and scalars."""

from __future__ import annotations

from typing import Any

from lazyt.ir.symbolic import Dim, source


class _Known(dict["int | Dim", int]):
    """The number of each expression; generating its source at every look-up would dominate the cost of binding."""

    def __init__(self, numbers: dict[str, int]) -> None:
        super().__init__()
        self._numbers = numbers

    def __missing__(self, e: int | Dim) -> int:
        n = self[e] = self._numbers[source(e)]
        return n


class Expressions:
    """The integer expressions of a plan, evaluated together."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.known = _Known(self.numbers)
        self.evaluate: Any = None

    def add(self, e: int | Dim) -> int:
        """The number of an expression."""
        n = self.known.get(e)
        if n is None:
            n = self.known[e] = self._number(source(e))
        return n

    def _number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    def compile(self) -> None:
        body = ",".join(self.numbers)
        self.evaluate = eval(compile(f"lambda s, o: [{body}]", "<lazyt extents>", "eval"), {"max": max})
