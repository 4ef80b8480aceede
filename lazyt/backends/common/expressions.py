"""The integer expressions of a plan, as one function of a trace's extents and scalars."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lazyt.ir.symbolic import Dim, source

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

_SYMBOL, _SUM = re.compile(r"\bs\[(\d+)\]"), re.compile(r"\bsum\d+\b")


class _Known(dict["int | Dim", int]):
    """The number of each expression; generating its source at every look-up would dominate the cost of binding."""

    def __init__(self, expressions: Expressions) -> None:
        super().__init__()
        self._expressions = expressions

    def __missing__(self, e: int | Dim) -> int:
        n = self[e] = self._expressions.numbers[self._expressions.source(e)]
        return n


class Expressions:
    """The integer expressions of a plan, evaluated together."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.sums: dict[str, str] = {}  # by name; each after those that it is made of
        self.known = _Known(self)
        self.evaluate: Any = None

    def add(self, e: int | Dim) -> int:
        """The number of an expression."""
        n = self.known.get(e)
        if n is None:
            n = self.known[e] = self._number(self.source(e))
        return n

    def source(self, e: int | Dim) -> str:
        """Its text, in which sums that have names stand by them."""
        return source(e, self._sum)

    def _sum(self, n: int, e: Dim) -> str:
        name = f"sum{n}"
        if name not in self.sums:
            self.sums[name] = source(e, self._sum)
        return name

    def _number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    def compile(self) -> None:
        lines = [*(f"{name} = {text}" for name, text in self.sums.items()), f"return [{','.join(self.numbers)}]"]
        space: dict[str, Any] = {"max": max}
        exec(compile("def evaluate(s, o):\n " + "\n ".join(lines) + "\n", "<lazyt extents>", "exec"), space)
        self.evaluate = space["evaluate"]

    def differing(self, varying: Container[int]) -> Iterator[tuple[int, bool]]:
        """The numbers of the expressions that differ if these symbols do, and whether they differ at every run."""
        sums: dict[str, bool] = {}

        def of(text: str) -> bool | None:
            inner = [sums[name] for name in _SUM.findall(text) if name in sums] if sums else []
            moves = "o[" in text or any(inner)
            return moves if moves or inner or any(int(k) in varying for k in _SYMBOL.findall(text)) else None

        for name, text in self.sums.items():
            if (moves := of(text)) is not None:
                sums[name] = moves
        for text, n in self.numbers.items():
            if (moves := of(text)) is not None:
                yield n, moves
