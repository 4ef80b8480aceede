"""Extents as generated Python functions, and their values.

An atom that is made of others is a line of its own, written once: extents nest, and one that is written out has as many
copies of an inner one as there are ways to it.

    a7 = ((s[0]+1)//2)
    a9 = ((a7+1)//2)
    if not a9==s[3]: return False
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from lazyt.ir.symbolic import Dim, compound, definition, written

if TYPE_CHECKING:
    from lazyt.ir.symbolic import Scope

Guard = tuple[str, "int | Dim", "int | Dim"]

SIGN = {"eq": "==", "ge": ">=", "lt": "<"}
HOLDS: dict[str, Callable[[int, int], bool]] = {"eq": operator.eq, "ge": operator.ge, "lt": operator.lt}
_MADE: dict[object, Callable[..., int]] = {
    "sum": int, "factor": int, "floordiv": operator.floordiv, "max": max, "min": min,
}  # fmt: skip


def evaluated(kind: object, *operands: int) -> int:
    """The value of an atom of this kind, made of extents of these values."""
    return _MADE[kind](*operands)


class Function:
    """A function in the making, of a trace's extents `s` and its scalar arguments `o`."""

    def __init__(self, parameters: str, *lines: str) -> None:
        self.parameters = parameters
        self.lines = list(lines)
        self.atoms: set[int] = set()  # that have a line; all are of one scope
        self._scope: Scope | None = None

    def source(self, a: int | Dim) -> str:
        """The text of an extent; the atoms in it get their lines here."""
        if isinstance(a, int):
            return str(a)
        self._scope = a.scope
        for n in compound(a, self.atoms):
            self.lines.append(f"a{n} = {definition(a.scope, n, self._name)}")
            self.atoms.add(n)
        return written(a, self._name)

    def _name(self, n: int) -> str:
        assert self._scope is not None
        kind, *rest = self._scope.atoms[n]
        return f"s[{rest[0]}]" if kind == "symbol" else f"o[{rest[0]}]" if kind == "offset" else f"a{n}"

    def require(self, guards: Iterable[Guard], otherwise: str) -> None:
        """Return `otherwise` where a guard does not hold."""
        tests: list[str] = []
        for kind, a, b in guards:
            before = len(self.lines)
            test = f"{self.source(a)}{SIGN[kind]}{self.source(b)}"
            # NOTE: what a guard is made of may divide by an extent that is 0 where an earlier guard does not hold.
            if len(self.lines) > before and tests:
                self.lines.insert(before, _unless(tests, otherwise))
                tests = []
            tests.append(test)
        if tests:
            self.lines.append(_unless(tests, otherwise))

    def compiled(self, result: str, what: str) -> Callable[..., Any]:
        """The function, with the text of its result; what: the name of its file in tracebacks."""
        space: dict[str, Any] = {}
        body = "\n ".join([*self.lines, f"return {result}"])
        exec(compile(f"def evaluate({self.parameters}):\n {body}\n", f"<lazyt {what}>", "exec"), space)
        found: Callable[..., Any] = space["evaluate"]
        return found


def _unless(tests: Sequence[str], otherwise: str) -> str:
    return f"if not ({' and '.join(tests)}): return {otherwise}"


class Values:
    """The values of extents of one scope, where symbols are `s` and offsets `o`."""

    def __init__(self, s: Sequence[int], o: Sequence[Any] = ()) -> None:
        self._s, self._o = s, o
        self._atoms: dict[int, int] = {}

    def of(self, a: int | Dim) -> int:
        """The value of an extent."""
        if isinstance(a, int):
            return a
        for n in compound(a, self._atoms):
            self._atoms[n] = evaluated(a.scope.atoms[n][0], *map(self._polynomial, a.scope.operands(n)))
        return self._polynomial(a)

    def _polynomial(self, a: int | Dim) -> int:
        if isinstance(a, int):
            return a
        total = 0
        for mono, coef in a.terms:
            for n in mono:
                value = self._atoms.get(n)
                if value is None:
                    kind, k = a.scope.atoms[n]
                    assert isinstance(k, int), "of a symbol or an offset"
                    value = int((self._s if kind == "symbol" else self._o)[k])
                coef *= value
            total += coef
        return total
