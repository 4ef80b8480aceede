"""The integer expressions of a plan, as one function of a trace's extents and scalars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.ir.extent_source import Function
from lazyt.ir.symbolic import Dim, compound

if TYPE_CHECKING:
    from collections.abc import Container, Iterator


class Expressions:
    """The integer expressions of a plan, evaluated together."""

    def __init__(self) -> None:
        self.known: dict[int | Dim, int] = {}  # the number of each
        self.evaluate: Any = None

    def add(self, e: int | Dim) -> int:
        """The number of an expression."""
        return self.known.setdefault(e, len(self.known))

    def compile(self) -> None:
        """Generate `evaluate(s, o)`, which gives the values of all in the order of their numbers."""
        function = Function("s, o")
        values = ",".join([function.source(e) for e in self.known])
        self.evaluate = function.compiled(f"[{values}]", "extents")

    def differing(self, varying: Container[int]) -> Iterator[tuple[int, bool]]:
        """The numbers of the expressions that differ if these symbols do, and whether they differ at every run."""
        moves: dict[int, bool | None] = {}  # by atom that is made of others; None: it does not differ

        def of(e: int | Dim) -> bool | None:
            if isinstance(e, int):
                return None
            found: bool | None = None
            atoms = e.scope.atoms
            for n in [n for mono, _ in e.terms for n in mono]:
                kind, k = atoms[n][:2]
                one = True if kind == "offset" else (False if k in varying else None) if kind == "symbol" else moves[n]
                found = found if one is None else one or bool(found)
            return found

        for e, number in self.known.items():
            if isinstance(e, Dim):
                for n in compound(e, moves):
                    each = [x for x in map(of, e.scope.operands(n)) if x is not None]
                    moves[n] = any(each) if each else None
            if (differs := of(e)) is not None:
                yield number, differs
