"""The integer expressions of a plan, as one function of a walk's extents and scalars."""

from __future__ import annotations

from typing import Any

from lazyt.ir.extents import Dim, source, uses_offset


class Expressions:
    """The integer expressions of a plan, evaluated together."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.dynamic: list[bool] = []
        self.evaluate: Any = None

    def add(self, e: int | Dim) -> int:
        """The number of an expression."""
        text = source(e)
        n = self.numbers.get(text)
        if n is None:
            n = self.numbers[text] = len(self.numbers)
            self.dynamic.append(uses_offset(e))
        return n

    def compile(self) -> None:
        body = ",".join(self.numbers)
        self.evaluate = eval(compile(f"lambda s, o: [{body}]", "<lazyt extents>", "eval"), {"max": max})
