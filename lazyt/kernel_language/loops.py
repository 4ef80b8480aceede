"""Ranges, and `sum(e for k in range(n))` and its like: written out where they are short, else reductions."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from lazyt.errors import ShapeError
from lazyt.ir import dtypes
from lazyt.kernel_language.arithmetic import identity
from lazyt.kernel_language.call_expressions import Calls
from lazyt.kernel_language.values import Affine, Array, Axis, Truth
from lazyt.ops.reductions import total_dtype

if TYPE_CHECKING:
    from lazyt.ir.symbolic import Dim

# A loop over this many numbers at most is written out.
UNROLLED = 64


class Loops(Calls):
    """Evaluates reductions over ranges."""

    # Ranges

    def range_of(self, n: ast.AST) -> tuple[Any, Any, int]:
        """Start, stop and step of a `range(...)`."""
        if not isinstance(n, ast.Call) or self.callee_meaning(n) != ("range", ""):
            self.fail(n, f"a loop over `{ast.unparse(n)}`", "loops are over `range(...)`")
        given = [self.number_or_array(a) for a in n.args]
        for a, x in zip(n.args, given, strict=True):
            if isinstance(x, bool) or not (isinstance(x, int) or (isinstance(x, Affine) and not x.terms)):
                self.fail(
                    a, f"a range to `{ast.unparse(a)}`", "its bounds are whole numbers or extents, the same at each "
                    "index; use a condition in the loop",
                )  # fmt: skip
        if not 1 <= len(given) <= 3:
            self.fail(n, f"`{ast.unparse(n)}`", "range takes one to three arguments")
        start, stop = (0, given[0]) if len(given) == 1 else given[:2]
        step = given[2] if len(given) == 3 else 1
        if not isinstance(step, int) or step == 0:
            self.fail(n, "this step", "steps are constants and not 0")
        return start, stop, step

    def numbers_of(self, start: Any, stop: Any, step: int) -> range | None:
        """The range, if its bounds are constants."""
        return range(start, stop, step) if isinstance(start, int) and isinstance(stop, int) else None

    def open_loop(self, name: str, start: Any, stop: Any, step: int) -> Affine:
        """A new axis for a loop's variable, which runs over it."""
        p, q = (x if isinstance(x, Affine) else Affine((), x) for x in (start, stop))
        self.whole.of_position(p)
        self.whole.of_position(q.plus(p.times(-1)))
        length: int | Dim = (q.offset - p.offset) if step > 0 else (p.offset - q.offset)
        length = length if abs(step) == 1 else (length + abs(step) - 1) // abs(step)
        if not self.b.at_least(length, 0):
            length = 0
        axis = Axis(name, len(self.axes), length, p.offset, step)
        self.axes.append(axis)
        return axis.position()

    # Reductions

    def _generatorexp(self, n: ast.GeneratorExp) -> Any:
        self.fail(n, "`... for ...` here", "it stands in sum, prod, max, min, any or all")

    def generator(self, n: ast.GeneratorExp, name: str) -> Any:
        """`sum(e for k in range(n) ... if c)` and its like."""
        kept = dict(self.variables)
        try:
            parts = self._written_out(n, 0, name)
            if parts is not None:
                return self.folded(n, name, parts)
            return self._over(n, 0, name)
        finally:
            self.variables = kept

    def folded(self, n: ast.AST, name: str, parts: list[Any]) -> Any:
        """The parts put together one after another, in the dtype that a reduction has."""
        if name.startswith("arg"):
            self.fail(n, f"{name} of an expression with `for`", "it is of a row")
        if not parts:
            if name in ("max", "min", "mean"):
                self.source.refuse(n, ShapeError, f"{name} of nothing")
            return identity(name, dtypes.int64)
        join = {
            "sum": "add", "mean": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "any": "logical_or",
            "all": "logical_and",
        }  # fmt: skip
        if name in ("any", "all"):
            parts = [self.truth(p) for p in parts]
        elif name in ("sum", "prod", "mean"):
            parts = [self.widened(p) for p in parts]
        total = parts[0]
        for p in parts[1:]:
            total = self.binary(n, ast.Add(), total, p) if join[name] == "add" else self.apply(join[name], total, p)
        return self.apply("divide", total, len(parts)) if name == "mean" else total

    def widened(self, x: Any) -> Any:
        """A part of a sum or product as it is added: bools and narrow integers in 64 bits, as `lt.sum` adds them."""
        if isinstance(x, bool):
            return int(x)
        if not isinstance(x, Array) or dtypes.kind(x.dtype) not in "biu":
            return x
        return Array(self.b.cast(x.node, total_dtype(x.dtype)), x.frame, x.weak)

    def _written_out(self, n: ast.GeneratorExp, k: int, name: str) -> list[Any] | None:
        """The elements, if there are few and as many as the program says."""
        if k == len(n.generators):
            return [self.number_or_array(n.elt)]
        g = n.generators[k]
        numbers = self.numbers_of(*self.range_of(g.iter))
        if numbers is None or numbers[UNROLLED:]:
            return None
        found: list[Any] = []
        for i in numbers:
            self.variables[g.target.id] = i  # type: ignore[attr-defined]
            c: Truth | bool = True
            opened = len(self.path)
            for test in g.ifs:
                c = self._both(c, one := self.condition_of(test))
                if isinstance(one, Truth):
                    self.path.append(one)
            inner = self._written_out(n, k + 1, name) if c is not False else []
            del self.path[opened:]
            if inner is None or len(found) + len(inner) > UNROLLED:
                return None
            found += [x if isinstance(c, bool) else self._masked(n, name, x, c) for x in inner]
        return found

    def _masked(self, n: ast.AST, name: str, x: Any, c: Truth) -> Any:
        """x where a filter lets it through, what changes nothing elsewhere."""
        if name == "mean" or name.startswith("arg"):
            self.fail(n, f"a condition in {name}", "how many elements there are would depend on data")
        y = self.array(self.truth(x)) if name in ("any", "all") else self.array(x)
        one = identity(name, y.dtype)
        return self.select(c, y, Array(self.b.constant(one, y.dtype), 0, y.weak))

    def _over(self, n: ast.GeneratorExp, k: int, name: str) -> Any:
        """A reduction over the axes of loops, the innermost first."""
        if k == len(n.generators):
            x = self.array(self.number_or_array(n.elt))
            return self.truth(x) if name in ("any", "all") else x
        g = n.generators[k]
        if name.startswith("arg"):
            self.fail(n, f"{name} of an expression with `for`", "it is of a row")
        self.variables[g.target.id] = self.open_loop(g.target.id, *self.range_of(g.iter))  # type: ignore[attr-defined]
        opened = len(self.path)
        try:
            tests = [self.condition_of(t) for t in g.ifs]
            self.path += [t for t in tests if isinstance(t, Truth)]
            x = self._over(n, k + 1, name)
            for c in tests:
                x = x if c is True else self._masked(n, name, x, self.array_truth(c))
            return self.reduce(name, self.array(x))
        finally:
            del self.path[opened:]
            self.axes.pop()

    def array_truth(self, c: Truth | bool) -> Truth:
        """A truth as an array."""
        if isinstance(c, Truth):
            return c
        return Truth(self.b.constant(c, dtypes.bool_), 0)
